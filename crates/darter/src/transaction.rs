//! Transactions: several keys that are read and changed at one moment.

mod asynchronous;
mod blocking;

pub use self::asynchronous::AsyncTransaction;
pub use self::blocking::Transaction;
use crate::worker::Worker;
use crate::{Change, Error};
use darter_index::{Access, Commit, Write};
use std::collections::BTreeMap;
use std::hash::{BuildHasher, RandomState};
use std::ops::Bound;

/// Times that a transaction is run before its conflict is reported.
const RUNS_MAX: u16 = 1000;
/// Runs after which the pauses between them no longer grow.
const DOUBLINGS_MAX: u16 = 7;

/// An error of a transaction.
///
/// ```
/// use darter::{Error, Store, TransactionError};
///
/// # fn main() -> Result<(), Error> {
/// let store = Store::open("mem:16M")?;
/// let mut transaction = store.transaction()?;
/// assert_eq!(transaction.get("pear")?, None);
/// store.put("pear", "green")?; // another client, say
/// transaction.put("plum", "blue")?;
/// let error = transaction.commit().unwrap_err();
/// assert!(matches!(error, Error::Transaction(TransactionError::Conflict)));
/// assert_eq!(store.get("plum")?, None);
/// # Ok(())
/// # }
/// ```
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TransactionError {
    /// Another client changed a key that the transaction had read, or needed one of its keys before
    /// it was committed. Nothing has changed; the transaction can be run again.
    #[error("conflict with another client: nothing has changed; run the transaction again")]
    Conflict,
    /// The transaction has too many keys.
    #[error("transaction of {keys} keys: at most {max} are possible; split it")]
    TooLarge {
        /// The number of its keys.
        keys: usize,
        /// The largest possible number.
        max: usize,
    },
    /// The transaction of a worker has too many bytes.
    #[error("transaction of {bytes} bytes: at most {max} are possible; split it")]
    TooManyBytes {
        /// The bytes of its keys and values.
        bytes: usize,
        /// The largest possible number.
        max: usize,
    },
}

/// The largest number of keys of a transaction.
pub(crate) const KEYS_MAX: usize = 100_000;

/// A key's value; `None` if the key is absent.
type Value = Option<Vec<u8>>;

/// The value that a transaction has read of a key, and the one that it will store.
#[derive(Default)]
struct Entry {
    read: Option<Value>,
    write: Option<Value>,
}

/// The keys of a transaction, by their places in the index.
#[derive(Default)]
pub(crate) struct Buffer {
    entries: BTreeMap<Vec<u8>, Entry>,
    /// How often the transaction was run before.
    attempt: u16,
}

/// Returns a random number up to the length of the pause before a transaction is run again, in
/// steps: it doubles with each of the first attempts.
fn pause(attempt: u16) -> u64 {
    RandomState::new().hash_one(attempt) % (1 << attempt.min(DOUBLINGS_MAX))
}

impl Entry {
    /// The value that the transaction sees, if it knows one.
    fn known(&self) -> Option<&Value> {
        self.write.as_ref().or(self.read.as_ref())
    }
}

impl Buffer {
    /// The value that the transaction sees under a key whose value it knows.
    pub(crate) fn known(&self, place: &[u8]) -> Option<&Value> {
        self.entries.get(place)?.known()
    }

    /// The value that the transaction has read of a key.
    pub(crate) fn read(&self, place: &[u8]) -> Option<&[u8]> {
        self.entries.get(place)?.read.as_ref()?.as_deref()
    }

    /// The keys of a range whose values the transaction knows, and these values.
    pub(crate) fn known_in<'b>(
        &'b self,
        bounds: (Bound<&[u8]>, Bound<&[u8]>),
    ) -> impl DoubleEndedIterator<Item = (&'b [u8], Option<&'b [u8]>)> + use<'b> {
        let entries = self.entries.range::<[u8], _>(bounds);
        entries.filter_map(|(place, entry)| Some((place.as_slice(), entry.known()?.as_deref())))
    }

    /// Begins a transaction that was run before this often.
    pub(crate) fn of_attempt(attempt: u16) -> Self {
        Self { entries: BTreeMap::new(), attempt }
    }

    /// Prepares another run after a conflict.
    fn again(&mut self) -> Result<(), Error> {
        self.entries.clear();
        self.attempt += 1;
        if self.attempt < RUNS_MAX { Ok(()) } else { Err(TransactionError::Conflict.into()) }
    }

    pub(crate) fn note_read(&mut self, place: Vec<u8>, value: Value) {
        self.entries.entry(place).or_default().read = Some(value);
    }

    pub(crate) fn write(&mut self, place: Vec<u8>, value: Value) -> Result<(), Error> {
        self.entries.entry(place).or_default().write = Some(value);
        self.check_size()
    }

    /// Fails if there are too many keys.
    pub(crate) fn check_size(&self) -> Result<(), Error> {
        let keys = self.entries.len();
        if keys > KEYS_MAX {
            return Err(TransactionError::TooLarge { keys, max: KEYS_MAX }.into());
        }
        Ok(())
    }

    /// Whether there is anything to commit: the value of a single key needs no verification.
    fn is_trivial(&self) -> bool {
        self.entries.len() <= 1 && self.entries.values().all(|entry| entry.write.is_none())
    }

    /// The keys in their order, for the index.
    fn accesses(&self) -> Vec<Access<'_>> {
        let entries = self.entries.iter();
        entries
            .map(|(key, Entry { read, write })| Access {
                key,
                read: read.as_ref().map(Option::as_deref),
                write: write.as_ref().map(|value| value.as_deref().map_or(Write::Remove, Write::Put)),
            })
            .collect()
    }
}

impl Worker {
    /// Returns the value that a transaction sees.
    async fn get_in(&mut self, buffer: &mut Buffer, key: &[u8]) -> Result<Value, Error> {
        let place = self.place_of(key)?;
        if let Some(value) = buffer.known(&place) {
            return Ok(value.clone());
        }
        let value = self.get(key).await?;
        buffer.note_read(place, value.clone());
        Ok(value)
    }

    /// Reads several keys in the same round trips.
    async fn get_many_in(&mut self, buffer: &mut Buffer, keys: &[&[u8]]) -> Result<Vec<Value>, Error> {
        let places = keys.iter().map(|key| self.place_of(key)).collect::<Result<Vec<_>, _>>()?;
        let is_unknown = |(place, _): &(&Vec<u8>, &&[u8])| buffer.known(place).is_none();
        let unknown: BTreeMap<_, _> = places.iter().zip(keys).filter(is_unknown).collect();
        let wanted: Vec<&[u8]> = unknown.values().map(|key| **key).collect();
        let values = self.get_many(&wanted).await?;
        let read: Vec<_> = unknown.into_keys().cloned().zip(values).collect();
        for (place, value) in read {
            buffer.note_read(place, value);
        }
        Ok(places.iter().map(|place| buffer.known(place).cloned().flatten()).collect())
    }

    /// Replaces the value that a transaction sees. Returns the old one.
    async fn update_in(
        &mut self,
        buffer: &mut Buffer,
        key: &[u8],
        decide: impl FnOnce(Option<&[u8]>) -> Change + Send,
    ) -> Result<Value, Error> {
        let old = self.get_in(buffer, key).await?;
        match decide(old.as_deref()) {
            Change::Put(value) => self.put_in(buffer, key, Some(value))?,
            Change::Remove => self.put_in(buffer, key, None)?,
            Change::Keep => {}
        }
        Ok(old)
    }

    fn put_in(&mut self, buffer: &mut Buffer, key: &[u8], value: Value) -> Result<(), Error> {
        self.verify_writable()?;
        buffer.write(self.place_of(key)?, value)
    }

    /// Commits. Returns false if there was a conflict.
    pub(crate) async fn commit(&mut self, buffer: &Buffer) -> Result<bool, Error> {
        if buffer.is_trivial() {
            return Ok(true);
        }
        let accesses = buffer.accesses();
        Ok(self.commit_all(&accesses, buffer.attempt).await? == Commit::Done)
    }
}
