//! `bench`: what the benchmark crate runs, with this program's exit codes.

use crate::Answer;
use crate::credentials::{ClientArgs, credential_variables};
use crate::failure::Failure;
use crate::pool::usable;
use crate::signals::Interrupt;
use darter_bench::BenchError;
use darter_fabric::TcpOptions;
use darter_lab_bench::{DeathsArgs, FabricArgs, LabBenchArgs, Program, Setting, VictimArgs};
use std::ffi::OsString;

/// The hidden command of the processes that `--processes` starts.
pub(crate) const WORKER_COMMAND: &str = "bench-worker";
/// The hidden command of the processes that `deaths` kills.
pub(crate) const VICTIM_COMMAND: &str = "bench-victim";

#[derive(clap::Args)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "\
Examples:
  darter bench --records 100K --ops 100K
  darter bench --workload c --threads 1,2,4 --pool 'file:/dev/shm/bench.pool?size=4G'
  darter bench deaths --kills 20"
)]
pub(crate) struct BenchCommand {
    #[command(flatten)]
    credentials: ClientArgs,
    #[command(flatten)]
    args: LabBenchArgs,
    #[command(subcommand)]
    other: Option<OtherBench>,
}

#[derive(clap::Subcommand)]
enum OtherBench {
    /// Measure verbs over TCP on this machine, beside a bare loop that does the same
    Fabric(FabricArgs),
    /// Kill clients of memory nodes at random moments, and measure what the others notice and when
    /// memory is reclaimed again
    Deaths(DeathsArgs),
}

#[derive(clap::Args)]
pub(crate) struct WorkerCommand {
    #[command(flatten)]
    credentials: ClientArgs,
    #[command(flatten)]
    args: LabBenchArgs,
    /// What the parent tells this worker
    #[arg(long, value_name = "JSON")]
    part: String,
}

#[derive(clap::Args)]
pub(crate) struct VictimCommand {
    #[command(flatten)]
    args: VictimArgs,
}

/// This program, to be started again. A worker gets the arguments that followed `bench`.
pub(crate) fn program() -> Result<Program, Failure> {
    let path = std::env::current_exe().map_err(Failure::failed)?;
    let credentials = credential_variables().collect();
    Ok(Program { path, memnode: vec!["memnode".into()], victim: vec![VICTIM_COMMAND.into()], credentials })
}

/// How the pool's memory nodes are reached; credentials are looked at for a pool that has some.
fn tcp(args: &LabBenchArgs, credentials: &ClientArgs) -> Result<TcpOptions, Failure> {
    let Some(pool) = &args.run.pool else { return Ok(TcpOptions::default()) };
    usable(pool)?;
    credentials.options_for(pool)
}

pub(crate) fn answer(outcome: Result<(), BenchError>) -> Result<Answer, Failure> {
    match outcome {
        Ok(()) => Ok(Answer::Done),
        Err(BenchError::Output(error)) => Err(error.into()),
        Err(BenchError::Interrupted) => Err(Failure::Interrupted(BenchError::Interrupted.to_string())),
        Err(error) if error.is_usage() => Err(Failure::usage(error)),
        Err(error) => Err(Failure::failed(error)),
    }
}

impl BenchCommand {
    pub(crate) fn run(&self) -> Result<Answer, Failure> {
        let mut out = std::io::stdout().lock();
        let stop = Interrupt::on_signals()?.flag();
        let setting = Setting { program: program()?, stop, ..Setting::default() };
        answer(match &self.other {
            None => {
                let worker = [OsString::from(WORKER_COMMAND)].into_iter().chain(std::env::args_os().skip(2));
                let tcp = tcp(&self.args, &self.credentials)?;
                let Setting { program, stop, .. } = setting;
                let setting =
                    darter_bench::Setting { tcp, program: program.path, worker: worker.collect(), stop };
                darter_lab_bench::run_bench(&self.args, &setting, &mut out).map(drop)
            }
            Some(OtherBench::Fabric(args)) => {
                darter_lab_bench::run_fabric(args, &setting, &mut out).map(drop)
            }
            Some(OtherBench::Deaths(args)) => {
                darter_lab_bench::run_deaths(args, &setting, &mut out).map(drop)
            }
        })
    }
}

impl WorkerCommand {
    pub(crate) fn run(&self) -> Result<Answer, Failure> {
        let tcp = tcp(&self.args, &self.credentials)?;
        let setting = darter_bench::Setting { tcp, ..darter_bench::Setting::default() };
        let (mut input, mut out) = (std::io::stdin().lock(), std::io::stdout().lock());
        answer(darter_bench::run_worker(&self.args, &setting, &self.part, &mut input, &mut out))
    }
}

impl VictimCommand {
    pub(crate) fn run(&self) -> Result<Answer, Failure> {
        answer(darter_lab_bench::run_victim(&self.args, &mut std::io::stdout().lock()))
    }
}
