//! A table of a store whose calls block.

use super::codec::{Codec, all_tables, table_at};
use super::{TableKey, TableRange, TableValue};
use crate::{Change, Error, Store};
use darter_index::PutOutcome;
use foundationdb_tuple::TuplePack;
use std::borrow::Borrow;
use std::ops::{Bound, RangeBounds};

/// A named part of a [`Store`] whose keys and values have types, from [`Store::table`]. Clones are
/// the same table.
///
/// A table exists if it has a key; it need not be created. Guarantees and errors are those of the
/// store's calls. A call that reads a pair of other types fails with [`Error::Table`].
///
/// ```
/// use darter::{Store, Table};
/// use serde::{Deserialize, Serialize};
///
/// #[derive(Debug, PartialEq, Serialize, Deserialize)]
/// struct Reading {
///     celsius: f32,
/// }
///
/// # fn main() -> Result<(), darter::Error> {
/// let store = Store::open("mem:16M")?;
/// let readings: Table<(String, u64), Reading> = store.table("readings")?; // by station and second
/// for second in [9, 10, 11] {
///     readings.put(&("Berne".to_owned(), second), &Reading { celsius: second as f32 })?;
/// }
/// let late = ("Berne".to_owned(), 10)..;
/// let found = readings.range(late).collect::<Result<Vec<_>, _>>()?;
/// assert_eq!(found[0], (("Berne".to_owned(), 10), Reading { celsius: 10.0 }));
/// assert_eq!(found.len(), 2);
/// assert_eq!(store.tables()?, ["readings"]);
/// # Ok(())
/// # }
/// ```
pub struct Table<K, V> {
    store: Store,
    codec: Codec<K, V>,
}

impl Store {
    /// Returns the table with a name.
    ///
    /// ```
    /// # use darter::{Error, Table};
    /// # fn main() -> Result<(), darter::Error> {
    /// # let store = darter::Store::open("mem:16M")?;
    /// let ages: Table<String, u32> = store.table("ages")?;
    /// ages.put("Ada", &36)?;
    /// let wrong = store.table::<String, Vec<String>>("ages");
    /// assert!(matches!(wrong, Err(Error::Table { .. })));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Fails as [`Store::get`] does, and with [`Error::Table`] if the first pair of the table has
    /// other types.
    pub fn table<K: TableKey, V: TableValue>(&self, name: &str) -> Result<Table<K, V>, Error> {
        let table = Table { store: self.clone(), codec: Codec::new(name) };
        table.first()?;
        Ok(table)
    }

    /// Returns the names of the tables that have keys, in ascending order, in two searches for each
    /// table.
    ///
    /// ```
    /// # use darter::Table;
    /// # fn main() -> Result<(), darter::Error> {
    /// # let store = darter::Store::open("mem:16M")?;
    /// let ages: Table<String, u32> = store.table("ages")?;
    /// assert!(store.tables()?.is_empty(), "the table has no keys yet");
    /// ages.put("Ada", &36)?;
    /// assert_eq!(store.tables()?, ["ages"]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Fails as [`Store::get`] does.
    pub fn tables(&self) -> Result<Vec<String>, Error> {
        let mut names = Vec::new();
        let mut left = all_tables();
        while let Some((place, _)) = self.scan_chunk(&left, 1)?.pop() {
            left.from = match table_at(&place) {
                Some((name, end)) => {
                    names.push(name);
                    end
                }
                None => Bound::Excluded(place),
            };
        }
        Ok(names)
    }
}

impl<K: TableKey, V: TableValue> Table<K, V> {
    /// Returns the name of the table.
    ///
    /// ```
    /// # fn main() -> Result<(), darter::Error> {
    /// # let store = darter::Store::open("mem:16M")?;
    /// # let ages: darter::Table<String, u32> = store.table("ages")?;
    /// assert_eq!(ages.name(), "ages");
    /// # Ok(())
    /// # }
    /// ```
    pub fn name(&self) -> &str {
        self.codec.name()
    }

    pub(super) fn codec(&self) -> &Codec<K, V> {
        &self.codec
    }

    pub(super) fn parts(&self) -> (&Store, &Codec<K, V>) {
        (&self.store, &self.codec)
    }

    /// Returns the pairs whose keys are in a range, in ascending order; `rev()` iterates in
    /// descending order.
    ///
    /// ```
    /// # fn main() -> Result<(), darter::Error> {
    /// # let store = darter::Store::open("mem:16M")?;
    /// let births: darter::Table<u32, String> = store.table("births")?;
    /// for (year, name) in [(1815, "Ada"), (1906, "Grace"), (1912, "Alan")] {
    ///     births.put(&year, &name.to_owned())?;
    /// }
    /// let last = births.range(1900..1910).next_back().transpose()?;
    /// assert_eq!(last, Some((1906, "Grace".to_owned())));
    /// # Ok(())
    /// # }
    /// ```
    pub fn range<Q: ?Sized>(&self, range: impl RangeBounds<Q>) -> TableRange<K, V>
    where
        K: Borrow<Q>,
        for<'q> &'q Q: TuplePack,
    {
        TableRange::new(self.store.range(self.codec.range(&range)), &self.codec)
    }

    /// Returns all pairs, in ascending order; `rev()` iterates in descending order.
    ///
    /// ```
    /// # fn main() -> Result<(), darter::Error> {
    /// # let store = darter::Store::open("mem:16M")?;
    /// # let ages: darter::Table<String, u32> = store.table("ages")?;
    /// ages.put_many(&[("Grace".to_owned(), 85), ("Ada".to_owned(), 36)])?;
    /// let mut sum = 0;
    /// for pair in ages.iter() {
    ///     let (_, age) = pair?;
    ///     sum += age;
    /// }
    /// assert_eq!(sum, 121);
    /// # Ok(())
    /// # }
    /// ```
    pub fn iter(&self) -> TableRange<K, V> {
        TableRange::new(self.store.range(self.codec.all()), &self.codec)
    }

    /// Returns the value of a key; `None` if the key is absent.
    ///
    /// ```
    /// # fn main() -> Result<(), darter::Error> {
    /// # let store = darter::Store::open("mem:16M")?;
    /// # let ages: darter::Table<String, u32> = store.table("ages")?;
    /// ages.put("Ada", &36)?;
    /// assert_eq!(ages.get("Ada")?, Some(36));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Fails as [`Store::get`] does, and if the table holds a value of another type.
    pub fn get<Q: ?Sized>(&self, key: &Q) -> Result<Option<V>, Error>
    where
        K: Borrow<Q>,
        for<'q> &'q Q: TuplePack,
    {
        let codec = &self.codec;
        self.store.get_with(codec.encode_key(key), |bytes| codec.decode(bytes))?.transpose()
    }

    /// Returns the values of several keys, in the order of the keys, read as by [`Store::get_many`].
    ///
    /// ```
    /// # fn main() -> Result<(), darter::Error> {
    /// # let store = darter::Store::open("mem:16M")?;
    /// # let ages: darter::Table<String, u32> = store.table("ages")?;
    /// ages.put("Ada", &36)?;
    /// assert_eq!(ages.get_many(&["Ada".to_owned(), "Alan".to_owned()])?, [Some(36), None]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Fails as [`Store::get`] does, and if the table holds a value of another type.
    pub fn get_many(&self, keys: &[K]) -> Result<Vec<Option<V>>, Error> {
        let keys: Vec<_> = keys.iter().map(|key| self.codec.encode_key(key)).collect();
        let found = self.store.get_many(&keys)?;
        found.into_iter().map(|bytes| bytes.map(|bytes| self.codec.decode(&bytes)).transpose()).collect()
    }

    /// Returns whether a key is present.
    ///
    /// ```
    /// # fn main() -> Result<(), darter::Error> {
    /// # let store = darter::Store::open("mem:16M")?;
    /// # let ages: darter::Table<String, u32> = store.table("ages")?;
    /// ages.put("Ada", &36)?;
    /// assert!(ages.contains_key("Ada")? && !ages.contains_key("Alan")?);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Fails as [`Store::get`] does.
    pub fn contains_key<Q: ?Sized>(&self, key: &Q) -> Result<bool, Error>
    where
        K: Borrow<Q>,
        for<'q> &'q Q: TuplePack,
    {
        self.store.contains_key(self.codec.encode_key(key))
    }

    /// Returns the pair with the smallest key.
    ///
    /// ```
    /// # fn main() -> Result<(), darter::Error> {
    /// # let store = darter::Store::open("mem:16M")?;
    /// # let ages: darter::Table<String, u32> = store.table("ages")?;
    /// ages.put_many(&[("Grace".to_owned(), 85), ("Ada".to_owned(), 36)])?;
    /// assert_eq!(ages.first()?, Some(("Ada".to_owned(), 36)));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Fails as [`Store::get`] does, and if the table holds a value of another type.
    pub fn first(&self) -> Result<Option<(K, V)>, Error> {
        self.iter().limit(1).next().transpose()
    }

    /// Returns the pair with the largest key.
    ///
    /// ```
    /// # fn main() -> Result<(), darter::Error> {
    /// # let store = darter::Store::open("mem:16M")?;
    /// # let ages: darter::Table<String, u32> = store.table("ages")?;
    /// ages.put_many(&[("Grace".to_owned(), 85), ("Ada".to_owned(), 36)])?;
    /// assert_eq!(ages.last()?, Some(("Grace".to_owned(), 85)));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Fails as [`Store::get`] does, and if the table holds a value of another type.
    pub fn last(&self) -> Result<Option<(K, V)>, Error> {
        self.iter().limit(1).next_back().transpose()
    }

    /// Returns whether the table has no keys.
    ///
    /// ```
    /// # fn main() -> Result<(), darter::Error> {
    /// # let store = darter::Store::open("mem:16M")?;
    /// # let ages: darter::Table<String, u32> = store.table("ages")?;
    /// assert!(ages.is_empty()?);
    /// ages.put("Ada", &36)?;
    /// assert!(!ages.is_empty()?);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Fails as [`Store::get`] does.
    pub fn is_empty(&self) -> Result<bool, Error> {
        Ok(self.store.scan_chunk(&self.codec.all(), 1)?.is_empty())
    }

    /// Stores a value under a key, whether or not the key is present. Returns whether the key was
    /// [inserted](PutOutcome::Inserted) or its value [replaced](PutOutcome::Replaced).
    ///
    /// ```
    /// # use darter::PutOutcome;
    /// # fn main() -> Result<(), darter::Error> {
    /// # let store = darter::Store::open("mem:16M")?;
    /// # let ages: darter::Table<String, u32> = store.table("ages")?;
    /// assert_eq!(ages.put("Ada", &36)?, PutOutcome::Inserted);
    /// assert_eq!(ages.put("Ada", &37)?, PutOutcome::Replaced);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Fails as [`Store::put`] does.
    pub fn put<Q: ?Sized>(&self, key: &Q, value: &V) -> Result<PutOutcome, Error>
    where
        K: Borrow<Q>,
        for<'q> &'q Q: TuplePack,
    {
        self.store.put(self.codec.encode_key(key), self.codec.encode(value)?)
    }

    /// Stores a value under a key and returns the value that it replaces.
    ///
    /// ```
    /// # fn main() -> Result<(), darter::Error> {
    /// # let store = darter::Store::open("mem:16M")?;
    /// # let ages: darter::Table<String, u32> = store.table("ages")?;
    /// assert_eq!(ages.insert("Ada", &36)?, None);
    /// assert_eq!(ages.insert("Ada", &37)?, Some(36));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Fails as [`Store::put`] does.
    pub fn insert<Q: ?Sized>(&self, key: &Q, value: &V) -> Result<Option<V>, Error>
    where
        K: Borrow<Q>,
        for<'q> &'q Q: TuplePack,
    {
        let replaced = self.store.insert(self.codec.encode_key(key), self.codec.encode(value)?)?;
        replaced.map(|bytes| self.codec.decode(&bytes)).transpose()
    }

    /// Stores a value under a key if the key is absent. Returns whether it was.
    ///
    /// ```
    /// # fn main() -> Result<(), darter::Error> {
    /// # let store = darter::Store::open("mem:16M")?;
    /// # let ages: darter::Table<String, u32> = store.table("ages")?;
    /// assert!(ages.try_insert("Ada", &36)?);
    /// assert!(!ages.try_insert("Ada", &99)?);
    /// assert_eq!(ages.get("Ada")?, Some(36));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Fails as [`Store::put`] does.
    pub fn try_insert<Q: ?Sized>(&self, key: &Q, value: &V) -> Result<bool, Error>
    where
        K: Borrow<Q>,
        for<'q> &'q Q: TuplePack,
    {
        self.store.try_insert(self.codec.encode_key(key), self.codec.encode(value)?)
    }

    /// Replaces the value of a key if the key is present. Returns the former value; `None` if the
    /// key is absent.
    ///
    /// ```
    /// # fn main() -> Result<(), darter::Error> {
    /// # let store = darter::Store::open("mem:16M")?;
    /// # let ages: darter::Table<String, u32> = store.table("ages")?;
    /// assert_eq!(ages.replace("Ada", &36)?, None, "absent, so not stored");
    /// ages.put("Ada", &36)?;
    /// assert_eq!(ages.replace("Ada", &37)?, Some(36));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Fails as [`Store::put`] does.
    pub fn replace<Q: ?Sized>(&self, key: &Q, value: &V) -> Result<Option<V>, Error>
    where
        K: Borrow<Q>,
        for<'q> &'q Q: TuplePack,
    {
        let replaced = self.store.replace(self.codec.encode_key(key), self.codec.encode(value)?)?;
        replaced.map(|bytes| self.codec.decode(&bytes)).transpose()
    }

    /// Stores several pairs, up to 16 at a time, as [`Store::put_many`] does.
    ///
    /// ```
    /// # use darter::PutOutcome;
    /// # fn main() -> Result<(), darter::Error> {
    /// # let store = darter::Store::open("mem:16M")?;
    /// # let ages: darter::Table<String, u32> = store.table("ages")?;
    /// ages.put("Ada", &36)?;
    /// let outcomes = ages.put_many(&[("Ada".to_owned(), 37), ("Alan".to_owned(), 41)])?;
    /// assert_eq!(outcomes, [PutOutcome::Replaced, PutOutcome::Inserted]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Fails as [`Store::put_many`] does.
    pub fn put_many(&self, pairs: &[(K, V)]) -> Result<Vec<PutOutcome>, Error> {
        self.store.put_many(&self.codec.encode_pairs(pairs)?)
    }

    /// Puts, keeps or removes a key as `decide` returns for its value, which is `None` if the key
    /// is absent. Returns whether anything changed.
    ///
    /// `decide` is called again if another client changes the key before the decision takes effect.
    /// The decision of its last call takes effect.
    ///
    /// ```
    /// # fn main() -> Result<(), darter::Error> {
    /// # let store = darter::Store::open("mem:16M")?;
    /// # let ages: darter::Table<String, u32> = store.table("ages")?;
    /// ages.update("Ada", |age| darter::Change::Put(age.unwrap_or(0) + 1))?;
    /// assert_eq!(ages.get("Ada")?, Some(1));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Fails as [`Store::put`] does, and if the table holds a value of another type.
    pub fn update<Q: ?Sized>(
        &self,
        key: &Q,
        mut decide: impl FnMut(Option<V>) -> Change<V>,
    ) -> Result<bool, Error>
    where
        K: Borrow<Q>,
        for<'q> &'q Q: TuplePack,
    {
        let mut failure = None;
        let changes = self.store.update(self.codec.encode_key(key), |bytes| {
            let value = bytes.map(|bytes| self.codec.decode(bytes)).transpose();
            let change = value.and_then(|value| decide(value).try_map(|value| self.codec.encode(&value)));
            change.unwrap_or_else(|error| {
                failure = Some(error);
                Change::Keep
            })
        })?;
        failure.map_or(Ok(changes), Err)
    }

    /// Removes a key and returns its value; `None` if the key is absent.
    ///
    /// ```
    /// # fn main() -> Result<(), darter::Error> {
    /// # let store = darter::Store::open("mem:16M")?;
    /// # let ages: darter::Table<String, u32> = store.table("ages")?;
    /// ages.put("Ada", &36)?;
    /// assert_eq!(ages.remove("Ada")?, Some(36));
    /// assert_eq!(ages.remove("Ada")?, None);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Fails as [`Store::remove`] does, and if the table holds a value of another type. The key is
    /// then removed.
    pub fn remove<Q: ?Sized>(&self, key: &Q) -> Result<Option<V>, Error>
    where
        K: Borrow<Q>,
        for<'q> &'q Q: TuplePack,
    {
        let removed = self.store.remove(self.codec.encode_key(key))?;
        removed.map(|bytes| self.codec.decode(&bytes)).transpose()
    }

    /// Removes a key. Returns whether it was present.
    ///
    /// ```
    /// # fn main() -> Result<(), darter::Error> {
    /// # let store = darter::Store::open("mem:16M")?;
    /// # let ages: darter::Table<String, u32> = store.table("ages")?;
    /// ages.put("Ada", &36)?;
    /// assert!(ages.discard("Ada")?);
    /// assert!(!ages.discard("Ada")?);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Fails as [`Store::remove`] does.
    pub fn discard<Q: ?Sized>(&self, key: &Q) -> Result<bool, Error>
    where
        K: Borrow<Q>,
        for<'q> &'q Q: TuplePack,
    {
        self.store.discard(self.codec.encode_key(key))
    }

    /// Removes the keys of a range, as [`Store::remove_range`] does. Returns their number.
    ///
    /// ```
    /// # fn main() -> Result<(), darter::Error> {
    /// # let store = darter::Store::open("mem:16M")?;
    /// let births: darter::Table<u32, String> = store.table("births")?;
    /// births.put_many(&[1815, 1906, 1912].map(|year| (year, String::new())))?;
    /// assert_eq!(births.remove_range(1900..)?, 2);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Fails as [`Store::remove_range`] does.
    pub fn remove_range<Q: ?Sized>(&self, range: impl RangeBounds<Q>) -> Result<u64, Error>
    where
        K: Borrow<Q>,
        for<'q> &'q Q: TuplePack,
    {
        self.store.remove_range(self.codec.range(&range))
    }

    /// Removes all keys of the table. Returns their number.
    ///
    /// ```
    /// # fn main() -> Result<(), darter::Error> {
    /// # let store = darter::Store::open("mem:16M")?;
    /// # let ages: darter::Table<String, u32> = store.table("ages")?;
    /// let years: darter::Table<u32, u32> = store.table("years")?;
    /// years.put(&1815, &1)?;
    /// ages.put("Ada", &36)?;
    /// assert_eq!(ages.clear()?, 1, "the keys of other tables stay");
    /// assert_eq!(store.tables()?, ["years"]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Fails as [`Store::remove_range`] does.
    pub fn clear(&self) -> Result<u64, Error> {
        self.store.remove_range(self.codec.all())
    }
}

impl<K, V> Clone for Table<K, V> {
    fn clone(&self) -> Self {
        Self { store: self.store.clone(), codec: self.codec.clone() }
    }
}

impl<K, V> std::fmt::Debug for Table<K, V> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Table").field("name", &self.codec.name()).finish_non_exhaustive()
    }
}

impl<K: TableKey, V: TableValue> IntoIterator for &Table<K, V> {
    type Item = Result<(K, V), Error>;
    type IntoIter = TableRange<K, V>;

    fn into_iter(self) -> TableRange<K, V> {
        self.iter()
    }
}
