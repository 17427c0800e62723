//! The compression header of a node: the start and length of its path, and its first digits, in one
//! word that changes atomically (FAST 2017, section 3.4).
//!
//! ```text
//! digits of the path 28 | length 18 | depth 18           7 half bytes, or 3 bytes
//! ```
//!
//! *Depth* is the place in the key of the first digit that the header counts, *length* the number
//! of digits; the node branches on the digit after them. While a node lives, depth + length is
//! constant, and the digits are those of every key below it at these places. So a header is correct
//! regardless of the nodes above: if its depth is not the place after the digit that led to the
//! node, it has fewer or more digits than the edge skips, but no wrong ones.

use super::digits::Digits;

/// Bits of a place in a key, in half bytes.
const PLACE_BITS: u32 = 18;
const PLACE: u64 = (1 << PLACE_BITS) - 1;
const DIGITS_AT: u32 = 2 * PLACE_BITS;
/// Bits of all digits that a header holds.
const DIGIT_BITS: usize = 64 - DIGITS_AT as usize;

/// A node's header word.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Header(u64);

impl Header {
    pub(super) const fn from_word(word: u64) -> Self {
        Self(word)
    }

    pub(super) const fn word(self) -> u64 {
        self.0
    }

    /// Returns the number of digits for which a header has room.
    pub(super) const fn stored_max(digits: Digits) -> usize {
        DIGIT_BITS / digits.bits()
    }

    /// Creates the header of a node that branches at `branch` and whose path begins at `depth`;
    /// `digit` returns the path's digits by their places.
    pub(super) fn new(digits: Digits, depth: usize, branch: usize, digit: impl Fn(usize) -> u16) -> Self {
        let length = branch - depth;
        let word = depth as u64 & PLACE | (length as u64 & PLACE) << PLACE_BITS;
        let stored = depth..depth + length.min(Self::stored_max(digits));
        Self(stored.enumerate().fold(word, |word, (nth, at)| {
            let digit = u64::from(digit(at)) & ((1 << digits.bits()) - 1);
            word | digit << (DIGITS_AT as usize + nth * digits.bits())
        }))
    }

    /// Creates the header of a node on the path of a key.
    pub(super) fn of_key(digits: Digits, depth: usize, branch: usize, key: &[u8]) -> Self {
        Self::new(digits, depth, branch, |at| digits.edge(key, at))
    }

    /// Returns the place of the first digit that it counts.
    pub(super) const fn depth(self) -> usize {
        (self.0 & PLACE) as usize
    }

    /// Returns the place of the digit that the node branches on.
    pub(super) const fn branch(self) -> usize {
        self.depth() + (self.0 >> PLACE_BITS & PLACE) as usize
    }

    /// Returns the places of the digits that it holds.
    pub(super) fn known(self, digits: Digits) -> std::ops::Range<usize> {
        self.depth()..self.branch().min(self.depth() + Self::stored_max(digits))
    }

    /// Returns the digit at a place if it holds it.
    pub(super) fn digit(self, digits: Digits, at: usize) -> Option<u16> {
        let nth = self.known(digits).contains(&at).then(|| at - self.depth())?;
        Some((self.0 >> (DIGITS_AT as usize + nth * digits.bits())) as u16 & ((1 << digits.bits()) - 1))
    }

    /// Returns whether it holds every digit from `start` to the place where the node branches.
    pub(super) fn is_whole(self, digits: Digits, start: usize) -> bool {
        self.depth() <= start && self.known(digits).end == self.branch()
    }

    /// Returns whether it lacks the digits at `start`: a client changed the nodes above and died
    /// before it updated this header.
    pub(super) const fn is_stale(self, start: usize) -> bool {
        self.depth() > start
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_holds_the_first_digits() {
        let key: Vec<u8> = (0..64).collect();
        for (digits, depth, branch) in [
            (Digits::Nibbles, 3, 3),
            (Digits::Nibbles, 3, 10),
            (Digits::Nibbles, 3, 11),
            (Digits::Bytes, 60, 63),
            (Digits::Bytes, 0, 64),
        ] {
            let header = Header::of_key(digits, depth, branch, &key);
            assert_eq!((header.depth(), header.branch()), (depth, branch));
            let known = branch.min(depth + Header::stored_max(digits));
            assert_eq!(header.known(digits), depth..known);
            for at in 0..70 {
                let digit = (depth..known).contains(&at).then(|| digits.edge(&key, at));
                assert_eq!(header.digit(digits, at), digit);
            }
            assert_eq!(header.is_whole(digits, depth), branch == known);
            assert!(!header.is_stale(depth));
        }
        let last = Header::of_key(Digits::Nibbles, 131_072, 131_072, &key);
        assert_eq!((last.depth(), last.branch()), (131_072, 131_072));
        assert!(last.is_stale(0));
    }
}
