//! Comparisons of darter: every index with the others, the papers' figures, other indexes in the
//! same process, the effect of a client's death on others, verbs alone. The workloads, the driver
//! and the reports are those of `darter-bench`.
//!
//! | module | what it holds |
//! |---|---|
//! | [`datasets`] | more keys |
//! | `args`, `open_target` | `bench` on any index |
//! | `index_target` | any index as a target of the driver |
//! | `modelled` | a workload by a model's clock |
//! | `rounds` | several candidates that run the same cases in turns |
//! | `compare` | comparisons of indexes, with tables, CSV, plots and a page |
//! | `paper` | the papers' figures, and the numbers that their texts give |
//! | `peers` | other indexes in one process |
//! | `stores` | stores that several processes share |
//! | `fabric` | verbs alone, over TCP |
//! | `deaths` | the effect of a client's death on others |
//! | `child_process` | memory nodes and writers that a measurement starts |

mod args;
mod child_process;
mod compare;
pub mod datasets;
mod deaths;
mod fabric;
mod index_target;
mod modelled;
mod open_target;
mod paper;
#[cfg(feature = "peers")]
mod peers;
mod rounds;
#[cfg(feature = "peers")]
mod stores;

pub use args::LabBenchArgs;
pub use compare::{
    CompareArgs, Comparison, Configuration, Figures, IndexChoice, Measurement, PoolLocation, Theta, VARIANTS,
    Variant, run_compare,
};
pub use deaths::{DeathsArgs, DeathsReport, LatencyRow, Reclamation, VictimArgs, run_deaths, run_victim};
pub use fabric::{FabricArgs, FabricReport, run_fabric};
pub use paper::{PaperArgs, run_paper};
#[cfg(feature = "peers")]
pub use stores::{StoreWorkerArgs, StoresArgs, StoresRow, run_store_worker, run_stores};

use darter_bench::{BenchError, WorkloadReport};
use std::ffi::OsString;
use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Data about the program that runs a measurement.
#[derive(Clone, Debug, Default)]
pub struct Setting {
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
    /// Runs work that can block for ever in a separate thread, and returns the result.
    ///
    /// # Errors
    /// Fails if the run is stopped first, or if no thread can be started. A thread that still works
    /// stays until the process ends.
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
    /// The arguments of its command that calls [`run_victim`]; those of [`VictimArgs`] follow.
    pub victim: Vec<OsString>,
    /// The arguments of its command that calls `run_store_worker`; those of `StoreWorkerArgs` follow.
    pub store_worker: Vec<OsString>,
    /// Environment variables that name credentials. Memory nodes and clients that a measurement
    /// starts do not inherit them.
    pub credentials: Vec<&'static str>,
}

/// Runs the benchmark that `args` describe, as [`darter_bench::run`] does; but the index may be any
/// that can be compared, and with `--peers` others in this process.
///
/// # Errors
/// Fails if the arguments cannot be met ([`BenchError::is_usage`]), the pool fails, or the index
/// returns a wrong result.
pub fn run_bench(
    args: &LabBenchArgs,
    setting: &darter_bench::Setting,
    out: &mut dyn Write,
) -> Result<Vec<WorkloadReport>, BenchError> {
    args.validate()?;
    if args.peers { compare_peers(args, setting, out) } else { darter_bench::run(args, setting, out) }
}

#[cfg(feature = "peers")]
fn compare_peers(
    args: &LabBenchArgs,
    setting: &darter_bench::Setting,
    out: &mut dyn Write,
) -> Result<Vec<WorkloadReport>, BenchError> {
    peers::compare(args, setting, out)
}

#[cfg(not(feature = "peers"))]
fn compare_peers(
    _: &LabBenchArgs,
    _: &darter_bench::Setting,
    _: &mut dyn Write,
) -> Result<Vec<WorkloadReport>, BenchError> {
    Err(BenchError::Usage(
        "--peers: this program was built without the other indexes; build it with `--features peers`"
            .to_owned(),
    ))
}
