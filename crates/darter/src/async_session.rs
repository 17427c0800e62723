//! One task's access to a store: every operation is a future.
//!
//! The futures are `Send` and hold no lock. Dropping one at any await is safe: the index's changes
//! are single atomic words, and the pool keeps the session pinned until its posted verbs have
//! completed (rule R6 of `docs/dart.md`).
//!
//! The futures of the most frequent operations are pinned where they are made: to await one moves it
//! once more, and in memory of this process that is felt.

use crate::batch;
use crate::inspect::{self, Check, Stats};
use crate::key_space::{KeySpace, Places};
use crate::link::{Link, Repeat, attempted};
use crate::membership::Membership;
use crate::{Change, Error, KeyRange};
use darter_fabric::{Counters, Fabric};
use darter_index::{Condition, KeyValue, OrderedIndex, PutOutcome, ScanRange};
use darter_pool::PoolUsage;
use std::ops::Bound;
use std::pin::pin;
use std::sync::Arc;

/// One task's access to a [`crate::Store`]. Methods take `&mut self`: a session does one operation
/// at a time.
pub struct AsyncSession<F: Fabric = crate::DefaultFabric> {
    link: Link<F>,
    /// The keys that it works on.
    space: KeySpace,
    /// For the place of a key.
    place: Vec<u8>,
}

impl<F: Fabric> AsyncSession<F> {
    pub(crate) fn open(membership: &Arc<Membership<F>>, space: KeySpace) -> Result<Self, Error> {
        Ok(Self { link: Link::open(membership)?, space, place: Vec::new() })
    }

    pub(crate) fn space(&self) -> KeySpace {
        self.space
    }

    pub(crate) fn membership(&self) -> &Arc<Membership<F>> {
        self.link.membership()
    }

    /// Returns the value of a key.
    ///
    /// # Errors
    /// Fails if the pool is damaged or fails, or the key is too long.
    #[inline]
    #[cfg_attr(feature = "tracing", tracing::instrument(level = "trace", skip_all))]
    pub async fn get(&mut self, key: impl AsRef<[u8]>) -> Result<Option<Vec<u8>>, Error> {
        let key = self.space.place(key.as_ref(), &mut self.place)?;
        let link = &mut self.link;
        attempted!(
            link,
            Repeat::Always,
            link.open.index.get_with(&mut link.client, key, <[u8]>::to_vec).await
        )
    }

    /// Returns what `f` makes of a key's value, without copying the value out first.
    ///
    /// # Errors
    /// Fails as [`AsyncSession::get`] does.
    #[inline]
    #[cfg_attr(feature = "tracing", tracing::instrument(level = "trace", skip_all))]
    pub async fn get_with<R>(
        &mut self,
        key: impl AsRef<[u8]>,
        f: impl FnOnce(&[u8]) -> R + Send,
    ) -> Result<Option<R>, Error> {
        let key = self.space.place(key.as_ref(), &mut self.place)?;
        let (link, mut f) = (&mut self.link, Some(f));
        let found = attempted!(link, if f.is_some() { Repeat::Always } else { Repeat::Never }, {
            let f = |value: &[u8]| f.take().map(|f| f(value));
            pin!(link.open.index.get_with(&mut link.client, key, f)).await
        });
        Ok(found?.flatten())
    }

    /// Returns whether a key is present.
    ///
    /// # Errors
    /// Fails as [`AsyncSession::get`] does.
    #[inline]
    pub async fn contains_key(&mut self, key: impl AsRef<[u8]>) -> Result<bool, Error> {
        Ok(self.get_with(key, |_| ()).await?.is_some())
    }

    /// Returns the pair with the least key.
    ///
    /// # Errors
    /// Fails as [`AsyncSession::get`] does.
    pub async fn first(&mut self) -> Result<Option<KeyValue>, Error> {
        Ok(self.scan_chunk(&ScanRange::all(), 1).await?.pop())
    }

    /// Returns the pair with the greatest key.
    ///
    /// # Errors
    /// Fails as [`AsyncSession::get`] does.
    pub async fn last(&mut self) -> Result<Option<KeyValue>, Error> {
        Ok(self.scan_chunk(&ScanRange::all().reversed(), 1).await?.pop())
    }

    /// Returns whether the store has no key.
    ///
    /// # Errors
    /// Fails as [`AsyncSession::get`] does.
    pub async fn is_empty(&mut self) -> Result<bool, Error> {
        Ok(self.scan_with(&ScanRange::all(), 1, |_, _| ()).await? == 0)
    }

    /// Stores a value under a key, whether or not the key is there: an upsert.
    ///
    /// # Errors
    /// Fails if the pool is full ([`Error::is_out_of_space`]), damaged or failing, or key or value
    /// are too long.
    #[inline]
    pub async fn put(&mut self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<PutOutcome, Error> {
        pin!(self.put_if(key, value, Condition::Always)).await
    }

    /// Stores a value under a key and returns the value that it replaces, as a map of the standard
    /// library does. [`AsyncSession::put`] spares the copy of the old value.
    ///
    /// # Errors
    /// Fails as [`AsyncSession::put`] does.
    pub async fn insert(
        &mut self,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
    ) -> Result<Option<Vec<u8>>, Error> {
        let mut replaced = None;
        let value = value.as_ref();
        let decide = |old: Option<&[u8]>| {
            replaced = old.map(<[u8]>::to_vec);
            Change::Put(value.to_vec())
        };
        self.modify(key, decide).await?;
        Ok(replaced)
    }

    /// Stores a value under a key if the key is absent; returns whether it was.
    ///
    /// # Errors
    /// Fails as [`AsyncSession::put`] does.
    #[inline]
    pub async fn insert_if_absent(
        &mut self,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
    ) -> Result<bool, Error> {
        Ok(pin!(self.put_if(key, value, Condition::Absent)).await? != PutOutcome::Refused)
    }

    /// Replaces a key's value if the key is present; returns whether it was.
    ///
    /// # Errors
    /// Fails as [`AsyncSession::put`] does.
    #[inline]
    pub async fn update(&mut self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<bool, Error> {
        Ok(pin!(self.put_if(key, value, Condition::Present)).await? != PutOutcome::Refused)
    }

    /// Replaces a key's value if it equals `expected`; returns whether it did.
    ///
    /// # Errors
    /// Fails as [`AsyncSession::put`] does.
    #[inline]
    pub async fn replace_if_equal(
        &mut self,
        key: impl AsRef<[u8]>,
        expected: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
    ) -> Result<bool, Error> {
        Ok(self.put_if(key, value, Condition::Equals(expected.as_ref())).await? != PutOutcome::Refused)
    }

    /// Stores a value under a key if `condition` holds.
    ///
    /// # Errors
    /// Fails as [`AsyncSession::put`] does.
    #[inline]
    #[cfg_attr(feature = "tracing", tracing::instrument(level = "trace", skip_all))]
    pub async fn put_if(
        &mut self,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
        condition: Condition<'_>,
    ) -> Result<PutOutcome, Error> {
        let key = self.space.place(key.as_ref(), &mut self.place)?;
        let value = value.as_ref();
        let link = &mut self.link;
        attempted!(
            link,
            Repeat::IfUnsent,
            pin!(link.open.index.put(&mut link.client, key, value, condition)).await
        )
    }

    /// Stores many pairs, several at a time: on memory nodes in a fraction of the round trips that
    /// one after the other take. Returns what became of each, in their order. Of pairs with the same
    /// key the last one stays. Each put is linearizable by itself, and all of them together are not:
    /// others may see some and not yet the rest.
    ///
    /// # Errors
    /// Fails as [`AsyncSession::put`] does, with the first error of any of them; each of the others
    /// is then stored or not.
    #[cfg_attr(feature = "tracing", tracing::instrument(level = "trace", skip_all))]
    pub async fn put_many<K, V>(&mut self, pairs: &[(K, V)]) -> Result<Vec<PutOutcome>, Error>
    where
        K: AsRef<[u8]> + Sync,
        V: AsRef<[u8]> + Sync,
    {
        let places = Places::of(self.space, pairs.iter().map(|(key, _)| key.as_ref()))?;
        let keys = places.to_vec();
        let (link, mut done) = (&mut self.link, Vec::new());
        attempted!(link, Repeat::IfUnsent, {
            let puts = batch::Puts { index: &link.open.index, keys: &keys, pairs };
            let clients = link.lanes.clients(&link.open.pool, &mut link.client, keys.len())?;
            batch::run(clients, &keys, &puts, &mut done).await
        })?;
        Ok(done.into_iter().flatten().collect())
    }

    /// Removes a key; returns whether it was there.
    ///
    /// # Errors
    /// As [`AsyncSession::put`]: a collapse may need space, but a full pool never keeps a key from
    /// going.
    #[inline]
    #[cfg_attr(feature = "tracing", tracing::instrument(level = "trace", skip_all))]
    pub async fn delete(&mut self, key: impl AsRef<[u8]>) -> Result<bool, Error> {
        let key = self.space.place(key.as_ref(), &mut self.place)?;
        let link = &mut self.link;
        attempted!(link, Repeat::IfUnsent, link.open.index.delete(&mut link.client, key).await)
    }

    /// Removes a key if `is_wanted` returns true for its value; returns whether it did. `is_wanted`
    /// may be called several times; the value of its last call is the one that was removed.
    ///
    /// # Errors
    /// Fails as [`AsyncSession::delete`] does.
    #[inline]
    #[cfg_attr(feature = "tracing", tracing::instrument(level = "trace", skip_all))]
    pub async fn delete_if(
        &mut self,
        key: impl AsRef<[u8]>,
        mut is_wanted: impl FnMut(&[u8]) -> bool + Send,
    ) -> Result<bool, Error> {
        let key = self.space.place(key.as_ref(), &mut self.place)?;
        let link = &mut self.link;
        attempted!(
            link,
            Repeat::IfUnsent,
            link.open.index.delete_if(&mut link.client, key, &mut is_wanted).await
        )
    }

    /// Removes the keys of a range that are present while it runs; returns how many it removed. Not
    /// atomic: others see the range shrink, and keys that come meanwhile may stay.
    ///
    /// # Errors
    /// Fails as [`AsyncSession::delete`] does; what was removed by then stays so.
    #[cfg_attr(feature = "tracing", tracing::instrument(level = "trace", skip_all))]
    pub async fn delete_range(&mut self, range: impl KeyRange) -> Result<u64, Error> {
        let mut left = ScanRange { reverse: false, ..range.into_scan_range() };
        let mut removed = 0;
        loop {
            let mut keys = Vec::new();
            let met = self.scan_with(&left, batch::KEYS, |key, _| keys.push(key.to_vec())).await?;
            let Some(last) = keys.last() else { return Ok(removed) };
            left.from = Bound::Excluded(last.clone());
            removed += self.delete_many(&keys).await?;
            if met < batch::KEYS {
                return Ok(removed);
            }
        }
    }

    /// Removes all keys; returns how many. As [`AsyncSession::delete_range`] of `..`.
    ///
    /// # Errors
    /// Fails as [`AsyncSession::delete_range`] does.
    pub async fn clear(&mut self) -> Result<u64, Error> {
        self.delete_range(..).await
    }

    /// Removes many keys, several at a time, as [`AsyncSession::put_many`] stores them; returns how
    /// many were there.
    ///
    /// # Errors
    /// Fails as [`AsyncSession::delete`] does; each of the others is then removed or not.
    #[cfg_attr(feature = "tracing", tracing::instrument(level = "trace", skip_all))]
    pub async fn delete_many<K: AsRef<[u8]> + Sync>(&mut self, keys: &[K]) -> Result<u64, Error> {
        let places = Places::of(self.space, keys.iter().map(AsRef::as_ref))?;
        let keys = places.to_vec();
        let (link, mut done) = (&mut self.link, Vec::new());
        attempted!(link, Repeat::IfUnsent, {
            let deletes = batch::Deletes { index: &link.open.index, keys: &keys };
            let clients = link.lanes.clients(&link.open.pool, &mut link.client, keys.len())?;
            batch::run(clients, &keys, &deletes, &mut done).await
        })?;
        Ok(done.into_iter().flatten().map(u64::from).sum())
    }

    /// Puts, keeps or removes a key as `decide` returns for its value, `None` if the key is absent.
    /// `decide` is called again if another client came between: its last decision takes effect.
    /// Returns whether that changed anything; the removal of an absent key does not.
    ///
    /// # Errors
    /// Fails as [`AsyncSession::put`] does.
    #[inline]
    #[cfg_attr(feature = "tracing", tracing::instrument(level = "trace", skip_all))]
    pub async fn modify(
        &mut self,
        key: impl AsRef<[u8]>,
        mut decide: impl FnMut(Option<&[u8]>) -> Change + Send,
    ) -> Result<bool, Error> {
        let mut changes = false;
        let mut decide = |old: Option<&[u8]>, new: &mut Vec<u8>| {
            let (decision, changed) = decide(old).split(old, new);
            changes = changed;
            decision
        };
        let key = self.space.place(key.as_ref(), &mut self.place)?;
        let link = &mut self.link;
        attempted!(link, Repeat::IfUnsent, link.open.index.modify(&mut link.client, key, &mut decide).await)?;
        Ok(changes)
    }

    /// Returns the values of several keys, in their order, in the round trips of the longest search
    /// among them.
    ///
    /// # Errors
    /// Fails as [`AsyncSession::get`] does.
    #[cfg_attr(feature = "tracing", tracing::instrument(level = "trace", skip_all))]
    pub async fn multi_get<K: AsRef<[u8]> + Sync>(
        &mut self,
        keys: &[K],
    ) -> Result<Vec<Option<Vec<u8>>>, Error> {
        let places = Places::of(self.space, keys.iter().map(AsRef::as_ref))?;
        let keys = places.to_vec();
        let link = &mut self.link;
        attempted!(link, Repeat::Always, link.open.index.multi_get(&mut link.client, &keys).await)
    }

    /// Returns the values of the first of several keys, in their order: of at least one key if there is
    /// one, and of the others as long as the values have about 1 MiB together. For callers that have
    /// no use for all values at the same time.
    ///
    /// # Errors
    /// Fails as [`AsyncSession::get`] does.
    #[cfg_attr(feature = "tracing", tracing::instrument(level = "trace", skip_all))]
    pub async fn multi_get_first<K: AsRef<[u8]> + Sync>(
        &mut self,
        keys: &[K],
    ) -> Result<Vec<Option<Vec<u8>>>, Error> {
        let places = Places::of(self.space, keys.iter().map(AsRef::as_ref))?;
        let keys = places.to_vec();
        let link = &mut self.link;
        attempted!(link, Repeat::Always, link.open.index.multi_get_first(&mut link.client, &keys).await)
    }

    /// Prefetches what operations on these keys are going to read, for callers that know their keys
    /// ahead. In memory of this machine the cache misses then overlap with other work; elsewhere
    /// nothing happens.
    #[inline]
    pub fn prefetch<'k>(&mut self, keys: impl Iterator<Item = &'k [u8]>) {
        // The operation itself reports a key that is too long.
        if let Ok(places) = Places::of(self.space, keys) {
            self.link.open.index.prefetch(&self.link.client, places.iter());
        }
    }

    /// Returns the first `limit` pairs of a range in its direction, in one go. Fewer mean the range
    /// is exhausted.
    ///
    /// # Errors
    /// Fails as [`AsyncSession::get`] does.
    #[cfg_attr(feature = "tracing", tracing::instrument(level = "trace", skip_all))]
    pub async fn scan_chunk(&mut self, range: &ScanRange, limit: usize) -> Result<Vec<KeyValue>, Error> {
        let (link, range) = (&mut self.link, self.space.range(range));
        let found =
            attempted!(link, Repeat::Always, link.open.index.scan(&mut link.client, &range, limit).await);
        Ok(self.space.keys(found?))
    }

    /// Hands the first `limit` pairs of a range, in its direction, to `visit` where they lie,
    /// without a copy; returns how many there were.
    ///
    /// # Errors
    /// Fails as [`AsyncSession::get`] does.
    #[cfg_attr(feature = "tracing", tracing::instrument(level = "trace", skip_all))]
    pub async fn scan_with(
        &mut self,
        range: &ScanRange,
        limit: usize,
        mut visit: impl FnMut(&[u8], &[u8]) + Send,
    ) -> Result<usize, Error> {
        let (space, link, range) = (self.space, &mut self.link, self.space.range(range));
        let mut has_visited = false;
        attempted!(link, if has_visited { Repeat::Never } else { Repeat::Always }, {
            let visit = |place: &[u8], value: &[u8]| {
                has_visited = true;
                visit(space.key(place), value);
            };
            pin!(link.open.index.scan_with(&mut link.client, &range, limit, visit)).await
        })
    }

    /// Fills an empty index from strictly ascending keys; returns how many. Nothing is visible
    /// before the end.
    ///
    /// # Errors
    /// Fails if the index has keys, the input is out of order, or as [`AsyncSession::put`]. The
    /// index is then still empty.
    #[cfg_attr(feature = "tracing", tracing::instrument(level = "trace", skip_all))]
    pub async fn bulk_load<K, V, P>(&mut self, sorted: P) -> Result<u64, Error>
    where
        K: Into<Vec<u8>>,
        V: Into<Vec<u8>>,
        P: IntoIterator<Item = (K, V)>,
        P::IntoIter: Send,
    {
        // What is taken from the iterator cannot be taken again, so room is made before.
        let link = &mut self.link;
        if link.is_over() {
            Box::pin(link.follow()).await?;
        }
        if let Some(sweeper) = &link.store.sweeper {
            sweeper.finish().await;
        }
        let (space, mut too_long) = (self.space, None);
        let sorted = sorted.into_iter().map(|(key, value)| {
            let key = key.into();
            too_long = too_long.take().or(space.check(&key).err());
            (space.into_place(key), value.into())
        });
        let loaded = link.open.index.bulk_load(&mut link.client, sorted).await;
        loaded.map_err(|error| too_long.unwrap_or_else(|| error.into()))
    }

    /// Does the upkeep that is due, for programs that run without the upkeep thread.
    ///
    /// # Errors
    /// Fails if the pool fails; call again later.
    #[cfg_attr(feature = "tracing", tracing::instrument(level = "debug", skip_all))]
    pub async fn maintain(&mut self) -> Result<(), Error> {
        let link = &mut self.link;
        attempted!(link, Repeat::Always, link.open.maintain(&mut link.client, link.store.auto_adjust).await)
    }

    /// Counts and sizes, by a walk of the whole index.
    ///
    /// # Errors
    /// Fails if the pool is damaged or fails.
    #[cfg_attr(feature = "tracing", tracing::instrument(level = "debug", skip_all))]
    pub async fn stats(&mut self) -> Result<Stats, Error> {
        let link = &mut self.link;
        attempted!(link, Repeat::Always, inspect::stats(&link.open, &mut link.client).await)
    }

    /// Returns how much of the pool each member uses. Cheap: it reads tables, not the index.
    ///
    /// # Errors
    /// Fails if the pool fails.
    pub async fn usage(&mut self) -> Result<PoolUsage, Error> {
        let link = &mut self.link;
        attempted!(link, Repeat::Always, link.open.pool.usage(&mut link.client).await)
    }

    /// Verifies every invariant and counts what is leaked; see [`crate::Store::check`].
    ///
    /// # Errors
    /// Fails if a walk cannot go on.
    #[cfg_attr(feature = "tracing", tracing::instrument(level = "debug", skip_all))]
    pub async fn check(&mut self) -> Result<Check, Error> {
        let link = &mut self.link;
        attempted!(link, Repeat::Always, inspect::check(&link.open, &mut link.client).await)
    }

    /// Gives back what dead processes left behind, then checks; see [`crate::Store::repair`].
    ///
    /// # Errors
    /// Fails as [`AsyncSession::check`] does.
    #[cfg_attr(feature = "tracing", tracing::instrument(level = "debug", skip_all))]
    pub async fn repair(&mut self) -> Result<Check, Error> {
        let link = &mut self.link;
        attempted!(link, Repeat::Always, inspect::repair(&link.open, &mut link.client).await)
    }

    /// Returns what this session's operations have cost so far: round trips, verbs, bytes, retries,
    /// by kind of operation. All zero when the fabric does not count.
    pub fn counters(&self) -> Counters {
        self.link.counters()
    }
}

impl<F: Fabric> std::fmt::Debug for AsyncSession<F> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AsyncSession").field("counters", &self.counters().total()).finish_non_exhaustive()
    }
}
