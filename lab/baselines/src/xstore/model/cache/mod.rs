//! A client process's cache of the models (XCACHE, sections 5.1 and 7.6).
//!
//! The cache charges 16 bytes for the top model, 14 for a sub-model and 8 for an entry of its
//! table, as published; as in the paper, the lookup structures are not counted. Everything is
//! loaded on demand: [`Cache::route_scan`] returns what to read next, and the cache stores it. If
//! the budget is exceeded, entries are evicted before sub-models, because a sub-model saves a round
//! trip for all of its keys. Among entries, and among sub-models, the first to go are those not
//! used since the last pass (CLOCK). The top model is never evicted.
//!
//! Everything belongs to one *generation* of the index ([`View`]). A client with a newer view
//! clears the cache. A client with an older view finds nothing in it, and the words that it reads
//! are not cached. So entries do not outlive the generation in which they were read. Neither do
//! sub-models: a table may have been replaced since its sub-model was read, and may name leaves
//! that were freed when the generation changed.

mod route;
mod shard;

pub(crate) use route::{Leaves, NoModel, Route, RouteStep};

use self::shard::{Entries, Shard};
use super::entry::Entry;
use super::sub::{SubModel, TableRef};
use super::top::TopModel;
use crate::sync::lock;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard};

/// Shards with a lock each.
const SHARDS: usize = 16;

/// The part of the index's descriptor that a client has read: the generation of its models, and
/// their number of sub-models, which is constant within a generation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct View {
    pub(crate) generation: u64,
    pub(crate) submodels: u32,
}

/// A sub-model and the table of its entries.
type Place = (u32, TableRef);

/// Number of keys that were routed, and of those for which a level was cached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Hits {
    /// Keys that were routed.
    pub keys: u64,
    /// Keys for which the top model was cached.
    pub top: u64,
    /// Keys for which the sub-model was cached, too.
    pub submodels: u64,
    /// Keys for which all predicted entries were cached, too.
    pub entries: u64,
}

impl std::ops::Add for Hits {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            keys: self.keys + other.keys,
            top: self.top + other.top,
            submodels: self.submodels + other.submodels,
            entries: self.entries + other.entries,
        }
    }
}

/// The counters of [`Hits`].
#[derive(Debug, Default)]
struct Counters {
    keys: AtomicU64,
    top: AtomicU64,
    submodels: AtomicU64,
    entries: AtomicU64,
}

/// The cache of a process.
#[derive(Debug)]
pub(crate) struct Cache {
    budget: u64,
    /// Bytes charged, at most `budget`, without the top model.
    used: AtomicU64,
    /// The generation, and its top model if known.
    top: Mutex<(u64, Option<TopModel>)>,
    shards: [Mutex<Shard>; SHARDS],
    /// The shards in which the search for the next entry and the next sub-model to evict starts.
    entry_hand: AtomicUsize,
    model_hand: AtomicUsize,
    hits: Counters,
}

impl Cache {
    /// Creates a cache of at most `budget` bytes. Below 16 it holds nothing.
    pub(crate) fn new(budget: u64) -> Self {
        Self {
            budget,
            used: AtomicU64::new(0),
            top: Mutex::new((0, None)),
            shards: Default::default(),
            entry_hand: AtomicUsize::new(0),
            model_hand: AtomicUsize::new(0),
            hits: Counters::default(),
        }
    }

    /// Starts the route of a key.
    #[cfg(test)]
    pub(crate) fn route(&self, view: View, key: u64) -> Route<'_> {
        self.route_scan(view, key, (0, 0))
    }

    /// Starts the route of a key and its neighbours: with this many leaves before and after those
    /// that can hold it, within the same table. The counts in the entries show how many are needed.
    pub(crate) fn route_scan(&self, view: View, key: u64, more: (u32, u32)) -> Route<'_> {
        self.hits.keys.fetch_add(1, Ordering::Relaxed);
        Route::new(self, view, key, more)
    }

    /// Returns the bytes charged.
    pub(crate) fn bytes(&self) -> u64 {
        let top = if lock(&self.top).1.is_some() { TopModel::BYTES } else { 0 };
        top + self.used.load(Ordering::Relaxed)
    }

    /// Returns the counts since the start.
    pub(crate) fn hits(&self) -> Hits {
        let Counters { keys, top, submodels, entries } = &self.hits;
        let [keys, top, submodels, entries] =
            [keys, top, submodels, entries].map(|count| count.load(Ordering::Relaxed));
        Hits { keys, top, submodels, entries }
    }

    /// Caches a sub-model that was just read, or that came with the reply to a call. If it differs
    /// from the cached one, the cached entries of that one's table are dropped.
    pub(crate) fn learn_submodel(&self, view: View, submodel: u32, model: SubModel) {
        if let Some(freed) = self.shard(view, submodel).replace_model(view.generation, submodel, model) {
            self.free(freed);
        } else if self.reserve(SubModel::BYTES, false) {
            let surplus = self.shard(view, submodel).insert_model(view.generation, submodel, model);
            self.free(surplus);
        }
    }

    /// Drops a sub-model and the cached entries of its table, after it was retrained or led to the
    /// wrong leaves.
    pub(crate) fn forget_submodel(&self, view: View, submodel: u32) {
        let freed = self.shard(view, submodel).forget(view.generation, submodel);
        self.free(freed);
    }

    /// Replaces an entry that led to a leaf by the state a client has read in the leaf's header.
    pub(crate) fn renew_entry(&self, view: View, leaves: &Leaves, position: u32, entry: Entry) {
        self.shard(view, leaves.place.0).renew_entry(view.generation, leaves.place, position, entry);
    }

    /// Returns the shard of a sub-model, after dropping data older than the view.
    fn shard(&self, view: View, submodel: u32) -> MutexGuard<'_, Shard> {
        let mut shard = lock(&self.shards[submodel as usize % SHARDS]);
        self.free(shard.enter(view.generation));
        shard
    }

    /// Returns the top model if it is known.
    fn top(&self, view: View) -> Option<TopModel> {
        let mut top = lock(&self.top);
        if top.0 < view.generation {
            *top = (view.generation, None);
            drop(top);
            (0..SHARDS as u32).for_each(|submodel| drop(self.shard(view, submodel)));
            return None;
        }
        top.1.filter(|_| top.0 == view.generation)
    }

    fn learn_top(&self, view: View, model: TopModel) {
        let mut top = lock(&self.top);
        if top.0 == view.generation && self.budget >= TopModel::BYTES {
            top.1 = Some(model);
        }
    }

    fn learn_entry(&self, view: View, place: Place, position: u32, entry: Entry) {
        let is_wanted = self.shard(view, place.0).wants_entry(view.generation, place, position, entry);
        if is_wanted && self.reserve(Entry::BYTES, true) {
            let surplus = self.shard(view, place.0).insert_entry(view.generation, place, position, entry);
            self.free(surplus);
        }
    }

    /// Takes bytes of the budget and evicts to make room: for an entry only entries, for a model
    /// also models. Returns false if there is no room.
    fn reserve(&self, bytes: u64, is_entry: bool) -> bool {
        let room = self.budget.saturating_sub(TopModel::BYTES);
        if bytes > room {
            return false;
        }
        let fits = |used: u64| Some(used + bytes).filter(|&used| used <= room);
        while self.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits).is_err() {
            let may_evict_model = !is_entry;
            let has_evicted = self.evict(&self.entry_hand, Shard::evict_entries)
                || may_evict_model && self.evict(&self.model_hand, Shard::evict_model);
            if !has_evicted {
                return false;
            }
        }
        true
    }

    fn free(&self, bytes: u64) {
        if bytes > 0 {
            self.used.fetch_sub(bytes, Ordering::Relaxed);
        }
    }

    /// Evicts something from one of the shards, round-robin; a second round evicts data that the
    /// first found used. Returns false if there is nothing to evict.
    fn evict(&self, hand: &AtomicUsize, evict: impl Fn(&mut Shard) -> u64) -> bool {
        (0..2 * SHARDS).any(|_| {
            let at = hand.fetch_add(1, Ordering::Relaxed) % SHARDS;
            let freed = evict(&mut lock(&self.shards[at]));
            self.free(freed);
            freed > 0
        })
    }
}
