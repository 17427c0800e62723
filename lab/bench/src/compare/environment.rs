//! The environment of an index in a comparison: a separate pool, in memory of this process or on
//! memory nodes on this machine, or a modelled cluster.

use crate::Program;
use crate::child_process::ChildProcess;
use crate::index_target::from_pool;
use darter::engine::{Pool, StoreFabric};
use darter::{ByteSize, block_on};
use darter_bench::BenchError;
use darter_bench::store_target::SECRET;
use darter_fabric::{Counting, Local, Provider, SUPERBLOCK_BYTES, Tcp, TcpOptions};
use darter_model::Model;
use darter_pool::PoolOptions;
use tempfile::TempDir;

/// Leases are not renewed during a measurement, and an index's server in a separate process would
/// take its client for dead.
const LEASE_MS: u64 = 24 * 3600 * 1000;

/// The environment of an index, which determines the clock that measures it.
pub(crate) enum Environment {
    /// By this machine's clock.
    Real(OwnMemory),
    /// By the clock of a model.
    Modelled(Model),
}

/// Memory for a pool, with the processes that serve it.
pub(crate) struct OwnMemory {
    pub(crate) provider: Provider,
    pub(crate) nodes: Vec<MemoryNode>,
}

/// A memory node that serves for as long as this lives.
pub(crate) struct MemoryNode {
    process: ChildProcess,
    /// The directory of its log, if it has one. It is removed after the process ends.
    _log: Option<TempDir>,
}

impl MemoryNode {
    /// Ends the node in order.
    pub(crate) fn end(self) -> Result<(), BenchError> {
        self.process.end()
    }
}

impl OwnMemory {
    /// Allocates `bytes` over `nodes` memory nodes in this process. Memory that is not touched costs
    /// nothing.
    pub(crate) fn local(bytes: u64, nodes: usize) -> Result<Self, BenchError> {
        let fabric = Local::memory(node_bytes(bytes, nodes), nodes).map_err(darter::Error::from)?;
        Ok(Self { provider: Provider::Local(fabric), nodes: Vec::new() })
    }

    /// Starts `nodes` memory nodes with `bytes` in all, each a child process reached over TCP, with
    /// these arguments; with logs on disk if `is_logged`.
    pub(crate) fn tcp(
        (bytes, nodes): (u64, usize),
        program: &Program,
        arguments: &[&str],
        is_logged: bool,
    ) -> Result<Self, BenchError> {
        let size = ByteSize(node_bytes(bytes, nodes)).to_string();
        let start = || {
            let log = is_logged.then(|| TempDir::with_prefix("darter-log-")).transpose()?;
            let directory = log.as_ref().map(|log| log.path().display().to_string());
            let durable = directory.iter().flat_map(|log| ["--durability", "log", "--log", log]);
            let words = ["--size", &size].into_iter().chain(arguments.iter().copied()).chain(durable);
            let process = ChildProcess::memnode(program, &words.map(str::to_owned).collect::<Vec<_>>())?;
            Ok(MemoryNode { process, _log: log })
        };
        let started = (0..nodes).map(|_| start()).collect::<Result<Vec<_>, BenchError>>()?;
        let addresses: Vec<String> = started.iter().map(|node| node.process.address().to_owned()).collect();
        let fabric = Tcp::connect(&addresses, TcpOptions::default()).map_err(darter::Error::from)?;
        Ok(Self { provider: Provider::Tcp(fabric), nodes: started })
    }
}

/// Creates a pool in a provider's memory.
pub(crate) fn create(provider: Provider) -> Result<Pool<StoreFabric>, BenchError> {
    let options = PoolOptions { secret: Some(SECRET), lease_ms: LEASE_MS, ..PoolOptions::default() };
    block_on(Pool::create(Counting::new(provider), &options)).map_err(from_pool)
}

/// Returns the bytes of each node, a whole number of superblocks.
pub(crate) fn node_bytes(bytes: u64, nodes: usize) -> u64 {
    (bytes / nodes.max(1) as u64).next_multiple_of(SUPERBLOCK_BYTES)
}
