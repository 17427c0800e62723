//! Options: the shape of an index, fixed when it is created, and how a process uses it.

use crate::{HoclOptions, Records};

/// How a process uses an index. `span`, `lock_words`, `node_bytes`, `records` and `fill_percent`
/// apply when the index is created.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChimeOptions {
    /// Bytes that this process may cache: copies of inner nodes, and slots of hot keys. The root's
    /// copy is always kept.
    pub cache_bytes: u64,
    /// The share of `cache_bytes` for the slots of hot keys (CHIME, section 4.4), in percent. It is
    /// allocated at the start.
    pub hot_spot_percent: u8,
    /// The parts of Sherman's lock in use.
    pub locks: HoclOptions,
    /// Slots of a leaf: a multiple of 8 from 16 to 64.
    pub span: u8,
    /// Lock words per memory node; rounded to a power of two.
    pub lock_words: u32,
    /// Bytes of an inner node: a power of two from 512 to 16,384.
    pub node_bytes: u32,
    /// The keys and values. Values in leaves have up to 8 bytes.
    pub records: Records,
    /// How full bulk load fills nodes, in percent.
    pub fill_percent: u8,
}

impl ChimeOptions {
    /// Returns the options with other records.
    #[must_use]
    pub fn records(self, records: Records) -> Self {
        Self { records, ..self }
    }

    /// Returns the bytes of the cache for the slots of hot keys.
    pub(super) fn hot_spot_bytes(&self) -> u64 {
        let percent = u64::from(self.hot_spot_percent.min(100));
        (u128::from(self.cache_bytes) * u128::from(percent) / 100) as u64 / 16 * 16
    }
}

impl Default for ChimeOptions {
    /// As published: leaves of 64 slots, and 30% of the cache for hot spots.
    fn default() -> Self {
        Self {
            cache_bytes: 1 << 20,
            hot_spot_percent: 30,
            locks: HoclOptions::default(),
            span: 64,
            lock_words: crate::hocl::TABLE_WORDS as u32,
            node_bytes: 1024,
            records: Records::Any,
            fill_percent: 75,
        }
    }
}
