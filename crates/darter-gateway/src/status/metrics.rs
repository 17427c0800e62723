//! The metrics of a gateway in Prometheus' format.

use super::Status;
use super::survey::SurveyResult;
use crate::statistics::{FAMILIES, Sums};
use crate::table::TABLE;
use darter::OpKind;
use darter::engine::Engine;
use darter::report::{NodeUsage, OpCounters};
use darter_telemetry::credentials::encode_credentials;
use darter_telemetry::openmetrics::{MetricsWriter, NANOS_PER_SECOND};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::{Registry, Unit};
use std::fmt::Error;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Returns the registry of a gateway's metrics; every name begins with `darter_gateway_`.
pub(super) fn registry(status: Arc<Status>) -> Registry {
    let mut registry = Registry::with_prefix("darter_gateway");
    registry.register_collector(Box::new(StatusCollector(status)));
    registry
}

/// Collects the metrics of a gateway.
#[derive(Debug)]
struct StatusCollector(Arc<Status>);

const BYTES: Option<&Unit> = Some(&Unit::Bytes);
const SECONDS: Option<&Unit> = Some(&Unit::Seconds);

/// The name, help text and unit of a count by kind of operation, and the function that reads it.
type OfAKind = (&'static str, &'static str, Option<&'static Unit>, fn(&OpCounters) -> u64);

const OF_A_KIND: [OfAKind; 6] = [
    ("operations", "Operations of the index begun", None, |counts| counts.ops),
    ("round_trips", "Batches posted to the pool", None, |counts| counts.round_trips),
    ("verbs", "Verbs in those batches", None, |counts| counts.verbs),
    ("read", "Payload read from the pool", BYTES, |counts| counts.read_bytes),
    ("written", "Payload written to the pool", BYTES, |counts| counts.write_bytes),
    ("retries", "Lost races after which an operation continued", None, |counts| counts.retries),
];

/// The states of a memory node's blocks.
type State = (&'static str, fn(&NodeUsage) -> u64);

const STATES: [State; 7] = [
    ("free", |node| node.free),
    ("mine", |node| node.mine),
    ("others", |node| node.others),
    ("closed", |node| node.closed),
    ("dead", |node| node.dead),
    ("sweeping", |node| node.sweeping),
    ("damaged", |node| node.damaged),
];

impl Collector for StatusCollector {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> Result<(), Error> {
        let mut page = MetricsWriter::new(encoder);
        let sums = self.0.shared.sums();
        self.clients(&mut page)?;
        commands(&mut page, &sums)?;
        for (name, help, unit, count) in OF_A_KIND {
            let kinds =
                OpKind::ALL.into_iter().map(|kind| ([("kind", kind.name())], count(&sums.fabric[kind])));
            page.counters(name, help, unit, kinds)?;
        }
        page.counter("sessions", "Sessions opened on the pool", None, sums.sessions)?;
        let samples = self.0.shared.store.index().samples();
        page.counter("sampled_searches", "Searches sampled, one in 64", None, samples.searches)?;
        let help = "Sampled searches that the express skip table led past the root";
        page.counter("express_searches", help, None, samples.express)?;
        of_the_pool(&mut page, &self.0.survey.result())
    }
}

impl StatusCollector {
    fn clients(&self, page: &mut MetricsWriter<'_>) -> Result<(), Error> {
        let (shared, counts) = (&self.0.shared, &self.0.shared.counts);
        let load = |count: &std::sync::atomic::AtomicU64| count.load(Ordering::Relaxed);
        page.gauge("connections", "Clients connected", None, shared.clients.count() as u64)?;
        page.counter("accepted_connections", "Connections accepted", None, load(&counts.accepted))?;
        page.counter("refused_connections", "Connections refused", None, load(&counts.refused))?;
        let help = "Connections dropped because their buffers held too much";
        page.counter("dropped_connections", help, None, load(&counts.dropped))?;
        let waiting = shared.held_bytes.load(Ordering::Relaxed) as u64;
        page.gauge("waiting", "Requests not executed and replies not read", BYTES, waiting)?;
        let errors = counts.errors().map(|(why, count)| ([("cause", why)], count));
        page.counters("errors", "Error replies to commands, by cause", None, errors)?;
        page.counter("slow_commands", "Commands that took at least --slow-us", None, load(&counts.slow))?;
        page.counter("expired_keys", "Expired keys removed by the walk", None, load(&counts.expired))?;
        let [keys, expiring] = counts.keys();
        page.gauge("keys", "Keys, as counted by the last round of the walk", None, keys)?;
        page.gauge("expiring_keys", "Keys among them that have an expiry time", None, expiring)?;
        let draining = u64::from(shared.is_stopping.load(Ordering::Relaxed));
        page.gauge("draining", "1 when the gateway is stopping", None, draining)?;
        let uptime = ConstGauge::new(shared.since.elapsed().as_secs_f64());
        encode_credentials(page, &shared.credentials)?;
        page.metric("uptime", "Time since the gateway started", SECONDS, &uptime)
    }
}

fn commands(page: &mut MetricsWriter<'_>, sums: &Sums) -> Result<(), Error> {
    let done = TABLE.iter().zip(&sums.commands);
    let done = done.map(|(command, count)| ([("family", command.group), ("command", command.name)], *count));
    page.counters("commands", "Commands done", None, done)?;
    let latencies =
        FAMILIES.iter().zip(&sums.latencies).map(|(family, seen)| ([("family", *family)], seen.clone()));
    page.histograms("command_duration", "Duration of commands", SECONDS, NANOS_PER_SECOND, latencies)
}

/// Writes the results of the last survey of the pool.
fn of_the_pool(page: &mut MetricsWriter<'_>, seen: &SurveyResult) -> Result<(), Error> {
    if let Some((_, usage)) = &seen.usage {
        page.gauge("pool_epoch", "The pool's epoch", None, usage.epoch)?;
        let blocks = usage.nodes.iter().flat_map(|node| {
            STATES.map(|(state, count)| {
                ([("node", node.node.to_string()), ("state", state.to_owned())], count(node))
            })
        });
        page.gauges("pool_blocks", "Blocks of each memory node by state", None, blocks)?;
        page.gauge("pool_block", "Size of a block", BYTES, usage.block_bytes)?;
        let nodes = usage.nodes.iter().map(|node| ([("node", node.node.to_string())], node.bytes));
        page.gauges("pool_node", "Size of each memory node's region", BYTES, nodes)?;
        page.gauge("pool_members", "Processes that have the pool open", None, usage.members.len() as u64)?;
        let labels = |slot: u32, pid: u64| [("member", slot.to_string()), ("process", pid.to_string())];
        let leases = usage.members.iter().map(|member| {
            let left = member.lease_left_ms.max(0) as f64 / 1000.0;
            (labels(member.slot, member.pid), ConstGauge::new(left))
        });
        page.each(
            "pool_member_lease_left",
            "Remaining time of each member's lease",
            SECONDS,
            MetricType::Gauge,
            leases,
        )?;
        let epochs = usage.members.iter().map(|member| (labels(member.slot, member.pid), member.epoch));
        page.gauges("pool_member_epoch", "The epoch that each member has published", None, epochs)?;
        let garbage = usage.garbage_objects;
        page.gauge("pool_garbage_objects", "Objects of this process that wait to be freed", None, garbage)?;
    }
    if let Some((_, index)) = &seen.index {
        page.gauge("index_keys", "Keys of the index in all families", None, index.keys)?;
        page.gauge("index_leaves", "Leaves of the index", BYTES, index.kv_bytes)?;
        page.gauge("index_inner", "All of the index except its leaves", BYTES, index.index_bytes)?;
        page.gauge("index_depth", "Inner nodes above the deepest leaf", None, index.depth_max as u64)?;
        let nodes = index.nodes.iter().map(|node| ([("type", node.name)], node.count));
        page.gauges("index_nodes", "Inner nodes by type", None, nodes)?;
        let bytes = index.nodes.iter().map(|node| ([("type", node.name)], node.bytes));
        page.gauges("index_nodes", "Inner nodes by type", BYTES, bytes)?;
        if let Some(est) = &index.est {
            page.gauge("est", "The express skip table", BYTES, est.bytes)?;
            page.gauge("est_entries", "Entries of the express skip table", None, est.entries)?;
            page.gauge("est_slots", "Slots for entries in the express skip table", None, est.slots)?;
        }
    }
    Ok(())
}
