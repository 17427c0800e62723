//! Entries of the skip table: a prefix and the node that it leads to, in two words.
//!
//! ```text
//!        63        48 47   44 43                    0
//!       +------------+-------+-----------------------+
//!       | check high | delta |  address / 16         |
//!       +------------+-------+-----------------------+
//!       | check low  | print |  born 32              |
//!       +------------+-------+-----------------------+
//! ```
//!
//! *Delta* is the node's depth less the prefix's length; *print* is 16 bits of the prefix's hash.
//! *Check* is a keyed hash of everything else. Words of two entries may get mixed if clients write
//! at the same time, or if a READ overlaps a WRITE: these do not form an entry.

use crate::quiver::hint::NodeHint;
use crate::radix::prefix_hash::HashKeys;
use darter_fabric::GlobalAddr;

/// Words of an entry.
pub(super) const ENTRY_WORDS: usize = 2;
/// Entries of a bucket.
pub(super) const BUCKET_ENTRIES: usize = 4;
/// Words of a bucket.
pub(super) const BUCKET_WORDS: usize = ENTRY_WORDS * BUCKET_ENTRIES;
/// An entry that leads nowhere.
const EMPTY: [u64; ENTRY_WORDS] = [0; ENTRY_WORDS];

const ADDR_BITS: u32 = 44;
const HIGH_AT: u32 = 48;
const PRINT_AT: u32 = 32;
const LOW: u64 = (1 << HIGH_AT) - 1;

/// The content of an entry's place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// No entry.
    Empty,
    /// Words that do not form an entry: from two writers, or damage.
    Torn,
    /// An entry of another prefix.
    Other,
    /// The entry of the prefix.
    Own(NodeHint),
}

/// Encodes the entry that leads from the prefix of `len` nibbles, with this hash, to a node.
pub(super) fn encode(keys: &HashKeys, hash: u64, len: usize, node: NodeHint) -> [u64; ENTRY_WORDS] {
    let delta = (node.depth - len) as u64;
    let first = delta << ADDR_BITS | node.addr.bits() >> 4;
    let second = print(hash) << PRINT_AT | u64::from(node.born);
    let check = check(keys, first, second);
    [first | check >> 16 << HIGH_AT, second | check << HIGH_AT]
}

/// Decodes a place for the prefix of `len` nibbles with this hash.
pub(super) fn decode(keys: &HashKeys, hash: u64, len: usize, words: &[u64]) -> Place {
    let (first, second) = (words[0] & LOW, words[1] & LOW);
    if words == EMPTY {
        return Place::Empty;
    }
    let check = check(keys, first, second);
    let is_whole = words[0] >> HIGH_AT == check >> 16 && words[1] >> HIGH_AT == check & 0xffff;
    if !is_whole {
        return Place::Torn;
    }
    if second >> PRINT_AT != print(hash) {
        return Place::Other;
    }
    let addr = GlobalAddr::from_bits((first & ((1 << ADDR_BITS) - 1)) << 4);
    let depth = len + (first >> ADDR_BITS) as usize;
    Place::Own(NodeHint { addr, born: second as u32, depth })
}

/// Whether a place holds an entry of any prefix.
pub(super) fn is_entry(keys: &HashKeys, words: &[u64]) -> bool {
    matches!(decode(keys, 0, 0, words), Place::Other | Place::Own(_))
}

fn print(hash: u64) -> u64 {
    hash >> 48
}

/// A check of 32 bits over a whole entry.
fn check(keys: &HashKeys, first: u64, second: u64) -> u64 {
    keys.express_of(keys.express_of(first) ^ second) >> 32
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEYS: fn() -> HashKeys =
        || HashKeys::new([0x9e37_79b9_7f4a_7c15, 0xbf58_476d_1ce4_e5b9, 0x94d0_49bb_1331_11eb, 1]);

    #[test]
    fn entries_keep_their_parts() {
        let keys = KEYS();
        let hash = 0xabcd_ef01_2345_6789;
        for (addr, born, depth) in
            [(GlobalAddr::new(255, (1 << 40) - 16), u32::MAX, 22), (GlobalAddr::new(1, 4096), 7, 7)]
        {
            let node = NodeHint { addr, born, depth };
            let words = encode(&keys, hash, 7, node);
            assert_eq!(decode(&keys, hash, 7, &words), Place::Own(node));
            assert_eq!(decode(&keys, !hash, 7, &words), Place::Other);
        }
        assert_eq!(decode(&keys, 0, 7, &[0, 0]), Place::Empty);
    }

    #[test]
    fn words_of_two_entries_are_none() {
        let keys = KEYS();
        let node = |at: u64| NodeHint { addr: GlobalAddr::new(1, at << 4), born: at as u32, depth: 9 };
        let entries: Vec<_> = (1..200).map(|at| encode(&keys, 5 << 48, 8, node(at))).collect();
        for (one, other) in entries.iter().zip(&entries[1..]) {
            assert_eq!(decode(&keys, 5 << 48, 8, &[one[0], other[1]]), Place::Torn);
            for bit in 0..128 {
                let mut flipped = *one;
                flipped[bit / 64] ^= 1 << (bit % 64);
                assert_eq!(decode(&keys, 5 << 48, 8, &flipped), Place::Torn, "bit {bit}");
            }
        }
    }
}
