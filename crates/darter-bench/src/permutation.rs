//! Bijections on integers. They map record numbers to keys without a table of the keys in use.
//!
//! [`Permutation`] shuffles `0..n` for any `n`. It applies a four-round Feistel network on the next
//! even power of two, and repeats it until the result is below `n` (Black and Rogaway, "Ciphers
//! with Arbitrary Finite Domains", CT-RSA 2002). [`Mixer`] shuffles all integers of a given width
//! by invertible multiplications and shifts. Neither is a cipher.

/// Scrambles one word (the finaliser of Steele's `SplitMix64`); a bijection on 64 bits.
#[inline]
pub const fn mix64(word: u64) -> u64 {
    let word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}

/// Returns a seed for one of several independent streams drawn from `seed`.
#[inline]
pub const fn derive_seed(seed: u64, stream: u64) -> u64 {
    mix64(seed ^ mix64(stream.wrapping_add(0x9e37_79b9_7f4a_7c15)))
}

/// A shuffle of `0..n`, chosen by a key given with each call.
#[derive(Clone, Copy, Debug)]
pub struct Permutation {
    n: u64,
    half_bits: u32,
}

impl Permutation {
    /// Creates a shuffle of `0..n`; `n` is at least 1 and below 2^62.
    pub fn new(n: u64) -> Self {
        debug_assert!((1..1 << 62).contains(&n));
        let bits = 64 - n.saturating_sub(1).leading_zeros();
        Self { n, half_bits: bits.div_ceil(2).max(1) }
    }

    /// Returns the image of `i`, which must be below `n`, under the shuffle chosen by `key`.
    #[inline]
    pub fn apply(&self, i: u64, key: u64) -> u64 {
        debug_assert!(i < self.n);
        let mut at = i;
        loop {
            at = self.rounds(at, key);
            if at < self.n {
                return at;
            }
        }
    }

    #[inline]
    fn rounds(&self, value: u64, key: u64) -> u64 {
        let mask = (1 << self.half_bits) - 1;
        let (mut left, mut right) = (value >> self.half_bits, value & mask);
        for round in 0..4_u64 {
            let mixed = (right ^ key.rotate_left(16 * round as u32)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            (left, right) =
                (right, left ^ ((mixed ^ (mixed >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 32 & mask));
        }
        left << self.half_bits | right
    }
}

/// A shuffle of all integers of `bits` bits.
#[derive(Clone, Copy, Debug)]
pub struct Mixer {
    bits: u32,
    add: u64,
}

impl Mixer {
    /// Creates a shuffle of `0..2^bits`, `bits` from 2 to 63, chosen by `seed`.
    pub const fn new(bits: u32, seed: u64) -> Self {
        Self { bits, add: mix64(seed) }
    }

    /// Returns the image of `i`, which must be below `2^bits`. Every step is invertible modulo
    /// `2^bits`.
    #[inline]
    pub const fn apply(&self, i: u64) -> u64 {
        let mask = (1 << self.bits) - 1;
        let half = self.bits / 2;
        let mut word = i.wrapping_add(self.add) & mask;
        word = (word ^ (word >> half)).wrapping_mul(0xbf58_476d_1ce4_e5b9) & mask;
        word = (word ^ (word >> (half - half / 4))).wrapping_mul(0x94d0_49bb_1331_11eb) & mask;
        word ^ (word >> half)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_permutation_takes_every_value_once() {
        for n in [1, 2, 3, 5, 16, 17, 1000, 4096, 65_537] {
            for key in [0, 1, u64::MAX, 0x1234_5678_9abc_def0] {
                let shuffle = Permutation::new(n);
                let mut seen = vec![false; n as usize];
                for i in 0..n {
                    let to = shuffle.apply(i, key) as usize;
                    assert!(!std::mem::replace(&mut seen[to], true), "n {n}, key {key}: {to} twice");
                }
            }
        }
    }

    #[test]
    fn a_permutation_moves_things() {
        let shuffle = Permutation::new(1_000_000);
        let still = (0..10_000).filter(|&i| shuffle.apply(i, 7).abs_diff(i) < 1000).count();
        assert!(still < 100, "{still} of 10,000 stayed near");
        assert_ne!(shuffle.apply(5, 7), shuffle.apply(5, 8));
    }

    #[test]
    fn a_mixer_takes_every_value_once() {
        for bits in [2, 3, 8, 15, 16] {
            let mixer = Mixer::new(bits, 99);
            let mut seen = vec![false; 1 << bits];
            for i in 0..1 << bits {
                assert!(!std::mem::replace(&mut seen[mixer.apply(i) as usize], true));
            }
        }
    }
}
