//! The index that a pool holds: DART or Quiver, as named by its root, or another that the program
//! has opened.
//!
//! A program specifies the index only for a new pool, or to refuse any other. A store is written
//! once, over [`AnyIndex`], which also provides the operations that only some indexes have.

use crate::dart::{self, Dart, DartOptions, SearchSamples};
use crate::dyn_index::DynIndex;
use crate::ordered::{
    Access, Balance, CheckReport, Commit, Condition, CutOff, Decide, Decision, Evacuated, IndexStats,
    KeyValue, LostNodes, OrderedIndex, PutOutcome, Salvaged, ScanRange, Swept, TreeView, Versioned, Visit,
};
use crate::quiver::{self, Quiver, QuiverOptions};
use crate::radix::prefix_list::AdjustReport;
use crate::{IndexError, Result};
use darter_fabric::{Fabric, OpKind};
use darter_pool::{Client, ReachableSet};
use std::fmt;
use std::pin::pin;
use std::str::FromStr;

/// The root word that records which index is being created. No index uses it.
const CLAIM_AT: usize = 7;

/// An index that a store can work on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum IndexKind {
    /// [`Dart`].
    Dart,
    /// [`Quiver`].
    #[default]
    Quiver,
}

impl IndexKind {
    /// All of these indexes.
    pub const ALL: [Self; 2] = [Self::Dart, Self::Quiver];

    /// The name in commands.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Dart => "dart",
            Self::Quiver => "quiver",
        }
    }
}

impl fmt::Display for IndexKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for IndexKind {
    type Err = IndexError;

    fn from_str(name: &str) -> Result<Self> {
        let named = Self::ALL.into_iter().find(|kind| kind.name() == name);
        named.ok_or(IndexError::Options("no index of this name; use `dart` or `quiver`"))
    }
}

/// Which index to use, and how a process uses it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IndexOptions {
    /// The only index to open, and the index for a new pool. If `None`: any index, and Quiver for a
    /// new pool.
    pub kind: Option<IndexKind>,
    /// How DART is used.
    pub dart: DartOptions,
    /// How Quiver is used.
    pub quiver: QuiverOptions,
}

/// The index of a pool, of whichever kind it is.
#[derive(Debug)]
pub enum AnyIndex<F: Fabric> {
    /// The pool holds DART.
    Dart(Dart<F>),
    /// The pool holds Quiver.
    Quiver(Quiver<F>),
    /// The pool holds another index.
    Other(DynIndex<F>),
}

impl<F: Fabric> Clone for AnyIndex<F> {
    fn clone(&self) -> Self {
        match self {
            Self::Dart(index) => Self::Dart(index.clone()),
            Self::Quiver(index) => Self::Quiver(index.clone()),
            Self::Other(index) => Self::Other(index.clone()),
        }
    }
}

impl<F: Fabric> AnyIndex<F> {
    /// Returns which index this is, if it is one that a store opens by itself.
    /// [`OrderedIndex::name`] returns the name of any index.
    pub fn kind(&self) -> Option<IndexKind> {
        match self {
            Self::Dart(_) => Some(IndexKind::Dart),
            Self::Quiver(_) => Some(IndexKind::Quiver),
            Self::Other(_) => None,
        }
    }

    /// Returns whether searches load words of the pool's memory, and so make no round trips.
    pub fn is_direct(&self) -> bool {
        matches!(self, Self::Quiver(index) if index.is_direct())
    }

    /// Returns the searches that DART has sampled so far in this process; none for other indexes.
    pub fn samples(&self) -> SearchSamples {
        match self {
            Self::Dart(index) => index.samples(),
            Self::Quiver(_) | Self::Other(_) => SearchSamples::default(),
        }
    }

    /// Returns DART's current prefix list, as last seen; an empty list for other indexes.
    pub fn prefix_list(&self) -> Vec<u8> {
        match self {
            Self::Dart(index) => index.prefix_list(),
            Self::Quiver(_) | Self::Other(_) => Vec::new(),
        }
    }

    /// Adjusts the prefix list of the skip table: DART's, whose lengths are in bytes, to the
    /// accesses sampled so far; Quiver's, whose lengths are in nibbles, to the existing pages.
    ///
    /// # Errors
    /// Those of the fabric, and of a full pool; the old list then stays. [`IndexError::Options`]
    /// for an index without a prefix list.
    pub async fn adjust(&self, client: &mut Client<F>) -> Result<AdjustReport> {
        match self {
            Self::Dart(index) => index.adjust(client).await,
            Self::Quiver(index) => index.adjust(client).await,
            Self::Other(_) => {
                Err(IndexError::Options("this index has no prefix list; only `dart` and `quiver` have one"))
            }
        }
    }

    /// Returns the tree below `prefix`: the node that covers it, `levels` levels down, at most
    /// `width` children of each node.
    ///
    /// # Errors
    /// Those of the fabric, and [`IndexError::Corrupt`]. [`IndexError::Options`] for an index that
    /// does not show its nodes.
    pub async fn tree(
        &self,
        client: &mut Client<F>,
        prefix: &[u8],
        levels: usize,
        width: usize,
    ) -> Result<TreeView> {
        match self {
            Self::Dart(index) => index.tree(client, prefix, levels, width).await,
            Self::Quiver(index) => index.tree(client, prefix, levels, width).await,
            Self::Other(_) => {
                Err(IndexError::Options("this index does not show its nodes; only `dart` and `quiver` do"))
            }
        }
    }

    /// Counts one more part of the index, under its own pin; an index that is neither DART nor
    /// Quiver has only one part. After the last part, returns the totals and starts over.
    ///
    /// # Errors
    /// Those of the fabric, and [`IndexError::Corrupt`]. The next call then repeats the part for
    /// DART, and starts over for Quiver.
    pub async fn count_some(
        &self,
        client: &mut Client<F>,
        progress: &mut IncrementalStats,
    ) -> Result<Option<IndexStats>> {
        match self {
            Self::Dart(index) => index.count_some(client, &mut progress.dart).await,
            Self::Quiver(index) => index.count_some(client, &mut progress.quiver).await,
            Self::Other(index) => index.stats(client).await.map(Some),
        }
    }
}

/// A count of the index in several steps, each under its own pin.
#[derive(Debug, Default)]
pub struct IncrementalStats {
    dart: dart::IncrementalStats,
    quiver: quiver::IncrementalStats,
}

impl IncrementalStats {
    /// Inner nodes counted so far.
    pub fn nodes(&self) -> u64 {
        self.dart.nodes() + self.quiver.nodes()
    }
}

/// Records in a pool without an index which one it gets, unless another client has. Returns which
/// it is.
async fn claim<F: Fabric>(client: &mut Client<F>, wanted: IndexKind) -> Result<IndexKind> {
    let mut client = client.pin(OpKind::Maintain).await?;
    let word = client.pool().root_word(CLAIM_AT);
    let place = |kind| IndexKind::ALL.iter().position(|known| *known == kind).map_or(0, |at| at as u64 + 1);
    let mut batch = client.batch();
    let cas = batch.cas(word, 0, place(wanted));
    let done = client.submit(batch).await?;
    let found = if done.swapped(cas) { place(wanted) } else { done.found(cas) };
    client.recycle(done);
    let claimed = IndexKind::ALL.into_iter().find(|kind| place(*kind) == found);
    claimed.ok_or(IndexError::corrupt(word, "an index of an unknown kind is being created"))
}

/// Evaluates the same call on whichever index this is.
macro_rules! each {
    ($self:ident, $index:ident => $call:expr) => {
        match $self {
            Self::Dart($index) => $call,
            Self::Quiver($index) => $call,
            Self::Other($index) => $call,
        }
    };
}

/// Awaits the same call on whichever index this is. The future is pinned where it is created: a
/// plain `await` would move it once more.
macro_rules! awaiting {
    ($self:ident, $index:ident => $call:expr) => {
        each!($self, $index => pin!($call).await)
    };
}

impl<F: Fabric> OrderedIndex<F> for AnyIndex<F> {
    /// All kinds that there can be; [`OrderedIndex::name`] returns the one that the pool holds.
    const NAME: &'static str = "dart or quiver";

    type Options = IndexOptions;

    async fn open(client: &mut Client<F>, options: IndexOptions) -> Result<Self> {
        let is_wanted = |kind| options.kind.is_none_or(|wanted| wanted == kind);
        if is_wanted(IndexKind::Dart) {
            match Dart::open(client, options.dart).await {
                Err(IndexError::NoIndex { .. }) if is_wanted(IndexKind::Quiver) => {}
                opened => return opened.map(Self::Dart),
            }
        }
        match Quiver::open(client, options.quiver).await {
            Err(IndexError::NoIndex { found, .. }) if is_wanted(IndexKind::Dart) => {
                Err(IndexError::NoIndex { expected: Self::NAME, found })
            }
            opened => opened.map(Self::Quiver),
        }
    }

    /// Of several concurrent creators, all create the index that the first of them wanted, since
    /// the root words of two indexes must not be mixed.
    async fn create(client: &mut Client<F>, options: IndexOptions) -> Result<Self> {
        let kind = claim(client, options.kind.unwrap_or_default()).await?;
        match kind {
            IndexKind::Dart => drop(Dart::create(client, options.dart).await?),
            IndexKind::Quiver => drop(Quiver::create(client, options.quiver).await?),
        }
        Self::open(client, options).await
    }

    fn name(&self) -> &'static str {
        each!(self, index => OrderedIndex::<F>::name(index))
    }

    async fn get_with<R>(
        &self,
        client: &mut Client<F>,
        key: &[u8],
        f: impl FnOnce(&[u8]) -> R + Send,
    ) -> Result<Option<R>> {
        awaiting!(self, index => OrderedIndex::get_with(index, client, key, f))
    }

    async fn put(
        &self,
        client: &mut Client<F>,
        key: &[u8],
        value: &[u8],
        condition: Condition<'_>,
    ) -> Result<PutOutcome> {
        awaiting!(self, index => OrderedIndex::put(index, client, key, value, condition))
    }

    async fn delete_when(
        &self,
        client: &mut Client<F>,
        key: &[u8],
        condition: Condition<'_>,
    ) -> Result<bool> {
        awaiting!(self, index => OrderedIndex::delete_when(index, client, key, condition))
    }

    async fn modify_as(
        &self,
        client: &mut Client<F>,
        kind: OpKind,
        key: &[u8],
        decide: &mut Decide<'_>,
    ) -> Result<Decision> {
        awaiting!(self, index => OrderedIndex::modify_as(index, client, kind, key, decide))
    }

    async fn read_versions(&self, client: &mut Client<F>, keys: &[&[u8]]) -> Result<Vec<Versioned>> {
        awaiting!(self, index => OrderedIndex::read_versions(index, client, keys))
    }

    async fn commit(&self, client: &mut Client<F>, accesses: &[Access<'_>], attempt: u16) -> Result<Commit> {
        awaiting!(self, index => OrderedIndex::commit(index, client, accesses, attempt))
    }

    fn check_key(&self, key: &[u8]) -> Result<()> {
        each!(self, index => OrderedIndex::<F>::check_key(index, key))
    }

    async fn multi_get_chunk(&self, client: &mut Client<F>, keys: &[&[u8]]) -> Result<Vec<Option<Vec<u8>>>> {
        awaiting!(self, index => OrderedIndex::multi_get_chunk(index, client, keys))
    }

    // Overridden, because the default would copy the pairs of an index that already returns a list.
    async fn scan(&self, client: &mut Client<F>, range: &ScanRange, limit: usize) -> Result<Vec<KeyValue>> {
        awaiting!(self, index => OrderedIndex::scan(index, client, range, limit))
    }

    async fn visit<'v>(
        &self,
        client: &mut Client<F>,
        range: &ScanRange,
        limit: usize,
        visit: &'v mut Visit<'v>,
    ) -> Result<usize> {
        awaiting!(self, index => OrderedIndex::visit(index, client, range, limit, visit))
    }

    fn prefetch<'k>(&self, client: &Client<F>, keys: impl Iterator<Item = &'k [u8]>) {
        each!(self, index => OrderedIndex::<F>::prefetch(index, client, keys));
    }

    async fn bulk_load<P>(&self, client: &mut Client<F>, sorted: P) -> Result<u64>
    where
        P: Iterator<Item = KeyValue> + Send,
    {
        awaiting!(self, index => OrderedIndex::bulk_load(index, client, sorted))
    }

    async fn maintain(&self, client: &mut Client<F>) -> Result<()> {
        awaiting!(self, index => OrderedIndex::maintain(index, client))
    }

    async fn adapt(&self, client: &mut Client<F>) -> Result<()> {
        awaiting!(self, index => OrderedIndex::adapt(index, client))
    }

    async fn check(&self, client: &mut Client<F>) -> Result<CheckReport> {
        awaiting!(self, index => OrderedIndex::check(index, client))
    }

    async fn sweep_dead(&self, client: &mut Client<F>) -> Result<Swept> {
        awaiting!(self, index => OrderedIndex::sweep_dead(index, client))
    }

    async fn evacuate(&self, client: &mut Client<F>, node: u8, from: &[u8]) -> Result<Evacuated> {
        awaiting!(self, index => OrderedIndex::evacuate(index, client, node, from))
    }

    async fn level(&self, client: &mut Client<F>, balance: &mut Balance, from: &[u8]) -> Result<Evacuated> {
        awaiting!(self, index => OrderedIndex::level(index, client, balance, from))
    }

    fn evacuates(&self) -> bool {
        matches!(self, Self::Quiver(_))
    }

    async fn salvage(&self, client: &mut Client<F>, lost: LostNodes, from: &[u8]) -> Result<Salvaged> {
        awaiting!(self, index => OrderedIndex::salvage(index, client, lost, from))
    }

    async fn drop_hints(&self, client: &mut Client<F>, lost: LostNodes) -> Result<()> {
        awaiting!(self, index => OrderedIndex::drop_hints(index, client, lost))
    }

    async fn cut_off(&self, client: &mut Client<F>, lost: LostNodes, from: &[u8]) -> Result<CutOff> {
        awaiting!(self, index => OrderedIndex::cut_off(index, client, lost, from))
    }

    fn salvages(&self) -> bool {
        matches!(self, Self::Quiver(_))
    }

    async fn scrub_unreachable(&self, client: &mut Client<F>, reachable: &ReachableSet) -> Result<bool> {
        awaiting!(self, index => OrderedIndex::scrub_unreachable(index, client, reachable))
    }

    async fn stats(&self, client: &mut Client<F>) -> Result<IndexStats> {
        awaiting!(self, index => OrderedIndex::stats(index, client))
    }

    fn cache_used_bytes(&self) -> u64 {
        each!(self, index => OrderedIndex::<F>::cache_used_bytes(index))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use darter_fabric::{Local, block_on};
    use darter_pool::{Pool, PoolOptions};

    fn of(kind: IndexKind) -> IndexOptions {
        IndexOptions { kind: Some(kind), ..IndexOptions::default() }
    }

    #[test]
    fn a_pool_is_opened_with_the_index_that_it_holds() {
        for kind in IndexKind::ALL {
            let memory = Local::memory(64 << 20, 1).unwrap();
            let pool = block_on(Pool::create(memory, &PoolOptions::default())).unwrap();
            let mut client = pool.client().unwrap();
            let none = block_on(AnyIndex::open(&mut client, of(kind))).unwrap_err();
            assert!(matches!(none, IndexError::NoIndex { found: 0, .. }), "{none}");
            let made = block_on(AnyIndex::open_or_create(&mut client, of(kind))).unwrap();
            block_on(made.put(&mut client, b"pear", b"green", Condition::Always)).unwrap();
            let opened = block_on(AnyIndex::open_or_create(&mut client, IndexOptions::default())).unwrap();
            assert_eq!((opened.kind(), opened.name()), (Some(kind), kind.name()));
            assert_eq!(block_on(opened.get(&mut client, b"pear")).unwrap().as_deref(), Some(&b"green"[..]));
            for other in IndexKind::ALL.into_iter().filter(|other| *other != kind) {
                let refused = block_on(AnyIndex::open_or_create(&mut client, of(other))).unwrap_err();
                assert!(refused.to_string().contains(&format!("the index {kind}")), "{refused}");
            }
        }
    }

    /// Formerly such a pool got an empty index, with exit code 0.
    #[test]
    fn root_words_that_are_gone_are_damage() {
        for kind in IndexKind::ALL {
            let memory = Local::memory(64 << 20, 1).unwrap();
            let pool = block_on(Pool::create(memory, &PoolOptions::default())).unwrap();
            let mut client = pool.client().unwrap();
            let mark = pool.index_mark();
            let sector = pool.root_word(0);
            assert_ne!(mark.offset() / 512, sector.offset() / 512);
            drop(block_on(AnyIndex::create(&mut client, of(kind))).unwrap());
            let zeros = [0; darter_pool::ROOT_WORDS];
            block_on(client.post(|batch| batch.write(sector, &zeros))).unwrap();
            for options in [of(kind), IndexOptions::default()] {
                for opened in [
                    block_on(AnyIndex::open(&mut client, options)),
                    block_on(AnyIndex::open_or_create(&mut client, options)),
                ] {
                    let error = opened.unwrap_err();
                    assert!(matches!(error, IndexError::Corrupt { .. }), "{error}");
                }
            }
        }
    }

    /// If a creator dies before it has set the mark, the next client sets it.
    #[test]
    fn an_index_without_a_mark_gets_it_when_it_is_opened() {
        let memory = Local::memory(64 << 20, 1).unwrap();
        let pool = block_on(Pool::create(memory, &PoolOptions::default())).unwrap();
        let mut client = pool.client().unwrap();
        drop(block_on(AnyIndex::create(&mut client, IndexOptions::default())).unwrap());
        block_on(client.post(|batch| batch.write(pool.index_mark(), &[0]))).unwrap();
        drop(block_on(AnyIndex::open(&mut client, IndexOptions::default())).unwrap());
        let [mark] = block_on(client.read_each([pool.index_mark()])).unwrap();
        assert_ne!(mark, 0);
    }

    /// If a client dies after recording which index it creates, the next client creates it.
    #[test]
    fn who_makes_an_index_second_makes_that_of_the_first() {
        let memory = Local::memory(64 << 20, 1).unwrap();
        let pool = block_on(Pool::create(memory, &PoolOptions::default())).unwrap();
        let mut client = pool.client().unwrap();
        assert_eq!(block_on(claim(&mut client, IndexKind::Quiver)).unwrap(), IndexKind::Quiver);
        let refused = block_on(AnyIndex::create(&mut client, of(IndexKind::Dart))).unwrap_err();
        assert!(refused.to_string().contains("the index quiver"), "{refused}");
        let opened = block_on(AnyIndex::open(&mut client, IndexOptions::default())).unwrap();
        assert_eq!(opened.kind(), Some(IndexKind::Quiver));
    }
}
