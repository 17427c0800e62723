//! The shape of the stored data, as a root word keeps it, and how nodes are read and written.

use super::hopscotch_layout::Layout;
use super::link::Link;
use super::options::{Records, ShermanOptions};
use darter_index::{IndexError, Result};
use std::ops::Deref;

/// Words before the fences.
pub(crate) const HEADER_WORDS: usize = 6;
/// The longest key stored in an entry, and the longest bound stored in a node.
pub(crate) const SHORT_MAX: usize = 64;
/// Entries for which a leaf must have room in addition to the longest bounds.
const ENTRIES_MIN: usize = 4;

/// The shape of the stored data, as the root word keeps it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shape {
    pub(crate) node_words: usize,
    /// Bytes of every key, if all have one length.
    pub(crate) key: Option<usize>,
    /// Bytes of every value, if values are in the entry.
    pub(crate) value: Option<usize>,
    pub(crate) redo: bool,
    /// Slots of a leaf, if leaves are hopscotch tables ([`super::hopscotch`]).
    pub(crate) span: Option<usize>,
}

impl Shape {
    /// # Errors
    /// [`IndexError::Options`].
    pub(crate) fn of(options: &ShermanOptions) -> Result<Self> {
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
            span: None,
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
    /// node bytes 24 | key bytes + 1, 8 | value bytes + 1, 17 | redo 1 | 1 | slots of a hopscotch leaf / 8, 4
    /// ```
    pub(crate) fn word(&self) -> u64 {
        let plus_one = |bytes: Option<usize>| bytes.map_or(0, |bytes| bytes as u64 + 1);
        self.node_bytes()
            | plus_one(self.key) << 24
            | plus_one(self.value) << 32
            | u64::from(self.redo) << 49
            | 1 << 50
            | (self.span.unwrap_or(0) as u64 / 8) << 51
    }

    /// Decodes a shape; `None` if it is invalid.
    pub(crate) fn from_word(word: u64) -> Option<Self> {
        let less_one = |field: u64| (field > 0).then(|| field as usize - 1);
        let shape = Self {
            node_words: (word & 0xff_ffff) as usize / 8,
            key: less_one(word >> 24 & 0xff),
            value: less_one(word >> 32 & 0x1_ffff),
            redo: word >> 49 & 1 == 1,
            span: Some((word >> 51 & 15) as usize * 8).filter(|&span| span > 0),
        };
        let sound = shape.node_words.is_power_of_two()
            && (64..=2048).contains(&shape.node_words)
            && shape.key.is_none_or(|bytes| (1..=SHORT_MAX).contains(&bytes))
            && (shape.value.is_none() || shape.key.is_some())
            && shape.span.is_none_or(|span| (16..=64).contains(&span));
        (sound && shape.has_room() && shape.word() == word).then_some(shape)
    }

    pub(crate) fn node_bytes(&self) -> u64 {
        self.node_words as u64 * 8
    }

    pub(crate) fn key_words(&self) -> usize {
        self.key.map_or(1, |bytes| bytes.div_ceil(8))
    }

    /// Returns the words of the value, or of the pointer to the pair.
    pub(crate) fn payload_words(&self) -> usize {
        self.value.map_or(1, |bytes| bytes.div_ceil(8))
    }

    /// Returns whether values are in the entries.
    pub(crate) fn is_inline(&self) -> bool {
        self.value.is_some()
    }

    /// Returns the words of an entry before its key: a check, if an inline entry has one.
    pub(crate) fn check_words(&self) -> usize {
        usize::from(self.is_inline() && self.span.is_none())
    }

    pub(crate) fn entry_words(&self) -> usize {
        self.check_words() + self.key_words() + self.payload_words()
    }

    /// Returns the layout of leaves that are hopscotch tables.
    pub(crate) fn layout(&self) -> Option<Layout> {
        let bound = self.key.map_or(SHORT_MAX, |bytes| bytes).div_ceil(8);
        self.span.map(|span| Layout::new(span, self.entry_words(), HEADER_WORDS + 2 * bound))
    }

    /// Returns the words of a leaf. The root has the same size even if it is an inner node.
    pub(crate) fn leaf_words(&self) -> usize {
        self.layout().map_or(self.node_words, |layout| layout.leaf_words().max(self.node_words))
    }

    /// Returns the bytes of a leaf's memory. Links give addresses in units of 64 bytes, and small
    /// objects are aligned to their size.
    pub(crate) fn leaf_bytes(&self) -> u64 {
        (self.leaf_words() as u64 * 8).next_multiple_of(64)
    }

    /// Returns the words of the node that a link leads to.
    pub(crate) fn words_of(&self, link: Link) -> usize {
        if self.span.is_some() && link.has_leaf_size() { self.leaf_words() } else { self.node_words }
    }

    /// Returns the bytes of the node that a link leads to.
    pub(crate) fn bytes_of(&self, link: Link) -> u64 {
        if self.span.is_some() && link.has_leaf_size() { self.leaf_bytes() } else { self.node_bytes() }
    }
}

/// The format for reading and writing nodes: the shape, and the key of the hashes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Format {
    shape: Shape,
    pub(crate) seed: u64,
}

impl Deref for Format {
    type Target = Shape;

    fn deref(&self) -> &Shape {
        &self.shape
    }
}

impl Format {
    pub(crate) fn new(shape: Shape, secret: [u64; 4]) -> Self {
        Self { shape, seed: secret[3] }
    }
}

const PRIME: u64 = 0x9e37_79b9_7f4a_7c15;

/// One step of the hash: for a given state, different words give different states.
#[inline]
pub(crate) fn mix(state: u64, word: u64) -> u64 {
    let product = (state ^ word).wrapping_mul(PRIME);
    product ^ product >> 29
}

#[cfg(test)]
mod tests {
    use super::*;
    use darter_fabric::GlobalAddr;

    /// Links give addresses in units of 64 bytes, and small objects are aligned to their size.
    #[test]
    fn leaves_of_any_size_lie_where_links_lead() {
        for records in [
            Records::Any,
            Records::FixedKeys { key_bytes: 17 },
            Records::Inline { key_bytes: 8, value_bytes: 8 },
            Records::Inline { key_bytes: 24, value_bytes: 8 },
        ] {
            for span in (16..=64).step_by(8) {
                let shape = Shape::of(&ShermanOptions::sherman().records(records)).unwrap();
                let shape = Shape { span: Some(span), ..shape };
                let bytes = shape.leaf_bytes();
                assert!(bytes >= shape.leaf_words() as u64 * 8, "{records:?} {span}");
                let second = GlobalAddr::new(1, bytes);
                assert_eq!(Link::new(second, 1).addr(), second, "{records:?} {span}");
                assert_eq!(shape.bytes_of(Link::new(second, 1)), bytes, "{records:?} {span}");
            }
        }
    }

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
