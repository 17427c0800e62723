//! Counters of the lines that were stored to and may not be on the medium yet.
//!
//! Several lines share a counter: if the counters of two lines collide, readers flush more than
//! necessary. Eight consecutive lines have their counters in one cache line, so that an object of
//! several lines costs one cache miss.

use super::{COUNTERS_AT, LINE_WORDS, TABLE_BYTES};
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

/// Counters in the table.
const COUNTERS: usize = TABLE_BYTES / 8 - COUNTERS_AT;
/// Groups of counters in one cache line each.
const GROUPS: usize = COUNTERS / LINE_WORDS;

const _: () = assert!(GROUPS.is_power_of_two());

/// Lines whose counters a batch has raised and not lowered yet.
pub(in crate::local) type Raised = Vec<Range<usize>>;

/// The table of a pool.
#[derive(Clone, Copy, Debug)]
pub(in crate::local) struct Counters<'m> {
    words: &'m [AtomicU64],
}

impl<'m> Counters<'m> {
    pub(super) fn over(words: &'m [AtomicU64]) -> Self {
        assert_eq!(words.len(), COUNTERS);
        Self { words }
    }

    fn of(self, line: usize) -> &'m AtomicU64 {
        // Fibonacci hashing of the group; the line's position in it is kept.
        let hash = ((line / LINE_WORDS) as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let group = (hash >> (64 - GROUPS.trailing_zeros())) as usize;
        &self.words[group * LINE_WORDS + line % LINE_WORDS]
    }

    /// Raises the counters of lines, before they are stored to.
    pub(super) fn raise(self, lines: Range<usize>) {
        for line in lines {
            self.of(line).fetch_add(1, Ordering::SeqCst);
        }
    }

    /// Lowers them again, after the stores are on the medium.
    pub(super) fn lower(self, lines: Range<usize>) {
        for line in lines {
            self.of(line).fetch_sub(1, Ordering::SeqCst);
        }
    }

    /// Returns whether a line may hold stores that are not on the medium. If not, everything that
    /// was read from it *before* this call is on the medium.
    #[inline]
    pub(super) fn is_raised(self, line: usize) -> bool {
        self.of(line).load(Ordering::Acquire) != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn a_count_is_raised_until_all_have_lowered_it() {
        let words: Vec<AtomicU64> = (0..COUNTERS).map(|_| AtomicU64::new(0)).collect();
        let counters = Counters::over(&words);
        counters.raise(6..10);
        counters.raise(9..11);
        counters.lower(6..10);
        let raised: Vec<usize> = (0..20).filter(|&line| counters.is_raised(line)).collect();
        assert_eq!(raised, [9, 10]);
        counters.lower(9..11);
        assert!(words.iter().all(|word| word.load(Ordering::Relaxed) == 0));
    }

    #[test]
    fn few_lines_share_a_counter() {
        let words: Vec<AtomicU64> = (0..COUNTERS).map(|_| AtomicU64::new(0)).collect();
        let counters = Counters::over(&words);
        // One line in each page of 4 KiB, and consecutive lines.
        for stride in [64, 1] {
            let places: HashSet<*const AtomicU64> =
                (0..4096).map(|at| std::ptr::from_ref(counters.of(at * stride))).collect();
            assert!(places.len() > 3900, "{} places for 4096 lines {stride} apart", places.len());
        }
        let places: Vec<usize> = (8..16).map(|line| std::ptr::from_ref(counters.of(line)).addr()).collect();
        assert!(
            places.windows(2).all(|pair| pair[1] - pair[0] == 8),
            "one line has the counters of eight lines"
        );
    }
}
