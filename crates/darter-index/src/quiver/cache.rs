//! What a process remembers of the index: nodes, and pages with their maps.
//!
//! All of it is hints. Each bears the life that it is of, and the word that it leads to says whether
//! that life lasts (`docs/quiver.md`, L2), so nothing has to be forgotten because something else
//! changed. Nodes are found by the identity of their prefix, pages by their node and edge. What was
//! not used since it was last looked at goes first.

use super::nibble::{EdgeRange, NibbleKey, edge, nibbles};
use super::page::{PageRef, Shape};
use darter_fabric::GlobalAddr;
use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Parts of the cache that threads use side by side.
const SHARDS: usize = 16;
/// Nodes below this depth are not remembered.
const DEPTHS: usize = 256;
/// Bytes of a node's entry: itself, and its share of the table.
const NODE_BYTES: u64 = 96;
/// Bytes of a page's entry, without its map.
const PAGE_BYTES: u64 = 128;
/// Epochs after which everything is forgotten.
const EPOCHS_KEPT: u64 = 1 << 30;
/// Epochs after its birth until which a page is remembered.
const AGE_MAX: u32 = 1 << 31;

/// A node as it was when it was linked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct NodeHint {
    pub(super) addr: GlobalAddr,
    pub(super) born: u32,
    pub(super) depth: usize,
}

/// A page as it was when it was linked.
#[derive(Debug)]
pub(super) struct PageHint {
    pub(super) page: PageRef,
    pub(super) shape: Shape,
    pub(super) map: Box<[u64]>,
    is_used: AtomicBool,
}

impl PageHint {
    pub(super) fn new(page: PageRef, shape: Shape, map: &[u64]) -> Self {
        Self { page, shape, map: map.into(), is_used: AtomicBool::new(false) }
    }

    fn bytes(&self) -> u64 {
        PAGE_BYTES + self.map.len() as u64 * 8
    }
}

/// The deepest that is remembered on a key's path.
#[derive(Debug)]
pub(super) struct Hit {
    pub(super) node: NodeHint,
    /// The identity that the node is remembered under.
    pub(super) identity: u64,
    /// The page that was responsible for the key's edge.
    pub(super) page: Option<Arc<PageHint>>,
}

#[derive(Debug)]
struct Entry {
    node: NodeHint,
    is_used: bool,
    /// In order of their first edges.
    pages: Vec<Arc<PageHint>>,
}

/// What is looked at for eviction: a node's entry, or one of its pages by the first edge.
type Candidate = (u64, Option<u8>);

#[derive(Debug, Default)]
struct Shard {
    entries: HashMap<u64, Entry>,
    queue: VecDeque<Candidate>,
    bytes: u64,
}

/// The cache of a process.
#[derive(Debug)]
pub(super) struct Cache {
    shards: Box<[Mutex<Shard>]>,
    /// Nodes remembered at each depth.
    depths: Box<[AtomicU32]>,
    shard_budget: u64,
    /// The epoch, in units of [`EPOCHS_KEPT`], that everything here is of.
    period: AtomicU32,
}

impl Cache {
    /// A cache of at most `budget` bytes.
    pub(super) fn new(budget: u64) -> Self {
        let shards = if budget < (NODE_BYTES + PAGE_BYTES) * SHARDS as u64 { 0 } else { SHARDS };
        Self {
            shards: (0..shards).map(|_| Mutex::default()).collect(),
            depths: (0..DEPTHS).map(|_| AtomicU32::new(0)).collect(),
            shard_budget: budget / SHARDS as u64,
            period: AtomicU32::new(0),
        }
    }

    /// Bytes it takes.
    pub(super) fn bytes(&self) -> u64 {
        self.shards.iter().map(|shard| lock(shard).bytes).sum()
    }

    fn shard(&self, identity: u64) -> Option<MutexGuard<'_, Shard>> {
        let at = (identity >> 32) as usize % self.shards.len().max(1);
        self.shards.get(at).map(lock)
    }

    /// Forgets everything when so many epochs have passed that lives could be mistaken for others.
    pub(super) fn enter(&self, epoch: u64) {
        let period = (epoch / EPOCHS_KEPT) as u32;
        if self.period.load(Ordering::Relaxed) != period {
            self.period.store(period, Ordering::Relaxed);
            self.shards.iter().for_each(|shard| *lock(shard) = Shard::default());
            self.depths.iter().for_each(|depth| depth.store(0, Ordering::Relaxed));
        }
    }

    /// Returns the deepest node remembered on a key's path, with the page for the key.
    pub(super) fn find(&self, key: &mut NibbleKey<'_>) -> Option<Hit> {
        if self.shards.is_empty() {
            return None;
        }
        let deepest = nibbles(key.bytes()).min(DEPTHS - 1);
        for depth in (0..=deepest).rev() {
            if self.depths[depth].load(Ordering::Relaxed) == 0 {
                continue;
            }
            let identity = key.identity(depth);
            let Some(mut shard) = self.shard(identity) else { continue };
            let Some(entry) = shard.entries.get_mut(&identity) else { continue };
            entry.is_used = true;
            let edge = edge(key.bytes(), depth);
            let page = entry.pages.iter().find(|page| page.shape.edges.contains(edge)).cloned();
            if let Some(page) = &page {
                page.is_used.store(true, Ordering::Relaxed);
            }
            return Some(Hit { node: entry.node, identity, page });
        }
        None
    }

    /// Remembers a node that was just read on the way down.
    pub(super) fn learn_node(&self, identity: u64, node: NodeHint, epoch: u64) {
        if node.depth >= DEPTHS || is_old(node.born, epoch) {
            return;
        }
        let Some(mut shard) = self.shard(identity) else { return };
        if let Some(entry) = shard.entries.get_mut(&identity) {
            if entry.node != node {
                entry.node = node;
            }
            return;
        }
        shard.entries.insert(identity, Entry { node, is_used: false, pages: Vec::new() });
        shard.queue.push_back((identity, None));
        shard.bytes += NODE_BYTES;
        self.depths[node.depth].fetch_add(1, Ordering::Relaxed);
        self.evict(&mut shard);
    }

    /// Remembers a page of a node that is remembered.
    pub(super) fn learn_page(&self, identity: u64, page: PageHint, epoch: u64) {
        if is_old(page.shape.born, epoch) {
            return;
        }
        let Some(mut shard) = self.shard(identity) else { return };
        let Shard { entries, queue, bytes } = &mut *shard;
        let Some(entry) = entries.get_mut(&identity) else { return };
        let EdgeRange { lo, hi } = page.shape.edges;
        entry.pages.retain(|known| {
            let stays = known.shape.edges.hi < lo || known.shape.edges.lo > hi;
            *bytes -= if stays { 0 } else { known.bytes() };
            stays
        });
        *bytes += page.bytes();
        let at = entry.pages.partition_point(|known| known.shape.edges.lo < lo);
        entry.pages.insert(at, Arc::new(page));
        queue.push_back((identity, Some(lo)));
        self.evict(&mut shard);
    }

    /// Forgets a page that is not what it was.
    pub(super) fn forget_page(&self, identity: u64, stale: &PageHint) {
        let Some(mut shard) = self.shard(identity) else { return };
        let Shard { entries, bytes, .. } = &mut *shard;
        let Some(entry) = entries.get_mut(&identity) else { return };
        entry.pages.retain(|known| {
            let stays = known.page != stale.page || known.shape.born != stale.shape.born;
            *bytes -= if stays { 0 } else { known.bytes() };
            stays
        });
    }

    /// Forgets a node that is not what it was; its pages may still be.
    pub(super) fn forget_node(&self, identity: u64, stale: NodeHint) {
        let Some(mut shard) = self.shard(identity) else { return };
        if shard.entries.get(&identity).is_some_and(|entry| entry.node == stale) {
            self.remove(&mut shard, identity);
        }
    }

    fn remove(&self, shard: &mut Shard, identity: u64) {
        if let Some(entry) = shard.entries.remove(&identity) {
            shard.bytes -= NODE_BYTES + entry.pages.iter().map(|page| page.bytes()).sum::<u64>();
            self.depths[entry.node.depth].fetch_sub(1, Ordering::Relaxed);
        }
    }

    fn evict(&self, shard: &mut Shard) {
        let mut looks = shard.queue.len() * 2;
        while shard.bytes > self.shard_budget
            && looks > 0
            && let Some((identity, lo)) = shard.queue.pop_front()
        {
            looks -= 1;
            let Some(entry) = shard.entries.get_mut(&identity) else { continue };
            let is_used = match lo {
                None if !entry.pages.is_empty() => true,
                None => std::mem::take(&mut entry.is_used),
                Some(lo) => match entry.pages.iter().position(|page| page.shape.edges.lo == lo) {
                    None => continue,
                    Some(at) if entry.pages[at].is_used.swap(false, Ordering::Relaxed) => true,
                    Some(at) => {
                        shard.bytes -= entry.pages.remove(at).bytes();
                        continue;
                    }
                },
            };
            if is_used {
                shard.queue.push_back((identity, lo));
            } else {
                self.remove(shard, identity);
            }
        }
        // Candidates whose entry is gone are dropped before they are many.
        if shard.queue.len() > 64 + 4 * shard.entries.len() * 17 {
            let entries = &shard.entries;
            shard.queue.retain(|(identity, _)| entries.contains_key(identity));
        }
    }
}

fn lock(shard: &Mutex<Shard>) -> MutexGuard<'_, Shard> {
    shard.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whether a life began so long ago that it could be mistaken for another.
fn is_old(born: u32, epoch: u64) -> bool {
    (epoch as u32).wrapping_sub(born) >= AGE_MAX
}
