//! The reading operations that return futures, for the types that have them.

use crate::range::AsyncRange;
use crate::{AsyncSession, AsyncStore, Error, KeyRange};
use darter_index::{KeyValue, ScanRange};

/// Implements the reading operations of a type whose operations are futures. The type has a method
/// `worker`, which leases a worker.
macro_rules! async_reads {
    ($caller:ty, $blocking:literal) => {
        impl $caller {
            #[doc = concat!("As [`", $blocking, "::get`](crate::", $blocking, "::get).")]
            ///
            /// ```
            /// # fn main() -> Result<(), darter::Error> {
            /// # darter::block_on(async {
            /// # let store = darter::AsyncStore::open("mem:16M").await?;
            /// store.put("pear", "green").await?;
            /// assert_eq!(store.get("pear").await?.as_deref(), Some(&b"green"[..]));
            /// # Ok(())
            /// # })
            /// # }
            /// ```
            ///
            /// # Errors
            /// Fails if the key is too long, a memory node cannot be reached, or the pool is
            /// damaged.
            #[inline]
            pub async fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<Vec<u8>>, Error> {
                self.worker()?.get(key).await
            }

            #[doc = concat!("As [`", $blocking, "::get_with`](crate::", $blocking, "::get_with).")]
            ///
            /// ```
            /// # fn main() -> Result<(), darter::Error> {
            /// # darter::block_on(async {
            /// # let store = darter::AsyncStore::open("mem:16M").await?;
            /// store.put("pear", "green").await?;
            /// assert_eq!(store.get_with("pear", |value| value.len()).await?, Some(5));
            /// # Ok(())
            /// # })
            /// # }
            /// ```
            ///
            /// # Errors
            /// Fails as [`Self::get`] does.
            #[inline]
            pub async fn get_with<R>(
                &self,
                key: impl AsRef<[u8]>,
                read: impl FnOnce(&[u8]) -> R + Send,
            ) -> Result<Option<R>, Error> {
                self.worker()?.get_with(key, read).await
            }

            #[doc = concat!("As [`", $blocking, "::get_many`](crate::", $blocking, "::get_many).")]
            ///
            /// ```
            /// # fn main() -> Result<(), darter::Error> {
            /// # darter::block_on(async {
            /// # let store = darter::AsyncStore::open("mem:16M").await?;
            /// store.put("pear", "green").await?;
            /// let values = store.get_many(&["pear", "plum"]).await?;
            /// assert_eq!(values, [Some(b"green".to_vec()), None]);
            /// # Ok(())
            /// # })
            /// # }
            /// ```
            ///
            /// # Errors
            /// Fails as [`Self::get`] does.
            pub async fn get_many<K: AsRef<[u8]> + Sync>(
                &self,
                keys: &[K],
            ) -> Result<Vec<Option<Vec<u8>>>, Error> {
                self.worker()?.get_many(keys).await
            }

            /// Returns the values of the first of several keys, in the order of the keys: of one to 256
            /// keys, in as many round trips as the longest of the searches takes. It ends early once it
            /// has read 1 MiB of values. A round trip reads up to 4 MiB, or one value that is longer, so
            /// the values can exceed 1 MiB by that. Without keys, it returns no values. For
            /// callers that do not need all values at the same time.
            ///
            /// ```
            /// # fn main() -> Result<(), darter::Error> {
            /// # darter::block_on(async {
            /// # let store = darter::AsyncStore::open("mem:16M").await?;
            /// store.put_many(&[("pear", "green"), ("plum", "blue")]).await?;
            /// let mut keys = &["fig", "pear", "plum"][..];
            /// let mut found = 0;
            /// while !keys.is_empty() {
            ///     let values = store.get_many_first(keys).await?; // of one key or more
            ///     found += values.iter().flatten().count();
            ///     keys = &keys[values.len()..];
            /// }
            /// assert_eq!(found, 2);
            /// # Ok(())
            /// # })
            /// # }
            /// ```
            ///
            /// # Errors
            /// Fails as [`Self::get`] does.
            pub async fn get_many_first<K: AsRef<[u8]> + Sync>(
                &self,
                keys: &[K],
            ) -> Result<Vec<Option<Vec<u8>>>, Error> {
                self.worker()?.get_many_first(keys).await
            }

            #[doc = concat!("As [`", $blocking, "::contains_key`](crate::", $blocking, "::contains_key).")]
            ///
            /// ```
            /// # fn main() -> Result<(), darter::Error> {
            /// # darter::block_on(async {
            /// # let store = darter::AsyncStore::open("mem:16M").await?;
            /// assert!(!store.contains_key("pear").await?);
            /// store.put("pear", "green").await?;
            /// assert!(store.contains_key("pear").await?);
            /// # Ok(())
            /// # })
            /// # }
            /// ```
            ///
            /// # Errors
            /// Fails as [`Self::get`] does.
            #[inline]
            pub async fn contains_key(&self, key: impl AsRef<[u8]>) -> Result<bool, Error> {
                self.worker()?.contains_key(key).await
            }

            #[doc = concat!("As [`", $blocking, "::first`](crate::", $blocking, "::first).")]
            ///
            /// ```
            /// # fn main() -> Result<(), darter::Error> {
            /// # darter::block_on(async {
            /// # let store = darter::AsyncStore::open("mem:16M").await?;
            /// store.put_many(&[("pear", "green"), ("plum", "blue")]).await?;
            /// assert_eq!(store.first().await?, Some((b"pear".to_vec(), b"green".to_vec())));
            /// # Ok(())
            /// # })
            /// # }
            /// ```
            ///
            /// # Errors
            /// Fails as [`Self::get`] does.
            pub async fn first(&self) -> Result<Option<KeyValue>, Error> {
                self.worker()?.first().await
            }

            #[doc = concat!("As [`", $blocking, "::last`](crate::", $blocking, "::last).")]
            ///
            /// ```
            /// # fn main() -> Result<(), darter::Error> {
            /// # darter::block_on(async {
            /// # let store = darter::AsyncStore::open("mem:16M").await?;
            /// store.put_many(&[("pear", "green"), ("plum", "blue")]).await?;
            /// assert_eq!(store.last().await?, Some((b"plum".to_vec(), b"blue".to_vec())));
            /// # Ok(())
            /// # })
            /// # }
            /// ```
            ///
            /// # Errors
            /// Fails as [`Self::get`] does.
            pub async fn last(&self) -> Result<Option<KeyValue>, Error> {
                self.worker()?.last().await
            }

            #[doc = concat!("As [`", $blocking, "::is_empty`](crate::", $blocking, "::is_empty).")]
            ///
            /// ```
            /// # fn main() -> Result<(), darter::Error> {
            /// # darter::block_on(async {
            /// # let store = darter::AsyncStore::open("mem:16M").await?;
            /// assert!(store.is_empty().await?);
            /// store.put("pear", "green").await?;
            /// assert!(!store.is_empty().await?);
            /// # Ok(())
            /// # })
            /// # }
            /// ```
            ///
            /// # Errors
            /// Fails as [`Self::get`] does.
            pub async fn is_empty(&self) -> Result<bool, Error> {
                self.worker()?.is_empty().await
            }

            #[doc = concat!("As [`", $blocking, "::range`](crate::", $blocking, "::range); the pairs are fetched in chunks.")]
            ///
            /// ```
            /// # fn main() -> Result<(), darter::Error> {
            /// # darter::block_on(async {
            /// # let store = darter::AsyncStore::open("mem:16M").await?;
            /// store.put_many(&[("fig", "blue"), ("pear", "green"), ("plum", "red")]).await?;
            /// let mut pairs = store.range("a".."plum");
            /// while let Some(pair) = pairs.next().await {
            ///     let (key, _) = pair?;
            ///     store.discard(key).await?;
            /// }
            /// assert_eq!(store.first().await?.unwrap().0, b"plum");
            /// # Ok(())
            /// # })
            /// # }
            /// ```
            pub fn range(&self, range: impl KeyRange) -> AsyncRange<'_> {
                AsyncRange::new(self.workers(), range.into_scan_range())
            }

            #[doc = concat!("As [`", $blocking, "::prefix`](crate::", $blocking, "::prefix); the pairs are fetched in chunks.")]
            ///
            /// ```
            /// # fn main() -> Result<(), darter::Error> {
            /// # darter::block_on(async {
            /// # let store = darter::AsyncStore::open("mem:16M").await?;
            /// store.put_many(&[("fig", "blue"), ("pear", "green"), ("plum", "red")]).await?;
            /// let first = store.prefix("p").next().await.transpose()?;
            /// assert_eq!(first, Some((b"pear".to_vec(), b"green".to_vec())));
            /// # Ok(())
            /// # })
            /// # }
            /// ```
            pub fn prefix(&self, prefix: impl AsRef<[u8]>) -> AsyncRange<'_> {
                AsyncRange::new(self.workers(), ScanRange::prefix(prefix.as_ref()))
            }

            #[doc = concat!("As [`", $blocking, "::scan_chunk`](crate::", $blocking, "::scan_chunk).")]
            ///
            /// ```
            /// # use darter::ScanRange;
            /// # fn main() -> Result<(), darter::Error> {
            /// # darter::block_on(async {
            /// # let store = darter::AsyncStore::open("mem:16M").await?;
            /// store.put_many(&[("fig", "blue"), ("pear", "green"), ("plum", "red")]).await?;
            /// assert_eq!(store.scan_chunk(&ScanRange::prefix(b"p"), 10).await?.len(), 2);
            /// # Ok(())
            /// # })
            /// # }
            /// ```
            ///
            /// # Errors
            /// Fails as [`Self::get`] does.
            pub async fn scan_chunk(&self, range: &ScanRange, limit: usize) -> Result<Vec<KeyValue>, Error> {
                self.worker()?.scan_chunk(range, limit).await
            }

            #[doc = concat!("As [`", $blocking, "::scan_with`](crate::", $blocking, "::scan_with).")]
            ///
            /// ```
            /// # use darter::ScanRange;
            /// # fn main() -> Result<(), darter::Error> {
            /// # darter::block_on(async {
            /// # let store = darter::AsyncStore::open("mem:16M").await?;
            /// store.put_many(&[("fig", "blue"), ("pear", "green")]).await?;
            /// let mut bytes = 0;
            /// let count = |key: &[u8], value: &[u8]| bytes += key.len() + value.len();
            /// assert_eq!(store.scan_with(&ScanRange::all(), usize::MAX, count).await?, 2);
            /// assert_eq!(bytes, 16);
            /// # Ok(())
            /// # })
            /// # }
            /// ```
            ///
            /// # Errors
            /// Fails as [`Self::get`] does.
            pub async fn scan_with(
                &self,
                range: &ScanRange,
                limit: usize,
                visit: impl FnMut(&[u8], &[u8]) + Send,
            ) -> Result<usize, Error> {
                self.worker()?.scan_with(range, limit, visit).await
            }

            /// Prefetches the memory that operations on these keys will read, if the pool is in
            /// memory of this machine: its cache misses then overlap with other work. Does nothing
            /// otherwise.
            ///
            /// ```
            /// # fn main() -> Result<(), darter::Error> {
            /// # darter::block_on(async {
            /// # let store = darter::AsyncStore::open("mem:16M").await?;
            /// store.put_many(&[("pear", "green"), ("plum", "blue")]).await?;
            /// let keys = ["pear", "plum"];
            /// store.prefetch(keys.iter().map(|key| key.as_bytes()));
            /// assert_eq!(store.get_many(&keys).await?.len(), 2);
            /// # Ok(())
            /// # })
            /// # }
            /// ```
            #[inline]
            pub fn prefetch<'k>(&self, keys: impl Iterator<Item = &'k [u8]>) {
                if let Ok(mut worker) = self.worker() {
                    worker.prefetch(keys);
                }
            }
        }
    };
}

async_reads!(AsyncStore, "Store");
async_reads!(AsyncSession, "Session");
