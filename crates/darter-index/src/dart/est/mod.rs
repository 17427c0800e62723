//! The express skip table, EST (paper, section 3.1): an extendible hash from key prefixes to inner
//! nodes.
//!
//! For every length L of the prefix list, the table maps the first L bytes of a key to the first
//! inner node on the key's path whose depth is L or more. A search probes all of its key's lengths
//! in one round trip and starts at the deepest node found. Every entry is a *hint*: the node that
//! it leads to is verified (identity word, rules R1 and R2), and losing an entry costs only a few
//! round trips. A *removal*, however, must never be lost: before a node's memory is reused, every
//! entry that names it is scrubbed, and no client may put one back (rule R3).
//!
//! ```text
//! root words            descriptor (64 B)        directory, 2^bits words     segment (8 KiB)
//! +------------+        +----------------+       +--------------------+      +-- bucket 0: 8 entries --+
//! | EST        |------->| tag            |   +-->| 0: segment, depth  |----->+-- bucket 1 -------------+
//! | EST next   |        | prefix list    |   |   | 1: segment, depth  |--+   |  ...                    |
//! | version    |        | bits           |   |   |  ...               |  |   +-- bucket 127 -----------+
//! +------------+        | directory      |---+   +--------------------+  +-> ...
//!                       | epoch of birth |
//!                       | buckets        |
//!                       +----------------+
//!
//! entry  63      56  55   54   51 50   48 47   44 43                    0
//!       +----------+----+--------+-------+-------+-----------------------+
//!       | print hi | S  |  type  | print | delta |  address / 16         |
//!       |    8     | 1  |   4    | low 3 |   4   |  44                   |
//!       +----------+----+--------+-------+-------+-----------------------+
//! ```
//!
//! In a prefix's 64-bit hash, the low `bits` select the directory entry, bits 32 to 38 the bucket,
//! and the top 11 are the fingerprint. A table may have fewer buckets in a segment, always a power
//! of two. *delta* is the node's depth minus L. The prefix list is one word of at most eight
//! lengths, and a descriptor never changes: a new list requires a new table, which is built next to
//! the old one and swapped in ([`super::adjust`]).
//!
//! A search probes *all* lengths of the list, not only the longest. A key whose longest prefix has
//! no node then takes three round trips instead of four, for 64 bytes more per length. The
//! directory has a fixed size, within which segments split; when it is full, an adjustment builds a
//! larger table. So a new list, growth and shrinking all use one mechanism.

pub(crate) mod install;
#[cfg(test)]
mod interleavings;
pub(crate) mod scrub;
pub(crate) mod split;
pub(crate) mod table;

use super::node::{NodeRef, NodeType};
use super::prefix_hash::HashKeys;
use super::seal::SEAL;
use crate::radix::prefix_list::DELTA_MAX;
use crate::radix::slot::NodeCode;
use darter_fabric::GlobalAddr;
use table::Table;

/// Entries in a bucket.
pub(crate) const BUCKET_SLOTS: usize = 8;
/// Maximum number of buckets in a segment, and the usual number.
pub(crate) const SEGMENT_BUCKETS_MAX: usize = 128;

/// The fingerprint's bits in an entry.
const PRINT: u64 = 0xff << 56 | 7 << 48;

/// One entry of a bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Entry(u64);

impl Entry {
    pub(crate) const fn from_word(word: u64) -> Self {
        Self(word)
    }

    pub(crate) const fn word(self) -> u64 {
        self.0
    }

    /// The entry of `node` under a prefix of `len` bytes with this hash.
    pub(crate) fn new(hash: u64, len: usize, node: NodeRef) -> Self {
        let delta = (node.depth - len) as u64;
        debug_assert!(delta <= DELTA_MAX as u64);
        Self(Self::print(hash) | (node.ty as u64 + 1) << 51 | delta << 44 | node.addr.bits() >> 4)
    }

    pub(crate) const fn is_empty(self) -> bool {
        self.0 & !SEAL == 0
    }

    pub(crate) const fn is_sealed(self) -> bool {
        self.0 & SEAL != 0
    }

    #[cfg(test)]
    const fn sealed(self) -> Self {
        Self(self.0 | SEAL)
    }

    #[must_use]
    pub(crate) const fn unsealed(self) -> Self {
        Self(self.0 & !SEAL)
    }

    /// Whether the fingerprint equals that of `hash`.
    #[inline]
    pub(crate) const fn matches(self, hash: u64) -> bool {
        self.0 & PRINT == Self::print(hash)
    }

    /// The fingerprint of a hash, at its place in an entry.
    #[inline]
    const fn print(hash: u64) -> u64 {
        hash & 0xff << 56 | (hash >> 53 & 7) << 48
    }

    pub(crate) const fn addr(self) -> GlobalAddr {
        GlobalAddr::from_bits((self.0 & ((1 << 44) - 1)) << 4)
    }

    pub(crate) const fn delta(self) -> usize {
        (self.0 >> 44 & 0xf) as usize
    }

    /// The node that an entry under a prefix of `len` bytes names; `None` if the word is empty or
    /// not in this format.
    #[inline]
    pub(crate) fn node(self, len: usize) -> Option<NodeRef> {
        let code = (self.0 >> 51 & 0xf).checked_sub(1)?;
        Some(NodeRef { addr: self.addr(), ty: NodeType::from_code(code)?, depth: len + self.delta() })
    }
}

/// A word of the directory: a segment and its local depth.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DirectoryEntry(u64);

impl DirectoryEntry {
    pub(crate) const fn from_word(word: u64) -> Self {
        Self(word)
    }

    pub(crate) const fn new(segment: GlobalAddr, local_depth: u32) -> Self {
        Self(segment.bits() >> 4 | (local_depth as u64) << 44)
    }

    pub(crate) const fn word(self) -> u64 {
        self.0
    }

    pub(crate) const fn segment(self) -> GlobalAddr {
        GlobalAddr::from_bits((self.0 & ((1 << 44) - 1)) << 4)
    }

    pub(crate) const fn local_depth(self) -> u32 {
        (self.0 >> 44 & 0x3f) as u32
    }
}

/// The table as an operation uses it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Express<'t> {
    pub(crate) table: &'t Table,
    /// Hashes the prefixes under which entries are stored.
    pub(crate) keys: &'t HashKeys,
    /// The word whose change makes other processes read the directory again.
    pub(crate) version: GlobalAddr,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_keep_their_parts() {
        for ty in NodeType::ALL {
            let node = NodeRef { addr: GlobalAddr::new(200, (1 << 40) - 32), ty, depth: 18 };
            let hash = 0xabcd_ef01_2345_6789;
            let entry = Entry::new(hash, 3, node);
            assert!(entry.matches(hash) && !entry.matches(!hash));
            assert_eq!(entry.node(3), Some(node));
            assert_eq!(entry.sealed().unsealed(), entry);
            assert!(entry.sealed().is_sealed() && !entry.is_empty());
            assert_eq!(entry.sealed().node(3), Some(node));
        }
        assert_eq!(Entry::from_word(0).node(4), None);
    }

    #[test]
    fn directory_entries_keep_their_parts() {
        let entry = DirectoryEntry::new(GlobalAddr::new(7, 8192), 13);
        assert_eq!((entry.segment(), entry.local_depth()), (GlobalAddr::new(7, 8192), 13));
    }
}
