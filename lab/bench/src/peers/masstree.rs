//! masstree: a trie of B+ trees over byte keys, whose readers take no lock.
//!
//! Configured as in its own benchmarks: values of more than 8 bytes in boxes (`MassTree15`), read
//! by reference under a guard, and mimalloc as the allocator. Its benchmarks hold one guard for many
//! operations; here every operation takes one, as with the other peers, since a guard that is held
//! keeps replaced values from being freed. In a measurement both were equally fast.
//!
//! Scans of version 0.9.5 skip keys if many keys share more than 8 bytes: a scan from
//! `c/users/by/users/by265`, which was present and was found by a read, began with
//! `c/users/users422`. All of its calls for scans behave so. Therefore scans of this peer are
//! measured with 8-byte keys only.

use super::{VALUE_BYTES, Value, value};
use ::masstree::{MAX_KEY_LENGTH, MassTree15, RangeBound};
use darter_bench::BenchError;
use darter_bench::target::{Target, TargetSession};

/// The tree.
pub(super) struct MasstreeTarget {
    tree: MassTree15<Value>,
}

impl MasstreeTarget {
    /// An empty tree.
    pub(super) fn new() -> Self {
        Self { tree: MassTree15::new() }
    }
}

impl Target for MasstreeTarget {
    type Session<'a> = MasstreeSession<'a>;

    fn name(&self) -> &'static str {
        "masstree"
    }

    fn session(&self) -> Result<MasstreeSession<'_>, BenchError> {
        Ok(MasstreeSession(&self.tree))
    }
}

/// A borrower of the tree.
pub(super) struct MasstreeSession<'a>(&'a MassTree15<Value>);

impl MasstreeSession<'_> {
    /// Stores a value. Returns whether the key was present.
    #[inline]
    fn put(&self, key: &[u8], bytes: &[u8]) -> Result<bool, BenchError> {
        if key.len() > MAX_KEY_LENGTH {
            return Err(BenchError::Usage(format!(
                "--peers: masstree takes keys of at most {MAX_KEY_LENGTH} bytes, and one has {}",
                key.len()
            )));
        }
        Ok(self.0.insert_with_guard(key, value(bytes), &self.0.guard()).is_some())
    }
}

impl TargetSession for MasstreeSession<'_> {
    #[inline]
    async fn read(&mut self, key: &[u8], value: &mut Vec<u8>) -> Result<bool, BenchError> {
        let guard = self.0.guard();
        let found = self.0.get_ref(key, &guard);
        value.clear();
        if let Some(found) = &found {
            value.extend_from_slice(&found[..]);
        }
        Ok(found.is_some())
    }

    #[inline]
    async fn update(&mut self, key: &[u8], value: &[u8]) -> Result<bool, BenchError> {
        self.put(key, value)
    }

    #[inline]
    async fn insert(&mut self, key: &[u8], value: &[u8]) -> Result<bool, BenchError> {
        Ok(!self.put(key, value)?)
    }

    async fn scan(&mut self, from: &[u8], limit: usize, values: &mut Vec<u8>) -> Result<usize, BenchError> {
        let guard = self.0.guard();
        values.clear();
        let visit = |found: ::masstree::ValuePtr<Value>| {
            values.extend_from_slice(&found[..]);
            values.len() < limit * VALUE_BYTES
        };
        self.0.scan_values(RangeBound::Included(from), RangeBound::Unbounded, visit, &guard);
        Ok(values.len() / VALUE_BYTES)
    }
}
