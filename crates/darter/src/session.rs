//! One thread's access to a store: every call returns when its operation is done.
//!
//! Each call runs the matching future of [`AsyncSession`] on the calling thread. On the local
//! provider that future is ready at its first poll, so the two faces compile to the same.
//!
//! Calls take `&self`, so that a loop over a scan may delete what the scan returns, and a closure
//! that decides about one key may read another. A session therefore holds an `AsyncSession` for
//! each call under way, one inside another, and opens one more only when a call begins within
//! another for the first time.

use crate::key_space::KeySpace;
use crate::membership::Membership;
use crate::{AsyncSession, Change, Error, KeyRange};
use darter_fabric::{Counters, Fabric, block_on};
use darter_index::{Condition, KeyValue, PutOutcome, ScanRange};
use send_wrapper::SendWrapper;
use std::cell::RefCell;
use std::sync::Arc;

/// One thread's access to a [`crate::Store`]. It may move between threads, but is not shared by
/// several: open one for each.
pub struct Session<F: Fabric = crate::DefaultFabric> {
    /// Those that no call uses now.
    idle: RefCell<Vec<Box<AsyncSession<F>>>>,
    membership: Arc<Membership<F>>,
    space: KeySpace,
}

impl<F: Fabric> Session<F> {
    pub(crate) fn new(inner: AsyncSession<F>) -> Self {
        let (membership, space) = (Arc::clone(inner.membership()), inner.space());
        Self { idle: RefCell::new(vec![Box::new(inner)]), membership, space }
    }

    /// Runs an operation on an idle session, or on a new one inside another operation.
    #[inline]
    pub(crate) fn run<R>(
        &self,
        operation: impl FnOnce(&mut AsyncSession<F>) -> Result<R, Error>,
    ) -> Result<R, Error> {
        let idle = self.idle.borrow_mut().pop();
        let mut session = match idle {
            Some(session) => session,
            None => self.open_another()?,
        };
        let result = operation(&mut session);
        self.idle.borrow_mut().push(session);
        result
    }

    #[cold]
    fn open_another(&self) -> Result<Box<AsyncSession<F>>, Error> {
        Ok(Box::new(AsyncSession::open(&self.membership, self.space)?))
    }

    /// Returns the value of a key.
    ///
    /// # Errors
    /// Fails if the pool is damaged or fails, or the key is too long.
    #[inline]
    pub fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<Vec<u8>>, Error> {
        self.run(|session| block_on(session.get(key)))
    }

    /// Returns what `f` makes of a key's value, without copying the value out first.
    ///
    /// # Errors
    /// Fails as [`Session::get`] does.
    #[inline]
    pub fn get_with<R>(&self, key: impl AsRef<[u8]>, f: impl FnOnce(&[u8]) -> R) -> Result<Option<R>, Error> {
        let f = SendWrapper::new(f);
        self.run(|session| block_on(session.get_with(key, move |value| f.take()(value))))
    }

    /// Returns whether a key is present.
    ///
    /// # Errors
    /// Fails as [`Session::get`] does.
    #[inline]
    pub fn contains_key(&self, key: impl AsRef<[u8]>) -> Result<bool, Error> {
        self.run(|session| block_on(session.contains_key(key)))
    }

    /// Returns the pair with the least key.
    ///
    /// # Errors
    /// Fails as [`Session::get`] does.
    pub fn first(&self) -> Result<Option<KeyValue>, Error> {
        self.run(|session| block_on(session.first()))
    }

    /// Returns the pair with the greatest key.
    ///
    /// # Errors
    /// Fails as [`Session::get`] does.
    pub fn last(&self) -> Result<Option<KeyValue>, Error> {
        self.run(|session| block_on(session.last()))
    }

    /// Returns whether the store has no key.
    ///
    /// # Errors
    /// Fails as [`Session::get`] does.
    pub fn is_empty(&self) -> Result<bool, Error> {
        self.run(|session| block_on(session.is_empty()))
    }

    /// Stores a value under a key, whether or not the key is there: an upsert.
    ///
    /// # Errors
    /// Fails if the pool is full ([`Error::is_out_of_space`]), damaged or failing, or key or value
    /// are too long.
    #[inline]
    pub fn put(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<PutOutcome, Error> {
        self.run(|session| block_on(session.put(key, value)))
    }

    /// Stores a value under a key and returns the value that it replaces, as a map of the standard
    /// library does. [`Session::put`] spares the copy of the old value.
    ///
    /// # Errors
    /// Fails as [`Session::put`] does.
    #[inline]
    pub fn insert(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<Option<Vec<u8>>, Error> {
        self.run(|session| block_on(session.insert(key, value)))
    }

    /// Stores a value under a key if the key is absent; returns whether it was.
    ///
    /// # Errors
    /// Fails as [`Session::put`] does.
    #[inline]
    pub fn insert_if_absent(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<bool, Error> {
        self.run(|session| block_on(session.insert_if_absent(key, value)))
    }

    /// Replaces a key's value if the key is present; returns whether it was.
    ///
    /// # Errors
    /// Fails as [`Session::put`] does.
    #[inline]
    pub fn update(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<bool, Error> {
        self.run(|session| block_on(session.update(key, value)))
    }

    /// Replaces a key's value if it equals `expected`; returns whether it did.
    ///
    /// # Errors
    /// Fails as [`Session::put`] does.
    #[inline]
    pub fn replace_if_equal(
        &self,
        key: impl AsRef<[u8]>,
        expected: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
    ) -> Result<bool, Error> {
        self.run(|session| block_on(session.replace_if_equal(key, expected, value)))
    }

    /// Stores a value under a key if `condition` holds.
    ///
    /// # Errors
    /// Fails as [`Session::put`] does.
    #[inline]
    pub fn put_if(
        &self,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
        condition: Condition<'_>,
    ) -> Result<PutOutcome, Error> {
        self.run(|session| block_on(session.put_if(key, value, condition)))
    }

    /// Stores many pairs, several at a time: on memory nodes in a fraction of the round trips that
    /// one after the other take. Returns what became of each, in their order. Of pairs with the same
    /// key the last one stays. Each put is linearizable by itself, and all of them together are not:
    /// others may see some and not yet the rest.
    ///
    /// ```
    /// # fn main() -> Result<(), darter::Error> {
    /// # let session = darter::Store::open("mem:16M")?.session()?;
    /// session.put_many(&[("pear", "green"), ("plum", "blue"), ("pear", "yellow")])?;
    /// assert_eq!(session.get("pear")?.as_deref(), Some(&b"yellow"[..]));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Fails as [`Session::put`] does, with the first error of any of them; each of the others is
    /// then stored or not.
    pub fn put_many<K, V>(&self, pairs: &[(K, V)]) -> Result<Vec<PutOutcome>, Error>
    where
        K: AsRef<[u8]> + Sync,
        V: AsRef<[u8]> + Sync,
    {
        self.run(|session| block_on(session.put_many(pairs)))
    }

    /// Removes a key; returns whether it was there.
    ///
    /// # Errors
    /// Fails if the pool is damaged or fails, or the key is too long. A full pool never keeps a key
    /// from going.
    #[inline]
    pub fn delete(&self, key: impl AsRef<[u8]>) -> Result<bool, Error> {
        self.run(|session| block_on(session.delete(key)))
    }

    /// Removes a key if `is_wanted` returns true for its value; returns whether it did. `is_wanted`
    /// may be called several times; the value of its last call is the one that was removed.
    ///
    /// ```
    /// # fn main() -> Result<(), darter::Error> {
    /// # let session = darter::Store::open("mem:16M")?.session()?;
    /// session.put("token", "expires 7")?;
    /// assert!(!session.delete_if("token", |value| value == b"expires 5")?);
    /// assert!(session.delete_if("token", |value| value == b"expires 7")?);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Fails as [`Session::delete`] does.
    #[inline]
    pub fn delete_if(
        &self,
        key: impl AsRef<[u8]>,
        is_wanted: impl FnMut(&[u8]) -> bool,
    ) -> Result<bool, Error> {
        let mut is_wanted = SendWrapper::new(is_wanted);
        self.run(|session| block_on(session.delete_if(key, move |value| (*is_wanted)(value))))
    }

    /// Removes the keys of a range that are present while it runs; returns how many it removed. Not
    /// atomic: others see the range shrink, and keys that come meanwhile may stay.
    ///
    /// ```
    /// # fn main() -> Result<(), darter::Error> {
    /// # let session = darter::Store::open("mem:16M")?.session()?;
    /// session.put_many(&[("log/1", ""), ("log/2", ""), ("log/3", "")])?;
    /// assert_eq!(session.delete_range("log/2"..)?, 2);
    /// assert_eq!(session.clear()?, 1);
    /// assert!(session.is_empty()?);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Fails as [`Session::delete`] does; what was removed by then stays so.
    pub fn delete_range(&self, range: impl KeyRange) -> Result<u64, Error> {
        self.run(|session| block_on(session.delete_range(range)))
    }

    /// Removes all keys; returns how many. As [`Session::delete_range`] of `..`.
    ///
    /// # Errors
    /// Fails as [`Session::delete_range`] does.
    pub fn clear(&self) -> Result<u64, Error> {
        self.delete_range(..)
    }

    /// Puts, keeps or removes a key as `decide` returns for its value, `None` if the key is absent.
    /// `decide` is called again if another client came between: its last decision takes effect.
    /// Returns whether that changed anything; the removal of an absent key does not.
    ///
    /// ```
    /// # use darter::Change;
    /// # fn main() -> Result<(), darter::Error> {
    /// # let session = darter::Store::open("mem:16M")?.session()?;
    /// for _ in 0..3 {
    ///     session.modify("visits", |count| Change::Put(vec![count.map_or(1, |count| count[0] + 1)]))?;
    /// }
    /// assert_eq!(session.get("visits")?.as_deref(), Some(&[3][..]));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Fails as [`Session::put`] does.
    #[inline]
    pub fn modify(
        &self,
        key: impl AsRef<[u8]>,
        decide: impl FnMut(Option<&[u8]>) -> Change,
    ) -> Result<bool, Error> {
        let mut decide = SendWrapper::new(decide);
        self.run(|session| block_on(session.modify(key, move |value| (*decide)(value))))
    }

    /// Returns the values of several keys, in their order, in the round trips of the longest search
    /// among them.
    ///
    /// # Errors
    /// Fails as [`Session::get`] does.
    pub fn multi_get<K: AsRef<[u8]> + Sync>(&self, keys: &[K]) -> Result<Vec<Option<Vec<u8>>>, Error> {
        self.run(|session| block_on(session.multi_get(keys)))
    }

    /// Returns the first `limit` pairs of a range in its direction, in one go. Fewer mean the range
    /// is exhausted.
    ///
    /// # Errors
    /// Fails as [`Session::get`] does.
    pub fn scan_chunk(&self, range: &ScanRange, limit: usize) -> Result<Vec<KeyValue>, Error> {
        self.run(|session| block_on(session.scan_chunk(range, limit)))
    }

    /// Hands the first `limit` pairs of a range, in its direction, to `visit` where they lie,
    /// without a copy; returns how many there were.
    ///
    /// # Errors
    /// Fails as [`Session::get`] does.
    pub fn scan_with(
        &self,
        range: &ScanRange,
        limit: usize,
        visit: impl FnMut(&[u8], &[u8]),
    ) -> Result<usize, Error> {
        let mut visit = SendWrapper::new(visit);
        self.run(|session| block_on(session.scan_with(range, limit, move |key, value| (*visit)(key, value))))
    }

    /// Fills an empty index from strictly ascending keys; returns how many. Nothing is visible
    /// before the end.
    ///
    /// # Errors
    /// Fails if the index has keys, the input is out of order, or as [`Session::put`]. The index is
    /// then still empty.
    pub fn bulk_load<K, V, P>(&self, sorted: P) -> Result<u64, Error>
    where
        K: Into<Vec<u8>>,
        V: Into<Vec<u8>>,
        P: IntoIterator<Item = (K, V)>,
        P::IntoIter: Send,
    {
        self.run(|session| block_on(session.bulk_load(sorted)))
    }

    /// Does the upkeep that is due, for programs that run without the upkeep thread.
    ///
    /// # Errors
    /// Fails if the pool fails; call again later.
    pub fn maintain(&self) -> Result<(), Error> {
        self.run(|session| block_on(session.maintain()))
    }

    /// Returns what this session's operations have cost so far: round trips, verbs, bytes, retries,
    /// by kind of operation. An operation under way counts when it is over.
    pub fn counters(&self) -> Counters {
        self.idle.borrow().iter().map(|session| session.counters()).sum()
    }
}

impl<F: Fabric> std::fmt::Debug for Session<F> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Session").field("counters", &self.counters().total()).finish_non_exhaustive()
    }
}
