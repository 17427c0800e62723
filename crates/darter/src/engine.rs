//! The layer below a [`Store`]: its fabric, pool and index.
//!
//! For checkers and benchmarks, which wrap a pool's provider to delay, record or fail its verbs,
//! open indexes other than Quiver and DART, and operate on the index with clients of the pool; and
//! for gateways and tools that copy or show whole pools, which access all keys of an index.
//! Applications do not need this module.
//!
//! ```
//! use darter::Condition;
//! use darter::engine::{Engine, OrderedIndex};
//!
//! # fn main() -> Result<(), darter::Error> {
//! # let store = darter::Store::open("mem:16M")?;
//! let (pool, index) = (store.pool(), store.index());
//! let mut client = pool.client()?; // one thread's access to the pool
//! darter::block_on(async {
//!     index.put(&mut client, b"pear", b"green", Condition::Always).await?;
//!     assert_eq!(index.get(&mut client, b"pear").await?.as_deref(), Some(&b"green"[..]));
//!     Ok(())
//! })
//! # }
//! ```

use crate::membership::Reopen;
use crate::open_index::OpenIndex;
use crate::salvage::Salvage;
use crate::{Error, Session, Snapshot, Store, StoreOptions, provision};
use darter_fabric::{PoolUrl, Provider, block_on};
use darter_index::ScanRange;
use std::ops::Deref;
use std::sync::Arc;

pub use crate::key_space::KeySpace;
pub use crate::parts::{StoreClient, StoreFabric, StoreIndex, StorePool};
pub use crate::worker::Worker;
pub use darter_index::snapshot::is_old_value;
pub use darter_index::{
    AnyIndex, Dart, DartOptions, DynIndex, IndexOptions, OrderedIndex, Quiver, QuiverOptions,
};
pub use darter_pool::{Client, Pool};

/// Opens the pool that `url` names, with an index other than those of a store.
///
/// ```
/// # fn main() -> Result<(), darter::Error> {
/// use darter::engine::{self, Quiver, QuiverOptions};
/// use darter::Store;
///
/// let options = QuiverOptions { page_records: 32, ..QuiverOptions::default() };
/// let url = "mem:16M".parse()?;
/// let store = engine::open_with::<Quiver<_>>(&Store::options(), &url, options)?;
/// assert_eq!(store.stats()?.name, "quiver");
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// Fails as [`StoreOptions::open`] does.
pub fn open_with<I: OrderedIndex<StoreFabric>>(
    options: &StoreOptions,
    url: &PoolUrl,
    index: I::Options,
) -> Result<Store, Error> {
    open_as::<I>(options, url, index, other)
}

/// Opens the pool that `url` names. `as_any` wraps the index for the store.
pub(crate) fn open_as<I: OrderedIndex<StoreFabric>>(
    options: &StoreOptions,
    url: &PoolUrl,
    index: I::Options,
    as_any: fn(I) -> StoreIndex,
) -> Result<Store, Error> {
    let again: Reopen = {
        let (options, url, index) = (options.existing(), url.clone(), index.clone());
        Arc::new(move || open_index(&options, &url, index.clone(), as_any))
    };
    Store::over(open_index(options, url, index, as_any)?, options, Some(url.clone()), Some(again))
}

pub(crate) fn open_index<I: OrderedIndex<StoreFabric>>(
    options: &StoreOptions,
    url: &PoolUrl,
    index: I::Options,
    as_any: fn(I) -> StoreIndex,
) -> Result<OpenIndex, Error> {
    let pool = provision::open_or_create::<I>(url, options, &index)?;
    Ok(OpenIndex::new(as_any(index_of(&pool, options, index)?), pool))
}

/// Opens the existing pool that `url` names, with its provider wrapped by `decorate`, to delay,
/// record or fail the verbs of a real pool.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let directory = tempfile::tempdir()?;
/// # let path = directory.path().join("pool");
/// # let name = format!("file:{}?size=16M", path.display());
/// use darter::{Store, engine};
/// use darter_fabric::Provider;
/// use darter_fabric::decorate::{Delay, Delaying};
/// use std::time::{Duration, Instant};
///
/// # Store::open(&name)?.put("pear", "green")?;
/// let delay = Delay { sleep: Duration::from_millis(1), ..Delay::default() };
/// let slow = |provider| Provider::foreign(Delaying::new(provider, delay));
/// let store = engine::open_decorated(&Store::options(), &name.parse()?, slow)?;
/// let start = Instant::now();
/// assert!(store.contains_key("pear")? && start.elapsed() >= delay.sleep);
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// Fails as [`StoreOptions::open`] does, and for `mem:` pools, which never exist before.
pub fn open_decorated(
    options: &StoreOptions,
    url: &PoolUrl,
    decorate: impl FnOnce(Provider) -> Provider,
) -> Result<Store, Error> {
    open_decorated_as(options, url, decorate, options.index, std::convert::identity)
}

/// [`open_decorated`] with another index, as [`open_with`].
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let directory = tempfile::tempdir()?;
/// # let path = directory.path().join("pool");
/// # let name = format!("file:{}?size=16M", path.display());
/// use darter::Store;
/// use darter::engine::{self, Quiver, QuiverOptions};
///
/// # Store::open(&name)?.put("pear", "green")?;
/// let (options, url, index) = (Store::options(), name.parse()?, QuiverOptions::default());
/// let same = |provider| provider;
/// let store = engine::open_decorated_with::<Quiver<_>>(&options, &url, same, index)?;
/// assert!(store.contains_key("pear")?);
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// Fails as [`open_decorated`] does.
pub fn open_decorated_with<I: OrderedIndex<StoreFabric>>(
    options: &StoreOptions,
    url: &PoolUrl,
    decorate: impl FnOnce(Provider) -> Provider,
    index: I::Options,
) -> Result<Store, Error> {
    open_decorated_as::<I>(options, url, decorate, index, other)
}

fn open_decorated_as<I: OrderedIndex<StoreFabric>>(
    options: &StoreOptions,
    url: &PoolUrl,
    decorate: impl FnOnce(Provider) -> Provider,
    index: I::Options,
    as_any: fn(I) -> StoreIndex,
) -> Result<Store, Error> {
    let options = options.existing();
    let pool = provision::open_existing(url, &options, decorate)?;
    let index = as_any(index_of(&pool, &options, index)?);
    // The decorator belongs to the program and may only work once.
    Store::over(OpenIndex::new(index, pool), &options, Some(url.clone()), None)
}

/// Creates a new pool on a provider and opens it.
///
/// ```
/// # fn main() -> Result<(), darter::Error> {
/// use darter::{Store, engine};
/// use darter_fabric::{Local, Provider};
///
/// let memory = Provider::Local(Local::memory(16 << 20, 2)?);
/// let store = engine::create_on(&Store::options(), memory)?;
/// assert_eq!(store.usage()?.nodes.len(), 2);
/// assert!(store.url().is_none(), "not opened by name");
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// Fails if the provider's memory is too small, or the provider fails.
pub fn create_on(options: &StoreOptions, provider: Provider) -> Result<Store, Error> {
    let fabric = options.admit(&"of this provider", provider)?;
    over_pool(options, block_on(Pool::create(fabric, &options.pool))?)
}

/// Opens the pool that a provider holds.
///
/// ```
/// # fn main() -> Result<(), darter::Error> {
/// use darter::{Store, engine};
/// use darter_fabric::{Local, Provider};
///
/// let memory = Provider::Local(Local::memory(16 << 20, 1)?);
/// let creator = engine::create_on(&Store::options(), memory.clone())?;
/// creator.put("pear", "green")?;
/// let other = engine::open_on(&Store::options(), memory)?; // another member of the pool
/// assert!(other.contains_key("pear")?);
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// Fails if the provider holds no pool or a damaged one, or fails.
pub fn open_on(options: &StoreOptions, provider: Provider) -> Result<Store, Error> {
    let fabric = options.admit(&"of this provider", provider)?;
    over_pool(options, block_on(Pool::open(fabric))?)
}

fn over_pool(options: &StoreOptions, pool: StorePool) -> Result<Store, Error> {
    let index: StoreIndex = index_of(&pool, options, options.index)?;
    Store::over(OpenIndex::new(index, pool), options, None, None)
}

/// Returns options for a snapshot of a pool file. As with [`StoreOptions::read_only`], the file is
/// not written to; but operations may write to the copy in this process's memory.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let directory = tempfile::tempdir()?;
/// # let path = directory.path().join("pool");
/// # let name = format!("file:{}?size=16M", path.display());
/// use darter::{Store, engine};
///
/// # Store::open(&name)?.put("pear", "green")?;
/// let copy = engine::snapshot(Store::options()).open(&name)?;
/// copy.remove("pear")?; // from the copy in memory
/// # drop(copy);
/// assert!(Store::open(&name)?.contains_key("pear")?);
/// # Ok(())
/// # }
/// ```
pub fn snapshot(options: StoreOptions) -> StoreOptions {
    StoreOptions { snapshot: true, ..options }
}

/// Wraps an index other than those of a store.
fn other<I: OrderedIndex<StoreFabric>>(index: I) -> StoreIndex {
    AnyIndex::Other(DynIndex::new(index))
}

/// Opens a pool's index, or creates it if the options allow.
fn index_of<I: OrderedIndex<StoreFabric>>(
    pool: &StorePool,
    options: &StoreOptions,
    index: I::Options,
) -> Result<I, Error> {
    let mut client = pool.client()?;
    let opened = block_on(async {
        if options.creates() == Some(false) {
            I::open(&mut client, index).await
        } else {
            I::open_or_create(&mut client, index).await
        }
    });
    Ok(opened?)
}

/// The parts of a [`Store`] as currently open. After an error for which [`Error::is_shut_out`]
/// returns true, the store joins its pool again with new parts: get them again.
///
/// ```
/// # fn main() -> Result<(), darter::Error> {
/// # let store = darter::Store::open("mem:16M")?;
/// use darter::engine::{Engine, OrderedIndex};
///
/// store.put("pear", "green")?;
/// let mut client = store.pool().client()?;
/// let report = darter::block_on(store.index().check(&mut client))?;
/// assert!(report.violations.is_empty());
/// assert_eq!(report.stats.keys, 1);
/// # Ok(())
/// # }
/// ```
pub trait Engine {
    /// Returns the pool.
    ///
    /// ```
    /// # use darter::engine::Engine;
    /// # fn main() -> Result<(), darter::Error> {
    /// # let store = darter::Store::open("mem:16M")?;
    /// assert_eq!(store.pool().block_bytes(), 2 << 20);
    /// # Ok(())
    /// # }
    /// ```
    fn pool(&self) -> StorePool;

    /// Returns the index, for calls with a client of the pool.
    ///
    /// ```
    /// # use darter::engine::{Engine, OrderedIndex};
    /// # fn main() -> Result<(), darter::Error> {
    /// # let store = darter::Store::open("mem:16M")?;
    /// assert_eq!(store.index().name(), "quiver");
    /// # Ok(())
    /// # }
    /// ```
    fn index(&self) -> impl Deref<Target = StoreIndex> + use<Self>;

    /// Opens a session for one thread on the keys of a key space.
    ///
    /// ```
    /// # use darter::engine::{Engine, KeySpace};
    /// # fn main() -> Result<(), darter::Error> {
    /// # let store = darter::Store::open("mem:16M")?;
    /// store.session_in(KeySpace::Gateway)?.put("pear", "of a gateway")?;
    /// assert!(store.is_empty()?, "the program has no key");
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Fails as [`Store::session`] does.
    fn session_in(&self, space: KeySpace) -> Result<Session, Error>;

    /// Begins a snapshot of the keys of a key space.
    ///
    /// ```
    /// # use darter::engine::{Engine, KeySpace};
    /// # fn main() -> Result<(), darter::Error> {
    /// # let store = darter::Store::open("mem:16M")?;
    /// store.put("pear", "green")?;
    /// store.session_in(KeySpace::Gateway)?.put("pear", "of a gateway")?;
    /// assert_eq!(store.snapshot_in(KeySpace::Whole)?.range(..).count(), 2);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Fails as [`Store::snapshot`] does.
    fn snapshot_in(&self, space: KeySpace) -> Result<Snapshot, Error>;

    /// Reads the keys of a key space that can be read although memory nodes cannot be reached.
    ///
    /// ```
    /// # use darter::ScanRange;
    /// # use darter::engine::{Engine, KeySpace};
    /// # fn main() -> Result<(), darter::Error> {
    /// # let store = darter::Store::open("mem:16M")?;
    /// store.session_in(KeySpace::Gateway)?.put("pear", "of a gateway")?;
    /// assert_eq!(store.salvage_in(KeySpace::Whole, &ScanRange::all()).count(), 1);
    /// # Ok(())
    /// # }
    /// ```
    fn salvage_in(&self, space: KeySpace, range: &ScanRange) -> Salvage;

    /// Opens a connection for one task on the keys of a key space.
    ///
    /// ```
    /// # use darter::engine::{Engine, KeySpace};
    /// # fn main() -> Result<(), darter::Error> {
    /// # let store = darter::Store::open("mem:16M")?;
    /// let mut worker = store.worker_in(KeySpace::Program)?;
    /// darter::block_on(worker.put("pear", "green"))?;
    /// assert!(store.contains_key("pear")?);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Fails as [`Store::session`] does.
    fn worker_in(&self, space: KeySpace) -> Result<Worker, Error>;
}

impl Engine for Store {
    fn pool(&self) -> StorePool {
        self.membership().current().open.pool.clone()
    }

    fn index(&self) -> impl Deref<Target = StoreIndex> + use<> {
        OwnedIndex(Arc::clone(&self.membership().current().open))
    }

    fn session_in(&self, space: KeySpace) -> Result<Session, Error> {
        Session::open(self.membership(), space)
    }

    fn snapshot_in(&self, space: KeySpace) -> Result<Snapshot, Error> {
        Snapshot::begin(self.membership(), space)
    }

    fn salvage_in(&self, space: KeySpace, range: &ScanRange) -> Salvage {
        Salvage::new(self.membership(), space, range)
    }

    fn worker_in(&self, space: KeySpace) -> Result<Worker, Error> {
        Worker::open(self.membership(), space)
    }
}

/// An index that stays open.
struct OwnedIndex(Arc<OpenIndex>);

impl Deref for OwnedIndex {
    type Target = StoreIndex;

    fn deref(&self) -> &StoreIndex {
        &self.0.index
    }
}
