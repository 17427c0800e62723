//! The writing operations that return futures, for the types that have them.

use crate::{AsyncSession, AsyncStore, Change, Error, KeyRange};
use darter_index::{Condition, PutOutcome};

/// Implements the writing operations of a type whose operations are futures. The type has a method
/// `worker`, which leases a worker.
macro_rules! async_writes {
    ($caller:ty, $blocking:literal) => {
        impl $caller {
            #[doc = concat!("As [`", $blocking, "::put`](crate::", $blocking, "::put).")]
            ///
            /// ```
            /// # use darter::PutOutcome;
            /// # fn main() -> Result<(), darter::Error> {
            /// # darter::block_on(async {
            /// # let store = darter::AsyncStore::open("mem:16M").await?;
            /// assert_eq!(store.put("pear", "green").await?, PutOutcome::Inserted);
            /// assert_eq!(store.put("pear", "yellow").await?, PutOutcome::Replaced);
            /// # Ok(())
            /// # })
            /// # }
            /// ```
            ///
            /// # Errors
            /// Fails if the key or the value is too long ([`Error::is_too_long`]), the pool is full
            /// ([`Error::is_out_of_space`]) or damaged, or a memory node cannot be reached.
            #[inline]
            pub async fn put(
                &self,
                key: impl AsRef<[u8]>,
                value: impl AsRef<[u8]>,
            ) -> Result<PutOutcome, Error> {
                self.worker()?.put(key, value).await
            }

            #[doc = concat!("As [`", $blocking, "::insert`](crate::", $blocking, "::insert).")]
            ///
            /// ```
            /// # fn main() -> Result<(), darter::Error> {
            /// # darter::block_on(async {
            /// # let store = darter::AsyncStore::open("mem:16M").await?;
            /// assert_eq!(store.insert("pear", "green").await?, None);
            /// assert_eq!(store.insert("pear", "yellow").await?, Some(b"green".to_vec()));
            /// # Ok(())
            /// # })
            /// # }
            /// ```
            ///
            /// # Errors
            /// Fails as [`Self::put`] does.
            pub async fn insert(
                &self,
                key: impl AsRef<[u8]>,
                value: impl AsRef<[u8]>,
            ) -> Result<Option<Vec<u8>>, Error> {
                self.worker()?.insert(key, value).await
            }

            #[doc = concat!("As [`", $blocking, "::try_insert`](crate::", $blocking, "::try_insert).")]
            ///
            /// ```
            /// # fn main() -> Result<(), darter::Error> {
            /// # darter::block_on(async {
            /// # let store = darter::AsyncStore::open("mem:16M").await?;
            /// assert!(store.try_insert("lock", "task 1").await?);
            /// assert!(!store.try_insert("lock", "task 2").await?);
            /// # Ok(())
            /// # })
            /// # }
            /// ```
            ///
            /// # Errors
            /// Fails as [`Self::put`] does.
            #[inline]
            pub async fn try_insert(
                &self,
                key: impl AsRef<[u8]>,
                value: impl AsRef<[u8]>,
            ) -> Result<bool, Error> {
                self.worker()?.try_insert(key, value).await
            }

            #[doc = concat!("As [`", $blocking, "::replace`](crate::", $blocking, "::replace).")]
            ///
            /// ```
            /// # fn main() -> Result<(), darter::Error> {
            /// # darter::block_on(async {
            /// # let store = darter::AsyncStore::open("mem:16M").await?;
            /// assert_eq!(store.replace("pear", "green").await?, None, "absent, so not stored");
            /// store.put("pear", "green").await?;
            /// assert_eq!(store.replace("pear", "yellow").await?, Some(b"green".to_vec()));
            /// # Ok(())
            /// # })
            /// # }
            /// ```
            ///
            /// # Errors
            /// Fails as [`Self::put`] does.
            pub async fn replace(
                &self,
                key: impl AsRef<[u8]>,
                value: impl AsRef<[u8]>,
            ) -> Result<Option<Vec<u8>>, Error> {
                self.worker()?.replace(key, value).await
            }

            #[doc = concat!("As [`", $blocking, "::compare_exchange`](crate::", $blocking, "::compare_exchange).")]
            ///
            /// ```
            /// # fn main() -> Result<(), darter::Error> {
            /// # darter::block_on(async {
            /// # let store = darter::AsyncStore::open("mem:16M").await?;
            /// store.put("lock", "task 1").await?;
            /// assert!(!store.compare_exchange("lock", "task 2", "free").await?);
            /// assert!(store.compare_exchange("lock", "task 1", "free").await?);
            /// # Ok(())
            /// # })
            /// # }
            /// ```
            ///
            /// # Errors
            /// Fails as [`Self::put`] does.
            #[inline]
            pub async fn compare_exchange(
                &self,
                key: impl AsRef<[u8]>,
                expected: impl AsRef<[u8]>,
                value: impl AsRef<[u8]>,
            ) -> Result<bool, Error> {
                self.worker()?.compare_exchange(key, expected, value).await
            }

            #[doc = concat!("As [`", $blocking, "::put_if`](crate::", $blocking, "::put_if).")]
            ///
            /// ```
            /// # use darter::{Condition, PutOutcome};
            /// # fn main() -> Result<(), darter::Error> {
            /// # darter::block_on(async {
            /// # let store = darter::AsyncStore::open("mem:16M").await?;
            /// store.put("pear", "green").await?;
            /// let outcome = store.put_if("pear", "yellow", Condition::Absent).await?;
            /// assert_eq!(outcome, PutOutcome::Refused);
            /// # Ok(())
            /// # })
            /// # }
            /// ```
            ///
            /// # Errors
            /// Fails as [`Self::put`] does.
            #[inline]
            pub async fn put_if(
                &self,
                key: impl AsRef<[u8]>,
                value: impl AsRef<[u8]>,
                condition: Condition<'_>,
            ) -> Result<PutOutcome, Error> {
                self.worker()?.put_if(key, value, condition).await
            }

            #[doc = concat!("As [`", $blocking, "::put_many`](crate::", $blocking, "::put_many).")]
            ///
            /// ```
            /// # use darter::PutOutcome;
            /// # fn main() -> Result<(), darter::Error> {
            /// # darter::block_on(async {
            /// # let store = darter::AsyncStore::open("mem:16M").await?;
            /// store.put("pear", "green").await?;
            /// let outcomes = store.put_many(&[("pear", "yellow"), ("plum", "blue")]).await?;
            /// assert_eq!(outcomes, [PutOutcome::Replaced, PutOutcome::Inserted]);
            /// # Ok(())
            /// # })
            /// # }
            /// ```
            ///
            /// # Errors
            /// Fails as [`Self::put`] does, with the error of one of the pairs. Each of the other
            /// pairs is stored or not.
            pub async fn put_many<K, V>(&self, pairs: &[(K, V)]) -> Result<Vec<PutOutcome>, Error>
            where
                K: AsRef<[u8]> + Sync,
                V: AsRef<[u8]> + Sync,
            {
                self.worker()?.put_many(pairs).await
            }

            #[doc = concat!("As [`", $blocking, "::update`](crate::", $blocking, "::update).")]
            ///
            /// ```
            /// # use darter::Change;
            /// # fn main() -> Result<(), darter::Error> {
            /// # darter::block_on(async {
            /// # let store = darter::AsyncStore::open("mem:16M").await?;
            /// let add = |old: Option<&[u8]>| Change::Put(vec![old.map_or(1, |old| old[0] + 1)]);
            /// for _ in 0..3 {
            ///     store.update("visits", add).await?;
            /// }
            /// assert_eq!(store.get("visits").await?, Some(vec![3]));
            /// # Ok(())
            /// # })
            /// # }
            /// ```
            ///
            /// # Errors
            /// Fails as [`Self::put`] does.
            #[inline]
            pub async fn update(
                &self,
                key: impl AsRef<[u8]>,
                decide: impl FnMut(Option<&[u8]>) -> Change + Send,
            ) -> Result<bool, Error> {
                self.worker()?.update(key, decide).await
            }

            #[doc = concat!("As [`", $blocking, "::remove`](crate::", $blocking, "::remove).")]
            ///
            /// ```
            /// # fn main() -> Result<(), darter::Error> {
            /// # darter::block_on(async {
            /// # let store = darter::AsyncStore::open("mem:16M").await?;
            /// store.put("pear", "green").await?;
            /// assert_eq!(store.remove("pear").await?, Some(b"green".to_vec()));
            /// assert_eq!(store.remove("pear").await?, None);
            /// # Ok(())
            /// # })
            /// # }
            /// ```
            ///
            /// # Errors
            /// Fails if the key is too long, a memory node cannot be reached, or the pool is
            /// damaged. A key can be removed from a full pool.
            pub async fn remove(&self, key: impl AsRef<[u8]>) -> Result<Option<Vec<u8>>, Error> {
                self.worker()?.remove(key).await
            }

            #[doc = concat!("As [`", $blocking, "::discard`](crate::", $blocking, "::discard).")]
            ///
            /// ```
            /// # fn main() -> Result<(), darter::Error> {
            /// # darter::block_on(async {
            /// # let store = darter::AsyncStore::open("mem:16M").await?;
            /// store.put("pear", "green").await?;
            /// assert!(store.discard("pear").await?);
            /// assert!(!store.discard("pear").await?);
            /// # Ok(())
            /// # })
            /// # }
            /// ```
            ///
            /// # Errors
            /// Fails as [`Self::remove`] does.
            #[inline]
            pub async fn discard(&self, key: impl AsRef<[u8]>) -> Result<bool, Error> {
                self.worker()?.discard(key).await
            }

            #[doc = concat!("As [`", $blocking, "::remove_if`](crate::", $blocking, "::remove_if).")]
            ///
            /// ```
            /// # fn main() -> Result<(), darter::Error> {
            /// # darter::block_on(async {
            /// # let store = darter::AsyncStore::open("mem:16M").await?;
            /// store.put("token", "expires 7").await?;
            /// assert!(!store.remove_if("token", |value| value == b"expires 5").await?);
            /// assert!(store.remove_if("token", |value| value == b"expires 7").await?);
            /// # Ok(())
            /// # })
            /// # }
            /// ```
            ///
            /// # Errors
            /// Fails as [`Self::remove`] does.
            #[inline]
            pub async fn remove_if(
                &self,
                key: impl AsRef<[u8]>,
                predicate: impl FnMut(&[u8]) -> bool + Send,
            ) -> Result<bool, Error> {
                self.worker()?.remove_if(key, predicate).await
            }

            #[doc = concat!("As [`", $blocking, "::remove_many`](crate::", $blocking, "::remove_many).")]
            ///
            /// ```
            /// # fn main() -> Result<(), darter::Error> {
            /// # darter::block_on(async {
            /// # let store = darter::AsyncStore::open("mem:16M").await?;
            /// store.put_many(&[("pear", "green"), ("plum", "blue")]).await?;
            /// assert_eq!(store.remove_many(&["pear", "fig"]).await?, 1);
            /// # Ok(())
            /// # })
            /// # }
            /// ```
            ///
            /// # Errors
            /// Fails as [`Self::remove`] does, with the error of one of the keys. Each of the other
            /// keys is removed or not.
            pub async fn remove_many<K: AsRef<[u8]> + Sync>(&self, keys: &[K]) -> Result<u64, Error> {
                self.worker()?.remove_many(keys).await
            }

            #[doc = concat!("As [`", $blocking, "::remove_range`](crate::", $blocking, "::remove_range).")]
            ///
            /// ```
            /// # fn main() -> Result<(), darter::Error> {
            /// # darter::block_on(async {
            /// # let store = darter::AsyncStore::open("mem:16M").await?;
            /// store.put_many(&[("log/1", ""), ("log/2", ""), ("log/3", "")]).await?;
            /// assert_eq!(store.remove_range("log/2"..).await?, 2);
            /// # Ok(())
            /// # })
            /// # }
            /// ```
            ///
            /// # Errors
            /// Fails as [`Self::remove`] does. Keys that were removed before the error stay
            /// removed.
            pub async fn remove_range(&self, range: impl KeyRange) -> Result<u64, Error> {
                self.worker()?.remove_range(range).await
            }

            #[doc = concat!("As [`", $blocking, "::clear`](crate::", $blocking, "::clear).")]
            ///
            /// ```
            /// # fn main() -> Result<(), darter::Error> {
            /// # darter::block_on(async {
            /// # let store = darter::AsyncStore::open("mem:16M").await?;
            /// store.put_many(&[("pear", "green"), ("plum", "blue")]).await?;
            /// assert_eq!(store.clear().await?, 2);
            /// # Ok(())
            /// # })
            /// # }
            /// ```
            ///
            /// # Errors
            /// Fails as [`Self::remove_range`] does.
            pub async fn clear(&self) -> Result<u64, Error> {
                self.worker()?.clear().await
            }

            #[doc = concat!("As [`", $blocking, "::bulk_load`](crate::", $blocking, "::bulk_load).")]
            ///
            /// ```
            /// # fn main() -> Result<(), darter::Error> {
            /// # darter::block_on(async {
            /// # let store = darter::AsyncStore::open("mem:16M").await?;
            /// let sorted = (0_u32..1000).map(|n| (n.to_be_bytes(), "value"));
            /// assert_eq!(store.bulk_load(sorted).await?, 1000);
            /// # Ok(())
            /// # })
            /// # }
            /// ```
            ///
            /// # Errors
            /// Fails if the store has keys, if the keys are out of order, and as [`Self::put`]
            /// does. The store is then still empty.
            pub async fn bulk_load<K, V, P>(&self, sorted: P) -> Result<u64, Error>
            where
                K: Into<Vec<u8>>,
                V: Into<Vec<u8>>,
                P: IntoIterator<Item = (K, V)>,
                P::IntoIter: Send,
            {
                self.worker()?.bulk_load(sorted).await
            }

            #[doc = concat!("As [`", $blocking, "::maintain`](crate::", $blocking, "::maintain).")]
            ///
            /// ```
            /// # fn main() -> Result<(), darter::Error> {
            /// # darter::block_on(async {
            /// let options = darter::Store::options().maintenance(false);
            /// let store = options.open_async("mem:16M").await?;
            /// store.maintain().await?; // several times within a lease
            /// # Ok(())
            /// # })
            /// # }
            /// ```
            ///
            /// # Errors
            /// Fails if a memory node cannot be reached; call it again later.
            pub async fn maintain(&self) -> Result<(), Error> {
                self.worker()?.maintain().await
            }
        }
    };
}

async_writes!(AsyncStore, "Store");
async_writes!(AsyncSession, "Session");
