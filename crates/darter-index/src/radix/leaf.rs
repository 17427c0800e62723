//! Leaves: one immutable key-value pair each, read whole by one READ of the size class in its slot
//! (paper, section 3.3).
//!
//! ```text
//!  63           48  47  46         17 16            0
//! +---------------+---+---------------+--------------+
//! | frequency 16  | R |  value len 30 | key length 17|             word 0
//! +---------------+---+---------------+--------------+
//! | key bytes, then value bytes, then zeros to the size class |   words 1..
//! +------------------------------------------------------------+
//! ```
//!
//! *R*: the leaf took the place of another of its key, unconditionally; see [`mark_replacement`].
//!
//! Only the frequency ever changes: every R-th search adds one to it by FAA. It sits in the top
//! bits, so that overflow falls out of the word.

use crate::IndexError;
use darter_fabric::GlobalAddr;
use darter_pool::size_class::{class_bytes, class_of};

/// Bytes before the key.
pub const HEADER_BYTES: usize = 8;
/// What FAA adds to count one access.
pub const FREQUENCY_ONE: u64 = 1 << 48;

const KEY_BITS: u32 = 17;
const VALUE_BITS: u32 = 30;
const REPLACEMENT: u64 = 1 << (KEY_BITS + VALUE_BITS);
const _: () = assert!(REPLACEMENT << 1 == FREQUENCY_ONE);

/// A leaf's contents, borrowed from the words a READ brought.
#[derive(Clone, Copy, Debug)]
pub struct Leaf<'a> {
    /// The key.
    pub key: &'a [u8],
    /// The value.
    pub value: &'a [u8],
}

/// The size class of a leaf for these lengths, `None` when no class is large enough.
pub fn leaf_class(key: usize, value: usize) -> Option<u8> {
    if value >= 1 << VALUE_BITS {
        return None;
    }
    class_of((HEADER_BYTES + key + value) as u64)
}

/// Words of a leaf of this class.
pub fn class_words(class: u8) -> usize {
    (class_bytes(class) / 8) as usize
}

/// The words to write for a pair; as many as its bytes need, the rest of the class is never looked
/// at.
pub fn image(key: &[u8], value: &[u8]) -> Vec<u64> {
    let bytes = HEADER_BYTES + key.len() + value.len();
    let mut words = vec![0_u64; bytes.div_ceil(8)];
    words[0] = key.len() as u64 | (value.len() as u64) << KEY_BITS;
    let body: &mut [u8] = bytemuck::cast_slice_mut(&mut words[1..]);
    body[..key.len()].copy_from_slice(key);
    body[key.len()..key.len() + value.len()].copy_from_slice(value);
    words
}

/// Says in a leaf's words, before they are written, whether the leaf is to take the place of
/// another of its key whatever the value there is.
pub fn mark_replacement(words: &mut [u64], is_one: bool) {
    words[0] = words[0] & !REPLACEMENT | if is_one { REPLACEMENT } else { 0 };
}

/// Whether [`mark_replacement`] said so.
pub fn is_replacement(header: u64) -> bool {
    header & REPLACEMENT != 0
}

/// Key and value lengths in a header word.
pub fn lengths(header: u64) -> (usize, usize) {
    ((header & ((1 << KEY_BITS) - 1)) as usize, (header >> KEY_BITS & ((1 << VALUE_BITS) - 1)) as usize)
}

/// The sampled accesses in a header word.
pub fn frequency(header: u64) -> u64 {
    header >> 48
}

/// Reads a leaf out of the words found at `addr`.
///
/// # Errors
/// [`IndexError::Corrupt`] when its lengths do not fit its class.
#[inline]
pub fn parse(addr: GlobalAddr, words: &[u64]) -> Result<Leaf<'_>, IndexError> {
    let (key, value) = lengths(*words.first().ok_or(IndexError::Corrupt { addr, what: "empty leaf" })?);
    let body: &[u8] = bytemuck::cast_slice(&words[1..]);
    let end = key + value;
    if end > body.len() {
        return Err(IndexError::Corrupt { addr, what: "leaf longer than its size class" });
    }
    Ok(Leaf { key: &body[..key], value: &body[key..end] })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leaves_round_trip() {
        for (key, value) in [(0, 0), (1, 0), (0, 9), (8, 64), (65_536, 1_048_576)] {
            let (key, value) = (vec![7; key], vec![9; value]);
            let mut words = image(&key, &value);
            let class = leaf_class(key.len(), value.len()).unwrap();
            words.resize(class_words(class), 0);
            words[0] = words[0].wrapping_add(FREQUENCY_ONE);
            mark_replacement(&mut words, true);
            assert!(is_replacement(words[0]));
            let leaf = parse(GlobalAddr::NULL, &words).unwrap();
            assert_eq!((leaf.key, leaf.value), (&key[..], &value[..]));
            assert_eq!(frequency(words[0]), 1);
        }
        assert!(parse(GlobalAddr::NULL, &[u64::MAX, 0]).is_err());
        assert_eq!(leaf_class(8, 64).map(class_bytes), Some(80));
    }
}
