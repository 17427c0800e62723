//! Prefix lists: the lengths of key prefixes that a skip table maps to nodes, and the depths of the
//! nodes on a path.

use smallvec::SmallVec;

/// Maximum number of lengths in a prefix list.
pub const LIST_MAX: usize = 8;
/// Maximum difference between a node's depth and the length under which it is entered.
pub const DELTA_MAX: usize = 15;

/// The depths of the inner nodes on a path, up to the maximum length of a prefix list: bit `d`
/// stands for a node of depth `d`.
pub type PathDepths = [u64; 4];

/// Adds a depth to a path.
pub fn with_depth(mut path: PathDepths, depth: usize) -> PathDepths {
    if let Some(word) = path.get_mut(depth / 64) {
        *word |= 1 << (depth % 64);
    }
    path
}

/// Lengths of key prefixes that the table covers, ascending: one byte each in a word, unused bytes
/// are zero. The unit of a length, bytes or nibbles, depends on the index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PrefixList(u64);

impl PrefixList {
    /// The initial list of a new index: powers of two, as in a skip list.
    pub const POWERS: Self = Self(0x80_40_20_10_08_04_02_01);

    /// The list without lengths.
    pub const NONE: Self = Self(0);

    /// The list encoded in a word.
    pub const fn from_word(word: u64) -> Self {
        Self(word)
    }

    /// The word in which a pool stores the list.
    pub const fn word(self) -> u64 {
        self.0
    }

    /// Creates a list from lengths in any order; zeros, duplicates and any beyond eight are
    /// dropped.
    pub fn new(lengths: &[u8]) -> Self {
        let mut sorted: Vec<u8> = lengths.iter().copied().filter(|&len| len != 0).collect();
        sorted.sort_unstable();
        sorted.dedup();
        sorted.resize(LIST_MAX, 0);
        let mut bytes = [0; LIST_MAX];
        bytes.copy_from_slice(&sorted[..LIST_MAX]);
        Self(u64::from_le_bytes(bytes))
    }

    /// The lengths.
    pub fn lengths(self) -> SmallVec<[usize; LIST_MAX]> {
        self.0.to_le_bytes().into_iter().filter(|&len| len != 0).map(usize::from).collect()
    }

    /// The lengths, one byte each.
    pub fn bytes(self) -> Vec<u8> {
        self.0.to_le_bytes().into_iter().filter(|&len| len != 0).collect()
    }

    /// The lengths below a limit.
    pub fn lengths_below(self, limit: usize) -> impl Iterator<Item = usize> {
        let lengths = self.0.to_le_bytes().into_iter().map(usize::from);
        lengths.take_while(move |&len| len != 0 && len < limit)
    }

    /// The longest length.
    #[inline]
    pub fn longest_below(self, limit: usize) -> Option<usize> {
        let lengths = self.0.to_le_bytes().map(usize::from);
        lengths.into_iter().rev().find(|&len| len != 0 && len < limit)
    }

    /// Lengths under which a node of depth `depth` whose parent ends at `above` is entered.
    pub fn covering(self, above: usize, depth: usize) -> impl Iterator<Item = usize> {
        self.0
            .to_le_bytes()
            .into_iter()
            .map(usize::from)
            .filter(move |&len| len != 0 && len > above && len <= depth && depth - len <= DELTA_MAX)
    }
}

/// The result of an adjustment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AdjustReport {
    /// The prefix list before, in bytes, or in nibbles for Quiver.
    pub before: Vec<u8>,
    /// The prefix list afterwards.
    pub after: Vec<u8>,
    /// Entries put into the new table; 0 if the table was kept.
    pub entries: u64,
    /// Whether a new table was built. False if the list is already right, or another client is
    /// adjusting it.
    pub rebuilt: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_pack_and_cover() {
        assert_eq!(PrefixList::POWERS.lengths()[..], [1, 2, 4, 8, 16, 32, 64, 128]);
        let list = PrefixList::new(&[9, 3, 2, 3]);
        assert_eq!(list.lengths()[..], [2, 3, 9]);
        assert_eq!(list.covering(2, 9).collect::<Vec<_>>(), [3, 9]);
        assert_eq!(list.covering(0, 30).count(), 0, "too deep for any");
    }
}
