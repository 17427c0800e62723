//! Addresses in the pool: which memory node, and where in its region.
//!
//! An address fits into 48 bits so that a compound pointer can hold it together with its metadata
//! (DART, section 3.3):
//!
//! ```text
//!  63        48 47      40 39                      0
//! +------------+----------+-------------------------+
//! |     0      |  node 8  |  offset in bytes, 40    |
//! +------------+----------+-------------------------+
//! ```

use std::fmt;

/// Bits of the offset part: a region holds at most 1 TiB.
pub const OFFSET_BITS: u32 = 40;
/// Exclusive upper bound of an offset in bytes.
pub const OFFSET_LIMIT: u64 = 1 << OFFSET_BITS;
/// Maximum number of memory nodes in a pool.
pub const NODES_MAX: usize = 256;

/// The address of a byte in the pool: 8 bits of memory node, 40 bits of offset.
///
/// Verbs require an alignment of 8 bytes. Node 0, offset 0 is the superblock, so the zero word
/// serves as "none".
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct GlobalAddr(u64);

impl GlobalAddr {
    /// The address that no object has.
    pub const NULL: Self = Self(0);

    /// Composes an address. `offset` must be below [`OFFSET_LIMIT`]; higher bits are cut off.
    #[inline]
    pub const fn new(node: u8, offset: u64) -> Self {
        Self((node as u64) << OFFSET_BITS | (offset & (OFFSET_LIMIT - 1)))
    }

    /// Reads an address back from its 48-bit form; higher bits are ignored.
    #[inline]
    pub const fn from_bits(bits: u64) -> Self {
        Self(bits & ((1 << (OFFSET_BITS + 8)) - 1))
    }

    /// Returns the 48-bit form.
    #[inline]
    pub const fn bits(self) -> u64 {
        self.0
    }

    /// Returns the memory node.
    #[inline]
    pub const fn node(self) -> u8 {
        (self.0 >> OFFSET_BITS) as u8
    }

    /// Returns the offset in that node's region, in bytes.
    #[inline]
    pub const fn offset(self) -> u64 {
        self.0 & (OFFSET_LIMIT - 1)
    }

    /// Returns whether this is [`GlobalAddr::NULL`].
    #[inline]
    pub const fn is_null(self) -> bool {
        self.0 == 0
    }

    /// Returns the address `bytes` further on in the same node.
    #[inline]
    #[must_use]
    pub const fn plus(self, bytes: u64) -> Self {
        Self(self.0 + bytes)
    }
}

impl fmt::Debug for GlobalAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "mn{}+{:#x}", self.node(), self.offset())
    }
}

impl fmt::Display for GlobalAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_survive_packing() {
        let addr = GlobalAddr::new(255, OFFSET_LIMIT - 8);
        assert_eq!((addr.node(), addr.offset()), (255, OFFSET_LIMIT - 8));
        assert_eq!(GlobalAddr::from_bits(addr.bits() | 0xffff << 48), addr);
        assert_eq!(GlobalAddr::new(3, 16).plus(8), GlobalAddr::new(3, 24));
        assert!(GlobalAddr::NULL.is_null());
    }
}
