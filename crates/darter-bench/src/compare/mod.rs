//! Indexes side by side: the same operations on the same records, on a pool each, under the same counters, in one run.
//!
//! | module | what it holds |
//! |---|---|
//! | `args`, `place` | what is asked for, and where the pools are |
//! | [`variants`] | the indexes by name |
//! | `arena`, `entrant` | a pool each, and an index in it of whatever type |
//! | `run` | stages, warm-ups, rounds |
//! | `configuration`, `measurement` | what was measured and what came of it |
//! | `tables`, `sheet`, `chart`, `plots`, `page` | for people, for machines, as pictures, and all on one page |

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

use crate::datasets::Dataset;
use crate::{BenchError, Setting};
use page::About;
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::Path;

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
    // Better now than after hours.
    for path in [&args.csv, &args.html].into_iter().flatten() {
        writable(path)?;
    }
    if let Some(directory) = &args.svg {
        fs::create_dir_all(directory)
            .map_err(|source| BenchError::File { path: directory.clone(), source })?;
    }
    let what = introduction(comparison, &*dataset);
    writeln!(out, "{what}\n")?;
    let measurements = run::measure(comparison, setting, &*dataset)?;
    let sheets = tables::by_workload(&measurements);
    for sheet in &sheets {
        writeln!(out, "{}\n", sheet.text())?;
    }
    let asked = asked_for(&measurements);
    writeln!(out, "configuration: SHA-256 {asked}")?;
    if let Some(path) = &args.csv {
        sheet::write_file(path, &sheet::csv(&measurements)?)?;
    }
    let charts = plots::plots(&measurements);
    if let Some(directory) = &args.svg {
        for chart in &charts {
            sheet::write_file(&directory.join(format!("{}.svg", chart.name)), chart.svg().as_bytes())?;
        }
    }
    if let Some(path) = &args.html {
        let about = About {
            title: "darter compare".to_owned(),
            what: vec![what],
            command: &setting.command,
            hash: asked,
            modelled: comparison.pool.is_modelled(),
        };
        sheet::write_file(path, page::page(&about, &sheets, &charts).as_bytes())?;
    }
    Ok(measurements)
}

/// Fails where a file cannot be written; leaves what it holds.
fn writable(path: &Path) -> Result<(), BenchError> {
    let opened = OpenOptions::new().append(true).create(true).open(path);
    opened.map(drop).map_err(|source| BenchError::File { path: path.to_owned(), source })
}

/// What was asked for, in one line.
fn introduction(comparison: &Comparison, dataset: &dyn Dataset) -> String {
    format!(
        "{} ({}), {} records, {} operations, values of {} bytes, seed {}, pool of each index {} with {} memory {}, \
         median of {} rounds{}",
        comparison.dataset,
        dataset.note(),
        comparison.records,
        comparison.ops,
        comparison.value_bytes,
        comparison.seed,
        comparison.pool,
        comparison.memory_nodes(),
        if comparison.memory_nodes() == 1 { "node" } else { "nodes" },
        comparison.rounds,
        tables::remark_of(comparison.pool.is_modelled()),
    )
}

/// The hash of all that was asked for: of all measurements' hashes.
fn asked_for(measurements: &[Measurement]) -> String {
    configuration::hash(&measurements.iter().map(|one| one.figures.hash.as_str()).collect::<String>())
}
