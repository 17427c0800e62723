//! `clustered`: runs of 64 consecutive integers at uniformly spread places below 2^63, as 8-byte
//! big-endian keys.

use super::{Dataset, RECORDS_MAX, sorted_integers};
use darter_bench::permutation::{Mixer, derive_seed};

/// Keys in a run; a power of two.
const RUN: u64 = 64;

/// Runs of consecutive integers.
#[derive(Debug)]
pub struct Clustered {
    runs: Mixer,
}

impl Clustered {
    /// The sequence that `seed` names.
    pub fn new(seed: u64) -> Self {
        Self { runs: Mixer::new(63 - RUN.trailing_zeros(), derive_seed(seed, 0x436c_7573)) }
    }

    fn integer(&self, record: u64) -> u64 {
        self.runs.apply(record / RUN) * RUN + record % RUN
    }
}

impl Dataset for Clustered {
    fn capacity(&self) -> u64 {
        RECORDS_MAX
    }

    fn key(&self, record: u64, key: &mut Vec<u8>) {
        key.clear();
        key.extend_from_slice(&self.integer(record).to_be_bytes());
    }

    fn sorted(&self, records: u64) -> Box<dyn Iterator<Item = Vec<u8>> + Send + '_> {
        sorted_integers((0..records).map(|record| self.integer(record)).collect())
    }

    fn has_integer_keys(&self) -> bool {
        true
    }

    fn key_bytes_mean(&self) -> u64 {
        8
    }

    fn note(&self) -> String {
        format!("runs of {RUN} consecutive integers, uniform on 0..2^63")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_come_in_runs() {
        let keys: Vec<u64> = Clustered::new(3)
            .sorted(64 * 100)
            .map(|key| u64::from_be_bytes(key.try_into().unwrap()))
            .collect();
        for run in keys.chunks(64) {
            assert_eq!(run[0] % 64, 0);
            assert!(run.windows(2).all(|pair| pair[1] == pair[0] + 1));
        }
        assert!(keys.last().unwrap() < &(1 << 63));
    }
}
