//! Leaves: one immutable key-value pair each, read whole by one READ of the size class in its slot
//! (paper, section 3.3).
//!
//! ```text
//!  63           49  48  47  46      43 42         17 16            0
//! +---------------+---+---+-----------+-------------+--------------+
//! | frequency 15  | R | P | checksum 4| value len 26| key length 17|   word 0
//! +---------------+---+---+-----------+-------------+--------------+
//! | key bytes, then value bytes, then zeros to a whole word         |   words 1..
//! +-----------------------------------------------------------------+
//! ```
//!
//! *R*: the leaf took the place of another of its key, unconditionally; see [`mark_replacement`].
//!
//! *P* makes the number of ones below the frequency even. *Checksum*: the exclusive or of all bits
//! of the other words, each at its place modulo 4. Together they show every single flipped bit, and
//! most other damage (15 of 16 cases when it is in key or value). They are verified whenever a leaf
//! is read, so that damage to a medium is an error and no answer. That costs an exclusive or for
//! each word: less than the copy of the value.
//!
//! Only the frequency ever changes: every R-th search adds one to it by FAA. It sits in the top
//! bits, so that overflow falls out of the word.

use crate::{IndexError, Result};
use darter_fabric::{GlobalAddr, mutant};
use darter_pool::size_class::{class_bytes, class_of};

/// Bytes before the key.
pub const HEADER_BYTES: usize = 8;
/// What FAA adds to count one access.
pub const FREQUENCY_ONE: u64 = 1 << FREQUENCY_AT;

const KEY_BITS: u32 = 17;
const VALUE_BITS: u32 = 26;
const CHECKSUM_AT: u32 = KEY_BITS + VALUE_BITS;
const CHECKSUM: u64 = 0b1111 << CHECKSUM_AT;
const PARITY: u64 = 1 << (CHECKSUM_AT + 4);
const REPLACEMENT: u64 = PARITY << 1;
const FREQUENCY_AT: u32 = CHECKSUM_AT + 6;
const _: () = assert!(REPLACEMENT << 1 == FREQUENCY_ONE);
/// The checksum of a leaf without key and value: words that are all zero are no leaf.
const CHECKSUM_SEED: u64 = 0b1001;

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

/// The size class of a leaf for these lengths in a pool whose objects have at most so many bytes.
///
/// # Errors
/// [`IndexError::ValueTooLong`].
pub fn class_within(object_bytes_max: u64, key: usize, value: usize) -> Result<u8> {
    leaf_class(key, value).filter(|&class| class_bytes(class) <= object_bytes_max).ok_or_else(|| {
        let max = (object_bytes_max as usize).saturating_sub(HEADER_BYTES + key);
        IndexError::ValueTooLong { bytes: value, max }
    })
}

/// Returns the length in bytes of the largest value under an empty key, in a pool whose objects have
/// at most `object_bytes_max` bytes.
pub fn value_bytes_max(object_bytes_max: u64) -> usize {
    let room = usize::try_from(object_bytes_max).unwrap_or(usize::MAX).saturating_sub(HEADER_BYTES);
    room.min((1 << VALUE_BITS) - 1)
}

/// Words of a leaf of this class.
pub fn class_words(class: u8) -> usize {
    (class_bytes(class) / 8) as usize
}

/// The words to write for a pair; as many as its bytes need, the rest of the class is never looked
/// at.
pub fn image(key: &[u8], value: &[u8]) -> Vec<u64> {
    let mut words = vec![0_u64; words_of(key.len(), value.len())];
    words[0] = key.len() as u64 | (value.len() as u64) << KEY_BITS;
    let body: &mut [u8] = bytemuck::cast_slice_mut(&mut words[1..]);
    body[..key.len()].copy_from_slice(key);
    body[key.len()..key.len() + value.len()].copy_from_slice(value);
    words[0] = with_parity(words[0] | checksum(&words[1..]));
    words
}

/// The words to write for a pair again, out of those of a leaf with these lengths that were read.
pub fn image_of(words: &[u64], key: usize, value: usize) -> Vec<u64> {
    words[..words_of(key, value).min(words.len())].to_vec()
}

/// Words that the bytes of a pair need.
#[inline]
fn words_of(key: usize, value: usize) -> usize {
    (HEADER_BYTES + key + value).div_ceil(8)
}

/// The checksum of the words after the header, at its place in the header.
#[inline]
fn checksum(body: &[u64]) -> u64 {
    let mut sum = body.iter().fold(CHECKSUM_SEED, |sum, word| sum ^ word);
    for half in [32, 16, 8, 4] {
        sum ^= sum >> half;
    }
    sum << CHECKSUM_AT & CHECKSUM
}

/// Whether an even number of the bits below the frequency are ones.
#[inline]
fn is_even(header: u64) -> bool {
    (header & (FREQUENCY_ONE - 1)).count_ones().is_multiple_of(2)
}

fn with_parity(header: u64) -> u64 {
    if is_even(header) { header } else { header ^ PARITY }
}

/// Says in a leaf's words, before they are written, whether the leaf is to take the place of
/// another of its key whatever the value there is.
pub fn mark_replacement(words: &mut [u64], is_one: bool) {
    let marked = words[0] & !REPLACEMENT | if is_one { REPLACEMENT } else { 0 };
    words[0] = if mutant!("leaf-marked-under-its-old-checksum") { marked } else { with_parity(marked) };
}

/// Whether [`mark_replacement`] said so.
pub fn is_replacement(header: u64) -> bool {
    header & REPLACEMENT != 0
}

/// Key and value lengths in a header word.
#[inline]
pub fn lengths(header: u64) -> (usize, usize) {
    ((header & ((1 << KEY_BITS) - 1)) as usize, (header >> KEY_BITS & ((1 << VALUE_BITS) - 1)) as usize)
}

/// The sampled accesses in a header word.
pub fn frequency(header: u64) -> u64 {
    header >> FREQUENCY_AT
}

/// Reads a leaf out of the words found at `addr`.
///
/// # Errors
/// [`IndexError::Corrupt`] when its lengths do not fit its class, or its checksum does not match.
#[inline]
pub fn parse(addr: GlobalAddr, words: &[u64]) -> Result<Leaf<'_>> {
    let leaf = parse_again(addr, words)?;
    let body = &words[1..words_of(leaf.key.len(), leaf.value.len())];
    let is_whole = is_even(words[0]) && checksum(body) == words[0] & CHECKSUM;
    if !is_whole && !mutant!("leaf-checksum-not-compared") {
        return Err(IndexError::corrupt(addr, "leaf's checksum does not match its key and value"));
    }
    Ok(leaf)
}

/// The same, of words that [`parse`] has accepted before.
///
/// # Errors
/// [`IndexError::Corrupt`] when its lengths do not fit its class.
#[inline]
pub fn parse_again(addr: GlobalAddr, words: &[u64]) -> Result<Leaf<'_>> {
    let (key, value) = lengths(*words.first().ok_or_else(|| IndexError::corrupt(addr, "empty leaf"))?);
    let body: &[u8] = bytemuck::cast_slice(&words[1..]);
    let end = key + value;
    if end > body.len() {
        return Err(IndexError::corrupt(addr, "leaf longer than its size class"));
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
            mark_replacement(&mut words, true);
            words.resize(class_words(class), 0);
            words[0] = words[0].wrapping_add(FREQUENCY_ONE);
            assert!(is_replacement(words[0]));
            let leaf = parse(GlobalAddr::NULL, &words).unwrap();
            assert_eq!((leaf.key, leaf.value), (&key[..], &value[..]));
            assert_eq!(frequency(words[0]), 1);
        }
        assert!(parse(GlobalAddr::NULL, &[u64::MAX, 0]).is_err());
        assert!(parse(GlobalAddr::NULL, &[0, 0]).is_err(), "zeroed memory is no leaf");
        assert_eq!(leaf_class(8, 64).map(class_bytes), Some(80));
    }

    /// Whatever bit of a leaf flips but its frequency's, which searches change, it is read no more.
    #[test]
    fn every_flipped_bit_of_a_leaf_is_noticed() {
        for (key, value) in
            [(&b"pear"[..], &b"green"[..]), (b"", b""), (b"k", b"12345678"), (b"12345678", b"")]
        {
            for is_replacement in [false, true] {
                let mut words = image(key, value);
                mark_replacement(&mut words, is_replacement);
                words.resize(class_words(leaf_class(key.len(), value.len()).unwrap()), 0x5a5a);
                assert_eq!(parse(GlobalAddr::NULL, &words).unwrap().value, value);
                let header = (0..64).filter(|bit| 1 << bit < FREQUENCY_ONE);
                for bit in header.chain(64..words_of(key.len(), value.len()) * 64) {
                    let mut damaged = words.clone();
                    damaged[bit / 64] ^= 1 << (bit % 64);
                    assert!(parse(GlobalAddr::NULL, &damaged).is_err(), "bit {bit}");
                }
            }
        }
    }
}
