//! A memory node's numbers in the `OpenMetrics` text format, as Prometheus scrapes it.

use super::metrics::{DroppedFor, Histogram, MemNodeMetrics, RefusedFor, Tally, VERB_KINDS};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::{Registry, Unit};
use std::fmt::Error;
use std::sync::Arc;

/// The registry of one memory node: every name begins with `darter_memnode_`.
pub(super) fn registry(metrics: Arc<MemNodeMetrics>) -> Registry {
    let mut registry = Registry::with_prefix("darter_memnode");
    registry.register_collector(Box::new(metrics));
    registry
}

/// Seconds in a nanosecond.
const NANO: f64 = 1e-9;

/// What is told of a node, one metric after another.
struct Page<'p>(DescriptorEncoder<'p>);

impl Page<'_> {
    fn one(
        &mut self,
        name: &str,
        help: &str,
        unit: Option<&Unit>,
        metric: &impl EncodeMetric,
    ) -> Result<(), Error> {
        metric.encode(self.0.encode_descriptor(name, help, unit, metric.metric_type())?)
    }

    fn count(&mut self, name: &str, help: &str, unit: Option<&Unit>, tally: &Tally) -> Result<(), Error> {
        self.one(name, help, unit, &ConstCounter::new(tally.get()))
    }

    fn level(&mut self, name: &str, help: &str, unit: Option<&Unit>, value: u64) -> Result<(), Error> {
        self.one(name, help, unit, &ConstGauge::new(i64::try_from(value).unwrap_or(i64::MAX)))
    }

    /// One counter for each value of a label.
    fn counts<'t>(
        &mut self,
        name: &str,
        help: &str,
        label: &str,
        tallies: impl Iterator<Item = (&'static str, &'t Tally)>,
    ) -> Result<(), Error> {
        let mut family = self.0.encode_descriptor(name, help, None, MetricType::Counter)?;
        for (value, tally) in tallies {
            let labels = [(label, value)];
            ConstCounter::new(tally.get()).encode(family.encode_family(&labels)?)?;
        }
        Ok(())
    }

    fn histogram<const FIRST: u64>(
        &mut self,
        name: &str,
        help: &str,
        unit: Option<&Unit>,
        scale: f64,
        histogram: &Histogram<FIRST>,
    ) -> Result<(), Error> {
        let mut metric = self.0.encode_descriptor(name, help, unit, MetricType::Histogram)?;
        let buckets = histogram.buckets().map(|(bound, count)| (bound * scale, count));
        // From the same look at the buckets, or the last of them would not be the count.
        let count = buckets.iter().map(|(_, count)| count).sum();
        metric.encode_histogram::<NoLabelSet>(histogram.sum() as f64 * scale, count, &buckets, None)
    }
}

impl Collector for MemNodeMetrics {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> Result<(), Error> {
        let mut page = Page(encoder);
        let (bytes, seconds) = (Some(&Unit::Bytes), Some(&Unit::Seconds));
        page.level("connections", "Connections there are, greeted or not", None, self.open.get())?;
        page.count("accepted_connections", "Connections let in", None, &self.accepted)?;
        let refused = RefusedFor::NAMES.into_iter().zip(&self.refused);
        page.counts("refused_connections", "Connections not let in", "reason", refused)?;
        let dropped = DroppedFor::NAMES.into_iter().zip(&self.dropped);
        page.counts("dropped_connections", "Connections that the node ended", "reason", dropped)?;
        page.level("sessions", "Processes that are connected", None, self.sessions.get())?;
        let fenced = self.fenced_sessions.get();
        page.level("fenced_sessions", "Sessions shut out for ever that the node remembers", None, fenced)?;
        page.count("frames", "Requests taken, batches among them", None, &self.frames)?;
        let verbs = VERB_KINDS.iter().map(|(_, name)| *name).zip(&self.verbs);
        page.counts("verbs", "Verbs executed", "kind", verbs)?;
        page.histogram("batch_verbs", "Verbs of each batch executed", None, 1.0, &self.batch_verbs)?;
        let help = "From finding sockets ready to having executed and answered what was in them";
        page.histogram("turn", help, seconds, NANO, &self.turn_nanos)?;
        page.count("received", "Bytes that came in", bytes, &self.received_bytes)?;
        page.count("sent", "Bytes that went out", bytes, &self.sent_bytes)?;
        page.level("waiting", "Answers that peers have not taken", bytes, self.waiting_bytes.get())?;
        page.level("buffers", "Memory behind all connections", bytes, self.buffer_bytes.get())?;
        page.level("region", "The memory served", bytes, self.region_bytes)?;
        page.level("draining", "1 when the node is stopping", None, self.is_draining.get())?;
        page.one("uptime", "Since the node began", seconds, &ConstGauge::new(self.uptime().as_secs_f64()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_says_what_was_counted() {
        let metrics = Arc::new(MemNodeMetrics::new(4096));
        metrics.accepted.add(3);
        metrics.refused[RefusedFor::Credentials as usize].add(2);
        metrics.turned(std::time::Duration::from_micros(3));
        let mut batch = darter_fabric::Batch::new();
        batch.cas(darter_fabric::GlobalAddr::new(0, 8), 1, 2);
        metrics.executed(batch.verbs().iter().copied());
        let mut page = String::new();
        prometheus_client::encoding::text::encode(&mut page, &registry(metrics)).unwrap();
        for line in [
            "darter_memnode_accepted_connections_total 3",
            "darter_memnode_refused_connections_total{reason=\"credentials\"} 2",
            "darter_memnode_dropped_connections_total{reason=\"memory\"} 0",
            "darter_memnode_verbs_total{kind=\"cas\"} 1",
            "darter_memnode_batch_verbs_bucket{le=\"1.0\"} 1",
            "darter_memnode_batch_verbs_bucket{le=\"+Inf\"} 1",
            "darter_memnode_turn_seconds_count 1",
            "darter_memnode_region_bytes 4096",
            "# EOF",
        ] {
            assert!(page.lines().any(|found| found == line), "{line} in\n{page}");
        }
    }
}
