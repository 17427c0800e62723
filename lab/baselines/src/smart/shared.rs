//! A process's state of one SMART index: the addresses of its root words, the root, the cache.
//!
//! The root node and the cache's generation are read again by the first operation of each epoch.
//! The published system reads the root pointer at every miss; here it changes only by a bulk load.

use super::SmartOptions;
use super::cache::Cache;
use super::leaf::Format;
use super::quarantine::Quarantine;
use super::slot::Slot;
use crate::lock_token::LockTokens;
use darter_fabric::{Fabric, GlobalAddr};
use darter_index::Result;
use darter_pool::{AllocKind, Client, Pool};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// "SMART" and the format's version, in the kind word of a pool's root.
pub(super) const KIND: u64 = u64::from_le_bytes(*b"SMART\x01\0\0");

/// Addresses of the index's root words.
#[derive(Clone, Copy, Debug)]
pub(super) struct RootWords {
    /// The kind of index that the pool holds: word 3, as in every pool.
    pub(super) kind: GlobalAddr,
    /// The slot that points to the root node: word 8.
    pub(super) root: GlobalAddr,
    /// The layout of leaves, 1 with locks, 2 without: word 9.
    pub(super) format: GlobalAddr,
    /// Raised before memory is freed that compute nodes may cache: word 10.
    pub(super) generation: GlobalAddr,
}

impl RootWords {
    pub(super) fn of<F: Fabric>(pool: &Pool<F>) -> Self {
        Self {
            kind: pool.root_word(3),
            root: pool.root_word(8),
            format: pool.root_word(9),
            generation: pool.root_word(10),
        }
    }
}

/// An operation in progress.
pub(super) type Operation<'a, F> = crate::operation::Operation<'a, Shared, F>;

/// State of the index shared by the clients of a compute node.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) words: RootWords,
    pub(super) options: SmartOptions,
    pub(super) format: Format,
    pub(super) tokens: Arc<LockTokens>,
    pub(super) cache: Cache,
    pub(super) quarantine: Quarantine,
    root: AtomicU64,
    generation: AtomicU64,
    view_epoch: AtomicU64,
}

impl Shared {
    pub(super) fn new(
        words: RootWords,
        options: SmartOptions,
        format: Format,
        tokens: Arc<LockTokens>,
        quarantine: Quarantine,
    ) -> Self {
        Self {
            words,
            format,
            tokens,
            cache: Cache::new(options.cache_bytes),
            quarantine,
            root: AtomicU64::new(0),
            generation: AtomicU64::new(0),
            view_epoch: AtomicU64::new(0),
            options,
        }
    }

    /// Returns the root slot as last seen.
    pub(super) fn root(&self) -> Slot {
        Slot::from_word(self.root.load(Ordering::Acquire))
    }

    /// Stores the root slot.
    pub(super) fn remember_root(&self, slot: Slot) {
        self.root.store(slot.word(), Ordering::Release);
    }

    /// Ensures that root and cache belong to the caller's epoch or a later one. The caller is
    /// pinned.
    #[inline]
    pub(super) async fn view<F: Fabric>(&self, client: &mut Client<F>) -> Result<()> {
        // Epochs begin at 0, and nothing was read at first.
        if self.view_epoch.load(Ordering::Acquire) > client.epoch() {
            return Ok(());
        }
        self.refresh(client).await
    }

    #[cold]
    async fn refresh<F: Fabric>(&self, client: &mut Client<F>) -> Result<()> {
        let epoch = client.epoch();
        let [root, generation] = client.read_each([self.words.root, self.words.generation]).await?;
        self.remember_root(Slot::from_word(root));
        if self.generation.load(Ordering::Acquire) != generation {
            // In this order: until it is done, other operations of this epoch do it too.
            self.cache.clear();
            self.generation.store(generation, Ordering::Release);
        }
        self.view_epoch.fetch_max(epoch + 1, Ordering::AcqRel);
        Ok(())
    }

    /// Ignores lack of memory in follow-up work of an operation that has taken effect: the work is
    /// left to later operations, because an error would mean that nothing was changed.
    pub(super) fn unless_full(&self, done: Result<()>) -> Result<()> {
        match done {
            Err(error) if error.is_out_of_space() => {
                self.quarantine.hurry();
                Ok(())
            }
            done => done,
        }
    }
}

impl<F: Fabric> Operation<'_, F> {
    /// Sets aside an object that was removed from the tree and that compute nodes may cache.
    pub(super) fn set_aside(&mut self, addr: GlobalAddr, bytes: u64, kind: AllocKind) {
        self.shared.quarantine.add(bytes);
        self.client.unlink(addr, bytes, kind, Box::default());
    }
}
