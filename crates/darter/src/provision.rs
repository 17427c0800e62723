//! Opens or creates the pool that a name describes.
//!
//! If there is no file, a new pool is created in a file without a name, which gets its name when it
//! is complete, with superblocks and index root. So no process ever sees an incomplete pool; if
//! several processes create it at once, one wins and the others open its pool; and a killed process
//! leaves no file. Devices, empty files and files to be overwritten are filled in place.

use crate::parts::{StoreFabric, StorePool};
use crate::{Error, StoreOptions};
use darter_fabric::files::Draft;
use darter_fabric::local::FileOptions;
use darter_fabric::{Counting, Durability, Fabric, Local, PoolUrl, Provider, Scheme, block_on};
#[cfg(feature = "tcp")]
use darter_fabric::{ExpectedNode, RemoteNodes, Tcp};
use darter_index::OrderedIndex;
#[cfg(feature = "tcp")]
use darter_pool::PoolError;
#[cfg(feature = "tcp")]
use darter_pool::erase_if_lost;
use darter_pool::{Pool, members_in_use};
use std::fmt::Display;
use std::fs;
use std::io;
use std::path::Path;

impl StoreOptions {
    /// Returns a pool's fabric, with counts, if its provider is as durable as the options require.
    ///
    /// # Errors
    /// Fails with [`Error::NotDurable`] if it is not.
    pub(crate) fn admit(&self, pool: &dyn Display, provider: Provider) -> Result<StoreFabric, Error> {
        if self.durable && provider.capabilities().durability != Durability::OnCompletion {
            return Err(Error::NotDurable { pool: pool.to_string() });
        }
        Ok(Counting::new(provider))
    }
}

/// Opens the pool that `url` names, or creates it if necessary and allowed.
pub(crate) fn open_or_create<I: OrderedIndex<StoreFabric>>(
    url: &PoolUrl,
    options: &StoreOptions,
    index: &I::Options,
) -> Result<StorePool, Error> {
    match url.scheme() {
        Scheme::Memory if options.creates() == Some(false) => {
            Err(Error::NeverExists { pool: url.to_string() })
        }
        Scheme::Memory => create_in_memory(url, options),
        // Checked before a file is created or overwritten: its durability is in its name.
        Scheme::File(_) if options.durable && !url.is_flushed() => {
            Err(Error::NotDurable { pool: url.to_string() })
        }
        Scheme::File(path) if options.snapshot => {
            if PathState::of(path)? != PathState::Taken {
                return Err(Error::Missing { pool: url.to_string(), path: path.clone() });
            }
            open_over(url, options, &Local::file_snapshot(path)?)
        }
        Scheme::File(path) => {
            let state = PathState::of(path)?;
            if state == PathState::Taken && options.create_new && !options.truncate {
                return Err(Error::Exists { pool: url.to_string(), path: path.clone() });
            }
            if state != PathState::Taken || options.truncate {
                if options.creates() == Some(false) || url.size().is_none() {
                    return Err(Error::Missing { pool: url.to_string(), path: path.clone() });
                }
                if state == PathState::Absent {
                    let is_ours = create_aside::<I>(url, path, options, index)?;
                    if !is_ours && options.create_new {
                        return Err(Error::Exists { pool: url.to_string(), path: path.clone() });
                    }
                } else {
                    create_at::<I>(url, path, options, index)?;
                }
            }
            let file = open_file(url, path)?;
            if url.size().is_some() {
                file.check_found(url.sharing())?;
            }
            open_over(url, options, &file)
        }
        #[cfg(feature = "tcp")]
        Scheme::Tcp(addresses) | Scheme::Rdma { addresses, .. } => open_nodes(url, addresses, options),
        // Another crate of the program has enabled the feature in the fabric only.
        _ => Err(Error::NotBuiltIn { pool: url.to_string(), feature: "tcp" }),
    }
}

/// Opens the pool on memory nodes, or creates it if the options require that: nodes without a pool
/// may have lost one.
#[cfg(feature = "tcp")]
fn open_nodes(url: &PoolUrl, addresses: &[String], options: &StoreOptions) -> Result<StorePool, Error> {
    let tcp = options.tcp.clone().for_pool(url);
    let creates = options.creates() == Some(true);
    if !creates || !(options.create_new || options.truncate) {
        let fabric = options.admit(url, Provider::Tcp(Tcp::connect_present(addresses, tcp.clone())?))?;
        match join(url, fabric, None) {
            Err(Error::Open { source: PoolError::NotAPool { .. }, .. }) if creates => {}
            opened => return opened,
        }
    }
    let fabric = options.admit(url, Provider::Tcp(Tcp::connect(addresses, tcp.clone())?))?;
    let created = block_on(async {
        if options.truncate {
            let is_present = |node: &ExpectedNode| {
                let found = Tcp::connect(std::slice::from_ref(&node.address), tcp.clone());
                found.is_ok_and(|found| found.node_id(0) == Some(node.id))
            };
            erase_if_lost(&fabric, is_present).await?;
        }
        Pool::create(fabric.clone(), &options.pool).await
    });
    match created {
        // Another process has created it in the meantime.
        Err(PoolError::AlreadyAPool { .. }) if !(options.create_new || options.truncate) => {
            join(url, fabric, None)
        }
        created => created.map_err(|source| Error::Open { pool: url.to_string(), source }),
    }
}

/// Opens the existing pool that `url` names, over its decorated fabric.
#[cfg_attr(not(feature = "tcp"), allow(unused_variables))] // only memory nodes have options
pub(crate) fn open_existing(
    url: &PoolUrl,
    options: &StoreOptions,
    decorate: impl FnOnce(Provider) -> Provider,
) -> Result<StorePool, Error> {
    let mut file = None;
    let fabric = match url.scheme() {
        Scheme::Memory => return Err(Error::NeverExists { pool: url.to_string() }),
        Scheme::File(path) if PathState::of(path)? != PathState::Taken => {
            return Err(Error::Missing { pool: url.to_string(), path: path.clone() });
        }
        Scheme::File(path) => {
            let fabric = open_file(url, path)?;
            admit_copy(url, options, &fabric)?;
            Provider::Local(file.insert(fabric).clone())
        }
        #[cfg(feature = "tcp")]
        Scheme::Tcp(addresses) | Scheme::Rdma { addresses, .. } => {
            let tcp = options.tcp.clone().for_pool(url);
            Provider::Tcp(Tcp::connect_present(addresses, tcp)?)
        }
        _ => return Err(Error::NotBuiltIn { pool: url.to_string(), feature: "tcp" }),
    };
    join(url, options.admit(url, decorate(fabric))?, file.as_ref())
}

/// Opens a pool. A copy of a closed pool becomes a separate pool, after it was verified and before
/// a member line states that it is open. A pool on memory nodes can be replaced during that.
fn join(url: &PoolUrl, fabric: StoreFabric, file: Option<&Local>) -> Result<StorePool, Error> {
    let opened = block_on(async {
        let pool = Pool::open_verified(fabric, || file.map_or(Ok(()), Local::adopt_file)).await?;
        if file.is_none() {
            pool.confirm().await?;
        }
        Ok(pool)
    });
    opened.map_err(|source| Error::Open { pool: url.to_string(), source })
}

/// Opens a pool file, with or without flushes according to its name.
fn open_file(url: &PoolUrl, path: &Path) -> Result<Local, Error> {
    if !url.is_flushed() {
        return Ok(Local::file_open(path)?);
    }
    let fabric = Local::file_open_flushed(path)?;
    // Acknowledged writes must not be lost with the file's name; the name of a DAX device is
    // permanent.
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    let synced = fs::File::open(folder.unwrap_or(Path::new("."))).and_then(|folder| folder.sync_all());
    synced.map_err(|source| Error::Io {
        path: path.to_owned(),
        action: "make the file's name durable",
        source,
    })?;
    Ok(fabric)
}

fn create_in_memory(url: &PoolUrl, options: &StoreOptions) -> Result<StorePool, Error> {
    let fabric = Local::memory(url.node_bytes().unwrap_or(0), url.nodes())?;
    block_on(Pool::create(options.admit(url, Provider::Local(fabric))?, &options.pool))
        .map_err(|source| Error::Open { pool: url.to_string(), source })
}

/// Refuses a copy of a pool that was open.
fn admit_copy(url: &PoolUrl, options: &StoreOptions, fabric: &Local) -> Result<(), Error> {
    // A damaged pool is refused when it is opened.
    let is_in_use = || block_on(members_in_use(fabric)).is_ok_and(|members| members > 0);
    // Checked again at the end: another process may have turned this copy into a pool, and opened
    // it.
    if !options.accept_copy && fabric.is_copy() && is_in_use() && fabric.is_copy() {
        return Err(Error::CopyOfOpen { pool: url.to_string() });
    }
    Ok(())
}

fn open_over(url: &PoolUrl, options: &StoreOptions, fabric: &Local) -> Result<StorePool, Error> {
    admit_copy(url, options, fabric)?;
    join(url, options.admit(url, Provider::Local(fabric.clone()))?, Some(fabric))
}

/// What is at a pool's path.
#[derive(Clone, Copy, PartialEq, Eq)]
enum PathState {
    Absent,
    /// An empty regular file, as created by tools for temporary files, or an empty device.
    Empty,
    Taken,
}

impl PathState {
    fn of(path: &Path) -> Result<Self, Error> {
        match fs::metadata(path) {
            Ok(found) if found.is_file() && found.len() == 0 => Ok(Self::Empty),
            Ok(_) if Local::is_blank_device(path)? => Ok(Self::Empty),
            Ok(_) => Ok(Self::Taken),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Self::Absent),
            Err(source) => Err(Error::Io { path: path.to_owned(), action: "read the file's state", source }),
        }
    }
}

/// Creates a complete pool and gives it its name. Returns `false` if another process was faster.
fn create_aside<I: OrderedIndex<StoreFabric>>(
    url: &PoolUrl,
    path: &Path,
    options: &StoreOptions,
    index: &I::Options,
) -> Result<bool, Error> {
    let refused = |action| move |source| Error::Io { path: path.to_owned(), action, source };
    let draft = Draft::create(path, 0o600).map_err(refused("create it"))?;
    url.sharing().apply(draft.file()).map_err(refused("create it"))?;
    let (bytes, how) = (url.node_bytes().unwrap_or(0), file_options(url, options));
    fill_file::<I>(url, Local::file_create_in(&draft, bytes, url.nodes(), &how)?, options, index)?;
    draft.publish().map_err(refused("name the new pool"))
}

/// Creates a pool in this file itself. The provider's lock excludes other processes until it is
/// complete, and refuses a file in use.
fn create_at<I: OrderedIndex<StoreFabric>>(
    url: &PoolUrl,
    path: &Path,
    options: &StoreOptions,
    index: &I::Options,
) -> Result<(), Error> {
    let (bytes, how) = (url.node_bytes().unwrap_or(0), file_options(url, options));
    fill_file::<I>(url, Local::file_create_with(path, bytes, url.nodes(), &how)?, options, index)
}

fn file_options(url: &PoolUrl, options: &StoreOptions) -> FileOptions {
    FileOptions { overwrite: options.truncate, ..url.file_options() }
}

/// Creates a pool in a new file.
fn fill_file<I: OrderedIndex<StoreFabric>>(
    url: &PoolUrl,
    fabric: Local,
    options: &StoreOptions,
    index: &I::Options,
) -> Result<(), Error> {
    fill::<I>(Counting::new(Provider::Local(fabric)), options, index).map_err(|error| match error {
        Error::Pool(source) => Error::Open { pool: url.to_string(), source },
        error => error,
    })
}

/// Writes the superblocks and the index's root, and closes the pool.
fn fill<I: OrderedIndex<StoreFabric>>(
    fabric: StoreFabric,
    options: &StoreOptions,
    index: &I::Options,
) -> Result<(), Error> {
    block_on(async {
        let pool = Pool::create(fabric, &options.pool).await?;
        let mut client = pool.client()?;
        let index = I::open_or_create(&mut client, index.clone()).await?;
        drop((client, index));
        Ok(pool.close().await?)
    })
}

#[cfg(test)]
mod tests {
    use crate::engine;
    use crate::{Error, PoolUrl, Store};
    use darter_fabric::{Provider, Tracing};

    /// The pool of that name gets the verbs that the decorator sees, and no pool is created if
    /// there is none.
    #[test]
    fn a_pool_is_opened_over_a_decorated_fabric() {
        let directory = tempfile::tempdir().unwrap();
        let url = PoolUrl::file(directory.path().join("pool"));
        let mut trace = None;
        let mut open = |url: &PoolUrl| {
            engine::open_decorated(&Store::options(), url, |provider| {
                let tracing = Tracing::new(provider, 1000);
                trace = Some(tracing.trace().clone());
                Provider::foreign(tracing)
            })
        };
        assert!(matches!(open(&url.clone().sized(16 << 20, 1)), Err(Error::Missing { .. })));
        assert!(matches!(open(&"mem:16M".parse().unwrap()), Err(Error::NeverExists { .. })));
        assert!(!directory.path().join("pool").exists());
        drop(Store::options().open(url.clone().sized(16 << 20, 1)).unwrap());
        let store = open(&url).unwrap();
        let trace = trace.unwrap();
        let before = trace.round_trips();
        store.put(b"key", b"value").unwrap();
        assert!(trace.round_trips() > before);
        drop(store);
        let store = Store::options().create(false).open(&url).unwrap();
        assert_eq!(store.session().unwrap().get(b"key").unwrap().as_deref(), Some(&b"value"[..]));
    }

    /// No pool is created that would have to be refused.
    #[test]
    fn a_pool_that_must_be_durable_is_refused_where_memory_is_not() {
        let directory = tempfile::tempdir().unwrap();
        let durable = Store::options().durable(true);
        let path = directory.path().join("pool");
        let url = PoolUrl::file(path.clone());
        assert!(matches!(durable.open("mem:16M"), Err(Error::NotDurable { .. })));
        let refused = durable.open(url.clone().sized(16 << 20, 1));
        assert!(
            refused.is_err_and(|error| error.is_usage() && error.to_string().contains("--durability log"))
        );
        assert_eq!(std::fs::read_dir(&directory).unwrap().count(), 0);
        drop(Store::options().open(url.clone().sized(16 << 20, 1)).unwrap());
        assert!(matches!(durable.open(&url), Err(Error::NotDurable { .. })));
        let decorated = engine::open_decorated(&durable, &url, std::convert::identity);
        assert!(matches!(decorated, Err(Error::NotDurable { .. })));
        drop(Store::open(url.to_string()).unwrap());
    }

    /// A refusal does not change the pool that would have been replaced.
    #[test]
    fn a_pool_that_is_refused_for_durability_is_not_overwritten() {
        let directory = tempfile::tempdir().unwrap();
        let url = PoolUrl::file(directory.path().join("pool")).sized(16 << 20, 1);
        let store = Store::options().open(&url).unwrap();
        store.session().unwrap().put(b"key", b"value").unwrap();
        drop(store);
        let refused = Store::options().durable(true).truncate(true).open(&url);
        assert!(matches!(refused, Err(Error::NotDurable { .. })));
        let store = Store::options().create(false).open(&url).unwrap();
        assert_eq!(store.session().unwrap().get(b"key").unwrap().as_deref(), Some(&b"value"[..]));
    }

    /// A pool's own file is the one in which it was last opened, or a copy of a closed pool.
    #[test]
    fn a_copy_of_an_open_pool_is_refused_and_one_of_a_closed_pool_is_not() {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name);
        let open = |name: &str| Store::options().create(false).open(PoolUrl::file(path(name)));
        let store = Store::options().open(PoolUrl::file(path("pool")).sized(16 << 20, 1)).unwrap();
        store.session().unwrap().put(b"key", b"value").unwrap();
        std::fs::copy(path("pool"), path("copy")).unwrap();
        assert!(matches!(open("copy"), Err(Error::CopyOfOpen { .. })));
        let url = PoolUrl::file(path("copy"));
        let snapshot = Store::options().create(false).read_only(true).maintenance(false);
        assert!(matches!(snapshot.open(&url), Err(Error::CopyOfOpen { .. })));
        let decorated = engine::open_decorated(&Store::options(), &url, std::convert::identity);
        assert!(matches!(decorated, Err(Error::CopyOfOpen { .. })));
        // Others can open the file itself, also under another name.
        drop(open("pool").unwrap());
        std::fs::rename(path("pool"), path("moved")).unwrap();
        drop(open("moved").unwrap());
        // An accepted copy is a pool like any other.
        drop(Store::options().accept_copy(true).open(&url).unwrap());
        drop(open("copy").unwrap());
        drop(store);
        std::fs::copy(path("moved"), path("closed")).unwrap();
        let closed = open("closed").unwrap();
        assert_eq!(closed.session().unwrap().get(b"key").unwrap().as_deref(), Some(&b"value"[..]));
        drop(open("closed").unwrap());
        std::fs::copy(path("closed"), path("again")).unwrap();
        assert!(matches!(open("again"), Err(Error::CopyOfOpen { .. })));
    }
}
