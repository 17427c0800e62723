//! `bench`: runs the benchmark crate with this program's exit codes.

use crate::credentials::ClientArgs;
use crate::failure::{Answer, Failure};
use crate::pool::usable;
use crate::signals::Interrupt;
use darter::PoolUrl;
use darter_bench::{BenchArgs, BenchError, Benchmark, Setting};
use std::ffi::OsString;

/// The hidden command that the processes of `--processes` run.
pub const WORKER_COMMAND: &str = "bench-worker";

#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  darter bench --records 100K --ops 100K
  darter bench --workload c --threads 1,2,4 --pool 'file:/dev/shm/bench.pool?size=4G'")]
pub struct BenchCommand {
    #[command(flatten)]
    credentials: ClientArgs,
    #[command(flatten)]
    args: BenchArgs,
}

/// A benchmark worker, with these arguments.
#[derive(clap::Args)]
pub struct WorkerCommand<A: clap::Args = BenchArgs> {
    #[command(flatten)]
    credentials: ClientArgs,
    #[command(flatten)]
    args: A,
    /// Share of this worker, as set by the parent process
    #[arg(long, value_name = "JSON")]
    part: String,
}

/// Returns the settings of a benchmark on a pool, whose credentials are checked if it is named. A
/// worker is this program run with its hidden command and the arguments that followed `bench`.
pub fn setting(pool: Option<&PoolUrl>, credentials: &ClientArgs) -> Result<Setting, Failure> {
    let tcp = match pool {
        Some(pool) => {
            usable(pool)?;
            credentials.options_for(pool)?
        }
        None => darter_fabric::TcpOptions::default(),
    };
    let program = std::env::current_exe().map_err(Failure::failed)?;
    let worker = [OsString::from(WORKER_COMMAND)].into_iter().chain(std::env::args_os().skip(2)).collect();
    Ok(Setting { tcp, program, worker, ..Setting::default() })
}

/// Converts a benchmark's outcome to this program's result, which has an exit code.
pub fn answer(outcome: Result<(), BenchError>) -> Result<Answer, Failure> {
    match outcome {
        Ok(()) => Ok(Answer::Done),
        Err(BenchError::Output(error)) => Err(error.into()),
        Err(BenchError::Interrupted) => Err(Failure::Interrupted(BenchError::Interrupted.to_string())),
        Err(error) if error.is_usage() => Err(Failure::usage(error)),
        Err(error) => Err(Failure::failed(error)),
    }
}

impl BenchCommand {
    pub fn run(&self) -> Result<Answer, Failure> {
        let stop = Interrupt::on_signals()?.flag();
        let setting = Setting { stop, ..setting(self.args.run.pool.as_ref(), &self.credentials)? };
        answer(darter_bench::run(&self.args, &setting, &mut std::io::stdout().lock()).map(drop))
    }
}

impl<A: clap::Args + Benchmark> WorkerCommand<A> {
    pub fn run(&self) -> Result<Answer, Failure> {
        let setting = setting(self.args.args().pool.as_ref(), &self.credentials)?;
        let (mut input, mut out) = (std::io::stdin().lock(), std::io::stdout().lock());
        answer(darter_bench::run_worker(&self.args, &setting, &self.part, &mut input, &mut out))
    }
}
