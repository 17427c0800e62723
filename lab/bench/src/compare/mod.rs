//! Compares indexes: the same operations on the same records, each index on a separate pool, under
//! the same counters, in one run.
//!
//! | module | what it holds |
//! |---|---|
//! | `args`, `pool_location` | what to compare, and where the pools are |
//! | [`variants`] | the indexes by name |
//! | `environment`, `candidate` | a pool for each index, and the index in it, whatever its type |
//! | `server` | the server next to the memory, for indexes that call one |
//! | `run` | points that share pools, warm-ups, rounds |
//! | `configuration`, `measurement` | the settings of a measurement and its results |
//! | `axis`, `quantity`, `tables`, `csv_rows`, `json_rows`, `chart`, `plots`, `page`, `publish` | output: tables, CSV, JSON, pictures, one page with all |

mod args;
mod axis;
mod candidate;
mod chart;
mod configuration;
mod csv_rows;
mod environment;
mod json_rows;
mod measurement;
mod page;
mod plots;
mod pool_location;
mod publish;
mod quantity;
mod run;
mod server;
mod tables;
mod variants;

pub use args::{CompareArgs, Comparison, Theta};
pub use configuration::Configuration;
pub use measurement::{Figures, Measurement};
pub use pool_location::PoolLocation;
pub(crate) use server::{begin, serve};
pub(crate) use variants::{Adjusts, Demand, Visitor};
pub use variants::{IndexChoice, VARIANTS, Variant};

pub(crate) use chart::{Chart, Mark, Scale, Series, Shape, Unit};
pub(crate) use configuration::hash;
pub(crate) use csv_rows::rows;
pub(crate) use page::About;
pub(crate) use plots::{Reference, plots_of_figure};
pub(crate) use publish::{Outputs, Results, publish};
pub(crate) use quantity::Quantity;
pub(crate) use tables::{Sheet, by_workload};

use crate::Setting;
use crate::datasets::Dataset;
use darter_bench::BenchError;
use darter_fabric::counted;
use darter_fabric::files::check_output;
use std::io::Write;

/// Compares indexes and writes the tables to `out` and the requested files.
///
/// # Errors
/// Fails if the arguments cannot be met ([`BenchError::is_usage`]), or an index fails or returns a
/// wrong result.
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
    if let Some(path) = &args.json {
        check_output(path).map_err(|source| BenchError::File { path: path.clone(), source })?;
    }
    let (measurements, outcome) = run::measure(comparison, setting, &*dataset);
    if let Err(error) = outcome {
        // Complete measurements are shown; files are written only for complete runs.
        if matches!(error, BenchError::Interrupted) {
            by_workload(&measurements).iter().try_for_each(|sheet| writeln!(out, "{}\n", sheet.text()))?;
        }
        return Err(error);
    }
    let about = About {
        title: "darter-lab compare".to_owned(),
        what: vec![introduction(comparison, &*dataset)],
        command: &setting.command,
        modelled: comparison.pool.is_modelled(),
    };
    publish(setting, &about, &Results::of(by_workload(&measurements), &measurements)?, &outputs, out)?;
    if let Some(path) = &args.json {
        publish::write_file(setting, path.clone(), json_rows::json(&measurements)?)?;
    }
    Ok(measurements)
}

/// Runs a comparison and returns its measurements without writing them.
pub(crate) fn measure(comparison: &Comparison, setting: &Setting) -> Result<Vec<Measurement>, BenchError> {
    comparison.validate()?;
    let (measurements, outcome) = run::measure(comparison, setting, &*comparison.open_dataset()?);
    outcome.map(|()| measurements)
}

/// Returns the settings of a comparison in one line.
fn introduction(comparison: &Comparison, dataset: &dyn Dataset) -> String {
    format!(
        "{} ({}), {}, {}, values of {}, seed {}, each index on a separate pool: {} with {}; {}{}.",
        comparison.dataset,
        dataset.note(),
        counted(comparison.records, "record"),
        counted(comparison.ops, "operation"),
        counted(comparison.value_bytes as u64, "byte"),
        comparison.seed,
        comparison.pool,
        counted(comparison.memory_nodes() as u64, "memory node"),
        if comparison.rounds == 1 {
            "one round".to_owned()
        } else {
            format!("{} rounds, of which the median", comparison.rounds)
        },
        tables::remark_of(comparison.pool.is_modelled()),
    )
}
