//! crossbeam-skiplist: a lock-free skip list.
//!
//! Its `insert` replaces the whole entry and does not report whether there was one, so inserts and
//! updates here are that one call and claim success: the cheaper choice, in the peer's favour. It
//! removes the old entry before it adds the new one, so a reader can find a key absent while it is
//! updated.

use super::keys::PeerKey;
use super::{Value, value};
use ::crossbeam_skiplist::SkipMap;
use darter_bench::BenchError;
use darter_bench::target::{SortedPairs, Target, TargetSession};
use std::borrow::Borrow;
use std::ops::Bound;

/// The name in tables.
pub(super) const NAME: &str = "crossbeam-skiplist";

/// The list.
pub(super) struct SkipListTarget<K> {
    map: SkipMap<K, Value>,
}

impl<K: PeerKey> SkipListTarget<K> {
    /// An empty list.
    pub(super) fn new() -> Self {
        Self { map: SkipMap::new() }
    }
}

impl<K: PeerKey> Target for SkipListTarget<K> {
    type Session<'a> = SkipListSession<'a, K>;

    fn name(&self) -> &'static str {
        NAME
    }

    fn session(&self) -> Result<SkipListSession<'_, K>, BenchError> {
        Ok(SkipListSession(&self.map))
    }
}

/// A borrower of the list.
pub(super) struct SkipListSession<'a, K>(&'a SkipMap<K, Value>);

impl<K: PeerKey> TargetSession for SkipListSession<'_, K> {
    #[inline]
    async fn read(&mut self, key: &[u8], value: &mut Vec<u8>) -> Result<bool, BenchError> {
        let found = self.0.get(K::sought(key).borrow());
        value.clear();
        if let Some(entry) = &found {
            value.extend_from_slice(entry.value());
        }
        Ok(found.is_some())
    }

    #[inline]
    async fn update(&mut self, key: &[u8], bytes: &[u8]) -> Result<bool, BenchError> {
        self.0.insert(K::own(key), value(bytes));
        Ok(true)
    }

    #[inline]
    async fn insert(&mut self, key: &[u8], bytes: &[u8]) -> Result<bool, BenchError> {
        self.0.insert(K::own(key), value(bytes));
        Ok(true)
    }

    async fn scan(&mut self, from: &[u8], limit: usize, values: &mut Vec<u8>) -> Result<usize, BenchError> {
        values.clear();
        let from = K::sought(from);
        let found =
            self.0.range::<K::Query, _>((Bound::Included(from.borrow()), Bound::Unbounded)).take(limit);
        Ok(found.map(|entry| values.extend_from_slice(entry.value())).count())
    }

    async fn bulk_load(&mut self, sorted: SortedPairs<'_>) -> Result<u64, BenchError> {
        for (key, bytes) in sorted {
            self.0.insert(K::own(&key), value(&bytes));
        }
        Ok(self.0.len() as u64)
    }
}
