//! Transactions whose calls block.

use super::{RUNS_MAX, TransactionError, begin, commit, pause, update};
use crate::worker::Worker;
use crate::{Change, Error, Session, Store};
use darter_fabric::block_on;
use std::ops::DerefMut;
use std::time::Duration;

/// The unit of a pause before a transaction is run again.
const PAUSE_STEP: Duration = Duration::from_micros(20);

/// Changes of several keys that take effect at one moment, if no key that was read has changed in
/// between: from [`Store::transaction`] or [`Session::transaction`]. [`Store::transact`] runs one
/// again after a conflict.
///
/// Committed transactions and all other operations are *strictly serializable*: they take effect in
/// one order, in which an operation that ended before another began comes first. Values that a
/// transaction has read may be inconsistent; its commit then reports a conflict.
///
/// The changes are kept in the transaction until [`Transaction::commit`]. A transaction that is
/// dropped changes nothing. A process can be killed at any instant of a commit: all changes take
/// effect or none, and no other client waits.
///
/// Ranges are not available in transactions. At most 100,000 keys can be read or changed. The former
/// and the new value of a key share one object of the pool: together with the key and a header they
/// can have at most [`Store::max_value_bytes`]. For a key that is only read, its value counts twice.
///
/// ```
/// # fn main() -> Result<(), darter::Error> {
/// let store = darter::Store::open("mem:64M")?;
/// store.put("alice", "10")?;
/// let mut transaction = store.transaction()?;
/// if let Some(all) = transaction.remove("alice")? {
///     transaction.put("bob", all)?;
/// }
/// transaction.commit()?;
/// assert_eq!(store.get("bob")?.as_deref(), Some(&b"10"[..]));
/// # Ok(())
/// # }
/// ```
pub struct Transaction<'s> {
    /// Leased from the store or the session.
    worker: Box<dyn DerefMut<Target = Worker> + 's>,
}

impl Drop for Transaction<'_> {
    fn drop(&mut self) {
        self.worker.roll_back();
    }
}

impl std::fmt::Debug for Transaction<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Transaction").field("keys", &self.worker.transaction_keys()).finish_non_exhaustive()
    }
}

/// Implements transactions for a type that blocks.
macro_rules! transactions {
    ($caller:ty, $self:ident => $lease:expr) => {
        impl $caller {
            /// Begins a transaction.
            ///
            /// ```
            /// # fn main() -> Result<(), darter::Error> {
            /// # let store = darter::Store::open("mem:16M")?;
            /// let mut transaction = store.transaction()?;
            /// transaction.put("pear", "green")?;
            /// transaction.put("plum", "blue")?;
            /// transaction.commit()?;
            /// assert_eq!(store.range(..).count(), 2);
            /// # Ok(())
            /// # }
            /// ```
            ///
            /// # Errors
            /// Fails if a memory node cannot be reached.
            pub fn transaction(&$self) -> Result<Transaction<'_>, Error> {
                let mut worker = Box::new($lease?);
                begin(&mut worker, 0);
                Ok(Transaction { worker })
            }

            /// Runs a transaction and commits it. After a conflict, runs `body` again from the
            /// beginning, with a growing pause. A transaction that was run more often goes before
            /// others that it meets. If `body` fails, nothing changes.
            ///
            /// ```
            /// # fn main() -> Result<(), darter::Error> {
            /// # let store = darter::Store::open("mem:16M")?;
            /// store.put("alice", "10")?;
            /// let moved = store.transact(|tx| {
            ///     let Some(all) = tx.remove("alice")? else { return Ok(false) };
            ///     tx.put("bob", all)?;
            ///     Ok(true)
            /// })?;
            /// assert!(moved && store.get("alice")?.is_none());
            /// # Ok(())
            /// # }
            /// ```
            ///
            /// # Errors
            /// Returns the error of `body`. Fails as [`Transaction::commit`] does, with
            /// [`TransactionError::Conflict`] after a thousand conflicts in a row.
            pub fn transact<R>(
                &self,
                mut body: impl FnMut(&mut Transaction<'_>) -> Result<R, Error>,
            ) -> Result<R, Error> {
                let mut transaction = self.transaction()?;
                for attempt in 1..=RUNS_MAX {
                    let result = body(&mut transaction)?;
                    if block_on(transaction.worker.commit_transaction())? {
                        return Ok(result);
                    }
                    begin(&mut transaction.worker, attempt);
                    std::thread::sleep(PAUSE_STEP * pause(attempt) as u32);
                }
                Err(TransactionError::Conflict.into())
            }
        }
    };
}

transactions!(Store, self => self.workers().lease());
transactions!(Session, self => self.lease());

impl Transaction<'_> {
    /// Returns the value of a key, as this transaction has changed it; `None` if the key is absent.
    ///
    /// ```
    /// # fn main() -> Result<(), darter::Error> {
    /// # let store = darter::Store::open("mem:16M")?;
    /// let mut transaction = store.transaction()?;
    /// transaction.put("pear", "green")?;
    /// assert_eq!(transaction.get("pear")?.as_deref(), Some(&b"green"[..]));
    /// assert_eq!(store.get("pear")?, None, "not yet committed");
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Fails as [`Store::get`](crate::Store::get) does.
    pub fn get(&mut self, key: impl AsRef<[u8]>) -> Result<Option<Vec<u8>>, Error> {
        block_on(self.worker.get(key))
    }

    /// Returns the values of several keys, in the order of the keys, read as by
    /// [`Store::get_many`](crate::Store::get_many).
    ///
    /// ```
    /// # fn main() -> Result<(), darter::Error> {
    /// # let store = darter::Store::open("mem:16M")?;
    /// store.put("pear", "green")?;
    /// let mut transaction = store.transaction()?;
    /// assert_eq!(transaction.get_many(&["pear", "plum"])?, [Some(b"green".to_vec()), None]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Fails as [`Self::get`] does.
    pub fn get_many<K: AsRef<[u8]> + Sync>(&mut self, keys: &[K]) -> Result<Vec<Option<Vec<u8>>>, Error> {
        block_on(self.worker.get_many(keys))
    }

    /// Returns whether a key is present, as this transaction has changed it.
    ///
    /// ```
    /// # fn main() -> Result<(), darter::Error> {
    /// # let store = darter::Store::open("mem:16M")?;
    /// let mut transaction = store.transaction()?;
    /// transaction.put("pear", "green")?;
    /// assert!(transaction.contains_key("pear")?);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Fails as [`Self::get`] does.
    pub fn contains_key(&mut self, key: impl AsRef<[u8]>) -> Result<bool, Error> {
        Ok(self.get(key)?.is_some())
    }

    /// Stores a value under a key when the transaction is committed. Does not read the key.
    ///
    /// ```
    /// # fn main() -> Result<(), darter::Error> {
    /// # let store = darter::Store::open("mem:16M")?;
    /// let mut transaction = store.transaction()?;
    /// transaction.put("pear", "green")?;
    /// transaction.put("plum", "blue")?;
    /// transaction.commit()?;
    /// assert_eq!(store.get("plum")?.as_deref(), Some(&b"blue"[..]));
    /// # Ok(())
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
    /// # let store = darter::Store::open("mem:16M")?;
    /// store.put("pear", "green")?;
    /// let mut transaction = store.transaction()?;
    /// assert_eq!(transaction.insert("pear", "ripe")?, Some(b"green".to_vec()));
    /// transaction.commit()?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Fails as [`Self::get`] and [`Self::put`] do.
    pub fn insert(
        &mut self,
        key: impl AsRef<[u8]>,
        value: impl Into<Vec<u8>> + Send,
    ) -> Result<Option<Vec<u8>>, Error> {
        let value = value.into();
        self.update(key, |_| Change::Put(value))
    }

    /// Removes a key when the transaction is committed. Returns the old value.
    ///
    /// ```
    /// # fn main() -> Result<(), darter::Error> {
    /// # let store = darter::Store::open("mem:16M")?;
    /// store.put("pear", "green")?;
    /// let mut transaction = store.transaction()?;
    /// assert_eq!(transaction.remove("pear")?, Some(b"green".to_vec()));
    /// transaction.commit()?;
    /// assert_eq!(store.get("pear")?, None);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Fails as [`Self::get`] and [`Self::put`] do.
    pub fn remove(&mut self, key: impl AsRef<[u8]>) -> Result<Option<Vec<u8>>, Error> {
        self.update(key, |_| Change::Remove)
    }

    /// Removes a key when the transaction is committed, if it is present. Does not read the key.
    ///
    /// ```
    /// # fn main() -> Result<(), darter::Error> {
    /// # let store = darter::Store::open("mem:16M")?;
    /// store.put("pear", "green")?;
    /// let mut transaction = store.transaction()?;
    /// transaction.discard("pear")?;
    /// transaction.commit()?;
    /// assert_eq!(store.get("pear")?, None);
    /// # Ok(())
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
    /// # let store = darter::Store::open("mem:16M")?;
    /// let mut transaction = store.transaction()?;
    /// let one_more = |old: Option<&[u8]>| darter::Change::Put([old.unwrap_or_default(), b"1"].concat());
    /// transaction.update("tally", one_more)?;
    /// transaction.update("tally", one_more)?;
    /// transaction.commit()?;
    /// assert_eq!(store.get("tally")?.as_deref(), Some(&b"11"[..]));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Fails as [`Self::get`] and [`Self::put`] do.
    pub fn update(
        &mut self,
        key: impl AsRef<[u8]>,
        decide: impl FnOnce(Option<&[u8]>) -> Change + Send,
    ) -> Result<Option<Vec<u8>>, Error> {
        block_on(update(&mut self.worker, key, decide))
    }

    /// Commits: all changes take effect at one moment, at which the keys that were read still have
    /// the values that were read.
    ///
    /// ```
    /// # fn main() -> Result<(), darter::Error> {
    /// # let store = darter::Store::open("mem:16M")?;
    /// let mut transaction = store.transaction()?;
    /// transaction.put("pear", "green")?;
    /// transaction.commit()?;
    /// assert!(store.contains_key("pear")?);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Fails with [`TransactionError::Conflict`] if a key that was read has changed, or another
    /// client needed one of the keys; if a value is too long; as [`Store::put`] does; and if the
    /// pool's index is DART, which has no transactions. Nothing has changed then, unless
    /// [`Error::is_unsent`] says that it is uncertain.
    pub fn commit(mut self) -> Result<(), Error> {
        block_on(commit(&mut self.worker))
    }

    /// Forgets all that the transaction has read and changed.
    ///
    /// ```
    /// # fn main() -> Result<(), darter::Error> {
    /// # let store = darter::Store::open("mem:16M")?;
    /// let mut transaction = store.transaction()?;
    /// transaction.put("pear", "green")?;
    /// transaction.rollback();
    /// transaction.commit()?;
    /// assert!(store.is_empty()?);
    /// # Ok(())
    /// # }
    /// ```
    pub fn rollback(&mut self) {
        self.worker.start_over();
    }
}
