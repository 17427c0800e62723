//! Typed tables: named parts of a store whose keys and values have types.
//!
//! A table's pair is in the store under the table's name, followed by its key, both in the tuple
//! encoding of [FoundationDB](https://github.com/apple/foundationdb/blob/master/design/tuple.md).
//! So the keys of one table are adjacent, in the order of their type, and the first components of a
//! tuple are a prefix of it. Values are serialized by postcard.
//!
//! Encoded table names begin with the byte 2. A program that also stores keys outside of tables
//! should begin those with another byte.

mod asynchronous;
mod blocking;
mod codec;
mod range;
mod transaction;

pub use asynchronous::AsyncTable;
pub use blocking::Table;
pub use range::{AsyncTableRange, TableRange};
pub use transaction::{AsyncTableTransaction, TableTransaction};

use foundationdb_tuple::{TuplePack, TupleUnpack};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// A type of a table's keys: integers of 16 bits and more, `String`, `Vec<u8>`, `bool`, floats, and
/// options and tuples of them, each in its own order.
///
/// ```
/// # use darter::{Table, TableKey};
/// # fn main() -> Result<(), darter::Error> {
/// # let store = darter::Store::open("mem:16M")?;
/// fn smallest<K: TableKey>(store: &darter::Store) -> Result<Option<K>, darter::Error> {
///     let table: Table<K, ()> = store.table("set")?;
///     Ok(table.first()?.map(|(key, ())| key))
/// }
/// let set: Table<(i32, bool), ()> = store.table("set")?;
/// set.put_many(&[((7, true), ()), ((-7, false), ()), ((-7, true), ())])?;
/// assert_eq!(smallest(&store)?, Some((-7, false)), "in the order of the type, not of bytes");
/// # Ok(())
/// # }
/// ```
pub trait TableKey: TuplePack + for<'de> TupleUnpack<'de> + Send + Sync {}

impl<K: TuplePack + for<'de> TupleUnpack<'de> + Send + Sync> TableKey for K {}

/// A type of a table's values: any type that serde serializes and deserializes.
///
/// ```
/// # use darter::Table;
/// # fn main() -> Result<(), darter::Error> {
/// # let store = darter::Store::open("mem:16M")?;
/// #[derive(serde::Serialize, serde::Deserialize)]
/// enum Fruit {
///     Pear { ripe: bool },
///     Plum,
/// }
/// let basket: Table<u32, Fruit> = store.table("basket")?;
/// basket.put(&1, &Fruit::Pear { ripe: true })?;
/// assert!(matches!(basket.get(&1)?, Some(Fruit::Pear { ripe: true })));
/// # Ok(())
/// # }
/// ```
pub trait TableValue: Serialize + DeserializeOwned + Send + Sync {}

impl<V: Serialize + DeserializeOwned + Send + Sync> TableValue for V {}
