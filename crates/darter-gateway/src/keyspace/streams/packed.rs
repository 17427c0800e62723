//! Entries of a stream in one record: those in the head, and those of a chunk.
//!
//! ```text
//! base id, 16 bytes | number of entries, 2 bytes, little-endian | entries
//! an entry: ms after those of the base | number in the ms | number of texts | texts with their lengths
//! ```
//!
//! The base is the id of the entry that was the first one when the record began. Numbers have a
//! variable length (`varint.rs`). Fields and values alternate among the texts.

use super::id::StreamId;
use super::varint;
use crate::fault::{FOREIGN, Fault};
use crate::keyspace::lists::fits;

/// Bytes before the entries.
const HEADER_BYTES: usize = StreamId::BYTES + 2;

/// An entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Entry<'r> {
    pub(crate) id: StreamId,
    /// The number of texts, and the texts.
    pub(crate) body: &'r [u8],
}

impl<'r> Entry<'r> {
    /// Returns the fields and values, which alternate.
    pub(crate) fn texts(&self) -> Vec<&'r [u8]> {
        let mut left = self.body;
        let count = varint::take(&mut left).unwrap_or(0);
        (0..count).map_while(|_| varint::take_text(&mut left)).collect()
    }
}

/// Builds the body of an entry from its fields and values.
pub(crate) fn body_of<'t>(texts: impl ExactSizeIterator<Item = &'t [u8]>) -> Vec<u8> {
    let mut body = Vec::new();
    varint::put(&mut body, texts.len() as u64);
    texts.for_each(|text| varint::put_text(&mut body, text));
    body
}

/// The entries of a record.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Packed {
    base: StreamId,
    count: usize,
    bytes: Vec<u8>,
}

impl Packed {
    /// Parses a record.
    ///
    /// # Errors
    /// Fails if it is too short.
    pub(super) fn parse(record: &[u8]) -> Result<Self, Fault> {
        let (base, rest) = record.split_first_chunk().ok_or(FOREIGN)?;
        let (count, bytes) = rest.split_first_chunk().ok_or(FOREIGN)?;
        let count = usize::from(u16::from_le_bytes(*count));
        Ok(Self { base: StreamId::of_bytes(*base), count, bytes: bytes.to_vec() })
    }

    /// Appends the record to a buffer.
    pub(super) fn write(&self, record: &mut Vec<u8>) {
        record.reserve(HEADER_BYTES + self.bytes.len());
        record.extend_from_slice(&self.base.bytes());
        // No record has more entries than that.
        record.extend_from_slice(&(self.count as u16).to_le_bytes());
        record.extend_from_slice(&self.bytes);
    }

    /// Returns the id of the entry that was the first one when the record began.
    pub(super) fn base(&self) -> StreamId {
        self.base
    }

    /// Returns the number of entries.
    pub(super) fn count(&self) -> usize {
        self.count
    }

    /// Returns whether the record may get an entry with such a body.
    pub(super) fn has_room(&self, body: &[u8]) -> bool {
        fits(self.count + 1, self.bytes.len() + body.len())
    }

    /// Adds an entry after all others.
    pub(super) fn push(&mut self, id: StreamId, body: &[u8]) {
        if self.count == 0 {
            self.base = id;
        }
        varint::put(&mut self.bytes, id.ms.saturating_sub(self.base.ms));
        varint::put(&mut self.bytes, id.seq);
        self.bytes.extend_from_slice(body);
        self.count += 1;
    }

    /// Returns the entries in their order.
    ///
    /// # Errors
    /// Fails if the record is damaged.
    pub(crate) fn entries(&self) -> Result<Vec<Entry<'_>>, Fault> {
        let (mut left, mut entries) = (&self.bytes[..], Vec::with_capacity(self.count));
        for _ in 0..self.count {
            entries.push(self.take(&mut left).ok_or(FOREIGN)?);
        }
        if left.is_empty() { Ok(entries) } else { Err(FOREIGN) }
    }

    fn take<'r>(&self, left: &mut &'r [u8]) -> Option<Entry<'r>> {
        let ms = self.base.ms.checked_add(varint::take(left)?)?;
        let id = StreamId { ms, seq: varint::take(left)? };
        let body = *left;
        for _ in 0..varint::take(left)? {
            varint::take_text(left)?;
        }
        Some(Entry { id, body: &body[..body.len() - left.len()] })
    }

    /// Returns the first and the last id; `None` for a record without entries.
    ///
    /// # Errors
    /// Fails if the record is damaged.
    pub(super) fn ends(&self) -> Result<Option<(StreamId, StreamId)>, Fault> {
        let entries = self.entries()?;
        Ok(entries.first().zip(entries.last()).map(|(first, last)| (first.id, last.id)))
    }

    /// Keeps the entries that `keeps` accepts. Returns the number of others.
    ///
    /// # Errors
    /// Fails if the record is damaged.
    pub(super) fn retain(&mut self, mut keeps: impl FnMut(StreamId) -> bool) -> Result<usize, Fault> {
        let mut kept = Self::default();
        for entry in self.entries()?.into_iter().filter(|entry| keeps(entry.id)) {
            kept.push(entry.id, entry.body);
        }
        let removed = self.count - kept.count;
        *self = kept;
        Ok(removed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn id(ms: u64, seq: u64) -> StreamId {
        StreamId { ms, seq }
    }

    #[test]
    fn entries_are_read_as_they_were_written() {
        let mut packed = Packed::default();
        let bodies = [&[&b"f"[..], b"v"][..], &[b"", b"", b"g", &[7; 300]], &[]];
        let ids = [id(5, 9), id(5, 10), id(u64::MAX, 0)];
        for (id, texts) in ids.into_iter().zip(bodies) {
            packed.push(id, &body_of(texts.iter().copied()));
        }
        let mut record = Vec::new();
        packed.write(&mut record);
        let mut read = Packed::parse(&record).unwrap();
        assert_eq!((&read, read.base(), read.count()), (&packed, ids[0], 3));
        let entries = read.entries().unwrap();
        for ((entry, id), texts) in entries.iter().zip(ids).zip(bodies) {
            assert_eq!((entry.id, &entry.texts()[..]), (id, texts));
        }
        assert_eq!(read.ends().unwrap(), Some((ids[0], ids[2])));
        assert_eq!(read.retain(|id| id != ids[0]).unwrap(), 1);
        assert_eq!(read.ends().unwrap(), Some((ids[1], ids[2])));
        assert_eq!(read.retain(|_| false).unwrap(), 2);
        assert_eq!((read.ends().unwrap(), read), (None, Packed::default()));
    }

    proptest! {
        #[test]
        fn damaged_records_are_refused(record in prop::collection::vec(any::<u8>(), 0..60)) {
            if let Ok(packed) = Packed::parse(&record)
                && let Ok(entries) = packed.entries()
            {
                prop_assert_eq!(entries.len(), packed.count());
                let texts: usize = entries.iter().map(|entry| entry.texts().len()).sum();
                prop_assert!(texts <= record.len());
            }
        }
    }
}
