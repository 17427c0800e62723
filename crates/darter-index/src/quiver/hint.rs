//! What is known of a node or a page before it is read again.

use super::page::{self, PageRef, Shape};
use super::word::{LeafPrint, Word};
use darter_fabric::GlobalAddr;
use smallvec::SmallVec;

/// A node as it was when it was linked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct NodeHint {
    pub(super) addr: GlobalAddr,
    pub(super) born: u32,
    pub(super) depth: usize,
}

/// Which keys may be in a page's delta: a bit for each of the hashes that LEAF words may have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct DeltaFilter(pub(super) u32);

impl DeltaFilter {
    /// That of a delta with these words.
    pub(super) fn of(words: impl Iterator<Item = Word>) -> Self {
        Self(words.filter_map(Word::leaf_print).fold(0, |bits, print| bits | 1 << print.bucket(u32::BITS)))
    }

    /// Whether the key with this print may be there.
    pub(super) fn may_have(self, print: LeafPrint) -> bool {
        self.0 >> print.bucket(u32::BITS) & 1 == 1
    }
}

/// A page as it was when it was linked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PageHint {
    pub(super) page: PageRef,
    pub(super) shape: Shape,
    pub(super) map: SmallVec<[u64; 6]>,
    /// Which keys the delta may have had.
    pub(super) delta: DeltaFilter,
}

impl PageHint {
    pub(super) fn new(page: PageRef, shape: Shape, map: &[u64]) -> Self {
        Self { page, shape, map: map.into(), delta: DeltaFilter::default() }
    }

    /// That of a page whose delta was read.
    pub(super) fn with_delta(self, words: impl Iterator<Item = Word>) -> Self {
        Self { delta: DeltaFilter::of(words), ..self }
    }

    /// Whether a page's first words are those of this page, alive.
    pub(super) fn is_proved_by(&self, words: &[u64]) -> bool {
        page::proves(words[0], self.shape.born)
            && Shape::of(self.page, words).is_ok_and(|shape| shape == self.shape)
    }
}
