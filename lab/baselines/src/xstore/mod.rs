//! XStore (OSDI 2020): a B+tree whose leaves clients read by one-sided READs, at places predicted
//! by learned models, and which a server next to the memory writes.
//!
//! Leaves ([`leaf`]) and records are in the pool, so a server may die at any word it writes, and
//! another server continues ([`server`]). The server also trains the models ([`model`]) and writes
//! them to the pool ([`root`]). Clients cache the models, find leaves by them, and conclude only
//! from a leaf's own words ([`client`]). If the models lead to no result, the operation is a call.
//! With a cache of 0 bytes every operation is a call: the paper's server-centric rival. The paper's
//! other rivals use the server's inner nodes, of which an image is stored with the models
//! ([`image`]).
//!
//! `lab/docs/xstore.md` states what the published design leaves open, what this implementation
//! does, and what that costs.

mod check;
mod check_models;
mod client;
mod descriptor;
mod image;
mod leaf;
mod load;
mod model;
mod options;
mod record;
mod root;
mod server;
mod sweep;
mod table;
#[cfg(test)]
mod tests;
mod wire;

pub use options::XStoreOptions;
pub use server::XStoreService;

use client::ranges::Ranges;
use darter_fabric::{Fabric, OpKind};
use darter_index::check_key;
use darter_index::{
    CheckReport, Condition, IndexError, IndexStats, KeyValue, OrderedIndex, PutOutcome, Result, ScanRange,
    Swept,
};
use darter_pool::Client;
use descriptor::Descriptor;
use model::Hits;
use std::marker::PhantomData;
use std::ops::Bound;
use std::sync::{Arc, Mutex};

/// The index's name.
pub(crate) const NAME: &str = "xstore";
/// Bytes of a key if values are in leaves.
const KEY_BYTES: usize = 8;

/// State of the index shared by the clients of a process.
#[derive(Debug)]
struct Shared {
    /// The descriptor of the index.
    descriptor: Descriptor,
    options: XStoreOptions,
    ranges: Mutex<Arc<Ranges>>,
}

/// An XStore index in a pool.
#[derive(Debug)]
pub struct XStore<F: Fabric> {
    shared: Arc<Shared>,
    fabric: PhantomData<fn() -> F>,
}

impl<F: Fabric> Clone for XStore<F> {
    fn clone(&self) -> Self {
        Self { shared: Arc::clone(&self.shared), fabric: PhantomData }
    }
}

/// The error for a key of the wrong length.
fn wrong_key(key: &[u8]) -> IndexError {
    IndexError::WrongLength { what: "key", bytes: key.len(), expected: KEY_BYTES }
}

/// Encodes a condition as a number and its expected value.
fn condition_word(condition: Condition<'_>) -> (u64, &[u8]) {
    match condition {
        Condition::Always => (0, &[]),
        Condition::Absent => (1, &[]),
        Condition::Present => (2, &[]),
        Condition::Equals(value) => (3, value),
    }
}

/// Decodes a condition.
fn condition_of(kind: u64, expected: &[u8]) -> Option<Condition<'_>> {
    Some(match kind {
        0 => Condition::Always,
        1 => Condition::Absent,
        2 => Condition::Present,
        3 => Condition::Equals(expected),
        _ => return None,
    })
}

/// Encodes the kinds of a range's bounds and its direction as a number.
fn range_word(range: &ScanRange) -> u64 {
    let kind = |bound: &Bound<Vec<u8>>| match bound {
        Bound::Unbounded => 0,
        Bound::Included(_) => 1,
        Bound::Excluded(_) => 2,
    };
    kind(&range.from) | kind(&range.to) << 2 | u64::from(range.reverse) << 4
}

/// Decodes a range from a number and two strings.
fn range_of(word: u64, from: Vec<u8>, to: Vec<u8>) -> Option<ScanRange> {
    let bound = |kind: u64, key: Vec<u8>| match kind {
        0 => Some(Bound::Unbounded),
        1 => Some(Bound::Included(key)),
        2 => Some(Bound::Excluded(key)),
        _ => None,
    };
    let range =
        ScanRange { from: bound(word & 3, from)?, to: bound(word >> 2 & 3, to)?, reverse: word & 16 != 0 };
    (word < 32).then_some(range)
}

/// Returns the bytes of a bound, empty if it has none.
fn bound_bytes(bound: &Bound<Vec<u8>>) -> &[u8] {
    match bound {
        Bound::Unbounded => &[],
        Bound::Included(key) | Bound::Excluded(key) => key,
    }
}

impl<F: Fabric> XStore<F> {
    /// Returns the memory nodes of the ranges, in key order, as last read.
    pub fn range_nodes(&self) -> Vec<u8> {
        self.shared.ranges().all.iter().map(|range| range.descriptor.node).collect()
    }

    /// Returns how many keys this process has routed by models, and how much of the route was
    /// cached.
    pub fn cache_hits(&self) -> Hits {
        self.shared.ranges().hits()
    }
}

impl<F: Fabric> OrderedIndex<F> for XStore<F> {
    const NAME: &'static str = NAME;

    type Options = XStoreOptions;

    async fn open(client: &mut Client<F>, options: XStoreOptions) -> Result<Self> {
        let descriptor = Descriptor::read(client).await?;
        if options.tree_from.is_some() && !descriptor.has_image {
            return Err(IndexError::Options("tree_from: the index was created without an image of its tree"));
        }
        let ranges = {
            let mut client = client.pin(OpKind::Maintain).await?;
            Ranges::read(&mut client, &descriptor, &options).await?
        };
        let shared = Shared { descriptor, options, ranges: Mutex::new(Arc::new(ranges)) };
        Ok(Self { shared: Arc::new(shared), fabric: PhantomData })
    }

    async fn create(client: &mut Client<F>, options: XStoreOptions) -> Result<Self> {
        Descriptor::create(client, &options).await?;
        Self::open(client, options).await
    }

    fn check_key(&self, key: &[u8]) -> Result<()> {
        check_key(key)?;
        let is_any = !self.shared.descriptor.layout.is_inline();
        if is_any || key.len() == KEY_BYTES { Ok(()) } else { Err(wrong_key(key)) }
    }

    async fn get(&self, client: &mut Client<F>, key: &[u8]) -> Result<Option<Vec<u8>>> {
        OrderedIndex::<F>::check_key(self, key)?;
        Ok(self.values_of(client, &[key], OpKind::Get).await?.pop().flatten())
    }

    async fn put(
        &self,
        client: &mut Client<F>,
        key: &[u8],
        value: &[u8],
        condition: Condition<'_>,
    ) -> Result<PutOutcome> {
        self.put_by_call(client, (key, value), condition).await
    }

    async fn delete_when(
        &self,
        client: &mut Client<F>,
        key: &[u8],
        condition: Condition<'_>,
    ) -> Result<bool> {
        self.delete_by_call(client, key, condition).await
    }

    async fn multi_get_chunk(&self, client: &mut Client<F>, keys: &[&[u8]]) -> Result<Vec<Option<Vec<u8>>>> {
        self.values_of(client, keys, OpKind::MultiGet).await
    }

    async fn scan(&self, client: &mut Client<F>, range: &ScanRange, limit: usize) -> Result<Vec<KeyValue>> {
        self.pairs_of(client, range, limit).await
    }

    async fn bulk_load<I>(&self, client: &mut Client<F>, sorted: I) -> Result<u64>
    where
        I: Iterator<Item = KeyValue> + Send,
    {
        self.load_sorted(client, sorted).await
    }

    async fn maintain(&self, client: &mut Client<F>) -> Result<()> {
        self.call_all(client, wire::MAINTAIN).await.map(drop)
    }

    async fn check(&self, client: &mut Client<F>) -> Result<CheckReport> {
        self.call_all(client, wire::PING).await?;
        self.inspect(client, true).await
    }

    async fn sweep_dead(&self, client: &mut Client<F>) -> Result<Swept> {
        self.sweep_beside_server(client).await
    }

    async fn stats(&self, client: &mut Client<F>) -> Result<IndexStats> {
        Ok(self.inspect(client, false).await?.stats)
    }

    fn cache_used_bytes(&self) -> u64 {
        self.shared.ranges().cache_bytes()
    }
}
