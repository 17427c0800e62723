//! Quiver: pages of records under the nodes of a radix tree, for a client that remembers a few bits
//! per key and then reads one record.
//!
//! `docs/quiver.md` has the formats, the protocol, and the argument for it (L1 to L11), which the
//! comments here refer to.

#[cfg(test)]
mod astray;
mod blind;
mod build;
mod bulk;
mod cache;
mod check;
mod collapse;
mod content;
mod cut_off;
mod descent;
mod direct;
mod diverge;
mod evacuate;
#[cfg(test)]
mod evacuations;
mod finish;
mod fold;
mod hint;
mod hit_rate;
#[cfg(test)]
mod hot_words;
mod incremental_stats;
mod intents;
#[cfg(test)]
mod interleavings;
#[cfg(test)]
mod losses;
mod lost;
mod map;
mod map_copy;
#[cfg(test)]
mod misplaced;
mod nibble;
mod node;
mod operation;
mod outcome;
mod pace;
mod page;
mod pair;
mod parent_slot;
mod plan;
#[cfg(test)]
mod rebalances;
mod rebuild;
mod salvage;
mod scan;
mod search;
mod shared;
mod situations;
mod skip;
mod transaction;
mod tree;
mod walk;
mod word;
mod write;

pub(crate) use incremental_stats::IncrementalStats;
#[cfg(feature = "checker")]
pub use situations::quiver_situations;

use crate::mark;
use crate::radix::prefix_hash::HashKeys;
use crate::{
    Access, Balance, CheckReport, Commit, Condition, CutOff, Decide, Decision, Evacuated, IndexError,
    IndexStats, KeyValue, LostNodes, OrderedIndex, PutOutcome, Result, Salvaged, ScanRange, Versioned, Visit,
};
use arc_swap::ArcSwap;
use cache::Cache;
use darter_fabric::{Endpoint, Fabric, OpKind};
use darter_pool::{AllocKind, Client, ReachableSet};
use hint::NodeHint;
use hit_rate::HitRate;
use nibble::{EDGES, LAST, NibbleKey};
use node::{Content, NODE_BYTES, Slot};
use pace::Folding;
use shared::{Geometry, KIND, RootWords, Shared};
use skip::Skip;
use std::marker::PhantomData;
use std::sync::Arc;

/// How a process uses an index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QuiverOptions {
    /// Most bytes that this process may cache: nodes, and pages with their maps. Default: 1 MiB.
    pub cache_bytes: u64,
    /// Most records of a page of a new index, 2 to 64.
    pub page_records: u32,
    /// Most pairs added to a page of a new index before it is rebuilt, 1 to 16.
    pub page_delta: u32,
    /// Whether updates and reads rebuild pages now and then, so that most pairs are stored in their
    /// pages.
    pub folds: bool,
    /// Whether to remember words that name leaves, in the room that maps leave, so that a read gets
    /// the leaf in the round trip that shows that the word is unchanged.
    pub hot_words: bool,
    /// Whether to search by loads, without verbs and without remembering anything, if the pool is in
    /// memory that this process can load from. Such searches make no round trips.
    pub direct: bool,
}

impl Default for QuiverOptions {
    fn default() -> Self {
        Self {
            cache_bytes: 1 << 20,
            page_records: 64,
            page_delta: 16,
            folds: true,
            hot_words: true,
            direct: false,
        }
    }
}

/// A Quiver index in a pool. Clones share one cache.
#[derive(Debug)]
pub struct Quiver<F: Fabric> {
    shared: Arc<Shared>,
    fabric: PhantomData<fn() -> F>,
}

impl<F: Fabric> Clone for Quiver<F> {
    fn clone(&self) -> Self {
        Self { shared: self.shared.clone(), fabric: PhantomData }
    }
}

impl<F: Fabric> Quiver<F> {
    /// Whether searches load words of the pool's memory.
    pub(crate) fn is_direct(&self) -> bool {
        self.shared.is_direct
    }
}

impl<F: Fabric> OrderedIndex<F> for Quiver<F> {
    const NAME: &'static str = "quiver";

    type Options = QuiverOptions;

    async fn open(client: &mut Client<F>, options: QuiverOptions) -> Result<Self> {
        let mut client = client.pin(OpKind::Maintain).await?;
        let words = RootWords::of(client.pool());
        let keys = HashKeys::new(client.pool().secret());
        let at = [words.kind, words.root, words.geometry, words.skip, client.pool().index_mark()];
        let [kind, root, geometry, table, mark] = client.read_each(at).await?;
        mark::verify(&mut client, (Self::NAME, KIND), (words.kind, kind), mark).await?;
        let Content::Node { addr, .. } = Slot::from_root_word(root).content() else {
            return Err(IndexError::corrupt(words.root, "root word names no node"));
        };
        let [guard] = client.read_words(addr.plus(node::GUARD_AT as u64 * 8)).await?;
        let root = NodeHint { addr, born: node::born(guard), depth: 0 };
        let geometry = Geometry::from_word(geometry);
        let is_direct = options.direct && client.endpoint().memory().is_some();
        let reads_only = client.pool().reads_only();
        let shared = Shared {
            keys,
            words,
            root: ArcSwap::from_pointee((root, client.epoch())),
            geometry,
            cache: Cache::new(if is_direct { 0 } else { options.cache_bytes }, options.hot_words)
                .without(client.pool().forgotten_nodes()),
            is_direct,
            skip: Skip::new(table, client.epoch()),
            inline_rate: HitRate::new(),
            reads_only,
            folding: (options.folds && !reads_only).then(|| Folding::new(geometry.records, is_direct)),
        };
        Ok(Self { shared: Arc::new(shared), fabric: PhantomData })
    }

    /// Makes an empty root; if several clients create it at once, one wins each word, and the kind
    /// word comes last.
    async fn create(client: &mut Client<F>, options: QuiverOptions) -> Result<Self> {
        {
            let mut client = client.pin(OpKind::Maintain).await?;
            let words = RootWords::of(client.pool());
            let keys = HashKeys::new(client.pool().secret());
            let geometry = Geometry::new(options.page_records, options.page_delta);
            let mut slots = [Slot::EMPTY; EDGES];
            slots[0] = Slot::none(LAST);
            let identity = NibbleKey::new(keys, &[]).identity(0);
            let root = client.alloc(0, NODE_BYTES, AllocKind::Inner).await?;
            let image = node::image(root, identity, client.epoch() as u32, 0, &slots, &[]);
            client.post(|batch| batch.write(root, &image)).await?;
            let mut batch = client.batch();
            batch.cas(words.geometry, 0, geometry.word());
            let root_cas = batch.cas(words.root, 0, Slot::root_word(root));
            batch.fence().cas(words.kind, 0, KIND);
            let done = client.submit(batch).await?;
            let root_won = done.swapped(root_cas);
            client.recycle(done);
            if !root_won {
                client.free_unpublished(root, NODE_BYTES, AllocKind::Inner);
            }
        }
        Self::open(client, options).await
    }

    // Hands its future on as it is, as others below do: one more around it would move it.
    fn put(
        &self,
        client: &mut Client<F>,
        key: &[u8],
        value: &[u8],
        condition: Condition<'_>,
    ) -> impl Future<Output = Result<PutOutcome>> + Send {
        self.put_value(client, key, value, condition)
    }

    fn get_with<R>(
        &self,
        client: &mut Client<F>,
        key: &[u8],
        f: impl FnOnce(&[u8]) -> R + Send,
    ) -> impl Future<Output = Result<Option<R>>> + Send {
        self.get_with(client, key, f)
    }

    async fn modify_as(
        &self,
        client: &mut Client<F>,
        kind: OpKind,
        key: &[u8],
        decide: &mut Decide<'_>,
    ) -> Result<Decision> {
        self.modify_value(client, kind, key, decide).await
    }

    async fn read_versions(&self, client: &mut Client<F>, keys: &[&[u8]]) -> Result<Vec<Versioned>> {
        self.versions_of(client, keys).await
    }

    fn commit(
        &self,
        client: &mut Client<F>,
        accesses: &[Access<'_>],
        attempt: u16,
    ) -> impl Future<Output = Result<Commit>> + Send {
        self.commit_all(client, accesses, attempt)
    }

    async fn multi_get_chunk(&self, client: &mut Client<F>, keys: &[&[u8]]) -> Result<Vec<Option<Vec<u8>>>> {
        self.values_of(client, keys).await
    }

    fn visit<'v>(
        &self,
        client: &mut Client<F>,
        range: &ScanRange,
        limit: usize,
        visit: &'v mut Visit<'v>,
    ) -> impl Future<Output = Result<usize>> + Send {
        self.visit_pairs(client, range, limit, visit)
    }

    async fn bulk_load<I>(&self, client: &mut Client<F>, sorted: I) -> Result<u64>
    where
        I: Iterator<Item = KeyValue> + Send,
    {
        self.load_sorted(client, sorted).await
    }

    /// Builds a skip table if searches read many nodes.
    async fn adapt(&self, client: &mut Client<F>) -> Result<()> {
        let wants_adjust = self.wants_adjust() && !self.shared.reads_only;
        if wants_adjust { self.adjust_if_there_is_room(client).await } else { Ok(()) }
    }

    async fn check(&self, client: &mut Client<F>) -> Result<CheckReport> {
        self.check_all(client).await
    }

    async fn scrub_unreachable(&self, client: &mut Client<F>, _reachable: &ReachableSet) -> Result<bool> {
        self.finish_replacements(client).await
    }

    async fn evacuate(&self, client: &mut Client<F>, node: u8, from: &[u8]) -> Result<Evacuated> {
        self.evacuate_from(client, node, from).await
    }

    async fn level(&self, client: &mut Client<F>, balance: &mut Balance, from: &[u8]) -> Result<Evacuated> {
        self.level_from(client, balance, from).await
    }

    fn evacuates(&self) -> bool {
        true
    }

    async fn salvage(&self, client: &mut Client<F>, lost: LostNodes, from: &[u8]) -> Result<Salvaged> {
        self.salvage_from(client, lost, from).await
    }

    async fn drop_hints(&self, client: &mut Client<F>, lost: LostNodes) -> Result<()> {
        self.cut_table_off(client, lost).await?;
        self.shared.cache.forget_all();
        Ok(())
    }

    async fn cut_off(&self, client: &mut Client<F>, lost: LostNodes, from: &[u8]) -> Result<CutOff> {
        self.cut_off_from(client, lost, from).await
    }

    fn salvages(&self) -> bool {
        true
    }

    async fn stats(&self, client: &mut Client<F>) -> Result<IndexStats> {
        self.collect_stats(client).await
    }

    fn cache_used_bytes(&self) -> u64 {
        self.shared.cache.bytes()
    }
}

/// Two keys that the words of a page's records cannot distinguish in a pool with this secret.
///
/// # Panics
/// If a million keys contain no such pair.
#[cfg(feature = "checker")]
pub fn quiver_twins(secret: [u64; 4]) -> [Vec<u8>; 2] {
    word::twins(secret)
}
