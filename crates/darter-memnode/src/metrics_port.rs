//! The metrics of a memory node in Prometheus' format, and the HTTP port that serves them.

use crate::group_metrics::{GroupMetrics, ROLES};
use crate::limits::TenantCounts;
use crate::log_metrics::LogMetrics;
use crate::metrics::{DroppedFor, Health, MemNodeMetrics, RefusedFor, VERB_KINDS};
use darter_telemetry::counters::Counter;
use darter_telemetry::credentials::encode_credentials;
use darter_telemetry::exposition::scrape;
use darter_telemetry::http::{Handler, HttpPort, HttpRequest, Outcome, PortError, StatusCode, text};
use darter_telemetry::openmetrics::{MetricsWriter, NANOS_PER_SECOND};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::{Registry, Unit};
use std::fmt::Error;
use std::net::SocketAddr;
use std::sync::Arc;

/// Returns a registry of one memory node's metrics; every name begins with `darter_memnode_`.
pub(crate) fn registry(metrics: Arc<MemNodeMetrics>) -> Registry {
    let mut registry = Registry::with_prefix("darter_memnode");
    registry.register_collector(Box::new(metrics));
    registry
}

/// The pages of a memory node's port: `/metrics` and `/healthz`. They need no credentials, so the
/// port belongs on the operator's network.
struct MetricsPages {
    registry: Registry,
    metrics: Arc<MemNodeMetrics>,
}

/// Opens the HTTP port that serves a memory node's metrics at an address; port 0 chooses a free
/// port.
///
/// # Errors
/// Fails if the system does not allow listening on the address, or starting a thread.
pub fn serve_metrics(address: SocketAddr, metrics: Arc<MemNodeMetrics>) -> Result<HttpPort, PortError> {
    HttpPort::open(address, Arc::new(MetricsPages { registry: registry(Arc::clone(&metrics)), metrics }))
}

impl Handler for MetricsPages {
    fn handle(self: Arc<Self>, request: &HttpRequest<'_>) -> Outcome {
        Outcome::Ready(match request.path {
            "/metrics" => scrape(&self.registry, request.accept),
            "/healthz" => match self.metrics.health() {
                Health::Serving => text(StatusCode::OK, "serving\n"),
                Health::Draining => text(StatusCode::SERVICE_UNAVAILABLE, "draining\n"),
                Health::Stuck => text(StatusCode::SERVICE_UNAVAILABLE, "stuck\n"),
                Health::LogFailed => text(StatusCode::SERVICE_UNAVAILABLE, "log failed\n"),
            },
            _ => text(StatusCode::NOT_FOUND, "try /metrics or /healthz\n"),
        })
    }
}

/// Returns each count with its label.
fn labelled<const N: usize>(
    label: &'static str,
    values: [&'static str; N],
    counters: &[Counter; N],
) -> impl Iterator<Item = ([(&'static str, &'static str); 1], u64)> + use<N> {
    std::array::from_fn::<_, N, _>(|at| ([(label, values[at])], counters[at].get())).into_iter()
}

impl Collector for MemNodeMetrics {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> Result<(), Error> {
        let mut page = MetricsWriter::new(encoder);
        let (bytes, seconds) = (Some(&Unit::Bytes), Some(&Unit::Seconds));
        page.gauge("connections", "Open connections, before and after the handshake", None, self.open.get())?;
        page.counter(
            "accepted_connections",
            "Connections accepted after the handshake",
            None,
            self.accepted.get(),
        )?;
        let refused = labelled("reason", RefusedFor::NAMES, &self.refused);
        page.counters("refused_connections", "Connections refused", None, refused)?;
        let dropped = labelled("reason", DroppedFor::NAMES, &self.dropped);
        page.counters("dropped_connections", "Connections that the node dropped", None, dropped)?;
        let help = "Requests refused because their session's token is a read-only one";
        page.counter("read_only_refusals", help, None, self.read_only_refusals.get())?;
        page.gauge("sessions", "Connected sessions", None, self.sessions.get())?;
        let fenced = self.fenced_sessions.get();
        page.gauge("fenced_sessions", "Fenced sessions that the node remembers", None, fenced)?;
        let queue_pairs = self.queue_pairs.get();
        page.gauge("queue_pairs", "Connections whose verbs go through the RDMA device", None, queue_pairs)?;
        page.counter("frames", "Requests received, including batches", None, self.frames.get())?;
        page.counter("calls", "Calls whose outcome was sent", None, self.calls.get())?;
        let verbs = labelled("kind", VERB_KINDS.map(|(_, name)| name), &self.verbs);
        page.counters("verbs", "Verbs executed", None, verbs)?;
        page.histogram(
            "batch_verbs",
            "Verbs in each executed batch",
            None,
            1.0,
            &self.batch_verbs.snapshot(),
        )?;
        let help = "Time from finding sockets ready to having executed and replied to their requests";
        page.histogram("turn", help, seconds, NANOS_PER_SECOND, &self.turn_nanos.snapshot())?;
        page.counter("received", "Bytes received", bytes, self.received_bytes.get())?;
        page.counter("sent", "Bytes sent", bytes, self.sent_bytes.get())?;
        page.gauge("waiting", "Replies that peers have not read", bytes, self.waiting_bytes.get())?;
        page.gauge("buffers", "Memory of all connections' buffers", bytes, self.buffer_bytes.get())?;
        page.gauge("region", "Memory served", bytes, self.region_bytes)?;
        page.gauge("draining", "1 if the node is stopping", None, self.is_draining.get())?;
        encode_credentials(&mut page, &self.credentials)?;
        encode_tenants(&mut page, &self.tenants())?;
        if let Some(log) = &self.log {
            encode_log(&mut page, log)?;
        }
        if let Some(group) = &self.group {
            encode_group(&mut page, group)?;
        }
        page.metric(
            "uptime",
            "Time since the node started",
            seconds,
            &ConstGauge::new(self.uptime().as_secs_f64()),
        )
    }
}

/// Writes the metrics of tenants, if there are limits.
fn encode_tenants(
    page: &mut MetricsWriter<'_>,
    tenants: &[(String, Arc<TenantCounts>)],
) -> Result<(), Error> {
    if tenants.is_empty() {
        return Ok(());
    }
    let each = |count: fn(&TenantCounts) -> u64| {
        tenants.iter().map(move |(name, counts)| ([("tenant", name.as_str())], count(counts)))
    };
    let bytes = Some(&Unit::Bytes);
    page.gauges(
        "tenant_connections",
        "Connections of a tenant",
        None,
        each(|tenant| tenant.connections.get()),
    )?;
    page.counters("tenant_verbs", "Verbs of a tenant's requests", None, each(|tenant| tenant.verbs.get()))?;
    let help = "Bytes of a tenant's requests and replies";
    page.counters("tenant_transferred", help, bytes, each(|tenant| tenant.bytes.get()))?;
    let help = "Requests that waited because of a limit of their tenant or session";
    page.counters("tenant_delays", help, None, each(|tenant| tenant.delays.get()))?;
    let delays = tenants.iter().map(|(name, counts)| {
        let seconds = counts.delay_nanos.get() as f64 / NANOS_PER_SECOND;
        ([("tenant", name.as_str())], ConstCounter::new(seconds))
    });
    let help = "Time that these requests waited";
    page.each("tenant_delay", help, Some(&Unit::Seconds), MetricType::Counter, delays)
}

/// Writes the metrics of the memory group.
fn encode_group(page: &mut MetricsWriter<'_>, group: &GroupMetrics) -> Result<(), Error> {
    let (bytes, seconds) = (Some(&Unit::Bytes), Some(&Unit::Seconds));
    page.gauge("group_view", "Number of the replica's current view", None, group.view.get())?;
    let role = group.role.get();
    let roles = ROLES.iter().enumerate();
    let roles = roles.map(|(at, name)| ([("role", *name)], u64::from(at as u64 == role)));
    page.gauges("group_role", "1 for the replica's role in that view", None, roles)?;
    page.gauge("group_members", "Members of that view", None, group.members.get())?;
    page.gauge("group_replicas", "Configured number of members", None, group.replicas.get())?;
    page.gauge("group_record", "Number of the replica's last record", None, group.lsn.get())?;
    let help = "Records that at least one member has not confirmed";
    page.gauge("group_lag_records", help, None, group.lag_records.get())?;
    page.gauge("group_log", "Records kept for other replicas", bytes, group.log_bytes.get())?;
    page.gauge("group_held", "Replies that wait for other replicas", None, group.held.get())?;
    page.counter(
        "group_failovers",
        "Views in which this replica began to serve",
        None,
        group.failovers.get(),
    )?;
    let last = ConstGauge::new(group.since_failover().as_secs_f64());
    page.metric("group_served", "Time since this replica began to serve, 0 if it never did", seconds, &last)?;
    let help = "Failed requests to the store of views";
    page.counter("group_store_errors", help, None, group.store_errors.get())
}

/// Writes the metrics of the log.
fn encode_log(page: &mut MetricsWriter<'_>, log: &LogMetrics) -> Result<(), Error> {
    let (bytes, seconds) = (Some(&Unit::Bytes), Some(&Unit::Seconds));
    page.counter(
        "log_records",
        "Records of the log: frames that changed memory, and session events",
        None,
        log.records.get(),
    )?;
    page.counter("log_syncs", "Syncs of the log", None, log.syncs.get())?;
    page.counter("log_synced", "Bytes of synced records", bytes, log.synced_bytes.get())?;
    let help = "Time to write and sync a group of records";
    page.histogram("log_sync", help, seconds, NANOS_PER_SECOND, &log.sync_nanos.snapshot())?;
    page.counter("log_released", "Replies sent after they had waited for the log", None, log.released.get())?;
    page.gauge("log_held", "Replies that wait for the log", bytes, log.held_bytes.get())?;
    let oldest = ConstGauge::new(log.oldest_wait().as_secs_f64());
    page.metric("log_oldest_wait", "Time that the oldest record has waited for the disk", seconds, &oldest)?;
    page.gauge("log_failed", "1 if the log can no longer be written", None, log.has_failed.get())?;
    page.counter("checkpoints", "Checkpoints made", None, log.checkpoints.get())?;
    page.counter("failed_checkpoints", "Checkpoints that failed", None, log.failed_checkpoints.get())?;
    page.counter(
        "log_scrubs",
        "Complete readings of the log's medium without damage",
        None,
        log.scrubs.get(),
    )?;
    page.counter("log_damages", "Damages of the log's medium that were found", None, log.damages.get())?;
    page.counter("checkpointed", "Bytes written by checkpoints", bytes, log.checkpoint_bytes.get())?;
    let age = ConstGauge::new(log.checkpoint_age().as_secs_f64());
    page.metric("checkpoint_age", "Time since the newest checkpoint, or since the start", seconds, &age)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_shows_all_counts() {
        let metrics = Arc::new(MemNodeMetrics::new(4096, None));
        metrics.accepted.add(3);
        metrics.refused[RefusedFor::Credentials as usize].add(2);
        metrics.turned(std::time::Duration::from_micros(3));
        let mut counts = [0; darter_fabric::VerbKind::COUNT];
        counts[darter_fabric::VerbKind::Cas as usize] = 1;
        metrics.executed(counts);
        let mut page = String::new();
        prometheus_client::encoding::text::encode(&mut page, &registry(metrics)).unwrap();
        for line in [
            "darter_memnode_accepted_connections_total 3",
            "darter_memnode_refused_connections_total{reason=\"credentials\"} 2",
            "darter_memnode_dropped_connections_total{reason=\"memory\"} 0",
            "darter_memnode_verbs_total{kind=\"cas\"} 1",
            "darter_memnode_batch_verbs_bucket{le=\"1.0\"} 1",
            "darter_memnode_batch_verbs_bucket{le=\"+Inf\"} 1",
            "darter_memnode_batch_verbs_bucket{le=\"500.0\"} 1",
            "darter_memnode_turn_seconds_bucket{le=\"0.000002\"} 0",
            "darter_memnode_turn_seconds_bucket{le=\"0.000005\"} 1",
            "darter_memnode_turn_seconds_count 1",
            "darter_memnode_region_bytes 4096",
            "# EOF",
        ] {
            assert!(page.lines().any(|found| found == line), "{line} in\n{page}");
        }
    }
}
