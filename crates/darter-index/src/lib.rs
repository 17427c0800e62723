//! Ordered indexes over a pool, all behind one trait.
//!
//! The index code is generic over [`darter_fabric::Fabric`] and does not depend on the provider it
//! runs on. [`OrderedIndex`] is the trait. [`Quiver`] is the index that a new pool gets, [`Dart`]
//! the published index that it is primarily compared with, and [`radix`] the engine that both
//! share. The crate `darter-baselines` contains further indexes for comparison.

mod any;
#[doc(hidden)]
pub mod checker;
#[doc(hidden)]
pub mod checksum;
mod dart;
pub mod drain;
mod dyn_index;
mod error;
#[cfg(test)]
mod fixtures;
pub mod give_up;
mod mark;
mod ordered;
mod quiver;
pub mod radix;
#[cfg(test)]
mod reading;
pub mod rebalance;
pub mod snapshot;

pub use any::{AnyIndex, IncrementalStats, IndexKind, IndexOptions};
#[doc(hidden)]
#[cfg(feature = "checker")]
pub use dart::dart_situations;
pub use dart::{Dart, DartOptions, SearchSamples};
pub use dyn_index::DynIndex;
pub use error::{IndexError, Result};
pub use ordered::{
    Access, Balance, CheckReport, Commit, Condition, CutOff, Decide, Decision, EstStats, Evacuated, Gap,
    IndexStats, KEY_BYTES_MAX, KeyValue, LostNodes, NodeFill, NodeTypeStats, OrderedIndex, PutOutcome,
    Salvaged, ScanRange, Swept, TreeEdge, TreeView, Version, Versioned, Visit, Write, check_key,
};
pub use quiver::{Quiver, QuiverOptions};
#[doc(hidden)]
#[cfg(feature = "checker")]
pub use quiver::{quiver_situations, quiver_twins};
pub use radix::leaf::value_bytes_max;
pub use radix::prefix_list::AdjustReport;
