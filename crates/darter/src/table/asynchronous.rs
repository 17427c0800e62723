//! A table of a store whose calls are futures.

use super::codec::Codec;
use super::{AsyncTableRange, Table, TableKey, TableValue};
#[allow(unused_imports, reason = "linked to in the docs")]
use crate::Store;
use crate::{AsyncStore, Change, Error, blocking};
use darter_index::PutOutcome;
use foundationdb_tuple::TuplePack;
use std::borrow::Borrow;
use std::ops::RangeBounds;

/// A named part of an [`AsyncStore`] whose keys and values have types, from [`AsyncStore::table`];
/// otherwise the same as [`Table`].
///
/// ```
/// # fn main() -> Result<(), darter::Error> {
/// # darter::block_on(async {
/// let store = darter::AsyncStore::open("mem:16M").await?;
/// let ages: darter::AsyncTable<String, u32> = store.table("ages").await?;
/// ages.put("Ada", &36).await?;
/// assert_eq!(ages.get("Ada").await?, Some(36));
/// # Ok(())
/// # })
/// # }
/// ```
pub struct AsyncTable<K, V> {
    store: AsyncStore,
    codec: Codec<K, V>,
}

impl AsyncStore {
    /// Returns the table with a name.
    ///
    /// ```
    /// # use darter::{AsyncTable, Error};
    /// # fn main() -> Result<(), darter::Error> {
    /// # darter::block_on(async {
    /// # let store = darter::AsyncStore::open("mem:16M").await?;
    /// let ages: AsyncTable<String, u32> = store.table("ages").await?;
    /// ages.put("Ada", &36).await?;
    /// let wrong = store.table::<String, Vec<String>>("ages").await;
    /// assert!(matches!(wrong, Err(Error::Table { .. })));
    /// # Ok(())
    /// # })
    /// # }
    /// ```
    ///
    /// # Errors
    /// Fails as [`Store::table`] does.
    pub async fn table<K: TableKey, V: TableValue>(&self, name: &str) -> Result<AsyncTable<K, V>, Error> {
        let table = AsyncTable { store: self.clone(), codec: Codec::new(name) };
        table.first().await?;
        Ok(table)
    }

    /// Returns the names of the tables that have keys, in ascending order.
    ///
    /// ```
    /// # use darter::AsyncTable;
    /// # fn main() -> Result<(), darter::Error> {
    /// # darter::block_on(async {
    /// # let store = darter::AsyncStore::open("mem:16M").await?;
    /// let ages: AsyncTable<String, u32> = store.table("ages").await?;
    /// ages.put("Ada", &36).await?;
    /// assert_eq!(store.tables().await?, ["ages"]);
    /// # Ok(())
    /// # })
    /// # }
    /// ```
    ///
    /// # Errors
    /// Fails as [`Store::tables`] does.
    pub async fn tables(&self) -> Result<Vec<String>, Error> {
        let store = self.blocking().clone();
        blocking::on_a_thread(move || store.tables()).await
    }
}

impl<K: TableKey, V: TableValue> From<Table<K, V>> for AsyncTable<K, V> {
    fn from(table: Table<K, V>) -> Self {
        let (store, codec) = table.parts();
        Self { store: store.clone().into(), codec: codec.clone() }
    }
}

impl<K: TableKey, V: TableValue> AsyncTable<K, V> {
    pub(super) fn codec(&self) -> &Codec<K, V> {
        &self.codec
    }

    /// Returns the name of the table.
    ///
    /// ```
    /// # fn main() -> Result<(), darter::Error> {
    /// # darter::block_on(async {
    /// # let store = darter::AsyncStore::open("mem:16M").await?;
    /// # let ages: darter::AsyncTable<String, u32> = store.table("ages").await?;
    /// assert_eq!(ages.name(), "ages");
    /// # Ok(())
    /// # })
    /// # }
    /// ```
    pub fn name(&self) -> &str {
        self.codec.name()
    }

    /// Returns the pairs whose keys are in a range, in ascending order.
    ///
    /// ```
    /// # fn main() -> Result<(), darter::Error> {
    /// # darter::block_on(async {
    /// # let store = darter::AsyncStore::open("mem:16M").await?;
    /// let births: darter::AsyncTable<u32, String> = store.table("births").await?;
    /// for (year, name) in [(1815, "Ada"), (1906, "Grace"), (1912, "Alan")] {
    ///     births.put(&year, &name.to_owned()).await?;
    /// }
    /// let last = births.range(1900..1910).next_back().await.transpose()?;
    /// assert_eq!(last, Some((1906, "Grace".to_owned())));
    /// # Ok(())
    /// # })
    /// # }
    /// ```
    pub fn range<Q: ?Sized>(&self, range: impl RangeBounds<Q>) -> AsyncTableRange<'_, K, V>
    where
        K: Borrow<Q>,
        for<'q> &'q Q: TuplePack,
    {
        AsyncTableRange::new(self.store.range(self.codec.range(&range)), &self.codec)
    }

    /// Returns all pairs, in ascending order.
    ///
    /// ```
    /// # fn main() -> Result<(), darter::Error> {
    /// # darter::block_on(async {
    /// # let store = darter::AsyncStore::open("mem:16M").await?;
    /// # let ages: darter::AsyncTable<String, u32> = store.table("ages").await?;
    /// ages.put_many(&[("Grace".to_owned(), 85), ("Ada".to_owned(), 36)]).await?;
    /// let (mut pairs, mut sum) = (ages.pairs(), 0);
    /// while let Some(pair) = pairs.next().await {
    ///     let (_, age) = pair?;
    ///     sum += age;
    /// }
    /// assert_eq!(sum, 121);
    /// # Ok(())
    /// # })
    /// # }
    /// ```
    pub fn pairs(&self) -> AsyncTableRange<'_, K, V> {
        AsyncTableRange::new(self.store.range(self.codec.all()), &self.codec)
    }

    /// Returns the value of a key; `None` if the key is absent.
    ///
    /// ```
    /// # fn main() -> Result<(), darter::Error> {
    /// # darter::block_on(async {
    /// # let store = darter::AsyncStore::open("mem:16M").await?;
    /// # let ages: darter::AsyncTable<String, u32> = store.table("ages").await?;
    /// ages.put("Ada", &36).await?;
    /// assert_eq!(ages.get("Ada").await?, Some(36));
    /// assert_eq!(ages.get("Alan").await?, None);
    /// # Ok(())
    /// # })
    /// # }
    /// ```
    ///
    /// # Errors
    /// Fails as [`Store::get`] does, and if the table holds a value of another type.
    pub async fn get<Q: ?Sized>(&self, key: &Q) -> Result<Option<V>, Error>
    where
        K: Borrow<Q>,
        for<'q> &'q Q: TuplePack,
    {
        let codec = &self.codec;
        self.store.get_with(codec.encode_key(key), |bytes| codec.decode(bytes)).await?.transpose()
    }

    /// Returns the values of several keys, in the order of the keys, read as by [`Store::get_many`].
    ///
    /// ```
    /// # fn main() -> Result<(), darter::Error> {
    /// # darter::block_on(async {
    /// # let store = darter::AsyncStore::open("mem:16M").await?;
    /// # let ages: darter::AsyncTable<String, u32> = store.table("ages").await?;
    /// ages.put("Ada", &36).await?;
    /// let values = ages.get_many(&["Ada".to_owned(), "Alan".to_owned()]).await?;
    /// assert_eq!(values, [Some(36), None]);
    /// # Ok(())
    /// # })
    /// # }
    /// ```
    ///
    /// # Errors
    /// Fails as [`Store::get`] does, and if the table holds a value of another type.
    pub async fn get_many(&self, keys: &[K]) -> Result<Vec<Option<V>>, Error> {
        let keys: Vec<_> = keys.iter().map(|key| self.codec.encode_key(key)).collect();
        let found = self.store.get_many(&keys).await?;
        found.into_iter().map(|bytes| bytes.map(|bytes| self.codec.decode(&bytes)).transpose()).collect()
    }

    /// Returns whether a key is present.
    ///
    /// ```
    /// # fn main() -> Result<(), darter::Error> {
    /// # darter::block_on(async {
    /// # let store = darter::AsyncStore::open("mem:16M").await?;
    /// # let ages: darter::AsyncTable<String, u32> = store.table("ages").await?;
    /// ages.put("Ada", &36).await?;
    /// assert!(ages.contains_key("Ada").await?);
    /// assert!(!ages.contains_key("Alan").await?);
    /// # Ok(())
    /// # })
    /// # }
    /// ```
    ///
    /// # Errors
    /// Fails as [`Store::get`] does.
    pub async fn contains_key<Q: ?Sized>(&self, key: &Q) -> Result<bool, Error>
    where
        K: Borrow<Q>,
        for<'q> &'q Q: TuplePack,
    {
        self.store.contains_key(self.codec.encode_key(key)).await
    }

    /// Returns the pair with the smallest key.
    ///
    /// ```
    /// # fn main() -> Result<(), darter::Error> {
    /// # darter::block_on(async {
    /// # let store = darter::AsyncStore::open("mem:16M").await?;
    /// # let ages: darter::AsyncTable<String, u32> = store.table("ages").await?;
    /// ages.put_many(&[("Grace".to_owned(), 85), ("Ada".to_owned(), 36)]).await?;
    /// assert_eq!(ages.first().await?, Some(("Ada".to_owned(), 36)));
    /// # Ok(())
    /// # })
    /// # }
    /// ```
    ///
    /// # Errors
    /// Fails as [`Store::get`] does, and if the table holds a value of another type.
    pub async fn first(&self) -> Result<Option<(K, V)>, Error> {
        self.pairs().limit(1).next().await.transpose()
    }

    /// Returns the pair with the largest key.
    ///
    /// ```
    /// # fn main() -> Result<(), darter::Error> {
    /// # darter::block_on(async {
    /// # let store = darter::AsyncStore::open("mem:16M").await?;
    /// # let ages: darter::AsyncTable<String, u32> = store.table("ages").await?;
    /// ages.put_many(&[("Grace".to_owned(), 85), ("Ada".to_owned(), 36)]).await?;
    /// assert_eq!(ages.last().await?, Some(("Grace".to_owned(), 85)));
    /// # Ok(())
    /// # })
    /// # }
    /// ```
    ///
    /// # Errors
    /// Fails as [`Store::get`] does, and if the table holds a value of another type.
    pub async fn last(&self) -> Result<Option<(K, V)>, Error> {
        self.pairs().limit(1).next_back().await.transpose()
    }

    /// Returns whether the table has no keys.
    ///
    /// ```
    /// # fn main() -> Result<(), darter::Error> {
    /// # darter::block_on(async {
    /// # let store = darter::AsyncStore::open("mem:16M").await?;
    /// # let ages: darter::AsyncTable<String, u32> = store.table("ages").await?;
    /// assert!(ages.is_empty().await?);
    /// ages.put("Ada", &36).await?;
    /// assert!(!ages.is_empty().await?);
    /// # Ok(())
    /// # })
    /// # }
    /// ```
    ///
    /// # Errors
    /// Fails as [`Store::get`] does.
    pub async fn is_empty(&self) -> Result<bool, Error> {
        Ok(self.store.scan_chunk(&self.codec.all(), 1).await?.is_empty())
    }

    /// Stores a value under a key, whether or not the key is present. Returns whether the key was
    /// [inserted](PutOutcome::Inserted) or its value [replaced](PutOutcome::Replaced).
    ///
    /// ```
    /// # use darter::PutOutcome;
    /// # fn main() -> Result<(), darter::Error> {
    /// # darter::block_on(async {
    /// # let store = darter::AsyncStore::open("mem:16M").await?;
    /// # let ages: darter::AsyncTable<String, u32> = store.table("ages").await?;
    /// assert_eq!(ages.put("Ada", &36).await?, PutOutcome::Inserted);
    /// assert_eq!(ages.put("Ada", &37).await?, PutOutcome::Replaced);
    /// # Ok(())
    /// # })
    /// # }
    /// ```
    ///
    /// # Errors
    /// Fails as [`Store::put`] does.
    pub async fn put<Q: ?Sized>(&self, key: &Q, value: &V) -> Result<PutOutcome, Error>
    where
        K: Borrow<Q>,
        for<'q> &'q Q: TuplePack,
    {
        self.store.put(self.codec.encode_key(key), self.codec.encode(value)?).await
    }

    /// Stores a value under a key and returns the value that it replaces.
    ///
    /// ```
    /// # fn main() -> Result<(), darter::Error> {
    /// # darter::block_on(async {
    /// # let store = darter::AsyncStore::open("mem:16M").await?;
    /// # let ages: darter::AsyncTable<String, u32> = store.table("ages").await?;
    /// assert_eq!(ages.insert("Ada", &36).await?, None);
    /// assert_eq!(ages.insert("Ada", &37).await?, Some(36));
    /// # Ok(())
    /// # })
    /// # }
    /// ```
    ///
    /// # Errors
    /// Fails as [`Store::put`] does.
    pub async fn insert<Q: ?Sized>(&self, key: &Q, value: &V) -> Result<Option<V>, Error>
    where
        K: Borrow<Q>,
        for<'q> &'q Q: TuplePack,
    {
        let replaced = self.store.insert(self.codec.encode_key(key), self.codec.encode(value)?).await?;
        replaced.map(|bytes| self.codec.decode(&bytes)).transpose()
    }

    /// Stores a value under a key if the key is absent. Returns whether it was.
    ///
    /// ```
    /// # fn main() -> Result<(), darter::Error> {
    /// # darter::block_on(async {
    /// # let store = darter::AsyncStore::open("mem:16M").await?;
    /// # let ages: darter::AsyncTable<String, u32> = store.table("ages").await?;
    /// assert!(ages.try_insert("Ada", &36).await?);
    /// assert!(!ages.try_insert("Ada", &99).await?);
    /// assert_eq!(ages.get("Ada").await?, Some(36));
    /// # Ok(())
    /// # })
    /// # }
    /// ```
    ///
    /// # Errors
    /// Fails as [`Store::put`] does.
    pub async fn try_insert<Q: ?Sized>(&self, key: &Q, value: &V) -> Result<bool, Error>
    where
        K: Borrow<Q>,
        for<'q> &'q Q: TuplePack,
    {
        self.store.try_insert(self.codec.encode_key(key), self.codec.encode(value)?).await
    }

    /// Replaces the value of a key if the key is present. Returns the former value; `None` if the
    /// key is absent.
    ///
    /// ```
    /// # fn main() -> Result<(), darter::Error> {
    /// # darter::block_on(async {
    /// # let store = darter::AsyncStore::open("mem:16M").await?;
    /// # let ages: darter::AsyncTable<String, u32> = store.table("ages").await?;
    /// assert_eq!(ages.replace("Ada", &36).await?, None, "absent, so not stored");
    /// ages.put("Ada", &36).await?;
    /// assert_eq!(ages.replace("Ada", &37).await?, Some(36));
    /// # Ok(())
    /// # })
    /// # }
    /// ```
    ///
    /// # Errors
    /// Fails as [`Store::put`] does.
    pub async fn replace<Q: ?Sized>(&self, key: &Q, value: &V) -> Result<Option<V>, Error>
    where
        K: Borrow<Q>,
        for<'q> &'q Q: TuplePack,
    {
        let replaced = self.store.replace(self.codec.encode_key(key), self.codec.encode(value)?).await?;
        replaced.map(|bytes| self.codec.decode(&bytes)).transpose()
    }

    /// Stores several pairs, up to 16 at a time, as [`Store::put_many`] does.
    ///
    /// ```
    /// # use darter::PutOutcome;
    /// # fn main() -> Result<(), darter::Error> {
    /// # darter::block_on(async {
    /// # let store = darter::AsyncStore::open("mem:16M").await?;
    /// # let ages: darter::AsyncTable<String, u32> = store.table("ages").await?;
    /// ages.put("Ada", &36).await?;
    /// let pairs = [("Ada".to_owned(), 37), ("Alan".to_owned(), 41)];
    /// let outcomes = ages.put_many(&pairs).await?;
    /// assert_eq!(outcomes, [PutOutcome::Replaced, PutOutcome::Inserted]);
    /// # Ok(())
    /// # })
    /// # }
    /// ```
    ///
    /// # Errors
    /// Fails as [`Store::put_many`] does.
    pub async fn put_many(&self, pairs: &[(K, V)]) -> Result<Vec<PutOutcome>, Error> {
        self.store.put_many(&self.codec.encode_pairs(pairs)?).await
    }

    /// Puts, keeps or removes a key as `decide` returns for its value, which is `None` if the key
    /// is absent. Returns whether anything changed.
    ///
    /// `decide` is called again if another client changes the key before the decision takes effect.
    /// The decision of its last call takes effect.
    ///
    /// ```
    /// # use darter::Change;
    /// # fn main() -> Result<(), darter::Error> {
    /// # darter::block_on(async {
    /// # let store = darter::AsyncStore::open("mem:16M").await?;
    /// # let ages: darter::AsyncTable<String, u32> = store.table("ages").await?;
    /// ages.put("Ada", &36).await?;
    /// ages.update("Ada", |age| age.map_or(Change::Keep, |age| Change::Put(age + 1))).await?;
    /// assert_eq!(ages.get("Ada").await?, Some(37));
    /// # Ok(())
    /// # })
    /// # }
    /// ```
    ///
    /// # Errors
    /// Fails as [`Store::put`] does, and if the table holds a value of another type.
    pub async fn update<Q: ?Sized>(
        &self,
        key: &Q,
        mut decide: impl FnMut(Option<V>) -> Change<V> + Send,
    ) -> Result<bool, Error>
    where
        K: Borrow<Q>,
        for<'q> &'q Q: TuplePack,
    {
        let mut failure = None;
        let changes = self
            .store
            .update(self.codec.encode_key(key), |bytes| {
                let value = bytes.map(|bytes| self.codec.decode(bytes)).transpose();
                let change = value.and_then(|value| decide(value).try_map(|value| self.codec.encode(&value)));
                change.unwrap_or_else(|error| {
                    failure = Some(error);
                    Change::Keep
                })
            })
            .await?;
        failure.map_or(Ok(changes), Err)
    }

    /// Removes a key and returns its value; `None` if the key is absent.
    ///
    /// ```
    /// # fn main() -> Result<(), darter::Error> {
    /// # darter::block_on(async {
    /// # let store = darter::AsyncStore::open("mem:16M").await?;
    /// # let ages: darter::AsyncTable<String, u32> = store.table("ages").await?;
    /// ages.put("Ada", &36).await?;
    /// assert_eq!(ages.remove("Ada").await?, Some(36));
    /// assert_eq!(ages.remove("Ada").await?, None);
    /// # Ok(())
    /// # })
    /// # }
    /// ```
    ///
    /// # Errors
    /// Fails as [`Store::remove`] does, and if the table holds a value of another type. The key is
    /// then removed.
    pub async fn remove<Q: ?Sized>(&self, key: &Q) -> Result<Option<V>, Error>
    where
        K: Borrow<Q>,
        for<'q> &'q Q: TuplePack,
    {
        let removed = self.store.remove(self.codec.encode_key(key)).await?;
        removed.map(|bytes| self.codec.decode(&bytes)).transpose()
    }

    /// Removes a key. Returns whether it was present.
    ///
    /// ```
    /// # fn main() -> Result<(), darter::Error> {
    /// # darter::block_on(async {
    /// # let store = darter::AsyncStore::open("mem:16M").await?;
    /// # let ages: darter::AsyncTable<String, u32> = store.table("ages").await?;
    /// ages.put("Ada", &36).await?;
    /// assert!(ages.discard("Ada").await?);
    /// assert!(!ages.discard("Ada").await?);
    /// # Ok(())
    /// # })
    /// # }
    /// ```
    ///
    /// # Errors
    /// Fails as [`Store::remove`] does.
    pub async fn discard<Q: ?Sized>(&self, key: &Q) -> Result<bool, Error>
    where
        K: Borrow<Q>,
        for<'q> &'q Q: TuplePack,
    {
        self.store.discard(self.codec.encode_key(key)).await
    }

    /// Removes the keys of a range, as [`Store::remove_range`] does. Returns their number.
    ///
    /// ```
    /// # fn main() -> Result<(), darter::Error> {
    /// # darter::block_on(async {
    /// # let store = darter::AsyncStore::open("mem:16M").await?;
    /// let births: darter::AsyncTable<u32, String> = store.table("births").await?;
    /// births.put_many(&[1815, 1906, 1912].map(|year| (year, String::new()))).await?;
    /// assert_eq!(births.remove_range(1900..).await?, 2);
    /// # Ok(())
    /// # })
    /// # }
    /// ```
    ///
    /// # Errors
    /// Fails as [`Store::remove_range`] does.
    pub async fn remove_range<Q: ?Sized>(&self, range: impl RangeBounds<Q>) -> Result<u64, Error>
    where
        K: Borrow<Q>,
        for<'q> &'q Q: TuplePack,
    {
        self.store.remove_range(self.codec.range(&range)).await
    }

    /// Removes all keys of the table. Returns their number.
    ///
    /// ```
    /// # fn main() -> Result<(), darter::Error> {
    /// # darter::block_on(async {
    /// # let store = darter::AsyncStore::open("mem:16M").await?;
    /// # let ages: darter::AsyncTable<String, u32> = store.table("ages").await?;
    /// store.put("Ada", "a key outside of the table").await?;
    /// ages.put("Ada", &36).await?;
    /// assert_eq!(ages.clear().await?, 1);
    /// assert!(ages.is_empty().await? && store.contains_key("Ada").await?);
    /// # Ok(())
    /// # })
    /// # }
    /// ```
    ///
    /// # Errors
    /// Fails as [`Store::remove_range`] does.
    pub async fn clear(&self) -> Result<u64, Error> {
        self.store.remove_range(self.codec.all()).await
    }
}

impl<K, V> Clone for AsyncTable<K, V> {
    fn clone(&self) -> Self {
        Self { store: self.store.clone(), codec: self.codec.clone() }
    }
}

impl<K, V> std::fmt::Debug for AsyncTable<K, V> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AsyncTable").field("name", &self.codec.name()).finish_non_exhaustive()
    }
}
