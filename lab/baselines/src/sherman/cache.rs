//! The index cache: copies of inner nodes, found by key (Sherman, section 2).
//!
//! A search begins at the lowest cached node that covers its key, so a cached node above the leaves
//! saves all round trips except the leaf's. Copies are hints: the birth tag and fences of the node
//! that they lead to show whether they are still valid, and a copy that misled is dropped. The
//! root's copy is always kept. If the budget is exceeded, the less recently used of two random
//! copies is dropped until the rest fits. Every step drops one, so eviction terminates regardless
//! of the copies' sizes.

use super::format::mix;
use super::page::{Aim, Page, Position};
use std::collections::BTreeMap;
use std::ops::Bound::{Excluded, Unbounded};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

/// Bytes of a copy in addition to the node.
const OVERHEAD_BYTES: u64 = 128;

/// A copy of an inner node.
#[derive(Debug)]
pub(crate) struct Copy {
    pub(crate) page: Page,
    /// The number of insertions before its last use.
    used_at: AtomicU64,
}

impl Copy {
    fn bytes(&self) -> u64 {
        self.page.memory_bytes() + self.page.low.bytes().len() as u64 + OVERHEAD_BYTES
    }
}

#[derive(Debug, Default)]
struct Copies {
    root: Option<Arc<Copy>>,
    /// By level, from 1 on, then by lower fence.
    levels: Vec<BTreeMap<Box<[u8]>, Arc<Copy>>>,
    /// All except the root's, unordered, for random choice.
    all: Vec<(u8, Box<[u8]>)>,
    places: BTreeMap<(u8, Box<[u8]>), usize>,
    bytes: u64,
}

impl Copies {
    fn remove(&mut self, level: u8, low: &[u8]) {
        let Some(map) = self.levels.get_mut(usize::from(level)) else { return };
        let Some(copy) = map.remove(low) else { return };
        self.bytes -= copy.bytes();
        if let Some(place) = self.places.remove(&(level, low.into())) {
            self.all.swap_remove(place);
            if let Some(moved) = self.all.get(place) {
                self.places.insert(moved.clone(), place);
            }
        }
    }

    fn copy(&self, (level, low): &(u8, Box<[u8]>)) -> Option<&Arc<Copy>> {
        self.levels.get(usize::from(*level))?.get(low)
    }
}

/// The copies of one compute node.
#[derive(Debug)]
pub(crate) struct Cache {
    copies: RwLock<Copies>,
    budget: u64,
    insertions: AtomicU64,
}

impl Cache {
    pub(crate) fn new(budget: u64) -> Self {
        Self { copies: RwLock::default(), budget, insertions: AtomicU64::new(0) }
    }

    fn read(&self) -> RwLockReadGuard<'_, Copies> {
        self.copies.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Copies> {
        self.copies.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the lowest copy from `level` up that covers the target.
    pub(crate) fn find(&self, aim: Aim<'_>, level: u8) -> Option<Arc<Copy>> {
        let copies = self.read();
        let low = |map: &BTreeMap<Box<[u8]>, Arc<Copy>>| {
            let mut before = match aim {
                Aim::At(key) => map.range::<[u8], _>((Unbounded, std::ops::Bound::Included(key))),
                Aim::Below(key) => map.range::<[u8], _>((Unbounded, Excluded(key))),
                Aim::Last => map.range::<[u8], _>((Unbounded, Unbounded)),
            };
            before.next_back().map(|(_, copy)| Arc::clone(copy))
        };
        let found = copies
            .levels
            .iter()
            .skip(usize::from(level))
            .filter_map(low)
            .find(|copy| copy.page.place(aim) == Some(Position::Within));
        let found = found.or_else(|| copies.root.clone().filter(|root| root.page.level >= level))?;
        found.used_at.store(self.insertions.load(Ordering::Relaxed), Ordering::Relaxed);
        Some(found)
    }

    /// Keeps a copy of the root.
    pub(crate) fn keep_root(&self, page: Page) {
        let root = (!page.is_leaf()).then(|| Arc::new(Copy { page, used_at: AtomicU64::new(0) }));
        self.write().root = root;
    }

    /// Keeps a copy of another inner node whose bounds are all known.
    pub(crate) fn keep(&self, page: Page) {
        if self.budget == 0 {
            return;
        }
        let now = self.insertions.fetch_add(1, Ordering::Relaxed) + 1;
        let (level, low): (_, Box<[u8]>) = (page.level, page.low.bytes().into());
        let mut copies = self.write();
        let at = usize::from(level);
        if copies.levels.len() <= at {
            copies.levels.resize_with(at + 1, BTreeMap::new);
        }
        // Copies inside the new copy's range belong to nodes that it has taken in.
        let upper = page.high.as_ref().map_or(Unbounded, |high| Excluded(high.bytes()));
        let inside = if page.high.as_ref().is_none_or(|high| high.bytes() > &low[..]) {
            let range = copies.levels[at].range::<[u8], _>((std::ops::Bound::Included(&low[..]), upper));
            range.map(|(low, _)| low.clone()).collect()
        } else {
            Vec::new()
        };
        for low in inside {
            copies.remove(level, &low);
        }
        let copy = Arc::new(Copy { page, used_at: AtomicU64::new(now) });
        copies.bytes += copy.bytes();
        let place = copies.all.len();
        copies.all.push((level, low.clone()));
        copies.places.insert((level, low.clone()), place);
        copies.levels[at].insert(low, copy);
        let mut dice = mix(now, copies.bytes);
        while copies.bytes > self.budget && !copies.all.is_empty() {
            dice = mix(dice, 1);
            let picks = [dice >> 32, dice & 0xffff_ffff].map(|pick| pick as usize % copies.all.len());
            let age = |pick: usize| {
                copies.copy(&copies.all[pick]).map_or(0, |copy| copy.used_at.load(Ordering::Relaxed))
            };
            let victim = if age(picks[0]) <= age(picks[1]) { picks[0] } else { picks[1] };
            let (level, low) = copies.all[victim].clone();
            copies.remove(level, &low);
        }
    }

    /// Drops a copy that misled.
    pub(crate) fn drop_copy(&self, copy: &Arc<Copy>) {
        let mut copies = self.write();
        if copies.root.as_ref().is_some_and(|root| Arc::ptr_eq(root, copy)) {
            copies.root = None;
            return;
        }
        let (level, low) = (copy.page.level, copy.page.low.bytes());
        let known = copies.levels.get(usize::from(level)).and_then(|map| map.get(low));
        if known.is_some_and(|known| Arc::ptr_eq(known, copy)) {
            copies.remove(level, low);
        }
    }

    /// Returns the bytes in use.
    pub(crate) fn bytes(&self) -> u64 {
        let copies = self.read();
        copies.bytes + copies.root.as_ref().map_or(0, |root| root.bytes())
    }
}
