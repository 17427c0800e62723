//! Leaves: one immutable key-value pair each, read whole by one READ of the size class in its slot
//! (paper, section 3.3).
//!
//! ```text
//!  63         55  54  53  52               21 20         8 7        0
//! +-------------+---+---+-------------------+------------+----------+
//! | frequency 9 | R | L |   checksum 32     |  value 13  |  key 8   |   word 0
//! +-------------+---+---+-------------------+------------+----------+
//! | if L: key length 17, value length 26, from bit 17; I from bit 63 |   word 1
//! +-----------------------------------------------------------------+
//! | key bytes, then value bytes, then zeros to a whole word         |   the other words
//! +-----------------------------------------------------------------+
//! ```
//!
//! *Value* and *key* are the lengths, in bytes, of a short pair. A longer pair has *L* set, zeros
//! in these fields, and its lengths in word 1.
//!
//! *I*: the leaf is a transaction's intent ([`super::intent`]): its value holds two values of the
//! key. An intent has *L* set whatever its lengths are.
//!
//! *R*: the leaf replaced another leaf of its key unconditionally; see [`mark_replacement`].
//!
//! *Checksum*: CRC32C of the lengths, *L*, and all words after word 0, modified if *R* is set.
//! Every reader of a leaf verifies it: a flipped bit is always detected, other damage except in one
//! case in 2^32.
//!
//! Only the frequency ever changes: every R-th search adds one to it by FAA. It is in the top bits,
//! so that an overflow affects no other field.

use crate::{IndexError, Result};
use darter_fabric::GlobalAddr;
use darter_pool::size_class::{class_bytes, class_of};
use smallvec::SmallVec;

/// Bytes before the key of a long pair, which is the maximum for any pair.
pub const HEADER_BYTES_MAX: usize = 16;
/// The operand of the FAA that counts one access.
pub const FREQUENCY_ONE: u64 = 1 << FREQUENCY_AT;

const KEY_BITS: u32 = 8;
const VALUE_BITS: u32 = 13;
const CHECKSUM_AT: u32 = KEY_BITS + VALUE_BITS;
const CHECKSUM: u64 = (u32::MAX as u64) << CHECKSUM_AT;
const LONG: u64 = 1 << (CHECKSUM_AT + 32);
const REPLACEMENT: u64 = LONG << 1;
const FREQUENCY_AT: u32 = CHECKSUM_AT + 34;
const _: () = assert!(REPLACEMENT << 1 == FREQUENCY_ONE);
/// Bits of word 0 that the checksum covers: the lengths and *L*.
const COVERED: u64 = LONG | ((1 << CHECKSUM_AT) - 1);
const LONG_KEY_BITS: u32 = 17;
const LONG_VALUE_BITS: u32 = 26;
/// In word 1 of a long leaf: it is an intent.
const INTENT: u64 = 1 << 63;
/// The checksum of a leaf without key and value. It is not 0, so that zeroed words are not a valid
/// leaf.
const CHECKSUM_SEED: u32 = 0x9e37_79b9;
/// The bits that *R* changes in a checksum.
const REPLACEMENT_CHECKSUM: u64 = 0x5bd1_e995 << CHECKSUM_AT;

/// The words of a leaf; those of short pairs need no allocation.
pub type Image = SmallVec<[u64; IMAGE_WORDS]>;

const IMAGE_WORDS: usize = 12;

/// A leaf's contents, borrowed from the words that a READ returned.
#[derive(Clone, Copy, Debug)]
pub struct Leaf<'a> {
    /// The key.
    pub key: &'a [u8],
    /// The value.
    pub value: &'a [u8],
}

/// The size class of a leaf for these lengths; `None` if no class is large enough.
pub fn leaf_class(key: usize, value: usize) -> Option<u8> {
    if value >= 1 << LONG_VALUE_BITS {
        return None;
    }
    class_of((header_bytes(key, value) + key + value) as u64)
}

/// The size class of a leaf for these lengths in a pool with objects of at most `object_bytes_max`
/// bytes.
///
/// # Errors
/// [`IndexError::ValueTooLong`].
pub fn class_within(object_bytes_max: u64, key: usize, value: usize) -> Result<u8> {
    leaf_class(key, value)
        .filter(|&class| class_bytes(class) <= object_bytes_max)
        .ok_or_else(|| IndexError::ValueTooLong { bytes: value, max: value_max_under(object_bytes_max, key) })
}

/// Returns the length in bytes of the largest value under an empty key, in a pool with objects of
/// at most `object_bytes_max` bytes.
pub fn value_bytes_max(object_bytes_max: u64) -> usize {
    value_max_under(object_bytes_max, 0)
}

/// Returns the same for a key of `key` bytes.
fn value_max_under(object_bytes_max: u64, key: usize) -> usize {
    let room = usize::try_from(object_bytes_max).unwrap_or(usize::MAX);
    let short = room.saturating_sub(8 + key).min((1 << VALUE_BITS) - 1);
    let long = room.saturating_sub(HEADER_BYTES_MAX + key).min((1 << LONG_VALUE_BITS) - 1);
    if is_short(key, 0) { short.max(long) } else { long }
}

/// Bytes before the key of a pair with these lengths.
#[inline]
pub fn header_bytes(key: usize, value: usize) -> usize {
    if is_short(key, value) { 8 } else { HEADER_BYTES_MAX }
}

#[inline]
fn is_short(key: usize, value: usize) -> bool {
    key < 1 << KEY_BITS && value < 1 << VALUE_BITS
}

/// Number of words of a leaf of this class.
pub fn class_words(class: u8) -> usize {
    (class_bytes(class) / 8) as usize
}

/// Returns the words to write for a pair. The rest of its size class is never read.
pub fn image(key: &[u8], value: &[u8]) -> Image {
    let mut words = zeros(words_of(key.len(), value.len()));
    let header = if is_short(key.len(), value.len()) {
        key.len() as u64 | (value.len() as u64) << KEY_BITS
    } else {
        words[1] = long_lengths(key.len(), value.len());
        LONG
    };
    fill(&mut words, header, &[key, value]);
    words
}

/// Returns the words of an intent for a key; its value is the concatenation of `parts`.
pub(crate) fn intent_image(key: &[u8], parts: &[&[u8]]) -> Image {
    let value: usize = parts.iter().map(|part| part.len()).sum();
    let mut words = zeros((HEADER_BYTES_MAX + key.len() + value).div_ceil(8));
    words[1] = long_lengths(key.len(), value) | INTENT;
    fill(&mut words, LONG, &[&[key], parts].concat());
    words
}

fn zeros(words: usize) -> Image {
    let buffer = [0; IMAGE_WORDS];
    if words <= buffer.len() { Image::from_buf_and_len(buffer, words) } else { vec![0; words].into() }
}

fn long_lengths(key: usize, value: usize) -> u64 {
    key as u64 | (value as u64) << LONG_KEY_BITS
}

/// Stores a leaf's bytes after its lengths, and its header with the checksum.
fn fill(words: &mut [u64], header: u64, parts: &[&[u8]]) {
    let first = if header & LONG == 0 { 1 } else { 2 };
    let body: &mut [u8] = bytemuck::cast_slice_mut(&mut words[first..]);
    let mut at = 0;
    for part in parts {
        body[at..at + part.len()].copy_from_slice(part);
        at += part.len();
    }
    words[0] = header | checksum(header, &words[1..]);
}

/// Whether the words are those of an intent.
#[inline]
pub fn is_intent(words: &[u64]) -> bool {
    matches!(words, [header, long, ..] if header & LONG != 0 && long & INTENT != 0)
}

/// Returns the words to write a pair again, from the words read of a leaf with these lengths.
pub fn image_of(words: &[u64], key: usize, value: usize) -> &[u64] {
    &words[..words_of(key, value).min(words.len())]
}

/// Number of words that the bytes of a pair need.
#[inline]
fn words_of(key: usize, value: usize) -> usize {
    (header_bytes(key, value) + key + value).div_ceil(8)
}

/// The checksum of a header and the words after it, at its place in the header.
#[inline]
fn checksum(header: u64, body: &[u64]) -> u64 {
    // The seed incorporates the header: 22 bits, next to each other.
    let covered = header & (COVERED & !LONG) | (header & LONG) >> 32;
    let sum = crate::checksum::append(CHECKSUM_SEED ^ covered as u32, body);
    let mark = if header & REPLACEMENT == 0 { 0 } else { REPLACEMENT_CHECKSUM };
    u64::from(sum) << CHECKSUM_AT ^ mark
}

/// Binds an image's checksum to `place`, so that a copy in another place does not match it, or
/// removes the binding.
#[inline]
pub fn bind(header: u64, place: GlobalAddr) -> u64 {
    let salt = (place.bits().wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) << CHECKSUM_AT;
    header ^ salt
}

/// Reads a pair from an image that is bound to a place ([`bind`]).
///
/// # Errors
/// As [`parse`].
#[inline]
pub fn parse_bound(place: GlobalAddr, words: &[u64]) -> Result<Leaf<'_>> {
    verified(place, words, words.first().map_or(0, |&header| bind(header, place)))
}

/// Sets in a leaf's words, before they are written, whether the leaf replaces another leaf of its
/// key unconditionally.
pub fn mark_replacement(words: &mut [u64], is_one: bool) {
    if is_replacement(words[0]) == is_one {
        return;
    }
    words[0] ^= REPLACEMENT;
    words[0] ^= REPLACEMENT_CHECKSUM;
}

/// Whether [`mark_replacement`] set the mark.
pub fn is_replacement(header: u64) -> bool {
    header & REPLACEMENT != 0
}

/// Returns the lengths of key and value in a leaf's words; `None` if there are too few words.
#[inline]
pub fn lengths(words: &[u64]) -> Option<(usize, usize)> {
    let header = *words.first()?;
    if header & LONG == 0 {
        let value = header >> KEY_BITS & ((1 << VALUE_BITS) - 1);
        return Some(((header & ((1 << KEY_BITS) - 1)) as usize, value as usize));
    }
    let long = *words.get(1)?;
    let value = long >> LONG_KEY_BITS & ((1 << LONG_VALUE_BITS) - 1);
    Some(((long & ((1 << LONG_KEY_BITS) - 1)) as usize, value as usize))
}

/// Returns the number of bytes before the key in a leaf's words, and the key's length; `None` if
/// there are too few words.
pub fn key_place(words: &[u64]) -> Option<(usize, usize)> {
    let (key, _) = lengths(words)?;
    Some((first_word(words) * 8, key))
}

/// The word of a leaf at which its key begins.
#[inline]
fn first_word(words: &[u64]) -> usize {
    if words[0] & LONG == 0 { 1 } else { 2 }
}

/// The number of sampled accesses in a header word.
pub fn frequency(header: u64) -> u64 {
    header >> FREQUENCY_AT
}

/// Reads a leaf from the words found at `addr`.
///
/// # Errors
/// [`IndexError::Corrupt`] if its lengths do not fit its class, or its checksum does not match.
#[inline]
pub fn parse(addr: GlobalAddr, words: &[u64]) -> Result<Leaf<'_>> {
    verified(addr, words, words.first().copied().unwrap_or(0))
}

#[inline]
fn verified(addr: GlobalAddr, words: &[u64], header: u64) -> Result<Leaf<'_>> {
    let leaf = parse_again(addr, words)?;
    let bytes = leaf.key.len() + leaf.value.len();
    let body = &words[1..first_word(words) + bytes.div_ceil(8)];
    let is_whole = checksum(header, body) == header & CHECKSUM;
    if !is_whole {
        return Err(IndexError::corrupt(addr, "leaf's checksum does not match its key and value"));
    }
    Ok(leaf)
}

/// The same without verifying the checksum, for words that [`parse`] has accepted before, or whose
/// key is compared with a known one.
///
/// # Errors
/// [`IndexError::Corrupt`] if its lengths do not fit its class.
#[inline]
pub fn parse_again(addr: GlobalAddr, words: &[u64]) -> Result<Leaf<'_>> {
    let (key, value) = lengths(words).ok_or_else(|| IndexError::corrupt(addr, "empty leaf"))?;
    let is_long = words[0] & LONG != 0;
    let body: &[u8] = bytemuck::cast_slice(&words[first_word(words)..]);
    let end = key + value;
    if end > body.len() || is_long == is_short(key, value) && !is_intent(words) {
        return Err(IndexError::corrupt(addr, "leaf longer than its size class"));
    }
    Ok(Leaf { key: &body[..key], value: &body[key..end] })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leaves_round_trip() {
        for (key, value) in
            [(0, 0), (1, 0), (0, 9), (8, 64), (255, 8191), (256, 0), (0, 8192), (65_536, 1_048_576)]
        {
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
        assert!(parse(GlobalAddr::NULL, &[0, 0]).is_err(), "zeroed memory is not a leaf");
        assert_eq!(leaf_class(8, 64).map(class_bytes), Some(80));
    }

    /// If any bit of a leaf flips, except its frequency, which searches change, reading it fails.
    #[test]
    fn every_flipped_bit_of_a_leaf_is_noticed() {
        let long = [7; 300];
        for (key, value) in [
            (&b"pear"[..], &b"green"[..]),
            (b"", b""),
            (b"k", b"12345678"),
            (b"12345678", b""),
            (&long, b"v"),
        ] {
            for is_replacement in [false, true] {
                let mut words = image(key, value);
                mark_replacement(&mut words, is_replacement);
                words.resize(class_words(leaf_class(key.len(), value.len()).unwrap()), 0x5a5a);
                assert_eq!(parse(GlobalAddr::NULL, &words).unwrap().value, value);
                let header = (0..64).filter(|bit| 1_u64 << bit < FREQUENCY_ONE);
                for bit in header.chain(64..words_of(key.len(), value.len()) * 64) {
                    let mut damaged = words.clone();
                    damaged[bit / 64] ^= 1 << (bit % 64);
                    assert!(parse(GlobalAddr::NULL, &damaged).is_err(), "bit {bit}");
                }
            }
        }
    }
}
