//! Counts and sizes of a radix tree, summed up on a walk.

use crate::{IndexStats, NodeTypeStats};

/// Running sums of a walk.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    stats: IndexStats,
}

impl Tally {
    /// A tally with no counts. `types` names the types of node, smallest first.
    pub fn new(types: impl IntoIterator<Item = &'static str>) -> Self {
        let none = |name| NodeTypeStats { name, count: 0, bytes: 0, children: 0 };
        Self { stats: IndexStats { nodes: types.into_iter().map(none).collect(), ..IndexStats::default() } }
    }

    /// Counts a node of the type with this name. For a type that the tree does not have, which
    /// occurs only in a damaged pool, only the bytes are counted.
    pub fn note_node(&mut self, name: &str, bytes: u64, children: usize) {
        self.stats.index_bytes += bytes;
        if let Some(stats) = self.stats.nodes.iter_mut().find(|stats| stats.name == name) {
            stats.count += 1;
            stats.bytes += bytes;
            stats.children += children as u64;
        }
    }

    /// Counts a leaf of `bytes` bytes with `levels` inner nodes above it.
    pub fn note_leaf(&mut self, bytes: u64, levels: usize) {
        let stats = &mut self.stats;
        stats.keys += 1;
        stats.kv_bytes += bytes;
        if stats.levels.len() <= levels {
            stats.levels.resize(levels + 1, 0);
        }
        stats.levels[levels] += 1;
        stats.depth_max = stats.depth_max.max(levels);
    }

    /// The totals.
    pub fn finish(self) -> IndexStats {
        self.stats
    }
}
