//! CHIME (SOSP 2024): a B-link tree whose leaves are hopscotch hash tables.
//!
//! The tree is Sherman's ([`crate::sherman`]): inner nodes, cache, locks, splits and merges, redo
//! images, scans, bulk load, check. Its leaves have another layout ([`crate::sherman::hopscotch`]):
//! a search reads one neighbourhood ([`search`]), a writer the part that it changes ([`write`]). A
//! compute node remembers the slots of hot keys ([`hot_spots`]).
//!
//! Root words: 3 the kind, 8 the address of Sherman's descriptor.
//!
//! `lab/docs/chime.md` has the layout, and its differences from the published one with reasons.

mod hot_spots;
#[cfg(test)]
mod interleavings;
mod options;
mod search;
mod situations;
mod write;

pub use options::ChimeOptions;
#[cfg(feature = "checker")]
pub use situations::chime_situations;

use crate::sherman::format::Shape;
use crate::sherman::{Records, Shared, Sherman, ShermanOptions, TreeKind};
use darter_fabric::{Fabric, OpKind};
use darter_index::{
    CheckReport, Condition, IndexError, IndexStats, KeyValue, OrderedIndex, PutOutcome, Result, ScanRange,
};
use darter_pool::Client;
use hot_spots::HotSpots;
use std::sync::Arc;

const KIND: TreeKind = TreeKind { name: "chime", word: u64::from_le_bytes(*b"CHIME\0\0\x02") };

/// An operation in progress.
type Operation<'a, F> = crate::operation::Operation<'a, Shared, F>;

/// A CHIME index in a pool. Clones share locks and cache.
#[derive(Debug)]
pub struct Chime<F: Fabric> {
    tree: Sherman<F>,
    hot_spots: Arc<HotSpots>,
}

impl<F: Fabric> Clone for Chime<F> {
    fn clone(&self) -> Self {
        Self { tree: self.tree.clone(), hot_spots: Arc::clone(&self.hot_spots) }
    }
}

impl ChimeOptions {
    /// Returns the options of the tree.
    fn of_tree(&self) -> ShermanOptions {
        ShermanOptions {
            cache_bytes: self.cache_bytes - self.hot_spot_bytes(),
            locks: self.locks,
            lock_words: self.lock_words,
            node_bytes: self.node_bytes,
            records: self.records,
            redo_images: true,
            fill_percent: self.fill_percent,
            ..ShermanOptions::sherman()
        }
    }

    fn shape(&self) -> Result<Shape> {
        if !matches!(self.span, 16 | 24 | 32 | 40 | 48 | 56 | 64) {
            return Err(IndexError::Options("span must be a multiple of 8 from 16 to 64"));
        }
        if matches!(self.records, Records::Inline { value_bytes: 9.., .. }) {
            return Err(IndexError::Options(
                "values in leaves have up to 8 bytes; longer ones need Records::FixedKeys or Records::Any",
            ));
        }
        Ok(Shape { span: Some(self.span.into()), ..Shape::of(&self.of_tree())? })
    }
}

impl<F: Fabric> Chime<F> {
    fn with(tree: Sherman<F>, options: &ChimeOptions) -> Self {
        Self { tree, hot_spots: Arc::new(HotSpots::new(options.hot_spot_bytes())) }
    }
}

impl<F: Fabric> OrderedIndex<F> for Chime<F> {
    const NAME: &'static str = KIND.name;

    type Options = ChimeOptions;

    async fn open(client: &mut Client<F>, options: ChimeOptions) -> Result<Self> {
        let tree = Sherman::open_as(client, options.of_tree(), KIND).await?;
        if tree.shared.format.span.is_none() {
            let addr = tree.shared.descriptor;
            return Err(IndexError::corrupt(addr, "the leaves of a CHIME index are not hopscotch tables"));
        }
        Ok(Self::with(tree, &options))
    }

    async fn create(client: &mut Client<F>, options: ChimeOptions) -> Result<Self> {
        let tree = Sherman::create_as(client, options.of_tree(), options.shape()?, KIND).await?;
        Ok(Self::with(tree, &options))
    }

    fn check_key(&self, key: &[u8]) -> Result<()> {
        self.tree.check_sizes(key, None)
    }

    async fn get(&self, client: &mut Client<F>, key: &[u8]) -> Result<Option<Vec<u8>>> {
        self.tree.check_sizes(key, None)?;
        Ok(self.find_values(client, &[key], OpKind::Get).await?.pop().flatten())
    }

    async fn put(
        &self,
        client: &mut Client<F>,
        key: &[u8],
        value: &[u8],
        condition: Condition<'_>,
    ) -> Result<PutOutcome> {
        self.put_in_table(client, key, value, condition).await
    }

    async fn delete_when(
        &self,
        client: &mut Client<F>,
        key: &[u8],
        condition: Condition<'_>,
    ) -> Result<bool> {
        self.delete_from_table(client, key, condition).await
    }

    async fn multi_get_chunk(&self, client: &mut Client<F>, keys: &[&[u8]]) -> Result<Vec<Option<Vec<u8>>>> {
        self.find_values(client, keys, OpKind::MultiGet).await
    }

    async fn scan(&self, client: &mut Client<F>, range: &ScanRange, limit: usize) -> Result<Vec<KeyValue>> {
        self.tree.scan_pairs(client, range, limit).await
    }

    async fn bulk_load<I>(&self, client: &mut Client<F>, sorted: I) -> Result<u64>
    where
        I: Iterator<Item = KeyValue> + Send,
    {
        self.tree.load_sorted(client, sorted).await
    }

    async fn maintain(&self, client: &mut Client<F>) -> Result<()> {
        self.tree.maintain(client).await
    }

    async fn check(&self, client: &mut Client<F>) -> Result<CheckReport> {
        self.tree.check(client).await
    }

    async fn stats(&self, client: &mut Client<F>) -> Result<IndexStats> {
        self.tree.stats(client).await
    }

    fn cache_used_bytes(&self) -> u64 {
        self.tree.cache_used_bytes() + self.hot_spots.bytes()
    }
}
