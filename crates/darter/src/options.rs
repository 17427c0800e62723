//! The options to open a store.

#[cfg(feature = "tcp")]
use darter_fabric::TcpOptions;
use darter_index::{IndexKind, IndexOptions};
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
    #[cfg(feature = "tcp")]
    pub(crate) tcp: TcpOptions,
}

impl Default for StoreOptions {
    fn default() -> Self {
        Self {
            pool: PoolOptions::default(),
            index: IndexOptions::default(),
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
    pub fn truncate(mut self, truncate: bool) -> Self {
        self.truncate = truncate;
        self
    }

    /// Opens a snapshot of a pool file, for a program that may not write to the file. Operations
    /// that write fail with [`Error::ReadOnly`](crate::Error::ReadOnly). Default: `false`.
    ///
    /// Fails if another process has the file open. [`Store::verify`](crate::Store::verify) fails if
    /// another process has opened it since.
    pub fn read_only(mut self, read_only: bool) -> Self {
        self.read_only = read_only;
        self.snapshot = read_only;
        self
    }

    /// Requires that all acknowledged writes survive a power failure: the pool must be on memory
    /// nodes with a log, or in a file on persistent memory that is flushed. Other pools are refused
    /// before anything is created. Default: `false`.
    pub fn durable(mut self, durable: bool) -> Self {
        self.durable = durable;
        self
    }

    /// Sets the index of the pool. A new pool gets this index; an existing pool with another one is
    /// refused. Default: a new pool gets [`IndexKind::Quiver`], an existing pool is opened with its
    /// own index.
    pub fn index(mut self, kind: IndexKind) -> Self {
        self.index.kind = Some(kind);
        self
    }

    /// Sets the bytes of this process's memory that the index may use as its cache. Default: 1 MiB.
    ///
    /// Quiver never uses more. DART also keeps the directory of its skip table, 8 bytes for each
    /// segment of 1,024 entries, even if the directory alone exceeds the budget; nodes get the
    /// rest.
    pub fn cache_bytes(mut self, bytes: u64) -> Self {
        self.index.dart.cache_bytes = bytes;
        self.index.quiver.cache_bytes = bytes;
        self
    }

    /// Sets the time of silence after which other processes check whether this process is dead, in
    /// whole milliseconds, at least 1. Default: 5 s.
    pub fn lease(mut self, lease: Duration) -> Self {
        self.pool.lease_ms = u64::try_from(lease.as_millis()).unwrap_or(u64::MAX).max(1);
        self
    }

    /// Sets the credentials for memory nodes, and the time-outs of their replies. Default: no
    /// token, no TLS.
    #[cfg(feature = "tcp")]
    pub fn tcp(mut self, options: TcpOptions) -> Self {
        self.tcp = options;
        self
    }

    /// Sets the size in bytes of a new pool's blocks: a power of two from 256 KiB to 64 MiB. A
    /// process takes memory from the pool block by block, and a value must fit in a block. Default:
    /// a 64th of the smallest memory node, from 2 to 16 MiB. An existing pool keeps its block size.
    pub fn block_bytes(mut self, bytes: u64) -> Self {
        self.pool.block_bytes = Some(bytes);
        self
    }

    /// Sets the source of a new pool's secret, which determines its hashes. Default: random.
    ///
    /// A known secret makes measurements repeatable. An attacker who knows it can construct keys
    /// whose hashes collide.
    pub fn secret(mut self, secret: [u64; 4]) -> Self {
        self.pool.secret = Some(secret);
        self
    }

    /// Does the upkeep in a thread of the store. Default: `true`.
    ///
    /// Without the thread, call [`Store::maintain`](crate::Store::maintain) several times within a
    /// lease: a process that does not renew its lease counts as dead.
    pub fn maintenance(mut self, maintenance: bool) -> Self {
        self.maintenance = maintenance;
        self
    }

    /// Lets the upkeep adjust DART's prefix list to the frequency of searches (DART, section 3.1).
    /// Default: `true`.
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
    pub fn sweep(mut self, sweep: bool) -> Self {
        self.sweep = sweep;
        self
    }

    /// Accepts a copy of a pool file that was open when it was copied; otherwise such a copy is
    /// refused ([`Error::CopyOfOpen`](crate::Error::CopyOfOpen)). Default: `false`.
    ///
    /// Such a copy can mix two states. Check it first, as `darter check --repair` does.
    pub fn accept_copy(mut self, accept: bool) -> Self {
        self.accept_copy = accept;
        self
    }

    /// Lets the store join its pool again after the pool has ended its membership
    /// ([`Error::is_shut_out`](crate::Error::is_shut_out)). Default: `true`.
    ///
    /// Without it, every later operation fails. A `mem:` pool is never joined again.
    pub fn rejoin(mut self, rejoin: bool) -> Self {
        self.rejoin = rejoin;
        self
    }

    /// Lets the store join another pool that was created on the same memory nodes after they had
    /// lost the first one. Each session then fails once with
    /// [`Error::Replaced`](crate::Error::Replaced). Default: `false`; operations fail with
    /// [`Error::Outside`](crate::Error::Outside).
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
