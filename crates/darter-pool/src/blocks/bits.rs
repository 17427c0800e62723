//! The set bits of a bitmap's word.

/// Returns the positions of a word's set bits, lowest first.
pub(super) fn ones(mut bits: u64) -> impl Iterator<Item = u64> {
    std::iter::from_fn(move || {
        let bit = u64::from(bits.trailing_zeros());
        (bits != 0).then(|| {
            bits &= bits - 1;
            bit
        })
    })
}
