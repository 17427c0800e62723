//! A point of one of a paper's plots that its text or a table states.
//!
//! Points that the papers only draw are left out: a value read off a picture would be a guess.

use super::claim::Row;
use super::quantity::{Span, Stated};
use super::selection::Selection;
use crate::compare::{Configuration, Quantity, Reference};

/// A stated value of one index in one workload.
pub(crate) struct PaperPoint {
    /// The section or table that states it.
    pub(crate) section: &'static str,
    /// The statement in our words, with the number as the paper prints it.
    pub(crate) statement: &'static str,
    /// The number.
    pub(crate) stated: Stated,
    pub(crate) quantity: Quantity,
    /// Units of the quantity in one unit of the statement: a million for Mops.
    pub(crate) unit: f64,
    pub(crate) index: &'static str,
    pub(crate) workload: &'static str,
    /// The other conditions. If several measurements meet them, the value is the peak of a curve.
    pub(crate) at: &'static [At],
}

/// A condition of a point.
#[derive(Clone, Copy, Debug)]
pub(crate) enum At {
    Dataset(&'static str),
    Threads(usize),
    Theta(f64),
    CacheBytes(u64),
}

impl At {
    fn is_met_by(self, configuration: &Configuration) -> bool {
        match self {
            Self::Dataset(name) => configuration.dataset == name,
            Self::Threads(count) => configuration.threads == count,
            Self::Theta(theta) => (configuration.theta - theta).abs() < 1e-9,
            Self::CacheBytes(bytes) => configuration.cache_bytes == bytes,
        }
    }
}

impl PaperPoint {
    /// Returns the measurements that the value is compared with.
    fn select<'a>(&self, selection: &Selection<'a>) -> Selection<'a> {
        let own = selection.index(self.index).workload(self.workload);
        own.filter(|one| self.at.iter().all(|at| at.is_met_by(&one.configuration)))
    }

    /// Returns our number, in the unit of the statement.
    fn ours(&self, selection: &Selection<'_>) -> Option<Span> {
        let own = self.select(selection);
        let values = own.measurements().iter().map(|one| self.quantity.of(&one.figures) / self.unit);
        values.reduce(f64::max).map(Span::one)
    }

    /// Returns the paper's number next to ours.
    pub(crate) fn row(&self, selection: &Selection<'_>) -> Row {
        let Self { statement, section, stated, .. } = *self;
        Row { statement, section, stated, ours: self.ours(selection) }
    }

    /// Returns the value to draw.
    pub(crate) fn reference<'a>(&self, selection: &Selection<'a>) -> Reference<'a> {
        Reference {
            quantity: self.quantity,
            value: self.stated.bound() * self.unit,
            source: format!("section {}", self.section),
            measurements: self.select(selection).measurements().to_vec(),
        }
    }
}
