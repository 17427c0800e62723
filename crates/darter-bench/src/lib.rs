//! How well darter does: keys, the YCSB workloads, a driver that counts exactly, reports.
//!
//! A run loads records into an empty pool, lets the prefix list adjust itself to a warm-up, and
//! measures each workload (DART, section 5.1). Counts (round trips, verbs, bytes) are exact and
//! repeatable on one thread: no upkeep thread runs, keys and operations depend on the seed alone,
//! and of two runs only the pools' secrets differ, which place hashed entries (a few thousandths of
//! a round trip). Times are of this machine, in this run; compare them within it only.
//!
//! A program can measure more than the store by an implementation of [`Benchmark`], which names an
//! index and keys and opens a target.
//!
//! | module | what it holds |
//! |---|---|
//! | [`datasets`] | the keys |
//! | [`zipf`], [`permutation`], [`ycsb`] | which operation on which record comes next |
//! | [`target`], [`bench_target`], [`store_target`] | what is measured |
//! | [`phase`], [`outcome`] | one workload under certain conditions, and what came of it |
//! | [`executor`], [`driver`] | how it is measured |
//! | [`plan`], `open_target`, `run`, `teardown` | `bench` on one index |
//! | `processes` | several processes that drive one pool |
//! | [`report`], [`progress`] | output for people and for programs |

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

/// What a benchmark needs to know about the program that runs it.
#[derive(Clone, Debug, Default)]
pub struct Setting {
    /// How `tcp://` and `rdma://` pools are reached.
    pub tcp: TcpOptions,
    /// The program, to be started again for `--processes`.
    pub program: PathBuf,
    /// The arguments of its command that calls [`run_worker`] with this benchmark's arguments;
    /// [`WORKER_PART`] follows.
    pub worker: Vec<OsString>,
    /// Ends the run at the next chunk of operations once it is set, with
    /// [`BenchError::Interrupted`].
    pub stop: Arc<AtomicBool>,
}
