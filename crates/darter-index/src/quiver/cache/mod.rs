//! What a process remembers of the index: nodes, their child nodes, and pages with their maps.
//!
//! All of it is hints. Each hint carries the life it belongs to, and the word that it leads to
//! shows whether that life still lasts (`docs/quiver.md`, L2), so a change elsewhere never requires
//! a hint to be forgotten. Everything remembered of a node is in one packed block, found by the
//! node's identity: a page takes 12 bytes in addition to its map, a child node 8, the node 20 and
//! its share of a table. Items not used since they were last checked are dropped first, pages
//! before nodes. The remaining room is for hot words ([`hot`]), three in 64 bytes.

mod block;
mod hot;
mod log;
mod shard;
mod table;

use self::hot::HotTable;
use self::shard::Shard;
use super::hint::{HotWord, HotWords, NodeHint, PageHint, PageSlot};
use super::nibble::{NibbleKey, edge, nibbles};
use super::word::LeafPrint;
use darter_fabric::GlobalAddr;
use darter_pool::ForgottenNodes;
use std::mem::size_of;
use std::ops::Range;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Most shards, which threads use in parallel.
const SHARDS_MAX: u64 = 16;
/// Bytes that justify a separate shard.
const SHARD_BYTES: u64 = 16 << 10;
/// Budget below which nothing is remembered.
const BYTES_MIN: u64 = 4 << 10;
/// Nodes below this depth are not remembered.
const DEPTHS: usize = 256;
/// Epochs after which everything is forgotten.
const EPOCHS_KEPT: u64 = 1 << 30;
/// Age in epochs up to which a page is remembered.
const AGE_MAX: u32 = 1 << 31;

/// A node and the identity that it is remembered under.
pub(super) type KnownNode = (u64, NodeHint);

/// The deepest remembered node on a key's path.
#[derive(Debug)]
pub(super) struct Hit {
    pub(super) node: NodeHint,
    /// The identity that the node is remembered under.
    pub(super) identity: u64,
    /// The page that was responsible for the key's edge.
    pub(super) page: Option<PageHint>,
}

/// The hot words of a remembered page.
pub(super) struct HotOf<'s> {
    page: (GlobalAddr, u32),
    /// Read early, so that the cache line is loaded while the rank is computed.
    groups: u16,
    table: &'s mut HotTable,
}

impl HotOf<'_> {
    /// Returns the word that may name the leaf of the key with this rank and print.
    pub(super) fn for_key(&self, rank: Option<usize>, print: LeafPrint) -> Option<HotWord> {
        self.table.for_key(self.page, self.groups, rank, print)
    }

    /// Returns the hot words of these records, and of the delta.
    pub(super) fn of_records(&self, ranks: Range<usize>) -> HotWords {
        self.table.of_page(self.page, ranks)
    }

    /// Marks a word as used.
    pub(super) fn touch(&mut self, slot: PageSlot) {
        self.table.touch(self.page.0, slot);
    }
}

/// The cache of a process.
#[derive(Debug)]
pub(super) struct Cache {
    shards: Box<[Mutex<Shard>]>,
    /// Whether words that name leaves are remembered.
    keeps_hot: bool,
    /// Number of nodes remembered at each depth.
    depths: Box<[AtomicU32]>,
    /// Most bytes of each shard.
    shard_bytes: u64,
    /// The epoch of everything in the cache, in units of [`EPOCHS_KEPT`].
    period: AtomicU32,
    /// Memory nodes of which nothing that is remembered may be used.
    forgotten: ForgottenNodes,
}

impl Cache {
    /// Creates a cache of at most `budget` bytes, also for hot words if `keeps_hot` is true.
    pub(super) fn new(budget: u64, keeps_hot: bool) -> Self {
        let (count, depths) = match budget {
            ..BYTES_MIN => (0, 0),
            _ => ((budget / SHARD_BYTES).clamp(1, SHARDS_MAX), DEPTHS),
        };
        let fixed = count * size_of::<Mutex<Shard>>() as u64 + (depths * size_of::<AtomicU32>()) as u64;
        let shard_bytes = budget.saturating_sub(fixed) / count.max(1);
        Self {
            shards: (0..count).map(|_| Mutex::new(Shard::new(shard_bytes))).collect(),
            keeps_hot,
            depths: (0..depths).map(|_| AtomicU32::new(0)).collect(),
            shard_bytes,
            period: AtomicU32::new(0),
            forgotten: ForgottenNodes::default(),
        }
    }

    /// The same cache, which returns nothing on these memory nodes.
    pub(super) fn without(self, forgotten: ForgottenNodes) -> Self {
        Self { forgotten, ..self }
    }

    /// The memory nodes of which nothing that is remembered may be used.
    pub(super) fn forgotten(&self) -> &ForgottenNodes {
        &self.forgotten
    }

    /// Bytes in use.
    pub(super) fn bytes(&self) -> u64 {
        let blocks: u64 = self.shards.iter().map(|shard| lock(shard).bytes()).sum();
        (size_of_val(&*self.shards) + size_of_val(&*self.depths)) as u64 + blocks
    }

    fn shard(&self, identity: u64) -> Option<MutexGuard<'_, Shard>> {
        let at = (identity >> 32) as usize % self.shards.len().max(1);
        self.shards.get(at).map(lock)
    }

    /// Forgets everything in each new period of [`EPOCHS_KEPT`] epochs: later, lives could be mixed up.
    pub(super) fn enter(&self, epoch: u64) {
        let period = (epoch / EPOCHS_KEPT) as u32;
        if self.period.load(Ordering::Relaxed) != period {
            self.period.store(period, Ordering::Relaxed);
            self.forget_all();
        }
    }

    /// Forgets everything.
    pub(super) fn forget_all(&self) {
        for shard in &self.shards {
            *lock(shard) = Shard::new(self.shard_bytes);
        }
        self.depths.iter().for_each(|depth| depth.store(0, Ordering::Relaxed));
    }

    /// Returns the deepest node remembered on a key's path, with the page for the key.
    pub(super) fn find(&self, key: &mut NibbleKey<'_>) -> Option<Hit> {
        self.find_with(key, |_, _| ()).map(|(hit, _)| hit)
    }

    /// As [`Self::find`], with the result of `look` for the page and its hot words. This saves
    /// taking the lock again.
    pub(super) fn find_with<H>(
        &self,
        key: &mut NibbleKey<'_>,
        look: impl FnOnce(&PageHint, HotOf<'_>) -> H,
    ) -> Option<(Hit, Option<H>)> {
        let deepest = nibbles(key.bytes()).min(DEPTHS - 1);
        for depth in (0..=deepest.min(self.depths.len())).rev() {
            if self.depths.get(depth).is_none_or(|count| count.load(Ordering::Relaxed) == 0) {
                continue;
            }
            let identity = key.identity(depth);
            let Some(mut shard) = self.shard(identity) else { continue };
            let Some(block) = shard.find(identity) else { continue };
            let (node, edge) = (block.node, edge(key.bytes(), depth));
            if self.forgotten.contains(node.addr.node()) {
                continue;
            }
            let item = shard.item_for(&block, edge);
            if let Some(page) = item.filter(|item| item.is_page()) {
                shard.touch(&block, item);
                let page = page.page(shard.log(), node);
                if self.forgotten.contains(page.page.addr.node()) {
                    return Some((Hit { node, identity, page: None }, None));
                }
                let groups = shard.hot.groups(page.page.addr);
                let hot = HotOf { page: (page.page.addr, page.shape.born), groups, table: &mut shard.hot };
                let seen = look(&page, hot);
                return Some((Hit { node, identity, page: Some(page) }, Some(seen)));
            }
            let child = item.and_then(|item| {
                let child = item.child(shard.log(), node);
                if self.forgotten.contains(child.addr.node()) {
                    return None;
                }
                let below = (child.depth <= deepest).then(|| key.identity(child.depth))?;
                item.may_be(shard.log(), below).then_some((below, child))
            });
            shard.touch(&block, item.filter(|_| child.is_some()));
            let (identity, node) = child.unwrap_or((identity, node));
            return Some((Hit { node, identity, page: None }, None));
        }
        None
    }

    /// Remembers a node that was just read on the way down, with the node above it, if that is
    /// known, and the edge that led to it.
    pub(super) fn learn_node(&self, above: Option<(KnownNode, u8)>, known: KnownNode, epoch: u64) {
        let (identity, node) = known;
        if node.depth >= DEPTHS || is_old(node.born, epoch) {
            return;
        }
        if let Some(mut shard) = self.shard(identity)
            && let Some(block) = shard.find(identity)
        {
            if block.node == node {
                return;
            }
            shard.remove(&block, &self.depths);
        }
        let Some(((above_identity, above), edge)) = above else {
            if let Some(mut shard) = self.shard(identity) {
                shard.change(known, &self.depths, |_| true, |_| true);
            }
            return;
        };
        let Some(mut shard) = self.shard(above_identity) else { return };
        if let Some(block) = shard.find(above_identity)
            && block.node == above
            && let Some(item) = shard.item_for(&block, edge)
            && !item.is_page()
            && item.child(shard.log(), above) == node
        {
            return;
        }
        shard.change(
            (above_identity, above),
            &self.depths,
            |item| !item.edges().contains(edge),
            |draft| draft.add_child(above, edge, identity, node),
        );
    }

    /// Replaces remembered pages by the page that replaced them in the index, if its node is
    /// remembered.
    pub(super) fn renew_page(&self, identity: u64, node: GlobalAddr, hint: &PageHint, epoch: u64) {
        let block = self.shard(identity).and_then(|shard| shard.find(identity));
        if let Some(block) = block
            && block.node.addr == node
        {
            self.learn_page((identity, block.node), hint, epoch);
        }
    }

    /// Remembers a page for which its node has a copy of the map, if there is room, or else now and
    /// then: it saves one round trip, other pages save two.
    pub(super) fn offer_page(&self, known: KnownNode, hint: &PageHint, epoch: u64) {
        let takes = self.shard(known.0).is_some_and(|mut shard| shard.takes_offer());
        if takes {
            self.learn_page(known, hint, epoch);
        }
    }

    /// Remembers a page of a node.
    pub(super) fn learn_page(&self, known: KnownNode, hint: &PageHint, epoch: u64) {
        let (identity, node) = known;
        if node.depth >= DEPTHS || is_old(hint.shape.born, epoch) {
            return;
        }
        let Some(mut shard) = self.shard(identity) else { return };
        let edges = hint.shape.edges;
        shard.change(
            known,
            &self.depths,
            |item| !item.edges().overlaps(edges),
            |draft| draft.add_page(node, hint),
        );
    }

    /// Forgets a page whose hint was stale.
    pub(super) fn forget_page(&self, identity: u64, stale: &PageHint) {
        let Some(mut shard) = self.shard(identity) else { return };
        let Some(block) = shard.find(identity) else { return };
        let is_stale = |item: block::Item| item.is_page() && item.addr() == stale.page.addr;
        shard.forget(&block, &self.depths, is_stale);
    }

    /// Remembers a word of a page of the node with this identity, if there is room that maps do not
    /// need.
    pub(super) fn learn_hot(&self, identity: u64, (page, born): (GlobalAddr, u32), hot: HotWord) {
        if let Some(mut shard) = self.shard(identity).filter(|_| self.keeps_hot) {
            shard.learn_hot((page, born), hot);
        }
    }

    /// Returns the hot words of these records of a page, and of the delta.
    #[cfg(test)]
    pub(super) fn hot_words(&self, identity: u64, hint: &PageHint, ranks: Range<usize>) -> HotWords {
        let page = (hint.page.addr, hint.shape.born);
        let shard = self.shard(identity);
        shard.map_or_else(HotWords::new, |shard| shard.hot.of_page(page, ranks))
    }

    /// Forgets a word whose hint was stale.
    pub(super) fn forget_hot(&self, identity: u64, page: GlobalAddr, slot: PageSlot) {
        if let Some(mut shard) = self.shard(identity) {
            shard.hot.forget(page, slot);
        }
    }

    /// Forgets a node on a key's path whose hint was stale.
    pub(super) fn forget_node(&self, key: &mut NibbleKey<'_>, stale: NodeHint) {
        for depth in 0..=stale.depth.min(nibbles(key.bytes())) {
            if self.depths.get(depth).is_none_or(|count| count.load(Ordering::Relaxed) == 0) {
                continue;
            }
            let identity = key.identity(depth);
            let Some(mut shard) = self.shard(identity) else { continue };
            let Some(block) = shard.find(identity) else { continue };
            if block.node == stale {
                shard.remove(&block, &self.depths);
                continue;
            }
            let is_stale = |item: block::Item| !item.is_page() && item.addr() == stale.addr;
            shard.forget(&block, &self.depths, is_stale);
        }
    }
}

fn lock(shard: &Mutex<Shard>) -> MutexGuard<'_, Shard> {
    shard.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whether a life is too old to be distinguished from others.
pub(super) fn is_old(born: u32, epoch: u64) -> bool {
    (epoch as u32).wrapping_sub(born) >= AGE_MAX
}

#[cfg(test)]
mod tests;
