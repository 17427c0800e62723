//! `RwLock<BTreeMap>`, the obvious first choice. The lock is the standard library's, and updates
//! are in place.

use super::keys::PeerKey;
use super::{Value, value};
use darter_bench::BenchError;
use darter_bench::target::{SortedPairs, Target, TargetSession};
use std::borrow::Borrow;
use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

/// The map in its lock.
pub(super) struct LockedBTreeTarget<K> {
    map: RwLock<BTreeMap<K, Value>>,
}

impl<K: PeerKey> LockedBTreeTarget<K> {
    /// An empty map.
    pub(super) fn new() -> Self {
        Self { map: RwLock::new(BTreeMap::new()) }
    }
}

impl<K: PeerKey> Target for LockedBTreeTarget<K> {
    type Session<'a> = LockedBTreeSession<'a, K>;

    fn name(&self) -> &'static str {
        "RwLock<BTreeMap>"
    }

    fn session(&self) -> Result<LockedBTreeSession<'_, K>, BenchError> {
        Ok(LockedBTreeSession(&self.map))
    }
}

/// A borrower of the map.
pub(super) struct LockedBTreeSession<'a, K>(&'a RwLock<BTreeMap<K, Value>>);

impl<K: PeerKey> LockedBTreeSession<'_, K> {
    #[inline]
    fn shared(&self) -> RwLockReadGuard<'_, BTreeMap<K, Value>> {
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }

    #[inline]
    fn exclusive(&self) -> RwLockWriteGuard<'_, BTreeMap<K, Value>> {
        self.0.write().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<K: PeerKey> TargetSession for LockedBTreeSession<'_, K> {
    #[inline]
    async fn read(&mut self, key: &[u8], value: &mut Vec<u8>) -> Result<bool, BenchError> {
        let map = self.shared();
        let found = map.get(K::sought(key).borrow());
        value.clear();
        if let Some(found) = found {
            value.extend_from_slice(found);
        }
        Ok(found.is_some())
    }

    #[inline]
    async fn update(&mut self, key: &[u8], bytes: &[u8]) -> Result<bool, BenchError> {
        Ok(self.exclusive().get_mut(K::sought(key).borrow()).map(|slot| *slot = value(bytes)).is_some())
    }

    #[inline]
    async fn insert(&mut self, key: &[u8], bytes: &[u8]) -> Result<bool, BenchError> {
        Ok(self.exclusive().insert(K::own(key), value(bytes)).is_none())
    }

    async fn scan(&mut self, from: &[u8], limit: usize, values: &mut Vec<u8>) -> Result<usize, BenchError> {
        values.clear();
        let map = self.shared();
        let from = K::sought(from);
        let found = map.range::<K::Query, _>((Bound::Included(from.borrow()), Bound::Unbounded)).take(limit);
        Ok(found.map(|(_, value)| values.extend_from_slice(value)).count())
    }

    async fn bulk_load(&mut self, sorted: SortedPairs<'_>) -> Result<u64, BenchError> {
        let mut map = self.exclusive();
        map.extend(sorted.map(|(key, bytes)| (K::own(&key), value(&bytes))));
        Ok(map.len() as u64)
    }
}
