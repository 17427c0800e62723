//! Typed tables: named parts of a store whose keys and values have types.
//!
//! A table's pair lies in the store under the table's name, then its key, both in the tuple encoding
//! of [FoundationDB](https://github.com/apple/foundationdb/blob/master/design/tuple.md): keys of one
//! table lie together, in the order of their type, and a tuple's first components make a prefix of
//! it. Values are postcard's encoding of their serde form.
//!
//! Encoded table names begin with the byte 2. A program that also keeps keys of its own without
//! tables in the same store should begin those with another byte.

mod asynchronous;
mod codec;
mod session;

pub use asynchronous::{AsyncRows, AsyncTableSession};
pub use session::{Rows, TableSession};

use foundationdb_tuple::{TuplePack, TupleUnpack};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::borrow::Cow;
use std::marker::PhantomData;

/// A type of a table's keys: integers of 16 bits and more, `String`, `Vec<u8>`, `bool`, floats,
/// options and tuples of them, in their own order.
pub trait TableKey: TuplePack + for<'de> TupleUnpack<'de> + Send + Sync {}

impl<K: TuplePack + for<'de> TupleUnpack<'de> + Send + Sync> TableKey for K {}

/// A type of a table's values: whatever serde writes and reads.
pub trait TableValue: Serialize + DeserializeOwned + Send + Sync {}

impl<V: Serialize + DeserializeOwned + Send + Sync> TableValue for V {}

/// A table's name and the types of its keys and values. Nothing has to be created: a table is there
/// when it has a key.
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
/// /// By station and second.
/// const READINGS: Table<(String, u64), Reading> = Table::new("readings");
///
/// # fn main() -> Result<(), darter::Error> {
/// let session = Store::open("mem:16M")?.session()?;
/// let readings = session.table(&READINGS);
/// for second in [9, 10, 11] {
///     readings.put(&("Berne".to_owned(), second), &Reading { celsius: second as f32 })?;
/// }
/// let late = ("Berne".to_owned(), 10)..;
/// let found = readings.range(late).collect::<Result<Vec<_>, _>>()?;
/// assert_eq!(found[0], (("Berne".to_owned(), 10), Reading { celsius: 10.0 }));
/// assert_eq!(found.len(), 2);
/// assert_eq!(session.tables()?, ["readings"]);
/// # Ok(())
/// # }
/// ```
pub struct Table<K, V> {
    name: Cow<'static, str>,
    types: PhantomData<fn(K) -> V>,
}

impl<K: TableKey, V: TableValue> Table<K, V> {
    /// A table by its name.
    pub const fn new(name: &'static str) -> Self {
        Self { name: Cow::Borrowed(name), types: PhantomData }
    }

    /// A table whose name is known only as the program runs.
    pub const fn named(name: String) -> Self {
        Self { name: Cow::Owned(name), types: PhantomData }
    }

    /// Returns its name.
    pub fn name(&self) -> &str {
        &self.name
    }
}

impl<K, V> Clone for Table<K, V> {
    fn clone(&self) -> Self {
        Self { name: self.name.clone(), types: PhantomData }
    }
}

impl<K, V> std::fmt::Debug for Table<K, V> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Table").field(&self.name).finish()
    }
}
