//! The shape of what is stored, as a root word keeps it, and how nodes are read and written in it.

use super::options::{Records, ShermanOptions};
use darter_index::{IndexError, Result};
use std::ops::Deref;

/// Words before the fences.
pub(super) const HEADER_WORDS: usize = 6;
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
    pub(super) fn of(options: &ShermanOptions) -> Result<Self> {
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
        HEADER_WORDS + 2 * bound + ENTRIES_MIN * self.entry_words() <= self.node_words
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

/// How nodes are read and written: the shape, and the key of the hashes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Format {
    shape: Shape,
    pub(super) seed: u64,
}

impl Deref for Format {
    type Target = Shape;

    fn deref(&self) -> &Shape {
        &self.shape
    }
}

impl Format {
    pub(super) fn new(shape: Shape, secret: [u64; 4]) -> Self {
        Self { shape, seed: secret[3] }
    }
}

const PRIME: u64 = 0x9e37_79b9_7f4a_7c15;

/// One step of the hash: for a given state, another word gives another state.
#[inline]
pub(super) fn mix(state: u64, word: u64) -> u64 {
    let product = (state ^ word).wrapping_mul(PRIME);
    product ^ product >> 29
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
