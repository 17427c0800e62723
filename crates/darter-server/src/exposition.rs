//! A daemon's numbers in the `OpenMetrics` text format, as Prometheus scrapes it: how each sort of number is written.

use crate::counts::Seen;
use crate::http::{Reply, plain, reply};
use hyper::StatusCode;
use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet, EncodeMetric, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::{Registry, Unit};
use std::fmt::Error;

/// Seconds in a nanosecond.
pub(crate) const NANO: f64 = 1e-9;

/// What is told of a daemon, one metric after another.
pub(crate) struct Page<'p>(pub(crate) DescriptorEncoder<'p>);

/// A level as gauges have it.
fn gauge(value: u64) -> ConstGauge<i64> {
    ConstGauge::new(i64::try_from(value).unwrap_or(i64::MAX))
}

impl Page<'_> {
    pub(crate) fn one(
        &mut self,
        name: &str,
        help: &str,
        unit: Option<&Unit>,
        metric: &impl EncodeMetric,
    ) -> Result<(), Error> {
        metric.encode(self.0.encode_descriptor(name, help, unit, metric.metric_type())?)
    }

    pub(crate) fn count(
        &mut self,
        name: &str,
        help: &str,
        unit: Option<&Unit>,
        count: u64,
    ) -> Result<(), Error> {
        self.one(name, help, unit, &ConstCounter::new(count))
    }

    pub(crate) fn level(
        &mut self,
        name: &str,
        help: &str,
        unit: Option<&Unit>,
        value: u64,
    ) -> Result<(), Error> {
        self.one(name, help, unit, &gauge(value))
    }

    /// One counter for each set of labels.
    pub(crate) fn counts<L: EncodeLabelSet>(
        &mut self,
        name: &str,
        help: &str,
        unit: Option<&Unit>,
        counts: impl Iterator<Item = (L, u64)>,
    ) -> Result<(), Error> {
        let counts = counts.map(|(labels, count)| (labels, ConstCounter::new(count)));
        self.each(name, help, unit, MetricType::Counter, counts)
    }

    /// One gauge for each set of labels.
    pub(crate) fn levels<L: EncodeLabelSet>(
        &mut self,
        name: &str,
        help: &str,
        unit: Option<&Unit>,
        levels: impl Iterator<Item = (L, u64)>,
    ) -> Result<(), Error> {
        let levels = levels.map(|(labels, level)| (labels, gauge(level)));
        self.each(name, help, unit, MetricType::Gauge, levels)
    }

    fn each<L: EncodeLabelSet, M: EncodeMetric>(
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

    pub(crate) fn histogram(
        &mut self,
        name: &str,
        help: &str,
        unit: Option<&Unit>,
        scale: f64,
        seen: &Seen,
    ) -> Result<(), Error> {
        let mut metric = self.0.encode_descriptor(name, help, unit, MetricType::Histogram)?;
        let buckets = scaled(seen, scale);
        metric.encode_histogram::<NoLabelSet>(seen.sum as f64 * scale, seen.count(), &buckets, None)
    }

    /// One histogram for each set of labels.
    pub(crate) fn histograms<L: EncodeLabelSet>(
        &mut self,
        name: &str,
        help: &str,
        unit: Option<&Unit>,
        scale: f64,
        all: impl Iterator<Item = (L, Seen)>,
    ) -> Result<(), Error> {
        let mut family = self.0.encode_descriptor(name, help, unit, MetricType::Histogram)?;
        for (labels, seen) in all {
            let (sum, buckets) = (seen.sum as f64 * scale, scaled(&seen, scale));
            let mut metric = family.encode_family(&labels)?;
            metric.encode_histogram::<NoLabelSet>(sum, seen.count(), &buckets, None)?;
        }
        Ok(())
    }
}

fn scaled(seen: &Seen, scale: f64) -> Vec<(f64, u64)> {
    seen.buckets.iter().map(|(bound, count)| (bound * scale, *count)).collect()
}

/// The answer to a scrape.
pub(crate) fn scraped(registry: &Registry) -> Reply {
    let mut text = String::new();
    match prometheus_client::encoding::text::encode(&mut text, registry) {
        Ok(()) => reply(StatusCode::OK, "application/openmetrics-text; version=1.0.0; charset=utf-8", text),
        Err(_) => plain(StatusCode::INTERNAL_SERVER_ERROR, ""),
    }
}
