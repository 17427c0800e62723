//! What is known of a node or a page before it is read again.

use super::page::{self, FIXED_WORDS, PageRef, Shape};
use super::word::{LeafPrint, State, Word};
use crate::radix::leaf;
use darter_fabric::{Batch, GlobalAddr, ReadId};
use darter_pool::size_class::class_bytes;
use smallvec::SmallVec;

/// A node as it was when it was linked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct NodeHint {
    pub(super) addr: GlobalAddr,
    pub(super) born: u32,
    pub(super) depth: usize,
}

/// Which keys may be in a page's delta: one bit for each bucket of prints of LEAF words.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct DeltaFilter(pub(super) u32);

impl DeltaFilter {
    /// The filter of a delta with these words.
    pub(super) fn of(words: impl Iterator<Item = Word>) -> Self {
        Self(words.filter_map(Word::leaf_print).fold(0, |bits, print| bits | 1 << print.bucket(u32::BITS)))
    }

    /// Whether the key with this print may be there.
    pub(super) fn may_have(self, print: LeafPrint) -> bool {
        self.0 >> print.bucket(u32::BITS) & 1 == 1
    }
}

/// A word of a page that may name a leaf.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PageSlot(pub(super) u8);

/// Ranks come first, followed by delta slots.
const DELTA_FROM: usize = page::RECORDS_MAX;

impl PageSlot {
    /// The slot of the record with this rank.
    pub(super) fn record(rank: usize) -> Self {
        Self(rank as u8)
    }

    /// A slot of the delta.
    pub(super) fn delta(at: usize) -> Self {
        Self((DELTA_FROM + at) as u8)
    }

    /// The slot whose word is at an address of a page.
    pub(super) fn at(page: PageRef, shape: &Shape, addr: GlobalAddr) -> Option<Self> {
        let word = (addr.bits().checked_sub(page.addr.bits())? / 8) as usize;
        if let Some(record) = word.checked_sub(shape.head_words()) {
            return Some(Self::record(record / shape.record_words.max(1)));
        }
        word.checked_sub(FIXED_WORDS).map(Self::delta)
    }

    /// The rank of its record, if it has one.
    pub(super) fn rank(self) -> Option<usize> {
        (usize::from(self.0) < DELTA_FROM).then_some(usize::from(self.0))
    }

    /// Its position in the delta, if it is there.
    pub(super) fn place_in_delta(self) -> Option<usize> {
        usize::from(self.0).checked_sub(DELTA_FROM)
    }

    /// Its position in a page of this shape, in words.
    pub(super) fn word_at(self, shape: &Shape) -> usize {
        match self.place_in_delta() {
            Some(at) => FIXED_WORDS + at,
            None => shape.record_at(usize::from(self.0)),
        }
    }
}

/// A LEAF word of a page as it was read: the leaf can be read together with the word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct HotWord {
    pub(super) slot: PageSlot,
    pub(super) word: Word,
}

/// Bytes of the largest leaf that is read with its page. For a larger leaf, the saved round trip
/// matters little.
const HOT_LEAF_BYTES_MAX: u64 = 16 << 10;

/// A hot word, with the leaf that was read after it.
pub(super) type HotLeaf<'w> = (HotWord, &'w [u64]);

/// Hot words of a page.
pub(super) type HotWords = SmallVec<[HotWord; 2]>;

impl HotWord {
    /// A word of a page, if its leaf can be read together with it: only verbs to one memory node
    /// are ordered, and the leaves of all hot words of a page are read together, so they must be
    /// small. An intent must not be remembered: its leaf alone does not give the key's value.
    pub(super) fn of(page: PageRef, slot: PageSlot, word: Word) -> Option<Self> {
        let State::Leaf { addr, class } = word.state() else { return None };
        let is_small = class_bytes(class) <= HOT_LEAF_BYTES_MAX;
        (addr.node() == page.addr.node() && !word.is_sealed() && !word.is_intent() && is_small)
            .then_some(Self { slot, word })
    }

    /// Posts the READ of its leaf, which must come after a READ of the word, since the word
    /// protects the leaf.
    pub(super) fn post_leaf(&self, batch: &mut Batch) -> Option<ReadId> {
        let State::Leaf { addr, class } = self.word.state() else { return None };
        Some(batch.read(addr, leaf::class_words(class)))
    }
}

/// A page as it was when it was linked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PageHint {
    pub(super) page: PageRef,
    pub(super) shape: Shape,
    pub(super) map: SmallVec<[u64; 6]>,
    /// Keys that the delta may have had.
    pub(super) delta: DeltaFilter,
}

impl PageHint {
    pub(super) fn new(page: PageRef, shape: Shape, map: &[u64]) -> Self {
        Self { page, shape, map: map.into(), delta: DeltaFilter::default() }
    }

    /// The hint of a page whose delta was read.
    pub(super) fn with_delta(self, words: impl Iterator<Item = Word>) -> Self {
        Self { delta: DeltaFilter::of(words), ..self }
    }

    /// Whether a page's first words are those of this page, still alive.
    pub(super) fn is_proved_by(&self, words: &[u64]) -> bool {
        page::proves(words[0], self.shape.born)
            && Shape::of(self.page, words).is_ok_and(|shape| shape == self.shape)
    }
}
