//! Exact costs of operations: round trips, verbs, bytes and retries, by kind of operation.
//!
//! A call ([`Endpoint::call`](crate::Endpoint::call)) is a round trip without verbs; calls and
//! their bytes are also counted separately.
//!
//! READ counts its payload as read; WRITE its payload as written; CAS 8 bytes read and 16 written;
//! FAA 8 and 8.

use crate::OpKind;
use std::ops::{Add, AddAssign, Index, IndexMut, Sub, SubAssign};

/// The counts of one kind of operation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OpCounters {
    /// Operations started.
    pub ops: u64,
    /// Batches posted and calls made.
    pub round_trips: u64,
    /// Verbs in those batches.
    pub verbs: u64,
    /// Payload bytes from memory nodes to clients.
    pub read_bytes: u64,
    /// Payload bytes from clients to memory nodes.
    pub write_bytes: u64,
    /// Lost races after which the operation continued.
    pub retries: u64,
    /// Calls made, with or without a result; they are included in the round trips.
    pub calls: u64,
    /// Bytes of words sent by calls.
    pub call_bytes: u64,
    /// Bytes of words returned by calls.
    pub answer_bytes: u64,
}

impl OpCounters {
    /// The number of counts.
    pub const COUNT: usize = 9;

    /// Returns the counts in the order of the fields.
    pub fn to_array(self) -> [u64; Self::COUNT] {
        let Self {
            ops,
            round_trips,
            verbs,
            read_bytes,
            write_bytes,
            retries,
            calls,
            call_bytes,
            answer_bytes,
        } = self;
        [ops, round_trips, verbs, read_bytes, write_bytes, retries, calls, call_bytes, answer_bytes]
    }

    /// Returns the counts from an array of [`OpCounters::to_array`].
    pub fn from_array(counts: [u64; Self::COUNT]) -> Self {
        let [ops, round_trips, verbs, read_bytes, write_bytes, retries, calls, call_bytes, answer_bytes] =
            counts;
        Self { ops, round_trips, verbs, read_bytes, write_bytes, retries, calls, call_bytes, answer_bytes }
    }

    /// Returns the round trips per operation; 0 if there were none.
    pub fn round_trips_per_op(&self) -> f64 {
        if self.ops == 0 { 0.0 } else { self.round_trips as f64 / self.ops as f64 }
    }
}

impl AddAssign for OpCounters {
    fn add_assign(&mut self, other: Self) {
        let (mine, theirs) = (self.to_array(), other.to_array());
        *self = Self::from_array(std::array::from_fn(|at| mine[at] + theirs[at]));
    }
}

impl SubAssign for OpCounters {
    /// Subtracts the counts of `other`, taken earlier. A count that went backwards becomes 0.
    fn sub_assign(&mut self, other: Self) {
        let (mine, theirs) = (self.to_array(), other.to_array());
        *self = Self::from_array(std::array::from_fn(|at| mine[at].saturating_sub(theirs[at])));
    }
}

/// The counts of all kinds of operation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Counts by [`OpKind`], in the order of [`OpKind::ALL`].
    pub kinds: [OpCounters; OpKind::COUNT],
}

impl Counters {
    /// Returns the sum over all kinds.
    pub fn total(&self) -> OpCounters {
        self.kinds.iter().fold(OpCounters::default(), |sum, kind| sum + *kind)
    }
}

impl Index<OpKind> for Counters {
    type Output = OpCounters;

    #[inline]
    fn index(&self, kind: OpKind) -> &OpCounters {
        &self.kinds[kind as usize]
    }
}

impl IndexMut<OpKind> for Counters {
    #[inline]
    fn index_mut(&mut self, kind: OpKind) -> &mut OpCounters {
        &mut self.kinds[kind as usize]
    }
}

impl AddAssign for Counters {
    fn add_assign(&mut self, other: Self) {
        for (mine, theirs) in self.kinds.iter_mut().zip(other.kinds) {
            *mine += theirs;
        }
    }
}

impl SubAssign for Counters {
    fn sub_assign(&mut self, other: Self) {
        for (mine, theirs) in self.kinds.iter_mut().zip(other.kinds) {
            *mine -= theirs;
        }
    }
}

impl Add for OpCounters {
    type Output = Self;

    fn add(mut self, other: Self) -> Self {
        self += other;
        self
    }
}

impl Sub for OpCounters {
    type Output = Self;

    fn sub(mut self, other: Self) -> Self {
        self -= other;
        self
    }
}

impl Add for Counters {
    type Output = Self;

    fn add(mut self, other: Self) -> Self {
        self += other;
        self
    }
}

impl Sub for Counters {
    type Output = Self;

    fn sub(mut self, other: Self) -> Self {
        self -= other;
        self
    }
}

impl std::iter::Sum for Counters {
    fn sum<I: Iterator<Item = Self>>(counters: I) -> Self {
        counters.fold(Self::default(), Add::add)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn differences_and_sums_are_by_field() {
        let mut before = Counters::default();
        before[OpKind::Get] = OpCounters {
            ops: 1,
            round_trips: 2,
            verbs: 3,
            calls: 4,
            answer_bytes: 5,
            ..OpCounters::default()
        };
        let mut after = before + before;
        after[OpKind::Scan].ops = 10;
        assert_eq!((after - before)[OpKind::Get], before[OpKind::Get]);
        assert_eq!(after.total().ops, 12);
        assert_eq!((before - after)[OpKind::Get], OpCounters::default());
        assert!((before[OpKind::Get].round_trips_per_op() - 2.0).abs() < f64::EPSILON);
        assert!(OpCounters::default().round_trips_per_op().abs() < f64::EPSILON);
        assert_eq!([before, before].into_iter().sum::<Counters>()[OpKind::Get].answer_bytes, 10);
    }
}
