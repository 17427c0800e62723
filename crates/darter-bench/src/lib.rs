//! How well darter does: datasets, the YCSB workloads, a driver that counts exactly, other indexes to compare with.
//!
//! A run loads records into an empty pool, lets the prefix list adjust itself to a warm-up, and measures each workload
//! (DART, section 5.1). Counts (round trips, verbs, bytes) are exact and repeatable on one thread: no upkeep thread runs,
//! keys and operations depend on the seed alone, and of two runs only the pools' secrets differ, which place hashed entries
//! (a few thousandths of a round trip). Times are of this machine, in this run; compare them within it only.
//!
//! | module | what it holds |
//! |---|---|
//! | [`datasets`] | the keys |
//! | `zipf`, `ycsb` | which operation on which record comes next |
//! | `target`, `store_target`, `peers` | what is measured |
//! | `driver`, `run`, `teardown` | how it is measured |
//! | `fabric` | verbs alone, over TCP |
//! | `report`, `progress` | what people and machines get to see |

mod args;
pub mod datasets;
mod driver;
mod error;
mod fabric;
#[cfg(feature = "peers")]
mod peers;
mod permutation;
mod progress;
mod report;
mod run;
mod store_target;
mod target;
mod teardown;
mod ycsb;
mod zipf;

pub use args::{BenchArgs, IndexName, PrefixList, THREADS_MAX, VALUE_BYTES_MAX};
pub use error::BenchError;
pub use fabric::{FabricArgs, FabricReport, Program, run_fabric};
pub use report::{CheckOutcome, KindReport, LatencyUs, WorkloadReport};
pub use ycsb::{SCAN_RECORDS_MAX, Workload};
pub use zipf::THETA_MAX;

use std::io::Write;

/// Runs the benchmark that `args` describe and writes its results to `out`: a table, or with `--json` one object per
/// workload and line, each as soon as it is known. Progress goes to the standard error, when that is a terminal.
///
/// # Errors
/// When the arguments cannot be met ([`BenchError::is_usage`]), the store fails, or the index answers wrongly.
pub fn run(args: &BenchArgs, out: &mut dyn Write) -> Result<Vec<WorkloadReport>, BenchError> {
    if args.peers { compare(args, out) } else { run::run_store(args, out) }
}

#[cfg(feature = "peers")]
fn compare(args: &BenchArgs, out: &mut dyn Write) -> Result<Vec<WorkloadReport>, BenchError> {
    peers::compare(args, out)
}

#[cfg(not(feature = "peers"))]
fn compare(_: &BenchArgs, _: &mut dyn Write) -> Result<Vec<WorkloadReport>, BenchError> {
    Err(BenchError::Usage(
        "--peers: this program was built without the other indexes; build it with `--features peers`"
            .to_owned(),
    ))
}
