//! Random numbers: ids of pools, sessions and memories, and secrets.

use std::hash::{BuildHasher, RandomState};

/// Returns a random word from the operating system, through std's hash keys.
pub fn random_word() -> u64 {
    // A forked child has the keys of its parent.
    RandomState::new().hash_one(std::process::id())
}
