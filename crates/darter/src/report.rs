//! The reports of a store: checks, statistics, costs, and the shape of its tree.
//!
//! ```
//! use darter::report::{IndexStats, PoolUsage};
//!
//! # fn main() -> Result<(), darter::Error> {
//! # let store = darter::Store::open("mem:16M")?;
//! store.put("pear", "green")?;
//! let (index, pool): (IndexStats, PoolUsage) = (store.stats()?.index, store.usage()?);
//! assert!(index.index_bytes + index.kv_bytes <= pool.used_bytes());
//! # Ok(())
//! # }
//! ```

pub use crate::inspect::{Check, Stats};
pub use darter_fabric::OpCounters;
pub use darter_index::{
    AdjustReport, CheckReport, EstStats, IncrementalStats, IndexStats, NodeTypeStats, SearchSamples,
    TreeEdge, TreeView,
};
pub use darter_pool::{AllocKind, BlockHolder, BlockRun, MemberUsage, NodeStanding, NodeUsage, PoolUsage};
