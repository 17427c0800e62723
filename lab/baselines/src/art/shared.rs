//! A process's state of one ART: the addresses of its root words, the layout of its nodes, its
//! locks, and the root pointer as last seen.
//!
//! The cached root pointer is a hint, so that it costs no round trip. It is read again by the first
//! operation pinned in an epoch later than the one it was read in, and the node that it names is
//! checked: a search that finds another node, or a sealed root, reads the root word.
//!
//! It is stored together with the epoch at which its reader was pinned. An operation pinned at that
//! epoch or before may use it: the node was unlinked, if at all, after that pin, so it is freed two
//! epochs later at the earliest. A reader that was pinned earlier may store late a node that is no
//! longer kept for operations of the current epoch. So a root read at an earlier epoch never
//! replaces one read at a later epoch.

use super::ArtOptions;
use super::node::{Header, Layout, NodeType, Slot, identity_of};
use crate::hocl::Hocl;
use crate::sync::lock;
use darter_fabric::{Fabric, GlobalAddr};
use darter_index::radix::prefix_hash::{HashKeys, HashedKey};
use darter_index::radix::slot::Content;
use darter_index::{IndexError, Result};
use darter_pool::{Client, Pool};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

/// "ART" and the format's version, in the kind word of a pool's root.
pub(super) const KIND: u64 = u64::from_le_bytes(*b"ART\x02\0\0\0\0");

/// Addresses of the index's root words.
#[derive(Clone, Copy, Debug)]
pub(super) struct RootWords {
    /// The kind of index that the pool holds.
    pub(super) kind: GlobalAddr,
    /// The slot that points to the root node.
    pub(super) root: GlobalAddr,
    /// The locks' descriptor.
    pub(super) locks: GlobalAddr,
}

impl RootWords {
    pub(super) fn of<F: Fabric>(pool: &Pool<F>) -> Self {
        Self { kind: pool.root_word(3), root: pool.root_word(8), locks: pool.root_word(9) }
    }
}

/// An operation in progress.
pub(super) type Operation<'a, F> = crate::operation::Operation<'a, Shared, F>;

/// State of the index shared by the clients of a compute node.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) keys: HashKeys,
    pub(super) words: RootWords,
    pub(super) layout: Layout,
    pub(super) hocl: Hocl,
    pub(super) options: ArtOptions,
    /// The root pointer as last seen: of `root_epoch`, or of a later epoch that is not stored yet.
    root: AtomicU64,
    root_epoch: AtomicU64,
    /// Held while these two change.
    remembering: Mutex<()>,
    /// The identity of roots: it cannot be forged without the pool's secret.
    root_identity: u64,
}

impl Shared {
    pub(super) fn new(
        keys: HashKeys,
        words: RootWords,
        root: (Slot, u64),
        layout: Layout,
        hocl: Hocl,
        options: ArtOptions,
    ) -> Self {
        let (root, epoch) = root;
        let (root, root_epoch) = (AtomicU64::new(root.word()), AtomicU64::new(epoch));
        let root_identity = identity_of(&mut HashedKey::new(keys, &[]), 0);
        let remembering = Mutex::default();
        Self { keys, words, layout, hocl, options, root, root_epoch, remembering, root_identity }
    }

    /// Returns the root pointer as last seen, for operations that have called [`Shared::refresh`].
    pub(super) fn root(&self) -> Slot {
        Slot::from_word(self.root.load(Ordering::Acquire))
    }

    /// Stores the root pointer, which an operation pinned at `epoch` has read or written.
    pub(super) fn remember_root(&self, slot: Slot, epoch: u64) {
        let _remembering = lock(&self.remembering);
        if epoch >= self.root_epoch.load(Ordering::Relaxed) {
            // In this order: a thread that reads the epoch reads a root of that epoch or a later
            // one.
            self.root.store(slot.word(), Ordering::Release);
            self.root_epoch.store(epoch, Ordering::Release);
        }
    }

    /// Returns whether the node with this header was the root when the header was read.
    pub(super) fn is_root(&self, header: Header) -> bool {
        !header.is_sealed() && header.identity() == self.root_identity
    }

    /// Ensures that the cached root pointer belongs to the caller's epoch or a later one. The
    /// caller is pinned.
    #[inline]
    pub(super) async fn refresh<F: Fabric>(&self, client: &mut Client<F>) -> Result<()> {
        if self.root_epoch.load(Ordering::Acquire) < client.epoch() {
            self.read_root(client).await?;
        }
        Ok(())
    }

    /// Reads the root word. The caller is pinned.
    ///
    /// # Errors
    /// Errors of the fabric, and [`IndexError::Corrupt`].
    #[cold]
    pub(super) async fn read_root<F: Fabric>(&self, client: &mut Client<F>) -> Result<Slot> {
        let [word] = client.read_words(self.words.root).await?;
        let slot = Slot::from_word(word);
        self.node_of_root(slot)?;
        self.remember_root(slot, client.epoch());
        Ok(slot)
    }

    /// Returns the node that a root pointer names.
    ///
    /// # Errors
    /// [`IndexError::Corrupt`] if it names none.
    pub(super) fn node_of_root(&self, slot: Slot) -> Result<(GlobalAddr, NodeType)> {
        match slot.content() {
            Content::Node { addr, ty, .. } => Ok((addr, ty)),
            _ => Err(IndexError::corrupt(self.words.root, "the root word names no node")),
        }
    }
}
