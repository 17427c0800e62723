//! Reads of lists. A command that reads several chunks reads each as it is at some time while the
//! command runs, like a command that reads several fields of a hash; a transaction verifies all of
//! them.

use super::End;
use super::chunk_id::ChunkId;
use super::form::{Chunks, Form, ListChunk};
use super::packed::Packed;
use crate::fault::{FOREIGN, Fault, WRONG_TYPE};
use crate::keyspace::aggregate::{Aggregate, is_empty};
use crate::keyspace::walk::go_behind;
use crate::keyspace::{Family, Head, Keyspace, Kind, Retries, session};
use crate::number;
use darter::ScanRange;
use std::collections::VecDeque;

/// Chunks that a walk reads at first.
const TOGETHER_FIRST: usize = 8;
/// Most chunks that are read at a time.
const TOGETHER_MAX: usize = 128;
/// Bytes of chunks that are read at a time, estimated from those before.
const TOGETHER_BYTES: usize = 1 << 20;

/// A chunk's identifier and its record.
pub(super) type Found = (ChunkId, Vec<u8>);

/// A walk over the chunks of a list.
#[derive(Debug)]
pub(super) struct ChunkWalk {
    list: Aggregate,
    range: ScanRange,
    asked: usize,
    is_through: bool,
    found: VecDeque<Found>,
}

impl ChunkWalk {
    /// Begins at an end of the list.
    pub(super) fn new(list: &Aggregate, from: End) -> Self {
        let range = list.range(Family::ListChunk);
        let range = if from == End::Left { range } else { range.reversed() };
        Self { list: list.clone(), range, asked: TOGETHER_FIRST, is_through: false, found: VecDeque::new() }
    }

    /// Returns the walk that finds the next chunk after one.
    pub(super) fn behind(list: &Aggregate, id: &[u8], from: End) -> Self {
        let mut walk = Self { asked: 1, ..Self::new(list, from) };
        go_behind(&mut walk.range, &list.place(Family::ListChunk, id));
        walk
    }
}

/// Elements of a record that a walk has met.
#[derive(Debug)]
pub(crate) struct Piece {
    record: Vec<u8>,
    /// The position of the packed elements in the record.
    at: usize,
    /// Elements of the record on the left of them.
    before: usize,
    count: usize,
}

impl Piece {
    /// Returns the length of its record in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.record.len()
    }

    /// Returns the elements, beginning at an end.
    pub(crate) fn elements(&self, from: End) -> impl Iterator<Item = &[u8]> {
        let packed = self.record.get(self.at..).and_then(|packed| Packed::parse(packed).ok());
        let packed = packed.unwrap_or(Packed::EMPTY);
        let skipped = match from {
            End::Left => self.before,
            End::Right => packed.count().saturating_sub(self.before + self.count),
        };
        packed.from(from).skip(skipped).take(self.count)
    }
}

/// Where a walk finds its elements.
#[derive(Debug)]
enum Source {
    /// In the rest of a record from a position on.
    Record(Vec<u8>, usize),
    Chunks(ChunkWalk),
    Ended,
}

/// A walk over elements of a list, from an end of it.
#[derive(Debug)]
pub(crate) struct ListWalk {
    /// The number of elements when the walk began.
    pub(crate) length: usize,
    /// The end from which it goes.
    pub(crate) from: End,
    /// The elements and the splits that must still be current when the walk has ended.
    begun: Option<(Aggregate, u64)>,
    source: Source,
    /// Elements before the next one.
    skipped: usize,
    /// Elements that are still to be returned.
    left: usize,
}

/// Returns the elements of a list of this length from one index to another, as Redis counts them:
/// the number of elements before them, and their number.
pub(crate) fn part(length: usize, from: i64, to: i64) -> (usize, usize) {
    let length = number::signed(length);
    let at = |index: i64| if index < 0 { length + index } else { index };
    let (from, to) = (at(from).max(0), at(to).min(length - 1));
    if from > to { (0, 0) } else { (from as usize, (to - from + 1) as usize) }
}

impl Keyspace {
    /// Returns the head of a list, or `None` if the key is absent.
    ///
    /// # Errors
    /// The store's errors, and [`WRONG_TYPE`].
    pub(super) async fn head_of_list(&mut self, key: &[u8]) -> Result<Option<Vec<u8>>, Fault> {
        let Some(record) = self.head_record(key).await? else { return Ok(None) };
        let head = Head::parse(&record)?;
        if head.kind == Kind::List {
            return Ok(Some(record));
        }
        let aggregate = Aggregate::of(key, &head).ok_or(WRONG_TYPE)?;
        let session = session(&mut self.session, &self.store)?;
        if is_empty(session, &aggregate, self.now).await? { Ok(None) } else { Err(WRONG_TYPE) }
    }

    /// Returns the records of the first and the last chunk; `None` if the chunks have changed since
    /// the head was read.
    async fn ends(&mut self, list: &Aggregate, chunks: &Chunks) -> Result<Option<[Vec<u8>; 2]>, Fault> {
        let places = [End::Left, End::Right].map(|end| list.place(Family::ListChunk, chunks.at(end)));
        let session = session(&mut self.session, &self.store)?;
        let records = session.get_many(&places).await?;
        for place in places {
            session.has_read_chunk(place);
        }
        let Ok([Some(first), Some(last)]) = <[_; 2]>::try_from(records) else { return Ok(None) };
        let are_ends =
            ListChunk::parse(&first)?.is_at(End::Left) && ListChunk::parse(&last)?.is_at(End::Right);
        Ok(are_ends.then_some([first, last]))
    }

    /// Returns the number of elements; 0 if the key is absent.
    ///
    /// # Errors
    /// The store's errors, and [`WRONG_TYPE`].
    pub(crate) async fn list_length(&mut self, key: &[u8]) -> Result<usize, Fault> {
        Ok(self.walk_list(key, |_| (End::Left, 0, 0)).await?.map_or(0, |walk| walk.length))
    }

    /// Begins a walk over the elements from one index to another, from the end that is nearer to
    /// them. Returns `None` if the key is absent.
    ///
    /// # Errors
    /// The store's errors, and [`WRONG_TYPE`].
    pub(crate) async fn walk_part(
        &mut self,
        key: &[u8],
        from: i64,
        to: i64,
    ) -> Result<Option<ListWalk>, Fault> {
        let choose = |length| {
            let (before, count) = part(length, from, to);
            let after = length - before - count;
            if before <= after { (End::Left, before, count) } else { (End::Right, after, count) }
        };
        self.walk_list(key, choose).await
    }

    /// Begins a walk. From the number of elements, `choose` returns the end from which to go, the
    /// elements to skip, and the elements to visit.
    ///
    /// # Errors
    /// The store's errors, and [`WRONG_TYPE`].
    pub(crate) async fn walk_list(
        &mut self,
        key: &[u8],
        choose: impl Fn(usize) -> (End, usize, usize),
    ) -> Result<Option<ListWalk>, Fault> {
        let mut retries = Retries::default();
        loop {
            let Some(record) = self.head_of_list(key).await? else { return Ok(None) };
            let head = Head::parse(&record)?;
            let chunks = match Form::of(&head)? {
                Form::Large(chunks) => chunks,
                Form::Small(packed) => {
                    let at = record.len() - head.body.len();
                    let length = packed.count();
                    let (from, skipped, left) = choose(length);
                    let source = Source::Record(record, at);
                    return Ok(Some(ListWalk { length, from, begun: None, source, skipped, left }));
                }
            };
            let list = Aggregate::new(Kind::List, key, chunks.generation);
            let Some([first, last]) = self.ends(&list, &chunks).await? else {
                self.read_again(&mut retries).await?;
                continue;
            };
            let [in_first, in_last] =
                [ListChunk::parse(&first)?, ListChunk::parse(&last)?].map(|chunk| chunk.elements.count());
            let length = chunks.length(in_first, in_last);
            let (from, skipped, left) = choose(length);
            let (nearest, count) = if from == End::Left { (first, in_first) } else { (last, in_last) };
            let is_near = skipped.saturating_add(left) <= count;
            let (begun, source) = if is_near {
                (None, Source::Record(nearest, ListChunk::ELEMENTS_AT))
            } else {
                let source = Source::Chunks(ChunkWalk::new(&list, from));
                (Some((list, chunks.splits)), source)
            };
            return Ok(Some(ListWalk { length, from, begun, source, skipped, left }));
        }
    }

    /// Returns the next elements of a walk.
    ///
    /// # Errors
    /// The store's errors.
    pub(crate) async fn next_piece(&mut self, walk: &mut ListWalk) -> Result<Option<Piece>, Fault> {
        while walk.left > 0 {
            let (record, at) = match &mut walk.source {
                Source::Ended => break,
                Source::Record(..) => match std::mem::replace(&mut walk.source, Source::Ended) {
                    Source::Record(record, at) => (record, at),
                    _ => break,
                },
                Source::Chunks(chunks) => {
                    let Some((_, record)) = self.next_chunk_of_list(chunks).await? else { break };
                    (record, ListChunk::ELEMENTS_AT)
                }
            };
            let in_record = Packed::parse(record.get(at..).ok_or(FOREIGN)?)?.count();
            let skipped = walk.skipped.min(in_record);
            let count = walk.left.min(in_record - skipped);
            walk.skipped -= skipped;
            walk.left -= count;
            if count > 0 {
                let before = if walk.from == End::Left { skipped } else { in_record - skipped - count };
                return Ok(Some(Piece { record, at, before, count }));
            }
        }
        Ok(None)
    }

    /// Returns whether a walk has met each element that existed throughout once.
    ///
    /// # Errors
    /// The store's errors.
    pub(crate) async fn walk_stands(&mut self, walk: &ListWalk) -> Result<bool, Fault> {
        let Some((list, splits)) = &walk.begun else { return Ok(true) };
        let Some(record) = self.head_record(list.key()).await? else { return Ok(false) };
        let head = Head::parse(&record)?;
        Ok(list.is_of(&record)
            && matches!(Form::of(&head), Ok(Form::Large(chunks)) if chunks.splits == *splits))
    }

    /// Returns the next chunk of a walk.
    pub(super) async fn next_chunk_of_list(&mut self, walk: &mut ChunkWalk) -> Result<Option<Found>, Fault> {
        if walk.found.is_empty() && !walk.is_through {
            let ChunkWalk { list, range, asked, is_through, found } = walk;
            let mut bytes = 0;
            let session = session(&mut self.session, &self.store)?;
            let seen = session.scan_with(range, *asked, |place, record| {
                bytes += record.len();
                found.push_back((ChunkId::from_slice(list.element(place)), record.to_vec()));
            });
            let seen = seen.await?;
            *is_through = seen < *asked;
            *asked = (*asked * 2).min(TOGETHER_MAX).min(TOGETHER_BYTES * seen / bytes.max(1)).max(1);
            for (id, _) in &*found {
                session.has_read_chunk(list.place(Family::ListChunk, id));
            }
            if let Some((last, _)) = found.back() {
                go_behind(range, &list.place(Family::ListChunk, last));
            }
            tokio::task::yield_now().await;
        }
        Ok(walk.found.pop_front())
    }
}

#[cfg(test)]
mod tests {
    use super::part;

    #[test]
    fn indexes_count_from_either_end() {
        for (from, to, expected) in [
            (0, -1, (0, 5)),
            (1, 2, (1, 2)),
            (-2, -1, (3, 2)),
            (-100, 100, (0, 5)),
            (4, 4, (4, 1)),
            (5, 9, (0, 0)),
            (3, 1, (0, 0)),
            (-1, -2, (0, 0)),
            (i64::MIN, i64::MAX, (0, 5)),
            (i64::MAX, i64::MIN, (0, 0)),
        ] {
            assert_eq!(part(5, from, to), expected, "{from} {to}");
        }
        assert_eq!(part(0, 0, -1), (0, 0));
    }
}
