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

pub use asynchronous::{AsyncTable, AsyncTableRange};
pub use blocking::{Table, TableRange};

use foundationdb_tuple::{TuplePack, TupleUnpack};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// A type of a table's keys: integers of 16 bits and more, `String`, `Vec<u8>`, `bool`, floats, and
/// options and tuples of them, each in its own order.
pub trait TableKey: TuplePack + for<'de> TupleUnpack<'de> + Send + Sync {}

impl<K: TuplePack + for<'de> TupleUnpack<'de> + Send + Sync> TableKey for K {}

/// A type of a table's values: any type that serde serializes and deserializes.
pub trait TableValue: Serialize + DeserializeOwned + Send + Sync {}

impl<V: Serialize + DeserializeOwned + Send + Sync> TableValue for V {}
