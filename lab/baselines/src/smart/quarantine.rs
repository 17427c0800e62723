//! What happens to what was taken out of the tree before its memory is reused.
//!
//! Compute nodes remember addresses for long ([`super::cache`]), and nobody can take one back from
//! all of them. So what compute nodes can remember, inner nodes and leaves that are written in
//! place, is set aside:
//!
//! 1. It passes the pool's first grace: no operation has it from the tree any more.
//! 2. When enough has come together, or the pool is full, the *generation* in the root words is
//!    raised. A process reads that word in the first operation of each epoch, and forgets its cache
//!    when it has changed.
//! 3. It passes the second grace: all operations are of later epochs, so of processes that have
//!    forgotten it.
//!
//! An entry made by an operation that began before a cache was cleared, and put in after, names
//! what was linked while that operation was pinned; so it was not set aside when the generation was
//! raised.
//!
//! What dead clients had unlinked is freed by the sweep, which raises the generation too and waits
//! for all to pass its epoch.

use super::Smart;
use darter_fabric::{Fabric, OpKind};
use darter_index::Result;
use darter_pool::{Client, Unlinked};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Of a pool's bytes, one in this many may be set aside before caches are cleared for them.
const POOL_SHARE: u64 = 64;
/// But never more.
const BYTES_MAX: u64 = 64 << 20;
/// Rounds of upkeep for which a pool counts as full after it was.
const ROUNDS_FULL: u32 = 256;

/// How much a process has set aside.
#[derive(Debug)]
pub(super) struct Quarantine {
    bytes: AtomicU64,
    bytes_max: u64,
    /// Rounds for which nothing is left to wait.
    rounds_full: AtomicU32,
}

impl Quarantine {
    pub(super) fn new<F: Fabric>(client: &Client<F>, bytes_max: Option<u64>) -> Self {
        let fabric = client.pool().fabric();
        let pool_bytes: u64 = (0..client.pool().nodes()).map(|node| fabric.node_bytes(node)).sum();
        let bytes_max = bytes_max.unwrap_or((pool_bytes / POOL_SHARE).min(BYTES_MAX));
        Self { bytes: AtomicU64::new(0), bytes_max, rounds_full: AtomicU32::new(0) }
    }

    /// The pool is full: what is set aside is wanted.
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
    /// Frees what has been set aside, when that is due.
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

    /// Takes out of `graced` what it has freed.
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

    /// Makes every compute node forget what it remembers, by its first operation of the next epoch.
    pub(super) async fn raise_generation(&self, client: &mut Client<F>) -> Result<()> {
        let mut client = client.pin(OpKind::Maintain).await?;
        client.post(|batch| _ = batch.faa(self.shared.words.generation, 1)).await?;
        Ok(())
    }
}
