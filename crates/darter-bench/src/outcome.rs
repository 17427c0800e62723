//! What came of a phase: operations, time, latencies and counts.

use darter::Counters;
use hdrhistogram::Histogram;

/// Longest latency told apart, in nanoseconds: one minute.
const LATENCY_NS_MAX: u64 = 60_000_000_000;

/// What came of it.
#[derive(Clone, Debug)]
pub(crate) struct Outcome {
    pub(crate) ops: u64,
    pub(crate) seconds: f64,
    /// Reads, updates and scans that did not find their key.
    pub(crate) not_found: u64,
    /// In nanoseconds.
    pub(crate) latency: Histogram<u64>,
    /// `None` when the target does not count.
    pub(crate) counters: Option<Counters>,
    /// Records there are now.
    pub(crate) records: u64,
    /// What was busiest, where a model knows.
    pub(crate) bottleneck: Option<String>,
}

impl Outcome {
    /// Nothing yet.
    pub(crate) fn new(records: u64) -> Self {
        let latency = latency_histogram();
        let counters = Some(Counters::default());
        Self { ops: 0, seconds: 0.0, not_found: 0, latency, counters, records, bottleneck: None }
    }

    /// Adds what others did in the same time.
    pub(crate) fn add(&mut self, other: &Self) {
        self.ops += other.ops;
        self.not_found += other.not_found;
        self.seconds = self.seconds.max(other.seconds);
        self.counters = self.counters.zip(other.counters).map(|(mine, theirs)| mine + theirs);
        // Equal bounds and precision: nothing can be out of range.
        let _ = self.latency.add(&other.latency);
    }

    pub(crate) fn ops_per_s(&self) -> f64 {
        if self.seconds > 0.0 { self.ops as f64 / self.seconds } else { 0.0 }
    }
}

/// A histogram of nanoseconds. One that grows by itself would not when it is asked to saturate.
pub(crate) fn latency_histogram() -> Histogram<u64> {
    // Bounds and precision are constants that the constructor accepts.
    Histogram::new_with_bounds(1, LATENCY_NS_MAX, 3)
        .unwrap_or_else(|error| unreachable!("constant histogram bounds: {error:?}"))
}
