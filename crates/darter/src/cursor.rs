//! A cursor: the state of a scan, which fetches chunks from either end of the rest of a range.
//!
//! A chunk is one scan of the index. The cursor removes every chunk it fetched from the range, so
//! the two ends never overlap and no key is returned twice. Chunks begin small and double while
//! their size stays below [`CHUNK_BYTES`], so that reading a few keys fetches little, a long scan
//! needs few round trips, and large values do not fill memory.
//!
//! The cursor changes only after a chunk has arrived, so nothing is lost if a future is dropped
//! before.

use crate::Error;
use darter_index::{KeyValue, ScanRange};
use std::collections::VecDeque;
use std::ops::Bound;

/// Number of pairs in the first chunk if there is no limit.
const CHUNK_FIRST: usize = 16;
/// Maximum number of pairs in the first chunk if there is a limit.
const CHUNK_FIRST_LIMITED: usize = 128;
/// Maximum number of pairs in any chunk.
const CHUNK_MAX: usize = 512;
/// Target size of a chunk in bytes of keys and values, estimated from the previous chunk.
const CHUNK_BYTES: usize = 1 << 20;

/// An end of the rest of a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RangeEnd {
    Low,
    High,
}

/// The rest of a scan, and the pairs that were fetched but not returned yet.
#[derive(Debug)]
pub(crate) struct Cursor {
    /// The part of the range that no chunk has covered yet, ascending.
    left: ScanRange,
    /// Whether the caller's first end is the high one.
    descending: bool,
    /// Whether there are no pairs beyond the buffers.
    exhausted: bool,
    /// Pairs fetched from the low end, ascending.
    low: VecDeque<KeyValue>,
    /// Pairs fetched from the high end, descending.
    high: VecDeque<KeyValue>,
    /// Number of pairs that may still be returned.
    limit: usize,
    /// Number of pairs in the next chunk.
    chunk: usize,
}

impl Cursor {
    pub(crate) fn new(range: ScanRange) -> Self {
        Self {
            descending: range.reverse,
            left: ScanRange { reverse: false, ..range },
            exhausted: false,
            low: VecDeque::new(),
            high: VecDeque::new(),
            limit: usize::MAX,
            chunk: CHUNK_FIRST,
        }
    }

    pub(crate) fn limit(&mut self, limit: usize) {
        self.limit = limit;
        self.chunk = limit.clamp(1, CHUNK_FIRST_LIMITED);
    }

    /// Returns the end that is the caller's "front" or "back".
    pub(crate) fn end(&self, front: bool) -> RangeEnd {
        if front == self.descending { RangeEnd::High } else { RangeEnd::Low }
    }

    /// Returns the next pair from the buffers, if it is known.
    fn pop(&mut self, end: RangeEnd) -> Option<KeyValue> {
        if self.limit == 0 {
            return None;
        }
        let (near, far) = match end {
            RangeEnd::Low => (&mut self.low, &mut self.high),
            RangeEnd::High => (&mut self.high, &mut self.low),
        };
        let pair = near.pop_front().or_else(|| if self.exhausted { far.pop_back() } else { None });
        self.limit -= usize::from(pair.is_some());
        pair
    }

    /// Returns the chunk to fetch if [`Cursor::pop`] had no pair; `None` if the scan has ended.
    fn wanted(&self, end: RangeEnd) -> Option<(ScanRange, usize)> {
        if self.exhausted || self.limit == 0 {
            return None;
        }
        Some((ScanRange { reverse: end == RangeEnd::High, ..self.left.clone() }, self.chunk.min(self.limit)))
    }

    /// Returns the next step to get a pair from an end.
    pub(crate) fn step(&mut self, end: RangeEnd) -> CursorStep {
        match self.pop(end) {
            Some(pair) => CursorStep::Pair(Some(pair)),
            None => self
                .wanted(end)
                .map_or(CursorStep::Pair(None), |(range, asked)| CursorStep::Fetch(range, asked)),
        }
    }

    /// Accepts a chunk of at most `asked` pairs, or ends the scan after an error, which it returns.
    pub(crate) fn accept(
        &mut self,
        end: RangeEnd,
        asked: usize,
        fetched: Result<Vec<KeyValue>, Error>,
    ) -> Result<(), Error> {
        let pairs = fetched.inspect_err(|_| self.limit = 0)?;
        self.exhausted = pairs.len() < asked;
        if let Some((last, _)) = pairs.last() {
            let bytes: usize = pairs.iter().map(|(key, value)| key.len() + value.len()).sum();
            let fitting = CHUNK_BYTES / (bytes / pairs.len()).max(1);
            self.chunk = (self.chunk * 2).min(CHUNK_MAX).min(fitting).max(1);
            match end {
                RangeEnd::Low => self.left.from = Bound::Excluded(last.clone()),
                RangeEnd::High => self.left.to = Bound::Excluded(last.clone()),
            }
        }
        match end {
            RangeEnd::Low => self.low = pairs.into(),
            RangeEnd::High => self.high = pairs.into(),
        }
        Ok(())
    }
}

/// The next step of a cursor's owner.
pub(crate) enum CursorStep {
    /// Return this pair; `None` if the scan has ended.
    Pair(Option<KeyValue>),
    /// Fetch at most this number of pairs of this range.
    Fetch(ScanRange, usize),
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A model of the index: the keys `0..keys`, of one byte each.
    fn fetch(keys: u8, range: &ScanRange, limit: usize) -> Vec<KeyValue> {
        let inside = |key: &u8| {
            let key = &[*key][..];
            let above = match &range.from {
                Bound::Included(from) => key >= &from[..],
                Bound::Excluded(from) => key > &from[..],
                Bound::Unbounded => true,
            };
            above
                && match &range.to {
                    Bound::Included(to) => key <= &to[..],
                    Bound::Excluded(to) => key < &to[..],
                    Bound::Unbounded => true,
                }
        };
        let pairs = (0..keys).filter(inside).map(|key| (vec![key], vec![]));
        if range.reverse { pairs.rev().take(limit).collect() } else { pairs.take(limit).collect() }
    }

    fn next(cursor: &mut Cursor, keys: u8, front: bool) -> Option<u8> {
        let end = cursor.end(front);
        loop {
            if let Some((key, _)) = cursor.pop(end) {
                return Some(key[0]);
            }
            let (range, asked) = cursor.wanted(end)?;
            let pairs = fetch(keys, &range, asked);
            cursor.accept(end, asked, Ok(pairs)).unwrap();
        }
    }

    /// Every key is returned once and from its end, for every order in which pairs are taken from
    /// the ends.
    #[test]
    fn both_ends_meet_without_gap_or_double() {
        for keys in [0, 1, 15, 16, 17, 48, 100, 200] {
            for pattern in 0..64_u32 {
                for descending in [false, true] {
                    let range = ScanRange { reverse: descending, ..ScanRange::all() };
                    let mut cursor = Cursor::new(range);
                    let mut expected: VecDeque<u8> =
                        if descending { (0..keys).rev().collect() } else { (0..keys).collect() };
                    for step in 0.. {
                        let front = pattern >> (step % 6) & 1 == 0;
                        let want = if front { expected.pop_front() } else { expected.pop_back() };
                        assert_eq!(next(&mut cursor, keys, front), want, "{keys} keys, pattern {pattern:b}");
                        if want.is_none() {
                            break;
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn a_limit_bounds_the_pairs_fetched() {
        let mut cursor = Cursor::new(ScanRange::all());
        cursor.limit(20);
        assert_eq!(cursor.wanted(RangeEnd::Low).map(|(_, asked)| asked), Some(20));
        assert_eq!((0..).map_while(|_| next(&mut cursor, 200, true)).count(), 20);
        assert!(cursor.wanted(RangeEnd::Low).is_none());
        cursor.limit(0);
        assert_eq!(next(&mut cursor, 200, true), None);
    }

    #[test]
    fn chunks_shrink_when_values_are_large() {
        let mut cursor = Cursor::new(ScanRange::all());
        let large = (0..16).map(|key| (vec![key], vec![0; CHUNK_BYTES / 4])).collect();
        cursor.accept(RangeEnd::Low, 16, Ok(large)).unwrap();
        assert_eq!(cursor.chunk, 3);
    }
}
