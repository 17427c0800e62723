//! One task's access to a store: every operation is a future.
//!
//! The futures are `Send` and hold no lock. Dropping one at any await is safe: the index's changes
//! are single atomic words, and the pool keeps the session pinned until its posted verbs have
//! completed (design rule R6).

use crate::Error;
use crate::open_index::OpenIndex;
use crate::open_store::OpenStore;
use darter_fabric::{Counters, Endpoint, Fabric};
use darter_index::{Condition, Decision, KeyValue, OrderedIndex, PutOutcome, ScanRange};
use darter_pool::Client;
use std::sync::Arc;

/// One task's access to a [`crate::Store`]. Methods take `&mut self`: a session does one operation
/// at a time.
pub struct AsyncSession<F: Fabric = crate::DefaultFabric> {
    client: Client<F>,
    open: Arc<OpenIndex<F>>,
    store: Arc<OpenStore<F>>,
}

impl<F: Fabric> AsyncSession<F> {
    pub(crate) fn new(client: Client<F>, store: Arc<OpenStore<F>>) -> Self {
        Self { client, open: Arc::clone(&store.open), store }
    }

    /// Returns the value of a key.
    ///
    /// # Errors
    /// Fails if the pool is damaged or fails, or the key is too long.
    #[inline]
    pub async fn get(&mut self, key: impl AsRef<[u8]>) -> Result<Option<Vec<u8>>, Error> {
        Ok(self.open.index.get_with(&mut self.client, key.as_ref(), <[u8]>::to_vec).await?)
    }

    /// Returns what `f` makes of a key's value, without copying the value out first.
    ///
    /// # Errors
    /// Fails as [`AsyncSession::get`] does.
    #[inline]
    pub async fn get_with<R>(
        &mut self,
        key: impl AsRef<[u8]>,
        f: impl FnOnce(&[u8]) -> R + Send,
    ) -> Result<Option<R>, Error> {
        Ok(self.open.index.get_with(&mut self.client, key.as_ref(), f).await?)
    }

    /// Stores a value under a key, whether or not the key is there: an upsert.
    ///
    /// # Errors
    /// Fails if the pool is full ([`Error::is_out_of_space`]), damaged or failing, or key or value
    /// are too long.
    #[inline]
    pub async fn put(&mut self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<PutOutcome, Error> {
        self.put_if(key, value, Condition::Always).await
    }

    /// Stores a value under a key if the key is absent; returns whether it was.
    ///
    /// # Errors
    /// Fails as [`AsyncSession::put`] does.
    #[inline]
    pub async fn insert(&mut self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<bool, Error> {
        Ok(self.put_if(key, value, Condition::Absent).await? != PutOutcome::Refused)
    }

    /// Replaces a key's value if the key is present; returns whether it was.
    ///
    /// # Errors
    /// Fails as [`AsyncSession::put`] does.
    #[inline]
    pub async fn update(&mut self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<bool, Error> {
        Ok(self.put_if(key, value, Condition::Present).await? != PutOutcome::Refused)
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
    pub async fn put_if(
        &mut self,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
        condition: Condition<'_>,
    ) -> Result<PutOutcome, Error> {
        Ok(self.open.index.put(&mut self.client, key.as_ref(), value.as_ref(), condition).await?)
    }

    /// Removes a key; returns whether it was there.
    ///
    /// # Errors
    /// As [`AsyncSession::put`]: a collapse may need space, but a full pool never keeps a key from
    /// going.
    #[inline]
    pub async fn delete(&mut self, key: impl AsRef<[u8]>) -> Result<bool, Error> {
        Ok(self.open.index.delete(&mut self.client, key.as_ref()).await?)
    }

    /// Removes a key if `is_wanted` returns true for its value; returns whether it did. `is_wanted`
    /// may be called several times; the value of its last call is the one that was removed.
    ///
    /// # Errors
    /// Fails as [`AsyncSession::delete`] does.
    #[inline]
    pub async fn delete_if(
        &mut self,
        key: impl AsRef<[u8]>,
        is_wanted: impl FnMut(&[u8]) -> bool + Send,
    ) -> Result<bool, Error> {
        Ok(self.open.index.delete_if(&mut self.client, key.as_ref(), is_wanted).await?)
    }

    /// Puts, changes or removes a key as `decide` returns for its value, `None` if the key is
    /// absent; for [`Decision::Put`] it writes the new value into the buffer. `decide` is called
    /// again, with an empty buffer, if another client came between: its last decision takes effect,
    /// and is returned. [`Decision::Remove`] of a key that is absent changes nothing.
    ///
    /// # Errors
    /// Fails as [`AsyncSession::put`] does.
    #[inline]
    pub async fn modify(
        &mut self,
        key: impl AsRef<[u8]>,
        decide: impl FnMut(Option<&[u8]>, &mut Vec<u8>) -> Decision + Send,
    ) -> Result<Decision, Error> {
        Ok(self.open.index.modify(&mut self.client, key.as_ref(), decide).await?)
    }

    /// Returns the values of several keys, in their order, in the round trips of the longest search
    /// among them.
    ///
    /// # Errors
    /// Fails as [`AsyncSession::get`] does.
    pub async fn multi_get<K: AsRef<[u8]> + Sync>(
        &mut self,
        keys: &[K],
    ) -> Result<Vec<Option<Vec<u8>>>, Error> {
        let keys: Vec<&[u8]> = keys.iter().map(AsRef::as_ref).collect();
        Ok(self.open.index.multi_get(&mut self.client, &keys).await?)
    }

    /// Prefetches what operations on these keys are going to read, for callers that know their keys
    /// ahead. In memory of this machine the cache misses then overlap with other work; elsewhere
    /// nothing happens.
    #[inline]
    pub fn prefetch<'k>(&mut self, keys: impl Iterator<Item = &'k [u8]>) {
        self.open.index.prefetch(&self.client, keys);
    }

    /// Returns the first `limit` pairs of a range in its direction, in one go. Fewer mean the range
    /// is exhausted.
    ///
    /// # Errors
    /// Fails as [`AsyncSession::get`] does.
    pub async fn scan_chunk(&mut self, range: &ScanRange, limit: usize) -> Result<Vec<KeyValue>, Error> {
        Ok(self.open.index.scan(&mut self.client, range, limit).await?)
    }

    /// Hands the first `limit` pairs of a range, in its direction, to `visit` where they lie,
    /// without a copy; returns how many there were.
    ///
    /// # Errors
    /// Fails as [`AsyncSession::get`] does.
    pub async fn scan_with(
        &mut self,
        range: &ScanRange,
        limit: usize,
        visit: impl FnMut(&[u8], &[u8]) + Send,
    ) -> Result<usize, Error> {
        Ok(self.open.index.scan_with(&mut self.client, range, limit, visit).await?)
    }

    /// Fills an empty index from strictly ascending keys; returns how many. Nothing is visible
    /// before the end.
    ///
    /// # Errors
    /// Fails if the index has keys, the input is out of order, or as [`AsyncSession::put`]. The
    /// index is then still empty.
    pub async fn bulk_load<K, V, I>(&mut self, sorted: I) -> Result<u64, Error>
    where
        K: Into<Vec<u8>>,
        V: Into<Vec<u8>>,
        I: IntoIterator<Item = (K, V)>,
        I::IntoIter: Send,
    {
        let sorted = sorted.into_iter().map(|(key, value)| (key.into(), value.into()));
        Ok(self.open.index.bulk_load(&mut self.client, sorted).await?)
    }

    /// Does the upkeep that is due, for programs that run without the upkeep thread.
    ///
    /// # Errors
    /// Fails if the pool fails; call again later.
    pub async fn maintain(&mut self) -> Result<(), Error> {
        self.open.maintain(&mut self.client, self.store.auto_adjust).await
    }

    /// Returns what this session's operations have cost so far: round trips, verbs, bytes, retries,
    /// by kind of operation. All zero when the fabric does not count.
    pub fn counters(&self) -> Counters {
        self.client.endpoint().counters().copied().unwrap_or_default()
    }
}

impl<F: Fabric> std::fmt::Debug for AsyncSession<F> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AsyncSession").field("counters", &self.counters().total()).finish_non_exhaustive()
    }
}
