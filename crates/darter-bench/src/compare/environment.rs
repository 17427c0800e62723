//! Where an index of a comparison runs: a pool of its own, in memory of this process or on memory
//! nodes on this machine, or a modelled cluster.

use crate::child_process::ChildProcess;
use crate::index_target::from_pool;
use crate::{BenchError, Program};
use darter::{ByteSize, DefaultFabric, Fabric, Pool, block_on};
use darter_fabric::{Counting, Local, Model, Provider, SUPERBLOCK_BYTES, Tcp, TcpOptions};
use darter_pool::PoolOptions;

/// A fixed secret: keys have the same positions in hash tables in every run, so all counts repeat.
pub(crate) const SECRET: [u64; 4] =
    [0x6a09_e667_f3bc_c908, 0xbb67_ae85_84ca_a73b, 0x3c6e_f372_fe94_f82b, 0xa54f_f53a_5f1d_36f1];

/// Where an index runs, and so by whose clock it is measured.
pub(crate) enum Environment {
    /// By this machine's clock.
    Real(OwnPool),
    /// By the clock of a model.
    Modelled(Model),
}

/// A pool with the memory nodes it was created on.
pub(crate) struct OwnPool {
    pub(crate) pool: Pool<DefaultFabric>,
    pub(crate) nodes: Vec<ChildProcess>,
}

impl OwnPool {
    /// Creates a pool of `bytes` over `nodes` memory nodes in this process. Memory that is not
    /// touched costs nothing.
    pub(crate) fn local(bytes: u64, nodes: usize) -> Result<Self, BenchError> {
        let fabric = Local::memory(node_bytes(bytes, nodes), nodes).map_err(darter::Error::from)?;
        Ok(Self { pool: create(Counting::new(Provider::Local(fabric)))?, nodes: Vec::new() })
    }

    /// Creates a pool of `bytes` over `nodes` memory nodes, each a child process reached over TCP.
    pub(crate) fn tcp(bytes: u64, nodes: usize, program: &Program) -> Result<Self, BenchError> {
        let words = ["--size".to_owned(), ByteSize(node_bytes(bytes, nodes)).to_string()];
        let nodes =
            (0..nodes).map(|_| ChildProcess::memnode(program, &words)).collect::<Result<Vec<_>, _>>()?;
        let addresses: Vec<String> = nodes.iter().map(|node| node.address().to_owned()).collect();
        let fabric = Tcp::connect(&addresses, TcpOptions::default()).map_err(darter::Error::from)?;
        Ok(Self { pool: create(Counting::new(Provider::Tcp(fabric)))?, nodes })
    }
}

/// Creates a pool in the fabric's memory.
pub(crate) fn create<F: Fabric>(fabric: F) -> Result<Pool<F>, BenchError> {
    let options = PoolOptions { secret: Some(SECRET), ..PoolOptions::default() };
    block_on(Pool::create(fabric, &options)).map_err(from_pool)
}

/// Returns the bytes of each node, a whole number of superblocks.
pub(crate) fn node_bytes(bytes: u64, nodes: usize) -> u64 {
    (bytes / nodes.max(1) as u64).next_multiple_of(SUPERBLOCK_BYTES)
}
