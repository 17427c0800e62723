//! The head of a stream: its counts and ids, and its last entries.
//!
//! ```text
//! generation, 8 bytes | entries, 8 bytes | entries ever added, 8 bytes
//! | last id | first id | greatest deleted id, 16 bytes each
//! | chunks, 8 bytes | entries of the first chunk, 4 bytes | the last id in it, 16 bytes
//! | entries (`packed.rs`)
//! ```
//!
//! Counts are little-endian. A stream without chunks has 0 entries in the first one, and a stream
//! without entries has the first id 0-0.

use super::id::StreamId;
use super::packed::Packed;
use crate::fault::{FOREIGN, Fault, WRONG_TYPE};
use crate::keyspace::aggregate::Aggregate;
use crate::keyspace::head::Generation;
use crate::keyspace::{Head, Kind};

/// Which of the oldest entries are removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TrimTo {
    /// All beyond this number.
    Length(u64),
    /// All before this id.
    Id(StreamId),
}

/// A removal of the oldest entries.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Trim {
    pub(crate) to: TrimTo,
    /// Only whole records are removed, and as many entries at most.
    pub(crate) whole_up_to: Option<u64>,
}

/// The id that a new entry gets.
#[derive(Clone, Copy, Debug)]
pub(crate) enum NewId {
    /// The time, in ms.
    Now(u64),
    /// A given time, and the next number in it.
    At(u64),
    Given(StreamId),
}

/// The first chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Front {
    pub(super) count: u32,
    pub(super) last: StreamId,
}

/// A stream, without the entries in its chunks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Stream {
    pub(super) generation: Generation,
    pub(super) expiry: Option<u64>,
    /// The number of entries.
    pub(crate) length: u64,
    /// How many entries were ever added.
    pub(crate) added: u64,
    /// The greatest id ever used.
    pub(crate) last: StreamId,
    /// The id of the first entry, or 0-0.
    pub(crate) first: StreamId,
    /// The greatest id of a deleted entry.
    pub(crate) deleted: StreamId,
    /// The number of chunks.
    pub(super) chunks: u64,
    pub(super) front: Option<Front>,
    pub(super) tail: Packed,
}

fn take_number(bytes: &mut &[u8]) -> Option<u64> {
    let (number, rest) = bytes.split_first_chunk()?;
    *bytes = rest;
    Some(u64::from_le_bytes(*number))
}

fn take_id(bytes: &mut &[u8]) -> Option<StreamId> {
    let (id, rest) = bytes.split_first_chunk()?;
    *bytes = rest;
    Some(StreamId::of_bytes(*id))
}

impl Stream {
    /// Returns a new stream without entries.
    pub(super) fn new() -> Self {
        Self {
            generation: darter_fabric::random_word().to_le_bytes(),
            expiry: None,
            length: 0,
            added: 0,
            last: StreamId::ZERO,
            first: StreamId::ZERO,
            deleted: StreamId::ZERO,
            chunks: 0,
            front: None,
            tail: Packed::default(),
        }
    }

    /// Returns the number of records that hold entries.
    pub(crate) fn records(&self) -> u64 {
        self.chunks + u64::from(self.tail.count() > 0)
    }

    /// Parses the head of a stream.
    ///
    /// # Errors
    /// [`WRONG_TYPE`] if it is not the head of a stream, and [`FOREIGN`] if it is damaged.
    pub(super) fn of(head: &Head<'_>) -> Result<Self, Fault> {
        if head.kind != Kind::Stream {
            return Err(WRONG_TYPE);
        }
        let (stream, mut left) = Self::parse(head).ok_or(FOREIGN)?;
        let (count, rest) = left.split_first_chunk().ok_or(FOREIGN)?;
        left = rest;
        let last = take_id(&mut left).ok_or(FOREIGN)?;
        let count = u32::from_le_bytes(*count);
        let front = (count > 0).then_some(Front { count, last });
        Ok(Self { front, tail: Packed::parse(left)?, ..stream })
    }

    fn parse<'r>(head: &Head<'r>) -> Option<(Self, &'r [u8])> {
        let mut left = head.body.get(size_of::<Generation>()..)?;
        let stream = Self {
            generation: head.generation()?,
            expiry: head.expiry,
            length: take_number(&mut left)?,
            added: take_number(&mut left)?,
            last: take_id(&mut left)?,
            first: take_id(&mut left)?,
            deleted: take_id(&mut left)?,
            chunks: take_number(&mut left)?,
            front: None,
            tail: Packed::default(),
        };
        Some((stream, left))
    }

    /// Writes the head.
    pub(super) fn write(&self, record: &mut Vec<u8>) {
        Head::begin(record, Kind::Stream, self.expiry);
        record.extend_from_slice(&self.generation);
        record.extend_from_slice(&self.length.to_le_bytes());
        record.extend_from_slice(&self.added.to_le_bytes());
        for id in [self.last, self.first, self.deleted] {
            record.extend_from_slice(&id.bytes());
        }
        record.extend_from_slice(&self.chunks.to_le_bytes());
        let front = self.front.unwrap_or(Front { count: 0, last: StreamId::ZERO });
        record.extend_from_slice(&front.count.to_le_bytes());
        record.extend_from_slice(&front.last.bytes());
        self.tail.write(record);
    }

    /// Returns the records of the stream under its key.
    pub(crate) fn aggregate(&self, key: &[u8]) -> Aggregate {
        Aggregate::new(Kind::Stream, key, self.generation)
    }

    /// Returns whether the entry of an id would lie in a chunk, not in the head.
    pub(super) fn is_in_chunks(&self, id: StreamId) -> bool {
        self.front.is_some() && id <= self.last && (self.tail.count() == 0 || id < self.tail.base())
    }

    /// Returns the id of a new entry.
    ///
    /// # Errors
    /// Fails if it would not be greater than the last one.
    pub(super) fn next_id(&self, wanted: NewId) -> Result<StreamId, Fault> {
        let Some(next) = self.last.next() else {
            return Err(Fault::said(
                "ERR The stream has exhausted the last possible ID, unable to add more items",
            ));
        };
        let id = match wanted {
            NewId::Now(ms) if ms <= self.last.ms => next,
            NewId::At(ms) if ms == self.last.ms => next,
            NewId::Now(ms) | NewId::At(ms) => StreamId { ms, seq: 0 },
            NewId::Given(id) => id,
        };
        let is_possible = id > self.last && !matches!(wanted, NewId::At(ms) if ms != id.ms);
        if is_possible {
            return Ok(id);
        }
        Err(Fault::said("ERR The ID specified in XADD is equal or smaller than the target stream top item"))
    }

    /// Adds an entry, for which the head has room.
    pub(super) fn push(&mut self, id: StreamId, body: &[u8]) {
        self.tail.push(id, body);
        self.length += 1;
        self.added = self.added.wrapping_add(1);
        self.last = id;
        if self.length == 1 {
            self.first = id;
        }
    }

    /// Returns whether a trim removes entries of the first chunk.
    pub(super) fn trims_front(&self, trim: &Trim) -> bool {
        let Some(front) = self.front else { return false };
        let count = u64::from(front.count);
        match (trim.to, trim.whole_up_to) {
            (TrimTo::Length(most), None) => self.length > most,
            (TrimTo::Id(id), None) => self.first < id,
            (TrimTo::Length(most), Some(limit)) => {
                self.length > most && self.length.saturating_sub(count) >= most && count <= limit
            }
            (TrimTo::Id(id), Some(limit)) => front.last < id && count <= limit,
        }
    }

    /// Removes the entries of a record that a trim removes, after it has removed `removed` others.
    /// Returns whether it goes on with the next record.
    ///
    /// # Errors
    /// Fails if the record is damaged.
    pub(super) fn trim_record(
        &mut self,
        trim: &Trim,
        record: &mut Packed,
        removed: &mut u64,
    ) -> Result<bool, Fault> {
        let (length, count) = (self.length, record.count() as u64);
        let Some((_, last)) = record.ends()? else { return Ok(true) };
        let is_over = trim.whole_up_to.is_some_and(|limit| *removed + count > limit);
        if is_over || matches!(trim.to, TrimTo::Length(most) if length <= most) {
            return Ok(false);
        }
        let is_whole = match trim.to {
            TrimTo::Length(most) => length.saturating_sub(count) >= most,
            TrimTo::Id(id) => last < id,
        };
        if !is_whole && trim.whole_up_to.is_some() {
            return Ok(false);
        }
        let mut left = match trim.to {
            TrimTo::Length(most) => length - most,
            TrimTo::Id(_) => count,
        };
        let gone = record.retain(|entry| {
            let goes = left > 0 && !matches!(trim.to, TrimTo::Id(id) if entry >= id);
            left -= u64::from(goes);
            !goes
        })?;
        *removed += gone as u64;
        self.length = length.saturating_sub(gone as u64);
        Ok(is_whole)
    }

    /// Trims the entries in the head, if there are no others.
    ///
    /// # Errors
    /// Fails if the head is damaged.
    pub(super) fn trim_tail(&mut self, trim: &Trim, removed: &mut u64) -> Result<(), Fault> {
        let mut tail = std::mem::take(&mut self.tail);
        self.trim_record(trim, &mut tail, removed)?;
        self.tail = tail;
        self.find_first()
    }

    /// Deletes entries of the head. Returns their number.
    ///
    /// # Errors
    /// Fails if the head is damaged.
    pub(super) fn delete_from_tail(&mut self, ids: &[StreamId]) -> Result<u64, Fault> {
        let mut greatest = self.deleted;
        let gone = self.tail.retain(|id| {
            let goes = ids.binary_search(&id).is_ok();
            greatest = if goes { greatest.max(id) } else { greatest };
            !goes
        })?;
        self.deleted = greatest;
        self.length = self.length.saturating_sub(gone as u64);
        self.find_first()?;
        Ok(gone as u64)
    }

    /// Finds the first id, if it is in the head.
    pub(super) fn find_first(&mut self) -> Result<(), Fault> {
        if self.front.is_none() {
            self.first = self.tail.ends()?.map_or(StreamId::ZERO, |(first, _)| first);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::packed::body_of;
    use super::*;

    fn id(ms: u64, seq: u64) -> StreamId {
        StreamId { ms, seq }
    }

    fn stream(entries: u64) -> Stream {
        let mut stream = Stream::new();
        (1..=entries).for_each(|ms| stream.push(id(ms, 0), &body_of([&b"f"[..], b"v"].into_iter())));
        stream
    }

    #[test]
    fn heads_are_read_as_they_were_written() {
        let mut written = stream(3);
        let mut record = Vec::new();
        for front in [None, Some(Front { count: 7, last: id(0, 9) })] {
            (written.expiry, written.front, written.deleted) = (front.map(|_| 5), front, id(2, 2));
            written.write(&mut record);
            assert_eq!(Stream::of(&Head::parse(&record).unwrap()).unwrap(), written);
        }
        for bytes in 0..record.len() {
            assert!(
                Head::parse(&record[..bytes])
                    .and_then(|head| Stream::of(&head)?.tail.entries().map(drop))
                    .is_err()
            );
        }
    }

    #[test]
    fn new_ids_are_greater_than_the_last_one() {
        let told = |last, wanted| {
            let stream = Stream { last, ..Stream::new() };
            stream.next_id(wanted).map(|id| id.to_string()).ok()
        };
        for (last, wanted, expected) in [
            (id(5, 3), NewId::Now(7), "7-0"),
            (id(5, 3), NewId::Now(5), "5-4"),
            (id(5, 3), NewId::Now(4), "5-4"),
            (id(5, u64::MAX), NewId::Now(4), "6-0"),
            (id(5, 3), NewId::At(5), "5-4"),
            (id(5, 3), NewId::At(6), "6-0"),
            (id(0, 0), NewId::At(0), "0-1"),
            (id(5, 3), NewId::Given(id(5, 4)), "5-4"),
        ] {
            assert_eq!(told(last, wanted).as_deref(), Some(expected), "{last} {wanted:?}");
        }
        for (last, wanted) in [
            (id(5, 3), NewId::At(4)),
            (id(5, u64::MAX), NewId::At(5)),
            (id(5, 3), NewId::Given(id(5, 3))),
            (StreamId::MAX, NewId::Now(5)),
            (StreamId::MAX, NewId::Given(StreamId::MAX)),
        ] {
            assert_eq!(told(last, wanted), None, "{last} {wanted:?}");
        }
    }

    #[test]
    fn the_oldest_entries_are_trimmed() {
        for (to, whole_up_to, removed) in [
            (TrimTo::Length(3), None, 2),
            (TrimTo::Length(9), None, 0),
            (TrimTo::Length(0), None, 5),
            (TrimTo::Length(3), Some(100), 0),
            (TrimTo::Length(0), Some(100), 5),
            (TrimTo::Length(0), Some(4), 0),
            (TrimTo::Id(id(3, 0)), None, 2),
            (TrimTo::Id(id(9, 0)), Some(100), 5),
            (TrimTo::Id(id(5, 0)), Some(100), 0),
        ] {
            let (mut stream, mut gone) = (stream(5), 0);
            stream.trim_tail(&Trim { to, whole_up_to }, &mut gone).unwrap();
            let first = if removed == 5 { StreamId::ZERO } else { id(removed + 1, 0) };
            assert_eq!((gone, stream.length, stream.first), (removed, 5 - removed, first), "{to:?}");
        }
    }

    #[test]
    fn deleted_entries_leave_their_greatest_id() {
        let mut stream = stream(4);
        assert_eq!(stream.delete_from_tail(&[id(1, 0), id(3, 0), id(3, 1)]).unwrap(), 2);
        assert_eq!((stream.length, stream.first, stream.deleted), (2, id(2, 0), id(3, 0)));
        assert_eq!(stream.delete_from_tail(&[id(2, 0), id(4, 0)]).unwrap(), 2);
        assert_eq!((stream.length, stream.first, stream.deleted), (0, StreamId::ZERO, id(4, 0)));
        assert_eq!((stream.last, stream.added), (id(4, 0), 4));
    }
}
