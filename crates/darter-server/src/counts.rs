//! Numbers that a daemon's thread counts for operators: plain relaxed stores by the one thread that writes, read by any.

use std::ops::AddAssign;
use std::sync::atomic::{AtomicU64, Ordering};

/// A number that one thread writes and any may read.
#[derive(Debug, Default)]
pub(crate) struct Tally(AtomicU64);

impl Tally {
    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    /// No read-modify-write: there is one writer.
    #[inline]
    pub(crate) fn set(&self, value: u64) {
        self.0.store(value, Ordering::Relaxed);
    }

    #[inline]
    pub(crate) fn add(&self, more: u64) {
        self.set(self.get().wrapping_add(more));
    }

    /// A part of the number has changed.
    #[inline]
    pub(crate) fn change(&self, from: usize, to: usize) {
        self.set(self.get().wrapping_sub(from as u64).wrapping_add(to as u64));
    }
}

/// How often something was how large: a bucket up to `FIRST`, one up to `2^STEP` times that, and so on; the last takes the rest.
#[derive(Debug)]
pub(crate) struct Histogram<const FIRST: u64, const STEP: u32, const BUCKETS: usize> {
    buckets: [Tally; BUCKETS],
    sum: Tally,
}

/// A histogram as it was at some moment, or several together.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Seen {
    /// Each bucket's largest value, and how many fell into it.
    pub(crate) buckets: Vec<(f64, u64)>,
    /// Of all values.
    pub(crate) sum: u64,
}

impl<const FIRST: u64, const STEP: u32, const BUCKETS: usize> Default for Histogram<FIRST, STEP, BUCKETS> {
    fn default() -> Self {
        Self { buckets: std::array::from_fn(|_| Tally::default()), sum: Tally::default() }
    }
}

impl<const FIRST: u64, const STEP: u32, const BUCKETS: usize> Histogram<FIRST, STEP, BUCKETS> {
    #[inline]
    pub(crate) fn note(&self, value: u64) {
        let beyond = value.saturating_sub(1) / FIRST;
        let at = (u64::BITS - beyond.leading_zeros()).div_ceil(STEP) as usize;
        self.buckets[at.min(BUCKETS - 1)].add(1);
        self.sum.add(value);
    }

    pub(crate) fn seen(&self) -> Seen {
        let bound = |at| {
            if at + 1 == BUCKETS { f64::INFINITY } else { (FIRST << (STEP as usize * at)) as f64 }
        };
        let buckets = self.buckets.iter().enumerate().map(|(at, count)| (bound(at), count.get()));
        Seen { buckets: buckets.collect(), sum: self.sum.get() }
    }
}

impl Seen {
    /// How many values there were.
    pub(crate) fn count(&self) -> u64 {
        self.buckets.iter().map(|(_, count)| count).sum()
    }
}

impl AddAssign for Seen {
    /// Both have the same bounds.
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
        let noted = Histogram::<1000, 2, 10>::default();
        for value in [0, 1, 1000, 1001, 4000, 4001, 16_000, u64::MAX >> 8] {
            noted.note(value);
        }
        let mut seen = noted.seen();
        assert_eq!(seen.buckets[..4], [(1000.0, 3), (4000.0, 2), (16_000.0, 2), (64_000.0, 0)]);
        assert_eq!(seen.buckets[9], (f64::INFINITY, 1));
        assert_eq!(seen.count(), 8);
        let fine = Histogram::<1000, 1, 24>::default();
        for value in [1000, 1001, 2000, 2001, 8_000] {
            fine.note(value);
        }
        assert_eq!(fine.seen().buckets[..4], [(1000.0, 1), (2000.0, 2), (4000.0, 1), (8000.0, 1)]);
        seen += noted.seen();
        assert_eq!((seen.count(), seen.buckets[1]), (16, (4000.0, 4)));
    }
}
