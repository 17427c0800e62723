//! One task's access to a table.

use super::codec::Codec;
use super::{Table, TableKey, TableValue};
use crate::{AsyncScan, AsyncSession, DefaultFabric, Error};
use darter_fabric::Fabric;
use darter_index::PutOutcome;
use foundationdb_tuple::TuplePack;
use std::borrow::Borrow;
use std::ops::RangeBounds;

/// A table as an [`AsyncSession`] reaches it; otherwise as [`super::TableSession`].
pub struct AsyncTableSession<'s, K, V, F: Fabric = DefaultFabric> {
    session: &'s mut AsyncSession<F>,
    codec: Codec<K, V>,
}

impl<F: Fabric> AsyncSession<F> {
    /// Returns this session's view of a table.
    pub fn table<K: TableKey, V: TableValue>(
        &mut self,
        table: &Table<K, V>,
    ) -> AsyncTableSession<'_, K, V, F> {
        AsyncTableSession { session: self, codec: Codec::new(table) }
    }
}

impl<K: TableKey, V: TableValue, F: Fabric> AsyncTableSession<'_, K, V, F> {
    /// Returns the value of a key.
    ///
    /// # Errors
    /// Fails as [`AsyncSession::get`] does.
    pub async fn get<Q: ?Sized>(&mut self, key: &Q) -> Result<Option<V>, Error>
    where
        K: Borrow<Q>,
        for<'q> &'q Q: TuplePack,
    {
        let codec = &self.codec;
        self.session.get_with(codec.place(key), |bytes| codec.decode(bytes)).await?.transpose()
    }

    /// Returns the values of several keys, in their order, in the round trips of the longest search.
    ///
    /// # Errors
    /// Fails as [`AsyncSession::get`] does.
    pub async fn multi_get(&mut self, keys: &[K]) -> Result<Vec<Option<V>>, Error> {
        let places: Vec<_> = keys.iter().map(|key| self.codec.place(key)).collect();
        let found = self.session.multi_get(&places).await?;
        found.into_iter().map(|bytes| bytes.map(|bytes| self.codec.decode(&bytes)).transpose()).collect()
    }

    /// Stores a value under a key, whether or not the key is there: an upsert.
    ///
    /// # Errors
    /// Fails as [`AsyncSession::put`] does.
    pub async fn put<Q: ?Sized>(&mut self, key: &Q, value: &V) -> Result<PutOutcome, Error>
    where
        K: Borrow<Q>,
        for<'q> &'q Q: TuplePack,
    {
        self.session.put(self.codec.place(key), self.codec.encode(value)?).await
    }

    /// Stores a value under a key if the key is absent; returns whether it was.
    ///
    /// # Errors
    /// Fails as [`AsyncSession::put`] does.
    pub async fn insert_if_absent<Q: ?Sized>(&mut self, key: &Q, value: &V) -> Result<bool, Error>
    where
        K: Borrow<Q>,
        for<'q> &'q Q: TuplePack,
    {
        self.session.insert_if_absent(self.codec.place(key), self.codec.encode(value)?).await
    }

    /// Stores many pairs as [`AsyncSession::put_many`] does.
    ///
    /// # Errors
    /// Fails as [`AsyncSession::put_many`] does.
    pub async fn put_many(&mut self, pairs: &[(K, V)]) -> Result<Vec<PutOutcome>, Error> {
        self.session.put_many(&self.codec.encode_pairs(pairs)?).await
    }

    /// Removes a key; returns whether it was there.
    ///
    /// # Errors
    /// Fails as [`AsyncSession::delete`] does.
    pub async fn delete<Q: ?Sized>(&mut self, key: &Q) -> Result<bool, Error>
    where
        K: Borrow<Q>,
        for<'q> &'q Q: TuplePack,
    {
        self.session.delete(self.codec.place(key)).await
    }

    /// Returns the pairs whose keys lie in a range, in order.
    pub fn range<Q: ?Sized>(&mut self, range: impl RangeBounds<Q>) -> AsyncRows<'_, K, V, F>
    where
        K: Borrow<Q>,
        for<'q> &'q Q: TuplePack,
    {
        AsyncRows { scan: self.session.scan(self.codec.range(&range)), codec: self.codec.clone() }
    }

    /// Returns all pairs, in order.
    pub fn scan(&mut self) -> AsyncRows<'_, K, V, F> {
        AsyncRows { scan: self.session.scan(self.codec.all()), codec: self.codec.clone() }
    }
}

/// A scan of a table whose pairs are awaited; otherwise as [`AsyncScan`].
#[must_use = "a scan does nothing until asked for its next pair"]
pub struct AsyncRows<'s, K, V, F: Fabric = DefaultFabric> {
    scan: AsyncScan<'s, F>,
    codec: Codec<K, V>,
}

impl<K: TableKey, V: TableValue, F: Fabric> AsyncRows<'_, K, V, F> {
    /// As [`crate::Scan::limit`].
    pub fn limit(self, limit: usize) -> Self {
        Self { scan: self.scan.limit(limit), ..self }
    }

    /// Returns the next pair. A future dropped in mid-air loses no pair.
    pub async fn next(&mut self) -> Option<Result<(K, V), Error>> {
        let pair = self.scan.next().await?;
        Some(pair.and_then(|pair| self.codec.decode_pair(&pair)))
    }

    /// Returns the next pair from the other end.
    pub async fn next_back(&mut self) -> Option<Result<(K, V), Error>> {
        let pair = self.scan.next_back().await?;
        Some(pair.and_then(|pair| self.codec.decode_pair(&pair)))
    }
}
