//! The few keys that all workers use, and the bytes that encode numbers as their values.
//!
//! Keys are chosen to be hard: proper prefixes of each other, including the empty key; many that
//! differ in one byte after a long common prefix, so that a node grows through all its types and
//! shrinks again; and some whose paths diverge late. A key is named by its rank in the index's
//! order, so a range of keys is a range of ranks.
//!
//! A value is its number in hexadecimal and a padding whose length and bytes follow from the
//! number. The number thus determines the bytes, and bytes that do not encode a number were never
//! written.

use crate::dice::mix;
use std::collections::BTreeSet;

/// Maximum number of keys of a set; the pattern below yields more distinct keys than this.
pub const KEYS_MAX: u32 = 4096;
/// The number of bytes that no worker wrote.
pub const UNKNOWN_VALUE: u64 = u64::MAX;

/// The bit that marks the number of a large value of some kilobytes.
pub const LARGE_VALUE: u64 = 1 << 63;

/// Hexadecimal digits of a number.
const DIGITS: usize = 16;

/// The keys, in the index's order.
#[derive(Clone, Debug)]
pub struct KeySet {
    keys: Vec<Vec<u8>>,
}

impl KeySet {
    /// The set of `count` keys, the same on every call.
    pub fn new(count: u32) -> Self {
        let mut keys = BTreeSet::new();
        let mut n = 0;
        while keys.len() < count.min(KEYS_MAX) as usize {
            keys.insert(shape(n));
            n += 1;
        }
        Self { keys: keys.into_iter().collect() }
    }

    /// Returns the number of keys.
    pub fn len(&self) -> usize {
        self.keys.len()
    }

    /// Whether there are no keys.
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// Returns the key of a rank.
    pub fn key(&self, rank: u32) -> &[u8] {
        &self.keys[rank as usize]
    }

    /// Returns the rank of a key.
    pub fn rank(&self, key: &[u8]) -> Option<u32> {
        self.keys.binary_search_by(|other| other[..].cmp(key)).ok().map(|rank| rank as u32)
    }

    /// Returns all keys, by rank.
    pub fn iter(&self) -> impl Iterator<Item = &[u8]> {
        self.keys.iter().map(Vec::as_slice)
    }
}

/// Returns the `n`-th key of the pattern. Not all are distinct.
fn shape(n: u32) -> Vec<u8> {
    let round = n / 8;
    match n % 8 {
        // Each is a proper prefix of the next, to a depth that no other shape needs.
        0 => vec![0; (round % 40) as usize],
        // One wide node after a long prefix; in later rounds, others below it.
        1..=4 => {
            let branch = round * 4 + n % 8 - 1;
            let mut key = b"darter/stress/shared-prefix/".to_vec();
            key.push(branch as u8);
            if branch > 255 {
                key.extend_from_slice(&branch.to_be_bytes()[1..3]);
            }
            key
        }
        // Text of varying length, with common beginnings.
        5 => (u64::from(round) * 37).to_string().into_bytes(),
        // Long paths that diverge late.
        6 => [vec![b'p'; 20 + (round % 7) as usize], round.to_be_bytes()[2..].to_vec()].concat(),
        // Arbitrary bytes.
        _ => mix(u64::from(round)).to_be_bytes()[..=(round % 8) as usize].to_vec(),
    }
}

/// Returns the number of padding bytes after a value's number: usually few, sometimes many, to
/// cover many size classes; for a large value always many.
fn padding(number: u64) -> usize {
    let chance = mix(number ^ 0x7061_6464_696e_6721);
    let (least, below) = match chance % 64 {
        _ if number & LARGE_VALUE != 0 => (1000, 3000),
        0 => (0, 4000),
        1..=15 => (0, 400),
        _ => (0, 24),
    };
    least + (chance >> 32) as usize % below
}

/// Returns the number of bytes that encode a number.
pub fn value_length(number: u64) -> usize {
    DIGITS + padding(number)
}

/// Returns the bytes that encode a number.
pub fn value_bytes(number: u64) -> Vec<u8> {
    let mut bytes = format!("{number:0DIGITS$x}").into_bytes();
    bytes.resize(value_length(number), b'a' + (number % 26) as u8);
    bytes
}

/// Returns the number that bytes encode, or [`UNKNOWN_VALUE`].
pub fn value_number(bytes: &[u8]) -> u64 {
    let number = bytes
        .get(..DIGITS)
        .and_then(|digits| std::str::from_utf8(digits).ok())
        .and_then(|digits| u64::from_str_radix(digits, 16).ok());
    number.filter(|&number| value_bytes(number) == bytes).unwrap_or(UNKNOWN_VALUE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_distinct_and_in_order() {
        for count in [0, 1, 2, 64, 500, KEYS_MAX] {
            let keys = KeySet::new(count);
            assert_eq!(keys.len(), count as usize);
            assert!(keys.iter().is_sorted_by(|a, b| a < b));
            for (rank, key) in keys.iter().enumerate() {
                assert_eq!(keys.rank(key), Some(rank as u32));
            }
        }
        assert_eq!(KeySet::new(64).rank(b"nobody's"), None);
        assert_eq!(KeySet::new(1).key(0), b"");
    }

    #[test]
    fn values_are_read_back_and_anything_else_is_unknown() {
        for number in (0..1000).chain([u64::MAX / 3, u64::MAX - 1]).chain(LARGE_VALUE..LARGE_VALUE + 1000) {
            let bytes = value_bytes(number);
            assert!(number < LARGE_VALUE || (1016..4016).contains(&bytes.len()));
            assert_eq!(value_number(&bytes), number);
            assert_eq!(value_number(&bytes[..bytes.len() - 1]), UNKNOWN_VALUE);
        }
        for bytes in [&b""[..], b"0", b"+000000000000001", b"zzzzzzzzzzzzzzzz", &[0xff; 40]] {
            assert_eq!(value_number(bytes), UNKNOWN_VALUE);
        }
    }
}
