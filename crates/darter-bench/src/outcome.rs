//! The outcome of a phase: operations, time, latencies and counts.

use darter::Counters;
use hdrhistogram::Histogram;

/// Longest latency that is recorded exactly, in nanoseconds: one minute.
const LATENCY_NS_MAX: u64 = 60_000_000_000;

/// The measurements of a phase.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// Operations.
    pub ops: u64,
    /// Busy time of the busiest thread.
    pub seconds: f64,
    /// Reads, updates and scans that did not find their key.
    pub not_found: u64,
    /// Latencies in nanoseconds.
    pub latency: Histogram<u64>,
    /// `None` if the target does not count.
    pub counters: Option<Counters>,
    /// Records in the index at the end.
    pub records: u64,
    /// The busiest resource, if a model reports it.
    pub bottleneck: Option<String>,
}

impl Outcome {
    /// Returns an outcome without operations.
    pub fn new(records: u64) -> Self {
        let latency = latency_histogram();
        let counters = Some(Counters::default());
        Self { ops: 0, seconds: 0.0, not_found: 0, latency, counters, records, bottleneck: None }
    }

    /// Adds the outcome of operations that ran at the same time.
    pub fn add(&mut self, other: &Self) {
        self.ops += other.ops;
        self.not_found += other.not_found;
        self.seconds = self.seconds.max(other.seconds);
        self.counters = self.counters.zip(other.counters).map(|(mine, theirs)| mine + theirs);
        // Equal bounds and precision: nothing can be out of range.
        let _ = self.latency.add(&other.latency);
    }

    /// Returns the operations per second of all threads together.
    pub fn ops_per_s(&self) -> f64 {
        if self.seconds > 0.0 { self.ops as f64 / self.seconds } else { 0.0 }
    }
}

/// Returns a histogram of nanoseconds with fixed bounds, because a saturating record does not
/// resize an automatic histogram.
pub fn latency_histogram() -> Histogram<u64> {
    // Bounds and precision are constants that the constructor accepts.
    Histogram::new_with_bounds(1, LATENCY_NS_MAX, 3)
        .unwrap_or_else(|error| unreachable!("constant histogram bounds: {error:?}"))
}
