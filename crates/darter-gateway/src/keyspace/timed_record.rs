//! The record of a field that may expire, in a head or on its own:
//!
//! ```text
//! when it ends, 8 bytes, little-endian, in ms since the Unix epoch; 0 if it does not expire | value
//! ```

use super::Kind;
use crate::fault::{FOREIGN, Fault};

/// Bytes before the value.
const END_BYTES: usize = size_of::<u64>();

/// A field that exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Field<'r> {
    pub(crate) value: &'r [u8],
    /// When it expires.
    pub(crate) end: Option<u64>,
}

impl<'r> Field<'r> {
    /// Parses a record; `None` if it is too short.
    pub(super) fn parse(record: &'r [u8]) -> Option<Self> {
        let (end, value) = record.split_first_chunk::<END_BYTES>()?;
        Some(Self { value, end: Some(u64::from_le_bytes(*end)).filter(|end| *end > 0) })
    }

    /// Parses the record of a field of a hash of a type; `None` if it has ended.
    pub(crate) fn living(kind: Kind, record: &'r [u8], now: u64) -> Option<Self> {
        if kind != Kind::TimedHash {
            return Some(Self { value: record, end: None });
        }
        Self::parse(record).filter(|field| field.end.is_none_or(|end| now <= end))
    }

    /// Appends the record.
    pub(crate) fn write(&self, record: &mut Vec<u8>) {
        record.extend_from_slice(&self.end.unwrap_or(0).to_le_bytes());
        record.extend_from_slice(self.value);
    }

    /// Returns the record.
    pub(crate) fn record(&self) -> Vec<u8> {
        let mut record = Vec::with_capacity(END_BYTES + self.value.len());
        self.write(&mut record);
        record
    }
}

/// Returns the part of an element's record that commands see; `None` if it has ended.
pub(super) fn seen(kind: Kind, record: &[u8], now: u64) -> Option<&[u8]> {
    if kind == Kind::TimedHash {
        Field::living(kind, record, now).map(|field| field.value)
    } else {
        Some(record)
    }
}

/// Returns whether an element has ended.
pub(super) fn is_over(kind: Kind, record: &[u8], now: u64) -> bool {
    seen(kind, record, now).is_none()
}

/// Fails if a record of a hash of this form is damaged.
pub(super) fn check(record: &[u8]) -> Result<(), Fault> {
    Field::parse(record).map(drop).ok_or(FOREIGN)
}
