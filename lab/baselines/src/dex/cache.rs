//! The page cache of one owner (paper, section 5): frames, the mapping table, and the cooling map.
//!
//! A page is *hot* or *cooling*. The hot pages are the top of the tree: a page becomes hot only under
//! a hot parent, and cools only if it has no hot child. A page to cool is chosen by *delegation*: a
//! random hot page passes the choice to its hot child that is nearest to a random place, down to a
//! page without hot children. A cooling page is clean. It becomes hot again when a descent reaches
//! it, and otherwise leaves the cache first-in-first-out within its bucket of the cooling map.
//!
//! Differences from the published cache: a child is found by the mapping table, not by a pointer in
//! its parent ("swizzling"), because that costs no round trip either; one mutex replaces optimistic
//! locks; and pages with a verb in progress are pinned or locked by the operation
//! ([`super::pages`]). If no page can be cooled, the cache exceeds its size for a moment.

use super::node::{Applied, Change, Fences, Guard, NODE_BYTES, Node};
use crate::sherman::format::mix;
use darter_fabric::GlobalAddr;
use std::collections::{HashMap, VecDeque};

/// Pages of a bucket of the cooling map.
const BUCKET: usize = 6;
/// Share of the frames that may hold cooling pages: one in ten.
const COOLING_SHARE: usize = 10;
/// Buckets in which a page to evict is searched.
const BUCKETS_TRIED: usize = 8;
/// The smallest cache, in frames: several paths of a deep tree.
const FRAMES_MIN: usize = 16;
/// Random frames that are tried before all are.
const PICKS: usize = 32;

/// A cached page.
#[derive(Debug)]
pub(super) struct Frame {
    pub(super) node: Node,
    is_cooling: bool,
    /// Changed since it was last written.
    pub(super) is_dirty: bool,
    /// Operations that read or write a child that is not cached.
    pins: u32,
    /// Number of changes.
    pub(super) edits: u64,
    /// Blocks of values that the page named when it was last written, and names no longer.
    pub(super) dropped: Vec<u64>,
}

/// A page that a descent needs and that is not in the cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Missing {
    pub(super) addr: GlobalAddr,
    pub(super) level: u8,
    /// The keys that the parent gives it.
    pub(super) fences: Fences,
    pub(super) parent: GlobalAddr,
    pub(super) parent_is_shared: bool,
}

/// Where a descent ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// At a cached leaf, in this frame.
    Leaf(usize),
    Missing(Missing),
    /// At a full inner node, which an insert splits before it goes on.
    Full(GlobalAddr),
}

/// The cache.
#[derive(Debug)]
pub(super) struct Cache {
    frames: Vec<Option<Frame>>,
    /// Frames by the addresses of their pages.
    map: HashMap<u64, usize>,
    free: Vec<usize>,
    capacity: usize,
    /// Whether all frames have been in use: from then on few leaves are admitted.
    was_full: bool,
    cooling: Vec<VecDeque<usize>>,
    root: usize,
    dice: u64,
}

impl Cache {
    /// Creates a cache that holds the root.
    pub(super) fn new(bytes: u64, seed: u64, root: Node) -> Self {
        let capacity = usize::try_from(bytes / NODE_BYTES).unwrap_or(usize::MAX).max(FRAMES_MIN);
        let buckets = (capacity / COOLING_SHARE / BUCKET).max(1);
        let mut cache = Self {
            frames: Vec::new(),
            map: HashMap::new(),
            free: Vec::new(),
            capacity,
            was_full: false,
            cooling: vec![VecDeque::new(); buckets],
            root: 0,
            dice: mix(seed, capacity as u64),
        };
        cache.root = cache.insert(root, false);
        cache
    }

    /// Drops all pages, and holds another image of the root.
    pub(super) fn reset(&mut self, root: Node) {
        let bytes = self.capacity as u64 * NODE_BYTES;
        *self = Self::new(bytes, self.dice, root);
    }

    /// Returns a random number.
    pub(super) fn random(&mut self) -> u64 {
        self.dice = self.dice.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(mix(self.dice, self.dice >> 32), self.dice >> 17) >> 8
    }

    /// Returns whether an event of this probability, in percent, happens.
    pub(super) fn draw(&mut self, percent: u8) -> bool {
        self.random() % 100 < u64::from(percent)
    }

    pub(super) fn used(&self) -> usize {
        self.frames.len() - self.free.len()
    }

    pub(super) fn has_room(&self) -> bool {
        self.used() < self.capacity
    }

    /// Returns whether the cache is full, or has been.
    pub(super) fn was_full(&mut self) -> bool {
        self.was_full |= !self.has_room();
        self.was_full
    }

    /// Returns the frame of a page.
    pub(super) fn frame_of(&self, addr: GlobalAddr) -> Option<usize> {
        self.map.get(&addr.bits()).copied()
    }

    pub(super) fn frame(&mut self, at: usize) -> Option<&mut Frame> {
        self.frames.get_mut(at)?.as_mut()
    }

    pub(super) fn page(&mut self, addr: GlobalAddr) -> Option<&mut Frame> {
        let at = self.frame_of(addr)?;
        self.frame(at)
    }

    fn node(&self, at: usize) -> Option<&Node> {
        self.frames.get(at)?.as_ref().map(|frame| &frame.node)
    }

    /// Descends to a key through cached pages. A cooling page on the way becomes hot. If the key is
    /// to be inserted, the descent stops at full inner nodes.
    pub(super) fn descend(&mut self, key: u64, inserts: bool) -> Step {
        let mut at = self.root;
        loop {
            let Some(node) = self.node(at) else { unreachable!("a descent passes cached pages only") };
            if node.level() == 0 {
                return Step::Leaf(at);
            }
            if inserts && node.is_full() {
                return Step::Full(node.addr());
            }
            let slot = node.child_for(key);
            let (addr, fences) = (node.child(slot), node.range(slot));
            let has_fences = |&child: &usize| self.node(child).is_some_and(|node| node.fences() == fences);
            match self.frame_of(addr).filter(has_fences) {
                Some(child) => {
                    self.heat(child);
                    at = child;
                }
                None => {
                    return Step::Missing(Missing {
                        addr,
                        level: node.level() - 1,
                        fences,
                        parent: node.addr(),
                        parent_is_shared: node.is_shared(),
                    });
                }
            }
        }
    }

    /// Returns the parent of a cached page that holds a key, and the place of the page in it.
    pub(super) fn parent_of(&self, addr: GlobalAddr, key: u64) -> Option<(GlobalAddr, usize)> {
        let mut at = self.root;
        loop {
            let node = self.node(at).filter(|node| node.level() > 0)?;
            let slot = node.child_for(key);
            if node.child(slot) == addr {
                return Some((node.addr(), slot));
            }
            at = self.frame_of(node.child(slot))?;
        }
    }

    fn heat(&mut self, at: usize) {
        if let Some(frame) = self.frames[at].as_mut()
            && frame.is_cooling
        {
            frame.is_cooling = false;
            let bucket = self.bucket_of(at);
            self.cooling[bucket].retain(|&other| other != at);
        }
    }

    fn bucket_of(&self, at: usize) -> usize {
        let addr = self.node(at).map_or(0, |node| node.addr().bits());
        (mix(addr, 0x5bd1_e995) >> 16) as usize % self.cooling.len()
    }

    /// Changes a key of a cached leaf. The block of a replaced value is noted if values are in
    /// blocks.
    pub(super) fn apply(
        &mut self,
        at: usize,
        (key, change, guard): (u64, Change, Guard),
        in_blocks: bool,
    ) -> Applied {
        let Some(frame) = self.frame(at) else { return Applied::Full };
        let applied = frame.node.apply(key, change, guard);
        if let Applied::Done(old) = applied {
            frame.is_dirty = true;
            frame.edits += 1;
            frame.dropped.extend(old.filter(|_| in_blocks));
        }
        applied
    }

    /// Adds a page, or replaces an outdated image of it. The page is hot.
    pub(super) fn insert(&mut self, node: Node, is_dirty: bool) -> usize {
        if let Some(at) = self.frame_of(node.addr()) {
            self.heat(at);
            if let Some(frame) = self.frame(at) {
                frame.node = node;
                frame.is_dirty = is_dirty;
                frame.edits += 1;
            }
            return at;
        }
        let addr = node.addr().bits();
        let frame = Frame { node, is_cooling: false, is_dirty, pins: 0, edits: 0, dropped: Vec::new() };
        let at = self.free.pop().unwrap_or(self.frames.len());
        if at == self.frames.len() {
            self.frames.push(Some(frame));
        } else {
            self.frames[at] = Some(frame);
        }
        self.map.insert(addr, at);
        at
    }

    /// Keeps a page hot, with all pages above it, until it is unpinned.
    pub(super) fn pin(&mut self, addr: GlobalAddr) {
        if let Some(frame) = self.page(addr) {
            frame.pins += 1;
        }
    }

    pub(super) fn unpin(&mut self, addr: GlobalAddr) {
        if let Some(frame) = self.page(addr) {
            frame.pins = frame.pins.saturating_sub(1);
        }
    }

    /// Returns whether a page is hot and not pinned.
    pub(super) fn is_free(&self, addr: GlobalAddr) -> bool {
        let frame = self.frame_of(addr).and_then(|at| self.frames[at].as_ref());
        frame.is_some_and(|frame| frame.pins == 0 && !frame.is_cooling)
    }

    fn is_hot(&self, at: usize) -> bool {
        self.frames[at].as_ref().is_some_and(|frame| !frame.is_cooling)
    }

    /// Returns the hot child of a page that is nearest to a random place.
    fn hot_child(&mut self, at: usize) -> Option<usize> {
        let random = self.random();
        let node = self.node(at).filter(|node| node.level() > 0)?;
        let from = random as usize % node.count();
        let hot = (0..node.count()).filter_map(|slot| {
            let child = self.frame_of(node.child(slot)).filter(|&child| self.is_hot(child))?;
            Some((slot.abs_diff(from), child))
        });
        hot.min().map(|(_, child)| child)
    }

    fn may_cool(&mut self, at: usize) -> bool {
        let is_idle = self.is_hot(at) && self.frame(at).is_some_and(|frame| frame.pins == 0);
        is_idle && at != self.root && self.hot_child(at).is_none()
    }

    /// Chooses a page to cool, by delegation.
    pub(super) fn victim(&mut self) -> Option<GlobalAddr> {
        let count = self.frames.len();
        let picks: Vec<_> = (0..PICKS).map(|_| self.random() as usize % count).collect();
        let mut at = picks.into_iter().chain(0..count).find(|&at| self.is_hot(at))?;
        while let Some(child) = self.hot_child(at) {
            at = child;
        }
        if !self.may_cool(at) {
            return None;
        }
        self.node(at).map(Node::addr)
    }

    /// Cools a clean page. If its bucket is full, the oldest page there leaves the cache.
    pub(super) fn cool(&mut self, addr: GlobalAddr) {
        let Some(at) = self.frame_of(addr) else { return };
        if !self.may_cool(at) || self.frame(at).is_some_and(|frame| frame.is_dirty) {
            return;
        }
        if let Some(frame) = self.frame(at) {
            frame.is_cooling = true;
        }
        let bucket = self.bucket_of(at);
        self.cooling[bucket].push_front(at);
        if self.cooling[bucket].len() > BUCKET
            && let Some(oldest) = self.cooling[bucket].pop_back()
        {
            self.evict(oldest);
        }
    }

    /// Evicts the oldest page of the first bucket that has one, from a random bucket on.
    pub(super) fn evict_cold(&mut self) -> bool {
        let (first, count) = (self.random() as usize, self.cooling.len());
        let mut buckets = (0..BUCKETS_TRIED.min(count)).map(|step| (first + step) % count);
        let oldest = buckets.find_map(|bucket| self.cooling[bucket].pop_back());
        oldest.inspect(|&at| self.evict(at)).is_some()
    }

    fn evict(&mut self, at: usize) {
        if let Some(frame) = self.frames[at].take() {
            debug_assert!(!frame.is_dirty && frame.pins == 0);
            self.map.remove(&frame.node.addr().bits());
            self.free.push(at);
        }
    }

    /// Drops a cooling page, which a memory node has changed.
    pub(super) fn forget(&mut self, addr: GlobalAddr) {
        if let Some(at) = self.frame_of(addr).filter(|&at| !self.is_hot(at)) {
            let bucket = self.bucket_of(at);
            self.cooling[bucket].retain(|&other| other != at);
            self.evict(at);
        }
    }

    /// Drops all cooling pages with these keys, one of which a memory node may have changed.
    pub(super) fn forget_all(&mut self, fences: Fences) {
        let cooling: Vec<_> = self.cooling.iter().flatten().filter_map(|&at| self.node(at)).collect();
        let inside = cooling.into_iter().filter(|node| fences.contains(node.fences().high));
        inside.map(Node::addr).collect::<Vec<_>>().into_iter().for_each(|addr| self.forget(addr));
    }

    /// Replaces a cached leaf that was being written: its memory may hold another image now.
    pub(super) fn spoil(&mut self, addr: GlobalAddr) {
        if let Some(at) = self.frame_of(addr).filter(|&at| at != self.root) {
            self.heat(at);
            if let Some(frame) = self.frame(at) {
                frame.is_dirty = false;
            }
            self.evict(at);
        }
    }

    /// Returns the changed pages, leaves first.
    pub(super) fn dirty(&self) -> Vec<GlobalAddr> {
        let dirty = self.frames.iter().flatten().filter(|frame| frame.is_dirty);
        let mut dirty: Vec<_> = dirty.map(|frame| (frame.node.level(), frame.node.addr())).collect();
        dirty.sort_unstable();
        dirty.into_iter().map(|(_, addr)| addr).collect()
    }

    /// Verifies the rules above; for tests.
    #[cfg(test)]
    pub(super) fn assert_sound(&self) {
        let cooling: Vec<_> = self.cooling.iter().flatten().copied().collect();
        assert!(self.cooling.iter().all(|bucket| bucket.len() <= BUCKET));
        for (at, frame) in self.frames.iter().enumerate() {
            let Some(frame) = frame else {
                assert!(self.free.contains(&at));
                continue;
            };
            assert_eq!(self.frame_of(frame.node.addr()), Some(at));
            assert_eq!(cooling.iter().filter(|&&other| other == at).count(), usize::from(frame.is_cooling));
            assert!(!(frame.is_cooling && frame.is_dirty));
            if !frame.is_cooling && at != self.root {
                let parent = self.parent_of(frame.node.addr(), frame.node.fences().high);
                let parent = parent.and_then(|(parent, _)| self.frame_of(parent)).unwrap();
                assert!(self.is_hot(parent), "a hot page under a cooling one");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(number: u64) -> GlobalAddr {
        GlobalAddr::new(0, number * NODE_BYTES)
    }

    /// A root over 40 leaves of the keys up to 10, 20, …
    fn root() -> Node {
        let mut root = Node::new(at(1), 1, Fences { low: 0, high: 400 }, false);
        (0..40).for_each(|leaf| root.push_child(at(leaf + 2), leaf * 10 + 10));
        root
    }

    fn fetch(cache: &mut Cache, key: u64) -> Missing {
        let Step::Missing(missing) = cache.descend(key, false) else { panic!() };
        cache.insert(Node::new(missing.addr, missing.level, missing.fences, false), false);
        missing
    }

    #[test]
    fn descents_end_at_missing_pages_and_heat_cooling_ones() {
        let mut cache = Cache::new(0, 1, root());
        let missing = fetch(&mut cache, 25);
        assert_eq!((missing.addr, missing.fences), (at(4), Fences { low: 20, high: 30 }));
        assert_eq!((missing.parent, missing.level), (at(1), 0));
        cache.cool(at(4));
        assert!(!cache.is_hot(cache.frame_of(at(4)).unwrap()));
        assert!(matches!(cache.descend(30, false), Step::Leaf(_)));
        assert!(cache.is_hot(cache.frame_of(at(4)).unwrap()));
        cache.assert_sound();
        cache.cool(at(4));
        cache.forget_all(Fences { low: 20, high: 90 });
        assert_eq!((cache.frame_of(at(4)), cache.used()), (None, 1));
        cache.assert_sound();
    }

    #[test]
    fn the_choice_is_delegated_to_pages_without_hot_children() {
        let mut cache = Cache::new(0, 7, root());
        assert_eq!(cache.victim(), None, "the root stays");
        (0..10).for_each(|leaf| _ = fetch(&mut cache, leaf * 10 + 1));
        for _ in 0..100 {
            let victim = cache.victim().unwrap();
            assert_ne!(victim, at(1));
        }
        cache.pin(at(1));
        cache.page(at(2)).unwrap().is_dirty = true;
        cache.cool(at(2));
        assert!(cache.is_hot(cache.frame_of(at(2)).unwrap()), "dirty pages are written first");
        assert!(!cache.is_free(at(1)));
        cache.unpin(at(1));
        assert!(cache.is_free(at(1)));
        assert_eq!(cache.dirty(), [at(2)]);
    }

    #[test]
    fn buckets_are_first_in_first_out() {
        let mut cache = Cache::new(0, 3, root());
        (0..15).for_each(|leaf| _ = fetch(&mut cache, leaf * 10 + 1));
        assert!(!cache.has_room() && cache.was_full());
        (0..8).for_each(|leaf| cache.cool(at(leaf + 2)));
        cache.assert_sound();
        // The first two have left the only bucket.
        let cached: Vec<_> = (0..15).filter(|&leaf| cache.frame_of(at(leaf + 2)).is_some()).collect();
        assert_eq!(cached, (2..15).collect::<Vec<_>>());
        assert!(cache.evict_cold() && cache.frame_of(at(4)).is_none());
        assert!(cache.was_full() && cache.has_room());
    }
}
