//! Indexes side by side: the same operations on the same records, on a pool each, under the same counters, in one run.
//!
//! | module | what it holds |
//! |---|---|
//! | `args`, `place` | what is asked for, and where the pools are |
//! | [`variants`] | the indexes by name |
//! | `arena`, `entrant` | a pool each, and an index in it of whatever type |
//! | `run` | stages, warm-ups, rounds |
//! | `configuration`, `measurement` | what was measured and what came of it |
//! | `tables`, `sheet`, `chart`, `plots`, `page`, `publish` | for people, for machines, as pictures, all on one page, given out |

mod arena;
mod args;
mod axis;
mod chart;
mod configuration;
mod entrant;
mod measurement;
mod page;
mod place;
mod plots;
mod publish;
mod run;
mod sheet;
mod tables;
mod variants;

pub(crate) use arena::SECRET;
pub use args::{CompareArgs, Comparison, Theta};
pub use configuration::Configuration;
pub use measurement::{Figures, Measurement};
pub use place::Place;
pub use variants::{IndexChoice, VARIANTS, Variant};

pub(crate) use page::About;
pub(crate) use publish::{Outputs, publish};
pub(crate) use tables::{Sheet, by_workload};

use crate::datasets::Dataset;
use crate::{BenchError, Setting};
use std::io::Write;

/// Compares indexes, and writes the tables to `out` and whatever files were asked for.
///
/// # Errors
/// When the arguments cannot be met ([`BenchError::is_usage`]), an index fails, or one answers wrongly.
pub fn run_compare(
    args: &CompareArgs,
    setting: &Setting,
    out: &mut dyn Write,
) -> Result<Vec<Measurement>, BenchError> {
    let comparison = &args.comparison;
    comparison.validate()?;
    let dataset = comparison.open_dataset()?;
    let outputs = Outputs {
        csv: args.csv.clone(),
        html: args.html.clone(),
        svg: args.svg.clone(),
        ..Outputs::default()
    };
    outputs.prepare()?;
    let measurements = run::measure(comparison, setting, &*dataset)?;
    let about = About {
        title: "darter compare".to_owned(),
        what: vec![introduction(comparison, &*dataset)],
        command: &setting.command,
        modelled: comparison.pool.is_modelled(),
    };
    publish(&about, &by_workload(&measurements), &measurements, &outputs, out)?;
    Ok(measurements)
}

/// Runs a comparison and keeps what came of it.
pub(crate) fn measure(comparison: &Comparison, setting: &Setting) -> Result<Vec<Measurement>, BenchError> {
    comparison.validate()?;
    run::measure(comparison, setting, &*comparison.open_dataset()?)
}

/// What was asked for, in one line.
fn introduction(comparison: &Comparison, dataset: &dyn Dataset) -> String {
    format!(
        "{} ({}), {} records, {} operations, values of {} bytes, seed {}, each index on a pool of its own: {} with {} \
         memory {}; {}{}.",
        comparison.dataset,
        dataset.note(),
        comparison.records,
        comparison.ops,
        comparison.value_bytes,
        comparison.seed,
        comparison.pool,
        comparison.memory_nodes(),
        if comparison.memory_nodes() == 1 { "node" } else { "nodes" },
        if comparison.rounds == 1 {
            "one round".to_owned()
        } else {
            format!("{} rounds, of which the median", comparison.rounds)
        },
        tables::remark_of(comparison.pool.is_modelled()),
    )
}
