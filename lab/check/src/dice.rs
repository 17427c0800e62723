//! Random numbers from a seed, for plans, schedules and stress runs: the same seed always gives the
//! same numbers, since replay lines name seeds.

use rand_pcg::Pcg64Mcg;
use rand_pcg::rand_core::{Rng, SeedableRng};

/// A source of random numbers.
#[derive(Clone, Debug)]
pub(crate) struct Dice(Pcg64Mcg);

/// Scatters a number's bits; a bijection (the finalizer of `SplitMix64`: Steele, Lea and Flood,
/// 2014).
pub(crate) fn mix(mut n: u64) -> u64 {
    n = (n ^ n >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    n = (n ^ n >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    n ^ n >> 31
}

impl Dice {
    /// The generator of a seed.
    pub(crate) fn new(seed: u64) -> Self {
        Self(Pcg64Mcg::seed_from_u64(seed))
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0.next_u64()
    }

    /// Returns a number from 0 to `bound - 1`; 0 if `bound` is 0.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        // The bias is below one in 2^32 for the bounds used here.
        ((u128::from(self.next()) * u128::from(bound)) >> 64) as u64
    }

    /// Returns `true` with a probability of 1 in `n`.
    pub(crate) fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }

    /// Returns a number above 0, up to 1.
    pub(crate) fn fraction(&mut self) -> f64 {
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

    /// Replay lines name seeds: with another generator or another way to seed it, they would give
    /// other runs.
    #[test]
    fn seeds_keep_their_numbers() {
        let mut dice = Dice::new(1);
        assert_eq!(
            [dice.next(), dice.next(), dice.below(1000)],
            [15_803_641_690_485_367_939, 2_537_432_388_316_380_799, 470]
        );
    }
}
