//! The way from a key to its place: the first half of every point operation (SMART, section 4.4).
//!
//! A [`Descent`] is a state machine without a fabric: [`Descent::post`] adds the next verbs to a
//! batch, [`Descent::absorb`] processes their results. So one search drives one descent, and a
//! multi-get drives many with the same round trips.
//!
//! It starts at the deepest slot that the cache has on the key's path, or else at the root as last
//! seen. An object reached this way is accepted only as far as it proves its validity:
//!
//! - a *node* with an unsealed slot, or with a first empty one, was in the tree at that moment. Its
//!   prefix is the cached one, which never changes for a node, so all its slots are valid,
//!   including absences, even if nodes were put above it since;
//! - a live *leaf* that has the key is the key's leaf, in the in-place mode, where leaves are
//!   killed before they are unlinked. In the out-of-place mode the slot is read again in the same
//!   batch, before the leaf; if it is equal, it proves the leaf;
//! - anything else proves nothing: a header that does not match, another key's leaf, a dead leaf.
//!   In the paper, the reverse pointer decides: if it names the cached parent, the key is absent.
//!   But that is wrong after a split that has linked its node and not yet updated the reverse
//!   pointers. Here the cached node itself is read again and then decides.
//!
//! A reverse pointer that does not match still shows immediately that an entry is outdated.
//!
//! Below an accepted node every child was linked at some moment of this operation, so its slots are
//! valid as they are, sealed or not.

use super::leaf::{self, Read};
use super::node::{self, HEADER_WORDS, Header, NodeType};
use super::shared::Shared;
use super::slot::{Content, Slot, SlotAt};
use darter_fabric::{Batch, CasId, GlobalAddr, ReadId};
use darter_index::radix::common_prefix;
use darter_index::radix::search::Search;
use darter_index::radix::slot::edge_of;
use darter_index::{IndexError, Result};
use smallvec::SmallVec;

/// READs that find a leaf torn before the state of the lock's holder is checked.
const TORN_MAX: u32 = 8;

/// The purpose of a descent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    /// To return a value: sealed slots are as valid as others.
    Read,
    /// To change the place found: a sealed slot there must be handled first.
    Write,
}

/// The leaf where a descent ended.
#[derive(Clone, Copy, Debug)]
pub(super) struct LeafAt {
    /// The slot that led to it, and its index in its node.
    pub(super) at: SlotAt,
    pub(super) index: usize,
    /// The leaf, which may have moved from the address in the slot.
    pub(super) addr: GlobalAddr,
    pub(super) len: u8,
}

/// The end of a descent.
#[derive(Clone, Copy, Debug)]
pub(super) enum SmartEnd {
    /// No child under the key's edge at [`Descent::node`]; the content of its slot, if any: a
    /// tombstone, or a dead leaf.
    Vacant { taken: Option<(usize, Slot)> },
    /// A leaf under the key's edge, read whole: that of the key or of another.
    Leaf { leaf: LeafAt, read: ReadId, is_key: bool },
    /// The key leaves the path after `matched` of the bytes before [`Descent::node`], to which
    /// [`Descent::incoming`] points.
    Diverged { matched: usize },
    /// Not for readers: [`Descent::node`] is being removed from the tree.
    Sealed,
    /// A leaf that stays torn when read again.
    Torn { leaf: LeafAt },
}

/// How an object was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ReachedBy {
    /// By a cached slot.
    HintedSlot,
    /// By an entry's own address.
    Entry,
    /// By the root slot as last seen.
    Root,
    /// By a slot read in this operation.
    Tree,
}

#[derive(Clone, Copy, Debug)]
enum Stage {
    Begin,
    RootWord(Option<ReadId>),
    Node { addr: GlobalAddr, ty: NodeType, read: Option<ReadId> },
    Rest { ty: NodeType, read: Option<ReadId>, cas: Option<(CasId, Slot)> },
    Leaf { leaf: LeafAt, read: Option<ReadId>, slot_read: Option<ReadId> },
}

/// A node on the way, and the slot that points to it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Upper {
    pub(super) node: GlobalAddr,
    pub(super) incoming: SlotAt,
    /// The node that holds that slot; null for the root word.
    pub(super) holder: GlobalAddr,
    /// The first key byte that was not consumed above the node.
    pub(super) arrival: usize,
    /// Its live children.
    pub(super) live: usize,
}

/// A descent for one key.
pub(super) struct Descent<'k> {
    pub(super) key: &'k [u8],
    purpose: Purpose,
    stage: Stage,
    via: ReachedBy,
    /// Only entries of prefixes shorter than this are used.
    below: usize,
    hint: Option<(GlobalAddr, NodeType, usize)>,
    torn: u32,
    /// An outdated reverse pointer: its address, its value, its correct value.
    repair: Option<(GlobalAddr, u64, u64)>,
    /// The node last read, or the node whose cached slot led to a leaf.
    pub(super) node: GlobalAddr,
    pub(super) header: Header,
    /// The key byte that selects its slots.
    pub(super) depth: usize,
    /// Its slots, if it was read.
    pub(super) slots: SmallVec<[u64; 32]>,
    /// The slot that points to it, if known.
    pub(super) incoming: Option<SlotAt>,
    /// The node that holds that slot; null for the root word.
    pub(super) holder: GlobalAddr,
    /// The first key byte that was not consumed above it.
    pub(super) arrival: usize,
    /// The nodes above it, for descents from the root that make a change.
    pub(super) uppers: Vec<Upper>,
}

impl<'k> Descent<'k> {
    /// Creates a descent that may use the cache.
    pub(super) fn new(key: &'k [u8], purpose: Purpose) -> Self {
        Self::below(key, purpose, usize::MAX)
    }

    /// Creates a descent that uses only entries of prefixes shorter than `below`; with 0 it starts
    /// at the root.
    pub(super) fn below(key: &'k [u8], purpose: Purpose, below: usize) -> Self {
        Self {
            key,
            purpose,
            stage: Stage::Begin,
            via: ReachedBy::Root,
            below,
            hint: None,
            torn: 0,
            repair: None,
            node: GlobalAddr::NULL,
            header: Header::from_word(0),
            depth: 0,
            slots: SmallVec::new(),
            incoming: None,
            holder: GlobalAddr::NULL,
            arrival: 0,
            uppers: Vec::new(),
        }
    }

    /// Picks the deepest possible start.
    fn begin(&mut self, shared: &Shared) {
        self.slots.clear();
        self.incoming = None;
        self.uppers.clear();
        if let Some(hint) = shared.cache.lookup(self.key, self.below) {
            self.hint = Some((hint.node, hint.ty, hint.depth));
            (self.node, self.depth) = (hint.node, hint.depth);
            self.via = ReachedBy::HintedSlot;
            if let Some((index, slot)) = hint.slot {
                let at = SlotAt { addr: node::slot_addr(hint.node, index), slot };
                match slot.content() {
                    Content::Node { addr, ty } => {
                        (self.incoming, self.holder, self.arrival) = (Some(at), hint.node, hint.depth + 1);
                        self.stage = Stage::Node { addr, ty, read: None };
                        return;
                    }
                    // In the out-of-place mode slot and leaf are read in this order, which is
                    // guaranteed only on one memory node.
                    Content::Leaf { addr, len }
                        if shared.format.in_place || addr.node() == hint.node.node() =>
                    {
                        let leaf = LeafAt { at, index, addr, len };
                        self.stage = Stage::Leaf { leaf, read: None, slot_read: None };
                        return;
                    }
                    _ => {}
                }
            }
            self.via = ReachedBy::Entry;
            self.stage = Stage::Node { addr: hint.node, ty: hint.ty, read: None };
            return;
        }
        self.start_at_root(shared.root(), shared, ReachedBy::Root);
    }

    fn start_at_root(&mut self, root: Slot, shared: &Shared, via: ReachedBy) {
        self.hint = None;
        self.slots.clear();
        (self.arrival, self.holder) = (0, GlobalAddr::NULL);
        self.uppers.clear();
        match root.content() {
            Content::Node { addr, ty } => {
                self.via = via;
                self.incoming = Some(SlotAt { addr: shared.words.root, slot: root });
                self.stage = Stage::Node { addr, ty, read: None };
            }
            _ => self.stage = Stage::RootWord(None),
        }
    }

    /// Falls back to the next shorter hint after the object found by a hint did not prove its
    /// validity.
    fn fall_back(&mut self, shared: &Shared) {
        self.incoming = None;
        match (self.via, self.hint) {
            (ReachedBy::HintedSlot, Some((addr, ty, depth))) => {
                self.via = ReachedBy::Entry;
                (self.node, self.depth) = (addr, depth);
                self.stage = Stage::Node { addr, ty, read: None };
            }
            (ReachedBy::Entry, Some((addr, _, depth))) => {
                shared.cache.remove(&self.key[..depth], addr);
                self.below = depth;
                self.begin(shared);
            }
            _ => self.stage = Stage::RootWord(None),
        }
    }
}

impl Search<Shared> for Descent<'_> {
    type End = SmartEnd;

    fn post(&mut self, shared: &Shared, batch: &mut Batch) -> Result<()> {
        if let Stage::Begin = self.stage {
            self.begin(shared);
        }
        if let Some((addr, old, new)) = self.repair.take() {
            batch.cas(addr, old, new);
        }
        match &mut self.stage {
            Stage::Begin => {}
            Stage::RootWord(read) => *read = Some(batch.read(shared.words.root, 1)),
            Stage::Node { addr, ty, read } => *read = Some(batch.read(*addr, HEADER_WORDS + ty.slots())),
            Stage::Rest { ty, read, cas } => {
                let have = self.slots.len();
                *read = Some(batch.read(node::slot_addr(self.node, have), ty.slots() - have));
                // The next reader reads enough at once.
                if let Some(at) = self.incoming
                    && !at.slot.is_sealed()
                {
                    let grown = Slot::node(at.slot.edge().unwrap_or(0), *ty, self.node);
                    *cas = Some((batch.cas(at.addr, at.slot.word(), grown.word()), grown));
                }
            }
            Stage::Leaf { leaf, read, slot_read } => {
                if self.via == ReachedBy::HintedSlot && !shared.format.in_place {
                    *slot_read = Some(batch.read(leaf.at.addr, 1));
                }
                *read = Some(batch.read(leaf.addr, leaf::words_of(leaf.len)));
            }
        }
        Ok(())
    }

    fn absorb(&mut self, shared: &Shared, done: &Batch) -> Result<Option<SmartEnd>> {
        match self.stage {
            Stage::RootWord(Some(read)) => {
                let root = Slot::from_word(done.words(read)[0]);
                shared.remember_root(root);
                self.start_at_root(root, shared, ReachedBy::Tree);
                if let Stage::RootWord(_) = self.stage {
                    return Err(IndexError::corrupt(shared.words.root, "the root word names no node"));
                }
                Ok(None)
            }
            Stage::Node { addr, ty, read: Some(read) } => {
                self.absorb_node(shared, addr, ty, done.words(read))
            }
            Stage::Rest { ty, read: Some(read), cas } => {
                self.slots.extend_from_slice(done.words(read));
                if let (Some((cas, grown)), Some(at)) = (cas, self.incoming) {
                    self.absorb_growth(shared, at, done.swapped(cas), done.found(cas), grown);
                }
                self.decide(shared, ty)
            }
            Stage::Leaf { leaf, read: Some(read), slot_read } => {
                let is_current = slot_read.is_none_or(|slot| done.words(slot)[0] == leaf.at.slot.word());
                if is_current {
                    self.absorb_leaf(shared, leaf, read, done)
                } else {
                    self.fall_back(shared);
                    Ok(None)
                }
            }
            _ => unreachable!("nothing was posted"),
        }
    }
}

impl Descent<'_> {
    fn absorb_growth(&mut self, shared: &Shared, at: SlotAt, swapped: bool, found: u64, grown: Slot) {
        let now = if swapped { grown } else { Slot::from_word(found) };
        if now.addr() == self.node && !now.is_empty() {
            self.incoming = Some(SlotAt { addr: at.addr, slot: now });
            if self.holder.is_null() {
                shared.remember_root(now);
            } else {
                self.note_slot(shared, now);
            }
        }
    }

    /// Updates the cached copy of the slot that points to this node.
    pub(super) fn note_slot(&self, shared: &Shared, slot: Slot) {
        if let (Some(at), false) = (self.incoming, self.holder.is_null()) {
            let index = (at.addr.offset() - self.holder.offset()) as usize / 8 - HEADER_WORDS;
            shared.cache.set_slot(&self.key[..self.arrival - 1], self.holder, index, slot);
        }
    }

    fn absorb_node(
        &mut self,
        shared: &Shared,
        addr: GlobalAddr,
        read_as: NodeType,
        words: &[u64],
    ) -> Result<Option<SmartEnd>> {
        let (above, header) = (GlobalAddr::from_bits(words[0]), Header::from_word(words[1]));
        let trusted = self.via == ReachedBy::Tree;
        let Some(ty) = header.ty() else {
            return self.unsound(shared, addr, "inner node of an unknown type");
        };
        if self.via == ReachedBy::Entry {
            if !header.ends_at(self.depth) {
                return self.unsound(shared, addr, "inner node at another depth");
            }
        } else {
            let Some(partial) = header.partial_from(self.arrival) else {
                return self.unsound(shared, addr, "inner node without the bytes above it");
            };
            let matched = common_prefix(&partial, &self.key[self.arrival..]);
            if matched < partial.len() {
                if !trusted {
                    self.fall_back(shared);
                    return Ok(None);
                }
                (self.node, self.header, self.depth) = (addr, header, self.arrival + partial.len());
                self.slots = SmallVec::from_slice(&words[HEADER_WORDS..]);
                return Ok(Some(SmartEnd::Diverged { matched }));
            }
            if above != self.holder && shared.options.reverse_check {
                if !trusted && self.via == ReachedBy::HintedSlot {
                    self.fall_back(shared);
                    return Ok(None);
                }
                self.repair = Some((addr, words[0], self.holder.bits()));
            }
            self.depth = self.arrival + partial.len();
        }
        (self.node, self.header) = (addr, header);
        self.slots = SmallVec::from_slice(&words[HEADER_WORDS..]);
        if ty > read_as {
            self.stage = Stage::Rest { ty, read: None, cas: None };
            return Ok(None);
        }
        self.decide(shared, ty)
    }

    /// Continues, with all visible slots of a node, to the child under the key's edge.
    fn decide(&mut self, shared: &Shared, ty: NodeType) -> Result<Option<SmartEnd>> {
        // Slots beyond the type in the header do not exist yet.
        self.slots.truncate(ty.slots());
        let is_believed = self.via == ReachedBy::Tree;
        if !is_believed && !node::proves_life(&self.slots) {
            self.fall_back(shared);
            return Ok(None);
        }
        self.via = ReachedBy::Tree;
        shared.cache.insert(&self.key[..self.depth], self.node, ty, &self.slots);
        let edge = edge_of(self.key, self.depth);
        let of_edge = |(at, &word): (usize, &u64)| {
            let slot = Slot::from_word(word);
            slot.is_of(edge).then_some((at, slot))
        };
        let taken = self.slots.iter().enumerate().find_map(of_edge);
        let is_write = self.purpose == Purpose::Write;
        let Some((index, slot)) = taken else {
            let first_empty =
                self.slots.iter().map(|&word| Slot::from_word(word)).find(|slot| slot.is_empty());
            let is_sealed = is_write && first_empty.is_some_and(Slot::is_sealed);
            return Ok(Some(if is_sealed { SmartEnd::Sealed } else { SmartEnd::Vacant { taken: None } }));
        };
        if is_write && slot.is_sealed() {
            return Ok(Some(SmartEnd::Sealed));
        }
        let at = SlotAt { addr: node::slot_addr(self.node, index), slot };
        match slot.content() {
            Content::Node { addr, ty } => {
                self.descend(at, addr, ty);
                Ok(None)
            }
            Content::Leaf { addr, len } => {
                self.stage =
                    Stage::Leaf { leaf: LeafAt { at, index, addr, len }, read: None, slot_read: None };
                Ok(None)
            }
            Content::Tomb => Ok(Some(SmartEnd::Vacant { taken: Some((index, slot)) })),
            Content::Empty | Content::Invalid => Err(IndexError::corrupt(at.addr, "slot of an unknown type")),
        }
    }

    fn descend(&mut self, at: SlotAt, addr: GlobalAddr, ty: NodeType) {
        if self.purpose == Purpose::Write && self.below == 0 {
            self.uppers.extend(self.here());
        }
        (self.incoming, self.holder, self.arrival) = (Some(at), self.node, self.depth + 1);
        self.stage = Stage::Node { addr, ty, read: None };
    }

    fn absorb_leaf(
        &mut self,
        shared: &Shared,
        leaf: LeafAt,
        read: ReadId,
        done: &Batch,
    ) -> Result<Option<SmartEnd>> {
        // Out of place, the slot read before the leaf has proved it.
        let trusted = self.via == ReachedBy::Tree || !shared.format.in_place;
        let parsed = match shared.format.parse(leaf.addr, done.words(read)) {
            Err(_) if !trusted => {
                self.fall_back(shared);
                return Ok(None);
            }
            parsed => parsed?,
        };
        match parsed {
            Read::Pair(pair) => {
                let is_key = pair.key == self.key;
                if !is_key && !trusted {
                    self.fall_back(shared);
                    return Ok(None);
                }
                if !is_key && common_prefix(pair.key, self.key) < self.depth {
                    return Err(IndexError::corrupt(leaf.addr, "leaf of another path"));
                }
                if trusted && pair.above != self.node && shared.options.reverse_check {
                    let word = done.words(read)[0];
                    self.repair = leaf::with_above(word, self.node).map(|new| (leaf.addr, word, new));
                }
                Ok(Some(SmartEnd::Leaf { leaf, read, is_key }))
            }
            Read::Torn => {
                self.torn += 1;
                if self.torn < TORN_MAX {
                    self.stage = Stage::Leaf { leaf, read: None, slot_read: None };
                    return Ok(None);
                }
                self.torn = 0;
                if !trusted {
                    // Its lock is about to be written, so it must certainly be a leaf.
                    self.fall_back(shared);
                    return Ok(None);
                }
                Ok(Some(SmartEnd::Torn { leaf }))
            }
            Read::Dead | Read::Moved(..) if !trusted => {
                self.fall_back(shared);
                Ok(None)
            }
            Read::Dead => Ok(Some(SmartEnd::Vacant { taken: Some((leaf.index, leaf.at.slot)) })),
            Read::Moved(addr, len) => {
                self.stage = Stage::Leaf { leaf: LeafAt { addr, len, ..leaf }, read: None, slot_read: None };
                Ok(None)
            }
        }
    }

    /// Handles a node that a trusted pointer cannot lead to; a hint may lead anywhere.
    fn unsound(&mut self, shared: &Shared, addr: GlobalAddr, what: &'static str) -> Result<Option<SmartEnd>> {
        if self.via == ReachedBy::Tree {
            return Err(IndexError::corrupt(addr, what));
        }
        self.fall_back(shared);
        Ok(None)
    }

    /// Returns the current node of the descent, if the slot that points to it is known.
    pub(super) fn here(&self) -> Option<Upper> {
        let (node, holder, arrival) = (self.node, self.holder, self.arrival);
        let live = self.left();
        self.incoming.map(|incoming| Upper { node, incoming, holder, arrival, live })
    }

    /// Returns the live children of the current node; the maximum if it was not read.
    pub(super) fn left(&self) -> usize {
        if self.slots.is_empty() {
            return node::SLOTS_MAX;
        }
        self.slots.iter().filter(|&&word| Slot::from_word(word).is_live()).count()
    }

    /// Returns a lower bound of the node's type.
    pub(super) fn known_type(&self) -> NodeType {
        let hinted = self.hint.filter(|_| self.slots.is_empty()).map(|(_, ty, _)| ty);
        hinted.or(self.header.ty()).unwrap_or(NodeType::SMALLEST)
    }

    /// Returns the reverse pointer of the final leaf, if it has to be updated.
    pub(super) fn take_repair(&mut self) -> Option<(GlobalAddr, u64, u64)> {
        self.repair.take()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Smart, SmartOptions};
    use darter_fabric::{Local, OpKind, block_on};
    use darter_index::{Condition, OrderedIndex};
    use darter_pool::{AllocKind, Pool, PoolOptions};

    /// A cached slot may be very old: what looks like a torn leaf there may be any object, and its
    /// lock word any word.
    #[test]
    fn a_torn_leaf_is_not_believed_by_a_remembered_slot() {
        let pool =
            block_on(Pool::create(Local::memory(64 << 20, 1).unwrap(), &PoolOptions::default())).unwrap();
        let mut client = pool.client().unwrap();
        block_on(async {
            let smart = Smart::open_or_create(&mut client, SmartOptions::default()).await.unwrap();
            for key in [b"path one", b"path two"] {
                smart.put(&mut client, key, b"a value!", Condition::Always).await.unwrap();
            }
            let mut operation = smart.begin(&mut client, OpKind::Get).await.unwrap();
            let mut descent = Descent::new(b"path one", Purpose::Read);
            let (end, done) = operation.run(&mut descent).await.unwrap();
            let SmartEnd::Leaf { leaf, read, is_key: true } = end else { panic!("{end:?}") };
            assert_eq!(descent.via, ReachedBy::HintedSlot);
            let mut words = done.words(read).to_vec();
            let value = words.len() - 2;
            words[value] ^= 1;
            let bytes = leaf::bytes_of(leaf.len);
            let other = operation.client.alloc(0, bytes, AllocKind::Leaf).await.unwrap();
            operation.client.post(|batch| batch.write(other, &words)).await.unwrap();
            let stale = Slot::leaf(edge_of(descent.key, descent.depth), leaf.len, other);
            let prefix = &descent.key[..descent.depth];
            smart.shared.cache.set_slot(prefix, descent.node, leaf.index, stale);
            drop(operation);
            let value = smart.get(&mut client, b"path one").await.unwrap();
            assert_eq!(value, Some(b"a value!".to_vec()));
        });
    }
}
