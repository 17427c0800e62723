//! The interface of a figure to `darter-lab paper`, however it is measured: by comparing indexes
//! ([`Figure`]), or by counting the cache lines of trees
//! ([`LineFigure`](super::line_figure::LineFigure)).

use super::claim::{Row, chart, sheet};
use super::figure::{Figure, Scale};
use super::point::PaperPoint;
use super::selection::Selection;
use crate::Setting;
use crate::compare::{self, Comparison, PoolLocation, Results};
use darter_bench::BenchError;
use darter_fabric::counted;

/// The description of a figure, before it is run.
pub(crate) struct Synopsis {
    /// The name on the command line.
    pub(crate) name: &'static str,
    /// What it shows.
    pub(crate) title: &'static str,
    /// The clock of its times.
    pub(crate) clock: &'static str,
    /// The indexes that take part.
    pub(crate) indexes: Vec<&'static str>,
    /// Number of numbers that the text gives.
    pub(crate) numbers: usize,
}

/// The result of a figure's run.
pub(crate) struct Reproduction {
    /// Whether times are modelled.
    pub(crate) modelled: bool,
    /// What was run, in sentences.
    pub(crate) what: Vec<String>,
    /// The results, with the paper's numbers and ours first.
    pub(crate) results: Results,
}

/// A figure that can be reproduced here.
pub(crate) trait Reproducible: Sync {
    /// Returns its description.
    fn synopsis(&self, scale: &Scale) -> Synopsis;

    /// Fails if the scale cannot be met.
    fn validate(&self, scale: &Scale) -> Result<(), BenchError>;

    /// Runs it.
    fn reproduce(&self, scale: &Scale, setting: &Setting) -> Result<Reproduction, BenchError>;

    /// Returns its texts.
    #[cfg(test)]
    fn words(&self) -> Words;
}

/// The texts of a figure.
#[cfg(test)]
pub(crate) struct Words {
    pub(crate) differs: &'static str,
    /// The paper's numbers without measurements.
    pub(crate) rows: Vec<Row>,
}

/// Returns whether times of a comparison are meaningful for a figure: those of a model, or over
/// memory nodes. In this process's memory only counts are.
fn has_clock(comparison: &Comparison) -> bool {
    comparison.pool.is_modelled() || matches!(comparison.pool, PoolLocation::Tcp { .. })
}

impl Reproducible for Figure {
    fn synopsis(&self, scale: &Scale) -> Synopsis {
        let comparisons = (self.comparisons)(scale);
        let clock = match comparisons.iter().any(|comparison| comparison.pool.is_modelled()) {
            true => "modelled",
            false if comparisons.iter().any(has_clock) => "this machine's",
            false => "none: counts",
        };
        let mut indexes: Vec<&str> = comparisons
            .iter()
            .flat_map(|comparison| comparison.indexes.iter().map(|choice| choice.0.name))
            .collect();
        indexes.sort_unstable();
        indexes.dedup();
        Synopsis {
            name: self.name,
            title: self.title,
            clock,
            indexes,
            numbers: self.points.len() + self.claims.len(),
        }
    }

    fn validate(&self, scale: &Scale) -> Result<(), BenchError> {
        (self.comparisons)(scale).iter().try_for_each(compare::Comparison::validate)
    }

    fn reproduce(&self, scale: &Scale, setting: &Setting) -> Result<Reproduction, BenchError> {
        let mut measurements = Vec::new();
        for comparison in (self.comparisons)(scale) {
            let mut measured = compare::measure(&comparison, setting)?;
            if !has_clock(&comparison) {
                for one in &mut measured {
                    one.figures.remove_times();
                }
            }
            measurements.extend(measured);
        }
        let modelled = measurements.iter().any(|one| one.figures.modelled);
        let what = format!(
            "{} and {} of each workload, where the papers have 60 million or more; differs: {}.",
            counted(scale.records, "record"),
            counted(scale.ops, "operation"),
            self.differs
        );
        let selection = Selection::of(&measurements);
        let rows = self.rows(&selection);
        let mut sheets = vec![sheet(&rows, modelled)];
        sheets.extend(compare::by_workload(&measurements));
        let references: Vec<_> = self.points.iter().map(|point| point.reference(&selection)).collect();
        let mut charts = compare::plots_of_figure(self.name, &measurements, &references);
        charts.extend(chart(self.name, &rows, self.points.len() + 1));
        let results = Results::with_charts(sheets, charts, &measurements)?;
        Ok(Reproduction { modelled, what: vec![what], results })
    }

    #[cfg(test)]
    fn words(&self) -> Words {
        Words { differs: self.differs, rows: self.rows(&Selection::of(&[])) }
    }
}

impl Figure {
    /// Returns the paper's numbers and ours: the points, then the claims.
    fn rows(&self, selection: &Selection<'_>) -> Vec<Row> {
        let points = self.points.iter().map(|point: &PaperPoint| point.row(selection));
        points.chain(self.claims.iter().map(|claim| claim.row(|ours| ours(selection)))).collect()
    }
}
