//! Random numbers: ids of pools, sessions and memories, and secrets.

use std::hash::{BuildHasher, RandomState};

/// Returns a word from the operating system's randomness, by way of std's hash keys.
pub fn random_word() -> u64 {
    RandomState::new().hash_one(std::time::SystemTime::now())
}
