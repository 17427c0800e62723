//! The types that a store consists of.

use darter_fabric::{Counting, Provider};
use darter_index::AnyIndex;
use darter_pool::{Client, Pool};

/// The fabric of a [`crate::Store`]: any provider, whose operations are counted.
pub type StoreFabric = Counting<Provider>;

/// The pool of a [`crate::Store`].
pub type StorePool = Pool<StoreFabric>;

/// A client of a [`crate::Store`]'s pool.
pub type StoreClient = Client<StoreFabric>;

/// The index of a [`crate::Store`].
pub type StoreIndex = AnyIndex<StoreFabric>;
