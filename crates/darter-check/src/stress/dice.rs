//! Chance from a seed: `SplitMix64` (Steele, Lea and Flood, 2014), as small as a generator can be and good enough here.

/// A source of random numbers.
#[derive(Clone, Debug)]
pub(super) struct Dice(u64);

/// Scatters a number's bits; a bijection.
pub(super) fn mix(mut n: u64) -> u64 {
    n = (n ^ n >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    n = (n ^ n >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    n ^ n >> 31
}

impl Dice {
    pub(super) fn new(seed: u64) -> Self {
        Self(mix(seed))
    }

    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0)
    }

    /// A number from 0 to `bound - 1`; 0 when there is none.
    pub(super) fn below(&mut self, bound: u64) -> u64 {
        // The bias is below one in 2^32 for the bounds used here.
        ((u128::from(self.next()) * u128::from(bound)) >> 64) as u64
    }

    /// Whether something that happens once in `n` happens now.
    pub(super) fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }

    /// A number above 0, up to 1.
    pub(super) fn fraction(&mut self) -> f64 {
        ((self.next() >> 11) + 1) as f64 / (1_u64 << 53) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_stay_in_their_bounds_and_reach_them() {
        let mut dice = Dice::new(1);
        let mut seen = [0; 5];
        for _ in 0..1000 {
            seen[dice.below(5) as usize] += 1;
            let fraction = dice.fraction();
            assert!(fraction > 0.0 && fraction <= 1.0);
        }
        assert!(seen.iter().all(|&count| count > 100), "{seen:?}");
        assert_eq!(dice.below(0), 0);
    }
}
