//! `randint`: 8-byte big-endian integers, uniform on 0..2^63 (DART, section 5.1).
//!
//! A seeded bijection on 63-bit integers replaces a random draw, so that no key repeats (a real
//! draw of 60 M would repeat one in about ten thousand runs) and no key needs to be stored.

use super::{Dataset, RECORDS_MAX, sorted_integers};
use crate::permutation::{Mixer, derive_seed};

/// Uniform 63-bit integers.
#[derive(Debug)]
pub struct RandInt {
    mixer: Mixer,
}

impl RandInt {
    /// Returns the sequence for `seed`.
    pub fn new(seed: u64) -> Self {
        Self { mixer: Mixer::new(63, derive_seed(seed, 0x5261_6e64)) }
    }
}

impl Dataset for RandInt {
    fn capacity(&self) -> u64 {
        RECORDS_MAX
    }

    fn key(&self, record: u64, key: &mut Vec<u8>) {
        key.clear();
        key.extend_from_slice(&self.mixer.apply(record).to_be_bytes());
    }

    fn sorted(&self, records: u64) -> Box<dyn Iterator<Item = Vec<u8>> + Send + '_> {
        sorted_integers((0..records).map(|record| self.mixer.apply(record)).collect())
    }

    fn has_integer_keys(&self) -> bool {
        true
    }

    fn key_bytes_mean(&self) -> u64 {
        8
    }

    fn note(&self) -> String {
        "8-byte integers, uniform on 0..2^63".to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_uniform_on_63_bits() {
        let dataset = RandInt::new(42);
        let mut key = Vec::new();
        let mut by_first_byte = [0_u32; 128];
        let mut by_low_byte = [0_u32; 256];
        for record in 0..256_000 {
            dataset.key(record, &mut key);
            by_first_byte[usize::from(key[0])] += 1;
            by_low_byte[usize::from(key[7])] += 1;
        }
        // Six standard deviations of a binomial count.
        assert!(by_first_byte.iter().all(|&n| n.abs_diff(2000) < 270), "{by_first_byte:?}");
        assert!(by_low_byte.iter().all(|&n| n.abs_diff(1000) < 190), "{by_low_byte:?}");
    }
}
