//! Tables inside transactions.

use super::codec::Codec;
use super::{AsyncTable, Table, TableKey, TableValue};
use crate::{AsyncTransaction, Error, Transaction};
use foundationdb_tuple::TuplePack;
use std::borrow::Borrow;

/// A table inside a transaction, from [`Transaction::table`].
///
/// ```
/// # fn main() -> Result<(), darter::Error> {
/// let store = darter::Store::open("mem:16M")?;
/// let accounts: darter::Table<u32, i64> = store.table("accounts")?;
/// let mut transaction = store.transaction()?;
/// transaction.table(&accounts).put(&1, &100)?;
/// transaction.table(&accounts).put(&2, &0)?;
/// transaction.commit()?;
/// assert_eq!(accounts.get(&1)?, Some(100));
/// # Ok(())
/// # }
/// ```
pub struct TableTransaction<'t, 's, K, V> {
    transaction: &'t mut Transaction<'s>,
    codec: &'t Codec<K, V>,
}

impl<'s> Transaction<'s> {
    /// Returns a table of the same store, to read and change in this transaction.
    ///
    /// ```
    /// # fn main() -> Result<(), darter::Error> {
    /// # let store = darter::Store::open("mem:16M")?;
    /// # let accounts: darter::Table<u32, i64> = store.table("accounts")?;
    /// # let mut transaction = store.transaction()?;
    /// transaction.table(&accounts).put(&1, &100)?;
    /// assert_eq!(transaction.table(&accounts).get(&1)?, Some(100));
    /// # Ok(())
    /// # }
    /// ```
    pub fn table<'t, K: TableKey, V: TableValue>(
        &'t mut self,
        table: &'t Table<K, V>,
    ) -> TableTransaction<'t, 's, K, V> {
        TableTransaction { transaction: self, codec: table.codec() }
    }
}

impl<K: TableKey, V: TableValue> TableTransaction<'_, '_, K, V> {
    /// Returns the value of a key, as the transaction has changed it; `None` if the key is absent.
    ///
    /// ```
    /// # fn main() -> Result<(), darter::Error> {
    /// # let store = darter::Store::open("mem:16M")?;
    /// # let accounts: darter::Table<u32, i64> = store.table("accounts")?;
    /// # let mut transaction = store.transaction()?;
    /// assert_eq!(transaction.table(&accounts).get(&1)?, None);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Fails as [`Transaction::get`] does, and with [`Error::Table`] if the value has another type.
    pub fn get<Q: ?Sized>(&mut self, key: &Q) -> Result<Option<V>, Error>
    where
        K: Borrow<Q>,
        for<'q> &'q Q: TuplePack,
    {
        let value = self.transaction.get(self.codec.encode_key(key))?;
        value.map(|value| self.codec.decode(&value)).transpose()
    }

    /// Stores a value under a key when the transaction is committed.
    ///
    /// ```
    /// # fn main() -> Result<(), darter::Error> {
    /// # let store = darter::Store::open("mem:16M")?;
    /// # let accounts: darter::Table<u32, i64> = store.table("accounts")?;
    /// # let mut transaction = store.transaction()?;
    /// transaction.table(&accounts).put(&1, &100)?;
    /// transaction.commit()?;
    /// assert_eq!(accounts.get(&1)?, Some(100));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Fails as [`Transaction::put`] does, and with [`Error::Table`] if the value cannot be serialized.
    pub fn put<Q: ?Sized>(&mut self, key: &Q, value: &V) -> Result<(), Error>
    where
        K: Borrow<Q>,
        for<'q> &'q Q: TuplePack,
    {
        self.transaction.put(self.codec.encode_key(key), self.codec.encode(value)?)
    }

    /// Removes a key when the transaction is committed. Returns the old value.
    ///
    /// ```
    /// # fn main() -> Result<(), darter::Error> {
    /// # let store = darter::Store::open("mem:16M")?;
    /// # let accounts: darter::Table<u32, i64> = store.table("accounts")?;
    /// # let mut transaction = store.transaction()?;
    /// assert_eq!(transaction.table(&accounts).remove(&1)?, None);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Fails as [`Self::get`] and [`Self::put`] do.
    pub fn remove<Q: ?Sized>(&mut self, key: &Q) -> Result<Option<V>, Error>
    where
        K: Borrow<Q>,
        for<'q> &'q Q: TuplePack,
    {
        let value = self.transaction.remove(self.codec.encode_key(key))?;
        value.map(|value| self.codec.decode(&value)).transpose()
    }
}

/// A table inside a transaction, from [`AsyncTransaction::table`].
///
/// ```
/// # fn main() -> Result<(), darter::Error> {
/// # darter::block_on(async {
/// let store = darter::AsyncStore::open("mem:16M").await?;
/// let accounts: darter::AsyncTable<u32, i64> = store.table("accounts").await?;
/// let mut transaction = store.transaction()?;
/// transaction.table(&accounts).put(&1, &100)?;
/// transaction.table(&accounts).put(&2, &0)?;
/// transaction.commit().await?;
/// assert_eq!(accounts.get(&1).await?, Some(100));
/// # Ok(())
/// # })
/// # }
/// ```
pub struct AsyncTableTransaction<'t, 's, K, V> {
    transaction: &'t mut AsyncTransaction<'s>,
    codec: &'t Codec<K, V>,
}

impl<'s> AsyncTransaction<'s> {
    /// Returns a table of the same store, to read and change in this transaction.
    ///
    /// ```
    /// # fn main() -> Result<(), darter::Error> {
    /// # darter::block_on(async {
    /// # let store = darter::AsyncStore::open("mem:16M").await?;
    /// # let accounts: darter::AsyncTable<u32, i64> = store.table("accounts").await?;
    /// # let mut transaction = store.transaction()?;
    /// transaction.table(&accounts).put(&1, &100)?;
    /// assert_eq!(transaction.table(&accounts).get(&1).await?, Some(100));
    /// # Ok(())
    /// # })
    /// # }
    /// ```
    pub fn table<'t, K: TableKey, V: TableValue>(
        &'t mut self,
        table: &'t AsyncTable<K, V>,
    ) -> AsyncTableTransaction<'t, 's, K, V> {
        AsyncTableTransaction { transaction: self, codec: table.codec() }
    }
}

impl<K: TableKey, V: TableValue> AsyncTableTransaction<'_, '_, K, V> {
    /// Returns the value of a key, as the transaction has changed it; `None` if the key is absent.
    ///
    /// ```
    /// # fn main() -> Result<(), darter::Error> {
    /// # darter::block_on(async {
    /// # let store = darter::AsyncStore::open("mem:16M").await?;
    /// # let accounts: darter::AsyncTable<u32, i64> = store.table("accounts").await?;
    /// # let mut transaction = store.transaction()?;
    /// assert_eq!(transaction.table(&accounts).get(&1).await?, None);
    /// # Ok(())
    /// # })
    /// # }
    /// ```
    ///
    /// # Errors
    /// Fails as [`AsyncTransaction::get`] does, and with [`Error::Table`] if the value has another type.
    pub async fn get<Q: ?Sized + Sync>(&mut self, key: &Q) -> Result<Option<V>, Error>
    where
        K: Borrow<Q>,
        for<'q> &'q Q: TuplePack,
    {
        let value = self.transaction.get(self.codec.encode_key(key)).await?;
        value.map(|value| self.codec.decode(&value)).transpose()
    }

    /// Stores a value under a key when the transaction is committed.
    ///
    /// ```
    /// # fn main() -> Result<(), darter::Error> {
    /// # darter::block_on(async {
    /// # let store = darter::AsyncStore::open("mem:16M").await?;
    /// # let accounts: darter::AsyncTable<u32, i64> = store.table("accounts").await?;
    /// # let mut transaction = store.transaction()?;
    /// transaction.table(&accounts).put(&1, &100)?;
    /// transaction.commit().await?;
    /// assert_eq!(accounts.get(&1).await?, Some(100));
    /// # Ok(())
    /// # })
    /// # }
    /// ```
    ///
    /// # Errors
    /// Fails as [`AsyncTransaction::put`] does, and with [`Error::Table`] if the value cannot be serialized.
    pub fn put<Q: ?Sized>(&mut self, key: &Q, value: &V) -> Result<(), Error>
    where
        K: Borrow<Q>,
        for<'q> &'q Q: TuplePack,
    {
        self.transaction.put(self.codec.encode_key(key), self.codec.encode(value)?)
    }

    /// Removes a key when the transaction is committed. Returns the old value.
    ///
    /// ```
    /// # fn main() -> Result<(), darter::Error> {
    /// # darter::block_on(async {
    /// # let store = darter::AsyncStore::open("mem:16M").await?;
    /// # let accounts: darter::AsyncTable<u32, i64> = store.table("accounts").await?;
    /// # let mut transaction = store.transaction()?;
    /// assert_eq!(transaction.table(&accounts).remove(&1).await?, None);
    /// # Ok(())
    /// # })
    /// # }
    /// ```
    ///
    /// # Errors
    /// Fails as [`Self::get`] and [`Self::put`] do.
    pub async fn remove<Q: ?Sized + Sync>(&mut self, key: &Q) -> Result<Option<V>, Error>
    where
        K: Borrow<Q>,
        for<'q> &'q Q: TuplePack,
    {
        let value = self.transaction.remove(self.codec.encode_key(key)).await?;
        value.map(|value| self.codec.decode(&value)).transpose()
    }
}
