//! How well darter does: datasets, the YCSB workloads, a driver that counts exactly, other indexes
//! to compare with.
//!
//! A run loads records into an empty pool, lets the prefix list adjust itself to a warm-up, and
//! measures each workload (DART, section 5.1). Counts (round trips, verbs, bytes) are exact and
//! repeatable on one thread: no upkeep thread runs, keys and operations depend on the seed alone,
//! and of two runs only the pools' secrets differ, which place hashed entries (a few thousandths of
//! a round trip). Times are of this machine, in this run; compare them within it only.
//!
//! | module | what it holds |
//! |---|---|
//! | [`datasets`] | the keys |
//! | `zipf`, `permutation`, `ycsb` | which operation on which record comes next |
//! | `target`, `bench_target`, `store_target`, `index_target`, `peers` | what is measured |
//! | `phase`, `outcome` | one workload under certain conditions, and what came of it |
//! | `executor`, `driver`, `modelled` | how it is measured, by this machine's clock or a model's |
//! | `plan`, `run`, `teardown` | `bench` on one index |
//! | `processes` | several processes that drive one pool |
//! | `rounds` | several candidates that run the same cases in turns |
//! | `compare` | indexes side by side, with tables, CSV, plots and a page |
//! | `paper` | the papers' figures, and the numbers that their texts give |
//! | `fabric` | verbs alone, over TCP |
//! | `deaths` | what clients notice of another's death |
//! | `child_process` | memory nodes and writers that a measurement starts |
//! | `report`, `progress` | output for people and for programs |

mod args;
mod bench_target;
mod child_process;
mod compare;
pub mod datasets;
mod deaths;
mod driver;
mod error;
mod executor;
mod fabric;
mod index_target;
mod modelled;
mod open_target;
mod outcome;
mod paper;
#[cfg(feature = "peers")]
mod peers;
mod permutation;
mod phase;
mod plan;
mod processes;
mod progress;
mod report;
mod rounds;
mod run;
mod store_target;
mod target;
mod teardown;
mod ycsb;
mod zipf;

pub use args::{BenchArgs, IN_FLIGHT_MAX, PROCESSES_MAX, PrefixList, THREADS_MAX, VALUE_BYTES_MAX};
pub use compare::{
    CompareArgs, Comparison, Configuration, Figures, IndexChoice, Measurement, PoolLocation, Theta, VARIANTS,
    Variant, run_compare,
};
pub use deaths::{DeathsArgs, DeathsReport, LatencyRow, Reclamation, VictimArgs, run_deaths, run_victim};
pub use error::BenchError;
pub use fabric::{FabricArgs, FabricReport, run_fabric};
pub use paper::{PaperArgs, run_paper};
pub use processes::{WORKER_PART, run_worker};
pub use report::{CheckOutcome, KindReport, LatencyUs, WorkloadReport};
pub use ycsb::{SCAN_RECORDS_MAX, Workload};
pub use zipf::THETA_MAX;

use darter_fabric::TcpOptions;
use std::ffi::OsString;
use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// What a benchmark needs to know about the program that runs it.
#[derive(Clone, Debug, Default)]
pub struct Setting {
    /// How `tcp://` and `rdma://` pools are reached.
    pub tcp: TcpOptions,
    /// How to start the program again.
    pub program: Program,
    /// The command line, which pages of results show.
    pub command: String,
    /// Ends the run at the next chunk of operations once it is set, with
    /// [`BenchError::Interrupted`].
    pub stop: Arc<AtomicBool>,
}

/// Time between two checks of [`Setting::stop`] while another thread works.
const LOOK: Duration = Duration::from_millis(5);

impl Setting {
    /// Runs work that can block for ever in its own thread, and returns the result.
    ///
    /// # Errors
    /// Fails if the run is stopped first, or there can be no thread. A thread that still works stays
    /// until the process ends.
    pub(crate) fn or_stopped<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, BenchError> {
        let worker = std::thread::Builder::new().name("output".to_owned()).spawn(work)?;
        while !worker.is_finished() {
            if self.stop.load(Ordering::Relaxed) {
                return Err(BenchError::Interrupted);
            }
            std::thread::sleep(LOOK);
        }
        Ok(worker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
    }
}

/// How to start a program's own commands.
#[derive(Clone, Debug, Default)]
pub struct Program {
    /// The program.
    pub path: PathBuf,
    /// The arguments of its command that serves memory and prints `tcp://ADDRESS`; others follow.
    pub memnode: Vec<OsString>,
    /// The arguments of its command that calls [`run_worker`] with this benchmark's arguments;
    /// [`WORKER_PART`] follows.
    pub worker: Vec<OsString>,
    /// The arguments of its command that calls [`run_victim`]; those of [`VictimArgs`] follow.
    pub victim: Vec<OsString>,
    /// Environment variables that name credentials. Memory nodes and clients that a measurement
    /// starts do not inherit them.
    pub credentials: Vec<&'static str>,
}

/// Runs the benchmark that `args` describe and writes its results to `out`: a table, or with
/// `--json` one object per workload and line, each as soon as it is known. Progress goes to the
/// standard error, when that is a terminal.
///
/// # Errors
/// Fails if the arguments cannot be met ([`BenchError::is_usage`]), the store fails, or the index
/// returns a wrong result.
pub fn run(
    args: &BenchArgs,
    setting: &Setting,
    out: &mut dyn Write,
) -> Result<Vec<WorkloadReport>, BenchError> {
    if args.peers { compare(args, setting, out) } else { run::run_index(args, setting, out) }
}

#[cfg(feature = "peers")]
fn compare(
    args: &BenchArgs,
    setting: &Setting,
    out: &mut dyn Write,
) -> Result<Vec<WorkloadReport>, BenchError> {
    peers::compare(args, setting, out)
}

#[cfg(not(feature = "peers"))]
fn compare(_: &BenchArgs, _: &Setting, _: &mut dyn Write) -> Result<Vec<WorkloadReport>, BenchError> {
    Err(BenchError::Usage(
        "--peers: this program was built without the other indexes; build it with `--features peers`"
            .to_owned(),
    ))
}
