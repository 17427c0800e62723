//! The arguments of `darter-lab bench`.

use crate::compare::IndexChoice;
use crate::datasets::DatasetSpec;
use darter_bench::{BenchError, RunArgs};

/// Maximum number of rounds of a comparison.
const ROUNDS_MAX: u32 = 1000;

/// Arguments of `darter-lab bench`.
#[derive(Clone, Debug, clap::Args)]
pub struct LabBenchArgs {
    /// Index to measure, by the names that `compare` knows; an unknown name lists them
    #[arg(long, default_value = "quiver", value_name = "NAME")]
    pub index: IndexChoice,
    /// Keys: randint, email (synthetic), dense, clustered, or `file:PATH` with one key a line
    #[arg(long, default_value = "randint", value_name = "NAME")]
    pub dataset: DatasetSpec,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub run: RunArgs,
    /// Compare with other ordered indexes in this process (needs the feature `peers` at build time)
    #[arg(long)]
    pub peers: bool,
    /// Rounds of a comparison; the median counts
    #[arg(long, default_value_t = 3, value_name = "N")]
    pub rounds: u32,
}

impl LabBenchArgs {
    /// Checks the arguments that [`RunArgs`] does not have.
    pub(crate) fn validate(&self) -> Result<(), BenchError> {
        if self.rounds == 0 || self.rounds > ROUNDS_MAX {
            return Err(BenchError::Usage(format!("--rounds: choose from 1 to {ROUNDS_MAX}")));
        }
        Ok(())
    }
}
