//! Any index over any fabric as a target of the driver, so that all of them run the same operations
//! under the same counters.
//!
//! The driver calls upkeep of pool and index inline; no thread does it in the background.

use darter::engine::{OrderedIndex, Pool};
use darter::{Condition, Counters, IndexError, PoolError, PutOutcome, ScanRange, block_on};
use darter_bench::BenchError;
use darter_bench::report::Sizes;
use darter_bench::target::{SortedPairs, Target, TargetSession};
use darter_fabric::Endpoint;
use darter_fabric::Fabric;
use darter_pool::Client;
use std::ops::Bound;

/// An index in a separate pool.
pub(crate) struct IndexTarget<I, F: Fabric> {
    pub(crate) index: I,
    pub(crate) pool: Pool<F>,
    name: &'static str,
}

impl<I: OrderedIndex<F>, F: Fabric> IndexTarget<I, F> {
    /// Opens the pool's index, or creates it in an empty pool.
    pub(crate) fn open(name: &'static str, pool: Pool<F>, options: I::Options) -> Result<Self, BenchError> {
        let mut client = pool.client().map_err(from_pool)?;
        let index = block_on(I::open_or_create(&mut client, options)).map_err(from_index)?;
        drop(client);
        Ok(Self { index, pool, name })
    }

    /// Bytes in use, by a walk of the index.
    pub(crate) fn sizes(&self) -> Result<Sizes, BenchError> {
        let mut client = self.pool.client().map_err(from_pool)?;
        block_on(async {
            let stats = self.index.stats(&mut client).await.map_err(from_index)?;
            let usage = self.pool.usage(&mut client).await.map_err(from_pool)?;
            Ok(Sizes {
                keys: stats.keys,
                index: stats.index_bytes,
                kv: stats.kv_bytes,
                pool_used: usage.used_bytes(),
                cache_used: self.index.cache_used_bytes(),
            })
        })
    }
}

/// Converts an error of the pool to the library's.
pub(crate) fn from_pool(error: PoolError) -> BenchError {
    BenchError::Store(error.into())
}

/// Converts an error of the index to the library's.
pub(crate) fn from_index(error: IndexError) -> BenchError {
    BenchError::Store(error.into())
}

impl<I: OrderedIndex<F>, F: Fabric> Target for IndexTarget<I, F> {
    type Session<'a> = IndexSession<I, F>;

    fn name(&self) -> &'static str {
        self.name
    }

    fn session(&self) -> Result<IndexSession<I, F>, BenchError> {
        Ok(IndexSession { client: self.pool.client().map_err(from_pool)?, index: self.index.clone() })
    }
}

/// One task's access to an index.
pub(crate) struct IndexSession<I, F: Fabric> {
    client: Client<F>,
    index: I,
}

impl<I: OrderedIndex<F>, F: Fabric> IndexSession<I, F> {
    /// Removes a key. Returns whether it was there.
    pub(crate) async fn delete(&mut self, key: &[u8]) -> Result<bool, BenchError> {
        self.index.delete(&mut self.client, key).await.map_err(from_index)
    }

    async fn put(&mut self, key: &[u8], value: &[u8], condition: Condition<'_>) -> Result<bool, BenchError> {
        let outcome = self.index.put(&mut self.client, key, value, condition).await.map_err(from_index)?;
        Ok(outcome != PutOutcome::Refused)
    }
}

impl<I: OrderedIndex<F>, F: Fabric> TargetSession for IndexSession<I, F> {
    #[inline]
    async fn read(&mut self, key: &[u8], value: &mut Vec<u8>) -> Result<bool, BenchError> {
        let found = self.index.get(&mut self.client, key).await.map_err(from_index)?;
        Ok(found.map(|found| *value = found).is_some())
    }

    #[inline]
    async fn update(&mut self, key: &[u8], value: &[u8]) -> Result<bool, BenchError> {
        self.put(key, value, Condition::Present).await
    }

    #[inline]
    async fn insert(&mut self, key: &[u8], value: &[u8]) -> Result<bool, BenchError> {
        self.put(key, value, Condition::Absent).await
    }

    async fn scan(&mut self, from: &[u8], limit: usize, values: &mut Vec<u8>) -> Result<usize, BenchError> {
        let range = ScanRange { from: Bound::Included(from.to_vec()), to: Bound::Unbounded, reverse: false };
        let pairs = self.index.scan(&mut self.client, &range, limit).await.map_err(from_index)?;
        values.clear();
        for (_, value) in &pairs {
            values.extend_from_slice(value);
        }
        Ok(pairs.len())
    }

    async fn bulk_load(&mut self, sorted: SortedPairs<'_>) -> Result<u64, BenchError> {
        self.index.bulk_load(&mut self.client, sorted).await.map_err(from_index)
    }

    async fn maintain(&mut self) -> Result<(), BenchError> {
        self.client.pool().clone().maintain(&mut self.client).await.map_err(from_pool)?;
        self.index.maintain(&mut self.client).await.map_err(from_index)
    }

    fn counters(&self) -> Option<Counters> {
        self.client.endpoint().counters().copied()
    }
}
