//! The body of a list's head, and the record of a chunk.
//!
//! ```text
//! body of a small list: elements (`packed.rs`)
//! body of a large list: generation, 8 bytes | splits, 8 bytes | inner elements, 8 bytes
//!                       | length of the first chunk's id, 2 bytes | first id | last id
//! record of a chunk:    ends, 1 byte | elements
//! ```
//!
//! Numbers are little-endian. *Inner* are the elements of all chunks but the first and the last.
//! *Splits* counts how often elements have moved from one chunk to another: a walk during which it
//! has changed may have met them twice or not at all. A chunk's bit 0 says that it is the first
//! chunk of its list, bit 1 that it is the last.

use super::End;
use super::chunk_id::{self, ChunkId};
use super::packed::Packed;
use crate::fault::{FOREIGN, Fault, WRONG_TYPE};
use crate::keyspace::head::Generation;
use crate::keyspace::{Head, Kind};

/// The chunks of a large list, as its head names them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Chunks {
    pub(super) generation: Generation,
    pub(super) splits: u64,
    pub(super) inner: u64,
    pub(super) first: ChunkId,
    pub(super) last: ChunkId,
}

/// The place of a list's elements.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Form<'r> {
    /// In the head.
    Small(Packed<'r>),
    /// In chunks.
    Large(Chunks),
}

impl<'r> Form<'r> {
    /// Parses the head of a list.
    ///
    /// # Errors
    /// [`WRONG_TYPE`] if it is not the head of a list, and [`FOREIGN`] if it is damaged.
    pub(super) fn of(head: &Head<'r>) -> Result<Self, Fault> {
        if head.kind != Kind::List {
            return Err(WRONG_TYPE);
        }
        if head.is_packed {
            return Packed::parse(head.body).map(Self::Small);
        }
        Chunks::parse(head.body).ok_or(FOREIGN).map(Self::Large)
    }
}

impl Chunks {
    /// Describes a list with one chunk.
    pub(super) fn new(generation: Generation) -> Self {
        let (first, last) = (chunk_id::middle(), chunk_id::middle());
        Self { generation, splits: 0, inner: 0, first, last }
    }

    fn parse(bytes: &[u8]) -> Option<Self> {
        let (generation, rest) = bytes.split_first_chunk()?;
        let (splits, rest) = rest.split_first_chunk()?;
        let (inner, rest) = rest.split_first_chunk()?;
        let (first_bytes, ids) = rest.split_first_chunk()?;
        let (first, last) = ids.split_at_checked(u16::from_le_bytes(*first_bytes).into())?;
        Some(Self {
            generation: *generation,
            splits: u64::from_le_bytes(*splits),
            inner: u64::from_le_bytes(*inner),
            first: first.into(),
            last: last.into(),
        })
    }

    /// Writes the head.
    pub(super) fn write(&self, record: &mut Vec<u8>, expiry: Option<u64>) {
        Head::begin(record, Kind::List, expiry);
        record.extend_from_slice(&self.generation);
        record.extend_from_slice(&self.splits.to_le_bytes());
        record.extend_from_slice(&self.inner.to_le_bytes());
        // Identifiers are parts of index keys, which are not longer.
        record.extend_from_slice(&(self.first.len() as u16).to_le_bytes());
        record.extend_from_slice(&self.first);
        record.extend_from_slice(&self.last);
    }

    /// Returns the chunk at an end.
    pub(super) fn at(&self, end: End) -> &ChunkId {
        match end {
            End::Left => &self.first,
            End::Right => &self.last,
        }
    }

    /// Sets the chunk at an end.
    pub(super) fn set(&mut self, end: End, id: ChunkId) {
        match end {
            End::Left => self.first = id,
            End::Right => self.last = id,
        }
    }

    /// Returns whether a chunk is neither the first nor the last.
    pub(super) fn is_inner(&self, id: &[u8]) -> bool {
        self.first[..] != *id && self.last[..] != *id
    }

    /// Removes elements from the inner ones.
    pub(super) fn leave(&mut self, count: usize) {
        self.inner = self.inner.saturating_sub(count as u64);
    }

    /// Begins the record of a chunk.
    pub(super) fn begin_chunk(&self, record: &mut Vec<u8>, id: &[u8]) {
        let ends = [End::Left, End::Right].map(|end| if self.at(end)[..] == *id { bit(end) } else { 0 });
        record.push(ends[0] | ends[1]);
    }

    /// Returns the number of elements of the list with these chunks at its ends.
    pub(super) fn length(&self, first: usize, last: usize) -> usize {
        if self.first == self.last {
            return first;
        }
        usize::try_from(self.inner).unwrap_or(usize::MAX).saturating_add(first + last)
    }
}

/// Returns the bit for an end in a chunk's record.
fn bit(end: End) -> u8 {
    match end {
        End::Left => 1,
        End::Right => 2,
    }
}

/// The record of a chunk.
#[derive(Clone, Copy, Debug)]
pub(super) struct ListChunk<'r> {
    pub(super) ends: u8,
    pub(super) elements: Packed<'r>,
}

impl<'r> ListChunk<'r> {
    /// The position of the elements in a record.
    pub(super) const ELEMENTS_AT: usize = 1;

    /// Parses a record.
    ///
    /// # Errors
    /// Fails if it is too short.
    pub(super) fn parse(record: &'r [u8]) -> Result<Self, Fault> {
        let (&ends, elements) = record.split_first().ok_or(FOREIGN)?;
        Ok(Self { ends, elements: Packed::parse(elements)? })
    }

    /// Returns whether it is the chunk at an end of its list.
    pub(super) fn is_at(&self, end: End) -> bool {
        self.ends & bit(end) != 0
    }
}

/// Divides elements into parts of which each fits into a record.
pub(super) fn parts<'e, 's>(elements: &'s [&'e [u8]], found: &mut Vec<&'s [&'e [u8]]>) {
    if super::packed::all_fit(elements.iter().copied()) {
        found.push(elements);
        return;
    }
    let (left, right) = elements.split_at(elements.len() / 2);
    parts(left, found);
    parts(right, found);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads_are_read_as_they_were_written() {
        let mut chunks = Chunks::new(*b"12345678");
        let mut record = Vec::new();
        for expiry in [None, Some(7)] {
            (chunks.splits, chunks.inner) = (u64::MAX, 3);
            chunks.set(End::Right, chunk_id::between(&chunks.first, b"\xff"));
            chunks.write(&mut record, expiry);
            let head = Head::parse(&record).unwrap();
            assert_eq!((head.expiry, head.generation()), (expiry, Some(*b"12345678")));
            assert_eq!(Form::of(&head).unwrap(), Form::Large(chunks.clone()));
            let mut copy = Vec::new();
            head.with_generation(&mut copy, *b"87654321");
            let copied = Chunks { generation: *b"87654321", ..chunks.clone() };
            assert_eq!(Form::of(&Head::parse(&copy).unwrap()).unwrap(), Form::Large(copied));
        }
        Head::begin_packed(&mut record, Kind::List, Some(9));
        Packed::EMPTY.write(&mut record);
        let head = Head::parse(&record).unwrap();
        assert_eq!((head.expiry, head.generation()), (Some(9), None));
        assert_eq!(Form::of(&head).unwrap(), Form::Small(Packed::EMPTY));
    }

    #[test]
    fn damaged_heads_and_chunks_are_refused() {
        let refused =
            |record: &[u8]| Head::parse(record).and_then(|head| Form::of(&head).map(|_| ())).is_err();
        let short = [&[4][..], &[0; 8 + 8 + 8], &[9, 0, 1, 2]].concat();
        for record in [&b"\x04"[..], b"\x44\0", b"\x0412345678", &short] {
            assert!(refused(record), "{}", record.escape_ascii());
        }
        assert!(
            matches!(Form::of(&Head::parse(b"\0x").unwrap()), Err(Fault::Said(text)) if text.starts_with("WRONGTYPE"))
        );
        assert!(ListChunk::parse(b"").is_err() && ListChunk::parse(b"\x01\0").is_err());
    }

    #[test]
    fn parts_keep_the_order_and_fit() {
        let long = vec![0; 700];
        let elements: Vec<&[u8]> = (0..100).map(|at| &long[..at * 7]).collect();
        let mut found = Vec::new();
        parts(&elements, &mut found);
        assert!(found.len() > 1 && found.concat() == elements);
        let mut one = Vec::new();
        parts(&elements[..2], &mut one);
        assert_eq!(one.len(), 1);
    }
}
