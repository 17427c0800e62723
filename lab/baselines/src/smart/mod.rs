//! SMART: an adaptive radix tree for disaggregated memory (OSDI 2023), with a switch for each of
//! its techniques.
//!
//! Inner nodes are homogeneous and lock-free ([`node`], [`slot`], [`write`], [`split`],
//! [`collapse`]). Leaves are written in place under a lock that they contain ([`in_place`]), or
//! replaced. Clients of a compute node share reads and writes of one key ([`rdwc`]) and a cache of
//! inner nodes ([`cache`]), whose entries are verified by the objects that they lead to
//! ([`descent`]).
//!
//! Root words: 3 the kind, 8 the slot of the root node, 9 the format of leaves, 10 the generation
//! of caches.
//!
//! Where the paper is silent or the public code wrong (inserts during a node's growth, locks of
//! dead clients, torn leaves, deletes, keys of any bytes, memory), `lab/docs/smart.md` states the
//! problem and justifies the solution used here.

mod bulk;
mod cache;
mod check;
mod collapse;
mod descent;
mod in_place;
#[cfg(test)]
mod interleavings;
mod leaf;
mod node;
mod node_type;
mod quarantine;
mod rdwc;
mod scan;
mod search;
mod shared;
mod slot;
mod split;
mod write;

use crate::lock_token::LockTokens;
use darter_fabric::{Fabric, GlobalAddr, OpKind};
use darter_index::check_key;
use darter_index::{
    CheckReport, Condition, IndexError, IndexStats, KeyValue, OrderedIndex, PutOutcome, Result, ScanRange,
};
use darter_pool::{AllocKind, Client, ReachableSet};
use leaf::Format;
use node::{Header, NODE_BYTES, NodeType};
use quarantine::Quarantine;
use rdwc::{Answer, Kind, Role, Windows};
use shared::{KIND, RootWords, Shared};
use slot::Slot;
use std::marker::PhantomData;
use std::sync::Arc;

/// The techniques of SMART in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "each technique has a switch")]
pub struct SmartOptions {
    /// Bytes of inner nodes that a compute node caches (section 4.3); 0 for no cache.
    pub cache_bytes: u64,
    /// Leaves are written in place, under locks (section 4.1); otherwise out of place, without any
    /// lock in the index. Applies when the index is created.
    pub in_place: bool,
    /// A lock is released in the round trip of the WRITE that it protects (section 4.1.1), not in a
    /// separate one.
    pub rear_lock: bool,
    /// Concurrent reads of one key by clients of a compute node share one READ (section 4.2).
    pub read_delegation: bool,
    /// Concurrent writes of one key by clients of a compute node share one WRITE (section 4.2).
    pub write_combining: bool,
    /// Bytes of objects that may be set aside, because caches may name them, before all caches are
    /// cleared and the objects freed; by default a 64th of the pool's.
    pub quarantine_bytes: Option<u64>,
    /// Reverse pointers are kept up to date and compared (section 4.3). Without them an outdated
    /// entry is noticed only if it does not lead to the key.
    pub reverse_check: bool,
}

impl Default for SmartOptions {
    /// All techniques, with a cache of 1 MiB.
    fn default() -> Self {
        Self {
            cache_bytes: 1 << 20,
            in_place: true,
            rear_lock: true,
            read_delegation: true,
            write_combining: true,
            quarantine_bytes: None,
            reverse_check: true,
        }
    }
}

impl SmartOptions {
    /// Returns options without locks: the "first lock-free ART design" of section 4.5.
    pub fn lock_free() -> Self {
        Self { in_place: false, ..Self::default() }
    }
}

/// A SMART index in a pool. Clones share one cache, and their clients share reads and writes.
#[derive(Debug)]
pub struct Smart<F: Fabric> {
    shared: Arc<Shared>,
    windows: Arc<Windows>,
    fabric: PhantomData<fn() -> F>,
}

impl<F: Fabric> Clone for Smart<F> {
    fn clone(&self) -> Self {
        Self { shared: self.shared.clone(), windows: self.windows.clone(), fabric: PhantomData }
    }
}

impl<F: Fabric> Smart<F> {
    /// Reads a key, or waits for another client of this compute node to read it.
    async fn read(&self, client: &mut Client<F>, key: &[u8]) -> Result<Option<Vec<u8>>> {
        check_key(key)?;
        if !self.shared.options.read_delegation {
            return self.search(client, key).await;
        }
        match self.windows.enter(key, Kind::Read).await {
            Role::Lead(lead) => {
                let value = self.search(client, key).await?;
                lead.has_read(value.as_deref());
                Ok(value)
            }
            Role::Served(answer) => {
                // It still counts as an operation.
                drop(client.pin(OpKind::Get).await?);
                match answer {
                    Answer::Value(value) => Ok(value.map(|value| value.to_vec())),
                    Answer::Outcome(_) => unreachable!("a read is served with a value"),
                }
            }
        }
    }

    /// Writes a key, or waits for another client of this compute node to write it.
    async fn write(
        &self,
        client: &mut Client<F>,
        key: &[u8],
        value: &[u8],
        condition: Condition<'_>,
    ) -> Result<PutOutcome> {
        let kind = Kind::of(condition).filter(|_| self.shared.options.write_combining);
        let Some(kind) = kind else { return self.put_value(client, key, value, condition, None).await };
        check_key(key)?;
        match self.windows.enter(key, kind).await {
            Role::Lead(lead) => {
                let outcome = self.put_value(client, key, value, condition, Some(&lead)).await?;
                Ok(lead.has_written(value, outcome))
            }
            Role::Served(answer) => {
                let kind = if kind == Kind::Upsert { OpKind::Insert } else { OpKind::Update };
                drop(client.pin(kind).await?);
                match answer {
                    Answer::Outcome(outcome) => Ok(outcome),
                    Answer::Value(_) => unreachable!("a write is served with an outcome"),
                }
            }
        }
    }
}

impl<F: Fabric> OrderedIndex<F> for Smart<F> {
    const NAME: &'static str = "smart";

    type Options = SmartOptions;

    async fn open(client: &mut Client<F>, options: SmartOptions) -> Result<Self> {
        let mut client = client.pin(OpKind::Maintain).await?;
        let words = RootWords::of(client.pool());
        let [kind, format] = client.read_each([words.kind, words.format]).await?;
        if kind != KIND {
            return Err(IndexError::NoIndex { expected: Self::NAME, found: kind });
        }
        let in_place = match format {
            1 => true,
            2 => false,
            _ => return Err(IndexError::corrupt(words.format, "leaves of an unknown format")),
        };
        let shared = Shared::new(
            words,
            options,
            Format { in_place },
            LockTokens::of(client.pool()),
            Quarantine::new(&client, options.quarantine_bytes),
        );
        shared.view(&mut client).await?;
        Ok(Self { shared: Arc::new(shared), windows: Arc::default(), fabric: PhantomData })
    }

    /// Creates an empty root. If several clients create one, one wins each word; the kind word
    /// comes last.
    async fn create(client: &mut Client<F>, options: SmartOptions) -> Result<Self> {
        {
            let mut client = client.pin(OpKind::Maintain).await?;
            let words = RootWords::of(client.pool());
            let root = client.alloc(0, NODE_BYTES, AllocKind::Inner).await?;
            let ty = NodeType::SMALLEST;
            client
                .post(|batch| batch.write(root, &node::image(GlobalAddr::NULL, Header::new(0, ty, &[]), &[])))
                .await?;
            let mut batch = client.batch();
            batch.cas(words.format, 0, if options.in_place { 1 } else { 2 });
            let root_cas = batch.cas(words.root, 0, Slot::node(0, ty, root).word());
            batch.fence().cas(words.kind, 0, KIND);
            let done = client.submit(batch).await?;
            let won = done.swapped(root_cas);
            client.recycle(done);
            if !won {
                client.free_unpublished(root, NODE_BYTES, AllocKind::Inner);
            }
        }
        Self::open(client, options).await
    }

    async fn get(&self, client: &mut Client<F>, key: &[u8]) -> Result<Option<Vec<u8>>> {
        self.read(client, key).await
    }

    async fn put(
        &self,
        client: &mut Client<F>,
        key: &[u8],
        value: &[u8],
        condition: Condition<'_>,
    ) -> Result<PutOutcome> {
        self.write(client, key, value, condition).await
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

    async fn maintain(&self, client: &mut Client<F>) -> Result<()> {
        self.free_aside(client).await
    }

    async fn check(&self, client: &mut Client<F>) -> Result<CheckReport> {
        self.check_all(client).await
    }

    async fn scrub_unreachable(&self, client: &mut Client<F>, _reachable: &ReachableSet) -> Result<bool> {
        self.raise_generation(client).await?;
        Ok(false)
    }

    async fn stats(&self, client: &mut Client<F>) -> Result<IndexStats> {
        self.collect_stats(client).await
    }

    fn cache_used_bytes(&self) -> u64 {
        self.shared.cache.bytes()
    }
}
