//! What all connections of a fabric have in common: its memory nodes, its options and the number by
//! which nodes know it.

use super::options::TcpOptions;
use crate::random_word;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

/// A memory node as it was when the pool was opened.
#[derive(Clone, Debug)]
pub(super) struct NodeInfo {
    pub address: String,
    pub bytes: u64,
    pub boot_id: u64,
}

/// A process as its memory nodes see it.
#[derive(Debug)]
pub(super) struct Session {
    /// Grows when a node is added to the pool.
    nodes: RwLock<Vec<NodeInfo>>,
    /// The length of `nodes`, read for each batch.
    node_count: AtomicUsize,
    pub options: TcpOptions,
    /// Never 0, which means no session.
    pub number: u64,
    /// A node has reported that this session was fenced: then it is, on all nodes and for good.
    pub fenced: Arc<AtomicBool>,
}

impl Session {
    /// Returns a new session without nodes.
    pub(super) fn new(options: TcpOptions) -> Self {
        Self {
            nodes: RwLock::default(),
            node_count: AtomicUsize::new(0),
            options,
            number: random_word().max(1),
            fenced: Arc::default(),
        }
    }

    /// Returns how many nodes there are.
    pub(super) fn node_count(&self) -> usize {
        self.node_count.load(Ordering::Acquire)
    }

    /// Returns what is known of a node.
    pub(super) fn node(&self, node: u8) -> Option<NodeInfo> {
        let nodes = self.nodes.read().unwrap_or_else(PoisonError::into_inner);
        nodes.get(usize::from(node)).cloned()
    }

    /// Changes the list of nodes.
    pub(super) fn with_nodes<R>(&self, change: impl FnOnce(&mut Vec<NodeInfo>) -> R) -> R {
        let mut nodes = self.nodes.write().unwrap_or_else(PoisonError::into_inner);
        let result = change(&mut nodes);
        self.node_count.store(nodes.len(), Ordering::Release);
        result
    }
}
