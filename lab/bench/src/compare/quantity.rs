//! The quantities that plots show, with their names and units.

use super::chart::{Scale, Unit};
use super::measurement::Figures;

/// A measured quantity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Quantity {
    RoundTrips,
    BytesRead,
    Throughput,
    P50,
    P99,
    /// Bytes of index structure per record.
    IndexBytes,
}

impl Quantity {
    /// The quantities that every comparison draws, counts first.
    pub(super) const USUAL: [Self; 4] = [Self::RoundTrips, Self::BytesRead, Self::Throughput, Self::P99];

    /// Returns the name in titles.
    pub(super) fn title(self) -> &'static str {
        match self {
            Self::RoundTrips => "round trips",
            Self::BytesRead => "bytes read",
            Self::Throughput => "throughput",
            Self::P50 => "median latency",
            Self::P99 => "p99",
            Self::IndexBytes => "index size",
        }
    }

    /// Returns the name in file names.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::RoundTrips => "round-trips",
            Self::BytesRead => "bytes-read",
            Self::Throughput => "throughput",
            Self::P50 => "p50",
            Self::P99 => "p99",
            Self::IndexBytes => "index-bytes",
        }
    }

    /// Returns its axis.
    pub(super) fn scale(self) -> Scale {
        let (title, unit) = match self {
            Self::RoundTrips => ("round trips of an operation", Unit::Each),
            Self::BytesRead => ("bytes that an operation reads", Unit::Bytes),
            Self::Throughput => ("operations a second", Unit::PerSecond),
            Self::P50 => ("median latency, µs", Unit::Microseconds),
            Self::P99 => ("99th percentile of latency, µs", Unit::Microseconds),
            Self::IndexBytes => ("bytes of the index per record", Unit::Bytes),
        };
        Scale { title: title.to_owned(), unit }
    }

    /// Returns whether it is a time; times can be modelled, counts are always exact.
    pub(super) fn is_time(self) -> bool {
        matches!(self, Self::Throughput | Self::P50 | Self::P99)
    }

    /// Returns its value.
    pub(crate) fn of(self, figures: &Figures) -> f64 {
        match self {
            Self::RoundTrips => figures.round_trips_per_op,
            Self::BytesRead => figures.read_bytes_per_op,
            Self::Throughput => figures.ops_per_s,
            Self::P50 => figures.p50_us,
            Self::P99 => figures.p99_us,
            Self::IndexBytes => figures.index_bytes as f64 / figures.records_then as f64,
        }
    }
}
