//! Leaf entries, in the two forms that [`super::options::Records`] gives them.
//!
//! ```text
//! pair in a block   key: digest or the key itself | pointer: stamp 13, size class 7, address 44 in units of 16 bytes
//! inline            check: hash 62, state 2 | key | value
//! ```
//!
//! *Pointer.* The word is decisive: the pair is in an immutable block, so an entry changes by one
//! word, written last. Its 13 bits of the node's stamp show that it belongs to this image of the
//! node; zero means empty.
//!
//! *Check.* Hash of node, stamp, slot, state, key and value: a mixture of two states of the entry
//! does not match.
//!
//! *Digest.* For keys of any length: the 5 bytes after the prefix that all keys of the leaf share,
//! so that digests are in the keys' order if these bytes differ, then 24 bits of a keyed hash of
//! the key.

use super::format::{Format, mix};
use darter_fabric::GlobalAddr;
use darter_pool::size_class::class_bytes;
use smallvec::{SmallVec, smallvec};
use std::cmp::Ordering;

/// Bits of a node's stamp that its pointers carry.
pub(crate) const STAMP_BITS: u32 = 13;
const STAMP_SHIFT: u32 = 64 - STAMP_BITS;
const CLASS_SHIFT: u32 = 44;
/// Hash bits of a digest.
const HASH_BITS: u32 = 24;

const EMPTY: u64 = 0;
const LIVE: u64 = 1;
const LOST: u64 = 2;
const STATE_MASK: u64 = 3;

/// The words of an entry, or part of them.
pub(crate) type Words = SmallVec<[u64; 4]>;
/// The place of an entry: node, the node's stamp, slot.
pub(crate) type At = (GlobalAddr, u64, usize);

/// An entry that holds a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    /// The key, or its digest.
    pub(crate) key: Words,
    /// The value, or the pointer to the pair without a stamp.
    pub(crate) payload: Words,
    /// The value was lost.
    pub(crate) lost: bool,
}

/// The content of an entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum EntryState {
    Empty,
    Holds(Entry),
    /// The words are inconsistent, or do not belong to this image of the node.
    Torn,
}

/// The block of a pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Block {
    pub(crate) addr: GlobalAddr,
    pub(crate) class: u8,
}

impl Block {
    /// Returns the pointer's word, without a stamp.
    pub(crate) fn word(self) -> u64 {
        self.addr.bits() >> 4 | u64::from(self.class) << CLASS_SHIFT
    }

    pub(crate) fn from_word(word: u64) -> Self {
        let addr = GlobalAddr::from_bits((word & ((1 << CLASS_SHIFT) - 1)) << 4);
        Self { addr, class: (word >> CLASS_SHIFT & 127) as u8 }
    }

    pub(crate) fn bytes(self) -> u64 {
        class_bytes(self.class)
    }

    pub(crate) fn words(self) -> usize {
        (self.bytes() / 8) as usize
    }
}

/// Returns the word of a pointer with a node's stamp.
fn stamped(pointer: u64, stamp: u64) -> u64 {
    pointer | stamp << STAMP_SHIFT
}

fn check(format: &Format, (addr, stamp, slot): At, state: u64, words: &[u64]) -> u64 {
    let start = mix(mix(mix(format.seed, addr.bits()), stamp), (slot as u64) << 2 | state);
    let hash = words.iter().fold(start, |hash, &word| mix(hash, word));
    hash & !STATE_MASK | state
}

impl Entry {
    /// Returns the pair's block, if pairs are in blocks.
    pub(crate) fn block(&self) -> Block {
        Block::from_word(self.payload.first().copied().unwrap_or(0))
    }

    /// Returns the words of an entry in its place; of an empty one for `None`.
    pub(crate) fn image(format: &Format, at: At, entry: Option<&Self>) -> Words {
        if !format.is_inline() {
            let mut words: Words =
                entry.map_or_else(|| smallvec![0; format.key_words()], |entry| entry.key.clone());
            words.push(stamped(entry.map_or(0, |entry| entry.payload[0]), at.1));
            return words;
        }
        let mut words: Words = smallvec![0; format.entry_words()];
        words[0] = match entry {
            None => check(format, at, EMPTY, &[]),
            Some(entry) => {
                let payload = 1 + entry.key.len();
                words[1..payload].copy_from_slice(&entry.key);
                words[payload..].copy_from_slice(&entry.payload);
                if entry.lost {
                    check(format, at, LOST, &entry.key)
                } else {
                    check(format, at, LIVE, &words[1..])
                }
            }
        };
        words
    }
}

impl EntryState {
    pub(crate) fn parse(format: &Format, at: At, words: &[u64]) -> Self {
        if !format.is_inline() {
            let (key, pointer) = words.split_at(format.key_words());
            let pointer = pointer[0];
            return if pointer >> STAMP_SHIFT != at.1 & ((1 << STAMP_BITS) - 1) {
                Self::Torn
            } else if Block::from_word(pointer).addr.is_null() {
                Self::Empty
            } else {
                let payload = smallvec![pointer & ((1 << STAMP_SHIFT) - 1)];
                Self::Holds(Entry { key: key.into(), payload, lost: false })
            };
        }
        let state = words[0] & STATE_MASK;
        let covered = match state {
            LIVE => &words[1..],
            LOST => &words[1..=format.key_words()],
            EMPTY => &[],
            _ => return Self::Torn,
        };
        if check(format, at, state, covered) != words[0] {
            return Self::Torn;
        }
        if state == EMPTY {
            return Self::Empty;
        }
        let (key, payload) = words[1..].split_at(format.key_words());
        Self::Holds(Entry { key: key.into(), payload: payload.into(), lost: state == LOST })
    }

    pub(crate) fn entry(self) -> Option<Entry> {
        match self {
            Self::Holds(entry) => Some(entry),
            _ => None,
        }
    }
}

/// Returns the content of an inline entry whose check fails under a lock, after an interrupted
/// write. The protocol writes a new entry's check last and a replaced value's check first, so it
/// was a replacement; a value of one word is then still the old one.
pub(crate) fn repaired(format: &Format, words: &[u64]) -> Entry {
    let (key, payload) = words[1..].split_at(format.key_words());
    Entry { key: key.into(), payload: payload.into(), lost: payload.len() > 1 }
}

/// Packs bytes into big-endian words, which compare like keys of equal length.
pub(crate) fn pack(bytes: &[u8]) -> Words {
    bytes
        .chunks(8)
        .map(|chunk| {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            u64::from_be_bytes(word)
        })
        .collect()
}

/// Returns the first `len` bytes of packed words.
pub(crate) fn unpack(words: &[u64], len: usize) -> Vec<u8> {
    let mut bytes: Vec<u8> = words.iter().flat_map(|word| word.to_be_bytes()).collect();
    bytes.truncate(len);
    bytes
}

/// Returns the five bytes after a prefix, padded with zeros.
fn order(key: &[u8], prefix: usize) -> u64 {
    let rest = key.get(prefix..).unwrap_or(&[]);
    (0..5).fold(0, |word, at| word << 8 | rest.get(at).map_or(0, |&byte| u64::from(byte)))
}

/// Returns the key words of an entry for a key of a leaf with this prefix.
pub(crate) fn key_words(format: &Format, key: &[u8], prefix: usize) -> Words {
    if format.key.is_some() {
        return pack(key);
    }
    let words = key.chunks(8).map(|chunk| {
        let mut word = [0; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        u64::from_le_bytes(word)
    });
    let hash = words.fold(mix(format.seed, key.len() as u64), mix);
    smallvec![order(key, prefix) << HASH_BITS | hash >> (64 - HASH_BITS)]
}

/// Compares an entry's key with `other`, which is known to have the leaf's prefix too; `Equal` if
/// the words do not decide.
pub(crate) fn order_of(format: &Format, words: &[u64], other: &[u8], prefix: usize) -> Ordering {
    if format.key.is_some() {
        return words.cmp(&pack(other));
    }
    (words[0] >> HASH_BITS).cmp(&order(other, prefix))
}

/// Returns whether two digests do not determine which key comes first.
pub(crate) fn same_order(a: &Entry, b: &Entry) -> bool {
    a.key[0] >> HASH_BITS == b.key[0] >> HASH_BITS
}

#[cfg(test)]
mod tests {
    use super::super::format::Shape;
    use super::super::options::{Records, ShermanOptions};
    use super::*;

    fn format(records: Records) -> Format {
        Format::new(Shape::of(&ShermanOptions::sherman().records(records)).unwrap(), [1, 2, 3, 4])
    }

    const AT: At = (GlobalAddr::new(1, 4096), 77, 3);

    #[test]
    fn entries_survive_and_belong_to_their_place() {
        for (records, payload) in [
            (Records::Any, 9 | 5 << CLASS_SHIFT),
            (Records::FixedKeys { key_bytes: 8 }, 9 | 5 << CLASS_SHIFT),
            (Records::Inline { key_bytes: 8, value_bytes: 8 }, u64::MAX),
        ] {
            let format = format(records);
            let key = key_words(&format, b"abcdefgh", 2);
            let entry = Entry { key, payload: smallvec![payload], lost: false };
            let words = Entry::image(&format, AT, Some(&entry));
            assert_eq!(words.len(), format.entry_words());
            assert_eq!(EntryState::parse(&format, AT, &words), EntryState::Holds(entry));
            let empty = Entry::image(&format, AT, None);
            assert_eq!(EntryState::parse(&format, AT, &empty), EntryState::Empty);
            assert_eq!(EntryState::parse(&format, (AT.0, 78, 3), &words), EntryState::Torn);
        }
    }

    #[test]
    fn no_mixture_of_two_values_passes() {
        let format = format(Records::Inline { key_bytes: 8, value_bytes: 16 });
        let entry = |value: u64| {
            let payload = smallvec![value, value];
            Entry { key: pack(b"abcdefgh"), payload, lost: false }
        };
        let (old, new) =
            (Entry::image(&format, AT, Some(&entry(1))), Entry::image(&format, AT, Some(&entry(2))));
        for taken in 1_u32..15 {
            let words: Words = (0..4).map(|i| if taken >> i & 1 == 1 { new[i] } else { old[i] }).collect();
            let whole = words == old || words == new;
            assert_eq!(EntryState::parse(&format, AT, &words) == EntryState::Torn, !whole, "{taken:b}");
        }
    }

    #[test]
    fn digests_are_in_the_order_of_keys() {
        let format = format(Records::Any);
        for (a, b) in [(&b"pa"[..], &b"pb"[..]), (b"p", b"p\x01"), (b"pzz\x01", b"pzz\x02")] {
            assert_eq!(order_of(&format, &key_words(&format, a, 1), b, 1), Ordering::Less, "{a:?} {b:?}");
        }
        assert_eq!(order_of(&format, &key_words(&format, b"p", 1), b"p\0", 1), Ordering::Equal);
    }
}
