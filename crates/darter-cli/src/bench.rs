//! `bench`: what the benchmark crate runs, with this program's exit codes.

use crate::Answer;
use crate::failure::Failure;
use darter_bench::{BenchArgs, BenchError};

#[derive(clap::Args)]
pub(crate) struct BenchCommand {
    #[command(flatten)]
    args: BenchArgs,
}

impl BenchCommand {
    pub(crate) fn run(&self) -> Result<Answer, Failure> {
        match darter_bench::run(&self.args, &mut std::io::stdout().lock()) {
            Ok(_) => Ok(Answer::Done),
            Err(BenchError::Output(error)) => Err(error.into()),
            Err(error) if error.is_usage() => Err(Failure::usage(error)),
            Err(error) => Err(Failure::failed(error)),
        }
    }
}
