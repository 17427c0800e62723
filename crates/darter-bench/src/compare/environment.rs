//! The pool that each index of a comparison has to itself: memory of this process, or memory nodes on this machine.

use crate::companion::Companion;
use crate::index_target::from_pool;
use crate::{BenchError, Program};
use darter::{ByteSize, DefaultFabric, Fabric, Pool, block_on};
use darter_fabric::{Counting, Local, Provider, SUPERBLOCK_BYTES, Tcp, TcpOptions};
use darter_pool::PoolOptions;

/// A known secret, so that the places of keys in hash tables, and with them all counts, repeat.
pub(crate) const SECRET: [u64; 4] =
    [0x6a09_e667_f3bc_c908, 0xbb67_ae85_84ca_a73b, 0x3c6e_f372_fe94_f82b, 0xa54f_f53a_5f1d_36f1];

/// A pool, and the memory nodes it was made on.
pub(crate) struct Arena {
    pub(crate) pool: Pool<DefaultFabric>,
    pub(crate) nodes: Vec<Companion>,
}

impl Arena {
    /// A pool of so many bytes over so many nodes, in this process's memory; what is not touched costs nothing.
    pub(crate) fn local(bytes: u64, nodes: usize) -> Result<Self, BenchError> {
        let fabric = Local::memory(node_bytes(bytes, nodes), nodes).map_err(darter::Error::from)?;
        Ok(Self { pool: create(Counting::new(Provider::Local(fabric)))?, nodes: Vec::new() })
    }

    /// The same over TCP, on memory nodes in processes of their own.
    pub(crate) fn tcp(bytes: u64, nodes: usize, program: &Program) -> Result<Self, BenchError> {
        let words = ["--size".to_owned(), ByteSize(node_bytes(bytes, nodes)).to_string()];
        let nodes = (0..nodes).map(|_| Companion::memnode(program, &words)).collect::<Result<Vec<_>, _>>()?;
        let addresses: Vec<String> = nodes.iter().map(|node| node.address().to_owned()).collect();
        let fabric = Tcp::connect(&addresses, TcpOptions::default()).map_err(darter::Error::from)?;
        Ok(Self { pool: create(Counting::new(Provider::Tcp(fabric)))?, nodes })
    }
}

/// Makes a pool of the fabric's memory.
pub(crate) fn create<F: Fabric>(fabric: F) -> Result<Pool<F>, BenchError> {
    let options = PoolOptions { secret: Some(SECRET), ..PoolOptions::default() };
    block_on(Pool::create(fabric, &options)).map_err(from_pool)
}

/// Bytes of each node, a whole number of superblocks.
pub(crate) fn node_bytes(bytes: u64, nodes: usize) -> u64 {
    (bytes / nodes.max(1) as u64).next_multiple_of(SUPERBLOCK_BYTES)
}
