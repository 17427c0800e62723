//! How a store is opened, beyond its pool's name.

#[cfg(feature = "tcp")]
use darter_fabric::TcpOptions;
use darter_index::{IndexKind, IndexOptions};
use darter_pool::PoolOptions;
use std::time::Duration;

/// How to open a [`crate::Store`]; [`crate::Store::options`] gives the defaults.
///
/// ```
/// # fn main() -> Result<(), darter::Error> {
/// let store = darter::Store::options().cache_bytes(1 << 20).auto_adjust(false).open("mem:64M?nodes=2")?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
#[must_use]
#[allow(clippy::struct_excessive_bools)] // switches of which any combination means something
pub struct StoreOptions {
    pub(crate) pool: PoolOptions,
    pub(crate) index: IndexOptions,
    pub(crate) auto_adjust: bool,
    pub(crate) maintenance: bool,
    pub(crate) sweep: bool,
    pub(crate) must_exist: bool,
    pub(crate) must_be_durable: bool,
    pub(crate) overwrite: bool,
    pub(crate) create: bool,
    pub(crate) snapshot: bool,
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
            must_exist: false,
            must_be_durable: false,
            overwrite: false,
            create: false,
            snapshot: false,
            accept_copy: false,
            rejoin: true,
            accept_new_pool: false,
            #[cfg(feature = "tcp")]
            tcp: TcpOptions::default(),
        }
    }
}

impl StoreOptions {
    /// Opens a pool with this index only, and gives a new pool this one. By default a pool is opened
    /// with the index that it holds, and a new one gets Quiver.
    pub fn index(mut self, kind: IndexKind) -> Self {
        self.index.kind = Some(kind);
        self
    }

    /// Bytes of this process that the index may use as its cache. Default: 1 MiB. Quiver uses no
    /// more. DART also keeps its skip table's directory, 8 bytes for each segment of 1,024 entries,
    /// even if that alone exceeds the budget; nodes get what the directory leaves of it.
    pub fn cache_bytes(mut self, bytes: u64) -> Self {
        self.index.dart.cache_bytes = bytes;
        self.index.quiver.cache_bytes = bytes;
        self
    }

    /// Whether upkeep may adjust the prefix list to how often prefixes are searched (DART, section
    /// 3.1). Default: yes.
    pub fn auto_adjust(mut self, yes: bool) -> Self {
        self.auto_adjust = yes;
        self
    }

    /// Whether a thread of the store's own does the upkeep. Default: yes. Without it, call
    /// [`crate::Session::maintain`] several times within a lease: a process that neither works nor
    /// renews its lease is taken for dead.
    pub fn maintenance(mut self, yes: bool) -> Self {
        self.maintenance = yes;
        self
    }

    /// Whether this process sweeps what dead ones left: soon after opening, after it has noticed a
    /// death, and when the pool is full, before an operation fails for it. A sweep walks the whole
    /// index, in a thread of its own beside the upkeep. Default: yes. Without it, or without
    /// [`StoreOptions::maintenance`], that waits for another process or a [`crate::Store::repair`].
    pub fn sweep(mut self, yes: bool) -> Self {
        self.sweep = yes;
        self
    }

    /// How long this process may be silent before others check whether it is dead. Rounded down to
    /// whole milliseconds, at least 1. Default: 5 s.
    pub fn lease(mut self, lease: Duration) -> Self {
        self.pool.lease_ms = u64::try_from(lease.as_millis()).unwrap_or(u64::MAX).max(1);
        self
    }

    /// Makes a pool of memory nodes that hold none. Without it such nodes are refused: an empty
    /// node may be one that was restarted and has lost its memory.
    pub fn create(mut self, yes: bool) -> Self {
        self.create = yes;
        self
    }

    /// Credentials for memory nodes, and how to wait for their replies.
    #[cfg(feature = "tcp")]
    pub fn tcp(mut self, options: TcpOptions) -> Self {
        self.tcp = options;
        self
    }

    /// Bytes of a new pool's blocks, a power of two from 256 KiB to 64 MiB: the grain in which
    /// processes take space, and the bound on the size of a value. An existing pool keeps its own.
    pub fn block_bytes(mut self, bytes: u64) -> Self {
        self.pool.block_bytes = Some(bytes);
        self
    }

    /// What a new pool's secret is made from, random by default. A known one makes counts
    /// repeatable, and lets anyone who knows it construct keys whose hashes collide: for
    /// measurements only.
    pub fn secret(mut self, secret: [u64; 4]) -> Self {
        self.pool.secret = Some(secret);
        self
    }

    /// Whether the pool must exist already, whatever `?size=` is given. Default: no.
    pub fn must_exist(mut self, yes: bool) -> Self {
        self.must_exist = yes;
        self
    }

    /// Whether the pool must keep what it acknowledges when the power fails: memory nodes with a log,
    /// or a file on persistent memory that is flushed. Any other is refused before anything is
    /// made. Default: no; then [`darter_fabric::Capabilities::durability`] of the pool's fabric says
    /// what it promises.
    pub fn must_be_durable(mut self, yes: bool) -> Self {
        self.must_be_durable = yes;
        self
    }

    /// Whether to make a new pool in place of whatever the file or device holds; needs `?size=`.
    /// Default: no. A file that is in use is refused all the same. On memory nodes, with
    /// [`StoreOptions::create`], a pool is replaced only if it has lost a node other than its first;
    /// the processes that have it open are shut out, and join the new pool if they accept it
    /// ([`StoreOptions::accept_new_pool`]).
    pub fn overwrite(mut self, yes: bool) -> Self {
        self.overwrite = yes;
        self
    }

    /// Opens a copy of a pool that was open when it was copied, which is refused otherwise
    /// ([`Error::CopyOfOpen`](crate::Error::CopyOfOpen)). Such a copy can mix two states: check a
    /// snapshot of it first, as `darter check --repair` does.
    pub fn accept_copy(mut self, yes: bool) -> Self {
        self.accept_copy = yes;
        self
    }

    /// Whether the store joins the pool again by itself after the pool has ended its membership
    /// ([`Error::is_shut_out`](crate::Error::is_shut_out)). Default: yes. Without it, every later
    /// operation fails. A `mem:` pool and a store over a fabric of the program are never joined
    /// again.
    pub fn rejoin(mut self, yes: bool) -> Self {
        self.rejoin = yes;
        self
    }

    /// Whether a store that joins its pool again may join another one, which was made on the same
    /// memory nodes after they had lost the first. Each session then fails once with
    /// [`Error::Replaced`](crate::Error::Replaced). Default: no: operations fail with
    /// [`Error::Outside`](crate::Error::Outside).
    pub fn accept_new_pool(mut self, yes: bool) -> Self {
        self.accept_new_pool = yes;
        self
    }

    /// Whether to open a pool file as it is now, for a program that may not write it, or must not.
    /// Default: no. What the store writes stays in this process. Fails if another process has the
    /// file open; [`crate::Store::verify`] says whether one has opened it since.
    pub fn snapshot(mut self, yes: bool) -> Self {
        self.snapshot = yes;
        self
    }
}
