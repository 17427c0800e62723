//! Options: the shape of an index, fixed when it is created ([`super::format`]), and a switch for
//! each technique.

use crate::HoclOptions;

/// The keys and values of an index, chosen when the index is created.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Records {
    /// Any keys and values. A leaf entry is 16 bytes: a digest of the key, and a pointer to a block
    /// that holds the pair.
    #[default]
    Any,
    /// Keys of one length and any values: an entry holds the key, and a pointer to a block that
    /// holds the pair.
    FixedKeys {
        /// Bytes of a key, 1 to 64.
        key_bytes: u16,
    },
    /// Keys and values of one length each, both in the entry, as in the published code.
    Inline {
        /// Bytes of a key, 1 to 64.
        key_bytes: u16,
        /// Bytes of a value.
        value_bytes: u16,
    },
}

/// How a process uses an index. `lock_words`, `node_bytes`, `records`, `redo_images` and
/// `fill_percent` apply when the index is created.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShermanOptions {
    /// Bytes of inner nodes that this process may cache. The root's copy is always kept.
    pub cache_bytes: u64,
    /// The parts of the lock in use (Sherman, section 2.1); without any of them it is a spin lock
    /// in the pool. Also chooses whether write-back and unlock share a round trip (section 2.2).
    pub locks: HoclOptions,
    /// Only the changed entry is written back (section 2.3); otherwise the whole node is.
    pub two_level_versions: bool,
    /// Leaf entries keep their slots; otherwise they are kept in order, so that inserts and deletes
    /// write whole nodes.
    pub unsorted_leaves: bool,
    /// Lock words per memory node; rounded to a power of two.
    pub lock_words: u32,
    /// Bytes of a node: a power of two from 512 to 16,384.
    pub node_bytes: u32,
    /// The keys and values.
    pub records: Records,
    /// Whole nodes are written to a second place first, so that no writer's death loses one. The
    /// published design does not do that: a node whose writer died during its WRITE is lost, and
    /// its keys return an error. A single process can switch them off in an index that has them.
    pub redo_images: bool,
    /// How full bulk load fills nodes, in percent.
    pub fill_percent: u8,
}

impl ShermanOptions {
    /// Returns Sherman with all its techniques.
    pub fn sherman() -> Self {
        Self {
            cache_bytes: 1 << 20,
            locks: HoclOptions::default(),
            two_level_versions: true,
            unsorted_leaves: true,
            lock_words: crate::hocl::TABLE_WORDS as u32,
            node_bytes: 1024,
            records: Records::Any,
            redo_images: true,
            fill_percent: 80,
        }
    }

    /// Returns FG (SIGMOD 2019) with an index cache: the baseline of Sherman's paper.
    pub fn fg_plus() -> Self {
        Self {
            locks: HoclOptions::spin(),
            two_level_versions: false,
            unsorted_leaves: false,
            ..Self::sherman()
        }
    }

    /// Returns FG: a one-sided B-link tree without any of the techniques.
    pub fn fg() -> Self {
        Self { cache_bytes: 0, ..Self::fg_plus() }
    }

    /// Returns the options with other records.
    #[must_use]
    pub fn records(self, records: Records) -> Self {
        Self { records, ..self }
    }
}

impl Default for ShermanOptions {
    fn default() -> Self {
        Self::sherman()
    }
}
