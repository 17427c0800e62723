//! Speed of verbs over TCP (`bench fabric`): the provider compared with a bare loop that does the
//! same.
//!
//! One server core, one client core, loopback. All candidates take turns in every round, so that a
//! slow moment of the machine affects all of them, and the medians of the rounds count. What
//! matters are the ratios within one run.

mod bare;
pub(crate) mod node;
mod verbs;

use darter_bench::report::{markdown_table, print_json};

use crate::Setting;
use crate::child_process::ChildProcess;
use comfy_table::Table;
use darter_bench::BenchError;
use darter_fabric::{Tcp, TcpOptions, counted};
use node::{Cores, start_node};
use serde::Serialize;
use std::io::Write;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Words of a READ: 128 bytes.
const READ_WORDS: usize = 16;
/// Words that verbs access: 1 MiB, which fits the cache, so that memory hides nothing.
const REGION_WORDS: usize = 1 << 17;
/// The same, for a memory node.
const REGION_SIZE: &str = "1M";
/// Maximum number of operations in flight.
const IN_FLIGHT_MAX: usize = 4096;
/// Longest spin, in microseconds. It has to end soon after a measurement, since all memory nodes
/// share a core.
const SPIN_US_MAX: u64 = 1000;

/// Arguments of `bench fabric`.
#[derive(Clone, Debug, clap::Args)]
pub struct FabricArgs {
    /// Verbs in flight on the one connection; several numbers measure each
    #[arg(long, value_delimiter = ',', default_value = "1,8,64,256,1024", value_name = "LIST")]
    pub in_flight: Vec<usize>,
    /// Microseconds for which both ends poll before they sleep, each measured at every number in
    /// flight; 0 sleeps at once
    #[arg(long, value_delimiter = ',', default_value = "0,10,50,1000", value_name = "LIST")]
    pub spin: Vec<u64>,
    /// Rounds; the median counts
    #[arg(long, default_value_t = 5, value_name = "N")]
    pub rounds: u32,
    /// Milliseconds of one measurement
    #[arg(long, default_value_t = 200, value_name = "MS")]
    pub millis: u64,
    /// Print one JSON object per line
    #[arg(long)]
    pub json: bool,
}

/// The measured verb.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Verb {
    Read,
    Cas,
}

impl Verb {
    const ALL: [Self; 2] = [Self::Read, Self::Cas];

    const fn title(self) -> &'static str {
        match self {
            Self::Read => "READ 128 B",
            Self::Cas => "CAS",
        }
    }
}

/// The settings of one measurement.
#[derive(Clone, Copy, Debug)]
struct Load {
    verb: Verb,
    in_flight: usize,
    seconds: f64,
}

/// The result of a measurement.
#[derive(Clone, Copy, Debug)]
struct Rate {
    per_s: f64,
    p50_us: f64,
    p99_us: f64,
}

/// The median of a cell's rounds.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct FabricReport {
    verb: Verb,
    /// Verbs in flight.
    pub in_flight: usize,
    /// Microseconds of spinning at both ends; `None` for the bare loop, which always spins.
    pub spin_us: Option<u64>,
    /// Verbs a second.
    pub verbs_per_s: f64,
    /// `verbs_per_s` relative to the bare loop's.
    pub of_bare: f64,
    /// Latencies in microseconds.
    pub p50_us: f64,
    /// Latencies in microseconds.
    pub p99_us: f64,
}

impl FabricArgs {
    fn validate(&self) -> Result<(), BenchError> {
        let usage = |what: String| Err(BenchError::Usage(what));
        if self.in_flight.is_empty() || self.in_flight.iter().any(|&n| n == 0 || n > IN_FLIGHT_MAX) {
            return usage(format!("--in-flight: choose from 1 to {IN_FLIGHT_MAX}"));
        }
        if self.spin.iter().any(|&us| us > SPIN_US_MAX) {
            return usage(format!("--spin: at most {SPIN_US_MAX} µs, which is equivalent to always"));
        }
        if !(1..=1000).contains(&self.rounds) || !(1..=60_000).contains(&self.millis) {
            return usage("--rounds: choose from 1 to 1000; --millis: from 1 to 60000".to_owned());
        }
        Ok(())
    }
}

/// A memory node with its spin, and the fabric that reaches it.
struct Candidate {
    spin: u64,
    fabric: Tcp,
    _node: ChildProcess,
}

/// Measures and writes the results to `out`.
///
/// # Errors
/// Fails if the arguments cannot be met or a memory node fails.
pub fn run_fabric(
    args: &FabricArgs,
    setting: &Setting,
    out: &mut dyn Write,
) -> Result<Vec<FabricReport>, BenchError> {
    args.validate()?;
    let cores = Cores::claim();
    let mut candidates = Vec::new();
    for &spin in &args.spin {
        let node = start_node(&setting.program, &cores, REGION_SIZE, spin)?;
        let options = TcpOptions { spin: Duration::from_micros(spin), ..TcpOptions::default() };
        let fabric = Tcp::connect(&[node.address().to_owned()], options).map_err(darter::Error::from)?;
        candidates.push(Candidate { spin, fabric, _node: node });
    }
    let memory: Vec<AtomicU64> = (0..REGION_WORDS).map(|_| AtomicU64::new(0)).collect();
    if !args.json {
        writeln!(
            out,
            "verbs on 1 MiB over one loopback connection, one core each for server and client, median of {} of {} ms",
            counted(args.rounds.into(), "round"),
            args.millis
        )?;
        if let Some(note) = cores.note() {
            writeln!(out, "note: {note}")?;
        }
    }
    let mut reports = Vec::new();
    let cases = Verb::ALL.into_iter().flat_map(|verb| args.in_flight.iter().map(move |&n| (verb, n)));
    for (verb, in_flight) in cases {
        let load = Load { verb, in_flight, seconds: args.millis as f64 / 1000.0 };
        // By candidate, the bare loop first.
        let mut rates: Vec<Vec<Rate>> = vec![Vec::new(); candidates.len() + 1];
        for _ in 0..args.rounds {
            if setting.stop.load(Ordering::Relaxed) {
                break;
            }
            let bare = bare::measure(load, &memory, &cores);
            rates[0].push(bare.map_err(|error| BenchError::Process(error.to_string()))?);
            for (candidate, rates) in candidates.iter().zip(&mut rates[1..]) {
                rates.push(verbs::measure(load, &candidate.fabric).map_err(darter::Error::from)?);
            }
        }
        if rates[0].len() < args.rounds as usize {
            break;
        }
        let spins = std::iter::once(None).chain(candidates.iter().map(|candidate| Some(candidate.spin)));
        let bare = median(&rates[0], |rate| rate.per_s);
        for (spin_us, rates) in spins.zip(&rates) {
            let verbs_per_s = median(rates, |rate| rate.per_s);
            let report = FabricReport {
                verb,
                in_flight,
                spin_us,
                verbs_per_s,
                of_bare: verbs_per_s / bare,
                p50_us: median(rates, |rate| rate.p50_us),
                p99_us: median(rates, |rate| rate.p99_us),
            };
            if args.json {
                print_json(out, &report)?;
            }
            reports.push(report);
        }
    }
    if !args.json {
        writeln!(out, "\n{}", table(&reports, &args.spin))?;
    }
    if setting.stop.load(Ordering::Relaxed) { Err(BenchError::Interrupted) } else { Ok(reports) }
}

fn median(rates: &[Rate], of: impl Fn(&Rate) -> f64) -> f64 {
    let mut sorted: Vec<f64> = rates.iter().map(of).collect();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied().unwrap_or(0.0)
}

/// A row for each number in flight, a column for each candidate.
fn table(reports: &[FabricReport], spins: &[u64]) -> Table {
    let spin = |&us: &u64| match us {
        0 => "tcp, sleeping".to_owned(),
        SPIN_US_MAX => "tcp, spinning".to_owned(),
        us => format!("tcp, spin {us} µs"),
    };
    let headers: Vec<String> = ["verb", "in flight", "bare loop"]
        .map(str::to_owned)
        .into_iter()
        .chain(spins.iter().map(spin))
        .collect();
    let mut table = markdown_table(&headers.iter().map(String::as_str).collect::<Vec<_>>());
    for row in reports.chunks(spins.len() + 1) {
        let mut cells = vec![row[0].verb.title().to_owned(), row[0].in_flight.to_string()];
        for report in row {
            let speed = format!("{:.3} M/s", report.verbs_per_s / 1e6);
            let of_bare = report.spin_us.map_or_else(String::new, |_| format!(" ({:.2}×)", report.of_bare));
            cells.push(format!("{speed}{of_bare}, {:.1} / {:.1} µs", report.p50_us, report.p99_us));
        }
        table.add_row(cells);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bare_loop_answers() {
        let memory: Vec<AtomicU64> = (0..REGION_WORDS).map(|_| AtomicU64::new(0)).collect();
        for verb in Verb::ALL {
            let load = Load { verb, in_flight: 8, seconds: 0.01 };
            let rate = bare::measure(load, &memory, &Cores::claim()).unwrap();
            assert!(rate.per_s > 0.0 && rate.p50_us > 0.0);
        }
    }

    #[test]
    fn the_table_has_a_row_for_each_number_in_flight() {
        let report = |in_flight, spin_us, of_bare| FabricReport {
            verb: Verb::Read,
            in_flight,
            spin_us,
            verbs_per_s: 2e6,
            of_bare,
            p50_us: 1.0,
            p99_us: 2.0,
        };
        let reports =
            [report(1, None, 1.0), report(1, Some(0), 0.5), report(8, None, 1.0), report(8, Some(0), 0.9)];
        let text = table(&reports, &[0]).to_string();
        assert_eq!(text.lines().count(), 4, "{text}");
        assert!(text.contains("(0.50×)") && text.contains("sleeping"), "{text}");
    }
}
