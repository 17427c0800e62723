//! ART on disaggregated memory: the baseline that DART (section 2.2) and SMART (section 2.3) are
//! measured against.
//!
//! An adaptive radix tree whose nodes are read whole, one round trip each ([`node`]); the pointer
//! includes the type of a node and the length of a leaf. Synchronised as in ROWEX: readers never
//! lock, writers lock the nodes they change ([`locks`]), here by Sherman's hierarchical locks as in
//! SMART's section 5.1. Leaves are immutable; an update writes a new leaf and swaps the pointer by
//! one CAS, without a lock unless [`ArtOptions::locked_updates`] is set.
//!
//! [`ArtOptions::hashed`] uses the first of DART's parts, the hashed layout, with the same tree and
//! locks (DART, section 5.3).
//!
//! `lab/docs/art.md` has the formats, the arguments, and the failures that the published design
//! cannot survive. Root words: 3 the kind, 8 the root pointer, 9 the locks.

mod bulk;
mod check;
mod descend_any;
mod descent;
mod locks;
mod node;
mod publish;
mod replace;
mod scan;
mod search;
mod shared;
mod situations;
mod write;

#[cfg(feature = "checker")]
pub use situations::art_situations;

use crate::hocl::{self, Hocl, HoclOptions};
use darter_fabric::{Fabric, OpKind};
use darter_index::radix::prefix_hash::{HashKeys, HashedKey};
use darter_index::{
    CheckReport, Condition, IndexError, IndexStats, KeyValue, OrderedIndex, PutOutcome, Result, ScanRange,
};
use darter_pool::{AllocKind, Client};
use node::{HASHED, NodeType, PUBLISHED, Slot};
use shared::{KIND, RootWords, Shared};
use std::marker::PhantomData;
use std::sync::Arc;

/// How a process uses an index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ArtOptions {
    /// Nodes are hashed buckets (DART, section 3.2), of which a search reads one. Applies when the
    /// index is created.
    pub hashed: bool,
    /// The parts of the lock in use.
    pub hocl: HoclOptions,
    /// Words of a table of locks. Applies when the index is created.
    pub lock_words: u32,
    /// Updates lock the node whose pointer they swap, as in ROWEX, though the CAS needs no lock
    /// (DART, Table 1).
    pub locked_updates: bool,
    /// For measurements only: writers take no locks, and an update that lost a race is not retried,
    /// to measure the cost of locks (DART, Table 1). Two clients that write at the same time then
    /// lose writes.
    pub without_locks: bool,
}

impl Default for ArtOptions {
    /// The published layout, with Sherman's locks.
    fn default() -> Self {
        Self {
            hashed: false,
            hocl: HoclOptions::default(),
            lock_words: hocl::TABLE_WORDS as u32,
            locked_updates: false,
            without_locks: false,
        }
    }
}

/// An ART in a pool. Clones are handles in one compute node: they share locks and the root pointer.
#[derive(Debug)]
pub struct Art<F: Fabric> {
    shared: Arc<Shared>,
    fabric: PhantomData<fn() -> F>,
}

impl<F: Fabric> Clone for Art<F> {
    fn clone(&self) -> Self {
        Self { shared: self.shared.clone(), fabric: PhantomData }
    }
}

impl<F: Fabric> OrderedIndex<F> for Art<F> {
    const NAME: &'static str = "art";

    type Options = ArtOptions;

    async fn open(client: &mut Client<F>, options: ArtOptions) -> Result<Self> {
        let mut client = client.pin(OpKind::Maintain).await?;
        let words = RootWords::of(client.pool());
        let keys = HashKeys::new(client.pool().secret());
        let [kind, root, locks] = client.read_each([words.kind, words.root, words.locks]).await?;
        if kind != KIND {
            return Err(IndexError::NoIndex { expected: "art", found: kind });
        }
        let descriptor = darter_fabric::GlobalAddr::from_bits(locks);
        let hocl = Hocl::open(&mut client, descriptor, options.hocl).await?;
        let root = Slot::from_word(root);
        let layout = match root.content() {
            node::Content::Node { ty, .. } => NodeType::layout(ty),
            _ => return Err(IndexError::corrupt(words.root, "the root word names no node")),
        };
        let shared = Shared::new(keys, words, (root, client.epoch()), layout, hocl, options);
        Ok(Self { shared: Arc::new(shared), fabric: PhantomData })
    }

    /// Creates an empty root and the locks' descriptor. If several clients create them, one wins
    /// each word; the kind word comes last.
    async fn create(client: &mut Client<F>, options: ArtOptions) -> Result<Self> {
        {
            let mut client = client.pin(OpKind::Maintain).await?;
            let words = RootWords::of(client.pool());
            let keys = HashKeys::new(client.pool().secret());
            let descriptor = Hocl::create(&mut client, options.lock_words.into()).await?;
            let ty = if options.hashed { HASHED[0] } else { PUBLISHED[0] };
            let root = match client.alloc(0, ty.bytes(), AllocKind::Inner).await {
                Ok(root) => root,
                Err(error) => {
                    Hocl::free_unpublished(&mut client, descriptor);
                    return Err(error.into());
                }
            };
            let image = node::image(ty, node::identity_of(&mut HashedKey::new(keys, &[]), 0), &[]);
            client.post(|batch| batch.write(root, &image)).await?;
            let mut batch = client.batch();
            let locks_cas = batch.cas(words.locks, 0, descriptor.bits());
            let root_cas = batch.cas(words.root, 0, Slot::node(0, ty, 0, root).word());
            batch.fence().cas(words.kind, 0, KIND);
            let done = client.submit(batch).await?;
            let (locks_won, root_won) = (done.swapped(locks_cas), done.swapped(root_cas));
            client.recycle(done);
            if !root_won {
                client.free_unpublished(root, ty.bytes(), AllocKind::Inner);
            }
            if !locks_won {
                Hocl::free_unpublished(&mut client, descriptor);
            }
        }
        let index = Self::open(client, options).await?;
        if !options.without_locks {
            index.shared.hocl.make_tables(client).await?;
        }
        Ok(index)
    }

    async fn get(&self, client: &mut Client<F>, key: &[u8]) -> Result<Option<Vec<u8>>> {
        self.get_value(client, key).await
    }

    async fn put(
        &self,
        client: &mut Client<F>,
        key: &[u8],
        value: &[u8],
        condition: Condition<'_>,
    ) -> Result<PutOutcome> {
        self.put_value(client, key, value, condition).await
    }

    async fn delete_when(
        &self,
        client: &mut Client<F>,
        key: &[u8],
        condition: Condition<'_>,
    ) -> Result<bool> {
        self.delete_key(client, key, condition).await
    }

    async fn multi_get_chunk(&self, client: &mut Client<F>, keys: &[&[u8]]) -> Result<Vec<Option<Vec<u8>>>> {
        self.values_of(client, keys).await
    }

    async fn scan(&self, client: &mut Client<F>, range: &ScanRange, limit: usize) -> Result<Vec<KeyValue>> {
        self.scan_chunk(client, range, limit).await
    }

    async fn bulk_load<I>(&self, client: &mut Client<F>, sorted: I) -> Result<u64>
    where
        I: Iterator<Item = KeyValue> + Send,
    {
        self.load_sorted(client, sorted).await
    }

    async fn check(&self, client: &mut Client<F>) -> Result<CheckReport> {
        self.check_all(client).await
    }

    async fn stats(&self, client: &mut Client<F>) -> Result<IndexStats> {
        self.collect_stats(client).await
    }
}
