//! The options to open a store.

#[cfg(feature = "tcp")]
use darter_fabric::TcpOptions;
use darter_index::{IndexKind, IndexOptions, QuiverOptions};
use darter_pool::PoolOptions;
use std::time::Duration;

/// Options to open a [`Store`](crate::Store); [`Store::options`](crate::Store::options) returns the
/// defaults.
///
/// ```
/// # fn main() -> Result<(), darter::Error> {
/// let store = darter::Store::options().cache_bytes(1 << 20).auto_adjust(false).open("mem:64M?nodes=2")?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
#[must_use]
#[allow(clippy::struct_excessive_bools)] // any combination of these switches is valid
pub struct StoreOptions {
    pub(crate) pool: PoolOptions,
    pub(crate) index: IndexOptions,
    pub(crate) auto_adjust: bool,
    pub(crate) maintenance: bool,
    pub(crate) sweep: bool,
    /// `None`: the default for the pool's kind.
    pub(crate) create: Option<bool>,
    pub(crate) create_new: bool,
    pub(crate) truncate: bool,
    pub(crate) read_only: bool,
    pub(crate) snapshot: bool,
    pub(crate) durable: bool,
    pub(crate) accept_copy: bool,
    pub(crate) rejoin: bool,
    pub(crate) accept_new_pool: bool,
    pub(crate) quota_bytes: u64,
    pub(crate) reserve_bytes: u64,
    #[cfg(feature = "tcp")]
    pub(crate) tcp: TcpOptions,
}

impl Default for StoreOptions {
    fn default() -> Self {
        Self {
            pool: PoolOptions::default(),
            index: IndexOptions {
                quiver: QuiverOptions { direct: true, ..QuiverOptions::default() },
                ..IndexOptions::default()
            },
            auto_adjust: true,
            maintenance: true,
            sweep: true,
            create: None,
            create_new: false,
            truncate: false,
            read_only: false,
            snapshot: false,
            durable: false,
            accept_copy: false,
            rejoin: true,
            accept_new_pool: false,
            quota_bytes: u64::MAX,
            reserve_bytes: 0,
            #[cfg(feature = "tcp")]
            tcp: TcpOptions::default(),
        }
    }
}

impl StoreOptions {
    /// Creates the pool if it does not exist (`true`), or fails if it does not exist (`false`).
    ///
    /// Default: a pool is created if the name is `mem:`, or if the file is absent or empty and the
    /// name has `?size=`. Memory nodes without a pool are refused by default, because a node may
    /// have been restarted and have lost its memory.
    ///
    /// ```
    /// # let name = "file:/dev/shm/absent.pool?size=16M";
    /// assert!(darter::Store::options().create(false).open(name).is_err());
    /// ```
    pub fn create(mut self, create: bool) -> Self {
        self.create = Some(create);
        self
    }

    /// Creates the pool, and fails if it exists already. Default: `false`.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let directory = tempfile::tempdir()?;
    /// # let name = format!("file:{}?size=16M", directory.path().join("pool").display());
    /// let new = darter::Store::options().create_new(true);
    /// new.open(&name)?;
    /// assert!(new.open(&name).is_err());
    /// # Ok(())
    /// # }
    /// ```
    pub fn create_new(mut self, create_new: bool) -> Self {
        self.create_new = create_new;
        self
    }

    /// Creates a new pool, and replaces the contents of the file or device; the name needs
    /// `?size=`. Default: `false`.
    ///
    /// A file that is in use is refused. On memory nodes, together with [`StoreOptions::create`], a
    /// pool is replaced only if it has lost a node other than its first. The processes that have it
    /// open are shut out, and join the new pool if they accept it
    /// ([`StoreOptions::accept_new_pool`]).
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let directory = tempfile::tempdir()?;
    /// # let path = directory.path().join("pool");
    /// # let name = format!("file:{}?size=16M", path.display());
    /// darter::Store::open(&name)?.put("pear", "green")?;
    /// let store = darter::Store::options().truncate(true).open(&name)?;
    /// assert!(store.is_empty()?);
    /// # Ok(())
    /// # }
    /// ```
    pub fn truncate(mut self, truncate: bool) -> Self {
        self.truncate = truncate;
        self
    }

    /// Opens a snapshot of a pool file, for a program that may not write to the file. Operations
    /// that write fail with [`Error::ReadOnly`](crate::Error::ReadOnly). Default: `false`.
    ///
    /// Fails if another process has the file open. [`Store::verify`](crate::Store::verify) fails if
    /// another process has opened it since.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let directory = tempfile::tempdir()?;
    /// # let path = directory.path().join("pool");
    /// # let name = format!("file:{}?size=16M", path.display());
    /// # darter::Store::open(&name)?.put("pear", "green")?;
    /// let store = darter::Store::options().read_only(true).open(&name)?;
    /// assert_eq!(store.get("pear")?.as_deref(), Some(&b"green"[..]));
    /// assert!(matches!(store.put("pear", "red"), Err(darter::Error::ReadOnly)));
    /// # Ok(())
    /// # }
    /// ```
    pub fn read_only(mut self, read_only: bool) -> Self {
        self.read_only = read_only;
        self.snapshot = read_only;
        self
    }

    /// Requires that all acknowledged writes survive a power failure: the pool must be on memory
    /// nodes with a log, or in a file on persistent memory that is flushed. Other pools are refused
    /// before anything is created. Default: `false`.
    ///
    /// ```
    /// let refused = darter::Store::options().durable(true).open("mem:16M");
    /// assert!(matches!(refused, Err(darter::Error::NotDurable { .. })));
    /// ```
    pub fn durable(mut self, durable: bool) -> Self {
        self.durable = durable;
        self
    }

    /// Sets the index of the pool. A new pool gets this index; an existing pool with another one is
    /// refused. Default: a new pool gets [`IndexKind::Quiver`], an existing pool is opened with its
    /// own index.
    ///
    /// ```
    /// # fn main() -> Result<(), darter::Error> {
    /// use darter::{IndexKind, Store};
    ///
    /// let store = Store::options().index(IndexKind::Dart).open("mem:16M")?;
    /// assert_eq!(store.stats()?.name, IndexKind::Dart.name());
    /// # Ok(())
    /// # }
    /// ```
    pub fn index(mut self, kind: IndexKind) -> Self {
        self.index.kind = Some(kind);
        self
    }

    /// Sets the bytes of this process's memory that the index may use as its cache. Default: 1 MiB.
    ///
    /// Quiver never uses more. DART also keeps the directory of its skip table, 8 bytes for each
    /// segment of 1,024 entries, even if the directory alone exceeds the budget; nodes get the
    /// rest.
    ///
    /// ```
    /// # fn main() -> Result<(), darter::Error> {
    /// let store = darter::Store::options().cache_bytes(64 << 10).open("mem:16M")?;
    /// store.bulk_load((0_u32..10_000).map(|number| (number.to_be_bytes(), "value")))?;
    /// for number in 0_u32..10_000 {
    ///     store.get(number.to_be_bytes())?;
    /// }
    /// assert!(store.stats()?.cache_used_bytes <= 64 << 10);
    /// # Ok(())
    /// # }
    /// ```
    pub fn cache_bytes(mut self, bytes: u64) -> Self {
        self.index.dart.cache_bytes = bytes;
        self.index.quiver.cache_bytes = bytes;
        self
    }

    /// Sets whether searches and scans load the words of a pool in this machine's memory, `mem:` or
    /// `file:`, instead of posting verbs. They then make no round trips, and need no cache. Default:
    /// `true`. Without effect on memory nodes, in persistent memory, and for DART.
    ///
    /// ```
    /// # fn main() -> Result<(), darter::Error> {
    /// let store = darter::Store::options().direct(false).open("mem:16M")?;
    /// let session = store.session()?;
    /// session.put("pear", "green")?;
    /// session.get("pear")?; // by verbs, as over a network
    /// assert!(session.counters().total().round_trips > 1);
    /// # Ok(())
    /// # }
    /// ```
    pub fn direct(mut self, direct: bool) -> Self {
        self.index.quiver.direct = direct;
        self
    }

    /// Sets the time of silence after which other processes check whether this process is dead, in
    /// whole milliseconds, at least 1. Default: 5 s.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # fn main() -> Result<(), darter::Error> {
    /// // A process that is killed holds back freed memory for about two seconds instead of five.
    /// let store = darter::Store::options().lease(Duration::from_secs(2)).open("mem:16M")?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn lease(mut self, lease: Duration) -> Self {
        self.pool.lease_ms = u64::try_from(lease.as_millis()).unwrap_or(u64::MAX).max(1);
        self
    }

    /// Limits the memory of the pool that this process takes, in bytes, rounded down to whole
    /// blocks. A process that writes needs two blocks on each node. Beyond the limit, operations
    /// that need more memory fail as in a full pool ([`Error::is_out_of_space`](crate::Error::is_out_of_space));
    /// memory of deleted and overwritten pairs is used again. What the process has stored stays when
    /// it ends, and then no longer counts. Default: no limit.
    ///
    /// This process limits itself: memory nodes know no pools.
    ///
    /// ```
    /// # fn main() -> Result<(), darter::Error> {
    /// let store = darter::Store::options().quota_bytes(8 << 20).open("mem:32M")?;
    /// let stored = (0..200_u32).map(|n| store.put(n.to_be_bytes(), [7; 100_000]));
    /// let full = stored.collect::<Result<Vec<_>, _>>().unwrap_err();
    /// assert!(full.is_out_of_space(), "20 MB fit into the pool, but not into the quota");
    /// # Ok(())
    /// # }
    /// ```
    pub fn quota_bytes(mut self, bytes: u64) -> Self {
        self.quota_bytes = bytes;
        self
    }

    /// Leaves free memory of this many bytes on each memory node to processes without this option:
    /// those that delete, check or move data. Operations that need more memory fail as in a full
    /// pool. Default: 0.
    ///
    /// ```
    /// # fn main() -> Result<(), darter::Error> {
    /// # let directory = tempfile::tempdir().expect("a directory");
    /// # let name = format!("file:{}?size=32M", directory.path().join("pool").display());
    /// let store = darter::Store::options().reserve_bytes(8 << 20).open(&name)?;
    /// let mut stored = (0..300_u32).map(|n| store.put(n.to_be_bytes(), [7; 100_000]));
    /// assert!(stored.find_map(Result::err).is_some_and(|full| full.is_out_of_space()));
    /// let other = darter::Store::open(&name)?;
    /// other.put("pear", [7; 100_000])?; // from the reserve
    /// # Ok(())
    /// # }
    /// ```
    pub fn reserve_bytes(mut self, bytes: u64) -> Self {
        self.reserve_bytes = bytes;
        self
    }

    /// Sets the credentials for memory nodes, and the time-outs of their replies. Credentials that
    /// were read from files are read again when the files change. Default: no token, no TLS.
    ///
    /// ```no_run
    /// # fn main() -> Result<(), darter::Error> {
    /// use darter::{Store, TcpOptions};
    ///
    /// let options = TcpOptions { token: "a secret".into(), ..TcpOptions::default() };
    /// let store = Store::options().tcp(options).open("tcp://10.0.0.5:7411")?;
    /// # Ok(())
    /// # }
    /// ```
    #[cfg(feature = "tcp")]
    pub fn tcp(mut self, options: TcpOptions) -> Self {
        self.tcp = options;
        self
    }

    /// Sets the size in bytes of a new pool's blocks: a power of two from 256 KiB to 64 MiB. A
    /// process takes memory from the pool block by block, and a value must fit in a block. Default:
    /// a 64th of the smallest memory node, from 2 to 16 MiB. An existing pool keeps its block size.
    ///
    /// ```
    /// # fn main() -> Result<(), darter::Error> {
    /// let store = darter::Store::options().block_bytes(8 << 20).open("mem:64M")?;
    /// store.put("photo", vec![7; 6 << 20])?; // more than a block of the default, 2 MiB
    /// assert!(store.max_value_bytes() < 8 << 20);
    /// # Ok(())
    /// # }
    /// ```
    pub fn block_bytes(mut self, bytes: u64) -> Self {
        self.pool.block_bytes = Some(bytes);
        self
    }

    /// Sets the source of a new pool's secret, which determines its hashes. Default: random.
    ///
    /// A known secret makes measurements repeatable. An attacker who knows it can construct keys
    /// whose hashes collide.
    ///
    /// ```
    /// # fn main() -> Result<(), darter::Error> {
    /// use darter::{Error, OpKind, Store};
    ///
    /// let cost = || {
    ///     let store = Store::options().secret([1, 2, 3, 4]).open("mem:16M")?;
    ///     let session = store.session()?;
    ///     session.put("pear", "green")?;
    ///     Ok::<_, Error>(session.counters()[OpKind::Insert])
    /// };
    /// assert_eq!(cost()?, cost()?);
    /// # Ok(())
    /// # }
    /// ```
    pub fn secret(mut self, secret: [u64; 4]) -> Self {
        self.pool.secret = Some(secret);
        self
    }

    /// Does the upkeep in a thread of the store. Default: `true`.
    ///
    /// Without the thread, call [`Store::maintain`](crate::Store::maintain) several times within a
    /// lease: a process that does not renew its lease counts as dead.
    ///
    /// ```
    /// # fn main() -> Result<(), darter::Error> {
    /// let store = darter::Store::options().maintenance(false).open("mem:16M")?;
    /// for number in 0..1000_u32 {
    ///     store.put(number.to_be_bytes(), "value")?;
    ///     if number % 100 == 0 {
    ///         store.maintain()?;
    ///     }
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn maintenance(mut self, maintenance: bool) -> Self {
        self.maintenance = maintenance;
        self
    }

    /// Lets the upkeep adjust DART's prefix list to the frequency of searches (DART, section 3.1).
    /// Default: `true`.
    ///
    /// ```
    /// # fn main() -> Result<(), darter::Error> {
    /// use darter::{IndexKind, Store};
    ///
    /// let options = Store::options().index(IndexKind::Dart).auto_adjust(false);
    /// let store = options.open("mem:16M")?;
    /// store.put("pear", "green")?;
    /// println!("{:?}", store.adjust()?.after); // only this call changes the list
    /// # Ok(())
    /// # }
    /// ```
    pub fn auto_adjust(mut self, adjust: bool) -> Self {
        self.auto_adjust = adjust;
        self
    }

    /// Frees the memory left by dead processes: soon after opening, after a death, and before an
    /// operation fails because the pool is full. This walks the whole index in a separate thread.
    /// Default: `true`.
    ///
    /// Without it, or without [`StoreOptions::maintenance`], that memory is unusable until another
    /// process or [`Store::repair`](crate::Store::repair) frees it.
    ///
    /// ```
    /// # fn main() -> Result<(), darter::Error> {
    /// let store = darter::Store::options().sweep(false).open("mem:16M")?;
    /// let repaired = store.repair()?; // frees the memory of dead processes now
    /// assert_eq!(repaired.repaired_bytes, 0, "none has died");
    /// # Ok(())
    /// # }
    /// ```
    pub fn sweep(mut self, sweep: bool) -> Self {
        self.sweep = sweep;
        self
    }

    /// Accepts a copy of a pool file that was open when it was copied; otherwise such a copy is
    /// refused ([`Error::CopyOfOpen`](crate::Error::CopyOfOpen)). Default: `false`.
    ///
    /// Such a copy can mix two states. Check it first, as `darter check --repair` does.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let directory = tempfile::tempdir()?;
    /// # let path = directory.path().join("pool");
    /// # let name = format!("file:{}?size=16M", path.display());
    /// # let copy = directory.path().join("copy");
    /// let store = darter::Store::open(&name)?;
    /// std::fs::copy(&path, &copy)?; // while the pool is open
    /// let copy = format!("file:{}", copy.display());
    /// assert!(matches!(darter::Store::open(&copy), Err(darter::Error::CopyOfOpen { .. })));
    /// let copy = darter::Store::options().accept_copy(true).open(&copy)?;
    /// assert!(copy.check()?.is_sound());
    /// # Ok(())
    /// # }
    /// ```
    pub fn accept_copy(mut self, accept: bool) -> Self {
        self.accept_copy = accept;
        self
    }

    /// Lets the store join its pool again after the pool has ended its membership
    /// ([`Error::is_shut_out`](crate::Error::is_shut_out)). Default: `true`.
    ///
    /// Without it, every later operation fails. A `mem:` pool is never joined again.
    ///
    /// ```
    /// # fn main() -> Result<(), darter::Error> {
    /// // For a program that ends when the pool shuts it out.
    /// let store = darter::Store::options().rejoin(false).open("mem:16M")?;
    /// assert_eq!(store.joins(), 0);
    /// # Ok(())
    /// # }
    /// ```
    pub fn rejoin(mut self, rejoin: bool) -> Self {
        self.rejoin = rejoin;
        self
    }

    /// Lets the store join another pool that was created on the same memory nodes after they had
    /// lost the first one. Each session then fails once with
    /// [`Error::Replaced`](crate::Error::Replaced). Default: `false`; operations fail with
    /// [`Error::Outside`](crate::Error::Outside).
    ///
    /// ```no_run
    /// # use darter::{Error, Store};
    /// # fn main() -> Result<(), darter::Error> {
    /// // For a cache, whose contents may be lost.
    /// let cache = Store::options().accept_new_pool(true).open("tcp://10.0.0.5:7411")?;
    /// let pear = match cache.get("pear") {
    ///     Err(Error::Replaced) => cache.get("pear")?, // of the new pool
    ///     found => found?,
    /// };
    /// # Ok(())
    /// # }
    /// ```
    pub fn accept_new_pool(mut self, accept: bool) -> Self {
        self.accept_new_pool = accept;
        self
    }

    /// Returns whether a pool may be created if none exists; `None` if that is not specified.
    pub(crate) fn creates(&self) -> Option<bool> {
        if self.create_new { Some(true) } else { self.create }
    }

    /// Returns the same options for a pool that must exist already.
    pub(crate) fn existing(&self) -> Self {
        Self { create: Some(false), create_new: false, truncate: false, ..self.clone() }
    }
}
