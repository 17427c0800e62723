//! The keys of a transaction in progress: the values that it has read, and those that it will store.

use super::error::TransactionError;
use crate::Error;
use darter_index::{Access, Write};
use std::collections::BTreeMap;
use std::ops::Bound;

/// Times that a transaction is run before its conflict is reported.
const RUNS_MAX: u16 = 1000;
/// The largest number of keys of a transaction.
pub(crate) const KEYS_MAX: usize = 100_000;

/// A key's value; `None` if the key is absent.
pub(super) type Value = Option<Vec<u8>>;

/// The value that a transaction has read of a key, and the one that it will store.
#[derive(Default)]
pub(super) struct Entry {
    read: Option<Value>,
    write: Option<Value>,
}

/// The keys of a transaction, by their places in the index.
#[derive(Default)]
pub(crate) struct Buffer {
    pub(super) entries: BTreeMap<Vec<u8>, Entry>,
    /// How often the transaction was run before.
    pub(super) attempt: u16,
}

impl Entry {
    /// The value that the transaction sees, if it knows one.
    pub(super) fn known(&self) -> Option<&Value> {
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
    pub(super) fn again(&mut self) -> Result<(), Error> {
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
    pub(super) fn is_trivial(&self) -> bool {
        self.entries.len() <= 1 && self.entries.values().all(|entry| entry.write.is_none())
    }

    /// The keys in their order, for the index.
    pub(super) fn accesses(&self) -> Vec<Access<'_>> {
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
