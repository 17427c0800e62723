//! Scans as iterators: a cursor that fetches chunks from either end of what is left of a range.
//!
//! A chunk is one scan of the index. The cursor narrows the range past every chunk it fetched, so
//! the two ends never overlap and no key comes twice. Chunks begin small and double while their
//! bytes stay below [`CHUNK_BYTES`], so that a look at a few keys reads little and a long scan few
//! times, and large values do not fill memory.
//!
//! The cursor changes only after a chunk has arrived: a future dropped in between has lost nothing.

use crate::{AsyncSession, DefaultFabric, Error, KeyRange};
use darter_fabric::{Fabric, block_on};
use darter_index::{KeyValue, ScanRange};
use std::collections::VecDeque;
use std::ops::Bound;

/// Pairs in the first chunk when no limit was given.
const CHUNK_FIRST: usize = 16;
/// Pairs in the first chunk at most when a limit was given.
const CHUNK_FIRST_LIMITED: usize = 128;
/// Pairs in any chunk at most.
const CHUNK_MAX: usize = 512;
/// Bytes of keys and values that a chunk should not exceed, going by the one before it.
const CHUNK_BYTES: usize = 1 << 20;

/// An end of what is left of a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    Low,
    High,
}

/// What is left of a scan, and what was fetched and not yet handed out.
#[derive(Debug)]
pub(crate) struct Cursor {
    /// What no chunk has covered yet, ascending.
    left: ScanRange,
    /// Whether the caller's first end is the high one.
    descending: bool,
    /// Nothing is left beyond the buffers.
    exhausted: bool,
    /// Fetched from the low end, ascending.
    low: VecDeque<KeyValue>,
    /// Fetched from the high end, descending.
    high: VecDeque<KeyValue>,
    /// Pairs that may still be handed out.
    limit: usize,
    /// Pairs in the next chunk.
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

    fn limit(&mut self, limit: usize) {
        self.limit = limit;
        self.chunk = limit.clamp(1, CHUNK_FIRST_LIMITED);
    }

    /// Returns the end the caller means by "front" or "back".
    fn end(&self, front: bool) -> End {
        if front == self.descending { End::High } else { End::Low }
    }

    /// Returns the next pair from the buffers, when it is known.
    fn pop(&mut self, end: End) -> Option<KeyValue> {
        if self.limit == 0 {
            return None;
        }
        let (near, far) = match end {
            End::Low => (&mut self.low, &mut self.high),
            End::High => (&mut self.high, &mut self.low),
        };
        let pair = near.pop_front().or_else(|| if self.exhausted { far.pop_back() } else { None });
        self.limit -= usize::from(pair.is_some());
        pair
    }

    /// Returns the chunk to fetch when [`Cursor::pop`] had none; `None` when the scan is over.
    fn wanted(&self, end: End) -> Option<(ScanRange, usize)> {
        if self.exhausted || self.limit == 0 {
            return None;
        }
        Some((ScanRange { reverse: end == End::High, ..self.left.clone() }, self.chunk.min(self.limit)))
    }

    /// Accepts a chunk of at most `asked` pairs.
    fn accept(&mut self, end: End, asked: usize, pairs: Vec<KeyValue>) {
        self.exhausted = pairs.len() < asked;
        if let Some((last, _)) = pairs.last() {
            let bytes: usize = pairs.iter().map(|(key, value)| key.len() + value.len()).sum();
            let fitting = CHUNK_BYTES / (bytes / pairs.len()).max(1);
            self.chunk = (self.chunk * 2).min(CHUNK_MAX).min(fitting).max(1);
            match end {
                End::Low => self.left.from = Bound::Excluded(last.clone()),
                End::High => self.left.to = Bound::Excluded(last.clone()),
            }
        }
        match end {
            End::Low => self.low = pairs.into(),
            End::High => self.high = pairs.into(),
        }
    }

    /// Ends the scan after an error.
    fn end_now(&mut self) {
        self.limit = 0;
    }
}

impl<F: Fabric> AsyncSession<F> {
    /// Returns the pairs whose keys lie in a range, fetched in chunks as the scan proceeds.
    pub fn scan(&mut self, range: impl KeyRange) -> AsyncScan<'_, F> {
        AsyncScan::new(self, Cursor::new(range.into_scan_range()))
    }

    /// Returns the pairs whose keys begin with `prefix`.
    pub fn scan_prefix(&mut self, prefix: impl AsRef<[u8]>) -> AsyncScan<'_, F> {
        self.scan(ScanRange::prefix(prefix.as_ref()))
    }
}

/// Returns the next pair from one end of a scan.
async fn next_from<F: Fabric>(
    session: &mut AsyncSession<F>,
    cursor: &mut Cursor,
    front: bool,
) -> Option<Result<KeyValue, Error>> {
    let end = cursor.end(front);
    loop {
        if let Some(pair) = cursor.pop(end) {
            return Some(Ok(pair));
        }
        let (range, asked) = cursor.wanted(end)?;
        match session.scan_chunk(&range, asked).await {
            Ok(pairs) => cursor.accept(end, asked, pairs),
            Err(error) => {
                cursor.end_now();
                return Some(Err(error));
            }
        }
    }
}

/// A scan as an iterator over pairs of key and value; `rev()` goes from the other end. It ends
/// after an error.
///
/// What others change while it runs may or may not appear; a key that is there throughout does,
/// once.
#[derive(Debug)]
#[must_use = "a scan does nothing until iterated"]
pub struct Scan<'s, F: Fabric = DefaultFabric> {
    session: &'s mut AsyncSession<F>,
    cursor: Cursor,
}

impl<'s, F: Fabric> Scan<'s, F> {
    pub(crate) fn new(session: &'s mut AsyncSession<F>, cursor: Cursor) -> Self {
        Self { session, cursor }
    }

    /// Hands out at most `limit` pairs, counted from whichever end they are taken: `limit(3).rev()`
    /// gives the last three. Unlike [`Iterator::take`], it also spares fetching more than that.
    pub fn limit(mut self, limit: usize) -> Self {
        self.cursor.limit(limit);
        self
    }
}

impl<F: Fabric> Iterator for Scan<'_, F> {
    type Item = Result<KeyValue, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        block_on(next_from(self.session, &mut self.cursor, true))
    }
}

impl<F: Fabric> DoubleEndedIterator for Scan<'_, F> {
    fn next_back(&mut self) -> Option<Self::Item> {
        block_on(next_from(self.session, &mut self.cursor, false))
    }
}

impl<F: Fabric> std::iter::FusedIterator for Scan<'_, F> {}

/// A scan whose pairs are awaited; otherwise as [`Scan`].
#[derive(Debug)]
#[must_use = "a scan does nothing until asked for its next pair"]
pub struct AsyncScan<'s, F: Fabric = DefaultFabric> {
    session: &'s mut AsyncSession<F>,
    cursor: Cursor,
}

impl<'s, F: Fabric> AsyncScan<'s, F> {
    pub(crate) fn new(session: &'s mut AsyncSession<F>, cursor: Cursor) -> Self {
        Self { session, cursor }
    }

    /// As [`Scan::limit`].
    pub fn limit(mut self, limit: usize) -> Self {
        self.cursor.limit(limit);
        self
    }

    /// Returns the next pair in the range's direction. A future dropped in mid-air loses no pair.
    pub async fn next(&mut self) -> Option<Result<KeyValue, Error>> {
        next_from(self.session, &mut self.cursor, true).await
    }

    /// Returns the next pair from the other end.
    pub async fn next_back(&mut self) -> Option<Result<KeyValue, Error>> {
        next_from(self.session, &mut self.cursor, false).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A model of the index: the keys `0..keys` as one byte each.
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
            cursor.accept(end, asked, pairs);
        }
    }

    /// Whichever ends are taken from, in whatever order, every key comes once and from its end.
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
    fn a_limit_bounds_what_is_fetched() {
        let mut cursor = Cursor::new(ScanRange::all());
        cursor.limit(20);
        assert_eq!(cursor.wanted(End::Low).map(|(_, asked)| asked), Some(20));
        assert_eq!((0..).map_while(|_| next(&mut cursor, 200, true)).count(), 20);
        assert!(cursor.wanted(End::Low).is_none());
        cursor.limit(0);
        assert_eq!(next(&mut cursor, 200, true), None);
    }

    #[test]
    fn chunks_shrink_when_values_are_large() {
        let mut cursor = Cursor::new(ScanRange::all());
        let large = (0..16).map(|key| (vec![key], vec![0; CHUNK_BYTES / 4])).collect();
        cursor.accept(End::Low, 16, large);
        assert_eq!(cursor.chunk, 3);
    }
}
