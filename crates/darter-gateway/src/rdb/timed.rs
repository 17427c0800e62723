//! Hashes whose fields may expire in payloads, in the forms of Redis 7.4.
//!
//! ```text
//! first end, 8 bytes | fields, then for each: ms after the first end and 1, or 0 | name | value
//! first end, 8 bytes | listpack of names, values and ends
//! ```
//!
//! An end of 0 means that the field does not expire.

use super::packed::listpack;
use super::read::Reader;
use super::{
    Elements, TIMED_HASH, TIMED_HASH_IN_LISTPACK, VERSION_MAX, Value, push_length, push_string, seal_as,
};
use std::collections::HashSet;

/// A field of a hash: its name, its value, and when it ends.
pub(crate) type TimedField = (Vec<u8>, Vec<u8>, Option<u64>);

/// Returns the payload of a hash whose fields may expire, if it has fields. Only if one expires, it has
/// the form and the version of Redis 7.4.
pub(crate) fn dumped_fields(fields: &[TimedField]) -> Option<Vec<u8>> {
    let Some(first) = fields.iter().filter_map(|(_, _, end)| *end).min() else {
        let mut hash = Elements::of_hash();
        for (name, value, _) in fields {
            hash.push_field(name, value);
        }
        return hash.dumped();
    };
    let mut payload = vec![TIMED_HASH];
    payload.extend_from_slice(&first.to_le_bytes());
    push_length(&mut payload, fields.len());
    for (name, value, end) in fields {
        // One more than the time after the first end.
        push_length(&mut payload, end.map_or(0, |end| (end - first + 1) as usize));
        push_string(&mut payload, name);
        push_string(&mut payload, value);
    }
    Some(seal_as(payload, VERSION_MAX))
}

/// Reads a hash whose fields may expire.
pub(super) fn timed_fields<'p>(reader: &mut Reader<'p>, kind: u8) -> Option<Value<'p>> {
    let (first, mut fields) = (reader.time()?, Vec::new());
    if kind == TIMED_HASH_IN_LISTPACK {
        let mut parts = reader.packed(listpack)?.into_iter();
        while let Some(name) = parts.next() {
            let (value, end) = (parts.next()?, crate::number::integer(&parts.next()?)?);
            fields.push((name, value, u64::try_from(end).ok()?));
        }
    } else {
        for _ in 0..reader.length()? {
            reader.take_element()?;
            let after = reader.length()? as u64;
            let end = if after == 0 { 0 } else { first.checked_add(after - 1)? };
            fields.push((reader.string()?, reader.string()?, end));
        }
    }
    let mut names = HashSet::new();
    if fields.is_empty() || !fields.iter().all(|(name, ..)| names.insert(&name[..])) {
        return None;
    }
    let timed = |(name, value, end)| (name, value, Some(end).filter(|end| *end > 0));
    Some(Value::TimedHash(fields.into_iter().map(timed).collect()))
}
