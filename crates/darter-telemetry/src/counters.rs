//! Counters with a single writer: the thread that counts uses plain relaxed loads and stores, and
//! any thread reads.
//!
//! With a single writer these suffice. They cost the serving thread less than an atomic
//! read-modify-write instruction.

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

/// The upper bounds of a histogram of durations in nanoseconds: from one microsecond to five
/// seconds.
pub static NANOS_BOUNDS: [u64; 21] = one_two_five(1000);

/// Returns bounds that are easy to read: 1, 2 and 5 times each power of ten, starting with `first`.
pub const fn one_two_five<const N: usize>(first: u64) -> [u64; N] {
    let mut bounds = [0; N];
    let (mut at, mut decade) = (0, first);
    while at < N {
        bounds[at] = decade * [1, 2, 5][at % 3];
        if at % 3 == 2 {
            decade *= 10;
        }
        at += 1;
    }
    bounds
}

/// A histogram with one writer and fixed buckets.
///
/// Each bucket holds the values up to its bound that are larger than the bound before; one more
/// bucket holds all values above the last bound.
#[derive(Debug)]
pub struct Histogram {
    bounds: &'static [u64],
    /// The first bucket for values of each bit length: a value is in this bucket or in one of the
    /// few that follow, which is faster to find than by a binary search.
    first: [u8; u64::BITS as usize + 1],
    buckets: Box<[Counter]>,
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

impl Histogram {
    /// Creates an empty histogram with these upper bounds, at most 255 and in ascending order.
    pub fn new(bounds: &'static [u64]) -> Self {
        let least = |bits: usize| if bits == 0 { 0 } else { 1 << (bits - 1) };
        let first = std::array::from_fn(|bits| bounds.partition_point(|&bound| bound < least(bits)) as u8);
        let buckets = (0..=bounds.len()).map(|_| Counter::default()).collect();
        Self { bounds, first, buckets, sum: Counter::default() }
    }

    /// Records a value.
    #[inline]
    pub fn record(&self, value: u64) {
        self.buckets[self.bucket_of(value)].add(1);
        self.sum.add(value);
    }

    #[inline]
    fn bucket_of(&self, value: u64) -> usize {
        let from = usize::from(self.first[(u64::BITS - value.leading_zeros()) as usize]);
        from + self.bounds[from..].iter().take_while(|&&bound| bound < value).count()
    }

    /// Returns the current contents.
    pub fn snapshot(&self) -> HistogramSnapshot {
        let bounds = self.bounds.iter().map(|&bound| bound as f64).chain([f64::INFINITY]);
        let buckets = bounds.zip(&self.buckets).map(|(bound, count)| (bound, count.get()));
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
        static BOUNDS: [u64; 4] = one_two_five(1000);
        assert_eq!(BOUNDS, [1000, 2000, 5000, 10_000]);
        let histogram = Histogram::new(&BOUNDS);
        for value in [0, 1, 1000, 1001, 2000, 2001, 10_000, 10_001, u64::MAX >> 8] {
            histogram.record(value);
        }
        let mut sum = histogram.snapshot();
        let expected = [(1000.0, 3), (2000.0, 2), (5000.0, 1), (10_000.0, 1), (f64::INFINITY, 2)];
        assert_eq!(sum.buckets, expected);
        assert_eq!(sum.count(), 9);
        sum += histogram.snapshot();
        assert_eq!((sum.count(), sum.buckets[1]), (18, (2000.0, 4)));
    }

    #[test]
    fn durations_are_counted_from_a_microsecond_to_five_seconds() {
        assert_eq!(NANOS_BOUNDS[..4], [1000, 2000, 5000, 10_000]);
        assert_eq!(NANOS_BOUNDS[18..], [1_000_000_000, 2_000_000_000, 5_000_000_000]);
        let histogram = Histogram::new(&NANOS_BOUNDS);
        let beside = NANOS_BOUNDS.iter().flat_map(|bound| [bound - 1, *bound, bound + 1]);
        let powers = (0..u64::BITS).flat_map(|bit| [(1 << bit) - 1, 1 << bit, (1 << bit) + 1]);
        for value in beside.chain(powers).chain([0, u64::MAX]) {
            let expected = NANOS_BOUNDS.partition_point(|&bound| bound < value);
            assert_eq!(histogram.bucket_of(value), expected, "{value}");
        }
    }
}
