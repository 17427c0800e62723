//! The way from a key to its place: the first half of every point operation.
//!
//! A [`Descent`] is a state machine without a fabric. It reads the root word, and nodes whole, down
//! to a leaf or to the place where the key has none. Depth + length of a header is constant, and
//! its digits are those of every key below ([`super::header`]). So if the header does not match the
//! edge, a reader compares the digits that it has and skips the others, and the leaf decides.

use super::header::Header;
use super::node::{Content, Node, NodeType, Slot};
use super::shared::Shared;
use super::situations::ROOT_STALE;
use darter_fabric::{Batch, GlobalAddr, ReadId};
use darter_index::checker::note;
use darter_index::radix::leaf;
use darter_index::radix::search::Search;
use darter_index::{IndexError, Result};

/// A slot: its object, its position there, and its content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SlotAt {
    pub(super) base: GlobalAddr,
    pub(super) at: usize,
    pub(super) slot: Slot,
}

impl SlotAt {
    pub(super) fn addr(self) -> GlobalAddr {
        self.base.plus(self.at as u64 * 8)
    }

    /// Returns the digit of the slot; 0 for the root word.
    pub(super) fn edge(self) -> u16 {
        self.slot.edge().unwrap_or(0)
    }
}

/// The purpose of a descent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    /// To return a value.
    Read,
    /// To change the place found, under the lock: the path is recorded.
    Write,
}

/// The end of a descent.
#[derive(Clone, Copy, Debug)]
pub(super) enum WortEnd {
    /// The tree is empty.
    Empty,
    /// No child under the key's digit at the last node.
    Vacant,
    /// A leaf, read whole: that of the key or of another.
    Leaf { at: SlotAt, read: ReadId, is_key: bool },
    /// The key leaves the path at or before this place, in the digits skipped before the last node.
    Diverged(usize),
    /// Not for readers: the last node's header is stale.
    Stale,
}

/// A node on the way.
#[derive(Clone, Copy, Debug)]
pub(super) struct Here {
    pub(super) addr: GlobalAddr,
    pub(super) ty: NodeType,
    pub(super) header: Header,
    /// The place of the first digit after the edge that leads to it.
    pub(super) start: usize,
    /// The slot that points to it.
    pub(super) incoming: SlotAt,
}

enum Stage {
    /// The root word, and the node that it was last seen to name.
    Root(Option<(ReadId, Option<(Slot, ReadId)>)>),
    Node(Here, Option<ReadId>),
    Leaf(SlotAt, u8, Option<ReadId>),
}

/// A descent for one key.
pub(super) struct Descent<'k> {
    pub(super) key: &'k [u8],
    purpose: Purpose,
    /// The epoch at which the operation is pinned.
    epoch: u64,
    stage: Stage,
    /// For writers, the nodes on the way; for readers, only the last one.
    pub(super) path: Vec<Here>,
    /// The last node's words, for writers.
    pub(super) words: Vec<u64>,
    /// Whether every skipped digit was compared.
    pub(super) is_sure: bool,
}

impl<'k> Descent<'k> {
    pub(super) fn new(epoch: u64, key: &'k [u8], purpose: Purpose) -> Self {
        let (stage, path, words) = (Stage::Root(None), Vec::new(), Vec::new());
        Self { key, purpose, epoch, stage, path, words, is_sure: true }
    }
}

impl Search<Shared> for Descent<'_> {
    type End = WortEnd;

    fn post(&mut self, shared: &Shared, batch: &mut Batch) -> Result<()> {
        match &mut self.stage {
            Stage::Root(reads) => {
                let word = batch.read(shared.words.root, 1);
                let seen = shared.root(self.epoch).and_then(|slot| match slot.content() {
                    Content::Node { addr, ty, .. } => Some((slot, batch.read(addr, ty.words()))),
                    _ => None,
                });
                *reads = Some((word, seen));
            }
            Stage::Node(here, read) => *read = Some(batch.read(here.addr, here.ty.words())),
            Stage::Leaf(at, class, read) => {
                *read = Some(batch.read(at.slot.addr(), leaf::class_words(*class)));
            }
        }
        Ok(())
    }

    fn absorb(&mut self, shared: &Shared, batch: &Batch) -> Result<Option<WortEnd>> {
        match self.stage {
            Stage::Root(Some((word, seen))) => self.absorb_root(shared, batch, word, seen),
            Stage::Node(here, Some(read)) => self.absorb_node(shared, here, batch.words(read)),
            Stage::Leaf(at, _, Some(read)) => {
                let leaf = leaf::parse(at.slot.addr(), batch.words(read))?;
                shared.touched.read_leaf(at.slot);
                Ok(Some(WortEnd::Leaf { at, read, is_key: leaf.key == self.key }))
            }
            _ => Err(IndexError::corrupt(shared.words.root, "descent absorbed before it was posted")),
        }
    }
}

impl Descent<'_> {
    fn absorb_root(
        &mut self,
        shared: &Shared,
        batch: &Batch,
        word: ReadId,
        seen: Option<(Slot, ReadId)>,
    ) -> Result<Option<WortEnd>> {
        let slot = Slot::from_word(batch.words(word)[0]);
        shared.touched.read(shared.words.root, || 0..1);
        let end = self.follow(SlotAt { base: shared.words.root, at: 0, slot }, 0)?;
        match (&self.stage, seen) {
            (&Stage::Node(here, None), Some((seen, read))) if seen == slot => {
                return self.absorb_node(shared, here, batch.words(read));
            }
            (_, Some(_)) => note(ROOT_STALE),
            _ => {}
        }
        shared.remember_root(slot, self.epoch);
        Ok(end)
    }

    /// Follows a slot; `start` is the place of the first digit after it.
    fn follow(&mut self, at: SlotAt, start: usize) -> Result<Option<WortEnd>> {
        match at.slot.content() {
            Content::Leaf { class, .. } => self.stage = Stage::Leaf(at, class, None),
            Content::Node { addr, ty, .. } => {
                let here = Here { addr, ty, header: Header::default(), start, incoming: at };
                self.stage = Stage::Node(here, None);
            }
            Content::Empty => return Ok(Some(WortEnd::Empty)),
            _ => return Err(IndexError::corrupt(at.addr(), "slot of an unknown type")),
        }
        Ok(None)
    }

    fn absorb_node(&mut self, shared: &Shared, mut here: Here, words: &[u64]) -> Result<Option<WortEnd>> {
        let (digits, start) = (shared.format.digits, here.start);
        let node = Node::new(here.ty, words);
        let header = node.header();
        shared.touched.read(here.addr, || 0..1);
        here.header = header;
        let branch = header.branch();
        // Places increase along every path, so pointers of a damaged pool cannot form cycles.
        if branch < start || !shared.format.types.contains(&here.ty) {
            return Err(IndexError::corrupt(here.addr, "node is not as deep as the edge that leads to it"));
        }
        if self.purpose == Purpose::Read {
            self.path.clear();
        } else {
            self.words.clear();
            self.words.extend_from_slice(words);
        }
        self.path.push(here);
        if self.purpose == Purpose::Write && header.is_stale(start) {
            return Ok(Some(WortEnd::Stale));
        }
        self.is_sure &= header.is_whole(digits, start);
        let known = header.known(digits);
        let mut compared = start.max(known.start)..known.end;
        let parts = |at: &usize| header.digit(digits, *at) != Some(digits.edge(self.key, *at));
        if let Some(at) = compared.find(parts) {
            return Ok(Some(WortEnd::Diverged(at)));
        }
        let length = digits.count(self.key);
        if length < branch {
            return Ok(Some(WortEnd::Diverged(length)));
        }
        let edge = digits.edge(self.key, branch);
        shared.touched.read(here.addr, || node.words_for(edge));
        match node.find(edge) {
            Some((at, slot)) => self.follow(SlotAt { base: here.addr, at, slot }, branch + 1),
            None => Ok(Some(WortEnd::Vacant)),
        }
    }
}
