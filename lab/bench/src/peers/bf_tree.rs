//! bf-tree: a B-tree whose leaves have small pages in a buffer pool, which hold hot records.
//!
//! Configured as in the in-memory case of its own benchmarks: leaves in memory (`:memory:`), a
//! buffer pool larger than all records, and every record that is read moves into it. Leaves have
//! 16 KiB, which were faster than 4 and 8 KiB in all operations. A mode without leaves (`:cache:`)
//! was slower, and forgets records when its buffer is full.
//!
//! Its `insert` stores a pair and does not report whether there was one, so inserts and updates
//! here are that one call and claim success: the cheaper choice, in the peer's favour.

use super::VALUE_BYTES;
use ::bf_tree::{BfTree, Config, LeafInsertResult, LeafReadResult, ScanReturnField};
use darter_bench::BenchError;
use darter_bench::target::{Target, TargetSession};

const NAME: &str = "bf-tree";
/// Bytes of a leaf.
const LEAF_BYTES: usize = 16 << 10;
/// Bytes of the longest key.
const KEY_BYTES_MAX: usize = 256;
/// Bytes of the buffer pool for each record: several times a pair.
const BUFFER_BYTES_OF_RECORD: u64 = 256;
/// Bytes of the smallest buffer pool.
const BUFFER_BYTES_MIN: u64 = 64 << 20;

/// The tree.
pub(super) struct BfTreeTarget {
    tree: BfTree,
}

impl BfTreeTarget {
    /// An empty tree for `records` records.
    pub(super) fn new(records: u64) -> Result<Self, BenchError> {
        let buffer = records.saturating_mul(BUFFER_BYTES_OF_RECORD).max(BUFFER_BYTES_MIN);
        let buffer = buffer.checked_next_power_of_two().and_then(|bytes| usize::try_from(bytes).ok());
        let mut config = Config::new(":memory:", buffer.unwrap_or(1 << 40));
        config.leaf_page_size(LEAF_BYTES).cb_max_key_len(KEY_BYTES_MAX);
        config.read_promotion_rate(100).scan_promotion_rate(100);
        let tree = BfTree::with_config(config, None).map_err(|error| failed(format!("{error:?}")))?;
        Ok(Self { tree })
    }
}

fn failed(what: String) -> BenchError {
    BenchError::WrongAnswer { index: NAME, what }
}

impl Target for BfTreeTarget {
    type Session<'a> = BfTreeSession<'a>;

    fn name(&self) -> &'static str {
        NAME
    }

    fn session(&self) -> Result<BfTreeSession<'_>, BenchError> {
        Ok(BfTreeSession { tree: &self.tree, found: [0; VALUE_BYTES] })
    }
}

/// A borrower of the tree.
pub(super) struct BfTreeSession<'a> {
    tree: &'a BfTree,
    found: [u8; VALUE_BYTES],
}

impl BfTreeSession<'_> {
    #[inline]
    fn put(&self, key: &[u8], value: &[u8]) -> Result<bool, BenchError> {
        match self.tree.insert(key, value) {
            LeafInsertResult::Success => Ok(true),
            LeafInsertResult::InvalidKV(why) => Err(failed(why)),
        }
    }
}

impl TargetSession for BfTreeSession<'_> {
    #[inline]
    async fn read(&mut self, key: &[u8], value: &mut Vec<u8>) -> Result<bool, BenchError> {
        value.clear();
        match self.tree.read(key, &mut self.found) {
            LeafReadResult::Found(bytes) => {
                value.extend_from_slice(&self.found[..bytes as usize]);
                Ok(true)
            }
            LeafReadResult::NotFound | LeafReadResult::Deleted => Ok(false),
            LeafReadResult::InvalidKey => Err(failed(format!("a key of {} bytes is invalid", key.len()))),
        }
    }

    #[inline]
    async fn update(&mut self, key: &[u8], value: &[u8]) -> Result<bool, BenchError> {
        self.put(key, value)
    }

    #[inline]
    async fn insert(&mut self, key: &[u8], value: &[u8]) -> Result<bool, BenchError> {
        self.put(key, value)
    }

    async fn scan(&mut self, from: &[u8], limit: usize, values: &mut Vec<u8>) -> Result<usize, BenchError> {
        values.clear();
        let found = self.tree.scan_with_count(from, limit, ScanReturnField::Value);
        let mut found = found.map_err(|error| failed(format!("{error:?}")))?;
        let mut count = 0;
        while let Some((_, bytes)) = found.next(&mut self.found) {
            values.extend_from_slice(&self.found[..bytes]);
            count += 1;
        }
        Ok(count)
    }
}
