//! Transactions whose operations are futures.

use super::{RUNS_MAX, TransactionError, begin, commit, pause, update};
use crate::workers::Lease;
use crate::{AsyncSession, AsyncStore, Change, Error};
use std::future::poll_fn;
use std::task::Poll;

/// A [`Transaction`](crate::Transaction) whose operations are futures: from
/// [`AsyncStore::transaction`] or [`AsyncSession::transaction`].
///
/// ```
/// # fn main() -> Result<(), darter::Error> {
/// # darter::block_on(async {
/// let store = darter::AsyncStore::open("mem:64M").await?;
/// store.put("alice", "10").await?;
/// let mut transaction = store.transaction()?;
/// if let Some(all) = transaction.remove("alice").await? {
///     transaction.put("bob", all)?;
/// }
/// transaction.commit().await?;
/// assert_eq!(store.get("bob").await?.as_deref(), Some(&b"10"[..]));
/// # Ok(())
/// # })
/// # }
/// ```
pub struct AsyncTransaction<'s> {
    worker: Lease<'s>,
}

impl Drop for AsyncTransaction<'_> {
    fn drop(&mut self) {
        self.worker.roll_back();
    }
}

impl std::fmt::Debug for AsyncTransaction<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AsyncTransaction")
            .field("keys", &self.worker.transaction_keys())
            .finish_non_exhaustive()
    }
}

/// Implements transactions for a type whose operations are futures.
macro_rules! transactions {
    ($caller:ty, $blocking:literal) => {
        impl $caller {
            #[doc = concat!("As [`", $blocking, "::transaction`](crate::", $blocking, "::transaction).")]
            ///
            /// ```
            /// # fn main() -> Result<(), darter::Error> {
            /// # darter::block_on(async {
            /// # let store = darter::AsyncStore::open("mem:16M").await?;
            /// let mut transaction = store.transaction()?;
            /// transaction.put("pear", "green")?;
            /// transaction.commit().await?;
            /// assert!(store.contains_key("pear").await?);
            /// # Ok(())
            /// # })
            /// # }
            /// ```
            ///
            /// # Errors
            /// Fails if a memory node cannot be reached.
            pub fn transaction(&self) -> Result<AsyncTransaction<'_>, Error> {
                let mut worker = self.worker()?;
                begin(&mut worker, 0);
                Ok(AsyncTransaction { worker })
            }

            #[doc = concat!("As [`", $blocking, "::transact`](crate::", $blocking, "::transact).")]
            ///
            /// ```
            /// # fn main() -> Result<(), darter::Error> {
            /// # darter::block_on(async {
            /// # let store = darter::AsyncStore::open("mem:16M").await?;
            /// store.put("alice", "10").await?;
            /// let moved = store.transact(async |tx| {
            ///     let Some(all) = tx.remove("alice").await? else { return Ok(false) };
            ///     tx.put("bob", all)?;
            ///     Ok(true)
            /// });
            /// assert!(moved.await? && store.get("alice").await?.is_none());
            /// # Ok(())
            /// # })
            /// # }
            /// ```
            ///
            /// # Errors
            #[doc = concat!("Fails as [`", $blocking, "::transact`](crate::", $blocking, "::transact) does.")]
            pub async fn transact<R>(
                &self,
                mut body: impl AsyncFnMut(&mut AsyncTransaction<'_>) -> Result<R, Error>,
            ) -> Result<R, Error> {
                let mut transaction = self.transaction()?;
                for attempt in 1..=RUNS_MAX {
                    let result = body(&mut transaction).await?;
                    if transaction.worker.commit_transaction().await? {
                        return Ok(result);
                    }
                    begin(&mut transaction.worker, attempt);
                    for _ in 0..pause(attempt) {
                        let_others_run().await;
                    }
                }
                Err(TransactionError::Conflict.into())
            }
        }
    };
}

transactions!(AsyncStore, "Store");
transactions!(AsyncSession, "Session");

/// Lets the executor run its other tasks once.
async fn let_others_run() {
    let mut has_run = false;
    poll_fn(|context| {
        if std::mem::replace(&mut has_run, true) {
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

impl AsyncTransaction<'_> {
    /// Returns the value of a key, as this transaction has changed it; `None` if the key is absent.
    ///
    /// ```
    /// # fn main() -> Result<(), darter::Error> {
    /// # darter::block_on(async {
    /// # let store = darter::AsyncStore::open("mem:16M").await?;
    /// let mut transaction = store.transaction()?;
    /// transaction.put("pear", "green")?;
    /// assert_eq!(transaction.get("pear").await?.as_deref(), Some(&b"green"[..]));
    /// assert_eq!(store.get("pear").await?, None, "not yet committed");
    /// # Ok(())
    /// # })
    /// # }
    /// ```
    ///
    /// # Errors
    /// Fails as [`Store::get`](crate::Store::get) does.
    pub async fn get(&mut self, key: impl AsRef<[u8]> + Send) -> Result<Option<Vec<u8>>, Error> {
        self.worker.get(key).await
    }

    /// Returns the values of several keys, in the order of the keys, read as by
    /// [`Store::get_many`](crate::Store::get_many).
    ///
    /// ```
    /// # fn main() -> Result<(), darter::Error> {
    /// # darter::block_on(async {
    /// # let store = darter::AsyncStore::open("mem:16M").await?;
    /// store.put("pear", "green").await?;
    /// let mut transaction = store.transaction()?;
    /// assert_eq!(transaction.get_many(&["pear", "plum"]).await?, [Some(b"green".to_vec()), None]);
    /// # Ok(())
    /// # })
    /// # }
    /// ```
    ///
    /// # Errors
    /// Fails as [`Self::get`] does.
    pub async fn get_many<K: AsRef<[u8]> + Sync>(
        &mut self,
        keys: &[K],
    ) -> Result<Vec<Option<Vec<u8>>>, Error> {
        self.worker.get_many(keys).await
    }

    /// Returns whether a key is present, as this transaction has changed it.
    ///
    /// ```
    /// # fn main() -> Result<(), darter::Error> {
    /// # darter::block_on(async {
    /// # let store = darter::AsyncStore::open("mem:16M").await?;
    /// let mut transaction = store.transaction()?;
    /// transaction.put("pear", "green")?;
    /// assert!(transaction.contains_key("pear").await?);
    /// # Ok(())
    /// # })
    /// # }
    /// ```
    ///
    /// # Errors
    /// Fails as [`Self::get`] does.
    pub async fn contains_key(&mut self, key: impl AsRef<[u8]> + Send) -> Result<bool, Error> {
        Ok(self.get(key).await?.is_some())
    }

    /// Stores a value under a key when the transaction is committed. Does not read the key.
    ///
    /// ```
    /// # fn main() -> Result<(), darter::Error> {
    /// # darter::block_on(async {
    /// # let store = darter::AsyncStore::open("mem:16M").await?;
    /// let mut transaction = store.transaction()?;
    /// transaction.put("pear", "green")?;
    /// transaction.put("plum", "blue")?;
    /// transaction.commit().await?;
    /// assert_eq!(store.get("plum").await?.as_deref(), Some(&b"blue"[..]));
    /// # Ok(())
    /// # })
    /// # }
    /// ```
    ///
    /// # Errors
    /// Fails if the key is too long, if the transaction has too many keys, or if the store is
    /// read-only.
    pub fn put(&mut self, key: impl AsRef<[u8]>, value: impl Into<Vec<u8>>) -> Result<(), Error> {
        self.worker.write_blind(key.as_ref(), Some(value.into()))
    }

    /// Stores a value under a key when the transaction is committed. Returns the old value.
    ///
    /// ```
    /// # fn main() -> Result<(), darter::Error> {
    /// # darter::block_on(async {
    /// # let store = darter::AsyncStore::open("mem:16M").await?;
    /// store.put("pear", "green").await?;
    /// let mut transaction = store.transaction()?;
    /// assert_eq!(transaction.insert("pear", "ripe").await?, Some(b"green".to_vec()));
    /// transaction.commit().await?;
    /// # Ok(())
    /// # })
    /// # }
    /// ```
    ///
    /// # Errors
    /// Fails as [`Self::get`] and [`Self::put`] do.
    pub async fn insert(
        &mut self,
        key: impl AsRef<[u8]> + Send,
        value: impl Into<Vec<u8>> + Send,
    ) -> Result<Option<Vec<u8>>, Error> {
        let value = value.into();
        self.update(key, |_| Change::Put(value)).await
    }

    /// Removes a key when the transaction is committed. Returns the old value.
    ///
    /// ```
    /// # fn main() -> Result<(), darter::Error> {
    /// # darter::block_on(async {
    /// # let store = darter::AsyncStore::open("mem:16M").await?;
    /// store.put("pear", "green").await?;
    /// let mut transaction = store.transaction()?;
    /// assert_eq!(transaction.remove("pear").await?, Some(b"green".to_vec()));
    /// transaction.commit().await?;
    /// assert_eq!(store.get("pear").await?, None);
    /// # Ok(())
    /// # })
    /// # }
    /// ```
    ///
    /// # Errors
    /// Fails as [`Self::get`] and [`Self::put`] do.
    pub async fn remove(&mut self, key: impl AsRef<[u8]> + Send) -> Result<Option<Vec<u8>>, Error> {
        self.update(key, |_| Change::Remove).await
    }

    /// Removes a key when the transaction is committed, if it is present. Does not read the key.
    ///
    /// ```
    /// # fn main() -> Result<(), darter::Error> {
    /// # darter::block_on(async {
    /// # let store = darter::AsyncStore::open("mem:16M").await?;
    /// store.put("pear", "green").await?;
    /// let mut transaction = store.transaction()?;
    /// transaction.discard("pear")?;
    /// transaction.commit().await?;
    /// assert_eq!(store.get("pear").await?, None);
    /// # Ok(())
    /// # })
    /// # }
    /// ```
    ///
    /// # Errors
    /// Fails as [`Self::put`] does.
    pub fn discard(&mut self, key: impl AsRef<[u8]>) -> Result<(), Error> {
        self.worker.write_blind(key.as_ref(), None)
    }

    /// Changes a key as `decide` returns, which gets its value. Returns the old value.
    ///
    /// ```
    /// # fn main() -> Result<(), darter::Error> {
    /// # darter::block_on(async {
    /// # let store = darter::AsyncStore::open("mem:16M").await?;
    /// let mut transaction = store.transaction()?;
    /// let one_more = |old: Option<&[u8]>| darter::Change::Put([old.unwrap_or_default(), b"1"].concat());
    /// transaction.update("tally", one_more).await?;
    /// transaction.update("tally", one_more).await?;
    /// transaction.commit().await?;
    /// assert_eq!(store.get("tally").await?.as_deref(), Some(&b"11"[..]));
    /// # Ok(())
    /// # })
    /// # }
    /// ```
    ///
    /// # Errors
    /// Fails as [`Self::get`] and [`Self::put`] do.
    pub async fn update(
        &mut self,
        key: impl AsRef<[u8]> + Send,
        decide: impl FnOnce(Option<&[u8]>) -> Change + Send,
    ) -> Result<Option<Vec<u8>>, Error> {
        update(&mut self.worker, key, decide).await
    }

    /// As [`Transaction::commit`](crate::Transaction::commit). If the future is dropped, all changes
    /// take effect or none.
    ///
    /// ```
    /// # fn main() -> Result<(), darter::Error> {
    /// # darter::block_on(async {
    /// # let store = darter::AsyncStore::open("mem:16M").await?;
    /// let mut transaction = store.transaction()?;
    /// transaction.put("pear", "green")?;
    /// transaction.commit().await?;
    /// assert!(store.contains_key("pear").await?);
    /// # Ok(())
    /// # })
    /// # }
    /// ```
    ///
    /// # Errors
    /// Fails as [`Transaction::commit`](crate::Transaction::commit) does.
    pub async fn commit(mut self) -> Result<(), Error> {
        commit(&mut self.worker).await
    }

    /// As [`Transaction::rollback`](crate::Transaction::rollback).
    ///
    /// ```
    /// # fn main() -> Result<(), darter::Error> {
    /// # darter::block_on(async {
    /// # let store = darter::AsyncStore::open("mem:16M").await?;
    /// let mut transaction = store.transaction()?;
    /// transaction.put("pear", "green")?;
    /// transaction.rollback();
    /// transaction.commit().await?;
    /// assert!(store.is_empty().await?);
    /// # Ok(())
    /// # })
    /// # }
    /// ```
    pub fn rollback(&mut self) {
        self.worker.start_over();
    }
}
