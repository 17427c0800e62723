//! Counts and sizes, gathered on the check's walk.

use super::node::{Layout, NodeType};
use darter_index::{IndexStats, NodeTypeStats};
use darter_pool::size_class::class_bytes;

/// Running sums of a walk.
#[derive(Debug)]
pub(super) struct Tally {
    stats: IndexStats,
    layout: Layout,
}

impl Tally {
    pub(super) fn new(layout: Layout) -> Self {
        let nodes =
            layout.iter().map(|ty| NodeTypeStats { name: ty.name(), count: 0, bytes: 0, children: 0 });
        Self { stats: IndexStats { nodes: nodes.collect(), ..IndexStats::default() }, layout }
    }

    pub(super) fn note_node(&mut self, ty: NodeType, children: usize) {
        self.stats.index_bytes += ty.pool_bytes();
        if let Some(at) = self.layout.iter().position(|&other| other == ty) {
            let stats = &mut self.stats.nodes[at];
            stats.count += 1;
            stats.bytes += ty.pool_bytes();
            stats.children += children as u64;
        }
    }

    /// A leaf with `levels` inner nodes above it.
    pub(super) fn note_leaf(&mut self, class: u8, levels: usize) {
        let stats = &mut self.stats;
        stats.keys += 1;
        stats.kv_bytes += class_bytes(class);
        if stats.levels.len() <= levels {
            stats.levels.resize(levels + 1, 0);
        }
        stats.levels[levels] += 1;
        stats.depth_max = stats.depth_max.max(levels);
    }

    pub(super) fn finish(self) -> IndexStats {
        self.stats
    }
}
