//! Leaves: one key-value pair each (SMART, section 4.1.1, Figure 6b, and section 4.5).
//!
//! ```text
//!         63   62    61               42 41                           0
//!        +----+-------------------------+-----------------------------+
//! word 0 | 1  |     value length 21     | reverse pointer / 64    42  |    live
//!        | 0  |            0            | reverse pointer / 64    42  |    dead
//!        | 0  | 1 |  0  |            address 48                       |    moved to another leaf
//!        +----+-------------------------+-----------------------------+
//! word 1 |        checksum 47                   |   key length 17     |
//!        +--------------------------------------+---------------------+
//!        |  key bytes, then value bytes, then zeros to whole words    |
//!        +------------------------------------------------------------+
//! last   |  lock word (in-place mode only)                            |
//!        +------------------------------------------------------------+
//! ```
//!
//! 40 bytes for a key and a value of 8 each, 32 without the lock; the public code has 34 with a
//! lock of one byte. The slot holds the length as a code of 7 bits: in words up to 512 bytes, then
//! in steps of at most a quarter.
//!
//! A leaf of the out-of-place mode never changes except for its reverse pointer. In the in-place
//! mode the leaf, not the slot, decides the state of its key: the holder of the lock writes the
//! words between word 0 and the lock in one WRITE, and changes word 0 by FAA or CAS. A dead leaf
//! stays dead; a moved leaf has the address of its key's new leaf, for readers with an old pointer. Checksums are only
//! checked, and computed, in the in-place mode.

use darter_fabric::GlobalAddr;
use darter_index::{IndexError, Result};
use darter_pool::size_class::CLASS_BYTES_MAX;
use twox_hash::XxHash3_64;

const LIVE: u64 = 1 << 63;
const MOVED: u64 = 1 << 62;
const LOST: u64 = 1 << 61;
const VALUE_SHIFT: u32 = 42;
const VALUE_BITS: u32 = 21;
const REVERSE_MASK: u64 = (1 << VALUE_SHIFT) - 1;
const KEY_BITS: u32 = 17;
const KEY_MASK: u64 = (1 << KEY_BITS) - 1;
/// Words before the key.
const HEADER_WORDS: usize = 2;
/// Codes below this are lengths in words.
const FINE: u8 = 64;
const FINE_BYTES: u64 = 512;

/// Returns the bytes of a leaf whose slot has this length code.
pub(super) const fn bytes_of(len: u8) -> u64 {
    if len < FINE {
        (len as u64 + 1) * 8
    } else {
        let (doubling, step) = ((len - FINE) as u64 / 4, (len - FINE) as u64 % 4);
        (FINE_BYTES << doubling) + (FINE_BYTES << doubling) / 4 * (step + 1)
    }
}

/// Returns the words of a leaf whose slot has this length code.
pub(super) const fn words_of(len: u8) -> usize {
    (bytes_of(len) / 8) as usize
}

/// Returns whether a leaf can have this length.
pub(super) const fn is_length(len: u8) -> bool {
    len >= 1 && len < 128 && bytes_of(len) <= CLASS_BYTES_MAX
}

/// The layout of an index's leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Format {
    /// With checksum and lock.
    pub(super) in_place: bool,
}

/// A leaf's contents, borrowed from the words of a READ.
#[derive(Clone, Copy, Debug)]
pub(super) struct Leaf<'a> {
    /// The target of its reverse pointer.
    pub(super) above: GlobalAddr,
    pub(super) key: &'a [u8],
    /// `None`: lost because its writer died during the write.
    pub(super) value: Option<&'a [u8]>,
}

/// The state of a leaf, by its words.
#[derive(Clone, Copy, Debug)]
pub(super) enum Read<'a> {
    Pair(Leaf<'a>),
    /// Deleted; its slot will be cleared.
    Dead,
    /// Replaced by the leaf at this address.
    Moved(GlobalAddr, u8),
    /// Read during a write, or left torn by a writer that died.
    Torn,
}

impl Format {
    /// Returns the length code of a leaf for these lengths, `None` if there is none.
    pub(super) fn len_for(self, key: usize, value: usize) -> Option<u8> {
        if value >= 1 << VALUE_BITS {
            return None;
        }
        let bytes = ((HEADER_WORDS + (key + value).div_ceil(8) + usize::from(self.in_place)) * 8) as u64;
        let fine = bytes / 8 - 1;
        if fine < u64::from(FINE) {
            return Some(fine as u8);
        }
        (FINE..128).find(|&len| bytes_of(len) >= bytes).filter(|&len| is_length(len))
    }

    /// The same for a pool whose objects have at most `object_bytes_max` bytes.
    ///
    /// # Errors
    /// [`IndexError::ValueTooLong`].
    pub(super) fn len_within(self, object_bytes_max: u64, key: usize, value: usize) -> Result<u8> {
        self.len_for(key, value).filter(|&len| bytes_of(len) <= object_bytes_max).ok_or_else(|| {
            let max = self.value_max(key, object_bytes_max);
            IndexError::ValueTooLong { bytes: value, max }
        })
    }

    /// Returns the longest value for a key in a leaf of at most this many bytes.
    pub(super) fn value_max(self, key: usize, bytes: u64) -> usize {
        let overhead = (HEADER_WORDS + usize::from(self.in_place)) * 8 + key;
        let longest = (0..128).rev().find(|&len| is_length(len) && bytes_of(len) <= bytes);
        let room = (longest.map_or(0, bytes_of) as usize).saturating_sub(overhead);
        room.min((1 << VALUE_BITS) - 1)
    }

    /// Returns the words of a live leaf, in the in-place mode its whole length, since the lock is
    /// the last word.
    pub(super) fn image(self, above: GlobalAddr, len: u8, key: &[u8], value: &[u8]) -> Vec<u64> {
        let body_words = (key.len() + value.len()).div_ceil(8);
        let words = if self.in_place { words_of(len) } else { HEADER_WORDS + body_words };
        let mut image = vec![0; words];
        image[0] = live_word(above, value.len());
        let body: &mut [u8] = bytemuck::cast_slice_mut(&mut image[HEADER_WORDS..]);
        body[..key.len()].copy_from_slice(key);
        body[key.len()..key.len() + value.len()].copy_from_slice(value);
        let sum = if self.in_place { checksum(&body[..key.len() + value.len()], key.len()) } else { 0 };
        image[1] = sum << KEY_BITS | key.len() as u64;
        image
    }

    /// Parses a leaf from the words at `addr`.
    ///
    /// # Errors
    /// [`IndexError::Corrupt`] if they cannot be a leaf of this format.
    #[inline]
    pub(super) fn parse(self, addr: GlobalAddr, words: &[u64]) -> Result<Read<'_>> {
        let [first, second, ..] = *words else {
            return Err(IndexError::corrupt(addr, "empty leaf"));
        };
        let is_lost = first & (LIVE | LOST) == LOST;
        if first & LIVE == 0 && !is_lost {
            if !self.in_place {
                return Err(IndexError::corrupt(addr, "a dead leaf in an index without locks"));
            }
            let to = GlobalAddr::from_bits(first & !15);
            let len = (first >> 48 & 127) as u8;
            return match first & MOVED {
                0 if first & !REVERSE_MASK == 0 => Ok(Read::Dead),
                0 => Err(IndexError::corrupt(addr, "leaf of an unknown kind")),
                _ if is_length(len) => Ok(Read::Moved(to, len)),
                _ => Err(IndexError::corrupt(addr, "leaf moved to a leaf of an unknown length")),
            };
        }
        let value_len = (first >> VALUE_SHIFT) as usize & ((1 << VALUE_BITS) - 1);
        let value_len = if is_lost { 0 } else { value_len };
        let key_len = (second & KEY_MASK) as usize;
        let body: &[u8] = bytemuck::cast_slice(&words[HEADER_WORDS..]);
        let end = key_len + value_len;
        if end + usize::from(self.in_place) * 8 > body.len() {
            return Err(IndexError::corrupt(addr, "leaf longer than its length"));
        }
        if self.in_place && !is_lost && checksum(&body[..end], key_len) != second >> KEY_BITS {
            return Ok(Read::Torn);
        }
        let above = GlobalAddr::from_bits((first & REVERSE_MASK) << 6);
        let value = (!is_lost).then(|| &body[key_len..end]);
        Ok(Read::Pair(Leaf { above, key: &body[..key_len], value }))
    }
}

fn checksum(body: &[u8], key_len: usize) -> u64 {
    XxHash3_64::oneshot_with_seed((body.len() as u64) << KEY_BITS | key_len as u64, body) >> KEY_BITS
}

/// Returns word 0 of a live leaf.
pub(super) fn live_word(above: GlobalAddr, value_len: usize) -> u64 {
    LIVE | (value_len as u64) << VALUE_SHIFT | above.bits() >> 6
}

/// Returns word 0 of a live leaf with the reverse pointer of another word 0, live or lost.
pub(super) fn live_like(word: u64, value_len: usize) -> u64 {
    LIVE | (value_len as u64) << VALUE_SHIFT | word & REVERSE_MASK
}

/// Returns word 0 of a dead leaf with the reverse pointer of another word 0.
pub(super) fn dead_word(word: u64) -> u64 {
    word & REVERSE_MASK
}

/// Returns what an FAA must add to word 0 of a leaf to change it from `word` to `to`, which has the
/// same reverse pointer. Other clients change the pointer by CAS at any time, and a CAS is atomic
/// only with other atomics: it may overwrite a WRITE.
pub(super) fn change_of(word: u64, to: u64) -> u64 {
    debug_assert_eq!(word & REVERSE_MASK, to & REVERSE_MASK, "FAA of a reverse pointer");
    to.wrapping_sub(word)
}

/// Returns word 0 of a leaf whose key has another leaf now.
pub(super) fn moved_word(to: GlobalAddr, len: u8) -> u64 {
    MOVED | u64::from(len & 127) << 48 | to.bits()
}

/// Returns word 0 of a leaf whose value was lost.
pub(super) fn lost_word(live: u64) -> u64 {
    live & REVERSE_MASK | LOST
}

/// Returns word 0 of a live leaf with another reverse pointer; `None` if the leaf is not live.
pub(super) fn with_above(word: u64, above: GlobalAddr) -> Option<u64> {
    (word & LIVE != 0).then_some(word & !REVERSE_MASK | above.bits() >> 6)
}

/// Returns the address of a leaf's lock.
pub(super) fn lock_addr(leaf: GlobalAddr, len: u8) -> GlobalAddr {
    leaf.plus(bytes_of(len) - 8)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leaves_round_trip() {
        let above = GlobalAddr::new(200, 64 * 12_345);
        for in_place in [false, true] {
            let format = Format { in_place };
            for (key, value) in [(0, 0), (1, 0), (0, 9), (8, 64), (65_536, 1 << 20), (300, 200)] {
                let (key, value) = (vec![7; key], vec![9; value]);
                let len = format.len_for(key.len(), value.len()).unwrap();
                let mut words = format.image(above, len, &key, &value);
                words.resize(words_of(len), 0);
                let Read::Pair(leaf) = format.parse(GlobalAddr::NULL, &words).unwrap() else { panic!() };
                assert_eq!((leaf.above, leaf.key, leaf.value), (above, &key[..], Some(&value[..])));
                if in_place && !value.is_empty() {
                    let last = words.len() - 2;
                    words[2] ^= 1;
                    assert!(matches!(format.parse(GlobalAddr::NULL, &words), Ok(Read::Torn)), "{last}");
                }
                words[0] = lost_word(words[0]);
                let Read::Pair(leaf) = format.parse(GlobalAddr::NULL, &words).unwrap() else { panic!() };
                assert_eq!((leaf.above, leaf.value), (above, None));
            }
        }
        assert_eq!(Format { in_place: true }.len_for(8, 8).map(bytes_of), Some(40));
        assert_eq!(Format { in_place: false }.len_for(8, 8).map(bytes_of), Some(32));
        let format = Format { in_place: true };
        for word in [live_word(GlobalAddr::new(1, 64), 8), lost_word(live_word(GlobalAddr::NULL, 8))] {
            let dead = word.wrapping_add(change_of(word, dead_word(word)));
            assert!(matches!(format.parse(GlobalAddr::NULL, &[dead, 0, 0]), Ok(Read::Dead)));
            assert_eq!(with_above(dead, GlobalAddr::NULL), None);
        }
        let moved = [moved_word(above, 5), 0, 0];
        assert!(matches!(format.parse(GlobalAddr::NULL, &moved), Ok(Read::Moved(to, 5)) if to == above));
    }

    #[test]
    fn lengths_grow_by_a_quarter_at_most() {
        let mut last = 8;
        for len in 1..128 {
            let bytes = bytes_of(len);
            assert!(bytes > last && bytes.is_multiple_of(8) && (len < FINE || bytes <= last + last / 4));
            last = bytes;
            assert!(!is_length(len) || darter_pool::size_class::class_of(bytes).is_some());
        }
    }
}
