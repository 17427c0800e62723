//! The keys of a transaction in progress: the values that it has read, and those that it will store.

use crate::{Error, TransactionError};
use darter_index::{Access, ScanRange, Version, Write};
use std::collections::BTreeMap;
use std::ops::Bound;

/// The largest number of keys of a transaction.
pub(super) const KEYS_MAX: usize = 100_000;

/// A key's value; `None` if the key is absent.
pub(super) type Value = Option<Vec<u8>>;

/// The value that a transaction has read of a key, and the one that it will store.
#[derive(Default)]
struct Entry {
    read: Option<Value>,
    /// The version of the value that was read, if it is known.
    version: Option<Version>,
    write: Option<Value>,
}

impl Entry {
    /// The value that the transaction sees, if it knows one.
    fn known(&self) -> Option<&Value> {
        self.write.as_ref().or(self.read.as_ref())
    }
}

/// The keys that the transaction in progress has read and changed, by their places in the index.
pub(super) struct Overlay {
    entries: BTreeMap<Vec<u8>, Entry>,
    /// How often the transaction was run before.
    pub(super) attempt: u16,
    /// The bytes that were put into the overlay, keys and values together.
    bytes: usize,
    /// The largest number of them.
    bytes_max: usize,
}

impl Overlay {
    /// The overlay of a transaction that was run before this often.
    pub(super) fn new(attempt: u16, bytes_max: usize) -> Self {
        Self { entries: BTreeMap::new(), attempt, bytes: 0, bytes_max }
    }

    /// Forgets all keys.
    pub(super) fn clear(&mut self) {
        *self = Self::new(self.attempt, self.bytes_max);
    }

    /// The number of keys.
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    /// The value that the transaction sees under a key whose value it knows.
    pub(super) fn known(&self, place: &[u8]) -> Option<&Value> {
        self.entries.get(place)?.known()
    }

    /// The value that the transaction sees under a key that it knows; `None` if the key is absent.
    pub(super) fn value(&self, place: &[u8]) -> Option<&[u8]> {
        self.known(place)?.as_deref()
    }

    /// The value that the transaction has read of a key.
    pub(super) fn read(&self, place: &[u8]) -> Option<&[u8]> {
        self.entries.get(place)?.read.as_ref()?.as_deref()
    }

    /// Keeps the value that the index has under a key, and its version if that is known, unless the
    /// transaction knows a value.
    pub(super) fn note(&mut self, place: &[u8], value: Value, version: Option<Version>) -> Result<(), Error> {
        if self.known(place).is_some() {
            return Ok(());
        }
        let entry = self.entry(place, value.as_deref())?;
        (entry.read, entry.version) = (Some(value), version);
        Ok(())
    }

    /// Keeps the value that the transaction will store under a key.
    pub(super) fn write(&mut self, place: &[u8], value: Value) -> Result<(), Error> {
        let entry = self.entry(place, value.as_deref())?;
        entry.write = Some(value);
        Ok(())
    }

    /// Returns a key's entry, for this value.
    ///
    /// # Errors
    /// Fails if there are too many keys or bytes.
    fn entry(&mut self, place: &[u8], value: Option<&[u8]>) -> Result<&mut Entry, Error> {
        self.bytes += place.len() + value.map_or(0, <[u8]>::len);
        if self.bytes > self.bytes_max {
            return Err(TransactionError::TooManyBytes { bytes: self.bytes, max: self.bytes_max }.into());
        }
        let keys = self.entries.len() + usize::from(!self.entries.contains_key(place));
        if keys > KEYS_MAX {
            return Err(TransactionError::TooLarge { keys, max: KEYS_MAX }.into());
        }
        Ok(self.entries.entry(place.to_vec()).or_default())
    }

    /// The keys of a range that the transaction knows, with their values.
    pub(super) fn in_range<'o>(
        &'o self,
        range: &'o ScanRange,
    ) -> impl DoubleEndedIterator<Item = (&'o [u8], Option<&'o [u8]>)> {
        use Bound::{Excluded, Included, Unbounded};
        let is_empty = match (&range.from, &range.to) {
            (Unbounded, _) | (_, Unbounded) => false,
            (Included(from), Included(to)) => from > to,
            (Included(from) | Excluded(from), Included(to) | Excluded(to)) => from >= to,
        };
        let bounds = (range.from.as_ref().map(Vec::as_slice), range.to.as_ref().map(Vec::as_slice));
        let entries = (!is_empty).then(|| self.entries.range::<[u8], _>(bounds));
        let known =
            |(place, entry): (&'o Vec<u8>, &'o Entry)| Some((place.as_slice(), entry.known()?.as_deref()));
        entries.into_iter().flatten().filter_map(known)
    }

    /// The first pairs of a range, in its direction.
    pub(super) fn first_of<'o>(&'o self, range: &'o ScanRange, limit: usize) -> Vec<(&'o [u8], &'o [u8])> {
        let present = self.in_range(range).filter_map(|(place, value)| Some((place, value?)));
        if range.reverse { present.rev().take(limit).collect() } else { present.take(limit).collect() }
    }

    /// Whether a key will have another value.
    pub(super) fn is_changing(&self) -> bool {
        self.entries.values().any(|entry| entry.write.is_some())
    }

    /// Whether there is nothing to commit: the value of a single key needs no verification.
    pub(super) fn is_trivial(&self) -> bool {
        self.entries.len() <= 1 && !self.is_changing()
    }

    /// The keys in their order, for the index.
    pub(super) fn accesses(&self) -> Vec<Access<'_>> {
        let entries = self.entries.iter();
        entries
            .map(|(key, Entry { read, version, write })| Access {
                key,
                read: read.as_ref().map(Option::as_deref),
                version: *version,
                write: write.as_ref().map(|value| value.as_deref().map_or(Write::Remove, Write::Put)),
            })
            .collect()
    }
}
