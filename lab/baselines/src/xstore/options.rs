//! Options: the shape of an index, fixed when it is created, and what a process caches.

use super::leaf::{Layout, SLOTS};
use darter_index::{IndexError, Result};

/// Maximum words of a value in a leaf.
const VALUE_WORDS_MAX: u8 = 31;

/// How a process uses an index. All options except the cache apply when the index is created.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct XStoreOptions {
    /// Words of a value, at most 31. If not 0, keys have exactly 8 bytes, and values are in leaves
    /// and have at most this many words. With 0, keys and values have any length, and leaves point
    /// to blobs with one pair each.
    pub value_words: u8,
    /// The memory node that holds the leaves.
    pub node: u8,
    /// Number of memory nodes of the pool, from `node` on, that may hold ranges of the keys; with 0
    /// all that follow. A bulk load gives each its share of the keys; an index that is filled by
    /// puts stays on `node`.
    pub nodes: u8,
    /// The memory node whose server runs the calls; by default the node of the leaves. Another node
    /// serves all ranges: its server is a separate process, and the leaves can be read without it.
    pub server: Option<u8>,
    /// How full bulk load fills leaves, in percent.
    pub fill_percent: u8,
    /// Bytes of sub-models and table entries that the process caches, plus the top model's 16. With
    /// less than 16, models are read again each time; with 0 none is used and every operation is a
    /// call: the server-centric rival.
    pub cache_bytes: u64,
    /// Reads use the inner nodes of the server's tree instead of models. Nodes from this level up
    /// are cached, regardless of `cache_bytes`; the level above the leaves is 1. With 1 all are
    /// cached, with 4 those at least four levels above the leaves, as in the published comparison
    /// with Cell. If an index is created with this option, its server writes an image of its inner
    /// nodes into the pool; only such an index can be opened with it.
    pub tree_from: Option<u8>,
}

impl Default for XStoreOptions {
    /// Keys and values of any length, on the first memory node, with cache room for the models of
    /// some hundred million keys.
    fn default() -> Self {
        Self {
            value_words: 0,
            node: 0,
            nodes: 1,
            server: None,
            fill_percent: 75,
            cache_bytes: 64 << 20,
            tree_from: None,
        }
    }
}

impl XStoreOptions {
    /// Returns the shape of leaves.
    pub(super) fn layout(self) -> Result<Layout> {
        if self.value_words > VALUE_WORDS_MAX {
            return Err(IndexError::Options("value_words must be at most 31"));
        }
        Ok(Layout { value_words: self.value_words })
    }

    /// Returns the number of pairs that bulk load puts into a leaf.
    pub(super) fn loaded_slots(self) -> usize {
        (SLOTS * usize::from(self.fill_percent) / 100).clamp(1, SLOTS)
    }
}
