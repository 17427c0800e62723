//! `bench`: what the benchmark crate runs, with this program's exit codes.

use crate::Answer;
use crate::failure::Failure;
use darter_bench::{BenchArgs, BenchError, FabricArgs, Program};

#[derive(clap::Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct BenchCommand {
    #[command(flatten)]
    args: BenchArgs,
    #[command(subcommand)]
    other: Option<OtherBench>,
}

#[derive(clap::Subcommand)]
enum OtherBench {
    /// Measure verbs over TCP on this machine, beside a bare loop that does the same
    Fabric(FabricArgs),
}

/// This program, to be started again.
fn program() -> Result<Program, Failure> {
    let path = std::env::current_exe().map_err(Failure::failed)?;
    Ok(Program { path, memnode: "memnode" })
}

impl BenchCommand {
    pub(crate) fn run(&self) -> Result<Answer, Failure> {
        let mut out = std::io::stdout().lock();
        let outcome = match &self.other {
            None => darter_bench::run(&self.args, &mut out).map(drop),
            Some(OtherBench::Fabric(args)) => darter_bench::run_fabric(args, &program()?, &mut out).map(drop),
        };
        match outcome {
            Ok(()) => Ok(Answer::Done),
            Err(BenchError::Output(error)) => Err(error.into()),
            Err(error) if error.is_usage() => Err(Failure::usage(error)),
            Err(error) => Err(Failure::failed(error)),
        }
    }
}
