//! `bench`: the commands of the benchmark crates, with this program's exit codes.

use darter_cli::bench::{answer, setting};
use darter_cli::credentials::{ClientArgs, credential_variables};
use darter_cli::signals::Interrupt;
use darter_cli::{Answer, Failure};
use darter_lab_bench::{DeathsArgs, FabricArgs, LabBenchArgs, Program, Setting, VictimArgs};

/// The hidden command of the processes that `deaths` kills.
pub(crate) const VICTIM_COMMAND: &str = "bench-victim";
/// The hidden command of the processes that `stores` starts.
pub(crate) const STORE_WORKER_COMMAND: &str = "bench-store-worker";

#[derive(clap::Args)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "\
Examples:
  darter-lab bench --index sherman --records 100K --ops 100K
  darter-lab bench --dataset email --workload c
  darter-lab bench deaths --kills 20"
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
    /// Measure verbs over TCP on this machine, compared with a bare loop that does the same
    Fabric(FabricArgs),
    /// Kill clients of memory nodes at random moments, and measure what the others notice and when
    /// memory is reclaimed again
    Deaths(DeathsArgs),
    /// Compare stores that several processes share: darter, LMDB, redb, and fjall with one process
    #[cfg(feature = "peers")]
    Stores(darter_lab_bench::StoresArgs),
}

/// A worker of `bench --processes`.
pub(crate) type WorkerCommand = darter_cli::bench::WorkerCommand<LabBenchArgs>;

#[derive(clap::Args)]
pub(crate) struct VictimCommand {
    #[command(flatten)]
    args: VictimArgs,
}

/// Returns this program, for starting it again.
pub(crate) fn program() -> Result<Program, Failure> {
    Ok(Program {
        path: std::env::current_exe().map_err(Failure::failed)?,
        memnode: vec!["memnode".into()],
        victim: vec![VICTIM_COMMAND.into()],
        store_worker: vec![STORE_WORKER_COMMAND.into()],
        credentials: credential_variables().collect(),
    })
}

impl BenchCommand {
    pub(crate) fn run(&self) -> Result<Answer, Failure> {
        let mut out = std::io::stdout().lock();
        let stop = Interrupt::on_signals()?.flag();
        let outcome = match &self.other {
            None => {
                let setting = setting(self.args.run.pool.as_ref(), &self.credentials)?;
                let setting = darter_bench::Setting { stop, ..setting };
                darter_lab_bench::run_bench(&self.args, &setting, &mut out).map(drop)
            }
            Some(other) => {
                let setting = Setting { program: program()?, stop, ..Setting::default() };
                match other {
                    OtherBench::Fabric(args) => {
                        darter_lab_bench::run_fabric(args, &setting, &mut out).map(drop)
                    }
                    OtherBench::Deaths(args) => {
                        darter_lab_bench::run_deaths(args, &setting, &mut out).map(drop)
                    }
                    #[cfg(feature = "peers")]
                    OtherBench::Stores(args) => {
                        darter_lab_bench::run_stores(args, &setting, &mut out).map(drop)
                    }
                }
            }
        };
        answer(outcome)
    }
}

impl VictimCommand {
    pub(crate) fn run(&self) -> Result<Answer, Failure> {
        answer(darter_lab_bench::run_victim(&self.args, &mut std::io::stdout().lock()))
    }
}

#[cfg(feature = "peers")]
#[derive(clap::Args)]
pub(crate) struct StoreWorkerCommand {
    #[command(flatten)]
    args: darter_lab_bench::StoreWorkerArgs,
}

#[cfg(feature = "peers")]
impl StoreWorkerCommand {
    pub(crate) fn run(&self) -> Result<Answer, Failure> {
        answer(darter_lab_bench::run_store_worker(&self.args, &mut std::io::stdout()))
    }
}
