//! The radix trees for persistent memory of WORT (FAST 2017): [`Design::Wort`], [`Design::Woart`]
//! and [`Design::ArtCow`].
//!
//! One word of 8 bytes makes a change visible and durable. The three trees differ in their nodes
//! ([`node`]) and in whether a node is changed in place or in a copy; the rest is one engine.
//! Readers never wait. Writers take turns with one lock of the tree (the paper's trees have one
//! thread), which is taken over if its holder dies.
//!
//! `lab/docs/wort.md` has the formats, the arguments, and the rules for counting. Root words: 3 the
//! kind, 8 the root's slot, 9 the lock's descriptor.

mod bulk;
mod check;
mod delete;
mod descent;
mod digits;
mod header;
#[cfg(test)]
mod interleavings;
mod lines;
mod node;
mod publish;
mod scan;
mod search;
mod shared;
mod situations;
mod split;
mod write;

pub use lines::{Line, Touch};
pub use shared::Persistence;
#[cfg(feature = "checker")]
pub use situations::wort_situations;

use crate::hocl::{Hocl, HoclOptions};
use darter_fabric::{Fabric, GlobalAddr, OpKind};
use darter_index::{
    CheckReport, Condition, IndexError, IndexStats, KeyValue, OrderedIndex, PutOutcome, Result, ScanRange,
};
use darter_pool::Client;
use digits::Digits;
use node::{ADAPTIVE, Format, OF_WORT};
use shared::{RootWords, Shared};
use std::marker::PhantomData;
use std::sync::Arc;

/// The three trees.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Design {
    /// 16 slots per node, half a byte per level.
    #[default]
    Wort,
    /// Nodes of four sizes, a byte per level, changed in place.
    Woart,
    /// The same nodes; the small ones gain children in copies.
    ArtCow,
}

impl Design {
    /// Returns the name in commands and errors.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Wort => "wort",
            Self::Woart => "woart",
            Self::ArtCow => "artcow",
        }
    }

    /// Returns the kind word of a pool's root: the name, and the format's version.
    const fn kind(self) -> u64 {
        u64::from_le_bytes(match self {
            Self::Wort => *b"WORT\x01\0\0\0",
            Self::Woart => *b"WOART\x01\0\0",
            Self::ArtCow => *b"ARTCOW\x01\0",
        })
    }

    const fn format(self) -> Format {
        match self {
            Self::Wort => Format { digits: Digits::Nibbles, types: OF_WORT, copies: false },
            Self::Woart => Format { digits: Digits::Bytes, types: ADAPTIVE, copies: false },
            Self::ArtCow => Format { digits: Digits::Bytes, types: ADAPTIVE, copies: true },
        }
    }
}

/// How a process uses an index.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WortOptions {
    /// The tree.
    pub design: Design,
    /// The parts of the lock in use.
    pub hocl: HoclOptions,
}

impl WortOptions {
    /// Returns the options of a tree of this design.
    pub fn of(design: Design) -> Self {
        Self { design, ..Self::default() }
    }
}

/// A WORT, WOART or ART+CoW in a pool. Clones are handles in one compute node: they share the
/// lock's queue, the root's slot as last seen, and the counts.
#[derive(Debug)]
pub struct Wort<F: Fabric> {
    shared: Arc<Shared>,
    fabric: PhantomData<fn() -> F>,
}

impl<F: Fabric> Clone for Wort<F> {
    fn clone(&self) -> Self {
        Self { shared: self.shared.clone(), fabric: PhantomData }
    }
}

impl<F: Fabric> Wort<F> {
    /// Returns the flushes that the writers of this handle and its clones needed since it was
    /// opened, without bulk loads.
    pub fn persistence(&self) -> Persistence {
        self.shared.persistence()
    }

    /// Starts or stops recording the cache lines that operations of this handle and its clones
    /// touch, except bulk loads, the check and the statistics. Drops the record.
    ///
    /// The record grows with every operation until [`Wort::take_touches`].
    pub fn record_touches(&self, on: bool) {
        self.shared.touched.switch(on);
    }

    /// Returns the touches recorded since the last call, in order.
    pub fn take_touches(&self) -> Vec<Touch> {
        self.shared.touched.take()
    }
}

impl<F: Fabric> OrderedIndex<F> for Wort<F> {
    const NAME: &'static str = "wort";

    type Options = WortOptions;

    fn name(&self) -> &'static str {
        self.shared.options.design.name()
    }

    async fn open(client: &mut Client<F>, options: WortOptions) -> Result<Self> {
        let mut client = client.pin(OpKind::Maintain).await?;
        let words = RootWords::of(client.pool());
        let [kind, locks] = client.read_each([words.kind, words.locks]).await?;
        if kind != options.design.kind() {
            return Err(IndexError::NoIndex { expected: options.design.name(), found: kind });
        }
        let hocl = Hocl::open(&mut client, GlobalAddr::from_bits(locks), options.hocl).await?;
        let shared = Arc::new(Shared::new(words, hocl, options));
        Ok(Self { shared, fabric: PhantomData })
    }

    /// Creates the lock's descriptor; the kind word comes last. An empty tree is a root word of 0.
    async fn create(client: &mut Client<F>, options: WortOptions) -> Result<Self> {
        {
            let mut client = client.pin(OpKind::Maintain).await?;
            let words = RootWords::of(client.pool());
            let descriptor = Hocl::create(&mut client, 1).await?;
            let mut batch = client.batch();
            let locks_cas = batch.cas(words.locks, 0, descriptor.bits());
            batch.fence().cas(words.kind, 0, options.design.kind());
            let done = client.submit(batch).await?;
            let won = done.swapped(locks_cas);
            client.recycle(done);
            if !won {
                Hocl::free_unpublished(&mut client, descriptor);
            }
        }
        let index = Self::open(client, options).await?;
        index.shared.hocl.make_tables(client).await?;
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
        self.walk(client, true).await
    }

    /// Counts everything without reading leaves.
    async fn stats(&self, client: &mut Client<F>) -> Result<IndexStats> {
        Ok(self.walk(client, false).await?.stats)
    }
}
