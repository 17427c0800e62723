//! Searching for a key's place: the first half of every point operation (paper, Algorithm 1).
//!
//! A [`Descent`] is a state machine that does not access the fabric ([`Search`]). So a single
//! search drives one machine, and a multi-get drives many in the same round trips.
//!
//! It starts at the deepest hint: a node in the hint cache, else one named by the express skip
//! table (all lengths of the prefix list are probed at once), else the root as last seen. A hint is
//! accepted if, in one bucket read,
//!
//! - the identity word equals that of the key's own prefix (rule R2: the *whole* prefix), and
//! - some slot is unsealed (rule R1: the node was current at that moment, and so were all its
//!   slots, including empty ones).
//!
//! Otherwise the next hint is tried, and finally the root word itself, whose path needs no such
//! proof. Below an accepted node every child was linked at some moment of this operation, so its
//! slots are valid as read, sealed or not; there the identity word shows whether the key diverges
//! inside a compressed path.
//! inside a compressed path.

use super::est::install::KnownBucket;
use super::est::table::{Table, hits};
use super::est::{BUCKET_SLOTS, Entry};
use super::hints::HintHash;
use super::leaf::{self, FREQUENCY_ONE};
use super::node::{Content, NodeRef, NodeType, Slot};
use super::prefix_hash::HashedKey;
use super::shared::Shared;
use super::situations;
use crate::checker::note;
use crate::radix::prefix_list::PrefixList;
use crate::radix::search::Search;
use crate::{IndexError, Result};
use darter_fabric::{Batch, GlobalAddr, ReadId};
use smallvec::SmallVec;

/// A slot: its address and the word read from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SlotAt {
    pub(crate) addr: GlobalAddr,
    pub(crate) slot: Slot,
}

/// The purpose of a descent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// To return a value: sealed slots are as good as others. `sample` says whether to count an
    /// access in the leaf.
    Read { sample: bool },
    /// To change the place found: a sealed slot on the way must be dealt with first.
    Write,
    /// To find the slot that points to this node.
    Parent(GlobalAddr),
}

/// How a descent ends.
#[derive(Clone, Copy, Debug)]
pub(crate) enum DescentEnd {
    /// The slot of the key's edge at [`Descent::node`] has no child.
    Vacant,
    /// There is a leaf under the key's edge, which was read whole: the key's own or another's.
    Leaf { at: SlotAt, read: ReadId, is_key: bool },
    /// The key diverges from the path inside the compressed bytes before [`Descent::node`], to
    /// which [`Descent::incoming`] points.
    Diverged,
    /// [`Descent::node`] is being replaced. Not returned to readers.
    Sealed,
    /// [`Purpose::Parent`]: [`Descent::incoming`] points to the target node.
    Reached,
}

#[allow(clippy::large_enum_variant)] // one lives on the stack for an operation; a box would cost an allocation
enum Stage {
    /// Lengths, each with the hash of the key's prefix and the READ of its bucket.
    Probe(SmallVec<[(usize, u64, Option<ReadId>); 8]>),
    RootWord(Option<ReadId>),
    Bucket(Option<ReadId>),
    Leaf {
        at: SlotAt,
        class: u8,
        read: Option<ReadId>,
    },
}

/// How a descent uses the process's cache of nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Memory {
    /// It neither starts at a cached node nor caches one.
    Unused,
    /// It does both.
    Used,
    /// It does both, and its current node is the cached node at which it started.
    Current,
}

/// One key's descent.
pub(crate) struct Descent<'k> {
    pub(crate) key: HashedKey<'k>,
    purpose: Purpose,
    stage: Stage,
    /// Hints still to be tried, best last.
    hints: SmallVec<[NodeRef; 4]>,
    /// Whether `hints` came from probing the express skip table.
    probed: bool,
    /// Hints must lie above this depth.
    below: usize,
    /// The current node.
    pub(crate) node: NodeRef,
    /// The slot that points to it, unless the node was reached by a hint.
    pub(crate) incoming: Option<SlotAt>,
    /// The depth of the node that holds `incoming`, or 0 for the root word. Meaningless without
    /// `incoming`.
    pub(crate) above: usize,
    /// The node that holds `incoming`, if that is a node's slot.
    pub(crate) holder: Option<NodeRef>,
    trusted: bool,
    root_tried: bool,
    /// The current node's bucket, for writers.
    pub(crate) bucket: SmallVec<[u64; 16]>,
    /// Express buckets probed during the descent, for upkeep.
    pub(crate) probes: Vec<KnownBucket>,
    /// Directory indexes whose segment was seen sealed, to be read again during the descent.
    stale: Vec<(usize, Option<ReadId>)>,
    memory: Memory,
    /// The depth of the cached node at which the descent started, set once the node is accepted,
    /// and the number of inner nodes read by then.
    began: Option<(usize, u32)>,
    /// The era for which nodes are cached.
    era: u64,
    /// Inner nodes read.
    pub(crate) nodes_read: u32,
}

impl<'k> Descent<'k> {
    /// A descent for `key`, which may use hints of depth less than `below`.
    pub(crate) fn new(shared: &Shared, table: &Table, key: &'k [u8], purpose: Purpose, below: usize) -> Self {
        let mut descent = Self::at_rest(shared, key, purpose, below);
        descent.start(shared, table);
        descent
    }

    /// A descent that starts with the unused hints of another descent for the same key, if that one
    /// had probed for them.
    pub(crate) fn from_rest_of(
        shared: &Shared,
        other: &Descent<'k>,
        purpose: Purpose,
        below: usize,
    ) -> Option<Self> {
        if !other.probed {
            return None;
        }
        let mut descent = Self::at_rest(shared, other.key.bytes(), purpose, below);
        descent.hints = other.hints.iter().copied().filter(|node| node.depth < below).collect();
        descent.next_hint(shared);
        Some(descent)
    }

    fn at_rest(shared: &Shared, key: &'k [u8], purpose: Purpose, below: usize) -> Self {
        Self {
            key: HashedKey::new(shared.keys, key),
            purpose,
            stage: Stage::Probe(SmallVec::new()),
            hints: SmallVec::new(),
            probed: false,
            below,
            node: NodeRef { addr: GlobalAddr::NULL, ty: NodeType::N4, depth: 0 },
            incoming: None,
            above: 0,
            holder: None,
            trusted: false,
            root_tried: false,
            bucket: SmallVec::new(),
            probes: Vec::new(),
            stale: Vec::new(),
            memory: Memory::Unused,
            began: None,
            era: shared.log.era(),
            nodes_read: 0,
        }
    }

    fn start(&mut self, shared: &Shared, table: &Table) {
        let is_used = self.below == usize::MAX && table.list != PrefixList::NONE;
        self.memory = if is_used { Memory::Used } else { Memory::Unused };
        if is_used && let Some(node) = shared.hints.deepest(&mut self.key, self.era) {
            self.enter(node);
            self.memory = Memory::Current;
        } else {
            self.probe(shared, table);
        }
    }

    /// Continues with the entries that the express skip table may have for the key.
    fn probe(&mut self, shared: &Shared, table: &Table) {
        let below = self.key.bytes().len().min(self.below);
        let probe = |length| (length, self.key.express(length), None);
        let lengths: SmallVec<_> = table.list.lengths_below(below).map(probe).collect();
        if lengths.is_empty() {
            self.next_hint(shared);
        } else {
            self.stage = Stage::Probe(lengths);
        }
    }

    /// Continues with the best hint left, then the cached root, then the root word.
    fn next_hint(&mut self, shared: &Shared) {
        self.trusted = false;
        self.incoming = None;
        self.above = 0;
        self.holder = None;
        // Read once: another thread may update the cached root between two reads, and node and slot
        // must agree.
        let root = shared.root();
        if let Some(node) = self.hints.pop() {
            self.enter(node);
        } else if let (Content::Node { addr, ty, .. }, false) = (root.content(), self.root_tried) {
            self.root_tried = true;
            self.trusted = false;
            self.incoming = Some(SlotAt { addr: shared.words.root, slot: root });
            self.enter(NodeRef { addr, ty, depth: 0 });
        } else {
            self.stage = Stage::RootWord(None);
        }
    }

    fn enter(&mut self, node: NodeRef) {
        self.node = node;
        if self.memory == Memory::Current {
            self.memory = Memory::Used;
        }
        self.stage = Stage::Bucket(None);
    }

    /// Whether the descent has reached its target without any verb: the target is the root, and it
    /// is cached.
    pub(crate) fn arrived(&self) -> bool {
        matches!(self.purpose, Purpose::Parent(addr) if addr == self.node.addr && self.incoming.is_some())
    }

    /// Whether the descent has not used the root so far.
    pub(crate) fn is_express(&self) -> bool {
        !self.root_tried
    }
}

/// The context of a descent, besides its key.
#[derive(Clone, Copy)]
pub(crate) struct View<'v> {
    pub(crate) shared: &'v Shared,
    pub(crate) table: &'v Table,
}

impl Search<View<'_>> for Descent<'_> {
    type End = DescentEnd;

    #[inline]
    fn post(&mut self, view: &View<'_>, batch: &mut Batch) -> Result<()> {
        let View { shared, table } = *view;
        match &mut self.stage {
            Stage::Probe(lengths) => {
                for (_, hash, read) in lengths.iter_mut() {
                    *read = Some(batch.read(table.bucket_addr(*hash), BUCKET_SLOTS));
                }
            }
            Stage::RootWord(read) => *read = Some(batch.read(shared.words.root, 1)),
            Stage::Bucket(read) => {
                let edge = self.key.edge(self.node.depth);
                let words = match self.purpose {
                    Purpose::Read { .. } => self.node.ty.search_words(edge),
                    _ => self.node.ty.bucket_words(),
                };
                *read = Some(batch.read(self.node.bucket_addr(edge), words));
            }
            Stage::Leaf { at, class, read } => {
                *read = Some(batch.read(at.slot.addr(), leaf::class_words(*class)));
                if self.purpose == (Purpose::Read { sample: true }) {
                    batch.faa(at.slot.addr(), FREQUENCY_ONE);
                }
            }
        }
        for (index, read) in &mut self.stale {
            *read = Some(batch.read(table.entry_addr(*index), 1));
        }
        Ok(())
    }

    #[inline]
    fn absorb(&mut self, view: &View<'_>, batch: &Batch) -> Result<Option<DescentEnd>> {
        let View { shared, table } = *view;
        for (index, read) in self.stale.drain(..) {
            if let Some(read) = read {
                table.remember(index, super::est::DirectoryEntry::from_word(batch.words(read)[0]));
            }
        }
        match &self.stage {
            Stage::Probe(_) => {
                self.absorb_probe(table, batch);
                self.next_hint(shared);
                Ok(self.arrived().then_some(DescentEnd::Reached))
            }
            Stage::RootWord(read) => {
                let slot = Slot::from_word(read.map_or(0, |read| batch.words(read)[0]));
                shared.remember_root(slot);
                let Content::Node { addr, ty, .. } = slot.content() else {
                    return Err(IndexError::corrupt(shared.words.root, "the root word names no node"));
                };
                self.trusted = true;
                self.incoming = Some(SlotAt { addr: shared.words.root, slot });
                self.enter(NodeRef { addr, ty, depth: 0 });
                Ok(self.arrived().then_some(DescentEnd::Reached))
            }
            Stage::Bucket(Some(read)) => {
                let words = batch.words(*read);
                self.absorb_bucket(view, words)
            }
            Stage::Leaf { at, read: Some(read), .. } => {
                let leaf = leaf::parse(at.slot.addr(), batch.words(*read))?;
                Ok(Some(DescentEnd::Leaf { at: *at, read: *read, is_key: leaf.key == self.key.bytes() }))
            }
            Stage::Bucket(None) | Stage::Leaf { read: None, .. } => {
                Err(IndexError::corrupt(self.node.addr, "descent absorbed before it was posted"))
            }
        }
    }
}

impl Descent<'_> {
    fn absorb_probe(&mut self, table: &Table, batch: &Batch) {
        let Stage::Probe(lengths) = &self.stage else { return };
        self.probed = true;
        let len = self.key.bytes().len();
        for &(length, hash, read) in lengths {
            let Some(bucket) = read.map(|read| batch.words(read)) else { continue };
            for node in hits(bucket, hash, length) {
                if node.depth <= len && node.depth < self.below {
                    self.hints.push(node);
                }
            }
            if Entry::from_word(bucket[0]).is_sealed() {
                self.stale.push((table.index(hash), None));
            } else if !matches!(self.purpose, Purpose::Read { .. }) {
                let mut words = [0; BUCKET_SLOTS];
                words.copy_from_slice(bucket);
                self.probes.push(KnownBucket { hash, words });
            }
        }
    }

    #[inline]
    fn absorb_bucket(&mut self, view: &View<'_>, words: &[u64]) -> Result<Option<DescentEnd>> {
        let View { shared, table } = *view;
        self.nodes_read += 1;
        let on_path = words[0] == self.key.identity(self.node.depth);
        if !self.trusted {
            if !Self::proves_current(words, on_path) {
                note(if on_path { situations::HINT_SEALED } else { situations::HINT_OFF_PATH });
                if self.memory == Memory::Current {
                    shared.hints.forget(HintHash::new(self.key.express(self.node.depth)));
                    self.probe(shared, table);
                } else {
                    self.next_hint(shared);
                }
                return Ok(self.arrived().then_some(DescentEnd::Reached));
            }
            self.trusted = true;
            self.began = (self.memory == Memory::Current).then_some((self.node.depth, self.nodes_read));
        } else if !on_path {
            return Ok(Some(DescentEnd::Diverged));
        }
        if !matches!(self.purpose, Purpose::Read { .. }) {
            self.bucket.clear();
            self.bucket.extend_from_slice(words);
            if words[1..].iter().any(|&word| Slot::from_word(word).is_sealed()) {
                return Ok(Some(DescentEnd::Sealed));
            }
        }
        let child = self.child_in(words);
        if self.memory != Memory::Unused
            && !matches!(child.map(|at| at.slot.content()), Some(Content::Node { .. }))
        {
            self.remember(shared, words);
        }
        match child {
            Some(at) => self.follow(at),
            None => Ok(Some(DescentEnd::Vacant)),
        }
    }

    /// Whether a bucket that a hint led to proves that the hint names a current node on the key's
    /// path (rules R1 and R2).
    #[inline]
    fn proves_current(words: &[u64], on_path: bool) -> bool {
        on_path && words[1..].iter().any(|&word| !Slot::from_word(word).is_sealed())
    }

    /// Caches the current node, where the key's path through inner nodes ends, unless it is the
    /// root or is being replaced. It was in the tree at some moment of this operation.
    #[inline]
    fn remember(&mut self, shared: &Shared, words: &[u64]) {
        if let Some((depth, read)) = self.began
            && self.nodes_read != read + 1
        {
            let is_far = self.nodes_read > read;
            shared.hints.note_end(HintHash::new(self.key.express(depth)), is_far);
        }
        let is_sealed = || words[1..].iter().all(|&word| Slot::from_word(word).is_sealed());
        if self.memory == Memory::Current || self.node.depth == 0 || is_sealed() {
            return;
        }
        shared.hints.put(HintHash::new(self.key.express(self.node.depth)), self.era, self.node);
    }

    /// The slot of the key's edge in the current node's bucket.
    #[inline]
    fn child_in(&self, words: &[u64]) -> Option<SlotAt> {
        let edge = self.key.edge(self.node.depth);
        let (at, slot) = match self.node.ty.direct_word(edge) {
            Some(at) => (at, Slot::from_word(words[at])),
            None => words
                .iter()
                .enumerate()
                .skip(1)
                .map(|(at, &word)| (at, Slot::from_word(word)))
                .find(|(_, slot)| slot.is_of(edge))?,
        };
        if slot.is_sealed() {
            note(if self.incoming.is_some() {
                situations::READ_SEALED
            } else {
                situations::HINT_HALF_SEALED
            });
        }
        Some(SlotAt { addr: self.node.bucket_addr(edge).plus(at as u64 * 8), slot: slot.unsealed() })
    }

    /// Continues with the content of the slot of the key's edge.
    #[inline]
    fn follow(&mut self, at: SlotAt) -> Result<Option<DescentEnd>> {
        match at.slot.content() {
            Content::Empty | Content::Tomb => Ok(Some(DescentEnd::Vacant)),
            Content::Leaf { class, .. } => {
                self.stage = Stage::Leaf { at, class, read: None };
                Ok(None)
            }
            Content::Node { addr, ty, skip } => {
                let depth = self.node.depth + 1 + usize::from(skip);
                self.above = self.node.depth;
                self.holder = Some(self.node);
                self.incoming = Some(at);
                self.enter(NodeRef { addr, ty, depth });
                if self.arrived() {
                    return Ok(Some(DescentEnd::Reached));
                }
                Ok((depth > self.key.bytes().len()).then_some(DescentEnd::Diverged))
            }
            Content::Invalid => Err(IndexError::corrupt(at.addr, "slot of unknown type")),
        }
    }
}
