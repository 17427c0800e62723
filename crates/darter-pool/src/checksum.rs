//! A checksum of words that a medium may have damaged.

/// Returns a checksum of words; users have different seeds, so that words of one are not taken for
/// those of another. Every bit of every word affects it: each step is a bijection of the state for a
/// given word, and of the word for a given state.
pub(crate) fn checksum(seed: u64, words: &[u64]) -> u64 {
    words.iter().fold(seed, |sum, &word| (sum ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29))
}

/// A word whose bits all depend on all bits of the given word: `SplitMix64`'s finalizer, a
/// bijection.
pub(crate) fn spread(word: u64) -> u64 {
    let word = word.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let word = (word ^ word >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let word = (word ^ word >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ word >> 31
}
