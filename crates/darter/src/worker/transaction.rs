//! The transaction mode of a [`Worker`]: its operations read and change a buffer, which a commit
//! applies to the index at one moment.
//!
//! The first read of a key goes to the index, and its result is kept; later reads return the kept
//! value, or the one that the transaction will store.

use super::Worker;
use super::overlay::{KEYS_MAX, Overlay};
use crate::key_space::Places;
use crate::link::{Repeat, attempted, changed};
use crate::{Change, Error};
use darter_index::{Commit, Condition, OrderedIndex, PutOutcome, ScanRange};

/// The largest number of bytes that a transaction of a worker keeps, keys and values together.
const BYTES_MAX: usize = 256 << 20;

fn outside() -> ! {
    unreachable!("the caller has checked that there is a transaction")
}

impl Worker {
    /// Begins a transaction: until [`Worker::commit_transaction`] or [`Worker::roll_back`], reads
    /// and scans see the index's pairs as this worker has changed them, and changes are kept in
    /// memory. Conditions and closures see the same values. A transaction that has begun before is
    /// rolled back.
    ///
    /// `attempt` says how often the caller has run the transaction before: of two transactions that
    /// meet, the one with more attempts goes on.
    ///
    /// A commit verifies each key that was read, also those that a scan has returned. It does not
    /// notice a key that another client has inserted into the range of a scan since the scan.
    /// [`Worker::bulk_load`] is not part of a transaction.
    ///
    /// ```
    /// # fn main() -> Result<(), darter::Error> {
    /// # let store = darter::Store::open("mem:16M")?;
    /// use darter::engine::{Engine, KeySpace};
    ///
    /// let mut worker = store.worker_in(KeySpace::Program)?;
    /// darter::block_on(async {
    ///     worker.begin_transaction(0);
    ///     worker.put("pear", "green").await?;
    ///     worker.put("plum", "blue").await?;
    ///     assert!(worker.contains_key("pear").await? && !store.contains_key("pear")?);
    ///     assert!(worker.commit_transaction().await?);
    ///     assert_eq!(store.range(..).count(), 2);
    ///     Ok(())
    /// })
    /// # }
    /// ```
    pub fn begin_transaction(&mut self, attempt: u16) {
        self.begin_within(attempt, BYTES_MAX);
    }

    /// As [`Worker::begin_transaction`], with another limit on the bytes that are kept.
    pub(crate) fn begin_within(&mut self, attempt: u16, bytes_max: usize) {
        self.transaction = Some(Box::new(Overlay::new(attempt, bytes_max)));
    }

    /// Forgets all that the transaction in progress has read and changed.
    pub(crate) fn start_over(&mut self) {
        self.overlay().clear();
    }

    /// The number of keys of the transaction in progress.
    pub(crate) fn transaction_keys(&self) -> usize {
        self.transaction.as_ref().map_or(0, |overlay| overlay.len())
    }

    /// Returns whether a transaction is in progress.
    ///
    /// ```
    /// # fn main() -> Result<(), darter::Error> {
    /// # let store = darter::Store::open("mem:16M")?;
    /// # use darter::engine::{Engine, KeySpace};
    /// let mut worker = store.worker_in(KeySpace::Program)?;
    /// worker.begin_transaction(0);
    /// assert!(worker.is_in_transaction());
    /// # Ok(())
    /// # }
    /// ```
    #[inline]
    pub fn is_in_transaction(&self) -> bool {
        self.transaction.is_some()
    }

    /// Returns whether the transaction in progress will store or remove a value.
    ///
    /// ```
    /// # fn main() -> Result<(), darter::Error> {
    /// # let store = darter::Store::open("mem:16M")?;
    /// # use darter::engine::{Engine, KeySpace};
    /// let mut worker = store.worker_in(KeySpace::Program)?;
    /// worker.begin_transaction(0);
    /// darter::block_on(worker.get("pear"))?;
    /// assert!(!worker.is_changing());
    /// darter::block_on(worker.put("pear", "green"))?;
    /// assert!(worker.is_changing());
    /// # Ok(())
    /// # }
    /// ```
    pub fn is_changing(&self) -> bool {
        self.transaction.as_ref().is_some_and(|overlay| overlay.is_changing())
    }

    /// Ends the transaction without any change.
    ///
    /// ```
    /// # fn main() -> Result<(), darter::Error> {
    /// # let store = darter::Store::open("mem:16M")?;
    /// # use darter::engine::{Engine, KeySpace};
    /// let mut worker = store.worker_in(KeySpace::Program)?;
    /// worker.begin_transaction(0);
    /// darter::block_on(worker.put("pear", "green"))?;
    /// worker.roll_back();
    /// assert!(!darter::block_on(worker.contains_key("pear"))?);
    /// # Ok(())
    /// # }
    /// ```
    pub fn roll_back(&mut self) {
        self.transaction = None;
    }

    /// Ends the transaction, and applies its changes at one moment at which all keys that it has
    /// read have the values that it has read. Returns false if there is no such moment; then
    /// nothing has changed, and the transaction may be run again. Returns true if no transaction is
    /// in progress.
    ///
    /// ```
    /// # fn main() -> Result<(), darter::Error> {
    /// # let store = darter::Store::open("mem:16M")?;
    /// # use darter::engine::{Engine, KeySpace};
    /// let mut worker = store.worker_in(KeySpace::Program)?;
    /// darter::block_on(async {
    ///     worker.begin_transaction(0);
    ///     worker.insert("plum", "blue").await?;
    ///     store.put("plum", "red")?; // another client, say
    ///     assert!(!worker.commit_transaction().await?);
    ///     assert_eq!(store.get("plum")?.as_deref(), Some(&b"red"[..]));
    ///     Ok(())
    /// })
    /// # }
    /// ```
    ///
    /// # Errors
    /// Fails as [`AsyncTransaction::commit`](crate::AsyncTransaction::commit) does.
    #[cfg_attr(feature = "tracing", tracing::instrument(level = "trace", skip_all))]
    pub async fn commit_transaction(&mut self) -> Result<bool, Error> {
        let Some(overlay) = self.transaction.take().filter(|overlay| !overlay.is_trivial()) else {
            return Ok(true);
        };
        let (accesses, link) = (overlay.accesses(), &mut self.link);
        let changes: Vec<&[u8]> =
            accesses.iter().filter(|access| access.write.is_some()).map(|access| access.key).collect();
        let outcome = changed!(link, &changes, |client| link
            .open
            .index
            .commit(client, &accesses, overlay.attempt)
            .await);
        Ok(outcome? == Commit::Done)
    }

    /// Returns the value that the transaction has read of a key from the index, whatever it has
    /// stored since; `None` if the key was absent or is not read yet.
    ///
    /// ```
    /// # fn main() -> Result<(), darter::Error> {
    /// # let store = darter::Store::open("mem:16M")?;
    /// # use darter::engine::{Engine, KeySpace};
    /// store.put("pear", "green")?;
    /// let mut worker = store.worker_in(KeySpace::Program)?;
    /// worker.begin_transaction(0);
    /// darter::block_on(worker.insert("pear", "ripe"))?;
    /// assert_eq!(worker.read_by_transaction("pear")?, Some(&b"green"[..]));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Fails if the key is too long.
    pub fn read_by_transaction(&mut self, key: impl AsRef<[u8]>) -> Result<Option<&[u8]>, Error> {
        let place = self.place_of(key.as_ref())?;
        Ok(self.transaction.as_ref().and_then(|overlay| overlay.read(&place)))
    }

    fn overlay(&mut self) -> &mut Overlay {
        self.transaction.as_mut().unwrap_or_else(|| outside())
    }

    /// Reads the first of the keys whose values the transaction does not know, and keeps them.
    async fn note_unknown(&mut self, places: &[&[u8]]) -> Result<(), Error> {
        let overlay = self.overlay();
        let unknown: Vec<&[u8]> =
            places.iter().copied().filter(|place| overlay.known(place).is_none()).collect();
        if !unknown.is_empty() {
            let link = &mut self.link;
            let values = attempted!(
                link,
                Repeat::Always,
                link.open.index.read_versions(&mut link.client, &unknown).await
            )?;
            let overlay = self.overlay();
            for (place, (value, version)) in unknown.into_iter().zip(values) {
                overlay.note(place, value, version)?;
            }
        }
        Ok(())
    }

    /// Reads a key, unless the transaction knows its value, and returns its place.
    async fn noted(&mut self, key: &[u8]) -> Result<Vec<u8>, Error> {
        let place = self.place_of(key)?;
        if self.overlay().known(&place).is_none() {
            // Boxed, since a transaction reads a key once, but may use it many times.
            Box::pin(self.note_unknown(&[&place])).await?;
        }
        Ok(place)
    }

    pub(super) async fn get_noted<R>(
        &mut self,
        key: &[u8],
        f: impl FnOnce(&[u8]) -> R + Send,
    ) -> Result<Option<R>, Error> {
        let place = self.noted(key).await?;
        Ok(self.overlay().value(&place).map(f))
    }

    pub(super) async fn put_noted(
        &mut self,
        key: &[u8],
        value: &[u8],
        condition: Condition<'_>,
    ) -> Result<PutOutcome, Error> {
        let place = self.noted(key).await?;
        let overlay = self.overlay();
        let old = overlay.value(&place);
        if !condition.holds_for(old) {
            return Ok(PutOutcome::Refused);
        }
        let outcome = if old.is_some() { PutOutcome::Replaced } else { PutOutcome::Inserted };
        overlay.write(&place, Some(value.to_vec()))?;
        Ok(outcome)
    }

    /// Stores a value under a key, or removes it, in the transaction in progress, without reading the
    /// key.
    ///
    /// ```
    /// # fn main() -> Result<(), darter::Error> {
    /// # let store = darter::Store::open("mem:16M")?;
    /// # use darter::engine::{Engine, KeySpace};
    /// let mut worker = store.worker_in(KeySpace::Program)?;
    /// worker.begin_transaction(0);
    /// worker.write_blind("pear", Some(b"green".to_vec()))?;
    /// worker.write_blind("plum", None)?;
    /// assert!(darter::block_on(worker.commit_transaction())?);
    /// assert_eq!(store.get("pear")?.as_deref(), Some(&b"green"[..]));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Fails if the key is too long, if the transaction has become too large, or if the store is
    /// read-only.
    ///
    /// # Panics
    /// Panics if no transaction is in progress.
    pub fn write_blind(&mut self, key: impl AsRef<[u8]>, value: Option<Vec<u8>>) -> Result<(), Error> {
        self.verify_writable()?;
        let place = self.place_of(key.as_ref())?;
        self.overlay().write(&place, value)
    }

    /// As [`Worker::update`], in the transaction in progress. Its future is much smaller.
    ///
    /// ```
    /// # fn main() -> Result<(), darter::Error> {
    /// # let store = darter::Store::open("mem:16M")?;
    /// use darter::Change;
    /// use darter::engine::{Engine, KeySpace};
    ///
    /// let mut worker = store.worker_in(KeySpace::Program)?;
    /// worker.begin_transaction(0);
    /// let ripen = |_: Option<&[u8]>| Change::Put(b"ripe".to_vec());
    /// assert!(darter::block_on(worker.update_in_transaction("pear", ripen))?);
    /// assert!(darter::block_on(worker.commit_transaction())?);
    /// assert_eq!(store.get("pear")?.as_deref(), Some(&b"ripe"[..]));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Fails as [`Worker::update`] does.
    ///
    /// # Panics
    /// Panics if no transaction is in progress.
    pub async fn update_in_transaction(
        &mut self,
        key: impl AsRef<[u8]>,
        decide: impl FnOnce(Option<&[u8]>) -> Change + Send,
    ) -> Result<bool, Error> {
        self.verify_writable()?;
        self.update_noted(key.as_ref(), decide).await
    }

    pub(super) async fn update_noted(
        &mut self,
        key: &[u8],
        decide: impl FnOnce(Option<&[u8]>) -> Change + Send,
    ) -> Result<bool, Error> {
        let place = self.noted(key).await?;
        let overlay = self.overlay();
        let old = overlay.value(&place);
        let existed = old.is_some();
        match decide(old) {
            Change::Keep => Ok(false),
            Change::Put(value) => overlay.write(&place, Some(value)).map(|()| true),
            Change::Remove if !existed => Ok(false),
            Change::Remove => overlay.write(&place, None).map(|()| true),
        }
    }

    /// Reads the first of several keys, as [`Worker::get_many_first`] does, and returns the places
    /// of all of them.
    async fn note_first(&mut self, keys: &[&[u8]]) -> Result<Places, Error> {
        let places = Places::of(self.space, keys.iter().copied())?;
        self.note_unknown(&places.iter().collect::<Vec<_>>()).await?;
        Ok(places)
    }

    #[cold]
    pub(super) async fn get_many_first_noted(
        &mut self,
        keys: &[&[u8]],
    ) -> Result<Vec<Option<Vec<u8>>>, Error> {
        let places = self.note_first(keys).await?;
        let overlay = self.overlay();
        let known = places.iter().map_while(|place| overlay.known(place).cloned());
        Ok(known.collect())
    }

    #[cold]
    pub(super) async fn get_many_noted(&mut self, keys: &[&[u8]]) -> Result<Vec<Option<Vec<u8>>>, Error> {
        let mut values = Vec::with_capacity(keys.len());
        while values.len() < keys.len() {
            values.extend(self.get_many_first_noted(&keys[values.len()..]).await?);
        }
        Ok(values)
    }

    /// Puts several pairs, after reading their keys together.
    #[cold]
    pub(super) async fn put_many_noted(
        &mut self,
        pairs: &[(&[u8], &[u8])],
    ) -> Result<Vec<PutOutcome>, Error> {
        self.get_many_noted(&pairs.iter().map(|pair| pair.0).collect::<Vec<_>>()).await?;
        let mut outcomes = Vec::with_capacity(pairs.len());
        for (key, value) in pairs {
            outcomes.push(self.put_noted(key, value, Condition::Always).await?);
        }
        Ok(outcomes)
    }

    /// Removes several keys, after reading them together.
    #[cold]
    pub(super) async fn remove_many_noted(&mut self, keys: &[&[u8]]) -> Result<u64, Error> {
        self.get_many_noted(keys).await?;
        let mut removed = 0;
        for key in keys {
            removed += u64::from(self.update_noted(key, |_| Change::Remove).await?);
        }
        Ok(removed)
    }

    /// Visits the first pairs of a range. From the index it reads as many more as the transaction
    /// has removed, so that enough remain.
    #[cold]
    pub(super) async fn scan_noted(
        &mut self,
        range: &ScanRange,
        limit: usize,
        mut visit: impl FnMut(&[u8], &[u8]) + Send,
    ) -> Result<usize, Error> {
        let (space, range) = (self.space, self.space.range(range));
        let absent = self.overlay().in_range(&range).filter(|(_, value)| value.is_none()).count();
        let asked = limit.saturating_add(absent).min(KEYS_MAX + 1);
        let link = &mut self.link;
        let found =
            attempted!(link, Repeat::Always, link.open.index.scan(&mut link.client, &range, asked).await)?;
        let overlay = self.overlay();
        for (place, value) in found {
            overlay.note(&place, Some(value), None)?;
        }
        let pairs = overlay.first_of(&range, limit);
        for (place, value) in &pairs {
            visit(space.key(place), value);
        }
        Ok(pairs.len())
    }
}

#[cfg(test)]
mod tests;
