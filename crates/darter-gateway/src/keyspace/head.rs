//! The record of a Redis key: its type, its expiry time, and the bytes of a string or the elements of
//! a small hash, set, sorted set or list.
//!
//! ```text
//! kind (bits 0-5), bit 6: packed, bit 7: expires | expiry time if it expires, 8 bytes | body
//!
//! body of a string:     its value
//! body if it is packed: the elements (`packed.rs`, `lists/packed.rs`)
//! body of a list:       generation, 8 bytes | its chunks (`lists/form.rs`)
//! body of a stream:     generation, 8 bytes | its counts and last entries (`streams/head.rs`)
//! body of others:       generation, 8 bytes | doubt if any, 16 bytes
//! ```
//!
//! Numbers are little-endian, times are ms since the Unix epoch. A string that does not expire
//! takes one byte more than its value. A doubt begins with the time at which it was written, in ms
//! since the Unix epoch. After that come the seconds for which writers leave it in place, 1 byte,
//! and 7 random bytes that make it unique (`aggregate.rs`).

use super::{Kind, packed};
use crate::fault::{FOREIGN, Fault, WRONG_TYPE};

/// Distinguishes the current elements of a key from those of earlier generations.
pub(super) type Generation = [u8; 8];

/// Bytes of a doubt.
const DOUBT_BYTES: usize = 16;

/// Most seconds for which writers leave a doubt in place.
pub(super) const HELD_SECONDS_MAX: u8 = 4;

/// Set in the first byte of a record that expires.
const EXPIRES: u8 = 0x80;
/// Set in the first byte of a record whose body has the elements.
const PACKED: u8 = 0x40;

/// A parsed record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Head<'r> {
    /// The type of the key.
    pub kind: Kind,
    /// Whether the body has the elements.
    pub is_packed: bool,
    /// When the key expires, in ms since the Unix epoch; the key still exists in that millisecond.
    pub expiry: Option<u64>,
    /// The bytes of a string, the elements, or the generation and the doubt, if any.
    pub body: &'r [u8],
}

/// Fails if this is not a valid body for a record of this type.
fn check(kind: Kind, is_packed: bool, body: &[u8]) -> Result<(), Fault> {
    const GENERATION_BYTES: usize = size_of::<Generation>();
    if is_packed {
        // What reads the elements checks them.
        let is_valid = kind != Kind::String && !body.is_empty();
        return if is_valid { Ok(()) } else { Err(FOREIGN) };
    }
    match (kind, body.len()) {
        (Kind::String, _) | (_, GENERATION_BYTES) | (Kind::List | Kind::Stream, GENERATION_BYTES..) => Ok(()),
        (_, bytes) if bytes == GENERATION_BYTES + DOUBT_BYTES => Ok(()),
        _ => Err(FOREIGN),
    }
}

impl<'r> Head<'r> {
    /// Parses a record.
    ///
    /// # Errors
    /// Fails if it is not valid.
    #[inline]
    pub(crate) fn parse(record: &'r [u8]) -> Result<Self, Fault> {
        let (&first, rest) = record.split_first().ok_or(FOREIGN)?;
        let kind = Kind::of(first & !(EXPIRES | PACKED)).ok_or(FOREIGN)?;
        let is_packed = first & PACKED != 0;
        if first & EXPIRES == 0 {
            check(kind, is_packed, rest)?;
            return Ok(Self { kind, is_packed, expiry: None, body: rest });
        }
        let (expiry, body) = rest.split_first_chunk().ok_or(FOREIGN)?;
        check(kind, is_packed, body)?;
        Ok(Self { kind, is_packed, expiry: Some(u64::from_le_bytes(*expiry)), body })
    }

    /// Begins a record in an empty buffer; the caller appends the body.
    #[inline]
    pub(crate) fn begin(record: &mut Vec<u8>, kind: Kind, expiry: Option<u64>) {
        record.clear();
        match expiry {
            None => record.push(kind as u8),
            Some(when) => {
                record.push(kind as u8 | EXPIRES);
                record.extend_from_slice(&when.to_le_bytes());
            }
        }
    }

    /// Begins a record in an empty buffer; the caller appends the elements.
    #[inline]
    pub(super) fn begin_packed(record: &mut Vec<u8>, kind: Kind, expiry: Option<u64>) {
        Self::begin(record, kind, expiry);
        record[0] |= PACKED;
    }

    /// Returns a string's value.
    ///
    /// # Errors
    /// [`WRONG_TYPE`] if it is not a string.
    #[inline]
    pub(crate) fn string(&self) -> Result<&'r [u8], Fault> {
        match self.kind {
            Kind::String => Ok(self.body),
            _ => Err(WRONG_TYPE),
        }
    }

    /// Returns the generation of the key's elements; `None` if the body is the whole value.
    #[inline]
    pub(super) fn generation(&self) -> Option<Generation> {
        if self.kind == Kind::String || self.is_packed { None } else { self.body.first_chunk().copied() }
    }

    /// Builds the record of a copy whose elements are in another generation.
    pub(super) fn with_generation(&self, record: &mut Vec<u8>, generation: Generation) {
        Self::begin(record, self.kind, self.expiry);
        record.extend_from_slice(&generation);
        if self.kind.lasts() {
            record.extend_from_slice(self.body.get(generation.len()..).unwrap_or_default());
        }
    }

    /// Returns when the doubt in the head was written, in ms since the Unix epoch.
    pub(super) fn doubted_since(&self) -> Option<u64> {
        self.generation().filter(|_| !self.kind.lasts())?;
        self.body[size_of::<Generation>()..].first_chunk().map(|since| u64::from_le_bytes(*since))
    }

    /// Builds the same record with a new doubt, which writers leave in place for `held_seconds`.
    pub(super) fn doubt(&self, record: &mut Vec<u8>, now: u64, held_seconds: u8) {
        self.dispel(record);
        record.extend_from_slice(&now.to_le_bytes());
        let own = darter_fabric::random_word();
        record.push(held_seconds);
        record.extend_from_slice(&own.to_le_bytes()[1..]);
    }

    /// Returns the seconds for which writers leave the doubt in place.
    pub(super) fn held_seconds(&self) -> u8 {
        let doubt = self.doubted_since().and(self.body.get(size_of::<Generation>() + size_of::<u64>()));
        doubt.map_or(0, |&held| held.min(HELD_SECONDS_MAX))
    }

    /// Builds the same record without a doubt.
    pub(super) fn dispel(&self, record: &mut Vec<u8>) {
        Self::begin(record, self.kind, self.expiry);
        record.extend_from_slice(&self.generation().unwrap_or_default());
    }

    /// Builds the same record with another expiry time.
    pub(crate) fn rewrite(&self, record: &mut Vec<u8>, expiry: Option<u64>) {
        Self::begin(record, self.kind, expiry);
        record[0] |= if self.is_packed { PACKED } else { 0 };
        record.extend_from_slice(self.body);
    }

    /// Returns whether the key exists at a time, as far as the head shows it.
    #[inline]
    pub(crate) fn lives(&self, now: u64) -> bool {
        self.expiry.is_none_or(|when| now <= when)
            && !(self.kind == Kind::TimedHash && self.is_packed && packed::are_over(self.body, now))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_read_as_they_were_written() {
        let mut record = b"left over".to_vec();
        for expiry in [None, Some(0), Some(u64::MAX)] {
            Head::begin(&mut record, Kind::String, expiry);
            record.extend_from_slice(b"body");
            let head = Head::parse(&record).unwrap();
            assert_eq!(head, Head { kind: Kind::String, is_packed: false, expiry, body: b"body" });
            assert_eq!(head.string().unwrap(), b"body");
            // As long as a generation and a doubt.
            let members = b"a body of 24 bytes, long";
            for kind in [Kind::Hash, Kind::SortedSet, Kind::Set, Kind::List] {
                Head::begin_packed(&mut record, kind, expiry);
                record.extend_from_slice(members);
                let head = Head::parse(&record).unwrap();
                assert_eq!(head, Head { kind, is_packed: true, expiry, body: members });
                assert_eq!((head.generation(), head.doubted_since(), head.held_seconds()), (None, None, 0));
                let mut again = Vec::new();
                head.rewrite(&mut again, Some(9));
                assert_eq!(Head::parse(&again).unwrap(), Head { expiry: Some(9), ..head });
            }
        }
        Head::begin(&mut record, Kind::Hash, Some(5));
        record.extend_from_slice(b"12345678");
        let head = Head::parse(&record).unwrap();
        assert!(matches!(head.string(), Err(Fault::Said(text)) if text.starts_with("WRONGTYPE")));
        assert_eq!((head.generation(), head.doubted_since()), (Some(*b"12345678"), None));
        let mut doubted = Vec::new();
        head.doubt(&mut doubted, 7, 9);
        let doubted = Head::parse(&doubted).unwrap();
        assert_eq!((doubted.generation(), doubted.doubted_since()), (head.generation(), Some(7)));
        assert_eq!((head.held_seconds(), doubted.held_seconds()), (0, HELD_SECONDS_MAX));
        let mut again = Vec::new();
        doubted.dispel(&mut again);
        assert_eq!(again, record);
        let head = Head { kind: Kind::String, is_packed: false, expiry: Some(7), body: b"" };
        assert!(head.lives(7) && !head.lives(8));
    }

    #[test]
    fn bytes_that_are_not_a_record_are_refused() {
        for bytes in [
            &b""[..],
            b"\x7f",
            b"\x80",
            b"\x80\0\0\0\0\0\0\0",
            b"\x01",
            b"\x01123456789",
            b"\x81123456781234567",
            b"\x07",
            b"\x071234567812345678value",
            b"\x43",
            b"\x44",
            b"\x40value",
            b"\x41",
            b"\x42",
            b"\xc3\0\0\0\0\0\0\0\0",
            b"\xc4\0\0\0\0\0\0\0\0",
            b"\x031234567",
            b"\x031234567812345678value",
            b"\x041234567",
        ] {
            assert!(Head::parse(bytes).is_err(), "{}", bytes.escape_ascii());
        }
    }
}
