//! The clients that stay alive: threads that get and update. Latencies are grouped by the last
//! victim that ended.

use crate::datasets::{Dataset, RandInt};
use darter::{Condition, PutOutcome, Session};
use darter_bench::BenchError;
use darter_bench::executor::Values;
use darter_bench::outcome::latency_histogram;
use hdrhistogram::Histogram;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use std::hint::black_box;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError, RwLock};
use std::time::{Duration, Instant};

/// How long after a kill latencies are not limited by the targets.
pub(super) const GRACE: Duration = Duration::from_millis(10);

/// Latencies in nanoseconds, by kind of operation.
#[derive(Clone, Debug)]
pub(super) struct Latencies {
    pub(super) get: Histogram<u64>,
    pub(super) update: Histogram<u64>,
}

impl Latencies {
    pub(super) fn new() -> Self {
        Self { get: latency_histogram(), update: latency_histogram() }
    }

    pub(super) fn add(&mut self, other: &Self) {
        // Equal bounds and precision: nothing can be out of range.
        let _ = self.get.add(&other.get);
        let _ = self.update.add(&other.update);
    }

    fn clear(&mut self) {
        self.get.reset();
        self.update.reset();
    }

    fn is_empty(&self) -> bool {
        self.get.is_empty() && self.update.is_empty()
    }
}

/// The last end of a victim in a block.
#[derive(Clone, Copy, Debug)]
struct VictimEnd {
    /// Its number, from 1; 0 before the first.
    number: usize,
    at: Instant,
}

/// State shared by the observers of a block and the thread that ends the victims.
pub(super) struct Block {
    last: RwLock<VictimEnd>,
    has_ended: AtomicBool,
    /// By number of the preceding end: the latencies after it, except the first moments after a
    /// kill.
    turns: Mutex<Vec<Latencies>>,
    /// The latencies in the first moments after kills.
    early: Mutex<Latencies>,
    /// Whether the ends are kills.
    is_disturbed: bool,
}

impl Block {
    pub(super) fn new(ends: usize, is_disturbed: bool) -> Self {
        Self {
            last: RwLock::new(VictimEnd { number: 0, at: Instant::now() }),
            has_ended: AtomicBool::new(false),
            turns: Mutex::new(vec![Latencies::new(); ends + 1]),
            early: Mutex::new(Latencies::new()),
            is_disturbed,
        }
    }

    /// Records that a victim ends now. Returns the time.
    pub(super) fn note_end(&self) -> Instant {
        let mut last = self.last.write().unwrap_or_else(PoisonError::into_inner);
        *last = VictimEnd { number: last.number + 1, at: Instant::now() };
        last.at
    }

    /// Makes the observers end.
    pub(super) fn finish(&self) {
        self.has_ended.store(true, Ordering::Relaxed);
    }

    /// Returns the latencies after each end, and those of the first moments after kills. Operations
    /// before the first end are a warm-up and do not count.
    pub(super) fn into_seen(self) -> (Vec<Latencies>, Latencies) {
        let mut turns = self.turns.into_inner().unwrap_or_else(PoisonError::into_inner);
        turns.remove(0);
        (turns, self.early.into_inner().unwrap_or_else(PoisonError::into_inner))
    }

    fn put_down(&self, number: usize, seen: &mut Latencies) {
        if !seen.is_empty() {
            let mut turns = self.turns.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(turn) = turns.get_mut(number) {
                turn.add(seen);
            }
            seen.clear();
        }
    }

    /// Runs operations until the block is over: half gets, half updates, of records chosen evenly.
    pub(super) fn observe(
        &self,
        session: &Session,
        dataset: &RandInt,
        records: u64,
        values: &mut Values,
        seed: u64,
    ) -> Result<(), BenchError> {
        let mut rng = Pcg64Mcg::seed_from_u64(seed);
        let (mut seen, mut early, mut key) = (Latencies::new(), Latencies::new(), Vec::new());
        let mut number = 0;
        while !self.has_ended.load(Ordering::Relaxed) {
            dataset.key(rng.random_range(0..records), &mut key);
            let is_get = rng.random_bool(0.5);
            let begin = Instant::now();
            let found = if is_get {
                session.get_with(&key, |value| black_box(value.len()))?.is_some()
            } else {
                session.put_if(&key, values.next(), Condition::Present)? == PutOutcome::Replaced
            };
            let end = Instant::now();
            if !found {
                let what = format!("record {} is missing", key.escape_ascii());
                return Err(BenchError::WrongAnswer { index: "dart", what });
            }
            let last = *self.last.read().unwrap_or_else(PoisonError::into_inner);
            if last.number != number {
                self.put_down(number, &mut seen);
                number = last.number;
            }
            // The recorded moment is before the kill, so an operation that a kill delays ends after
            // it.
            let is_early = self.is_disturbed && number > 0 && end >= last.at && begin <= last.at + GRACE;
            let latencies = if is_early { &mut early } else { &mut seen };
            let histogram = if is_get { &mut latencies.get } else { &mut latencies.update };
            histogram.saturating_record((end - begin).as_nanos() as u64);
        }
        self.put_down(number, &mut seen);
        self.early.lock().unwrap_or_else(PoisonError::into_inner).add(&early);
        Ok(())
    }
}
