//! scc's `TreeIndex`: a B+ tree whose readers take no lock.

use super::keys::PeerKey;
use super::{Value, value};
use darter_bench::BenchError;
use darter_bench::target::{SortedPairs, Target, TargetSession};
use scc::{Guard, TreeIndex};
use std::borrow::Borrow;
use std::ops::Bound;

/// The tree.
pub(super) struct TreeIndexTarget<K> {
    tree: TreeIndex<K, Value>,
}

impl<K: PeerKey> TreeIndexTarget<K> {
    /// An empty tree.
    pub(super) fn new() -> Self {
        Self { tree: TreeIndex::new() }
    }
}

impl<K: PeerKey> Target for TreeIndexTarget<K> {
    type Session<'a> = TreeIndexSession<'a, K>;

    fn name(&self) -> &'static str {
        "scc TreeIndex"
    }

    fn session(&self) -> Result<TreeIndexSession<'_, K>, BenchError> {
        Ok(TreeIndexSession(&self.tree))
    }
}

/// A borrower of the tree.
pub(super) struct TreeIndexSession<'a, K>(&'a TreeIndex<K, Value>);

impl<K: PeerKey> TargetSession for TreeIndexSession<'_, K> {
    #[inline]
    async fn read(&mut self, key: &[u8], value: &mut Vec<u8>) -> Result<bool, BenchError> {
        value.clear();
        Ok(self.0.peek_with(K::sought(key).borrow(), |_, found| value.extend_from_slice(found)).is_some())
    }

    /// An upsert: the tree has no call that only updates.
    #[inline]
    async fn update(&mut self, key: &[u8], bytes: &[u8]) -> Result<bool, BenchError> {
        self.0.upsert_sync(K::own(key), value(bytes));
        Ok(true)
    }

    #[inline]
    async fn insert(&mut self, key: &[u8], bytes: &[u8]) -> Result<bool, BenchError> {
        Ok(self.0.insert_sync(K::own(key), value(bytes)).is_ok())
    }

    async fn scan(&mut self, from: &[u8], limit: usize, values: &mut Vec<u8>) -> Result<usize, BenchError> {
        values.clear();
        let guard = Guard::new();
        let from = K::sought(from);
        let range = (Bound::Included(from.borrow()), Bound::Unbounded);
        let found = self.0.range::<K::Query, _>(range, &guard).take(limit);
        Ok(found.map(|(_, value)| values.extend_from_slice(value)).count())
    }

    async fn bulk_load(&mut self, sorted: SortedPairs<'_>) -> Result<u64, BenchError> {
        let taken = sorted.filter(|(key, bytes)| self.0.insert_sync(K::own(key), value(bytes)).is_ok());
        Ok(taken.count() as u64)
    }
}
