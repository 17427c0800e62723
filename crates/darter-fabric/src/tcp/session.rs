//! State shared by all connections of a fabric: its memory nodes, its options and its session
//! number.

use super::options::TcpOptions;
use crate::rdma::Adapter;
use crate::{FabricError, random_word};
use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::Duration;

/// A memory node as it was when the pool was opened.
#[derive(Clone, Debug)]
pub(super) struct NodeInfo {
    pub address: String,
    /// 0 if it was never reached and its size was not set.
    pub bytes: u64,
    /// `None` in the same case: any node may then reply at its address.
    pub boot_id: Option<u64>,
    /// It was reached, and its replies contain only data that is on its disk.
    pub is_durable: bool,
    /// How long the replicas wait for each other, if it is a memory group.
    pub patience: Duration,
}

/// A process as its memory nodes see it.
#[derive(Debug)]
pub(super) struct Session {
    /// Grows when a node is added to the pool.
    nodes: RwLock<Vec<NodeInfo>>,
    /// The length of `nodes`, read for each batch.
    node_count: AtomicUsize,
    pub options: TcpOptions,
    /// The device that verbs go through, if any.
    pub adapter: Option<Adapter>,
    /// Never 0, which means no session.
    pub number: u64,
    /// The number of forks when it began, for [`crate::fork::check`].
    pub forks: u32,
    pub ended: Arc<SessionEnd>,
    pub silent: Arc<SilentNodes>,
    pub absent: Arc<AbsentNodes>,
    /// Nodes at whose addresses another memory was found.
    pub lost: Arc<AbsentNodes>,
    /// Nodes that have left the pool. They count as absent.
    pub retired: AbsentNodes,
    /// A node lets this session only read, because its token is a read-only one.
    pub reads_only: AtomicBool,
    /// Number of channels to memory groups so far.
    channels: AtomicU32,
}

/// Whether a node has reported that this session was fenced, and why: then it is fenced on all
/// nodes, permanently.
#[derive(Debug, Default)]
pub(super) struct SessionEnd(AtomicU32);

impl SessionEnd {
    /// The session was fenced by another client. A larger value is the number of the node that has
    /// forgotten the session, plus the next constant.
    const FENCED: u32 = 1;
    const FORGOTTEN: u32 = 2;

    /// Handles the error of a node's reply.
    pub(super) fn note(&self, error: &FabricError) {
        let why = match error {
            FabricError::Fenced => Self::FENCED,
            FabricError::Forgotten { node } => Self::FORGOTTEN + u32::from(*node),
            _ => return,
        };
        // The first reason is kept: later ones may be its consequences.
        let _ = self.0.compare_exchange(0, why, Ordering::Relaxed, Ordering::Relaxed);
    }

    /// Returns the error for requests posted after the session's end.
    pub(super) fn error(&self) -> Option<FabricError> {
        match self.0.load(Ordering::Relaxed) {
            0 => None,
            Self::FENCED => Some(FabricError::Fenced),
            node => Some(FabricError::Forgotten { node: (node - Self::FORGOTTEN) as u8 }),
        }
    }
}

/// A set of nodes, absent or without their memory.
#[derive(Debug, Default)]
pub(super) struct AbsentNodes([AtomicU64; 4]);

impl AbsentNodes {
    pub(super) fn contains(&self, node: u8) -> bool {
        self.0[usize::from(node) / 64].load(Ordering::Relaxed) >> (node % 64) & 1 != 0
    }

    pub(super) fn note(&self, node: u8, is_absent: bool) {
        let (word, bit) = (&self.0[usize::from(node) / 64], 1 << (node % 64));
        if is_absent {
            word.fetch_or(bit, Ordering::Relaxed);
        } else if self.contains(node) {
            word.fetch_and(!bit, Ordering::Relaxed);
        }
    }
}

/// The nodes that have left a request or a greeting without a reply for too long. While a node is
/// listed, requests that need a new connection to it wait for a moment and then fail at once, while
/// the attempt to connect continues. So an operation waits for a node only once, regardless of how
/// many verbs it posts and repeats, and the next request reaches a node that replies again.
#[derive(Debug, Default)]
pub(super) struct SilentNodes(Mutex<BTreeSet<u8>>);

impl SilentNodes {
    fn lock(&self) -> MutexGuard<'_, BTreeSet<u8>> {
        // A panicking thread leaves a set of numbers consistent.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn contains(&self, node: u8) -> bool {
        self.lock().contains(&node)
    }

    /// Removes a node from the list.
    pub(super) fn remove(&self, node: u8) {
        self.lock().remove(&node);
    }

    /// Lists a node that was silent for too long.
    pub(super) fn add(&self, node: u8) {
        self.lock().insert(node);
    }

    /// Records the result of an attempt to connect to a node, and returns it. A failure that may
    /// not occur again is returned as an error which says that nothing was sent.
    pub(super) fn judged<T>(&self, node: u8, connected: Result<T, FabricError>) -> Result<T, FabricError> {
        match connected {
            Err(FabricError::Io(failure)) => {
                if failure.source.kind() == ErrorKind::TimedOut {
                    self.add(node);
                } else {
                    self.lock().remove(&node);
                }
                Err(FabricError::Unreachable { node })
            }
            answered => {
                self.lock().remove(&node);
                answered
            }
        }
    }
}

impl Session {
    /// Returns a new session without nodes.
    ///
    /// # Errors
    /// Fails if the options name a device that cannot be used.
    pub(super) fn new(options: TcpOptions) -> Result<Self, FabricError> {
        Ok(Self {
            adapter: options.device.as_ref().map(Adapter::open).transpose()?,
            nodes: RwLock::default(),
            node_count: AtomicUsize::new(0),
            options,
            number: random_word().max(1),
            forks: crate::fork::watch(),
            ended: Arc::default(),
            silent: Arc::default(),
            absent: Arc::default(),
            retired: AbsentNodes::default(),
            lost: Arc::default(),
            reads_only: AtomicBool::new(false),
            channels: AtomicU32::new(0),
        })
    }

    /// Returns the number of a new channel; never 0.
    pub(super) fn next_channel(&self) -> u32 {
        self.channels.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Returns the number of nodes.
    pub(super) fn node_count(&self) -> usize {
        self.node_count.load(Ordering::Acquire)
    }

    /// Returns the nodes that have not left the pool.
    pub(super) fn nodes_in_use(&self) -> impl Iterator<Item = u8> + '_ {
        (0..self.node_count()).map(|node| node as u8).filter(|&node| !self.retired.contains(node))
    }

    /// Returns the information about a node.
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
