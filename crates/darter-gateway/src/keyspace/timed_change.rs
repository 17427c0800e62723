//! Changes of small hashes whose fields may expire, and of hashes that become such.

use super::Kind;
use super::packed::{Decide, Packed};
use super::timed_record::Field;
use crate::fault::Fault;
use std::borrow::Cow;

/// How a command decides on the records of a hash.
pub(super) enum By<'d, 'r> {
    /// By the values. The expiry time of a field is taken off, or kept if the flag is set.
    Values(&'d mut Decide<'r>, bool),
    /// By records in the form above, which the hash then has.
    Records(&'d mut Decide<'r>),
}

/// Returns the type that a key of a type has after a change, which may make fields expire.
pub(super) fn made(makes_timed: bool, kind: Kind) -> Kind {
    if makes_timed && kind == Kind::Hash { Kind::TimedHash } else { kind }
}

impl By<'_, '_> {
    /// Decides on a record of a type.
    pub(super) fn decide(
        &mut self,
        kind: Kind,
        now: u64,
        at: usize,
        old: Option<&[u8]>,
        new: &mut Vec<u8>,
    ) -> Result<bool, Fault> {
        let (decide, keeps_end) = match self {
            Self::Values(decide, keeps_end) if kind == Kind::TimedHash => (decide, *keeps_end),
            Self::Values(decide, _) | Self::Records(decide) => return decide(at, old, new),
        };
        let field = old.and_then(|record| Field::living(kind, record, now));
        let mut value = Vec::new();
        let is_put = decide(at, field.map(|field| field.value), &mut value)?;
        let end = field.and_then(|field| field.end).filter(|_| keeps_end);
        Field { value: &value, end }.write(new);
        Ok(is_put)
    }
}

/// Returns the elements of a head that have not ended, in the form of a key of type `to`.
pub(super) fn living(packed: Packed<'_>, to: Kind, now: u64) -> Cow<'_, [u8]> {
    let (kind, mut body) = (packed.kind(), Vec::new());
    if to != Kind::TimedHash {
        return Cow::Borrowed(packed.body());
    }
    for (name, record) in packed.iter() {
        let Some(field) = Field::living(kind, record, now) else { continue };
        for text in [name, &field.record()] {
            body.extend_from_slice(&(text.len() as u16).to_le_bytes());
            body.extend_from_slice(text);
        }
    }
    Cow::Owned(body)
}
