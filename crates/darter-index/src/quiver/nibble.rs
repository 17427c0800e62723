//! Keys as sequences of nibbles: edges, shared prefixes, the identity of a prefix, and the bounds
//! of the keys below an edge.
//!
//! The high nibble of byte *i* is at depth 2 *i*, the low one at 2 *i* + 1. A key can end at even
//! depths only.

use crate::radix::common_prefix;
use crate::radix::prefix_hash::{HashKeys, HashedKey};

/// The edges of a node: END and 16 nibbles.
pub(super) const EDGES: usize = 17;
/// The edge of the key that ends at a node.
pub(super) const END: u8 = 0;
/// The last edge, in key order.
pub(super) const LAST: u8 = 16;

/// Adjacent edges of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct EdgeRange {
    /// The first edge.
    pub(super) lo: u8,
    /// The last edge.
    pub(super) hi: u8,
}

impl EdgeRange {
    /// All edges of a node.
    pub(super) const ALL: Self = Self { lo: END, hi: LAST };

    /// One edge.
    pub(super) const fn one(edge: u8) -> Self {
        Self { lo: edge, hi: edge }
    }

    /// Whether the range contains an edge.
    pub(super) fn contains(self, edge: u8) -> bool {
        (self.lo..=self.hi).contains(&edge)
    }

    /// Whether the two ranges have an edge in common.
    pub(super) fn overlaps(self, other: Self) -> bool {
        self.lo <= other.hi && other.lo <= self.hi
    }

    /// The same edges up to `hi`.
    pub(super) fn up_to(self, hi: u8) -> Self {
        Self { lo: self.lo, hi: self.hi.min(hi) }
    }

    /// Bits needed to distinguish its edges.
    pub(super) fn bits(self) -> u32 {
        u8::BITS - (self.hi - self.lo).leading_zeros()
    }
}

const DEPTH_BITS: u32 = 18;
const NIBBLE_BITS: u32 = 4;

/// Returns the number of nibbles of a key.
pub(super) fn nibbles(key: &[u8]) -> usize {
    key.len() * 2
}

/// Returns the nibble of a key at this depth, if the key is long enough.
pub(super) fn nibble(key: &[u8], depth: usize) -> Option<u8> {
    key.get(depth / 2).map(|byte| if depth.is_multiple_of(2) { byte >> 4 } else { byte & 15 })
}

/// Returns the edge that a key takes at a node of this depth, which must not exceed its number of
/// nibbles.
pub(super) fn edge(key: &[u8], depth: usize) -> u8 {
    nibble(key, depth).map_or(END, |nibble| nibble + 1)
}

/// Returns the number of nibbles that two keys share at their beginning.
pub(super) fn common(a: &[u8], b: &[u8]) -> usize {
    let bytes = common_prefix(a, b);
    let halves = (nibble(a, bytes * 2), nibble(b, bytes * 2));
    bytes * 2 + usize::from(matches!(halves, (Some(a), Some(b)) if a == b))
}

/// Returns the least key below an edge of the node whose prefix is the first `depth` nibbles of
/// `key`.
pub(super) fn first_below(key: &[u8], depth: usize, edge: u8) -> Vec<u8> {
    let mut bound = key[..depth / 2].to_vec();
    let half = (depth % 2 == 1).then(|| key[depth / 2] & 0xf0);
    match (half, edge) {
        (None, END) => {}
        (None, edge) => bound.push((edge - 1) << 4),
        // No key ends in the middle of a byte: the least key is that of the first nibble.
        (Some(half), edge) => bound.push(half | edge.saturating_sub(1)),
    }
    bound
}

/// Returns the least key above all keys below the edges up to this one; `None` if there is none.
pub(super) fn first_after(key: &[u8], depth: usize, edge: u8) -> Option<Vec<u8>> {
    if edge < LAST {
        return Some(first_below(key, depth, edge + 1));
    }
    // The next prefix of this length: the last nibble that is not 15 is incremented.
    let last = (0..depth).rev().find(|&at| nibble(key, at) != Some(15))?;
    Some(first_below(key, last, edge_after(key, last)))
}

fn edge_after(key: &[u8], depth: usize) -> u8 {
    edge(key, depth) + 1
}

/// A key with the hashes of its prefixes.
pub(super) struct NibbleKey<'k> {
    hashed: HashedKey<'k>,
}

impl<'k> NibbleKey<'k> {
    /// Creates a key without any hashes yet.
    pub(super) fn new(keys: HashKeys, bytes: &'k [u8]) -> Self {
        Self { hashed: HashedKey::new(keys, bytes) }
    }

    /// The key.
    pub(super) fn bytes(&self) -> &'k [u8] {
        self.hashed.bytes()
    }

    /// Returns the identity word of the node whose prefix is the first `depth` nibbles.
    ///
    /// ```text
    ///  63                              22 21       18 17         0
    /// +----------------------------------+-----------+------------+
    /// |  keyed hash of whole bytes, 42    | nibble 4  | depth 18   |
    /// +----------------------------------+-----------+------------+
    /// ```
    ///
    /// *Nibble* is the last one at odd depths, otherwise 0.
    pub(super) fn identity(&mut self, depth: usize) -> u64 {
        let hash = self.hashed.identity(depth / 2);
        let half = if depth % 2 == 1 { nibble(self.bytes(), depth - 1).unwrap_or(0) } else { 0 };
        let low = DEPTH_BITS + NIBBLE_BITS;
        hash >> low << low | u64::from(half) << DEPTH_BITS | depth as u64
    }

    /// Returns the keyed hash of the whole key.
    pub(super) fn whole(&mut self) -> u64 {
        let len = self.bytes().len();
        self.hashed.express(len)
    }
}

/// Returns the identity of the node whose prefix is the first `depth` nibbles of a key.
pub(super) fn identity_of(keys: HashKeys, key: &[u8], depth: usize) -> u64 {
    NibbleKey::new(keys, key).identity(depth)
}

/// Returns the depth in an identity word, in nibbles.
pub(super) fn identity_depth(identity: u64) -> usize {
    (identity & ((1 << DEPTH_BITS) - 1)) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn edges_are_in_key_order() {
        assert_eq!([0, 1, 2].map(|depth| edge(&[0x5f], depth)), [6, 16, END]);
        assert_eq!(edge(b"", 0), END);
        assert_eq!(common(b"", b"a"), 0);
        assert_eq!(common(&[0x12, 0x34], &[0x12, 0x3f]), 3);
        assert_eq!(common(&[0x12, 0x34], &[0x12, 0x44]), 2);
        assert_eq!(common(b"ab", b"abc"), 4);
    }

    #[test]
    fn bounds_lie_around_what_is_below_an_edge() {
        let keys: Vec<Vec<u8>> = [
            &[][..],
            &[0],
            &[0, 0],
            &[0x0f],
            &[0x10],
            &[0x12],
            &[0x12, 0],
            &[0x12, 0xff],
            &[0x13],
            &[0xff],
            &[0xff, 0xff],
        ]
        .map(<[u8]>::to_vec)
        .to_vec();
        for key in &keys {
            for depth in 0..=nibbles(key) {
                let low = first_below(key, depth, edge(key, depth));
                let high = first_after(key, depth, edge(key, depth));
                assert!(&low <= key && high.as_ref().is_none_or(|high| key < high), "{key:?} at {depth}");
                for other in keys.iter().filter(|other| common(key, other) >= depth) {
                    let same = edge(other, depth) == edge(key, depth);
                    let inside = &low <= other && high.as_ref().is_none_or(|high| other < high);
                    assert_eq!(same, inside, "{other:?} below {key:?} at {depth}");
                }
            }
        }
        assert_eq!(first_after(&[0xff, 0x12], 2, LAST), None);
        assert_eq!(first_after(&[0x1f, 0x12], 2, LAST), Some(vec![0x20]));
    }

    #[test]
    fn identities_tell_prefixes_apart() {
        let keys = HashKeys::new([0x9e37_79b9_7f4a_7c15, 0xbf58_476d_1ce4_e5b9, 0x94d0_49bb_1331_11eb, 1]);
        let mut seen = std::collections::HashMap::new();
        for key in (0_u16..2000).map(u16::to_be_bytes) {
            let mut hashed = NibbleKey::new(keys, &key);
            for depth in 0..=4 {
                let prefix = (depth, u16::from_be_bytes(key).checked_shr(16 - depth as u32 * 4));
                assert_eq!(identity_depth(hashed.identity(depth)), depth);
                assert_eq!(*seen.entry(hashed.identity(depth)).or_insert(prefix), prefix);
            }
        }
    }
}
