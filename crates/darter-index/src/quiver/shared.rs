//! State that the clients of a process share, and the addresses of the index's root words.

use super::cache::{Cache, KnownNode};
use super::hint::{HotWord, NodeHint, PageSlot};
use super::hit_rate::HitRate;
use super::node::{self, NodeAt};
use super::pace::Folding;
use super::page::{DELTA_MAX, PageRef, RECORDS_MAX, Shape};
use super::skip::Skip;
use super::word::Word;
use crate::radix::prefix_hash::HashKeys;
use crate::radix::seal::SEAL;
use arc_swap::ArcSwap;
use darter_fabric::{Fabric, GlobalAddr};
use darter_pool::Pool;
use std::sync::Arc;

/// "QUIV" and the format's version, in the kind word of a pool's root.
pub(super) const KIND: u64 = u64::from_le_bytes(*b"QUIV\x06\0\0\0");

/// Addresses of the index's root words.
#[derive(Clone, Copy, Debug)]
pub(super) struct RootWords {
    /// The slot that points to the root node.
    pub(super) root: GlobalAddr,
    /// [`Geometry`].
    pub(super) geometry: GlobalAddr,
    /// The current skip table's descriptor; zero if there is none.
    pub(super) skip: GlobalAddr,
    /// The kind of index that the pool holds.
    pub(super) kind: GlobalAddr,
}

impl RootWords {
    pub(super) fn of<F: Fabric>(pool: &Pool<F>) -> Self {
        Self {
            root: pool.root_word(0),
            geometry: pool.root_word(1),
            skip: pool.root_word(2),
            kind: pool.root_word(3),
        }
    }
}

/// The size limits of pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Geometry {
    /// Most records of a page.
    pub(super) records: usize,
    /// Delta slots of a page.
    pub(super) delta: usize,
}

impl Geometry {
    /// At least 2 records and 1 delta slot, and at most what the formats allow.
    pub(super) fn new(records: u32, delta: u32) -> Self {
        Self {
            records: (records as usize).clamp(2, RECORDS_MAX),
            delta: (delta as usize).clamp(1, DELTA_MAX),
        }
    }

    pub(super) fn word(self) -> u64 {
        (self.records as u64) << 8 | self.delta as u64
    }

    pub(super) fn from_word(word: u64) -> Self {
        Self::new((word >> 8) as u32 & 0xff, word as u32 & 0xff)
    }
}

/// State that the clients of a process share.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) keys: HashKeys,
    pub(super) words: RootWords,
    /// The root node as last read, and the epoch in which it was read.
    pub(super) root: ArcSwap<(NodeHint, u64)>,
    pub(super) geometry: Geometry,
    pub(super) cache: Cache,
    /// Whether searches load from the pool's memory instead of posting verbs.
    pub(super) is_direct: bool,
    /// The skip table as last read.
    pub(super) skip: Skip,
    /// How often puts that may use a blind CAS find their record INLINE.
    pub(super) inline_rate: HitRate,
    /// Whether this process may only read: then searches leave no entries in the skip table.
    pub(super) reads_only: bool,
    /// When to check a page whose records were changed; `None` if never.
    pub(super) folding: Option<Folding>,
}

impl Shared {
    /// Remembers a node whose words were read on the way down, unless the descent began there by a
    /// hint: with the node above it and the edge that led to it, if that node is known. Returns the
    /// node as it is remembered; `None` if its guard is sealed.
    pub(super) fn learn(
        &self,
        hint: Option<NodeHint>,
        above: Option<(KnownNode, u8)>,
        node: NodeAt,
        words: &[u64],
        epoch: u64,
    ) -> Option<KnownNode> {
        let (identity, guard) = (words[0], words[node::GUARD_AT]);
        if hint.is_some() || guard & SEAL != 0 {
            return hint.map(|hint| (identity, hint));
        }
        let known = (identity, NodeHint { addr: node.addr, born: node::born(guard), depth: node.depth });
        if node.depth == 0 {
            self.remember_root(known.1, epoch);
        }
        // A node that is read again is not its own parent.
        let above = above.filter(|((_, above), _)| above.depth < node.depth);
        self.cache.learn_node(above, known, epoch);
        Some(known)
    }

    /// Returns the root node if both it and the skip table's word were read in this epoch.
    pub(super) fn root(&self, epoch: u64) -> Option<NodeHint> {
        let root = self.root.load();
        (root.1 == epoch && self.skip.is_seen(epoch)).then_some(root.0)
    }

    /// Remembers the word of a slot of a page, if it named a leaf that can be read together with
    /// it. The page's node is remembered under `identity`.
    pub(super) fn learn_hot(&self, identity: u64, page: (PageRef, &Shape), slot: PageSlot, word: Word) {
        if let Some(hot) = HotWord::of(page.0, slot, word) {
            self.cache.learn_hot(identity, (page.0.addr, page.1.born), hot);
        }
    }

    /// As [`Self::learn_hot`], for the word at an address of the page.
    pub(super) fn learn_hot_at(&self, identity: u64, page: (PageRef, &Shape), addr: GlobalAddr, word: Word) {
        if let Some(slot) = PageSlot::at(page.0, page.1, addr) {
            self.learn_hot(identity, page, slot, word);
        }
    }

    fn remember_root(&self, root: NodeHint, epoch: u64) {
        if **self.root.load() != (root, epoch) {
            self.root.store(Arc::new((root, epoch)));
        }
    }
}
