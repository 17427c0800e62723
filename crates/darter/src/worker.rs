//! The operations of a store, as futures over one client of its pool.
//!
//! The futures are `Send` and hold no lock. Dropping one at any await is safe: the index's changes
//! are single atomic words, and the pool keeps the client pinned until its posted verbs have
//! completed (rule R6 of `docs/dart.md`).
//!
//! The futures of the most frequent operations are pinned where they are created: awaiting one
//! would move it once more, which is measurable in memory of this machine.

mod overlay;
mod transaction;

use self::overlay::Overlay;
use crate::batch;
use crate::key_space::{KeySpace, Places};
use crate::link::{Link, Repeat, attempted, changed};
use crate::membership::Membership;
use crate::{Change, Error, KeyRange};
use darter_fabric::Counters;
use darter_index::{Condition, KeyValue, OrderedIndex, PutOutcome, ScanRange};
use darter_pool::PoolError;
use std::ops::Bound;
use std::pin::pin;
use std::sync::Arc;

/// One connection to the pool, which executes one operation at a time: the operations of an
/// [`AsyncSession`](crate::AsyncSession) without a list of idle connections, for callers that have
/// exclusive access to it.
///
/// ```
/// # fn main() -> Result<(), darter::Error> {
/// # let store = darter::Store::open("mem:16M")?;
/// use darter::engine::{Engine, KeySpace, Worker};
///
/// let mut worker: Worker = store.worker_in(KeySpace::Program)?;
/// darter::block_on(worker.put("pear", "green"))?;
/// assert_eq!(store.get("pear")?.as_deref(), Some(&b"green"[..]));
/// # Ok(())
/// # }
/// ```
pub struct Worker {
    link: Link,
    /// The key space of the keys.
    space: KeySpace,
    is_read_only: bool,
    /// Buffer for the place of a key.
    place: Vec<u8>,
    /// The transaction in progress, if any.
    transaction: Option<Box<Overlay>>,
}

impl Worker {
    pub(crate) fn open(membership: &Arc<Membership>, space: KeySpace) -> Result<Self, Error> {
        let is_read_only = membership.is_read_only();
        let link = Link::open(membership)?;
        Ok(Self { link, space, is_read_only, place: Vec::new(), transaction: None })
    }

    /// Fails if the store was opened read-only, or by a read-only token.
    #[inline]
    fn verify_writable(&self) -> Result<(), Error> {
        if self.is_read_only {
            Err(Error::ReadOnly)
        } else if self.link.open.pool.reads_only() {
            Err(PoolError::ReadOnly.into())
        } else {
            Ok(())
        }
    }

    /// Continues in another key space. A transaction in progress goes on, and includes the keys of
    /// both.
    ///
    /// ```
    /// # fn main() -> Result<(), darter::Error> {
    /// # let store = darter::Store::open("mem:16M")?;
    /// use darter::engine::{Engine, KeySpace};
    ///
    /// let mut worker = store.worker_in(KeySpace::Gateway)?;
    /// darter::block_on(async {
    ///     worker.begin_transaction(0);
    ///     worker.put("pear", "green").await?;
    ///     worker.enter(KeySpace::Database(1));
    ///     assert!(!worker.contains_key("pear").await?);
    ///     worker.put("pear", "red").await?;
    ///     assert!(worker.commit_transaction().await?);
    ///     worker.enter(KeySpace::Gateway);
    ///     assert_eq!(worker.get("pear").await?.as_deref(), Some(&b"green"[..]));
    ///     Ok(())
    /// })
    /// # }
    /// ```
    pub fn enter(&mut self, space: KeySpace) {
        self.space = space;
    }

    /// As [`AsyncSession::get`](crate::AsyncSession::get).
    ///
    /// # Errors
    /// Fails as [`AsyncSession::get`](crate::AsyncSession::get) does.
    #[inline]
    #[cfg_attr(feature = "tracing", tracing::instrument(level = "trace", skip_all))]
    pub async fn get(&mut self, key: impl AsRef<[u8]>) -> Result<Option<Vec<u8>>, Error> {
        if self.is_in_transaction() {
            return self.get_noted(key.as_ref(), <[u8]>::to_vec).await;
        }
        let key = self.space.place(key.as_ref(), &mut self.place)?;
        let link = &mut self.link;
        attempted!(
            link,
            Repeat::Always,
            link.open.index.get_with(&mut link.client, key, <[u8]>::to_vec).await
        )
    }

    /// As [`AsyncSession::get_with`](crate::AsyncSession::get_with).
    ///
    /// # Errors
    /// Fails as [`AsyncSession::get_with`](crate::AsyncSession::get_with) does.
    #[inline]
    #[cfg_attr(feature = "tracing", tracing::instrument(level = "trace", skip_all))]
    pub async fn get_with<R>(
        &mut self,
        key: impl AsRef<[u8]>,
        f: impl FnOnce(&[u8]) -> R + Send,
    ) -> Result<Option<R>, Error> {
        if self.is_in_transaction() {
            return self.get_noted(key.as_ref(), f).await;
        }
        let key = self.space.place(key.as_ref(), &mut self.place)?;
        let (link, mut f) = (&mut self.link, Some(f));
        let found = attempted!(link, if f.is_some() { Repeat::Always } else { Repeat::Never }, {
            let f = |value: &[u8]| f.take().map(|f| f(value));
            pin!(link.open.index.get_with(&mut link.client, key, f)).await
        });
        Ok(found?.flatten())
    }

    /// As [`AsyncSession::contains_key`](crate::AsyncSession::contains_key).
    ///
    /// # Errors
    /// Fails as [`AsyncSession::contains_key`](crate::AsyncSession::contains_key) does.
    #[inline]
    pub async fn contains_key(&mut self, key: impl AsRef<[u8]>) -> Result<bool, Error> {
        Ok(self.get_with(key, |_| ()).await?.is_some())
    }

    /// As [`AsyncSession::first`](crate::AsyncSession::first).
    ///
    /// # Errors
    /// Fails as [`AsyncSession::first`](crate::AsyncSession::first) does.
    pub async fn first(&mut self) -> Result<Option<KeyValue>, Error> {
        Ok(self.scan_chunk(&ScanRange::all(), 1).await?.pop())
    }

    /// As [`AsyncSession::last`](crate::AsyncSession::last).
    ///
    /// # Errors
    /// Fails as [`AsyncSession::last`](crate::AsyncSession::last) does.
    pub async fn last(&mut self) -> Result<Option<KeyValue>, Error> {
        Ok(self.scan_chunk(&ScanRange::all().reversed(), 1).await?.pop())
    }

    /// As [`AsyncSession::is_empty`](crate::AsyncSession::is_empty).
    ///
    /// # Errors
    /// Fails as [`AsyncSession::is_empty`](crate::AsyncSession::is_empty) does.
    pub async fn is_empty(&mut self) -> Result<bool, Error> {
        Ok(self.scan_with(&ScanRange::all(), 1, |_, _| ()).await? == 0)
    }

    /// As [`AsyncSession::put`](crate::AsyncSession::put).
    ///
    /// # Errors
    /// Fails as [`AsyncSession::put`](crate::AsyncSession::put) does.
    #[inline]
    pub async fn put(&mut self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<PutOutcome, Error> {
        pin!(self.put_if(key, value, Condition::Always)).await
    }

    /// As [`AsyncSession::insert`](crate::AsyncSession::insert).
    ///
    /// # Errors
    /// Fails as [`AsyncSession::insert`](crate::AsyncSession::insert) does.
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
        self.update(key, decide).await?;
        Ok(replaced)
    }

    /// As [`AsyncSession::try_insert`](crate::AsyncSession::try_insert).
    ///
    /// # Errors
    /// Fails as [`AsyncSession::try_insert`](crate::AsyncSession::try_insert) does.
    #[inline]
    pub async fn try_insert(
        &mut self,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
    ) -> Result<bool, Error> {
        Ok(pin!(self.put_if(key, value, Condition::Absent)).await? != PutOutcome::Refused)
    }

    /// As [`AsyncSession::replace`](crate::AsyncSession::replace).
    ///
    /// # Errors
    /// Fails as [`AsyncSession::replace`](crate::AsyncSession::replace) does.
    #[inline]
    pub async fn replace(
        &mut self,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
    ) -> Result<Option<Vec<u8>>, Error> {
        let mut replaced = None;
        let value = value.as_ref();
        let decide = |old: Option<&[u8]>| {
            replaced = old.map(<[u8]>::to_vec);
            if old.is_some() { Change::Put(value.to_vec()) } else { Change::Keep }
        };
        self.update(key, decide).await?;
        Ok(replaced)
    }

    /// As [`AsyncSession::compare_exchange`](crate::AsyncSession::compare_exchange).
    ///
    /// # Errors
    /// Fails as [`AsyncSession::compare_exchange`](crate::AsyncSession::compare_exchange) does.
    #[inline]
    pub async fn compare_exchange(
        &mut self,
        key: impl AsRef<[u8]>,
        expected: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
    ) -> Result<bool, Error> {
        Ok(self.put_if(key, value, Condition::Equals(expected.as_ref())).await? != PutOutcome::Refused)
    }

    /// As [`AsyncSession::put_if`](crate::AsyncSession::put_if).
    ///
    /// # Errors
    /// Fails as [`AsyncSession::put_if`](crate::AsyncSession::put_if) does.
    #[inline]
    #[cfg_attr(feature = "tracing", tracing::instrument(level = "trace", skip_all))]
    pub async fn put_if(
        &mut self,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
        condition: Condition<'_>,
    ) -> Result<PutOutcome, Error> {
        self.verify_writable()?;
        if self.is_in_transaction() {
            return self.put_noted(key.as_ref(), value.as_ref(), condition).await;
        }
        let key = self.space.place(key.as_ref(), &mut self.place)?;
        let value = value.as_ref();
        let link = &mut self.link;
        changed!(link, &[key], |client| pin!(link.open.index.put(client, key, value, condition)).await)
    }

    /// Returns a key's place in the index.
    ///
    /// # Errors
    /// Fails if the key is too long.
    fn place_of(&mut self, key: &[u8]) -> Result<Vec<u8>, Error> {
        Ok(self.space.place(key, &mut self.place)?.to_vec())
    }

    /// As [`AsyncSession::put_many`](crate::AsyncSession::put_many).
    ///
    /// # Errors
    /// Fails as [`AsyncSession::put_many`](crate::AsyncSession::put_many) does.
    #[cfg_attr(feature = "tracing", tracing::instrument(level = "trace", skip_all))]
    pub async fn put_many<K, V>(&mut self, pairs: &[(K, V)]) -> Result<Vec<PutOutcome>, Error>
    where
        K: AsRef<[u8]> + Sync,
        V: AsRef<[u8]> + Sync,
    {
        self.verify_writable()?;
        if self.is_in_transaction() {
            let pairs: Vec<_> = pairs.iter().map(|(key, value)| (key.as_ref(), value.as_ref())).collect();
            return Box::pin(self.put_many_noted(&pairs)).await;
        }
        let places = Places::of(self.space, pairs.iter().map(|(key, _)| key.as_ref()))?;
        let keys = places.to_vec();
        let (link, mut done) = (&mut self.link, Vec::new());
        changed!(link, &keys, |client| {
            let puts = batch::Puts { index: &link.open.index, keys: &keys, pairs };
            let clients = link.lanes.clients(&link.open.pool, client, keys.len())?;
            batch::run(clients, &keys, &puts, &mut done).await
        })?;
        Ok(done.into_iter().flatten().collect())
    }

    /// As [`AsyncSession::discard`](crate::AsyncSession::discard).
    ///
    /// # Errors
    /// Fails as [`AsyncSession::discard`](crate::AsyncSession::discard) does.
    #[inline]
    #[cfg_attr(feature = "tracing", tracing::instrument(level = "trace", skip_all))]
    pub async fn discard(&mut self, key: impl AsRef<[u8]>) -> Result<bool, Error> {
        self.verify_writable()?;
        if self.is_in_transaction() {
            return self.update_noted(key.as_ref(), |_| Change::Remove).await;
        }
        let key = self.space.place(key.as_ref(), &mut self.place)?;
        let link = &mut self.link;
        changed!(link, &[key], |client| link.open.index.delete(client, key).await)
    }

    /// As [`AsyncSession::remove`](crate::AsyncSession::remove).
    ///
    /// # Errors
    /// Fails as [`AsyncSession::remove`](crate::AsyncSession::remove) does.
    pub async fn remove(&mut self, key: impl AsRef<[u8]>) -> Result<Option<Vec<u8>>, Error> {
        let mut removed = None;
        let take = |value: &[u8]| {
            removed = Some(value.to_vec());
            true
        };
        let is_removed = self.remove_if(key, take).await?;
        Ok(removed.filter(|_| is_removed))
    }

    /// As [`AsyncSession::remove_if`](crate::AsyncSession::remove_if).
    ///
    /// # Errors
    /// Fails as [`AsyncSession::remove_if`](crate::AsyncSession::remove_if) does.
    #[inline]
    #[cfg_attr(feature = "tracing", tracing::instrument(level = "trace", skip_all))]
    pub async fn remove_if(
        &mut self,
        key: impl AsRef<[u8]>,
        mut is_wanted: impl FnMut(&[u8]) -> bool + Send,
    ) -> Result<bool, Error> {
        self.verify_writable()?;
        if self.is_in_transaction() {
            let decide = |old: Option<&[u8]>| match old {
                Some(old) if is_wanted(old) => Change::Remove,
                _ => Change::Keep,
            };
            return self.update_noted(key.as_ref(), decide).await;
        }
        let key = self.space.place(key.as_ref(), &mut self.place)?;
        let link = &mut self.link;
        changed!(link, &[key], |client| link.open.index.delete_if(client, key, &mut is_wanted).await)
    }

    /// As [`AsyncSession::remove_range`](crate::AsyncSession::remove_range).
    ///
    /// # Errors
    /// Fails as [`AsyncSession::remove_range`](crate::AsyncSession::remove_range) does.
    #[cfg_attr(feature = "tracing", tracing::instrument(level = "trace", skip_all))]
    pub async fn remove_range(&mut self, range: impl KeyRange) -> Result<u64, Error> {
        let mut left = ScanRange { reverse: false, ..range.into_scan_range() };
        let mut removed = 0;
        loop {
            let mut keys = Vec::new();
            let met = self.scan_with(&left, batch::KEYS, |key, _| keys.push(key.to_vec())).await?;
            let Some(last) = keys.last() else { return Ok(removed) };
            left.from = Bound::Excluded(last.clone());
            removed += self.remove_many(&keys).await?;
            if met < batch::KEYS {
                return Ok(removed);
            }
        }
    }

    /// As [`AsyncSession::clear`](crate::AsyncSession::clear).
    ///
    /// # Errors
    /// Fails as [`AsyncSession::clear`](crate::AsyncSession::clear) does.
    pub async fn clear(&mut self) -> Result<u64, Error> {
        self.remove_range(..).await
    }

    /// As [`AsyncSession::remove_many`](crate::AsyncSession::remove_many).
    ///
    /// # Errors
    /// Fails as [`AsyncSession::remove_many`](crate::AsyncSession::remove_many) does.
    #[cfg_attr(feature = "tracing", tracing::instrument(level = "trace", skip_all))]
    pub async fn remove_many<K: AsRef<[u8]> + Sync>(&mut self, keys: &[K]) -> Result<u64, Error> {
        self.verify_writable()?;
        if self.is_in_transaction() {
            let keys: Vec<&[u8]> = keys.iter().map(AsRef::as_ref).collect();
            return Box::pin(self.remove_many_noted(&keys)).await;
        }
        let places = Places::of(self.space, keys.iter().map(AsRef::as_ref))?;
        let keys = places.to_vec();
        let (link, mut done) = (&mut self.link, Vec::new());
        changed!(link, &keys, |client| {
            let deletes = batch::Deletes { index: &link.open.index, keys: &keys };
            let clients = link.lanes.clients(&link.open.pool, client, keys.len())?;
            batch::run(clients, &keys, &deletes, &mut done).await
        })?;
        Ok(done.into_iter().flatten().map(u64::from).sum())
    }

    /// As [`AsyncSession::update`](crate::AsyncSession::update).
    ///
    /// # Errors
    /// Fails as [`AsyncSession::update`](crate::AsyncSession::update) does.
    #[inline]
    #[cfg_attr(feature = "tracing", tracing::instrument(level = "trace", skip_all))]
    pub async fn update(
        &mut self,
        key: impl AsRef<[u8]>,
        mut decide: impl FnMut(Option<&[u8]>) -> Change + Send,
    ) -> Result<bool, Error> {
        self.verify_writable()?;
        if self.is_in_transaction() {
            return self.update_noted(key.as_ref(), decide).await;
        }
        let mut changes = false;
        let mut decide = |old: Option<&[u8]>, new: &mut Vec<u8>| {
            let (decision, changed) = decide(old).split(old, new);
            changes = changed;
            decision
        };
        let key = self.space.place(key.as_ref(), &mut self.place)?;
        let link = &mut self.link;
        changed!(link, &[key], |client| link.open.index.modify(client, key, &mut decide).await)?;
        Ok(changes)
    }

    /// As [`AsyncSession::get_many`](crate::AsyncSession::get_many).
    ///
    /// # Errors
    /// Fails as [`AsyncSession::get_many`](crate::AsyncSession::get_many) does.
    #[cfg_attr(feature = "tracing", tracing::instrument(level = "trace", skip_all))]
    pub async fn get_many<K: AsRef<[u8]> + Sync>(
        &mut self,
        keys: &[K],
    ) -> Result<Vec<Option<Vec<u8>>>, Error> {
        if self.is_in_transaction() {
            let keys: Vec<&[u8]> = keys.iter().map(AsRef::as_ref).collect();
            return Box::pin(self.get_many_noted(&keys)).await;
        }
        let places = Places::of(self.space, keys.iter().map(AsRef::as_ref))?;
        let keys = places.to_vec();
        let link = &mut self.link;
        attempted!(link, Repeat::Always, link.open.index.multi_get(&mut link.client, &keys).await)
    }

    /// As [`AsyncSession::get_many_first`](crate::AsyncSession::get_many_first).
    ///
    /// # Errors
    /// Fails as [`AsyncSession::get_many_first`](crate::AsyncSession::get_many_first) does.
    #[cfg_attr(feature = "tracing", tracing::instrument(level = "trace", skip_all))]
    pub async fn get_many_first<K: AsRef<[u8]> + Sync>(
        &mut self,
        keys: &[K],
    ) -> Result<Vec<Option<Vec<u8>>>, Error> {
        if self.is_in_transaction() {
            let keys: Vec<&[u8]> = keys.iter().map(AsRef::as_ref).collect();
            return Box::pin(self.get_many_first_noted(&keys)).await;
        }
        let places = Places::of(self.space, keys.iter().map(AsRef::as_ref))?;
        let keys = places.to_vec();
        let link = &mut self.link;
        attempted!(link, Repeat::Always, link.open.index.multi_get_first(&mut link.client, &keys).await)
    }

    /// As [`AsyncSession::prefetch`](crate::AsyncSession::prefetch).
    #[inline]
    pub fn prefetch<'k>(&mut self, keys: impl Iterator<Item = &'k [u8]>) {
        // The operation itself reports a key that is too long.
        if let Ok(places) = Places::of(self.space, keys) {
            self.link.open.index.prefetch(&self.link.client, places.iter());
        }
    }

    /// As [`AsyncSession::scan_chunk`](crate::AsyncSession::scan_chunk).
    ///
    /// # Errors
    /// Fails as [`AsyncSession::scan_chunk`](crate::AsyncSession::scan_chunk) does.
    #[cfg_attr(feature = "tracing", tracing::instrument(level = "trace", skip_all))]
    pub async fn scan_chunk(&mut self, range: &ScanRange, limit: usize) -> Result<Vec<KeyValue>, Error> {
        if self.is_in_transaction() {
            let mut pairs = Vec::new();
            let keep = |key: &[u8], value: &[u8]| pairs.push((key.to_vec(), value.to_vec()));
            Box::pin(self.scan_noted(range, limit, keep)).await?;
            return Ok(pairs);
        }
        let (link, range) = (&mut self.link, self.space.range(range));
        let found =
            attempted!(link, Repeat::Always, link.open.index.scan(&mut link.client, &range, limit).await);
        Ok(self.space.keys(found?))
    }

    /// As [`AsyncSession::scan_with`](crate::AsyncSession::scan_with).
    ///
    /// # Errors
    /// Fails as [`AsyncSession::scan_with`](crate::AsyncSession::scan_with) does.
    #[cfg_attr(feature = "tracing", tracing::instrument(level = "trace", skip_all))]
    pub async fn scan_with(
        &mut self,
        range: &ScanRange,
        limit: usize,
        mut visit: impl FnMut(&[u8], &[u8]) + Send,
    ) -> Result<usize, Error> {
        if self.is_in_transaction() {
            return Box::pin(self.scan_noted(range, limit, visit)).await;
        }
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

    /// As [`AsyncSession::bulk_load`](crate::AsyncSession::bulk_load).
    ///
    /// # Errors
    /// Fails as [`AsyncSession::bulk_load`](crate::AsyncSession::bulk_load) does.
    #[cfg_attr(feature = "tracing", tracing::instrument(level = "trace", skip_all))]
    pub async fn bulk_load<K, V, P>(&mut self, sorted: P) -> Result<u64, Error>
    where
        K: Into<Vec<u8>>,
        V: Into<Vec<u8>>,
        P: IntoIterator<Item = (K, V)>,
        P::IntoIter: Send,
    {
        self.verify_writable()?;
        // Items taken from the iterator cannot be taken again, so room is made before.
        let link = &mut self.link;
        if link.must_rejoin() {
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
        let loaded = {
            // A load pins the client several times.
            let _whole = attempted!(link, Repeat::Always, link.begin_load().await)?;
            link.open.index.bulk_load(&mut link.client, sorted).await
        };
        loaded.map_err(|error| too_long.unwrap_or_else(|| error.into()))
    }

    /// As [`AsyncSession::maintain`](crate::AsyncSession::maintain).
    ///
    /// # Errors
    /// Fails as [`AsyncSession::maintain`](crate::AsyncSession::maintain) does.
    #[cfg_attr(feature = "tracing", tracing::instrument(level = "debug", skip_all))]
    pub async fn maintain(&mut self) -> Result<(), Error> {
        let link = &mut self.link;
        attempted!(link, Repeat::Always, link.open.maintain(&mut link.client, link.store.auto_adjust).await)
    }

    /// As [`AsyncSession::counters`](crate::AsyncSession::counters).
    pub fn counters(&self) -> Counters {
        self.link.counters()
    }
}

impl std::fmt::Debug for Worker {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Worker").field("counters", &self.counters().total()).finish_non_exhaustive()
    }
}
