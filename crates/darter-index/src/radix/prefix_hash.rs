//! Keyed hashes of key prefixes: a node's identity, and the place of an express entry.
//!
//! Path compression skips bytes without comparing them, and the express skip table keeps
//! fingerprints of a few bits, so a search can reach a node that is not on its key's path. Every
//! bucket therefore contains its node's identity, and a search compares it with that of its own
//! key:
//!
//! ```text
//!  63                                       17 16          0
//! +-------------------------------------------+-------------+
//! |  keyed hash of the prefix, 47 bits        |  depth 17   |
//! +-------------------------------------------+-------------+
//! ```
//!
//! The hash is a polynomial over GF(2^61 - 1) in 7-byte limbs at a secret random point, followed by
//! multiply-shift with a secret odd factor. For any keys, two different prefixes of the same length
//! collide with probability below (limbs + 2) / 2^46 over the choice of the secret: about 10^-13
//! for keys under 50 bytes. The secret is chosen when the pool is created.
use smallvec::SmallVec;

const P: u64 = (1 << 61) - 1;
const LIMB: usize = 7;
const DEPTH_BITS: u32 = 17;

/// The pool's secret, prepared for hashing.
#[derive(Clone, Copy, Debug)]
pub struct HashKeys {
    point: u64,
    identity: u64,
    express: u64,
}

impl HashKeys {
    /// Prepares the secret of a pool.
    pub fn new(secret: [u64; 4]) -> Self {
        // The point must not be 0 or 1, or limbs would be lost or merely added.
        Self { point: secret[0] % (P - 2) + 2, identity: secret[1] | 1, express: secret[2] | 1 }
    }

    /// The express hash of a prefix, computed from its identity word, so that a split of a segment
    /// can find its entries' hashes in the nodes.
    #[inline]
    pub fn express_of(&self, identity: u64) -> u64 {
        // The high bits of a product depend on the whole input, the low ones do not, so fold them.
        let product = u128::from(identity) * u128::from(self.express);
        let folded = (product >> 64) as u64 ^ product as u64;
        folded.wrapping_mul(self.express) ^ folded.rotate_left(32)
    }
}

#[inline]
fn reduce(x: u128) -> u64 {
    let folded = (x as u64 & P) + (x >> 61) as u64;
    if folded >= P { folded - P } else { folded }
}

#[inline]
fn step(state: u64, point: u64, limb: u64) -> u64 {
    let next = reduce(u128::from(state) * u128::from(point)) + limb;
    if next >= P { next - P } else { next }
}

/// The `count` bytes from `start` on, at most seven, as a number.
#[inline]
fn limb(bytes: &[u8], start: usize, count: usize) -> u64 {
    match bytes.get(start..).and_then(<[u8]>::first_chunk) {
        Some(eight) => u64::from_le_bytes(*eight) & ((1 << (8 * count)) - 1),
        None => bytes[start..start + count].iter().rev().fold(0, |word, &byte| word << 8 | u64::from(byte)),
    }
}

/// A key with the intermediate states of its prefix hash, so that hashing any prefix takes a step
/// or two.
pub struct HashedKey<'k> {
    bytes: &'k [u8],
    keys: HashKeys,
    /// `states[i]` covers the first `i` whole limbs.
    states: SmallVec<[u64; 8]>,
}

impl<'k> HashedKey<'k> {
    /// A key none of whose prefixes is hashed yet.
    pub fn new(keys: HashKeys, bytes: &'k [u8]) -> Self {
        let mut states = SmallVec::new();
        states.push(1);
        Self { bytes, keys, states }
    }

    /// The key.
    pub fn bytes(&self) -> &'k [u8] {
        self.bytes
    }

    /// The key's edge at a node of this depth, which must not exceed the key's length.
    #[inline]
    pub fn edge(&self, depth: usize) -> u16 {
        super::slot::edge_of(self.bytes, depth)
    }

    #[inline]
    fn raw(&mut self, len: usize) -> u64 {
        let whole = len / LIMB;
        while self.states.len() <= whole {
            let at = self.states.len() - 1;
            let next = step(self.states[at], self.keys.point, limb(self.bytes, at * LIMB, LIMB));
            self.states.push(next);
        }
        step(self.states[whole], self.keys.point, limb(self.bytes, whole * LIMB, len - whole * LIMB))
    }

    /// The identity word of a node whose prefix is the first `depth` bytes. The word contains the
    /// length, so the hash only has to distinguish prefixes of the same length.
    #[inline]
    pub fn identity(&mut self, depth: usize) -> u64 {
        let mixed = self.raw(depth).wrapping_mul(self.keys.identity);
        mixed >> DEPTH_BITS << DEPTH_BITS | depth as u64
    }

    /// The 64-bit hash that locates the first `len` bytes in the express skip table.
    #[inline]
    pub fn express(&mut self, len: usize) -> u64 {
        let identity = self.identity(len);
        self.keys.express_of(identity)
    }
}

/// The depth in an identity word.
pub fn identity_depth(identity: u64) -> usize {
    (identity & ((1 << DEPTH_BITS) - 1)) as usize
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    const KEYS: [u64; 4] = [0x9e37_79b9_7f4a_7c15, 0xbf58_476d_1ce4_e5b9, 0x94d0_49bb_1331_11eb, 1];

    #[test]
    fn prefixes_hash_alike_whatever_follows() {
        let keys = HashKeys::new(KEYS);
        let mut a = HashedKey::new(keys, b"com.example@ann");
        let mut b = HashedKey::new(keys, b"com.example@bob and more");
        for len in 0..=12 {
            assert_eq!(a.identity(len), b.identity(len), "length {len}");
            assert_eq!(a.express(len), b.express(len));
        }
        assert_ne!(a.identity(13), b.identity(13));
    }

    #[test]
    fn lengths_and_zero_bytes_tell_apart() {
        let keys = HashKeys::new(KEYS);
        let zeros = [0; 64];
        let mut key = HashedKey::new(keys, &zeros);
        let identities: HashSet<u64> = (0..=64).map(|len| key.identity(len)).collect();
        assert_eq!(identities.len(), 65);
        assert!((0..=64).all(|len| identity_depth(key.identity(len)) == len));
        let express: HashSet<u64> = (0..=64).map(|len| key.express(len)).collect();
        assert_eq!(express.len(), 65);
    }

    #[test]
    fn no_collisions_among_a_million_short_prefixes() {
        let keys = HashKeys::new(KEYS);
        let mut seen = HashSet::new();
        for i in 0_u32..200_000 {
            assert!(seen.insert(HashedKey::new(keys, &i.to_be_bytes()).identity(4)));
        }
    }
}
