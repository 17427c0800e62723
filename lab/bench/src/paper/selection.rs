//! Measurements selected by their settings, to compare claims with.

use super::quantity::Span;
use crate::compare::{Figures, Measurement};

/// A measured metric.
pub(crate) type Metric = fn(&Figures) -> f64;

/// Round trips per operation.
pub(crate) const ROUND_TRIPS: Metric = |figures| figures.round_trips_per_op;
/// Bytes read per operation.
pub(crate) const BYTES_READ: Metric = |figures| figures.read_bytes_per_op;
/// Million operations per second.
pub(crate) const MOPS: Metric = |figures| figures.ops_per_s / 1e6;
/// Median latency in microseconds.
pub(crate) const P50_US: Metric = |figures| figures.p50_us;
/// 99th percentile of latencies in microseconds.
pub(crate) const P99_US: Metric = |figures| figures.p99_us;

/// Bytes that a compute node caches.
pub(crate) const CACHE_USED: Metric = |figures| figures.cache_used_bytes as f64;

/// Some measurements.
#[derive(Clone)]
pub(crate) struct Selection<'a>(Vec<&'a Measurement>);

impl<'a> Selection<'a> {
    /// Selects all measurements.
    pub(crate) fn of(measurements: &'a [Measurement]) -> Self {
        Self(measurements.iter().collect())
    }

    /// Selects those that `keep` accepts.
    pub(crate) fn filter(&self, keep: impl Fn(&Measurement) -> bool) -> Self {
        Self(self.0.iter().copied().filter(|one| keep(one)).collect())
    }

    /// Returns the selected measurements.
    pub(crate) fn measurements(&self) -> &[&'a Measurement] {
        &self.0
    }

    /// Selects those of an index.
    pub(crate) fn index(&self, name: &str) -> Self {
        self.filter(|one| one.configuration.index == name)
    }

    /// Selects those of a workload.
    pub(crate) fn workload(&self, name: &str) -> Self {
        self.filter(|one| one.configuration.workload == name)
    }

    /// Selects those of a dataset.
    pub(crate) fn dataset(&self, name: &str) -> Self {
        self.filter(|one| one.configuration.dataset == name)
    }

    /// Selects those with `count` threads.
    pub(crate) fn threads(&self, count: usize) -> Self {
        self.filter(|one| one.configuration.threads == count)
    }

    /// Selects those with values of `bytes` bytes.
    pub(crate) fn value_bytes(&self, bytes: usize) -> Self {
        self.filter(|one| one.configuration.value_bytes == bytes)
    }

    /// Selects those with this pool.
    pub(crate) fn pool(&self, name: &str) -> Self {
        self.filter(|one| one.configuration.pool == name)
    }

    /// Selects those with this exponent.
    pub(crate) fn theta(&self, theta: f64) -> Self {
        self.filter(|one| (one.configuration.theta - theta).abs() < 1e-9)
    }

    /// Selects those with caches of `bytes` bytes.
    pub(crate) fn cache(&self, bytes: u64) -> Self {
        self.filter(|one| one.configuration.cache_bytes == bytes)
    }

    /// Returns the sizes of caches, ascending.
    pub(crate) fn cache_sizes(&self) -> Vec<u64> {
        let mut sizes: Vec<_> = self.0.iter().map(|one| one.configuration.cache_bytes).collect();
        sizes.sort_unstable();
        sizes.dedup();
        sizes
    }

    /// Returns the least and the most that was measured.
    pub(crate) fn span(&self, metric: Metric) -> Option<Span> {
        Span::of(self.0.iter().map(|one| metric(&one.figures)))
    }

    /// Returns the largest number, the peak of a curve.
    pub(crate) fn peak(&self, metric: Metric) -> Option<f64> {
        self.span(metric).map(|span| span.most)
    }

    /// Returns the mean of all.
    pub(crate) fn mean(&self, metric: Metric) -> Option<f64> {
        let sum: f64 = self.0.iter().map(|one| metric(&one.figures)).sum();
        (!self.0.is_empty()).then(|| sum / self.0.len() as f64)
    }

    /// Returns the ratio of two indexes' peaks.
    pub(crate) fn peak_ratio(&self, metric: Metric, index: &str, other: &str) -> Option<Span> {
        Some(Span::one(self.index(index).peak(metric)? / self.index(other).peak(metric)?))
    }

    /// Returns the ratios of an index's numbers to those of others under equal conditions.
    pub(crate) fn ratios(&self, metric: Metric, index: &str, others: &[&str]) -> Option<Span> {
        let own = self.index(index);
        Span::of(own.0.iter().flat_map(|one| {
            let beside = self.0.iter().filter(|other| {
                others.contains(&other.configuration.index.as_str()) && one.is_comparable(other)
            });
            beside.map(|other| metric(&one.figures) / metric(&other.figures))
        }))
    }

    /// Returns by how much an index's mean is above another's.
    pub(crate) fn difference(&self, metric: Metric, index: &str, other: &str) -> Option<Span> {
        Some(Span::one(self.index(index).mean(metric)? - self.index(other).mean(metric)?))
    }

    /// Returns the bytes of keys and values per record.
    pub(crate) fn kv_bytes_per_record(&self) -> Option<f64> {
        let last = self.0.last()?;
        Some(last.figures.kv_bytes as f64 / last.figures.records_then as f64)
    }
}
