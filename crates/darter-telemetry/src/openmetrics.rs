//! Writes numbers of each kind for `prometheus_client`, which encodes metrics in the `OpenMetrics`
//! text format.

use crate::counters::HistogramSnapshot;
use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet, EncodeMetric, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Unit;
use std::fmt::Error;

/// The divisor that turns nanoseconds into seconds.
pub const NANOS_PER_SECOND: f64 = 1e9;

/// Writes metrics one after another to an encoder of `prometheus_client`.
///
/// Every method takes the metric's name, its help text and its unit; each fails only if the encoder
/// does.
pub struct MetricsWriter<'e>(DescriptorEncoder<'e>);

/// Converts a value to a gauge of `prometheus_client`.
fn gauge(value: u64) -> ConstGauge<i64> {
    ConstGauge::new(i64::try_from(value).unwrap_or(i64::MAX))
}

impl<'e> MetricsWriter<'e> {
    /// Writes to an encoder, as a `Collector` receives it.
    pub fn new(encoder: DescriptorEncoder<'e>) -> Self {
        Self(encoder)
    }

    /// Writes a metric of any type.
    ///
    /// # Errors
    /// Fails if the encoder fails.
    pub fn metric(
        &mut self,
        name: &str,
        help: &str,
        unit: Option<&Unit>,
        metric: &impl EncodeMetric,
    ) -> Result<(), Error> {
        metric.encode(self.0.encode_descriptor(name, help, unit, metric.metric_type())?)
    }

    /// Writes a counter without labels.
    ///
    /// # Errors
    /// Fails if the encoder fails.
    pub fn counter(&mut self, name: &str, help: &str, unit: Option<&Unit>, count: u64) -> Result<(), Error> {
        self.metric(name, help, unit, &ConstCounter::new(count))
    }

    /// Writes a gauge without labels.
    ///
    /// # Errors
    /// Fails if the encoder fails.
    pub fn gauge(&mut self, name: &str, help: &str, unit: Option<&Unit>, value: u64) -> Result<(), Error> {
        self.metric(name, help, unit, &gauge(value))
    }

    /// Writes one counter for each set of labels.
    ///
    /// # Errors
    /// Fails if the encoder fails.
    pub fn counters<L: EncodeLabelSet>(
        &mut self,
        name: &str,
        help: &str,
        unit: Option<&Unit>,
        values: impl Iterator<Item = (L, u64)>,
    ) -> Result<(), Error> {
        let counters = values.map(|(labels, value)| (labels, ConstCounter::new(value)));
        self.each(name, help, unit, MetricType::Counter, counters)
    }

    /// Writes one gauge for each set of labels.
    ///
    /// # Errors
    /// Fails if the encoder fails.
    pub fn gauges<L: EncodeLabelSet>(
        &mut self,
        name: &str,
        help: &str,
        unit: Option<&Unit>,
        values: impl Iterator<Item = (L, u64)>,
    ) -> Result<(), Error> {
        let gauges = values.map(|(labels, value)| (labels, gauge(value)));
        self.each(name, help, unit, MetricType::Gauge, gauges)
    }

    /// Writes one metric of a type for each set of labels.
    ///
    /// # Errors
    /// Fails if the encoder fails.
    pub fn each<L: EncodeLabelSet, M: EncodeMetric>(
        &mut self,
        name: &str,
        help: &str,
        unit: Option<&Unit>,
        kind: MetricType,
        metrics: impl Iterator<Item = (L, M)>,
    ) -> Result<(), Error> {
        let mut family = self.0.encode_descriptor(name, help, unit, kind)?;
        for (labels, metric) in metrics {
            metric.encode(family.encode_family(&labels)?)?;
        }
        Ok(())
    }

    /// Writes a histogram without labels; its bounds and its sum are divided by `divisor`.
    ///
    /// # Errors
    /// Fails if the encoder fails.
    pub fn histogram(
        &mut self,
        name: &str,
        help: &str,
        unit: Option<&Unit>,
        divisor: f64,
        values: &HistogramSnapshot,
    ) -> Result<(), Error> {
        let mut metric = self.0.encode_descriptor(name, help, unit, MetricType::Histogram)?;
        let buckets = divided(values, divisor);
        metric.encode_histogram::<NoLabelSet>(values.sum as f64 / divisor, values.count(), &buckets, None)
    }

    /// Writes one histogram for each set of labels; its bounds and its sum are divided by
    /// `divisor`.
    ///
    /// # Errors
    /// Fails if the encoder fails.
    pub fn histograms<L: EncodeLabelSet>(
        &mut self,
        name: &str,
        help: &str,
        unit: Option<&Unit>,
        divisor: f64,
        all: impl Iterator<Item = (L, HistogramSnapshot)>,
    ) -> Result<(), Error> {
        let mut family = self.0.encode_descriptor(name, help, unit, MetricType::Histogram)?;
        for (labels, values) in all {
            let (sum, buckets) = (values.sum as f64 / divisor, divided(&values, divisor));
            let mut metric = family.encode_family(&labels)?;
            metric.encode_histogram::<NoLabelSet>(sum, values.count(), &buckets, None)?;
        }
        Ok(())
    }
}

/// Returns the buckets with their bounds divided. A division gives the rounded decimal number; a
/// multiplication by the inverse would not.
fn divided(values: &HistogramSnapshot, divisor: f64) -> Vec<(f64, u64)> {
    values.buckets.iter().map(|(bound, count)| (bound / divisor, *count)).collect()
}
