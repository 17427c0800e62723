//! What is remembered, as those who use it have it.

use crate::quiver::page::{PageRef, Shape};
use darter_fabric::GlobalAddr;
use smallvec::SmallVec;

/// A node as it was when it was linked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::quiver) struct NodeHint {
    pub(in crate::quiver) addr: GlobalAddr,
    pub(in crate::quiver) born: u32,
    pub(in crate::quiver) depth: usize,
}

/// A page as it was when it was linked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::quiver) struct PageHint {
    pub(in crate::quiver) page: PageRef,
    pub(in crate::quiver) shape: Shape,
    pub(in crate::quiver) map: SmallVec<[u64; 6]>,
}

impl PageHint {
    pub(in crate::quiver) fn new(page: PageRef, shape: Shape, map: &[u64]) -> Self {
        Self { page, shape, map: map.into() }
    }
}

/// The deepest that is remembered on a key's path.
#[derive(Debug)]
pub(in crate::quiver) struct Hit {
    pub(in crate::quiver) node: NodeHint,
    /// The identity that the node is remembered under.
    pub(in crate::quiver) identity: u64,
    /// The page that was responsible for the key's edge.
    pub(in crate::quiver) page: Option<PageHint>,
}
