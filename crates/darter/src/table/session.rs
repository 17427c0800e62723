//! One thread's access to a table.

use super::codec::{Codec, all_tables, table_at};
use super::{Table, TableKey, TableValue};
use crate::{Change, DefaultFabric, Error, Scan, Session};
use darter_fabric::Fabric;
use darter_index::PutOutcome;
use foundationdb_tuple::TuplePack;
use std::borrow::Borrow;
use std::ops::RangeBounds;

/// A table as a [`Session`] reaches it. What is said there of guarantees and errors holds here; in
/// addition every call fails with [`Error::Table`] if it meets a pair of other types.
pub struct TableSession<'s, K, V, F: Fabric = DefaultFabric> {
    session: &'s Session<F>,
    codec: Codec<K, V>,
}

impl<F: Fabric> Session<F> {
    /// Returns this session's view of a table.
    pub fn table<K: TableKey, V: TableValue>(&self, table: &Table<K, V>) -> TableSession<'_, K, V, F> {
        TableSession { session: self, codec: Codec::new(table) }
    }

    /// Returns the names of the tables that have keys, in order. Costs two searches a table.
    ///
    /// # Errors
    /// Fails as [`Session::get`] does.
    pub fn tables(&self) -> Result<Vec<String>, Error> {
        let mut names = Vec::new();
        let mut left = all_tables();
        while let Some(first) = self.scan(&left).limit(1).next() {
            let (place, _) = first?;
            left.from = match table_at(&place) {
                Some((name, end)) => {
                    names.push(name);
                    end
                }
                None => std::ops::Bound::Excluded(place),
            };
        }
        Ok(names)
    }
}

impl<'s, K: TableKey, V: TableValue, F: Fabric> TableSession<'s, K, V, F> {
    /// Returns the value of a key.
    ///
    /// # Errors
    /// Fails as [`Session::get`] does.
    pub fn get<Q: ?Sized>(&self, key: &Q) -> Result<Option<V>, Error>
    where
        K: Borrow<Q>,
        for<'q> &'q Q: TuplePack,
    {
        self.session.get_with(self.codec.place(key), |bytes| self.codec.decode(bytes))?.transpose()
    }

    /// Returns whether a key is present.
    ///
    /// # Errors
    /// Fails as [`Session::get`] does.
    pub fn contains_key<Q: ?Sized>(&self, key: &Q) -> Result<bool, Error>
    where
        K: Borrow<Q>,
        for<'q> &'q Q: TuplePack,
    {
        self.session.contains_key(self.codec.place(key))
    }

    /// Returns the values of several keys, in their order, in the round trips of the longest search.
    ///
    /// # Errors
    /// Fails as [`Session::get`] does.
    pub fn multi_get(&self, keys: &[K]) -> Result<Vec<Option<V>>, Error> {
        let places: Vec<_> = keys.iter().map(|key| self.codec.place(key)).collect();
        let found = self.session.multi_get(&places)?;
        found.into_iter().map(|bytes| bytes.map(|bytes| self.codec.decode(&bytes)).transpose()).collect()
    }

    /// Stores a value under a key, whether or not the key is there: an upsert.
    ///
    /// # Errors
    /// Fails as [`Session::put`] does.
    pub fn put<Q: ?Sized>(&self, key: &Q, value: &V) -> Result<PutOutcome, Error>
    where
        K: Borrow<Q>,
        for<'q> &'q Q: TuplePack,
    {
        self.session.put(self.codec.place(key), self.codec.encode(value)?)
    }

    /// Stores a value under a key and returns the value that it replaces.
    ///
    /// # Errors
    /// Fails as [`Session::put`] does.
    pub fn insert<Q: ?Sized>(&self, key: &Q, value: &V) -> Result<Option<V>, Error>
    where
        K: Borrow<Q>,
        for<'q> &'q Q: TuplePack,
    {
        let replaced = self.session.insert(self.codec.place(key), self.codec.encode(value)?)?;
        replaced.map(|bytes| self.codec.decode(&bytes)).transpose()
    }

    /// Stores a value under a key if the key is absent; returns whether it was.
    ///
    /// # Errors
    /// Fails as [`Session::put`] does.
    pub fn insert_if_absent<Q: ?Sized>(&self, key: &Q, value: &V) -> Result<bool, Error>
    where
        K: Borrow<Q>,
        for<'q> &'q Q: TuplePack,
    {
        self.session.insert_if_absent(self.codec.place(key), self.codec.encode(value)?)
    }

    /// Stores many pairs as [`Session::put_many`] does.
    ///
    /// # Errors
    /// Fails as [`Session::put_many`] does.
    pub fn put_many(&self, pairs: &[(K, V)]) -> Result<Vec<PutOutcome>, Error> {
        self.session.put_many(&self.codec.encode_pairs(pairs)?)
    }

    /// Removes a key; returns whether it was there.
    ///
    /// # Errors
    /// Fails as [`Session::delete`] does.
    pub fn delete<Q: ?Sized>(&self, key: &Q) -> Result<bool, Error>
    where
        K: Borrow<Q>,
        for<'q> &'q Q: TuplePack,
    {
        self.session.delete(self.codec.place(key))
    }

    /// Puts, keeps or removes a key as `decide` returns for its value; see [`Session::modify`].
    ///
    /// # Errors
    /// Fails as [`Session::put`] does. If a value cannot be read or written, the key stays as it is.
    pub fn modify<Q: ?Sized>(
        &self,
        key: &Q,
        mut decide: impl FnMut(Option<V>) -> Change<V>,
    ) -> Result<bool, Error>
    where
        K: Borrow<Q>,
        for<'q> &'q Q: TuplePack,
    {
        let mut failure = None;
        let changed = self.session.modify(self.codec.place(key), |old| {
            let decided = old.map(|bytes| self.codec.decode(bytes)).transpose().map(&mut decide);
            let encoded = decided.and_then(|change| change.try_map(|value| self.codec.encode(&value)));
            failure = None;
            encoded.unwrap_or_else(|error| {
                failure = Some(error);
                Change::Keep
            })
        })?;
        failure.map_or(Ok(changed), Err)
    }

    /// Returns the pairs whose keys lie in a range, in order, from either end.
    pub fn range<Q: ?Sized>(&self, range: impl RangeBounds<Q>) -> Rows<'s, K, V, F>
    where
        K: Borrow<Q>,
        for<'q> &'q Q: TuplePack,
    {
        Rows { scan: self.session.scan(self.codec.range(&range)), codec: self.codec.clone() }
    }

    /// Returns all pairs, in order, from either end.
    pub fn scan(&self) -> Rows<'s, K, V, F> {
        Rows { scan: self.session.scan(self.codec.all()), codec: self.codec.clone() }
    }

    /// Returns the pair with the least key.
    ///
    /// # Errors
    /// Fails as [`Session::get`] does.
    pub fn first(&self) -> Result<Option<(K, V)>, Error> {
        self.scan().limit(1).next().transpose()
    }

    /// Returns the pair with the greatest key.
    ///
    /// # Errors
    /// Fails as [`Session::get`] does.
    pub fn last(&self) -> Result<Option<(K, V)>, Error> {
        self.scan().limit(1).next_back().transpose()
    }

    /// Returns whether the table has no key.
    ///
    /// # Errors
    /// Fails as [`Session::get`] does.
    pub fn is_empty(&self) -> Result<bool, Error> {
        Ok(self.session.scan(self.codec.all()).limit(1).next().transpose()?.is_none())
    }

    /// Removes the keys of a range; see [`Session::delete_range`].
    ///
    /// # Errors
    /// Fails as [`Session::delete_range`] does.
    pub fn delete_range<Q: ?Sized>(&self, range: impl RangeBounds<Q>) -> Result<u64, Error>
    where
        K: Borrow<Q>,
        for<'q> &'q Q: TuplePack,
    {
        self.session.delete_range(self.codec.range(&range))
    }

    /// Removes all keys of the table; returns how many.
    ///
    /// # Errors
    /// Fails as [`Session::delete_range`] does.
    pub fn clear(&self) -> Result<u64, Error> {
        self.session.delete_range(self.codec.all())
    }
}

/// A scan of a table; otherwise as [`Scan`].
#[must_use = "a scan does nothing until iterated"]
pub struct Rows<'s, K, V, F: Fabric = DefaultFabric> {
    scan: Scan<'s, F>,
    codec: Codec<K, V>,
}

impl<K, V, F: Fabric> Rows<'_, K, V, F> {
    /// As [`Scan::limit`].
    pub fn limit(self, limit: usize) -> Self {
        Self { scan: self.scan.limit(limit), ..self }
    }
}

impl<K: TableKey, V: TableValue, F: Fabric> Iterator for Rows<'_, K, V, F> {
    type Item = Result<(K, V), Error>;

    fn next(&mut self) -> Option<Self::Item> {
        self.scan.next().map(|pair| self.codec.decode_pair(&pair?))
    }
}

impl<K: TableKey, V: TableValue, F: Fabric> DoubleEndedIterator for Rows<'_, K, V, F> {
    fn next_back(&mut self) -> Option<Self::Item> {
        self.scan.next_back().map(|pair| self.codec.decode_pair(&pair?))
    }
}
