//! What can be chosen: what an index holds, fixed when it is created, and what a process caches.

use super::leaf::{Layout, SLOTS};
use darter_index::{IndexError, Result};

/// Most words of a value in a leaf.
const VALUE_WORDS_MAX: u8 = 31;

/// How a process uses an index. All but the cache counts when the index is created.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct XStoreOptions {
    /// Words of a value. If not 0, keys have exactly 8 bytes, and values lie in leaves and have at
    /// most so many words; at most 31. With 0, keys and values have any length, and leaves point to
    /// blobs with a pair each.
    pub value_words: u8,
    /// The memory node that holds the leaves.
    pub node: u8,
    /// How many memory nodes of the pool, from `node` on, may hold ranges of the keys: at most so
    /// many, or with 0 all that follow. A bulk load gives each its share of the keys; an index that
    /// is filled by puts stays on `node`.
    pub nodes: u8,
    /// The memory node whose server runs the calls; that of the leaves, if there is none. With
    /// another one, which is then every range's, the server is a process of its own, without which leaves can still be read.
    pub server: Option<u8>,
    /// How full bulk load fills leaves, in percent.
    pub fill_percent: u8,
    /// Bytes of sub-models and table entries that the process remembers, beside the top model's 16.
    /// With less than those 16, models are read anew each time; with 0 none is used, and all goes
    /// by call: the server-centric rival.
    pub cache_bytes: u64,
    /// Reads go by the inner nodes of the server's tree and not by models. Nodes from this level on
    /// are cached, whatever `cache_bytes` says, where the level above the leaves is 1: with 1 all
    /// are, with 4 those at least four levels above the leaves, as in the published comparison with
    /// Cell. If an index is created so, its server writes an image of its inner nodes into the pool;
    /// only such an index can be opened so.
    pub tree_from: Option<u8>,
}

impl Default for XStoreOptions {
    /// Keys and values of any length, on the first memory node, with room in the cache for the models
    /// of some hundred million keys.
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
    /// The shape of leaves.
    pub(super) fn layout(self) -> Result<Layout> {
        if self.value_words > VALUE_WORDS_MAX {
            return Err(IndexError::Options("value_words is 31 at most"));
        }
        Ok(Layout { value_words: self.value_words })
    }

    /// Pairs that bulk load puts into a leaf.
    pub(super) fn loaded_slots(self) -> usize {
        (SLOTS * usize::from(self.fill_percent) / 100).clamp(1, SLOTS)
    }
}
