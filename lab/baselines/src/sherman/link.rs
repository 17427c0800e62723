//! Pointers between nodes of a B-link tree.

use darter_fabric::GlobalAddr;

/// Bits of a birth tag.
pub(super) const TAG_BITS: u32 = 22;

/// A pointer to a node: its address and birth tag. Zero for none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Link(u64);

impl Link {
    pub(crate) const NONE: Self = Self(0);

    pub(crate) fn new(addr: GlobalAddr, tag: u32) -> Self {
        Self(addr.bits() >> 6 | u64::from(tag) << (64 - TAG_BITS))
    }

    pub(crate) fn from_word(word: u64) -> Self {
        Self(word)
    }

    pub(crate) fn word(self) -> u64 {
        self.0
    }

    pub(crate) fn addr(self) -> GlobalAddr {
        GlobalAddr::from_bits(self.0 << 6)
    }

    pub(crate) fn tag(self) -> u32 {
        (self.0 >> (64 - TAG_BITS)) as u32
    }

    /// Returns whether the target has the size of a leaf, if that differs from the size of an inner
    /// node; always true for the root.
    pub(crate) fn has_leaf_size(self) -> bool {
        self.tag() & 1 == 1
    }

    pub(crate) fn is_none(self) -> bool {
        self.0 == 0
    }
}
