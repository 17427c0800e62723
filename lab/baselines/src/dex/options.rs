//! Options: the shape of an index, fixed when it is created, and how an owner uses it.

use darter_index::{IndexError, Result};

/// Where an index keeps its values.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DexValues {
    /// In the leaves, as in the published code: each value has 8 bytes.
    #[default]
    Inline,
    /// In blocks that leaves point to: values have any length, and reading one takes one more READ.
    Blocks,
}

/// Whether operations run at memory nodes (paper, section 6).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Offload {
    /// Never.
    Off,
    /// By the published rule with these costs in nanoseconds.
    Fixed {
        /// A call of a memory node, the paper's `l_p`.
        call_ns: u32,
        /// A READ of a page, the paper's `l_o`.
        read_ns: u32,
    },
    /// By the published rule with averages of measured costs.
    Measured,
}

/// How a process uses an index. `values`, `bounds` and `subtree_levels` apply when the index is
/// created.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DexOptions {
    /// Bytes of the page cache, divided into frames of 1,024 bytes; at least 16 of them.
    pub cache_bytes: u64,
    /// The place of the values.
    pub values: DexValues,
    /// The first keys of all owners except owner 0, ascending, each at least 2. Empty for one owner.
    pub bounds: Vec<u64>,
    /// The owner that this handle belongs to. Only one handle, with its clones, may be open for an
    /// owner at a time.
    pub owner: u16,
    /// Every change is written to the pool before it is acknowledged (`dex+wt`). Otherwise a changed
    /// page is written when it leaves the hot part of the cache, as published.
    pub write_through: bool,
    /// Whether upkeep writes all changed pages, so that a process that leaves in order loses nothing.
    /// Not published.
    pub flushes_in_upkeep: bool,
    /// Whether operations run at memory nodes.
    pub offload: Offload,
    /// Probability, in percent, that a leaf is cached once the cache is full.
    pub leaf_admission: u8,
    /// How full bulk load fills pages, in percent. Half full, as ascending inserts leave them, is the
    /// default.
    pub fill_percent: u8,
    /// Levels of a subtree that are on one memory node (paper, section 6).
    pub subtree_levels: u8,
    /// Seed of the cache's random choices.
    pub seed: u64,
}

impl Default for DexOptions {
    /// One owner, 256 MiB of cache as in the published script, and offloading with the costs of an
    /// RDMA network.
    fn default() -> Self {
        Self {
            cache_bytes: 256 << 20,
            values: DexValues::Inline,
            bounds: Vec::new(),
            owner: 0,
            write_through: false,
            flushes_in_upkeep: false,
            offload: Offload::Fixed { call_ns: 3000, read_ns: 2000 },
            leaf_admission: 10,
            fill_percent: 50,
            subtree_levels: 4,
            seed: 1,
        }
    }
}

impl DexOptions {
    /// # Errors
    /// [`IndexError::Options`].
    pub(super) fn verify(&self) -> Result<()> {
        let ascend = self.bounds.windows(2).all(|pair| pair[0] + 1 < pair[1]);
        if !ascend || self.bounds.first().is_some_and(|&first| first < 2) {
            return Err(IndexError::Options(
                "bounds must begin at 2 or above and ascend in steps of 2 or more",
            ));
        }
        if self.bounds.len() >= super::OWNERS_MAX {
            return Err(IndexError::Options("bounds: an index has at most 59 owners"));
        }
        if self.subtree_levels == 0 {
            return Err(IndexError::Options("subtree_levels must be at least 1"));
        }
        Ok(())
    }
}
