//! The slot: DART's 8-byte compound pointer (paper, section 3.3), the only object that writes
//! change in place. The index defines the types of node: [`NodeCode`].
//!
//! ```text
//!  63      56  55   54   51 50        44 43    36 35                           0
//! +----------+----+--------+------------+--------+------------------------------+
//! |  partial | S  |  type  | len/class  |  node  |  offset / 16                 |
//! |     8    | 1  |   4    |     7      |   8    |  36                          |
//! +----------+----+--------+------------+--------+------------------------------+
//! ```
//!
//! - *partial*: the key byte of the edge. Meaningless for `End` and `TombEnd`, whose edge is "the
//!   key ends here".
//! - *S*: sealed. A sealed slot never changes again; its node is being replaced.
//! - *len/class*: of an inner node, the bytes its edge skips (optimistic path compression); of a
//!   leaf, its size class, so that one READ fetches it whole.
//! - Objects are aligned to 16 bytes, so the 48-bit address of the paper needs 44 bits.
//!
//! The all-zero word is EMPTY. A slot that was taken belongs to its edge for the life of its node:
//! a delete leaves a tombstone with the same edge, and only a rebuild drops it.

use super::seal::SEAL;
use darter_fabric::GlobalAddr;
use std::fmt;
use std::marker::PhantomData;

/// The edge "the key ends at this node"; edges 0 to 255 are key bytes.
pub const END: u16 = 256;
/// Maximum number of children of a node: 256 key bytes and the end of the key.
pub const FANOUT: usize = 257;
/// Maximum number of bytes that one edge can skip.
pub const SKIP_MAX: usize = 127;

const ADDR_BITS: u32 = 44;
const LEN_SHIFT: u32 = 44;
const TYPE_SHIFT: u32 = 51;
const PARTIAL_SHIFT: u32 = 56;

const TYPE_EMPTY: u64 = 0;
const TYPE_TOMB: u64 = 1;
const TYPE_TOMB_END: u64 = 2;
const TYPE_LEAF: u64 = 3;
const TYPE_END: u64 = 4;
const TYPE_NODE_FIRST: u64 = 5;

/// Number of node types that a slot can distinguish.
const NODE_CODES: u64 = 16 - TYPE_NODE_FIRST;

/// The types of node that slots of one index can point to, with codes 0 to 10.
pub trait NodeCode: Copy + Eq + fmt::Debug {
    /// The code of a type.
    fn code(self) -> u8;

    /// The type with a code; `None` if there is none.
    fn from_code(code: u64) -> Option<Self>;
}

/// The edge of a key at a depth, which must not exceed the key's length.
pub fn edge_of(key: &[u8], depth: usize) -> u16 {
    key.get(depth).map_or(END, |&byte| u16::from(byte))
}

/// Sort key of an edge: a key that ends sorts before every key that continues.
pub const fn order_of(edge: u16) -> u16 {
    if edge == END { 0 } else { edge + 1 }
}

/// One slot of a node; `T` is the type of node types.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Slot<T>(u64, PhantomData<T>);

/// The content of a slot, without the seal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content<T> {
    /// Never taken.
    Empty,
    /// Taken by an edge whose child was deleted.
    Tomb,
    /// A key-value pair; `class` is its size class.
    Leaf {
        /// The leaf's address.
        addr: GlobalAddr,
        /// Its size class.
        class: u8,
    },
    /// An inner node; `skip` compressed bytes lie between the edge and the node.
    Node {
        /// The node's address.
        addr: GlobalAddr,
        /// Its type.
        ty: T,
        /// Bytes that its edge skips.
        skip: u8,
    },
    /// Bits that no writer of this format stores.
    Invalid,
}

impl<T: NodeCode> Slot<T> {
    /// A slot that was never taken.
    pub const EMPTY: Self = Self::from_word(0);

    /// The slot in a word.
    pub const fn from_word(word: u64) -> Self {
        Self(word, PhantomData)
    }

    /// The word of a slot.
    pub const fn word(self) -> u64 {
        self.0
    }

    const fn pack(edge: u16, ty: u64, len: u8, addr: GlobalAddr) -> Self {
        Self::from_word(
            (edge as u64 & 0xff) << PARTIAL_SHIFT
                | ty << TYPE_SHIFT
                | (len as u64 & 0x7f) << LEN_SHIFT
                | addr.bits() >> 4,
        )
    }

    /// A pointer to a leaf; the edge [`END`] means that its key ends here.
    pub const fn leaf(edge: u16, class: u8, addr: GlobalAddr) -> Self {
        Self::pack(edge, if edge == END { TYPE_END } else { TYPE_LEAF }, class, addr)
    }

    /// A pointer to an inner node; `edge` is a key byte, since a key cannot end on the edge to a
    /// node.
    pub fn node(edge: u16, ty: T, skip: u8, addr: GlobalAddr) -> Self {
        debug_assert!(u64::from(ty.code()) < NODE_CODES);
        Self::pack(edge, TYPE_NODE_FIRST + u64::from(ty.code()), skip, addr)
    }

    /// The tombstone that a delete leaves.
    pub const fn tomb(edge: u16) -> Self {
        Self::pack(edge, if edge == END { TYPE_TOMB_END } else { TYPE_TOMB }, 0, GlobalAddr::NULL)
    }

    /// Whether the slot never changes again.
    pub const fn is_sealed(self) -> bool {
        self.0 & SEAL != 0
    }

    /// The slot with its seal.
    #[must_use]
    pub const fn sealed(self) -> Self {
        Self::from_word(self.0 | SEAL)
    }

    /// The slot without its seal.
    #[must_use]
    pub const fn unsealed(self) -> Self {
        Self::from_word(self.0 & !SEAL)
    }

    /// Whether the slot was never taken (sealed or not).
    pub const fn is_empty(self) -> bool {
        self.0 & !SEAL == 0
    }

    const fn type_code(self) -> u64 {
        self.0 >> TYPE_SHIFT & 0xf
    }

    /// The edge to which the slot belongs; `None` if it is empty.
    pub const fn edge(self) -> Option<u16> {
        match self.type_code() {
            TYPE_EMPTY => None,
            TYPE_TOMB_END | TYPE_END => Some(END),
            _ => Some((self.0 >> PARTIAL_SHIFT) as u16),
        }
    }

    /// Whether the slot was taken for this edge.
    #[inline]
    pub fn is_of(self, edge: u16) -> bool {
        let code = self.type_code();
        if edge == END {
            code == TYPE_TOMB_END || code == TYPE_END
        } else {
            self.0 >> PARTIAL_SHIFT == u64::from(edge)
                && code != TYPE_EMPTY
                && code != TYPE_TOMB_END
                && code != TYPE_END
        }
    }

    /// The address; null in tombstones and empty slots.
    pub const fn addr(self) -> GlobalAddr {
        GlobalAddr::from_bits((self.0 & ((1 << ADDR_BITS) - 1)) << 4)
    }

    const fn len(self) -> u8 {
        (self.0 >> LEN_SHIFT & 0x7f) as u8
    }

    /// Whether the slot points to a leaf or a node.
    pub const fn is_live(self) -> bool {
        self.type_code() >= TYPE_LEAF
    }

    /// The content of the slot.
    #[inline]
    pub fn content(self) -> Content<T> {
        match self.type_code() {
            TYPE_EMPTY if self.is_empty() => Content::Empty,
            TYPE_TOMB | TYPE_TOMB_END => Content::Tomb,
            TYPE_LEAF | TYPE_END => Content::Leaf { addr: self.addr(), class: self.len() },
            code if code >= TYPE_NODE_FIRST => match T::from_code(code - TYPE_NODE_FIRST) {
                Some(ty) => Content::Node { addr: self.addr(), ty, skip: self.len() },
                None => Content::Invalid,
            },
            _ => Content::Invalid,
        }
    }

    /// The same child under another edge and, for a node, another skip.
    #[must_use]
    pub fn moved(self, edge: u16, skip: u8) -> Self {
        match self.content() {
            Content::Leaf { addr, class } => Self::leaf(edge, class, addr),
            Content::Node { addr, ty, .. } => Self::node(edge, ty, skip, addr),
            _ => self,
        }
    }
}

impl<T: NodeCode> fmt::Debug for Slot<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seal = if self.is_sealed() { "!" } else { "" };
        write!(f, "{seal}{:?}:{:?}", self.edge(), self.content())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    struct Code(u8);

    impl NodeCode for Code {
        fn code(self) -> u8 {
            self.0
        }

        fn from_code(code: u64) -> Option<Self> {
            (code < 10).then_some(Self(code as u8))
        }
    }

    type Slot = super::Slot<Code>;

    #[test]
    fn every_form_round_trips() {
        let addr = GlobalAddr::new(255, (1 << 40) - 16);
        for edge in [0, 7, 255, END] {
            let leaf = Slot::leaf(edge, 127, addr);
            assert_eq!((leaf.edge(), leaf.content()), (Some(edge), Content::Leaf { addr, class: 127 }));
            assert_eq!(leaf.sealed().unsealed(), leaf);
            assert_eq!(leaf.sealed().content(), leaf.content());
            for other in [0, 7, 255, END] {
                assert_eq!(leaf.is_of(other), edge == other);
                assert_eq!(Slot::tomb(edge).sealed().is_of(other), edge == other);
                assert!(!Slot::EMPTY.sealed().is_of(other));
            }
            let tomb = Slot::tomb(edge);
            assert_eq!((tomb.edge(), tomb.content(), tomb.is_live()), (Some(edge), Content::Tomb, false));
            assert!(!tomb.is_empty());
        }
        for ty in (0..10).map(Code) {
            let node = Slot::node(9, ty, 127, addr);
            assert_eq!((node.edge(), node.content()), (Some(9), Content::Node { addr, ty, skip: 127 }));
            assert_eq!(node.moved(3, 4).content(), Content::Node { addr, ty, skip: 4 });
        }
        assert!(Slot::EMPTY.is_empty() && Slot::EMPTY.sealed().is_empty());
        assert_eq!(Slot::EMPTY.edge(), None);
        assert_eq!(Slot::from_word(0xf << 51).content(), Content::Invalid);
    }
}
