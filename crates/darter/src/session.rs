//! One thread's access to a store: every call returns when its operation is done.
//!
//! Each call runs the matching future of [`AsyncSession`] on the calling thread. On the local
//! provider that future is ready at its first poll, so the two faces compile to the same.

use crate::scan::{Cursor, Scan};
use crate::{AsyncSession, Error, KeyRange};
use darter_fabric::{Counters, Fabric, block_on};
use darter_index::{Condition, Decision, KeyValue, PutOutcome, ScanRange};

/// One thread's access to a [`crate::Store`]. It may move between threads, but does one operation
/// at a time.
#[derive(Debug)]
pub struct Session<F: Fabric = crate::DefaultFabric> {
    inner: AsyncSession<F>,
}

impl<F: Fabric> Session<F> {
    pub(crate) fn new(inner: AsyncSession<F>) -> Self {
        Self { inner }
    }

    /// Returns the value of a key.
    ///
    /// # Errors
    /// Fails if the pool is damaged or fails, or the key is too long.
    #[inline]
    pub fn get(&mut self, key: impl AsRef<[u8]>) -> Result<Option<Vec<u8>>, Error> {
        block_on(self.inner.get(key))
    }

    /// Returns what `f` makes of a key's value, without copying the value out first.
    ///
    /// # Errors
    /// Fails as [`Session::get`] does.
    #[inline]
    pub fn get_with<R>(
        &mut self,
        key: impl AsRef<[u8]>,
        f: impl FnOnce(&[u8]) -> R + Send,
    ) -> Result<Option<R>, Error> {
        block_on(self.inner.get_with(key, f))
    }

    /// Stores a value under a key, whether or not the key is there: an upsert.
    ///
    /// # Errors
    /// Fails if the pool is full ([`Error::is_out_of_space`]), damaged or failing, or key or value
    /// are too long.
    #[inline]
    pub fn put(&mut self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<PutOutcome, Error> {
        block_on(self.inner.put(key, value))
    }

    /// Stores a value under a key if the key is absent; returns whether it was.
    ///
    /// # Errors
    /// Fails as [`Session::put`] does.
    #[inline]
    pub fn insert(&mut self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<bool, Error> {
        block_on(self.inner.insert(key, value))
    }

    /// Replaces a key's value if the key is present; returns whether it was.
    ///
    /// # Errors
    /// Fails as [`Session::put`] does.
    #[inline]
    pub fn update(&mut self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<bool, Error> {
        block_on(self.inner.update(key, value))
    }

    /// Replaces a key's value if it equals `expected`; returns whether it did.
    ///
    /// # Errors
    /// Fails as [`Session::put`] does.
    #[inline]
    pub fn replace_if_equal(
        &mut self,
        key: impl AsRef<[u8]>,
        expected: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
    ) -> Result<bool, Error> {
        block_on(self.inner.replace_if_equal(key, expected, value))
    }

    /// Stores a value under a key if `condition` holds.
    ///
    /// # Errors
    /// Fails as [`Session::put`] does.
    #[inline]
    pub fn put_if(
        &mut self,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
        condition: Condition<'_>,
    ) -> Result<PutOutcome, Error> {
        block_on(self.inner.put_if(key, value, condition))
    }

    /// Removes a key; returns whether it was there.
    ///
    /// # Errors
    /// Fails if the pool is damaged or fails, or the key is too long. A full pool never keeps a key
    /// from going.
    #[inline]
    pub fn delete(&mut self, key: impl AsRef<[u8]>) -> Result<bool, Error> {
        block_on(self.inner.delete(key))
    }

    /// Removes a key if `is_wanted` returns true for its value; returns whether it did. `is_wanted`
    /// may be called several times; the value of its last call is the one that was removed.
    ///
    /// ```
    /// # fn main() -> Result<(), darter::Error> {
    /// # let mut session = darter::Store::open("mem:16M")?.session()?;
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
        &mut self,
        key: impl AsRef<[u8]>,
        is_wanted: impl FnMut(&[u8]) -> bool + Send,
    ) -> Result<bool, Error> {
        block_on(self.inner.delete_if(key, is_wanted))
    }

    /// Puts, changes or removes a key as `decide` returns for its value, `None` if the key is
    /// absent; for [`Decision::Put`] it writes the new value into the buffer. `decide` is called
    /// again, with an empty buffer, if another client came between: its last decision takes effect,
    /// and is returned. [`Decision::Remove`] of a key that is absent changes nothing.
    ///
    /// ```
    /// # use darter::Decision;
    /// # fn main() -> Result<(), darter::Error> {
    /// # let mut session = darter::Store::open("mem:16M")?.session()?;
    /// for _ in 0..3 {
    ///     session.modify("visits", |count, new| {
    ///         new.push(count.map_or(1, |count| count[0] + 1));
    ///         Decision::Put
    ///     })?;
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
        &mut self,
        key: impl AsRef<[u8]>,
        decide: impl FnMut(Option<&[u8]>, &mut Vec<u8>) -> Decision + Send,
    ) -> Result<Decision, Error> {
        block_on(self.inner.modify(key, decide))
    }

    /// Returns the values of several keys, in their order, in the round trips of the longest search
    /// among them.
    ///
    /// # Errors
    /// Fails as [`Session::get`] does.
    pub fn multi_get<K: AsRef<[u8]> + Sync>(&mut self, keys: &[K]) -> Result<Vec<Option<Vec<u8>>>, Error> {
        block_on(self.inner.multi_get(keys))
    }

    /// Returns the pairs whose keys lie in a range, in order, from either end.
    ///
    /// ```
    /// # fn main() -> Result<(), darter::Error> {
    /// # let mut session = darter::Store::open("mem:16M")?.session()?;
    /// for key in ["a", "b", "c"] {
    ///     session.put(key, "")?;
    /// }
    /// let keys = session.scan("a".."c").rev().map(|pair| Ok(pair?.0)).collect::<Result<Vec<_>, darter::Error>>()?;
    /// assert_eq!(keys, [b"b", b"a"]);
    /// # Ok(())
    /// # }
    /// ```
    pub fn scan(&mut self, range: impl KeyRange) -> Scan<'_, F> {
        Scan::new(&mut self.inner, Cursor::new(range.into_scan_range()))
    }

    /// Returns the pairs whose keys begin with `prefix`, in order, from either end.
    pub fn scan_prefix(&mut self, prefix: impl AsRef<[u8]>) -> Scan<'_, F> {
        self.scan(ScanRange::prefix(prefix.as_ref()))
    }

    /// Returns the first `limit` pairs of a range in its direction, in one go. Fewer mean the range
    /// is exhausted.
    ///
    /// # Errors
    /// Fails as [`Session::get`] does.
    pub fn scan_chunk(&mut self, range: &ScanRange, limit: usize) -> Result<Vec<KeyValue>, Error> {
        block_on(self.inner.scan_chunk(range, limit))
    }

    /// Hands the first `limit` pairs of a range, in its direction, to `visit` where they lie,
    /// without a copy; returns how many there were.
    ///
    /// # Errors
    /// Fails as [`Session::get`] does.
    pub fn scan_with(
        &mut self,
        range: &ScanRange,
        limit: usize,
        visit: impl FnMut(&[u8], &[u8]) + Send,
    ) -> Result<usize, Error> {
        block_on(self.inner.scan_with(range, limit, visit))
    }

    /// Fills an empty index from strictly ascending keys; returns how many. Nothing is visible
    /// before the end.
    ///
    /// # Errors
    /// Fails if the index has keys, the input is out of order, or as [`Session::put`]. The index is
    /// then still empty.
    pub fn bulk_load<K, V, I>(&mut self, sorted: I) -> Result<u64, Error>
    where
        K: Into<Vec<u8>>,
        V: Into<Vec<u8>>,
        I: IntoIterator<Item = (K, V)>,
        I::IntoIter: Send,
    {
        block_on(self.inner.bulk_load(sorted))
    }

    /// Does the upkeep that is due, for programs that run without the upkeep thread.
    ///
    /// # Errors
    /// Fails if the pool fails; call again later.
    pub fn maintain(&mut self) -> Result<(), Error> {
        block_on(self.inner.maintain())
    }

    /// Returns what this session's operations have cost so far: round trips, verbs, bytes, retries,
    /// by kind of operation.
    pub fn counters(&self) -> Counters {
        self.inner.counters()
    }
}
