//! Benchmarks of darter: keys, the YCSB workloads, a driver with exact counts, and reports.
//!
//! A run loads records into an empty pool, adjusts the prefix list to a warm-up, and measures each
//! workload (DART, section 5.1). Counts (round trips, verbs, bytes) are exact, and repeatable on
//! one thread: no upkeep thread runs, keys and operations depend only on the seed, and pools that a
//! run creates have a fixed secret. Another secret places hashed entries differently (a few
//! thousandths of a round trip). Times depend on the machine and the run; compare them only within
//! one run.
//!
//! A program can measure other targets than the store if it implements [`Benchmark`], which names
//! an index and keys and opens a target.
//!
//! | module | contents |
//! |---|---|
//! | [`datasets`] | the keys |
//! | [`zipf`], [`permutation`], [`ycsb`] | the next operation and its record |
//! | [`target`], [`bench_target`], [`store_target`] | the indexes under test |
//! | [`phase`], [`outcome`] | one workload under given conditions, and its results |
//! | [`executor`], [`driver`] | the measurement |
//! | [`plan`], `open_target`, `run`, `teardown` | `bench` on one index |
//! | `processes` | several processes that drive one pool |
//! | [`report`], [`progress`] | output for users and for programs |

pub mod args;
pub mod bench_target;
pub mod datasets;
pub mod driver;
mod error;
pub mod executor;
mod open_target;
pub mod outcome;
pub mod permutation;
pub mod phase;
pub mod plan;
mod processes;
pub mod progress;
pub mod report;
mod run;
pub mod store_target;
pub mod target;
mod teardown;
pub mod ycsb;
pub mod zipf;

pub use args::{BenchArgs, PrefixList, RunArgs};
pub use error::BenchError;
pub use open_target::{traits_of, with_store};
pub use plan::{Benchmark, IndexTraits, Plan};
pub use processes::{WORKER_PART, run_worker};
pub use report::{CheckOutcome, KindReport, LatencyUs, WorkloadReport};
pub use run::run;
pub use ycsb::{SCAN_RECORDS_MAX, Workload};

use darter_fabric::TcpOptions;
use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// The program that runs a benchmark, and its settings.
#[derive(Clone, Debug, Default)]
pub struct Setting {
    /// Options of connections to `tcp://` and `rdma://` pools.
    pub tcp: TcpOptions,
    /// The program's path, to start it again for `--processes`.
    pub program: PathBuf,
    /// The arguments for the program's command that calls [`run_worker`] with this benchmark's
    /// arguments; [`WORKER_PART`] follows them.
    pub worker: Vec<OsString>,
    /// Once set, ends the run at the next chunk of operations, with [`BenchError::Interrupted`].
    pub stop: Arc<AtomicBool>,
}
