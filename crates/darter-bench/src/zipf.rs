//! Chooses the record that an operation accesses: scrambled Zipf, or latest (YCSB, section 5.1 of
//! DART).
//!
//! Ranks come from [`rand_distr::Zipf`], which samples by rejection in constant time for any number
//! of records and any theta; YCSB's own generator (Gray et al., SIGMOD 1994) approximates, and
//! needs a sum over all records first. Scrambling is a seeded shuffle of the records. YCSB hashes
//! ranks to records instead, and some ranks collide. Here the most popular record has exactly the
//! share that theta gives, and every record can be accessed.

use crate::permutation::{Permutation, derive_seed};
use rand::Rng;
use rand_distr::{Distribution, Zipf};

/// Largest useful exponent; at 10 the first record gets 99.9% of all accesses.
pub const THETA_MAX: f64 = 10.0;

/// Zipf-distributed ranks: rank r has a share proportional to 1 / (r + 1)^theta.
#[derive(Clone, Copy, Debug)]
pub struct Ranks {
    zipf: Option<Zipf<f64>>,
    n: u64,
}

impl Ranks {
    /// Returns ranks below `n` (at least 1) with exponent `theta` from 0 to [`THETA_MAX`].
    pub fn new(n: u64, theta: f64) -> Self {
        Self { zipf: Zipf::new(n as f64, theta).ok(), n }
    }

    /// Returns the next rank, from 0.
    #[inline]
    pub fn sample(&self, rng: &mut impl Rng) -> u64 {
        let rank = self.zipf.map_or(1.0, |zipf| zipf.sample(rng));
        (rank as u64).clamp(1, self.n) - 1
    }
}

/// Zipf-distributed records, with the popular ones spread over all.
#[derive(Clone, Copy, Debug)]
pub struct ScrambledZipf {
    ranks: Ranks,
    shuffle: Permutation,
    key: u64,
}

impl ScrambledZipf {
    /// Returns records below `n` (at least 1); `seed` selects the popular ones.
    pub fn new(n: u64, theta: f64, seed: u64) -> Self {
        let key = derive_seed(seed, 0x5a69_7066);
        Self { ranks: Ranks::new(n, theta), shuffle: Permutation::new(n), key }
    }

    /// Returns the next record.
    #[inline]
    pub fn sample(&self, rng: &mut impl Rng) -> u64 {
        self.shuffle.apply(self.ranks.sample(rng), self.key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng;
    use rand_pcg::Pcg64Mcg;

    fn shares(n: u64, theta: f64, draws: u32) -> Vec<f64> {
        let ranks = Ranks::new(n, theta);
        let mut rng = Pcg64Mcg::seed_from_u64(1);
        let mut counts = vec![0_u32; n as usize];
        for _ in 0..draws {
            counts[ranks.sample(&mut rng) as usize] += 1;
        }
        counts.iter().map(|&count| f64::from(count) / f64::from(draws)).collect()
    }

    #[test]
    fn ranks_follow_the_power_law() {
        for theta in [0.5, 0.99, 1.0, 1.3] {
            let shares = shares(1000, theta, 2_000_000);
            let total: f64 = (1..=1000).map(|r| f64::from(r).powf(-theta)).sum();
            for rank in [0, 1, 2, 9, 99, 999] {
                let expected = f64::from(rank + 1).powf(-theta) / total;
                let off = (shares[rank as usize] - expected).abs() / expected;
                let allowed = 6.0 / (expected * 2_000_000.0).sqrt();
                assert!(off < allowed, "theta {theta}, rank {rank}: off by {off}, allowed {allowed}");
            }
        }
    }

    #[test]
    fn theta_0_is_uniform_and_edges_work() {
        assert!(shares(10, 0.0, 100_000).iter().all(|share| (share - 0.1).abs() < 0.01));
        assert!(shares(10, THETA_MAX, 10_000)[0] > 0.99);
        assert!((shares(1, 0.99, 100)[0] - 1.0).abs() < f64::EPSILON);
    }

    #[test]
    fn popular_records_are_spread_and_seeded() {
        let popular = |seed| {
            let zipf = ScrambledZipf::new(1_000_000, 0.99, seed);
            let mut rng = Pcg64Mcg::seed_from_u64(3);
            let mut drawn: Vec<u64> = (0..100_000).map(|_| zipf.sample(&mut rng)).collect();
            assert!(drawn.iter().all(|&record| record < 1_000_000));
            drawn.sort_unstable();
            drawn.chunk_by(|a, b| a == b).max_by_key(|run| run.len()).map(|run| run[0])
        };
        assert_eq!(popular(1), popular(1));
        assert_ne!(popular(1), popular(2));
    }
}
