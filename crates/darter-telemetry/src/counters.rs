//! Counters with a single writer: the thread that counts uses plain relaxed stores, and any thread
//! reads.
//!
//! With a single writer a plain load and a plain store suffice, which cost the serving thread less
//! than an atomic read-modify-write instruction.

use std::ops::AddAssign;
use std::sync::atomic::{AtomicU64, Ordering};

/// A number that one thread writes and any thread reads.
///
/// It serves as a counter (`add`) or as a gauge (`set`, `change`). With two writers updates would
/// be lost.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Returns the current value.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    /// Replaces the value.
    #[inline]
    pub fn set(&self, value: u64) {
        self.0.store(value, Ordering::Relaxed);
    }

    /// Adds to the value, wrapping around on overflow.
    #[inline]
    pub fn add(&self, more: u64) {
        self.set(self.get().wrapping_add(more));
    }

    /// Replaces one contribution to a sum, `from`, by another, `to`.
    #[inline]
    pub fn change(&self, from: usize, to: usize) {
        self.set(self.get().wrapping_sub(from as u64).wrapping_add(to as u64));
    }
}

/// A histogram with one writer and exponential buckets.
///
/// The first bucket holds values up to `FIRST`, each further one values up to `2^STEP` times the
/// bound before, and the last bucket all larger values.
#[derive(Debug)]
pub struct Histogram<const FIRST: u64, const STEP: u32, const BUCKETS: usize> {
    buckets: [Counter; BUCKETS],
    sum: Counter,
}

/// The contents of a [`Histogram`] at one moment, or the sum of several histograms with the same
/// bounds.
#[derive(Clone, Debug, PartialEq)]
pub struct HistogramSnapshot {
    /// The upper bound of each bucket and the number of values in it (not cumulative).
    pub buckets: Vec<(f64, u64)>,
    /// The sum of all values.
    pub sum: u64,
}

impl<const FIRST: u64, const STEP: u32, const BUCKETS: usize> Default for Histogram<FIRST, STEP, BUCKETS> {
    fn default() -> Self {
        Self { buckets: std::array::from_fn(|_| Counter::default()), sum: Counter::default() }
    }
}

impl<const FIRST: u64, const STEP: u32, const BUCKETS: usize> Histogram<FIRST, STEP, BUCKETS> {
    /// Records a value.
    #[inline]
    pub fn record(&self, value: u64) {
        let beyond = value.saturating_sub(1) / FIRST;
        let at = (u64::BITS - beyond.leading_zeros()).div_ceil(STEP) as usize;
        self.buckets[at.min(BUCKETS - 1)].add(1);
        self.sum.add(value);
    }

    /// Returns the current contents.
    pub fn snapshot(&self) -> HistogramSnapshot {
        let bound = |at| {
            if at + 1 == BUCKETS { f64::INFINITY } else { (FIRST << (STEP as usize * at)) as f64 }
        };
        let buckets = self.buckets.iter().enumerate().map(|(at, count)| (bound(at), count.get()));
        HistogramSnapshot { buckets: buckets.collect(), sum: self.sum.get() }
    }
}

impl HistogramSnapshot {
    /// Returns the number of values.
    pub fn count(&self) -> u64 {
        self.buckets.iter().map(|(_, count)| count).sum()
    }
}

impl AddAssign for HistogramSnapshot {
    /// Adds the values of a histogram with the same bounds.
    fn add_assign(&mut self, other: Self) {
        for (mine, theirs) in self.buckets.iter_mut().zip(other.buckets) {
            mine.1 += theirs.1;
        }
        self.sum = self.sum.wrapping_add(other.sum);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_hold_what_their_bounds_say() {
        let coarse = Histogram::<1000, 2, 10>::default();
        for value in [0, 1, 1000, 1001, 4000, 4001, 16_000, u64::MAX >> 8] {
            coarse.record(value);
        }
        let mut sum = coarse.snapshot();
        assert_eq!(sum.buckets[..4], [(1000.0, 3), (4000.0, 2), (16_000.0, 2), (64_000.0, 0)]);
        assert_eq!(sum.buckets[9], (f64::INFINITY, 1));
        assert_eq!(sum.count(), 8);
        let fine = Histogram::<1000, 1, 24>::default();
        for value in [1000, 1001, 2000, 2001, 8_000] {
            fine.record(value);
        }
        assert_eq!(fine.snapshot().buckets[..4], [(1000.0, 1), (2000.0, 2), (4000.0, 1), (8000.0, 1)]);
        sum += coarse.snapshot();
        assert_eq!((sum.count(), sum.buckets[1]), (16, (4000.0, 4)));
    }
}
