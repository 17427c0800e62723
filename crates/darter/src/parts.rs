//! The types that a store consists of.

use darter_fabric::{Counting, Provider};
use darter_index::AnyIndex;
use darter_pool::{Client, Pool};

/// The fabric of a [`crate::Store`]: any provider, whose operations are counted.
///
/// ```
/// # fn main() -> Result<(), darter::Error> {
/// # let store = darter::Store::open("mem:16M")?;
/// use darter::engine::{Engine, StoreFabric};
/// use darter_fabric::Fabric;
///
/// fn nodes(fabric: &StoreFabric) -> usize {
///     fabric.nodes()
/// }
/// assert_eq!(nodes(store.pool().fabric()), 1);
/// # Ok(())
/// # }
/// ```
pub type StoreFabric = Counting<Provider>;

/// The pool of a [`crate::Store`].
///
/// ```
/// # fn main() -> Result<(), darter::Error> {
/// # let store = darter::Store::open("mem:16M")?;
/// use darter::engine::{Engine, StorePool};
///
/// let pool: StorePool = store.pool();
/// assert_eq!(pool.nodes(), 1);
/// assert!(pool.object_bytes_max() < pool.block_bytes());
/// # Ok(())
/// # }
/// ```
pub type StorePool = Pool<StoreFabric>;

/// A client of a [`crate::Store`]'s pool.
///
/// ```
/// # fn main() -> Result<(), darter::Error> {
/// # let store = darter::Store::open("mem:16M")?;
/// use darter::engine::{Engine, OrderedIndex, StoreClient};
///
/// store.put("pear", "green")?;
/// let mut client: StoreClient = store.pool().client()?;
/// let value = darter::block_on(store.index().get(&mut client, b"pear"))?;
/// assert_eq!(value.as_deref(), Some(&b"green"[..]));
/// # Ok(())
/// # }
/// ```
pub type StoreClient = Client<StoreFabric>;

/// The index of a [`crate::Store`].
///
/// ```
/// # fn main() -> Result<(), darter::Error> {
/// # let store = darter::Store::open("mem:16M")?;
/// use darter::engine::{Engine, StoreIndex};
///
/// let index = store.index();
/// assert!(matches!(&*index, StoreIndex::Quiver(_)), "the default");
/// # Ok(())
/// # }
/// ```
pub type StoreIndex = AnyIndex<StoreFabric>;
