//! Transactions whose calls block.

use super::{Buffer, TransactionError, pause};
use crate::session::SessionLease;
use crate::worker::Worker;
use crate::workers::Lease;
use crate::{Change, Error, Session, Store};
use darter_fabric::block_on;
use std::ops::{Deref, DerefMut};
use std::time::Duration;

/// The unit of a pause before a transaction is run again.
const PAUSE_STEP: Duration = Duration::from_micros(20);

/// The worker of a transaction.
enum Held<'s> {
    OfStore(Lease<'s>),
    OfSession(SessionLease<'s>),
}

impl Deref for Held<'_> {
    type Target = Worker;

    fn deref(&self) -> &Worker {
        match self {
            Self::OfStore(lease) => lease,
            Self::OfSession(lease) => lease,
        }
    }
}

impl DerefMut for Held<'_> {
    fn deref_mut(&mut self) -> &mut Worker {
        match self {
            Self::OfStore(lease) => lease,
            Self::OfSession(lease) => lease,
        }
    }
}

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
/// Ranges are not available in transactions. At most 100,000 keys can be read or changed, and a
/// value can be at most about half as large as [`Store::max_value_bytes`].
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
    worker: Held<'s>,
    buffer: Buffer,
}

impl std::fmt::Debug for Transaction<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Transaction").field("keys", &self.buffer.entries.len()).finish_non_exhaustive()
    }
}

/// Implements transactions for a type that blocks.
macro_rules! transactions {
    ($caller:ty, $held:ident, $self:ident => $lease:expr) => {
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
                Ok(Transaction { worker: Held::$held($lease?), buffer: Buffer::default() })
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
                loop {
                    let result = body(&mut transaction)?;
                    if block_on(transaction.worker.commit(&transaction.buffer))? {
                        return Ok(result);
                    }
                    transaction.buffer.again()?;
                    std::thread::sleep(PAUSE_STEP * pause(transaction.buffer.attempt) as u32);
                }
            }
        }
    };
}

transactions!(Store, OfStore, self => self.workers().lease());
transactions!(Session, OfSession, self => self.lease());

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
        block_on(self.worker.get_in(&mut self.buffer, key.as_ref()))
    }

    /// Returns the values of several keys, in the order of the keys, in as many round trips as the longest
    /// of the searches takes.
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
    pub fn get_many<K: AsRef<[u8]>>(&mut self, keys: &[K]) -> Result<Vec<Option<Vec<u8>>>, Error> {
        let keys: Vec<&[u8]> = keys.iter().map(AsRef::as_ref).collect();
        block_on(self.worker.get_many_in(&mut self.buffer, &keys))
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
        self.worker.put_in(&mut self.buffer, key.as_ref(), Some(value.into()))
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
        self.worker.put_in(&mut self.buffer, key.as_ref(), None)
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
        block_on(self.worker.update_in(&mut self.buffer, key.as_ref(), decide))
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
        if block_on(self.worker.commit(&self.buffer))? {
            Ok(())
        } else {
            Err(TransactionError::Conflict.into())
        }
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
        self.buffer.entries.clear();
    }
}
