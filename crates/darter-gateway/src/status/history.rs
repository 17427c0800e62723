//! The recent activity of a gateway, so that a page shows it as soon as it is opened: the last five
//! minutes by the second, the last hour in steps of ten seconds, and the last day in steps of five
//! minutes.
//!
//! A point holds the counts of its span. The HTTP port's thread adds one second per second, from
//! counters that the serving threads keep anyway. All points together take less than 512 KiB; a
//! restarted gateway begins anew.

use crate::clock::now_ms;
use crate::state::GatewayState;
use crate::statistics::{FAMILIES, FAULTS, Sums};
use darter::OpKind;
use darter::report::OpCounters;
use darter_fabric::random_word;
use darter_telemetry::counters::{HistogramSnapshot, NANOS_BOUNDS};
use serde_json::{Value, json};
use std::collections::VecDeque;
use std::sync::atomic::Ordering;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The seconds of a point and the number of points kept, by resolution.
const RESOLUTIONS: [(u64, usize); 3] = [(1, 300), (10, 360), (300, 288)];

/// The activity: totals since the start, or the difference between two totals.
#[derive(Clone, Debug, Default)]
struct Activity {
    /// By family.
    commands: Vec<u64>,
    /// By the buckets of [`NANOS_BOUNDS`].
    latency: Vec<u64>,
    /// By [`FAULTS`].
    errors: [u64; FAULTS.len()],
    slow: u64,
    fabric: OpCounters,
}

impl Activity {
    /// Returns the current totals of a gateway.
    fn totals(shared: &GatewayState) -> Self {
        let sums: Sums = shared.sums();
        let mut latency = vec![0; NANOS_BOUNDS.len() + 1];
        for family in &sums.latencies {
            for (sum, (_, count)) in latency.iter_mut().zip(&family.buckets) {
                *sum += count;
            }
        }
        let mut errors = [0; FAULTS.len()];
        for (sum, (_, count)) in errors.iter_mut().zip(shared.counts.errors()) {
            *sum = count;
        }
        let mut fabric = OpCounters::default();
        for kind in OpKind::ALL {
            fabric += sums.fabric[kind];
        }
        Self {
            commands: sums.latencies.iter().map(HistogramSnapshot::count).collect(),
            latency,
            errors,
            slow: shared.counts.slow.load(Ordering::Relaxed),
            fabric,
        }
    }

    /// Returns the activity since earlier totals.
    fn since(&self, before: &Self) -> Self {
        let less = |now: &[u64], before: &[u64]| {
            let before = before.iter().copied().chain(std::iter::repeat(0));
            now.iter().zip(before).map(|(now, before)| now.saturating_sub(before)).collect()
        };
        Self {
            commands: less(&self.commands, &before.commands),
            latency: less(&self.latency, &before.latency),
            errors: std::array::from_fn(|at| self.errors[at].saturating_sub(before.errors[at])),
            slow: self.slow.saturating_sub(before.slow),
            fabric: self.fabric - before.fabric,
        }
    }

    fn add(&mut self, more: &Self) {
        let add = |sums: &mut Vec<u64>, more: &[u64]| {
            sums.resize(more.len(), 0);
            sums.iter_mut().zip(more).for_each(|(sum, more)| *sum += more);
        };
        add(&mut self.commands, &more.commands);
        add(&mut self.latency, &more.latency);
        self.errors.iter_mut().zip(&more.errors).for_each(|(sum, more)| *sum += more);
        self.slow += more.slow;
        self.fabric += more.fabric;
    }
}

/// The activity in a span of time.
#[derive(Clone, Debug, Default)]
struct Point {
    /// Its position among all points of its resolution since the start, from 1.
    number: u64,
    /// The end of the span, in ms since the gateway started, and its length.
    at_ms: u64,
    span_ms: u64,
    done: Activity,
    /// Clients connected at the end of the span.
    clients: usize,
}

impl Point {
    fn json(&self) -> Value {
        let Activity { commands, latency, errors, slow, fabric } = &self.done;
        json!({
            "number": self.number,
            "at_ms": self.at_ms,
            "span_ms": self.span_ms,
            "clients": self.clients,
            "commands": commands,
            "latency": latency,
            "errors": errors,
            "slow": slow,
            "ops": fabric.ops,
            "round_trips": fabric.round_trips,
            "read_bytes": fabric.read_bytes,
            "write_bytes": fabric.write_bytes,
        })
    }
}

/// The points of one resolution.
#[derive(Debug, Default)]
struct Series {
    points: VecDeque<Point>,
    /// The incomplete point.
    open: Point,
}

impl Series {
    /// Adds the activity of one more second.
    fn add(&mut self, second: &Point, (seconds, kept): (u64, usize)) {
        let open = &mut self.open;
        open.number = self.points.back().map_or(1, |last| last.number + 1);
        open.done.add(&second.done);
        (open.at_ms, open.clients) = (second.at_ms, second.clients);
        open.span_ms += second.span_ms;
        // Missed and late seconds count with their actual spans.
        if open.span_ms + 500 >= seconds * 1000 {
            if self.points.is_empty() {
                self.points.reserve_exact(kept);
            }
            if self.points.len() >= kept {
                self.points.pop_front();
            }
            self.points.push_back(std::mem::take(open));
        }
    }

    /// Returns the points after a number, and the incomplete point last.
    fn after(&self, number: u64) -> impl Iterator<Item = &Point> {
        let is_begun = self.open.span_ms > 0;
        self.points.iter().chain(is_begun.then_some(&self.open)).filter(move |point| point.number > number)
    }
}

#[derive(Debug, Default)]
struct Recorded {
    /// The totals at the last tick, and its time in ms since the gateway started.
    last: (Activity, u64),
    series: [Series; RESOLUTIONS.len()],
}

/// A request for points.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct HistoryQuery {
    resolution: usize,
    /// Points up to this number are known to the client.
    after: u64,
}

impl HistoryQuery {
    /// Parses `step=` (the seconds of a point) and `after=` (a point's number) in a query.
    ///
    /// # Errors
    /// A description of the error.
    pub(super) fn parse(query: &str) -> Result<Self, String> {
        let value =
            |name| query.split('&').find_map(|pair| pair.split_once('=').filter(|(of, _)| *of == name));
        let number = |name, default| match value(name) {
            None => Ok(default),
            Some((_, digits)) => {
                digits.parse::<u64>().map_err(|_| format!("{name}= takes a number, such as {name}={default}"))
            }
        };
        let step = number("step", RESOLUTIONS[0].0)?;
        let resolution = RESOLUTIONS.iter().position(|(seconds, _)| *seconds == step);
        let resolution = resolution.ok_or_else(|| {
            let steps = RESOLUTIONS.map(|(seconds, _)| seconds.to_string());
            format!("a point spans {} seconds, not {step}", steps.join(" or "))
        })?;
        Ok(Self { resolution, after: number("after", 0)? })
    }
}

/// The recent activity of a gateway.
#[derive(Debug)]
pub(super) struct History {
    /// Distinguishes this history from the history before a restart of the gateway.
    run: u64,
    recorded: Mutex<Recorded>,
}

impl History {
    pub(super) fn new() -> Self {
        Self { run: random_word(), recorded: Mutex::default() }
    }

    fn lock(&self) -> MutexGuard<'_, Recorded> {
        self.recorded.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records the activity since the last call.
    pub(super) fn tick(&self, shared: &GatewayState) {
        let (totals, at_ms) = (Activity::totals(shared), shared.uptime_ms());
        let mut recorded = self.lock();
        let (before, before_ms) = &recorded.last;
        let span_ms = at_ms.saturating_sub(*before_ms);
        if span_ms == 0 {
            return;
        }
        let clients = shared.clients.count();
        let second = Point { number: 0, at_ms, span_ms, done: totals.since(before), clients };
        recorded.last = (totals, at_ms);
        for (series, resolution) in recorded.series.iter_mut().zip(RESOLUTIONS) {
            series.add(&second, resolution);
        }
    }

    /// Returns the points that a query selects.
    pub(super) fn json(&self, query: HistoryQuery, uptime_ms: u64) -> Value {
        let recorded = self.lock();
        let (step, kept) = RESOLUTIONS[query.resolution];
        let series = &recorded.series[query.resolution];
        json!({
            "run": format!("{:016x}", self.run),
            "step_seconds": step,
            "points_max": kept,
            "complete": series.points.back().map_or(0, |last| last.number),
            "uptime_ms": uptime_ms,
            "now_ms": now_ms(),
            // The last bucket is unbounded.
            "bounds_nanos": NANOS_BOUNDS.iter().map(|bound| json!(bound)).chain([Value::Null]).collect::<Vec<_>>(),
            "families": *FAMILIES,
            "faults": FAULTS,
            "points": series.after(query.after).map(Point::json).collect::<Vec<_>>(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn second(number: u64) -> Point {
        let done = Activity {
            commands: vec![number; FAMILIES.len()],
            latency: vec![1; NANOS_BOUNDS.len() + 1],
            ..Activity::default()
        };
        Point { number: 0, at_ms: number * 1000, span_ms: 1000, done, clients: 1 }
    }

    /// Returns the series after `seconds` seconds.
    fn after(seconds: u64) -> [Series; RESOLUTIONS.len()] {
        let mut all: [Series; RESOLUTIONS.len()] = Default::default();
        for number in 1..=seconds {
            for (series, resolution) in all.iter_mut().zip(RESOLUTIONS) {
                series.add(&second(number), resolution);
            }
        }
        all
    }

    #[test]
    fn points_add_up_and_the_open_one_is_replaced_by_its_complete_self() {
        let [seconds, tens, _] = after(25);
        assert_eq!(seconds.after(0).count(), 25);
        assert_eq!(seconds.after(23).map(|point| point.number).collect::<Vec<_>>(), [24, 25]);
        let sums: Vec<_> = tens.after(0).map(|point| (point.number, point.done.commands[0])).collect();
        assert_eq!(sums, [(1, 55), (2, 155), (3, 115)], "the third is open");
        let [_, tens, _] = after(30);
        let sums: Vec<_> = tens.after(2).map(|point| (point.number, point.done.commands[0])).collect();
        assert_eq!(sums, [(3, 255)]);
        assert_eq!(tens.after(3).count(), 0);
    }

    #[test]
    fn a_day_takes_bounded_memory() {
        let all = after(2 * 86_400);
        let mut bytes = 0;
        for (series, (seconds, kept)) in all.iter().zip(RESOLUTIONS) {
            assert_eq!(series.points.len(), kept, "{seconds} s");
            assert_eq!(series.points.back().unwrap().number, 2 * 86_400 / seconds);
            bytes += series.points.capacity() * size_of::<Point>();
            let words = |point: &Point| point.done.commands.capacity() + point.done.latency.capacity();
            bytes += 8 * series.points.iter().map(words).sum::<usize>();
        }
        assert!(bytes < 512 << 10, "{bytes} bytes");
    }

    #[test]
    fn queries_are_read() {
        let parsed = |query| HistoryQuery::parse(query);
        assert_eq!(parsed(""), Ok(HistoryQuery { resolution: 0, after: 0 }));
        assert_eq!(parsed("after=7&step=300"), Ok(HistoryQuery { resolution: 2, after: 7 }));
        for query in ["step=2", "step=", "step=x", "after=-1", "after=99999999999999999999"] {
            assert!(parsed(query).is_err(), "{query}");
        }
    }
}
