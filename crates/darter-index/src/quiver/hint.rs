//! What is known of a node or a page before it is read again.

use super::page::{self, PageRef, Shape};
use darter_fabric::GlobalAddr;
use smallvec::SmallVec;

/// A node as it was when it was linked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct NodeHint {
    pub(super) addr: GlobalAddr,
    pub(super) born: u32,
    pub(super) depth: usize,
}

/// A page as it was when it was linked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PageHint {
    pub(super) page: PageRef,
    pub(super) shape: Shape,
    pub(super) map: SmallVec<[u64; 6]>,
}

impl PageHint {
    pub(super) fn new(page: PageRef, shape: Shape, map: &[u64]) -> Self {
        Self { page, shape, map: map.into() }
    }

    /// Whether a page's first words are those of this page, alive.
    pub(super) fn is_proved_by(&self, words: &[u64]) -> bool {
        page::proves(words[0], self.shape.born)
            && Shape::of(self.page, words).is_ok_and(|shape| shape == self.shape)
    }
}
