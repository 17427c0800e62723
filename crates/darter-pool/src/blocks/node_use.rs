//! How this process uses each memory node. A node that leaves the pool is used less and less
//! (`members/removal`).

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

/// How a process uses a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum NodeUse {
    /// For everything.
    Whole = 0,
    /// No new objects are placed on it.
    Leaving = 1,
    /// What is remembered of it is not used either.
    Forgotten = 2,
    /// Not at all: it has left the pool.
    Removed = 3,
}

/// The [`NodeUse`] of every node. Changes while other threads read.
#[derive(Debug)]
pub(super) struct NodeUses(Box<[AtomicU8]>);

impl NodeUses {
    /// All of `nodes` nodes are used for everything.
    pub(super) fn new(nodes: usize) -> Self {
        Self((0..nodes).map(|_| AtomicU8::new(NodeUse::Whole as u8)).collect())
    }

    fn of(&self, node: u8) -> u8 {
        self.0.get(usize::from(node)).map_or(0, |used| used.load(Ordering::SeqCst))
    }

    pub(super) fn set(&self, node: u8, used: NodeUse) {
        if let Some(place) = self.0.get(usize::from(node)) {
            place.store(used as u8, Ordering::SeqCst);
        }
    }

    #[inline]
    pub(super) fn accepts(&self, node: u8) -> bool {
        self.of(node) == NodeUse::Whole as u8
    }

    pub(super) fn is_removed(&self, node: u8) -> bool {
        self.of(node) == NodeUse::Removed as u8
    }
}

/// The nodes of which an index must not use what it remembers, because they are leaving the pool or
/// have left. The set changes while the pool is in use. Objects there may still be reached from
/// words in the pool.
#[derive(Clone, Debug, Default)]
pub struct ForgottenNodes(pub(super) Option<Arc<NodeUses>>);

impl ForgottenNodes {
    /// Whether a node is one of them.
    #[inline]
    pub fn contains(&self, node: u8) -> bool {
        self.0.as_deref().is_some_and(|uses| uses.of(node) >= NodeUse::Forgotten as u8)
    }
}
