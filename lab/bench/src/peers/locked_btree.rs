//! `RwLock<BTreeMap>`, the obvious first choice. The lock is the standard library's, and updates
//! are in place.

use super::{Value, integer, value};
use darter_bench::BenchError;
use darter_bench::target::{SortedPairs, Target, TargetSession};
use std::collections::BTreeMap;
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

/// The map in its lock.
pub(super) struct LockedBTreeTarget {
    map: RwLock<BTreeMap<u64, Value>>,
}

impl LockedBTreeTarget {
    /// An empty map.
    pub(super) fn new() -> Self {
        Self { map: RwLock::new(BTreeMap::new()) }
    }
}

impl Target for LockedBTreeTarget {
    type Session<'a> = LockedBTreeSession<'a>;

    fn name(&self) -> &'static str {
        "RwLock<BTreeMap>"
    }

    fn session(&self) -> Result<LockedBTreeSession<'_>, BenchError> {
        Ok(LockedBTreeSession(&self.map))
    }
}

/// A borrower of the map.
pub(super) struct LockedBTreeSession<'a>(&'a RwLock<BTreeMap<u64, Value>>);

impl LockedBTreeSession<'_> {
    #[inline]
    fn shared(&self) -> RwLockReadGuard<'_, BTreeMap<u64, Value>> {
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }

    #[inline]
    fn exclusive(&self) -> RwLockWriteGuard<'_, BTreeMap<u64, Value>> {
        self.0.write().unwrap_or_else(PoisonError::into_inner)
    }
}

impl TargetSession for LockedBTreeSession<'_> {
    #[inline]
    async fn read(&mut self, key: &[u8], value: &mut Vec<u8>) -> Result<bool, BenchError> {
        let map = self.shared();
        let found = map.get(&integer(key));
        value.clear();
        if let Some(found) = found {
            value.extend_from_slice(found);
        }
        Ok(found.is_some())
    }

    #[inline]
    async fn update(&mut self, key: &[u8], bytes: &[u8]) -> Result<bool, BenchError> {
        Ok(self.exclusive().get_mut(&integer(key)).map(|slot| *slot = value(bytes)).is_some())
    }

    #[inline]
    async fn insert(&mut self, key: &[u8], bytes: &[u8]) -> Result<bool, BenchError> {
        Ok(self.exclusive().insert(integer(key), value(bytes)).is_none())
    }

    async fn scan(&mut self, from: &[u8], limit: usize, values: &mut Vec<u8>) -> Result<usize, BenchError> {
        values.clear();
        let map = self.shared();
        let found = map.range(integer(from)..).take(limit);
        Ok(found.map(|(_, value)| values.extend_from_slice(value)).count())
    }

    async fn bulk_load(&mut self, sorted: SortedPairs<'_>) -> Result<u64, BenchError> {
        let mut map = self.exclusive();
        map.extend(sorted.map(|(key, bytes)| (integer(&key), value(&bytes))));
        Ok(map.len() as u64)
    }
}
