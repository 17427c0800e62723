//! Reports of a run: one object per workload as JSON, or tables.

use crate::BenchError;
use crate::outcome::Outcome;
use crate::ycsb::Workload;
use comfy_table::{Cell, CellAlignment, Table, presets};
use darter::report::OpCounters;
use darter::{Counters, OpKind};
use hdrhistogram::Histogram;
use serde::Serialize;
use std::collections::BTreeMap;
use std::io::Write;

/// Latency percentiles in microseconds.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct LatencyUs {
    /// Half of the operations took at most this long.
    pub p50: f64,
    /// 99% took at most this long.
    pub p99: f64,
    /// 99.9% took at most this long.
    pub p999: f64,
}

impl LatencyUs {
    /// Returns the percentiles of a histogram of nanoseconds.
    pub fn of(latency: &Histogram<u64>) -> Self {
        let us = |quantile: f64| latency.value_at_quantile(quantile) as f64 / 1000.0;
        Self { p50: us(0.5), p99: us(0.99), p999: us(0.999) }
    }
}

/// The average costs of one kind of operation.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct KindReport {
    /// Operations of this kind. A read-modify-write counts as one get and one update.
    pub ops: u64,
    /// Awaits of verbs posted together.
    pub round_trips_per_op: f64,
    /// Verbs.
    pub verbs_per_op: f64,
    /// Payload bytes from memory nodes.
    pub read_bytes_per_op: f64,
    /// Payload bytes to memory nodes.
    pub write_bytes_per_op: f64,
    /// Lost races after which the operation continued.
    pub retries_per_op: f64,
}

impl KindReport {
    /// Returns the averages over `ops` operations.
    pub fn new(cost: OpCounters, ops: u64) -> Self {
        let per_op = |count: u64| if ops == 0 { 0.0 } else { count as f64 / ops as f64 };
        Self {
            ops,
            round_trips_per_op: per_op(cost.round_trips),
            verbs_per_op: per_op(cost.verbs),
            read_bytes_per_op: per_op(cost.read_bytes),
            write_bytes_per_op: per_op(cost.write_bytes),
            retries_per_op: per_op(cost.retries),
        }
    }
}

/// Sizes in bytes after a workload.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sizes {
    /// Keys that the walk found; not a size in bytes.
    pub keys: u64,
    /// Inner nodes and skip table in the pool.
    pub index: u64,
    /// Leaves in the pool.
    pub kv: u64,
    /// The pool's blocks in use.
    pub pool_used: u64,
    /// This process's caches.
    pub cache_used: u64,
}

/// The contents of an index after all keys were deleted (`--check`).
#[derive(Clone, Debug, Default, Serialize)]
pub struct CheckOutcome {
    /// Broken invariants; empty when the pool is sound.
    pub violations: Vec<String>,
    /// Bytes that no client can reach and none will free.
    pub leaked_bytes: u64,
    /// Bytes of the pool in use before anything was stored.
    pub pool_used_bytes_empty: u64,
    /// Bytes of the pool in use after everything was deleted.
    pub pool_used_bytes_after: u64,
    /// The highest measured use of the pool in between, in bytes.
    pub pool_used_bytes_full: u64,
    /// Bytes of the objects in the pool before anything was stored.
    pub object_bytes_empty: u64,
    /// Bytes of the objects in the pool after everything was deleted.
    pub object_bytes_after: u64,
}

/// One workload's figures. Fields that an index does not have are `null` in JSON.
#[derive(Clone, Debug, Default, Serialize)]
pub struct WorkloadReport {
    /// The index's name.
    pub index: String,
    /// `load`, `a` to `f`, or `delete` (of `--check`).
    pub workload: String,
    /// The dataset's name.
    pub dataset: String,
    /// A remark on the keys, such as that e-mail addresses are synthetic.
    pub dataset_note: String,
    /// Records when the workload began; for `load`, when it ended.
    pub records: u64,
    /// Operations measured.
    pub ops: u64,
    /// Threads of each process.
    pub threads: usize,
    /// Operations that each thread keeps in flight.
    pub in_flight: usize,
    /// Processes that drove the pool together.
    pub processes: usize,
    /// Bytes of a value.
    pub value_bytes: usize,
    /// Zipf exponent.
    pub theta: f64,
    /// The pool's URL; empty for an index that has none.
    pub pool: String,
    /// Bytes the client may cache.
    pub cache_bytes: Option<u64>,
    /// Busy time of the busiest thread, without the time to make keys.
    pub seconds: f64,
    /// Operations per second of all threads together; the median if there are several rounds.
    pub ops_per_s: f64,
    /// Round trips per operation, upkeep left out.
    pub round_trips_per_op: Option<f64>,
    /// Verbs per operation, upkeep left out.
    pub verbs_per_op: Option<f64>,
    /// Payload bytes read per operation, upkeep left out.
    pub read_bytes_per_op: Option<f64>,
    /// Payload bytes written per operation, upkeep left out.
    pub write_bytes_per_op: Option<f64>,
    /// Lost races per operation, upkeep left out.
    pub retries_per_op: Option<f64>,
    /// Operations whose key was not found; 0 in a correct run.
    pub not_found: u64,
    /// Latencies; every eighth operation is timed in long runs.
    pub latency_us: LatencyUs,
    /// Bytes of inner nodes and skip table in the pool.
    pub index_bytes: Option<u64>,
    /// Bytes of leaves in the pool.
    pub kv_bytes: Option<u64>,
    /// Bytes of the pool in use.
    pub pool_used_bytes: Option<u64>,
    /// Bytes this process caches.
    pub cache_used_bytes: Option<u64>,
    /// Prefix lengths in bytes with skip-table entries.
    pub prefix_list: Option<Vec<u8>>,
    /// The seed: the same arguments with the same seed run the same operations.
    pub seed: u64,
    /// Number of rounds of which the median is given.
    pub rounds: u32,
    /// Costs by kind of operation, including `maintain` (upkeep run inline).
    pub kinds: BTreeMap<&'static str, KindReport>,
    /// The check after all keys were deleted, if requested.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub check: Option<CheckOutcome>,
}

impl WorkloadReport {
    /// Returns the report with the measurements filled in.
    #[must_use]
    pub fn measured(mut self, outcome: &Outcome) -> Self {
        self.ops = outcome.ops;
        self.seconds = outcome.seconds;
        self.ops_per_s = outcome.ops_per_s();
        self.not_found = outcome.not_found;
        self.latency_us = LatencyUs::of(&outcome.latency);
        if let Some(counters) = &outcome.counters {
            self.count(counters);
        }
        self
    }

    /// Fills in the counts.
    fn count(&mut self, counters: &Counters) {
        let upkeep = counters[OpKind::Maintain];
        let cost = KindReport::new(counters.total() - upkeep, self.ops);
        self.round_trips_per_op = Some(cost.round_trips_per_op);
        self.verbs_per_op = Some(cost.verbs_per_op);
        self.read_bytes_per_op = Some(cost.read_bytes_per_op);
        self.write_bytes_per_op = Some(cost.write_bytes_per_op);
        self.retries_per_op = Some(cost.retries_per_op);
        self.kinds = OpKind::ALL
            .into_iter()
            .filter(|&kind| counters[kind] != OpCounters::default())
            .map(|kind| (kind.name(), KindReport::new(counters[kind], counters[kind].ops)))
            .collect();
    }

    /// Returns the report with the sizes filled in.
    #[must_use]
    pub fn sized(mut self, sizes: Sizes, prefix_list: Option<Vec<u8>>) -> Self {
        self.index_bytes = Some(sizes.index);
        self.kv_bytes = Some(sizes.kv);
        self.pool_used_bytes = Some(sizes.pool_used);
        self.cache_used_bytes = Some(sizes.cache_used);
        self.prefix_list = prefix_list;
        self
    }
}

/// Returns a workload's name in tables.
pub fn title(workload: Workload) -> String {
    workload.name().to_uppercase()
}

/// The columns of the table of workloads: throughput, costs per operation, latencies.
const WORKLOAD_COLUMNS: [&str; 14] = [
    "workload",
    "processes",
    "threads",
    "in flight",
    "kop/s",
    "round trips",
    "verbs",
    "B read",
    "B written",
    "retries",
    "not found",
    "p50 µs",
    "p99 µs",
    "p99.9 µs",
];

/// Returns the head of the table of workloads. Rows are printed one by one, so each column is as
/// wide as its title; a longer number is still printed in full.
pub fn workload_head() -> String {
    let rules = WORKLOAD_COLUMNS.iter().enumerate().map(|(at, title)| {
        let width = column_width(title);
        if at == 0 { "-".repeat(width + 2) } else { format!("{}:", "-".repeat(width + 1)) }
    });
    format!(
        "{}\n|{}|",
        workload_line(&WORKLOAD_COLUMNS.map(str::to_owned)),
        rules.collect::<Vec<_>>().join("|")
    )
}

/// Returns a workload's row.
pub fn workload_row(report: &WorkloadReport) -> String {
    let cost = |value: Option<f64>, digits| value.map_or_else(String::new, |v| format!("{v:.digits$}"));
    workload_line(&[
        report.workload.to_uppercase(),
        report.processes.to_string(),
        report.threads.to_string(),
        report.in_flight.to_string(),
        format!("{:.0}", report.ops_per_s / 1000.0),
        cost(report.round_trips_per_op, 2),
        cost(report.verbs_per_op, 2),
        cost(report.read_bytes_per_op, 0),
        cost(report.write_bytes_per_op, 0),
        cost(report.retries_per_op, 4),
        report.not_found.to_string(),
        format!("{:.2}", report.latency_us.p50),
        format!("{:.2}", report.latency_us.p99),
        format!("{:.2}", report.latency_us.p999),
    ])
}

fn column_width(title: &str) -> usize {
    title.chars().count().max(6)
}

fn workload_line(cells: &[String; WORKLOAD_COLUMNS.len()]) -> String {
    let cells = cells.iter().zip(WORKLOAD_COLUMNS).enumerate().map(|(at, (cell, title))| {
        let width = column_width(title);
        if at == 0 { format!(" {cell:<width$} |") } else { format!(" {cell:>width$} |") }
    });
    format!("|{}", cells.collect::<String>())
}

/// Returns the table of costs by kind of operation.
pub fn kind_table(reports: &[WorkloadReport]) -> Table {
    let headers = [
        "workload",
        "threads",
        "in flight",
        "kind",
        "operations",
        "round trips",
        "verbs",
        "B read",
        "B written",
        "retries",
    ];
    let mut table = markdown_table(&headers);
    for report in reports {
        for (kind, cost) in &report.kinds {
            table.add_row(vec![
                report.workload.to_uppercase(),
                report.threads.to_string(),
                report.in_flight.to_string(),
                (*kind).to_owned(),
                cost.ops.to_string(),
                format!("{:.3}", cost.round_trips_per_op),
                format!("{:.3}", cost.verbs_per_op),
                format!("{:.1}", cost.read_bytes_per_op),
                format!("{:.1}", cost.write_bytes_per_op),
                format!("{:.4}", cost.retries_per_op),
            ]);
        }
    }
    table
}

/// Returns an empty table that reads well on a terminal and renders in Markdown; all columns but
/// the first are numbers.
pub fn markdown_table(headers: &[&str]) -> Table {
    let mut table = Table::new();
    table.load_preset(presets::ASCII_MARKDOWN);
    table.set_header(headers.iter().map(|header| Cell::new(*header)));
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}

/// Returns `bytes` with a binary unit: `1.23 GiB`.
pub fn bytes_text(bytes: u64) -> String {
    let units = [("GiB", 1_u64 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)];
    match units.into_iter().find(|(_, unit)| bytes >= *unit) {
        Some((name, unit)) => format!("{:.2} {name}", bytes as f64 / unit as f64),
        None => format!("{bytes} B"),
    }
}

/// Prints `object` as JSON on one line, and flushes.
///
/// # Errors
/// Fails if `out` cannot be written.
pub fn print_json(out: &mut dyn Write, object: &impl serde::Serialize) -> Result<(), BenchError> {
    serde_json::to_writer(&mut *out, object).map_err(std::io::Error::from)?;
    writeln!(out)?;
    out.flush()?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report() -> WorkloadReport {
        let mut latency = Histogram::new_with_bounds(1, 60_000_000_000, 3).unwrap();
        latency.record_n(1000, 90).unwrap();
        latency.record_n(5000, 10).unwrap();
        let mut counters = Counters::default();
        counters[OpKind::Get] = OpCounters {
            ops: 50,
            round_trips: 150,
            verbs: 200,
            read_bytes: 5000,
            write_bytes: 0,
            retries: 1,
            ..OpCounters::default()
        };
        counters[OpKind::Update].ops = 50;
        counters[OpKind::Update].round_trips = 200;
        counters[OpKind::Maintain].round_trips = 1000;
        let outcome = Outcome {
            ops: 100,
            seconds: 0.5,
            not_found: 0,
            latency,
            counters: Some(counters),
            records: 10,
            bottleneck: None,
        };
        let sizes = Sizes { keys: 10, index: 1, kv: 2, pool_used: 3, cache_used: 4 };
        WorkloadReport { index: "dart".into(), workload: "a".into(), ..WorkloadReport::default() }
            .measured(&outcome)
            .sized(sizes, Some(vec![1, 2, 4]))
    }

    #[test]
    fn json_has_every_promised_field() {
        let json: serde_json::Value = serde_json::to_value(report()).unwrap();
        for field in [
            "index",
            "workload",
            "dataset",
            "records",
            "ops",
            "threads",
            "in_flight",
            "processes",
            "value_bytes",
            "theta",
            "pool",
            "cache_bytes",
            "seconds",
            "ops_per_s",
            "round_trips_per_op",
            "verbs_per_op",
            "read_bytes_per_op",
            "write_bytes_per_op",
            "retries_per_op",
            "not_found",
            "latency_us",
            "index_bytes",
            "kv_bytes",
            "pool_used_bytes",
            "cache_used_bytes",
            "prefix_list",
            "seed",
            "kinds",
        ] {
            assert!(json.get(field).is_some(), "{field} is missing");
        }
        for field in ["p50", "p99", "p999"] {
            assert!(json["latency_us"][field].is_number(), "{field}");
        }
        assert!(json.get("check").is_none());
        assert!(!serde_json::to_string(&report()).unwrap().contains('\n'));
        for field in [
            "ops",
            "round_trips_per_op",
            "verbs_per_op",
            "read_bytes_per_op",
            "write_bytes_per_op",
            "retries_per_op",
        ] {
            assert!(json["kinds"]["get"][field].is_number(), "{field}");
        }
    }

    #[test]
    #[allow(clippy::float_cmp)] // exact quotients of small integers
    fn averages_leave_upkeep_out() {
        let report = report();
        assert_eq!(report.round_trips_per_op, Some(3.5));
        assert_eq!(report.kinds["get"].round_trips_per_op, 3.0);
        assert_eq!(report.kinds["update"].round_trips_per_op, 4.0);
        assert_eq!(report.kinds["maintain"].ops, 0);
        assert_eq!(report.ops_per_s, 200.0);
        assert!((report.latency_us.p50 - 1.0).abs() < 0.01 && (report.latency_us.p99 - 5.0).abs() < 0.01);
    }

    #[test]
    fn tables_name_their_columns() {
        let (head, row) = (workload_head(), workload_row(&report()));
        assert!(head.contains("round trips") && row.contains("3.50"), "{head}\n{row}");
        let bars = |line: &str| {
            line.match_indices('|').map(|(at, _)| line[..at].chars().count()).collect::<Vec<_>>()
        };
        assert!(head.lines().chain([&*row]).all(|line| bars(line) == bars(&row)), "{head}\n{row}");
        assert!(kind_table(&[report()]).to_string().contains("update"));
        assert_eq!(bytes_text(3 << 29), "1.50 GiB");
        assert_eq!(bytes_text(12), "12 B");
    }
}
