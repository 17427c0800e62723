//! The operations of the four types that have them, written once for the types that block
//! ([`Store`](crate::Store), [`Session`](crate::Session)) and once, in `async_reads.rs` and
//! `async_writes.rs`, for the types that return futures ([`AsyncStore`](crate::AsyncStore),
//! [`AsyncSession`](crate::AsyncSession)).

mod async_reads;
mod async_writes;

use crate::range::Range;
use crate::{Change, Error, KeyRange, Session, Store};
use darter_fabric::block_on;
use darter_index::{Condition, KeyValue, PutOutcome, ScanRange};
use send_wrapper::SendWrapper;

/// Implements the operations of a type that blocks. The type has a method `run`, which calls a
/// closure with a worker.
macro_rules! blocking_calls {
    ($caller:ty, $range:ty) => {
        impl $caller {
            /// Returns the value of a key; `None` if the key is absent.
            ///
            /// ```
            /// # fn main() -> Result<(), darter::Error> {
            /// # let store = darter::Store::open("mem:16M")?;
            /// store.put("pear", "green")?;
            /// assert_eq!(store.get("pear")?.as_deref(), Some(&b"green"[..]));
            /// assert_eq!(store.get("plum")?, None);
            /// # Ok(())
            /// # }
            /// ```
            ///
            /// # Errors
            /// Fails if the key is too long, a memory node cannot be reached, or the pool is
            /// damaged.
            #[inline]
            pub fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<Vec<u8>>, Error> {
                self.run(|worker| block_on(worker.get(key)))
            }

            /// Calls `read` with the value of a key, without a copy of the value. Returns the
            /// result of `read`; `None` if the key is absent.
            ///
            /// ```
            /// # fn main() -> Result<(), darter::Error> {
            /// # let store = darter::Store::open("mem:16M")?;
            /// store.put("pear", "green")?;
            /// assert_eq!(store.get_with("pear", |value| value.len())?, Some(5));
            /// # Ok(())
            /// # }
            /// ```
            ///
            /// # Errors
            /// Fails as [`Self::get`] does.
            #[inline]
            pub fn get_with<R>(
                &self,
                key: impl AsRef<[u8]>,
                read: impl FnOnce(&[u8]) -> R,
            ) -> Result<Option<R>, Error> {
                let read = SendWrapper::new(read);
                self.run(|worker| block_on(worker.get_with(key, move |value| read.take()(value))))
            }

            /// Returns the values of several keys, in the order of the keys. Up to 256 keys with up to
            /// 1 MiB of values are read in as many round trips as the longest of the searches takes;
            /// more are read in several parts.
            ///
            /// ```
            /// # fn main() -> Result<(), darter::Error> {
            /// # let store = darter::Store::open("mem:16M")?;
            /// store.put("pear", "green")?;
            /// assert_eq!(store.get_many(&["pear", "plum"])?, [Some(b"green".to_vec()), None]);
            /// # Ok(())
            /// # }
            /// ```
            ///
            /// # Errors
            /// Fails as [`Self::get`] does.
            pub fn get_many<K: AsRef<[u8]> + Sync>(&self, keys: &[K]) -> Result<Vec<Option<Vec<u8>>>, Error> {
                self.run(|worker| block_on(worker.get_many(keys)))
            }

            /// Returns whether a key is present.
            ///
            /// ```
            /// # fn main() -> Result<(), darter::Error> {
            /// # let store = darter::Store::open("mem:16M")?;
            /// assert!(!store.contains_key("pear")?);
            /// # Ok(())
            /// # }
            /// ```
            ///
            /// # Errors
            /// Fails as [`Self::get`] does.
            #[inline]
            pub fn contains_key(&self, key: impl AsRef<[u8]>) -> Result<bool, Error> {
                self.run(|worker| block_on(worker.contains_key(key)))
            }

            /// Returns the pair with the smallest key.
            ///
            /// ```
            /// # fn main() -> Result<(), darter::Error> {
            /// # let store = darter::Store::open("mem:16M")?;
            /// store.put_many(&[("pear", "green"), ("plum", "blue")])?;
            /// assert_eq!(store.first()?, Some((b"pear".to_vec(), b"green".to_vec())));
            /// # Ok(())
            /// # }
            /// ```
            ///
            /// # Errors
            /// Fails as [`Self::get`] does.
            pub fn first(&self) -> Result<Option<KeyValue>, Error> {
                self.run(|worker| block_on(worker.first()))
            }

            /// Returns the pair with the largest key.
            ///
            /// ```
            /// # fn main() -> Result<(), darter::Error> {
            /// # let store = darter::Store::open("mem:16M")?;
            /// store.put_many(&[("pear", "green"), ("plum", "blue")])?;
            /// assert_eq!(store.last()?, Some((b"plum".to_vec(), b"blue".to_vec())));
            /// # Ok(())
            /// # }
            /// ```
            ///
            /// # Errors
            /// Fails as [`Self::get`] does.
            pub fn last(&self) -> Result<Option<KeyValue>, Error> {
                self.run(|worker| block_on(worker.last()))
            }

            /// Returns whether there are no keys.
            ///
            /// ```
            /// # fn main() -> Result<(), darter::Error> {
            /// # let store = darter::Store::open("mem:16M")?;
            /// assert!(store.is_empty()?);
            /// # Ok(())
            /// # }
            /// ```
            ///
            /// # Errors
            /// Fails as [`Self::get`] does.
            pub fn is_empty(&self) -> Result<bool, Error> {
                self.run(|worker| block_on(worker.is_empty()))
            }

            /// Stores a value under a key, whether or not the key is present. Returns whether the
            /// key was [inserted](PutOutcome::Inserted) or its value
            /// [replaced](PutOutcome::Replaced).
            ///
            /// ```
            /// # use darter::PutOutcome;
            /// # fn main() -> Result<(), darter::Error> {
            /// # let store = darter::Store::open("mem:16M")?;
            /// assert_eq!(store.put("pear", "green")?, PutOutcome::Inserted);
            /// assert_eq!(store.put("pear", "yellow")?, PutOutcome::Replaced);
            /// # Ok(())
            /// # }
            /// ```
            ///
            /// # Errors
            /// Fails if the key or the value is too long ([`Error::is_too_long`]), the pool is full
            /// ([`Error::is_out_of_space`]) or damaged, or a memory node cannot be reached.
            #[inline]
            pub fn put(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<PutOutcome, Error> {
                self.run(|worker| block_on(worker.put(key, value)))
            }

            /// Stores a value under a key and returns the value that it replaces.
            ///
            /// ```
            /// # fn main() -> Result<(), darter::Error> {
            /// # let store = darter::Store::open("mem:16M")?;
            /// assert_eq!(store.insert("pear", "green")?, None);
            /// assert_eq!(store.insert("pear", "yellow")?, Some(b"green".to_vec()));
            /// # Ok(())
            /// # }
            /// ```
            ///
            /// # Errors
            /// Fails as [`Self::put`] does.
            #[inline]
            pub fn insert(
                &self,
                key: impl AsRef<[u8]>,
                value: impl AsRef<[u8]>,
            ) -> Result<Option<Vec<u8>>, Error> {
                self.run(|worker| block_on(worker.insert(key, value)))
            }

            /// Stores a value under a key if the key is absent. Returns whether it was.
            ///
            /// ```
            /// # fn main() -> Result<(), darter::Error> {
            /// # let store = darter::Store::open("mem:16M")?;
            /// assert!(store.try_insert("lock", "process 1")?);
            /// assert!(!store.try_insert("lock", "process 2")?);
            /// # Ok(())
            /// # }
            /// ```
            ///
            /// # Errors
            /// Fails as [`Self::put`] does.
            #[inline]
            pub fn try_insert(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<bool, Error> {
                self.run(|worker| block_on(worker.try_insert(key, value)))
            }

            /// Replaces the value of a key if the key is present. Returns the former value; `None`
            /// if the key is absent.
            ///
            /// ```
            /// # fn main() -> Result<(), darter::Error> {
            /// # let store = darter::Store::open("mem:16M")?;
            /// assert_eq!(store.replace("pear", "green")?, None);
            /// assert!(!store.contains_key("pear")?);
            /// # Ok(())
            /// # }
            /// ```
            ///
            /// # Errors
            /// Fails as [`Self::put`] does.
            #[inline]
            pub fn replace(
                &self,
                key: impl AsRef<[u8]>,
                value: impl AsRef<[u8]>,
            ) -> Result<Option<Vec<u8>>, Error> {
                self.run(|worker| block_on(worker.replace(key, value)))
            }

            /// Replaces the value of a key if it equals `expected`. Returns whether it did.
            ///
            /// ```
            /// # fn main() -> Result<(), darter::Error> {
            /// # let store = darter::Store::open("mem:16M")?;
            /// store.put("lock", "process 1")?;
            /// assert!(!store.compare_exchange("lock", "process 2", "free")?);
            /// assert!(store.compare_exchange("lock", "process 1", "free")?);
            /// # Ok(())
            /// # }
            /// ```
            ///
            /// # Errors
            /// Fails as [`Self::put`] does.
            #[inline]
            pub fn compare_exchange(
                &self,
                key: impl AsRef<[u8]>,
                expected: impl AsRef<[u8]>,
                value: impl AsRef<[u8]>,
            ) -> Result<bool, Error> {
                self.run(|worker| block_on(worker.compare_exchange(key, expected, value)))
            }

            /// Stores a value under a key if a condition holds.
            ///
            /// ```
            /// # use darter::{Condition, PutOutcome};
            /// # fn main() -> Result<(), darter::Error> {
            /// # let store = darter::Store::open("mem:16M")?;
            /// assert_eq!(store.put_if("pear", "green", Condition::Present)?, PutOutcome::Refused);
            /// # Ok(())
            /// # }
            /// ```
            ///
            /// # Errors
            /// Fails as [`Self::put`] does.
            #[inline]
            pub fn put_if(
                &self,
                key: impl AsRef<[u8]>,
                value: impl AsRef<[u8]>,
                condition: Condition<'_>,
            ) -> Result<PutOutcome, Error> {
                self.run(|worker| block_on(worker.put_if(key, value, condition)))
            }

            /// Stores several pairs, up to 16 at a time: on memory nodes this takes a fraction of
            /// the round trips of one put after the other. Returns the outcomes, in the order of
            /// the pairs. Of pairs with the same key, the last one takes effect last.
            ///
            /// Each put is atomic by itself. All of them together are not: other clients can read
            /// some of the pairs before the others are stored.
            ///
            /// ```
            /// # fn main() -> Result<(), darter::Error> {
            /// # let store = darter::Store::open("mem:16M")?;
            /// store.put_many(&[("pear", "green"), ("plum", "blue"), ("pear", "yellow")])?;
            /// assert_eq!(store.get("pear")?.as_deref(), Some(&b"yellow"[..]));
            /// # Ok(())
            /// # }
            /// ```
            ///
            /// # Errors
            /// Fails as [`Self::put`] does, with the error of one of the pairs. Each of the other
            /// pairs is stored or not.
            pub fn put_many<K, V>(&self, pairs: &[(K, V)]) -> Result<Vec<PutOutcome>, Error>
            where
                K: AsRef<[u8]> + Sync,
                V: AsRef<[u8]> + Sync,
            {
                self.run(|worker| block_on(worker.put_many(pairs)))
            }

            /// Puts, keeps or removes a key as `decide` returns for its value, which is `None` if
            /// the key is absent. Returns whether anything changed.
            ///
            /// `decide` is called again if another client changes the key before the decision takes
            /// effect. The decision of its last call takes effect.
            ///
            /// ```
            /// # use darter::Change;
            /// # fn main() -> Result<(), darter::Error> {
            /// # let store = darter::Store::open("mem:16M")?;
            /// for _ in 0..3 {
            ///     store.update("visits", |count| Change::Put(vec![count.map_or(1, |count| count[0] + 1)]))?;
            /// }
            /// assert_eq!(store.get("visits")?, Some(vec![3]));
            /// # Ok(())
            /// # }
            /// ```
            ///
            /// # Errors
            /// Fails as [`Self::put`] does.
            #[inline]
            pub fn update(
                &self,
                key: impl AsRef<[u8]>,
                decide: impl FnMut(Option<&[u8]>) -> Change,
            ) -> Result<bool, Error> {
                let mut decide = SendWrapper::new(decide);
                self.run(|worker| block_on(worker.update(key, move |value| (*decide)(value))))
            }

            /// Removes a key and returns its value; `None` if the key is absent. [`Self::discard`]
            /// does the same without a copy of the value.
            ///
            /// ```
            /// # fn main() -> Result<(), darter::Error> {
            /// # let store = darter::Store::open("mem:16M")?;
            /// store.put("pear", "green")?;
            /// assert_eq!(store.remove("pear")?, Some(b"green".to_vec()));
            /// assert_eq!(store.remove("pear")?, None);
            /// # Ok(())
            /// # }
            /// ```
            ///
            /// # Errors
            /// Fails if the key is too long, a memory node cannot be reached, or the pool is
            /// damaged. A key can be removed from a full pool.
            #[inline]
            pub fn remove(&self, key: impl AsRef<[u8]>) -> Result<Option<Vec<u8>>, Error> {
                self.run(|worker| block_on(worker.remove(key)))
            }

            /// Removes a key. Returns whether it was present.
            ///
            /// ```
            /// # fn main() -> Result<(), darter::Error> {
            /// # let store = darter::Store::open("mem:16M")?;
            /// store.put("pear", "green")?;
            /// assert!(store.discard("pear")?);
            /// assert!(!store.discard("pear")?);
            /// # Ok(())
            /// # }
            /// ```
            ///
            /// # Errors
            /// Fails as [`Self::remove`] does.
            #[inline]
            pub fn discard(&self, key: impl AsRef<[u8]>) -> Result<bool, Error> {
                self.run(|worker| block_on(worker.discard(key)))
            }

            /// Removes a key if `predicate` returns `true` for its value. Returns whether it did.
            ///
            /// `predicate` is called again if another client changes the key before it is removed.
            /// The value of its last call is the one that was removed.
            ///
            /// ```
            /// # fn main() -> Result<(), darter::Error> {
            /// # let store = darter::Store::open("mem:16M")?;
            /// store.put("token", "expires 7")?;
            /// assert!(!store.remove_if("token", |value| value == b"expires 5")?);
            /// assert!(store.remove_if("token", |value| value == b"expires 7")?);
            /// # Ok(())
            /// # }
            /// ```
            ///
            /// # Errors
            /// Fails as [`Self::remove`] does.
            #[inline]
            pub fn remove_if(
                &self,
                key: impl AsRef<[u8]>,
                predicate: impl FnMut(&[u8]) -> bool,
            ) -> Result<bool, Error> {
                let mut predicate = SendWrapper::new(predicate);
                self.run(|worker| block_on(worker.remove_if(key, move |value| (*predicate)(value))))
            }

            /// Removes several keys, up to 16 at a time. Returns the number of keys that were
            /// present.
            ///
            /// ```
            /// # fn main() -> Result<(), darter::Error> {
            /// # let store = darter::Store::open("mem:16M")?;
            /// store.put_many(&[("pear", "green"), ("plum", "blue")])?;
            /// assert_eq!(store.remove_many(&["pear", "fig"])?, 1);
            /// # Ok(())
            /// # }
            /// ```
            ///
            /// # Errors
            /// Fails as [`Self::remove`] does, with the error of one of the keys. Each of the other
            /// keys is removed or not.
            pub fn remove_many<K: AsRef<[u8]> + Sync>(&self, keys: &[K]) -> Result<u64, Error> {
                self.run(|worker| block_on(worker.remove_many(keys)))
            }

            /// Removes the keys of a range. Returns their number. Each removal is atomic by itself;
            /// keys that other clients insert during the call may remain.
            ///
            /// ```
            /// # fn main() -> Result<(), darter::Error> {
            /// # let store = darter::Store::open("mem:16M")?;
            /// store.put_many(&[("log/1", ""), ("log/2", ""), ("log/3", "")])?;
            /// assert_eq!(store.remove_range("log/2"..)?, 2);
            /// # Ok(())
            /// # }
            /// ```
            ///
            /// # Errors
            /// Fails as [`Self::remove`] does. Keys that were removed before the error stay
            /// removed.
            pub fn remove_range(&self, range: impl KeyRange) -> Result<u64, Error> {
                self.run(|worker| block_on(worker.remove_range(range)))
            }

            /// Removes all keys. Returns their number.
            ///
            /// ```
            /// # fn main() -> Result<(), darter::Error> {
            /// # let store = darter::Store::open("mem:16M")?;
            /// store.put("pear", "green")?;
            /// assert_eq!(store.clear()?, 1);
            /// # Ok(())
            /// # }
            /// ```
            ///
            /// # Errors
            /// Fails as [`Self::remove_range`] does.
            pub fn clear(&self) -> Result<u64, Error> {
                self.run(|worker| block_on(worker.clear()))
            }

            /// Returns the pairs whose keys are in a range, in ascending order; `rev()` iterates in
            /// descending order. Keys can be put and removed during the iteration.
            ///
            /// ```
            /// # fn main() -> Result<(), darter::Error> {
            /// # let store = darter::Store::open("mem:16M")?;
            /// store.put_many(&[("fig", "blue"), ("pear", "green"), ("plum", "red")])?;
            /// for pair in store.range("a".."plum").rev() {
            ///     let (key, value) = pair?;
            ///     println!("{} is {}", key.escape_ascii(), value.escape_ascii());
            ///     store.discard(key)?;
            /// }
            /// assert_eq!(store.range(..).count(), 1);
            /// # Ok(())
            /// # }
            /// ```
            pub fn range(&self, range: impl KeyRange) -> $range {
                self.iter(range.into_scan_range())
            }

            /// Returns the pairs whose keys begin with `prefix`, in ascending order; `rev()`
            /// iterates in descending order.
            ///
            /// ```
            /// # fn main() -> Result<(), darter::Error> {
            /// # let store = darter::Store::open("mem:16M")?;
            /// store.put_many(&[("fig", "blue"), ("pear", "green"), ("plum", "red")])?;
            /// assert_eq!(store.prefix("p").count(), 2);
            /// # Ok(())
            /// # }
            /// ```
            pub fn prefix(&self, prefix: impl AsRef<[u8]>) -> $range {
                self.iter(ScanRange::prefix(prefix.as_ref()))
            }

            /// Returns the first `limit` pairs of a range, in its direction. Fewer pairs mean that
            /// the range has no more.
            ///
            /// ```
            /// # use darter::ScanRange;
            /// # fn main() -> Result<(), darter::Error> {
            /// # let store = darter::Store::open("mem:16M")?;
            /// store.put_many(&[("fig", "blue"), ("pear", "green"), ("plum", "red")])?;
            /// assert_eq!(store.scan_chunk(&ScanRange::all(), 2)?.len(), 2);
            /// # Ok(())
            /// # }
            /// ```
            ///
            /// # Errors
            /// Fails as [`Self::get`] does.
            pub fn scan_chunk(&self, range: &ScanRange, limit: usize) -> Result<Vec<KeyValue>, Error> {
                self.run(|worker| block_on(worker.scan_chunk(range, limit)))
            }

            /// Calls `visit` with the first `limit` pairs of a range, in its direction, without a
            /// copy of the pairs. Returns their number.
            ///
            /// ```
            /// # use darter::ScanRange;
            /// # fn main() -> Result<(), darter::Error> {
            /// # let store = darter::Store::open("mem:16M")?;
            /// store.put_many(&[("fig", "blue"), ("pear", "green")])?;
            /// let mut bytes = 0;
            /// store.scan_with(&ScanRange::all(), usize::MAX, |key, value| bytes += key.len() + value.len())?;
            /// assert_eq!(bytes, 16);
            /// # Ok(())
            /// # }
            /// ```
            ///
            /// # Errors
            /// Fails as [`Self::get`] does.
            pub fn scan_with(
                &self,
                range: &ScanRange,
                limit: usize,
                visit: impl FnMut(&[u8], &[u8]),
            ) -> Result<usize, Error> {
                let mut visit = SendWrapper::new(visit);
                let visit = move |key: &[u8], value: &[u8]| (*visit)(key, value);
                self.run(|worker| block_on(worker.scan_with(range, limit, visit)))
            }

            /// Fills an empty store with pairs in strictly ascending order of their keys. Returns
            /// their number. Other clients see none of them before all are stored.
            ///
            /// ```
            /// # fn main() -> Result<(), darter::Error> {
            /// # let store = darter::Store::open("mem:16M")?;
            /// assert_eq!(store.bulk_load((0_u32..1000).map(|n| (n.to_be_bytes(), "value")))?, 1000);
            /// # Ok(())
            /// # }
            /// ```
            ///
            /// # Errors
            /// Fails if the store has keys, if the keys are out of order, and as [`Self::put`]
            /// does. The store is then still empty.
            pub fn bulk_load<K, V, P>(&self, sorted: P) -> Result<u64, Error>
            where
                K: Into<Vec<u8>>,
                V: Into<Vec<u8>>,
                P: IntoIterator<Item = (K, V)>,
                P::IntoIter: Send,
            {
                self.run(|worker| block_on(worker.bulk_load(sorted)))
            }

            /// Does the upkeep that is due. For programs that open the store without its upkeep
            /// thread ([`crate::StoreOptions::maintenance`]).
            ///
            /// ```
            /// # fn main() -> Result<(), darter::Error> {
            /// let store = darter::Store::options().maintenance(false).open("mem:16M")?;
            /// store.maintain()?; // several times within a lease
            /// # Ok(())
            /// # }
            /// ```
            ///
            /// # Errors
            /// Fails if a memory node cannot be reached; call it again later.
            pub fn maintain(&self) -> Result<(), Error> {
                self.run(|worker| block_on(worker.maintain()))
            }
        }
    };
}

blocking_calls!(Store, Range<'static>);
blocking_calls!(Session, Range<'_>);
