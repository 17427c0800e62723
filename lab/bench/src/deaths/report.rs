//! The report of `bench deaths`, and whether it meets the targets.

use super::observers::Latencies;
use darter_bench::report::{bytes_text, markdown_table};
use darter_fabric::counted;
use hdrhistogram::Histogram;
use serde::Serialize;
use std::io::{self, Write};

/// Target: the largest p99 outside of the first moments, relative to undisturbed.
pub(super) const RATIO_MAX: f64 = 2.0;
/// Target: the longest time until memory is reclaimed again, in leases.
pub(super) const LEASES_MAX: f64 = 2.0;

/// Latencies of one kind of operation at one kind of moment, in microseconds.
#[derive(Clone, Debug, Serialize)]
pub struct LatencyRow {
    /// `undisturbed`, `outside` or `early`: the first 10 ms after a kill.
    pub when: &'static str,
    /// `get` or `update`.
    pub op: &'static str,
    /// Operations.
    pub ops: u64,
    /// Half of them took at most this long.
    pub p50: f64,
    /// 99% of them took at most this long.
    pub p99: f64,
    /// 99.9% of them took at most this long.
    pub p999: f64,
    /// All of them took at most this long.
    pub max: f64,
}

impl LatencyRow {
    fn both(when: &'static str, latencies: &Latencies) -> [Self; 2] {
        [("get", &latencies.get), ("update", &latencies.update)].map(|(op, histogram)| {
            let us = |quantile: f64| histogram.value_at_quantile(quantile) as f64 / 1000.0;
            let ops = histogram.len();
            Self { when, op, ops, p50: us(0.5), p99: us(0.99), p999: us(0.999), max: us(1.0) }
        })
    }
}

/// How long it took until the pool's epoch had advanced by two after a victim's end, in leases.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Reclamation {
    /// Number of ends.
    pub ends: u64,
    /// Number of ends after which it did not advance within the waiting time.
    pub never: u64,
    /// Half of the times are at most this.
    pub p50: f64,
    /// 99% of the times are at most this.
    pub p99: f64,
    /// All of the times are at most this.
    pub max: f64,
}

impl Reclamation {
    fn new(times: &Histogram<u64>, never: u64, lease_ns: f64) -> Self {
        let leases = |quantile: f64| times.value_at_quantile(quantile) as f64 / lease_ns;
        Self { ends: times.len() + never, never, p50: leases(0.5), p99: leases(0.99), max: leases(1.0) }
    }
}

/// The results of a measurement of deaths.
#[derive(Clone, Debug, Default, Serialize)]
pub struct DeathsReport {
    /// Whether both targets are met.
    pub reached: bool,
    /// The targets that are missed, as text.
    pub misses: Vec<String>,
    /// Victims killed.
    pub kills: u64,
    /// Victims that ended on request, in undisturbed blocks.
    pub ends: u64,
    /// Killed victims whose line in the pool stayed live.
    pub members_left: u64,
    /// Of these, victims that were still members when their lease had expired.
    pub lapsed: u64,
    /// Victims that ended although they were not supposed to.
    pub lost: u64,
    /// Latencies of the observers.
    pub latencies: Vec<LatencyRow>,
    /// The p99 outside of the first 10 ms relative to undisturbed, of gets.
    pub ratio_get: f64,
    /// The same of updates.
    pub ratio_update: f64,
    /// The larger of both in each pair of neighbouring blocks: the median, which noise of the
    /// machine affects least.
    pub ratio_median: f64,
    /// Kills after which the p99 of the observers, until the next, was at most twice the
    /// undisturbed one.
    pub kills_within: u64,
    /// The same for ends in undisturbed blocks: the effect of noise alone.
    pub ends_within: u64,
    /// After kills.
    pub reclamation: Reclamation,
    /// After ends in undisturbed blocks.
    pub reclamation_undisturbed: Reclamation,
    /// Broken invariants, found after any pair of blocks.
    pub violations: Vec<String>,
    /// Bytes freed by the repairs between the blocks.
    pub repaired_bytes: u64,
    /// Bytes leaked at the end, before the last repair.
    pub leaked_bytes_before_repair: u64,
    /// Bytes leaked after it.
    pub leaked_bytes: u64,
    /// Milliseconds of the pool's lease.
    pub lease_ms: u64,
    /// Memory nodes.
    pub memnodes: u8,
    /// Records.
    pub records: u64,
    /// Threads of the observers.
    pub observers: usize,
    /// Victims at a time.
    pub victims: usize,
    /// The seed of keys and moments.
    pub seed: u64,
    /// Duration of the measurement.
    pub seconds: f64,
}

/// Measurements of all blocks.
pub(super) struct Gathered {
    pub(super) undisturbed: Latencies,
    pub(super) outside: Latencies,
    pub(super) early: Latencies,
    /// The p99 of each turn, both kinds together: after kills, and after ends.
    pub(super) kill_p99: Vec<u64>,
    pub(super) end_p99: Vec<u64>,
    /// Of each pair of blocks.
    pub(super) ratios: Vec<f64>,
    /// Nanoseconds until reclamation resumed.
    pub(super) resumed: Histogram<u64>,
    pub(super) resumed_undisturbed: Histogram<u64>,
    pub(super) never: u64,
    pub(super) never_undisturbed: u64,
}

fn p99(histogram: &Histogram<u64>) -> f64 {
    histogram.value_at_quantile(0.99) as f64
}

/// The p99 of gets and of updates, relative to undisturbed.
pub(super) fn ratios(outside: &Latencies, undisturbed: &Latencies) -> [f64; 2] {
    let ratio = |a, b| if p99(b) > 0.0 { p99(a) / p99(b) } else { 0.0 };
    [ratio(&outside.get, &undisturbed.get), ratio(&outside.update, &undisturbed.update)]
}

/// All operations together.
pub(super) fn both(latencies: &Latencies) -> Histogram<u64> {
    let mut both = latencies.get.clone();
    // Equal bounds and precision: nothing can be out of range.
    let _ = both.add(&latencies.update);
    both
}

impl DeathsReport {
    /// Fills in the report and decides whether the targets are met.
    pub(super) fn judge(&mut self, gathered: &mut Gathered) {
        let lease_ns = self.lease_ms as f64 * 1e6;
        self.latencies = [
            LatencyRow::both("undisturbed", &gathered.undisturbed),
            LatencyRow::both("outside", &gathered.outside),
            LatencyRow::both("early", &gathered.early),
        ]
        .concat();
        [self.ratio_get, self.ratio_update] = ratios(&gathered.outside, &gathered.undisturbed);
        gathered.ratios.sort_unstable_by(f64::total_cmp);
        self.ratio_median = gathered.ratios.get(gathered.ratios.len() / 2).copied().unwrap_or(0.0);
        let bound = p99(&both(&gathered.undisturbed)) * RATIO_MAX;
        let within = |turns: &[u64]| turns.iter().filter(|&&p99| p99 as f64 <= bound).count() as u64;
        self.kills_within = within(&gathered.kill_p99);
        self.ends_within = within(&gathered.end_p99);
        self.reclamation = Reclamation::new(&gathered.resumed, gathered.never, lease_ns);
        self.reclamation_undisturbed =
            Reclamation::new(&gathered.resumed_undisturbed, gathered.never_undisturbed, lease_ns);
        for (op, ratio) in [("gets", self.ratio_get), ("updates", self.ratio_update)] {
            if ratio > RATIO_MAX {
                self.misses.push(format!(
                    "the p99 of {op} outside of the first 10 ms is {ratio:.2} times the undisturbed one, not {RATIO_MAX}"
                ));
            }
        }
        let Reclamation { never, max, .. } = self.reclamation;
        if max > LEASES_MAX {
            self.misses.push(format!("reclamation took up to {max:.2} leases to resume, not {LEASES_MAX}"));
        }
        if never > 0 {
            self.misses.push(format!("reclamation did not resume after {}", counted(never, "kill")));
        }
        self.reached = self.misses.is_empty();
    }

    /// Prints the report as tables.
    pub(super) fn print(&self, out: &mut dyn Write) -> io::Result<()> {
        let Self { kills, ends, lost, lapsed, members_left, .. } = self;
        writeln!(
            out,
            "{} of writers at random moments and {}, in alternating blocks; {} at a time, {}, {}, {}, lease {} ms, {:.0} s\n",
            counted(*kills, "kill"),
            counted(*ends, "clean end"),
            counted(self.victims as u64, "victim"),
            counted(self.observers as u64, "observing thread"),
            counted(self.records, "record"),
            counted(self.memnodes.into(), "memory node"),
            self.lease_ms,
            self.seconds
        )?;
        let mut table = markdown_table(&["observers", "op", "ops", "p50, µs", "p99", "p99.9", "max"]);
        for row in &self.latencies {
            let when = match row.when {
                "early" => "first 10 ms after a kill",
                "outside" => "outside these",
                when => when,
            };
            let mut cells = vec![when.to_owned(), row.op.to_owned(), row.ops.to_string()];
            cells.extend([row.p50, row.p99, row.p999, row.max].map(|us| format!("{us:.0}")));
            table.add_row(cells);
        }
        writeln!(out, "{table}\n")?;
        writeln!(
            out,
            "p99 outside / undisturbed: gets {:.2}, updates {:.2}; the larger, pair by pair of blocks: median {:.2}",
            self.ratio_get, self.ratio_update, self.ratio_median
        )?;
        writeln!(
            out,
            "p99 from one end to the next at most twice the undisturbed: after {} of {}, {} of {}",
            self.kills_within,
            counted(*kills, "kill"),
            self.ends_within,
            counted(*ends, "clean end")
        )?;
        for (what, r) in [("kill", &self.reclamation), ("clean end", &self.reclamation_undisturbed)] {
            writeln!(
                out,
                "reclamation resumed after {} of {}; leases it took: p50 {:.2}, p99 {:.2}, max {:.2}",
                r.ends - r.never,
                counted(r.ends, what),
                r.p50,
                r.p99,
                r.max
            )?;
        }
        writeln!(
            out,
            "members left by kills: {members_left}, of these {lapsed} ended after their lease; victims lost otherwise: {lost}"
        )?;
        writeln!(
            out,
            "pool: {}; {} given back by repairs between blocks; at the end {} leaked, {} after the repair",
            counted(self.violations.len() as u64, "violation"),
            bytes_text(self.repaired_bytes),
            bytes_text(self.leaked_bytes_before_repair),
            bytes_text(self.leaked_bytes)
        )?;
        for violation in &self.violations {
            writeln!(out, "violation: {violation}")?;
        }
        if self.reached {
            writeln!(
                out,
                "reached: p99 within {RATIO_MAX} times outside of the first 10 ms, reclamation within {LEASES_MAX} leases"
            )
        } else {
            writeln!(out, "not reached: {}", self.misses.join("; "))
        }
    }
}
