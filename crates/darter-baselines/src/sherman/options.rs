//! What can be chosen: the shape of what is stored, fixed when an index is created, and the techniques in use, each a switch.

use crate::HoclOptions;
use darter_index::IndexError;

/// What keys and values an index holds. It counts when the index is created.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Records {
    /// Any keys and values. A leaf entry is 16 bytes: a digest of the key, and a pointer to a block that holds the pair.
    #[default]
    Any,
    /// Keys of one length and any values: an entry holds the key, and a pointer to a block that holds the pair.
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

/// How a process uses an index. The last five fields count when the index is created.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "each switches a technique, and any may be off alone")]
pub struct ShermanOptions {
    /// Bytes of inner nodes this process may cache. The root's copy is kept in any case.
    pub cache_bytes: u64,
    /// The parts of the lock that are in use (Sherman, section 2.1), without any of which it is a spin lock in the pool, and
    /// whether write-back and unlock share a round trip (section 2.2).
    pub locks: HoclOptions,
    /// Only the entry that changed is written back (section 2.3); otherwise the whole node is.
    pub two_level_versions: bool,
    /// Leaf entries stay where they are; otherwise they are kept in order, which makes inserts and deletes write whole nodes.
    pub unsorted_leaves: bool,
    /// Not for use: as published, a search that finds an entry torn says that its key is absent.
    pub trusts_torn: bool,
    /// Lock words of a memory node; rounded to a power of two.
    pub lock_words: u32,
    /// Bytes of a node: a power of two from 512 to 16,384.
    pub node_bytes: u32,
    /// What keys and values.
    pub records: Records,
    /// Whole nodes are written to a second place first, so that no writer's death loses one. The published design does not;
    /// then a node whose writer died amid its WRITE is lost, and its keys answer so. A process may leave them out alone.
    pub redo_images: bool,
    /// How full bulk load fills nodes, in percent.
    pub fill_percent: u8,
}

impl ShermanOptions {
    /// Sherman with all its techniques.
    pub fn sherman() -> Self {
        Self {
            cache_bytes: 1 << 20,
            locks: HoclOptions::default(),
            two_level_versions: true,
            unsorted_leaves: true,
            trusts_torn: false,
            lock_words: crate::hocl::TABLE_WORDS as u32,
            node_bytes: 1024,
            records: Records::Any,
            redo_images: true,
            fill_percent: 80,
        }
    }

    /// FG (SIGMOD 2019) with an index cache: what Sherman's paper starts from.
    pub fn fg_plus() -> Self {
        Self {
            locks: HoclOptions::spin(),
            two_level_versions: false,
            unsorted_leaves: false,
            ..Self::sherman()
        }
    }

    /// FG: a one-sided B-link tree without any of the techniques.
    pub fn fg() -> Self {
        Self { cache_bytes: 0, ..Self::fg_plus() }
    }

    /// The same with other records.
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

/// The longest key that an entry holds itself, and the longest bound that a node does.
pub(super) const SHORT_MAX: usize = 64;
/// Entries a leaf must have room for beside the longest bounds.
const ENTRIES_MIN: usize = 4;

/// The shape of what is stored, as the root word keeps it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Shape {
    pub(super) node_words: usize,
    /// Bytes of every key, when they have one length.
    pub(super) key: Option<usize>,
    /// Bytes of every value, when values are in the entry.
    pub(super) value: Option<usize>,
    pub(super) redo: bool,
}

impl Shape {
    /// # Errors
    /// [`IndexError::Options`].
    pub(super) fn of(options: &ShermanOptions) -> Result<Self, IndexError> {
        let (key, value) = match options.records {
            Records::Any => (None, None),
            Records::FixedKeys { key_bytes } => (Some(key_bytes), None),
            Records::Inline { key_bytes, value_bytes } => (Some(key_bytes), Some(value_bytes)),
        };
        let shape = Self {
            node_words: options.node_bytes as usize / 8,
            key: key.map(usize::from),
            value: value.map(usize::from),
            redo: options.redo_images,
        };
        if !options.node_bytes.is_power_of_two() || !(512..=16 << 10).contains(&options.node_bytes) {
            return Err(IndexError::Options("node_bytes must be a power of two from 512 to 16,384"));
        }
        if shape.key.is_some_and(|bytes| !(1..=SHORT_MAX).contains(&bytes)) {
            return Err(IndexError::Options(
                "fixed keys must have 1 to 64 bytes; longer ones need Records::Any",
            ));
        }
        if !shape.has_room() {
            return Err(IndexError::Options(
                "fewer than four entries fit in a node; make nodes larger, or use Records::Any",
            ));
        }
        Ok(shape)
    }

    fn has_room(&self) -> bool {
        let bound = self.key.map_or(SHORT_MAX, |bytes| bytes).div_ceil(8);
        super::page::HEADER_WORDS + 2 * bound + ENTRIES_MIN * self.entry_words() <= self.node_words
    }

    /// ```text
    /// node bytes 24 | key bytes + 1, 8 | value bytes + 1, 17 | redo 1 | 1
    /// ```
    pub(super) fn word(&self) -> u64 {
        let plus_one = |bytes: Option<usize>| bytes.map_or(0, |bytes| bytes as u64 + 1);
        self.node_bytes()
            | plus_one(self.key) << 24
            | plus_one(self.value) << 32
            | u64::from(self.redo) << 49
            | 1 << 50
    }

    /// `None` when no index has this shape.
    pub(super) fn from_word(word: u64) -> Option<Self> {
        let less_one = |field: u64| (field > 0).then(|| field as usize - 1);
        let shape = Self {
            node_words: (word & 0xff_ffff) as usize / 8,
            key: less_one(word >> 24 & 0xff),
            value: less_one(word >> 32 & 0x1_ffff),
            redo: word >> 49 & 1 == 1,
        };
        let sound = shape.node_words.is_power_of_two()
            && (64..=2048).contains(&shape.node_words)
            && shape.key.is_none_or(|bytes| (1..=SHORT_MAX).contains(&bytes))
            && (shape.value.is_none() || shape.key.is_some());
        (sound && shape.has_room() && shape.word() == word).then_some(shape)
    }

    pub(super) fn node_bytes(&self) -> u64 {
        self.node_words as u64 * 8
    }

    pub(super) fn key_words(&self) -> usize {
        self.key.map_or(1, |bytes| bytes.div_ceil(8))
    }

    /// Words of the value, or of the pointer to the pair.
    pub(super) fn payload_words(&self) -> usize {
        self.value.map_or(1, |bytes| bytes.div_ceil(8))
    }

    /// Values are in the entries, which then need a check word.
    pub(super) fn is_inline(&self) -> bool {
        self.value.is_some()
    }

    pub(super) fn entry_words(&self) -> usize {
        usize::from(self.is_inline()) + self.key_words() + self.payload_words()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shapes_survive_the_root_word() {
        for records in [
            Records::Any,
            Records::FixedKeys { key_bytes: 8 },
            Records::Inline { key_bytes: 8, value_bytes: 8 },
            Records::Inline { key_bytes: 32, value_bytes: 64 },
        ] {
            let shape = Shape::of(&ShermanOptions::sherman().records(records)).unwrap();
            assert_eq!(Shape::from_word(shape.word()), Some(shape));
        }
        for word in [0, u64::MAX, 1024, 1024 | 1 << 50 | 200 << 24] {
            assert_eq!(Shape::from_word(word), None, "{word:#x}");
        }
        let wide = Records::Inline { key_bytes: 8, value_bytes: 1024 };
        assert!(Shape::of(&ShermanOptions::sherman().records(wide)).is_err());
        assert!(Shape::of(&ShermanOptions { node_bytes: 1000, ..ShermanOptions::sherman() }).is_err());
    }
}
