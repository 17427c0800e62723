//! The conditions that can differ between measurements of one run: columns of tables and axes of
//! plots.

use super::args::Theta;
use super::configuration::Configuration;
use super::measurement::Measurement;
use darter::ByteSize;

/// A condition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Axis {
    Dataset,
    Records,
    ValueBytes,
    Cache,
    ComputeNodes,
    Threads,
    InFlight,
    Theta,
    Pool,
}

impl Axis {
    /// All of them, in the order of columns.
    pub(crate) const ALL: [Self; 9] = [
        Self::Dataset,
        Self::Records,
        Self::ValueBytes,
        Self::Cache,
        Self::ComputeNodes,
        Self::Threads,
        Self::InFlight,
        Self::Theta,
        Self::Pool,
    ];

    /// Returns the name in tables and plots.
    pub(crate) fn title(self) -> &'static str {
        match self {
            Self::Dataset => "dataset",
            Self::Records => "records",
            Self::ValueBytes => "value, B",
            Self::Cache => "cache",
            Self::ComputeNodes => "compute nodes",
            Self::Threads => "threads",
            Self::InFlight => "in flight",
            Self::Theta => "Zipf",
            Self::Pool => "pool",
        }
    }

    /// Returns the name in file names.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Dataset => "dataset",
            Self::Records => "records",
            Self::ValueBytes => "value",
            Self::Cache => "cache",
            Self::ComputeNodes => "nodes",
            Self::Threads => "threads",
            Self::InFlight => "in-flight",
            Self::Theta => "zipf",
            Self::Pool => "pool",
        }
    }

    /// Returns whether its values have an order, so that a line between two is meaningful.
    pub(crate) fn is_ordered(self) -> bool {
        !matches!(self, Self::Dataset | Self::Pool)
    }

    /// Returns whether it is the load on an index.
    pub(crate) fn is_load(self) -> bool {
        matches!(self, Self::ComputeNodes | Self::Threads | Self::InFlight)
    }

    /// Returns a configuration's value on this axis, as text.
    pub(crate) fn place(self, configuration: &Configuration) -> String {
        match self {
            Self::Dataset => configuration.dataset.clone(),
            Self::Records => configuration.records.to_string(),
            Self::ValueBytes => configuration.value_bytes.to_string(),
            Self::Cache => ByteSize(configuration.cache_bytes).to_string(),
            Self::ComputeNodes => configuration.compute_nodes.to_string(),
            Self::Threads => configuration.threads.to_string(),
            Self::InFlight => configuration.in_flight.to_string(),
            Self::Theta => Theta(configuration.theta).to_string(),
            Self::Pool => in_short(&configuration.pool),
        }
    }

    /// Returns the values of some measurements on this axis, each once, in their order.
    pub(crate) fn places<'a>(self, measurements: impl IntoIterator<Item = &'a Measurement>) -> Vec<String> {
        distinct(measurements.into_iter().map(|one| self.place(&one.configuration)))
    }

    /// Returns the axes on which measurements differ.
    pub(crate) fn varying(measurements: &[Measurement]) -> Vec<Self> {
        Self::ALL.into_iter().filter(|axis| axis.places(measurements).len() > 1).collect()
    }
}

/// Returns the kind of a pool; the full description of a model would fill a page.
fn in_short(pool: &str) -> String {
    let parts: Vec<&str> = pool.split(',').take(3).collect();
    if pool.matches(',').count() > 2 { format!("{}…", parts.join(",")) } else { pool.to_owned() }
}

/// Returns each item once, in the order of first occurrence.
pub(crate) fn distinct<T: PartialEq>(all: impl IntoIterator<Item = T>) -> Vec<T> {
    let mut once = Vec::new();
    for one in all {
        if !once.contains(&one) {
            once.push(one);
        }
    }
    once
}
