//! The reports of a store: checks, statistics, costs, and the shape of its tree.

pub use crate::inspect::{Check, Stats};
pub use darter_fabric::OpCounters;
pub use darter_index::{
    AdjustReport, CheckReport, EstStats, IncrementalStats, IndexStats, NodeTypeStats, SearchSamples,
    TreeEdge, TreeView,
};
pub use darter_pool::{AllocKind, BlockHolder, BlockRun, MemberUsage, NodeUsage, PoolUsage};
