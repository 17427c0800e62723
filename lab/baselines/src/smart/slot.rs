//! The slot: a child pointer with its partial key, in one word (SMART, section 4.1.1 and Figure
//! 6a).
//!
//! ```text
//!           63      56 55      53   49 48 47    40 39               4 3 2 1 0
//!          +----------+-------+-------+--+--------+------------------+--------+
//! node     |  partial |   0   | type  | 0|  node  |   offset / 16    |    0 S |
//! leaf     |  partial |    length     | 1|  node  |   offset / 16    |  0 E S |
//! tomb     |  partial |       0       | 0|   0    |        0         |  T E S |
//!          +----------+-------+-------+--+--------+------------------+--------+
//! ```
//!
//! The word is the published one: partial key 8, leaf length 7 or node type 5, is-leaf 1, address
//! 48. Objects of a pool are aligned to 16 bytes, so the address leaves four bits for states that
//! the paper does not store:
//!
//! - *S*: sealed. The slot's node is being removed from the tree; the slot never changes again.
//! - *E*: the edge is "the key ends here", not a byte.
//! - *T*: the edge's child was deleted. A taken slot keeps its edge for the life of its node.
//!
//! The zero word is EMPTY. Slots of a node are taken in order.

use super::leaf;
use super::node_type::NodeType;
use darter_fabric::GlobalAddr;
use darter_index::radix::slot::END;
use std::fmt;

/// The seal's bit.
pub(super) const SEAL: u64 = 1;
const ENDS: u64 = 2;
const TOMB: u64 = 4;
const FLAGS: u64 = 15;
const LEAF: u64 = 1 << 48;
const LEN_SHIFT: u32 = 49;
const PARTIAL_SHIFT: u32 = 56;

/// One slot of a node.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Slot(u64);

/// The content of a slot, without the seal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Content {
    /// Never taken.
    Empty,
    /// Taken by an edge whose child was deleted.
    Tomb,
    /// A key-value pair; `len` is the code of its length ([`leaf::bytes_of`]).
    Leaf { addr: GlobalAddr, len: u8 },
    /// An inner node, of at least this type.
    Node { addr: GlobalAddr, ty: NodeType },
    /// Bits that no writer of this format leaves.
    Invalid,
}

/// A slot, its address and its content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SlotAt {
    pub(super) addr: GlobalAddr,
    pub(super) slot: Slot,
}

impl Slot {
    pub(super) const EMPTY: Self = Self(0);

    pub(super) const fn from_word(word: u64) -> Self {
        Self(word)
    }

    pub(super) const fn word(self) -> u64 {
        self.0
    }

    const fn edge_bits(edge: u16) -> u64 {
        if edge == END { ENDS } else { (edge as u64) << PARTIAL_SHIFT }
    }

    pub(super) const fn leaf(edge: u16, len: u8, addr: GlobalAddr) -> Self {
        Self(Self::edge_bits(edge) | ((len & 127) as u64) << LEN_SHIFT | LEAF | addr.bits())
    }

    /// Creates a pointer to an inner node; `edge` is a key byte, since a key's end has no further
    /// edges.
    pub(super) const fn node(edge: u16, ty: NodeType, addr: GlobalAddr) -> Self {
        Self(((edge & 0xff) as u64) << PARTIAL_SHIFT | (ty.code() as u64) << LEN_SHIFT | addr.bits())
    }

    pub(super) const fn tomb(edge: u16) -> Self {
        Self(Self::edge_bits(edge) | TOMB)
    }

    pub(super) const fn is_sealed(self) -> bool {
        self.0 & SEAL != 0
    }

    #[cfg(test)]
    pub(super) const fn sealed(self) -> Self {
        Self(self.0 | SEAL)
    }

    #[must_use]
    pub(super) const fn unsealed(self) -> Self {
        Self(self.0 & !SEAL)
    }

    /// Returns whether the slot was never taken (sealed or not).
    pub(super) const fn is_empty(self) -> bool {
        self.0 & !SEAL == 0
    }

    /// Returns the edge the slot belongs to, `None` if empty.
    pub(super) const fn edge(self) -> Option<u16> {
        if self.is_empty() {
            None
        } else if self.0 & ENDS != 0 {
            Some(END)
        } else {
            Some((self.0 >> PARTIAL_SHIFT) as u16)
        }
    }

    /// Returns whether the slot was taken by this edge.
    #[inline]
    pub(super) fn is_of(self, edge: u16) -> bool {
        self.edge() == Some(edge)
    }

    /// Returns the address part; null in tombs and empty slots.
    pub(super) const fn addr(self) -> GlobalAddr {
        GlobalAddr::from_bits(self.0 & !FLAGS)
    }

    /// Returns whether the slot points to a leaf or a node.
    pub(super) fn is_live(self) -> bool {
        matches!(self.content(), Content::Leaf { .. } | Content::Node { .. })
    }

    /// Returns the content of the slot.
    #[inline]
    pub(super) fn content(self) -> Content {
        let addr = self.addr();
        let code = (self.0 >> LEN_SHIFT & 0x7f) as u8;
        if self.is_empty() {
            Content::Empty
        } else if self.0 & TOMB != 0 {
            if addr.is_null() && code == 0 { Content::Tomb } else { Content::Invalid }
        } else if addr.is_null() || self.0 & 8 != 0 {
            Content::Invalid
        } else if self.0 & LEAF != 0 {
            if leaf::is_length(code) { Content::Leaf { addr, len: code } } else { Content::Invalid }
        } else {
            match NodeType::from_code(code) {
                Some(ty) if self.0 & ENDS == 0 => Content::Node { addr, ty },
                _ => Content::Invalid,
            }
        }
    }

    /// Returns the same child under another edge.
    #[must_use]
    pub(super) fn moved(self, edge: u16) -> Self {
        match self.content() {
            Content::Leaf { addr, len } => Self::leaf(edge, len, addr),
            Content::Node { addr, ty } => Self::node(edge, ty, addr),
            _ => self,
        }
    }
}

impl fmt::Debug for Slot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seal = if self.is_sealed() { "!" } else { "" };
        write!(f, "{seal}{:?}:{:?}", self.edge(), self.content())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_form_round_trips() {
        let addr = GlobalAddr::new(255, (1 << 40) - 16);
        for edge in [0, 7, 255, END] {
            for len in [1, 63, 64, 123] {
                let leaf = Slot::leaf(edge, len, addr);
                assert_eq!((leaf.edge(), leaf.content()), (Some(edge), Content::Leaf { addr, len }));
                assert_eq!((leaf.sealed().unsealed(), leaf.sealed().content()), (leaf, leaf.content()));
                assert_eq!(leaf.moved(3).edge(), Some(3));
            }
            let tomb = Slot::tomb(edge);
            assert_eq!((tomb.edge(), tomb.content(), tomb.is_live()), (Some(edge), Content::Tomb, false));
            assert!(!tomb.is_empty() && tomb.sealed().is_of(edge));
        }
        for ty in NodeType::ALL {
            let node = Slot::node(9, ty, addr);
            assert_eq!((node.edge(), node.content()), (Some(9), Content::Node { addr, ty }));
        }
        assert!(Slot::EMPTY.is_empty() && Slot::EMPTY.sealed().is_empty());
        assert_eq!((Slot::EMPTY.edge(), Slot::EMPTY.sealed().edge()), (None, None));
        assert_eq!(Slot::from_word(u64::MAX).content(), Content::Invalid);
        assert_eq!(Slot::from_word(1 << 63).content(), Content::Invalid);
    }
}
