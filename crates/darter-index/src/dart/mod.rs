//! DART: a lock-free two-layer hashed adaptive radix tree for disaggregated memory (SIGMOD 2026).
//!
//! Upper layer: the express skip table ([`est`]), a hash from key prefixes to inner nodes, which
//! lets a search start deep in the tree. Base layer: a radix tree of adaptive hashed nodes
//! ([`node`]), in which a search reads one bucket per level. All metadata of a child is in the
//! 8-byte slot that points to it ([`crate::radix::slot`]), so every write is one CAS.
//!
//! Where the paper is silent or wrong (its duplicate-key argument, the grace period of its type
//! switch, false express hits, reclamation), `docs/dart.md` states the problem and argues for the
//! solution used here.

mod access;
mod adjust;
mod bulk;
mod check;
mod descend_any;
mod descent;
mod est;
mod frontier;
mod hints;
#[cfg(test)]
mod interleavings;
mod log_reader;
mod node;
mod operation;
mod prefetch;
mod retired_log;
mod retirement;
mod scan;
mod search;
mod shared;
mod situations;
mod split;
mod stats;
mod sweep;
mod switch;
mod tree;
mod walk;
mod write;

#[cfg(feature = "checker")]
pub use situations::dart_situations;
pub(crate) use stats::IncrementalStats;

use crate::mark;
use crate::radix::prefix_list::PrefixList;
use crate::radix::{drafts, leaf, prefix_hash, seal};
use crate::{
    CheckReport, Condition, Decide, Decision, IndexStats, KeyValue, OrderedIndex, PutOutcome, Result,
    ScanRange, Visit,
};
use darter_fabric::{Fabric, GlobalAddr, OpKind};
use darter_pool::{AllocKind, Client, ReachableSet};
use est::table::{SegmentSize, Table};
use hints::HintCache;
use log_reader::LogReader;
use node::{NodeType, Slot};
use prefix_hash::{HashKeys, HashedKey};
use shared::{KIND, RootWords, Shared};
use std::marker::PhantomData;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// How a process uses an index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DartOptions {
    /// Bytes that this process may cache: first the table's directory, then the addresses of hot
    /// nodes. The directory is cached even if it alone is larger. Default: 1 MiB.
    pub cache_bytes: u64,
    /// One search in this many adds an access to its leaf's frequency (R in the paper); 0 for none.
    pub frequency_every: u32,
    /// The cost of a verb when this process chooses the prefix list, in hundredths of a round trip.
    /// The value 0 minimizes round trips. If the NICs' verb rate is the bottleneck, about 30 gives
    /// the most searches per second, above all on long keys.
    pub verb_percent: u32,
    /// Whether a new index gets an express skip table. An index without one is always searched from
    /// its root: the base layer alone, for comparison (paper, section 5.3).
    pub express: bool,
    /// Buckets of eight entries in each segment of a new index's express skip table, rounded up to
    /// a power of two, at most 128. With few buckets, segments split even in small trees, which is
    /// useful only for tests.
    pub segment_buckets: u32,
    /// Nodes after which a walk of the whole tree (an adjustment, a count) takes another pin. A pin
    /// delays reclamation; after each new pin, the walk must find its position again.
    pub walk_nodes: u32,
}

impl Default for DartOptions {
    fn default() -> Self {
        Self {
            cache_bytes: 1 << 20,
            frequency_every: 64,
            verb_percent: 0,
            express: true,
            walk_nodes: 4096,
            segment_buckets: est::SEGMENT_BUCKETS_MAX as u32,
        }
    }
}

/// A DART index in a pool. Clones share one view and one cache.
#[derive(Debug)]
pub struct Dart<F: Fabric> {
    shared: Arc<Shared>,
    fabric: PhantomData<fn() -> F>,
}

impl<F: Fabric> Clone for Dart<F> {
    fn clone(&self) -> Self {
        Self { shared: self.shared.clone(), fabric: PhantomData }
    }
}

impl<F: Fabric> Dart<F> {
    /// The current prefix list, as last seen: lengths in bytes, ascending.
    pub fn prefix_list(&self) -> Vec<u8> {
        self.shared.table().list.bytes()
    }

    /// The searches sampled so far in this process: one of every [`DartOptions::frequency_every`].
    pub fn samples(&self) -> SearchSamples {
        SearchSamples {
            searches: self.shared.sampling.searches(),
            express: self.shared.sampled_express.load(Ordering::Relaxed),
        }
    }
}

/// Counts of sampled searches, by how they began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SearchSamples {
    /// All sampled searches.
    pub searches: u64,
    /// Searches that an express entry, read or cached, let start below the root.
    pub express: u64,
}

impl<F: Fabric> OrderedIndex<F> for Dart<F> {
    const NAME: &'static str = "dart";

    type Options = DartOptions;

    async fn open(client: &mut Client<F>, mut options: DartOptions) -> Result<Self> {
        if client.pool().reads_only() {
            // Searches must not count accesses in leaves.
            options.frequency_every = 0;
        }
        let mut client = client.pin(OpKind::Maintain).await?;
        let words = RootWords::of(client.pool());
        let keys = HashKeys::new(client.pool().secret());
        let mark = client.pool().index_mark();
        let at = [words.kind, words.version, words.est, words.root, words.retired, mark];
        let [kind, version, est, root, retired, mark] = client.read_each(at).await?;
        mark::verify(&mut client, (Self::NAME, KIND), (words.kind, kind), mark).await?;
        let table = Table::load(&mut client, GlobalAddr::from_bits(est), version).await?;
        let hints = HintCache::new(options.cache_bytes.saturating_sub(table.cached_bytes()));
        let root = Slot::from_word(root);
        table.found_current(client.epoch());
        let log = LogReader::new(retired);
        let shared = Shared::new(keys, words, (hints, log), table, root, options);
        Ok(Self { shared: Arc::new(shared), fabric: PhantomData })
    }

    /// Creates an empty root and an empty table. Of several creators, one wins each word. The kind
    /// word is set last.
    async fn create(client: &mut Client<F>, options: DartOptions) -> Result<Self> {
        {
            let mut client = client.pin(OpKind::Maintain).await?;
            let words = RootWords::of(client.pool());
            let keys = HashKeys::new(client.pool().secret());
            let list = if options.express { PrefixList::POWERS } else { PrefixList::NONE };
            let table =
                Table::create(&mut client, list, SegmentSize::new(options.segment_buckets), 0).await?;
            let ty = NodeType::N4;
            let root = client.alloc(0, ty.bytes(), AllocKind::Inner).await?;
            let image = node::image(ty, HashedKey::new(keys, &[]).identity(0), &[]);
            client.post(|batch| batch.write(root, &image)).await?;
            let mut batch = client.batch();
            let est_cas = batch.cas(words.est, 0, table.descriptor.bits());
            let root_cas = batch.cas(words.root, 0, Slot::node(0, ty, 0, root).word());
            batch.fence().cas(words.kind, 0, KIND);
            let done = client.submit(batch).await?;
            let (est_won, root_won) = (done.swapped(est_cas), done.swapped(root_cas));
            client.recycle(done);
            if !root_won {
                client.free_unpublished(root, ty.bytes(), AllocKind::Inner);
            }
            if !est_won {
                client.unlink(
                    table.descriptor,
                    est::table::DESCRIPTOR_BYTES,
                    AllocKind::Inner,
                    retirement::table_note(),
                );
            }
        }
        Self::open(client, options).await
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

    async fn get_with<R>(
        &self,
        client: &mut Client<F>,
        key: &[u8],
        f: impl FnOnce(&[u8]) -> R + Send,
    ) -> Result<Option<R>> {
        self.get_with(client, key, f).await
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

    async fn multi_get_chunk(&self, client: &mut Client<F>, keys: &[&[u8]]) -> Result<Vec<Option<Vec<u8>>>> {
        self.values_of(client, keys).await
    }

    async fn visit<'v>(
        &self,
        client: &mut Client<F>,
        range: &ScanRange,
        limit: usize,
        visit: &'v mut Visit<'v>,
    ) -> Result<usize> {
        self.visit_pairs(client, range, limit, visit).await
    }

    fn prefetch<'k>(&self, client: &Client<F>, keys: impl Iterator<Item = &'k [u8]>) {
        self.prefetch(client, keys);
    }

    async fn bulk_load<I>(&self, client: &mut Client<F>, sorted: I) -> Result<u64>
    where
        I: Iterator<Item = KeyValue> + Send,
    {
        self.load_sorted(client, sorted).await
    }

    async fn maintain(&self, client: &mut Client<F>) -> Result<()> {
        self.scrub_graced(client).await
    }

    async fn adapt(&self, client: &mut Client<F>) -> Result<()> {
        if self.wants_adjust() && !client.pool().reads_only() {
            self.adjust(client).await?;
        }
        Ok(())
    }

    async fn check(&self, client: &mut Client<F>) -> Result<CheckReport> {
        self.check_all(client).await
    }

    async fn scrub_unreachable(&self, client: &mut Client<F>, reachable: &ReachableSet) -> Result<bool> {
        self.scrub_dead_entries(client, reachable).await?;
        Ok(true)
    }

    async fn stats(&self, client: &mut Client<F>) -> Result<IndexStats> {
        self.collect_stats(client).await
    }

    fn cache_used_bytes(&self) -> u64 {
        self.shared.table().cached_bytes() + self.shared.hints.bytes()
    }
}
