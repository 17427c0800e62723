//! Darter's own store over one of its indexes, as a target of the driver.
//!
//! There is no upkeep thread and no automatic adjustment. The driver calls upkeep inline, so that
//! the counts depend only on the operations.

use crate::BenchError;
use crate::args::RunArgs;
use crate::target::{SortedPairs, Target, TargetSession};
use darter::engine::{Engine, KeySpace, Worker};
use darter::{Condition, Counters, IndexKind, PoolUrl, PutOutcome, ScanRange, Store};
use darter_fabric::TcpOptions;
use std::ops::Bound;
use std::pin::pin;

/// A fixed secret: keys have the same positions in hash tables in every run, so all counts are
/// repeatable.
pub const SECRET: [u64; 4] =
    [0x6a09_e667_f3bc_c908, 0xbb67_ae85_84ca_a73b, 0x3c6e_f372_fe94_f82b, 0xa54f_f53a_5f1d_36f1];

/// A store under test.
#[derive(Debug)]
pub struct StoreTarget {
    /// The store.
    pub store: Store,
    name: &'static str,
}

impl StoreTarget {
    /// Opens the pool with its contents. `create` creates a pool on memory nodes that hold none.
    ///
    /// # Errors
    /// Fails as [`darter::StoreOptions::open`] does.
    pub fn open(
        kind: IndexKind,
        pool: &PoolUrl,
        args: &RunArgs,
        tcp: &TcpOptions,
        create: bool,
    ) -> Result<Self, BenchError> {
        let options = Store::options().cache_bytes(args.cache.0).direct(!args.verbs).secret(SECRET);
        let options = options.auto_adjust(false).maintenance(false).tcp(tcp.clone()).index(kind);
        // Otherwise as the kind of pool suggests.
        let options = if create { options.create(true) } else { options };
        Ok(Self { store: options.open(pool)?, name: kind.name() })
    }
}

impl Target for StoreTarget {
    type Session<'a> = StoreSession;

    fn name(&self) -> &'static str {
        self.name
    }

    fn session(&self) -> Result<StoreSession, BenchError> {
        Ok(StoreSession { session: self.store.worker_in(KeySpace::Program)? })
    }
}

/// A session of the store.
#[derive(Debug)]
pub struct StoreSession {
    session: Worker,
}

impl StoreSession {
    /// Removes a key. Returns whether it was there.
    ///
    /// # Errors
    /// Fails if the store fails.
    pub async fn delete(&mut self, key: &[u8]) -> Result<bool, BenchError> {
        Ok(self.session.discard(key).await?)
    }
}

impl TargetSession for StoreSession {
    #[inline]
    async fn read(&mut self, key: &[u8], value: &mut Vec<u8>) -> Result<bool, BenchError> {
        let found = self.session.get_with(key, |found| {
            value.clear();
            value.extend_from_slice(found);
        });
        let found = pin!(found).await?;
        Ok(found.is_some())
    }

    #[inline]
    async fn update(&mut self, key: &[u8], value: &[u8]) -> Result<bool, BenchError> {
        Ok(pin!(self.session.put_if(key, value, Condition::Present)).await? == PutOutcome::Replaced)
    }

    #[inline]
    async fn insert(&mut self, key: &[u8], value: &[u8]) -> Result<bool, BenchError> {
        Ok(pin!(self.session.try_insert(key, value)).await?)
    }

    async fn scan(&mut self, from: &[u8], limit: usize, values: &mut Vec<u8>) -> Result<usize, BenchError> {
        let range = ScanRange { from: Bound::Included(from.to_vec()), to: Bound::Unbounded, reverse: false };
        values.clear();
        Ok(pin!(self.session.scan_with(&range, limit, |_, value| values.extend_from_slice(value))).await?)
    }

    async fn bulk_load(&mut self, sorted: SortedPairs<'_>) -> Result<u64, BenchError> {
        Ok(self.session.bulk_load(sorted).await?)
    }

    async fn maintain(&mut self) -> Result<(), BenchError> {
        Ok(self.session.maintain().await?)
    }

    fn counters(&self) -> Option<Counters> {
        Some(self.session.counters())
    }
}
