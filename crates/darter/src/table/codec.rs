//! The places of a table's pairs in the store, and the encoding of their types.

use super::{TableKey, TableValue};
use crate::Error;
use darter_index::{KeyValue, ScanRange};
use foundationdb_tuple::{TuplePack, pack, pack_into, unpack};
use std::borrow::Borrow;
use std::fmt::Display;
use std::marker::PhantomData;
use std::ops::{Bound, RangeBounds};

/// First byte of an encoded string, and so of a table's name.
const STRING: u8 = 2;

/// A table's encoding.
pub(super) struct Codec<K, V> {
    name: String,
    /// The prefix of the table's keys.
    prefix: Vec<u8>,
    types: PhantomData<fn(K) -> V>,
}

impl<K, V> Codec<K, V> {
    pub(super) fn name(&self) -> &str {
        &self.name
    }
}

impl<K, V> Clone for Codec<K, V> {
    fn clone(&self) -> Self {
        Self { name: self.name.clone(), prefix: self.prefix.clone(), types: PhantomData }
    }
}

impl<K: TableKey, V: TableValue> Codec<K, V> {
    pub(super) fn new(name: &str) -> Self {
        let name = name.to_owned();
        Self { prefix: pack(&name), name, types: PhantomData }
    }

    fn error(&self, what: &'static str, why: &impl Display) -> Error {
        Error::Table { table: self.name.clone(), what, why: why.to_string() }
    }

    /// Returns the place of a key in the store.
    pub(super) fn encode_key<Q: ?Sized>(&self, key: &Q) -> Vec<u8>
    where
        K: Borrow<Q>,
        for<'q> &'q Q: TuplePack,
    {
        let mut place = self.prefix.clone();
        pack_into(&key, &mut place);
        place
    }

    /// Returns the part of the store with a part of the table.
    pub(super) fn range<Q: ?Sized>(&self, range: &impl RangeBounds<Q>) -> ScanRange
    where
        K: Borrow<Q>,
        for<'q> &'q Q: TuplePack,
    {
        let ScanRange { from, to, reverse } = self.all();
        let place = |bound: Bound<&Q>, otherwise| match bound {
            Bound::Included(key) => Bound::Included(self.encode_key(key)),
            Bound::Excluded(key) => Bound::Excluded(self.encode_key(key)),
            Bound::Unbounded => otherwise,
        };
        ScanRange { from: place(range.start_bound(), from), to: place(range.end_bound(), to), reverse }
    }

    /// Returns the part of the store with the table.
    pub(super) fn all(&self) -> ScanRange {
        let (from, to) = (Bound::Included(self.prefix.clone()), Bound::Excluded(end_of(&self.prefix)));
        ScanRange { from, to, reverse: false }
    }

    pub(super) fn encode(&self, value: &V) -> Result<Vec<u8>, Error> {
        postcard::to_stdvec(value).map_err(|why| self.error("cannot write the value", &why))
    }

    pub(super) fn decode(&self, bytes: &[u8]) -> Result<V, Error> {
        postcard::from_bytes(bytes).map_err(|why| self.error("holds a value of another type", &why))
    }

    pub(super) fn decode_pair(&self, (place, value): &KeyValue) -> Result<(K, V), Error> {
        let key = unpack(place.get(self.prefix.len()..).unwrap_or_default());
        Ok((key.map_err(|why| self.error("holds a key of another type", &why))?, self.decode(value)?))
    }

    pub(super) fn encode_pairs(&self, pairs: &[(K, V)]) -> Result<Vec<KeyValue>, Error>
    where
        for<'q> &'q K: TuplePack,
    {
        pairs.iter().map(|(key, value)| Ok((self.encode_key(key), self.encode(value)?))).collect()
    }
}

/// Returns the end of the table whose keys begin with `prefix`: no key's encoding begins with 255,
/// which follows the prefix in a table whose name is this one's name, a zero and more.
fn end_of(prefix: &[u8]) -> Vec<u8> {
    [prefix, &[0xff]].concat()
}

/// Returns the range of the store with all tables.
pub(super) fn all_tables() -> ScanRange {
    ScanRange::prefix(&[STRING])
}

/// Returns the name of the table that a place belongs to, and the end of that table; `None` if the
/// place does not belong to a table.
pub(super) fn table_at(place: &[u8]) -> Option<(String, Bound<Vec<u8>>)> {
    // A zero ends a string; a zero followed by 255 is part of it.
    let mut at = 1;
    while *place.get(at)? != 0 || place.get(at + 1) == Some(&0xff) {
        at += if place[at] == 0 { 2 } else { 1 };
    }
    let prefix = &place[..=at];
    Some((unpack(prefix).ok()?, Bound::Included(end_of(prefix))))
}
