//! The record of a Redis key: what it is, how long it lives, and a string's bytes.
//!
//! ```text
//! kind (bits 0-6), bit 7: expires | ms since the epoch, 8 bytes, if it expires | the value of a string, the generation of others
//! ```
//!
//! Numbers are little-endian. A string that does not expire has one byte more than its value.

use crate::gateway::fault::{FOREIGN, Fault, WRONG_TYPE};

/// Set in the first byte of what expires.
const EXPIRES: u8 = 0x80;

/// What a key holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Bytes.
    String = 0,
    /// Fields with values, of a generation.
    Hash = 1,
    /// Members with scores, of a generation.
    SortedSet = 2,
}

const KINDS: [Kind; 3] = [Kind::String, Kind::Hash, Kind::SortedSet];

impl Kind {
    /// As `TYPE` says it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::String => "string",
            Self::Hash => "hash",
            Self::SortedSet => "zset",
        }
    }

    /// The kind of which `TYPE` says so.
    pub(crate) fn named(name: &[u8]) -> Option<Self> {
        KINDS.into_iter().find(|kind| name.eq_ignore_ascii_case(kind.name().as_bytes()))
    }

    fn of(code: u8) -> Option<Self> {
        KINDS.get(usize::from(code)).copied()
    }
}

/// A record, read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Head<'r> {
    /// What the key holds.
    pub kind: Kind,
    /// When it ends, in ms since the epoch; it is still there in that very millisecond.
    pub expiry: Option<u64>,
    /// A string's bytes; a generation's, of others.
    pub body: &'r [u8],
}

impl<'r> Head<'r> {
    /// Reads a record.
    ///
    /// # Errors
    /// When it is none.
    #[inline]
    pub(crate) fn parse(record: &'r [u8]) -> Result<Self, Fault> {
        let (&first, rest) = record.split_first().ok_or(FOREIGN)?;
        let kind = Kind::of(first & !EXPIRES).ok_or(FOREIGN)?;
        if first & EXPIRES == 0 {
            return Ok(Self { kind, expiry: None, body: rest });
        }
        let (expiry, body) = rest.split_first_chunk().ok_or(FOREIGN)?;
        Ok(Self { kind, expiry: Some(u64::from_le_bytes(*expiry)), body })
    }

    /// Begins a record in an empty buffer; what follows is the body.
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

    /// A string's value.
    ///
    /// # Errors
    /// [`WRONG_TYPE`] when it is none.
    #[inline]
    pub(crate) fn string(&self) -> Result<&'r [u8], Fault> {
        if self.kind == Kind::String { Ok(self.body) } else { Err(WRONG_TYPE) }
    }

    /// The same but for when it ends.
    pub(crate) fn rewrite(&self, record: &mut Vec<u8>, expiry: Option<u64>) {
        Self::begin(record, self.kind, expiry);
        record.extend_from_slice(self.body);
    }

    /// Whether it counts at a time.
    #[inline]
    pub(crate) fn lives(&self, now: u64) -> bool {
        self.expiry.is_none_or(|when| now <= when)
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
            assert_eq!(head, Head { kind: Kind::String, expiry, body: b"body" });
            assert_eq!(head.string().unwrap(), b"body");
        }
        Head::begin(&mut record, Kind::Hash, None);
        assert!(
            matches!(Head::parse(&record).unwrap().string(), Err(Fault::Said(text)) if text.starts_with("WRONGTYPE"))
        );
        assert!(Head { kind: Kind::String, expiry: Some(7), body: b"" }.lives(7));
        assert!(!Head { kind: Kind::String, expiry: Some(7), body: b"" }.lives(8));
    }

    #[test]
    fn what_is_no_record_is_refused() {
        for bytes in [&b""[..], b"\x7f", b"\x80", b"\x80\0\0\0\0\0\0\0"] {
            assert!(Head::parse(bytes).is_err(), "{}", bytes.escape_ascii());
        }
    }
}
