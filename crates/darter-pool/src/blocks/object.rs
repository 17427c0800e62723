//! Objects: their kinds, and an object's address and size class packed into a word.

use darter_fabric::GlobalAddr;

/// The kind of an object. A block holds objects of one kind while it is granted, so that an inner
/// node's memory never becomes a leaf's while one could be mistaken for the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum AllocKind {
    /// Part of an index's structure.
    Inner = 0,
    /// Keys and values.
    Leaf = 1,
}

impl AllocKind {
    pub(super) const COUNT: usize = 2;

    /// The kind's name in reports.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Inner => "inner",
            Self::Leaf => "leaf",
        }
    }
}

/// An object packed into a word: address 48 bits, class 7.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Object(u64);

impl Object {
    pub(crate) fn new(addr: GlobalAddr, class: u8) -> Self {
        Self(addr.bits() | (u64::from(class & 127) << 48))
    }

    pub(crate) fn addr(self) -> GlobalAddr {
        GlobalAddr::from_bits(self.0)
    }

    pub(crate) fn class(self) -> u8 {
        (self.0 >> 48) as u8 & 127
    }
}
