//! Keys as strings of digits: half bytes in WORT, bytes in the other two trees.

use darter_index::radix::slot::END;
use darter_index::radix::{common_prefix, slot};

/// The digit that one node branches on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Digits {
    /// Half bytes, the upper one first.
    Nibbles,
    /// Bytes.
    Bytes,
}

impl Digits {
    /// Returns the bits of a digit.
    pub(super) const fn bits(self) -> usize {
        match self {
            Self::Nibbles => 4,
            Self::Bytes => 8,
        }
    }

    /// Returns the number of digits of a key.
    pub(super) const fn count(self, key: &[u8]) -> usize {
        key.len() * 8 / self.bits()
    }

    /// Returns the digit of a key at a place; [`END`] after its last one.
    pub(super) fn edge(self, key: &[u8], at: usize) -> u16 {
        match self {
            Self::Bytes => slot::edge_of(key, at),
            Self::Nibbles => key.get(at / 2).map_or(END, |byte| {
                let nibble = if at.is_multiple_of(2) { byte >> 4 } else { byte & 15 };
                u16::from(nibble)
            }),
        }
    }

    /// Returns the number of leading digits that two keys share.
    pub(super) fn common(self, a: &[u8], b: &[u8]) -> usize {
        let bytes = common_prefix(a, b);
        match self {
            Self::Bytes => bytes,
            Self::Nibbles => {
                let (at, both) = (bytes * 2, bytes < a.len() && bytes < b.len());
                at + usize::from(both && self.edge(a, at) == self.edge(b, at))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_of_keys() {
        let (nibbles, bytes) = (Digits::Nibbles, Digits::Bytes);
        assert_eq!([0, 1, 2, 3, 4].map(|at| nibbles.edge(&[0xab, 0x0c], at)), [10, 11, 0, 12, END]);
        assert_eq!([0, 1, 2].map(|at| bytes.edge(&[0xab, 0x0c], at)), [0xab, 0x0c, END]);
        assert_eq!((nibbles.count(&[1, 2, 3]), bytes.count(&[1, 2, 3])), (6, 3));
        for (a, b, of_nibbles, of_bytes) in [
            (&[0x12, 0x34][..], &[0x12, 0x35][..], 3, 1),
            (&[0x12, 0x34], &[0x12, 0x44], 2, 1),
            (&[0x12], &[0x12, 0x44], 2, 1),
            (&[], &[0x12], 0, 0),
        ] {
            assert_eq!((nibbles.common(a, b), bytes.common(a, b)), (of_nibbles, of_bytes));
            assert_eq!((nibbles.common(b, a), bytes.common(b, a)), (of_nibbles, of_bytes));
        }
    }
}
