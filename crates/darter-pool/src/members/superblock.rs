//! The superblock: a pool's constants, checked before any other bytes are trusted.
//!
//! ```text
//! word  0  magic                       word  6 … 9   secret: keys the index's hashes
//!       1  format version                   10       lease in milliseconds
//!       2  pool id, random                  11 … 14  zero
//!       3  first nodes | this node << 32    15       checksum over words 0 to 14
//!       4  bytes of this node
//!       5  bytes of a block
//! ```
//!
//! These words never change. The magic word is written last, and node 0's after those of all other
//! nodes, so a creation that was cut short leaves no pool. `first nodes` is the number of nodes the
//! pool was created with; the count next to the epoch is the current number (`nodes`). Words that
//! change (epoch, root words, tables) are checked when they are used.

use darter_fabric::{Batch, Endpoint, Fabric, GlobalAddr, SUPERBLOCK_MAGIC, random_word};

use super::lines;
use super::roster::Roster;
use crate::blocks::Layout;
use crate::checksum::{checksum, spread};
use crate::error::PoolError;
use crate::region::{EPOCH_AT, FOUNDER_AT, MEMBERS_AT, TABLE_AT};
use crate::round_trip::{post, read_words};

/// The version of the pool format. Version 4 had no check of page words in closed blocks; version 3
/// had pages of 64 KiB in all pools; version 2 had the records of gateways among the keys of programs.
pub(crate) const FORMAT_VERSION: u64 = 5;
/// Words that never change.
pub(crate) const CONSTANT_WORDS: usize = 16;
/// The first epoch. It leaves numbers for stamps that are older than any epoch.
pub(crate) const FIRST_EPOCH: u64 = 16;
/// Words of zeros written at a time.
const ZERO_WORDS: usize = 4096;
/// The longest lease a superblock can name: a day.
pub(crate) const LEASE_MS_MAX: u64 = 24 * 60 * 60 * 1000;

const NODE: usize = 3;
const CHECKSUM: usize = 15;
/// Seed of the checksum.
const SEED: u64 = 0x5375_7065_7262_6c6b;

/// The part of a superblock that describes the whole pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Superblock {
    pub pool_id: u64,
    pub nodes: u32,
    pub block_bytes: u64,
    pub secret: [u64; 4],
    pub lease_ms: u64,
}

impl Superblock {
    /// A new pool's superblock.
    pub(crate) fn new(nodes: u32, block_bytes: u64, lease_ms: u64, secret: Option<[u64; 4]>) -> Self {
        let secret = match secret {
            // Small numbers, as people choose them, would make weak keys.
            Some(words) => words.map(spread),
            None => std::array::from_fn(|_| random_word()),
        };
        Self { pool_id: random_word() | 1, nodes, block_bytes, secret, lease_ms }
    }

    fn words(&self, node: u8, node_bytes: u64) -> [u64; CONSTANT_WORDS] {
        let mut words = [0; CONSTANT_WORDS];
        words[0] = SUPERBLOCK_MAGIC;
        words[1] = FORMAT_VERSION;
        words[2] = self.pool_id;
        words[NODE] = u64::from(self.nodes) | u64::from(node) << 32;
        words[4] = node_bytes;
        words[5] = self.block_bytes;
        words[6..10].copy_from_slice(&self.secret);
        words[10] = self.lease_ms;
        words[CHECKSUM] = checksum(SEED, &words[..CHECKSUM]);
        words
    }

    /// Parses one node's words.
    fn parse(words: &[u64], node: u8, node_bytes: u64) -> Result<Self, PoolError> {
        if words[0] != SUPERBLOCK_MAGIC {
            return Err(PoolError::NotAPool { node });
        }
        if words[1] != FORMAT_VERSION {
            return Err(PoolError::WrongVersion { found: words[1], expected: FORMAT_VERSION });
        }
        if words[CHECKSUM] != checksum(SEED, &words[..CHECKSUM]) {
            return Err(PoolError::Damaged { node, what: "its superblock's checksum does not match" });
        }
        let superblock = Self {
            pool_id: words[2],
            nodes: words[NODE] as u32,
            block_bytes: words[5],
            secret: [words[6], words[7], words[8], words[9]],
            lease_ms: words[10],
        };
        if words[NODE] >> 32 != u64::from(node) {
            return Err(PoolError::NodeMismatch { node, what: "its superblock names another node" });
        }
        if words[4] != node_bytes {
            return Err(PoolError::NodeMismatch { node, what: "its superblock names another size" });
        }
        Ok(superblock)
    }
}

/// Returns the sizes of the nodes. Fails unless there are 1 to 255 of them.
pub(crate) fn node_sizes<F: Fabric>(fabric: &F) -> Result<Vec<u64>, PoolError> {
    let nodes = u8::try_from(fabric.nodes()).ok().filter(|&nodes| nodes > 0);
    let nodes = nodes.ok_or(PoolError::Options("a pool has 1 to 255 memory nodes"))?;
    Ok((0..nodes).map(|node| fabric.node_bytes(node)).collect())
}

/// Writes the superblocks and empty tables of a new pool, except node 0's superblock, on nodes that
/// this process has taken (`bootstrap`).
pub(crate) async fn begin<F: Fabric>(
    fabric: &F,
    endpoint: &mut F::Endpoint,
    superblock: &Superblock,
    layout: &Layout,
) -> Result<(), PoolError> {
    for node in (1..layout.node_count()).rev() {
        write_node(endpoint, superblock, node, fabric.node_bytes(node), layout.blocks(node)).await?;
    }
    write_zeros(endpoint, 0, layout.blocks(0)).await
}

/// Turns the nodes into a pool, after everything else has been written.
pub(crate) async fn finish<F: Fabric>(
    fabric: &F,
    endpoint: &mut F::Endpoint,
    superblock: &Superblock,
    layout: &Layout,
) -> Result<(), PoolError> {
    let head = [FIRST_EPOCH, 0, layout.node_count().into()];
    post(endpoint, |batch| batch.write(GlobalAddr::new(0, EPOCH_AT), &head)).await?;
    write_constants(endpoint, superblock, 0, fabric.node_bytes(0)).await
}

/// Writes the superblock and an empty table on a node other than 0.
pub(crate) async fn write_node<E: Endpoint>(
    endpoint: &mut E,
    superblock: &Superblock,
    node: u8,
    bytes: u64,
    blocks: u32,
) -> Result<(), PoolError> {
    write_zeros(endpoint, node, blocks).await?;
    write_constants(endpoint, superblock, node, bytes).await
}

/// Clears everything before a node's blocks except the word that keeps other founders out.
async fn write_zeros<E: Endpoint>(endpoint: &mut E, node: u8, blocks: u32) -> Result<(), PoolError> {
    let zeros = vec![0; ZERO_WORDS];
    let table_end = TABLE_AT + u64::from(blocks) * 8;
    for (from, to) in [(0, FOUNDER_AT), (FOUNDER_AT + 8, table_end)] {
        for start in (from..to).step_by(ZERO_WORDS * 8) {
            let words = ((to - start) / 8).min(ZERO_WORDS as u64) as usize;
            post(endpoint, |batch| batch.write(GlobalAddr::new(node, start), &zeros[..words])).await?;
        }
    }
    Ok(())
}

/// Writes the words that make a node part of a pool, the magic word last.
async fn write_constants<E: Endpoint>(
    endpoint: &mut E,
    superblock: &Superblock,
    node: u8,
    bytes: u64,
) -> Result<(), PoolError> {
    let words = superblock.words(node, bytes);
    let write = |batch: &mut Batch| {
        batch.write(GlobalAddr::new(node, 8), &words[1..]);
        batch.write(GlobalAddr::new(node, 0), &words[..1]);
    };
    Ok(post(endpoint, write).await?)
}

async fn read_constants<E: Endpoint>(endpoint: &mut E, node: u8) -> Result<[u64; CONSTANT_WORDS], PoolError> {
    Ok(read_words(endpoint, GlobalAddr::new(node, 0)).await?)
}

/// Reads one node's superblock.
pub(crate) async fn read_node<E: Endpoint>(
    endpoint: &mut E,
    node: u8,
    bytes: u64,
) -> Result<Superblock, PoolError> {
    if bytes < MEMBERS_AT {
        return Err(PoolError::TooSmall { node, node_bytes: bytes, needed: TABLE_AT });
    }
    let words = read_constants(endpoint, node).await?;
    Superblock::parse(&words, node, bytes)
}

/// What is on a memory node.
pub(super) enum Found {
    Superblock(Superblock),
    /// No pool, although the directory names the node.
    Lost,
    /// It has left the pool.
    Left,
}

/// Reads a node's superblock. If the node holds none, makes the fabric disown the node: a memory
/// node without a disk is empty when it comes back. Node 0 is never disowned, nor is a node that its
/// provider cannot tell from others, nor a node that has left the pool since the caller read the directory.
pub(super) async fn read_or_disown<F: Fabric>(
    fabric: &F,
    endpoint: &mut F::Endpoint,
    node: u8,
    bytes: u64,
) -> Result<Found, PoolError> {
    let found = read_node(endpoint, node, bytes).await;
    if found.is_err() && node > 0 && lines::has_left(endpoint, node).await.unwrap_or(false) {
        return Ok(Found::Left);
    }
    match found {
        Err(PoolError::NotAPool { .. } | PoolError::TooSmall { .. })
            if node > 0 && fabric.remote_nodes().node_id(node).is_some() =>
        {
            fabric.remote_nodes().disown_node(node);
            Ok(Found::Lost)
        }
        found => found.map(Found::Superblock),
    }
}

/// Reads and compares the superblocks of the given nodes, and reads the count of nodes in use.
/// Nodes of 0 bytes are absent; the directory must describe them (`nodes`). A node that holds no
/// pool is lost, and from then on one of them. Nodes that have left the pool are not read.
pub(crate) async fn read<F: Fabric>(
    fabric: &F,
    endpoint: &mut F::Endpoint,
    node_bytes: &mut [u64],
) -> Result<(Superblock, u8), PoolError> {
    let superblock = read_node(endpoint, 0, node_bytes.first().copied().unwrap_or(0)).await?;
    let roster = Roster::read(endpoint).await?;
    let count = roster.count;
    if u32::from(count) < superblock.nodes {
        return Err(PoolError::Damaged { node: 0, what: "its count of nodes is invalid" });
    }
    let removed = lines::removed(endpoint, roster).await?;
    for (node, bytes) in (0..).zip(&mut *node_bytes).skip(1) {
        let found = match removed.get(usize::from(node)) {
            Some(true) => Found::Left,
            _ if *bytes == 0 => Found::Lost,
            _ => read_or_disown(fabric, endpoint, node, *bytes).await?,
        };
        match found {
            Found::Left => {
                let expected = lines::look_up(endpoint, node).await?;
                fabric.remote_nodes().retire_node(node, &expected)?;
                *bytes = expected.bytes;
            }
            Found::Lost => *bytes = 0,
            Found::Superblock(found) if superblock == found => {}
            Found::Superblock(_) => {
                return Err(PoolError::NodeMismatch { node, what: "it belongs to another pool" });
            }
        }
    }
    if node_bytes.len() > usize::from(count) {
        return Err(PoolError::NodeMismatch { node: count, what: "the pool has fewer nodes" });
    }
    Ok((superblock, count))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_flipped_bit_is_noticed() {
        let superblock = Superblock::new(3, 2 << 20, 5000, None);
        let words = superblock.words(2, 1 << 30);
        assert_eq!(Superblock::parse(&words, 2, 1 << 30).unwrap(), superblock);
        for bit in 0..CONSTANT_WORDS * 64 {
            let mut damaged = words;
            damaged[bit / 64] ^= 1 << (bit % 64);
            assert!(Superblock::parse(&damaged, 2, 1 << 30).is_err(), "bit {bit}");
        }
        assert!(Superblock::parse(&words, 1, 1 << 30).is_err());
        assert!(Superblock::parse(&words, 2, 1 << 29).is_err());
    }
}
