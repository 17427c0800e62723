//! The quarantine of objects removed from the tree, before their memory is reused.
//!
//! Compute nodes cache addresses for a long time ([`super::cache`]), and a single address cannot be
//! removed from all caches. So objects that compute nodes can cache, inner nodes and leaves that
//! are written in place, are set aside:
//!
//! 1. An object passes the pool's first grace period: no operation that found it in the tree is
//!    left.
//! 2. When enough objects are set aside, or the pool is full, the *generation* in the root words is
//!    raised. A process reads that word in the first operation of each epoch, and clears its cache
//!    if the word has changed.
//! 3. The object passes the second grace period: all operations belong to later epochs, so to
//!    processes that have cleared their caches.
//!
//! An entry made by an operation that began before a cache was cleared, and inserted after, names
//! an object that was linked while that operation was pinned; so it was not set aside when the
//! generation was raised.
//!
//! The sweep frees objects that dead clients had unlinked. It raises the generation too and waits
//! until all members pass its epoch.

use super::Smart;
use darter_fabric::{Fabric, OpKind};
use darter_index::Result;
use darter_pool::{Client, Unlinked};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// One part in this many of a pool's bytes may be set aside before caches are cleared.
const POOL_SHARE: u64 = 64;
/// Upper limit of that amount, in bytes.
const BYTES_MAX: u64 = 64 << 20;
/// Rounds of upkeep during which a pool counts as full after it was full.
const ROUNDS_FULL: u32 = 256;

/// The amount that a process has set aside.
#[derive(Debug)]
pub(super) struct Quarantine {
    bytes: AtomicU64,
    bytes_max: u64,
    /// Remaining rounds without waiting for more objects.
    rounds_full: AtomicU32,
}

impl Quarantine {
    pub(super) fn new<F: Fabric>(client: &Client<F>, bytes_max: Option<u64>) -> Self {
        let fabric = client.pool().fabric();
        let pool_bytes: u64 = (0..client.pool().nodes()).map(|node| fabric.node_bytes(node)).sum();
        let bytes_max = bytes_max.unwrap_or((pool_bytes / POOL_SHARE).min(BYTES_MAX));
        Self { bytes: AtomicU64::new(0), bytes_max, rounds_full: AtomicU32::new(0) }
    }

    /// Frees objects soon, because the pool is full.
    pub(super) fn hurry(&self) {
        self.rounds_full.store(ROUNDS_FULL, Ordering::Relaxed);
    }

    /// Counts an object that is set aside.
    pub(super) fn add(&self, bytes: u64) {
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    fn is_due(&self) -> bool {
        let rounds = &self.rounds_full;
        let is_full = rounds.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1));
        is_full.is_ok() || self.bytes.load(Ordering::Relaxed) >= self.bytes_max
    }
}

impl<F: Fabric> Smart<F> {
    /// Frees the objects that were set aside, if that is due.
    pub(super) async fn free_aside(&self, client: &mut Client<F>) -> Result<()> {
        let quarantine = &self.shared.quarantine;
        if !quarantine.is_due() {
            return Ok(());
        }
        let mut graced = client.take_graced();
        if graced.is_empty() {
            return Ok(());
        }
        let freed = self.free_taken(client, &mut graced).await;
        for object in graced {
            client.put_back(object);
        }
        freed
    }

    /// Removes from `graced` the objects that it has freed.
    async fn free_taken(&self, client: &mut Client<F>, graced: &mut Vec<Unlinked>) -> Result<()> {
        let mut client = client.pin(OpKind::Maintain).await?;
        self.raise_generation(&mut client).await?;
        let left = &self.shared.quarantine.bytes;
        for object in graced.drain(..) {
            let bytes = object.bytes.min(left.load(Ordering::Relaxed));
            left.fetch_sub(bytes, Ordering::Relaxed);
            client.retire(object.addr, object.bytes, object.kind);
        }
        Ok(())
    }

    /// Makes every compute node clear its cache, by its first operation of the next epoch.
    pub(super) async fn raise_generation(&self, client: &mut Client<F>) -> Result<()> {
        let mut client = client.pin(OpKind::Maintain).await?;
        client.post(|batch| _ = batch.faa(self.shared.words.generation, 1)).await?;
        Ok(())
    }
}
