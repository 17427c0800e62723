//! An ordered key-value map whose bytes live in a memory pool, shared by threads and processes.
//!
//! A [`Store`] is an open pool with its index, Quiver or DART ([`IndexKind`]); clone it freely. A
//! [`Session`] is one thread's access, an [`AsyncSession`] one task's: cheap to make, never shared.
//! No operation of these indexes waits for another client, dead or alive. What an operation stored
//! is visible to every other session, of every process, when it returns.
//!
//! ```
//! use darter::{Error, Store};
//!
//! # fn main() -> Result<(), Error> {
//! let store = Store::open("mem:64M")?; // or `file:/dev/shm/pool?size=8G`, shared with other processes
//! let session = store.session()?;
//! session.put("fly", "agaric")?;
//! session.put("flying", "fish")?;
//! assert_eq!(session.get("fly")?.as_deref(), Some(&b"agaric"[..]));
//! for pair in session.scan_prefix("fly") {
//!     let (key, value) = pair?;
//!     println!("{} = {}", key.escape_ascii(), value.escape_ascii());
//! }
//! # Ok(())
//! # }
//! ```
//!
//! Promises (the index's own, see [`OrderedIndex`]): point operations are linearizable; a scan
//! returns keys in order, each at most once, every key that was there throughout and none that was
//! absent throughout. Dropping a future of an [`AsyncSession`] at any await is safe: the operation
//! took effect, or it did not, and the session goes on.
//!
//! Keys are any bytes, ordered bytewise: 0 to 65,536 of them, 65,535 if the first is FE or FF. Values
//! are any bytes, up to what fits in one block of the pool. Gateways of the same pool keep their keys
//! apart from these; `darter_gateway::Database` reads and writes their strings.
//!
//! This crate holds no algorithm: `darter-index` finds keys, `darter-pool` allocates and reclaims
//! memory, `darter-fabric` moves bytes.
//!
//! # Features
//! - `tcp` (default): pools on memory nodes over TCP and RDMA (`tcp://`, `rdma://`).
//! - `tls` (default): TLS with memory nodes; needs a C compiler.
//! - `tables` (default): typed tables, [`Table`].
//! - `stream` (default): [`AsyncScan`] is a `futures_core::Stream`.
//!
//! - `tracing`: each operation of a session is a span, of level trace; checks and repairs are of
//!   level debug.
//!
//! Without `tcp`, `mem:` and `file:` pools remain.

mod async_session;
mod batch;
mod blocking;
mod change;
mod cursor;
mod error;
mod inspect;
mod key_range;
mod key_space;
mod link;
mod membership;
mod open;
mod open_index;
mod open_store;
mod options;
mod provision;
pub mod report;
mod room;
mod scan;
mod session;
mod store;
mod sweeper;
#[cfg(feature = "tables")]
mod table;
mod upkeep;

pub use async_session::AsyncSession;
pub use change::Change;
pub use error::Error;
pub use key_range::KeyRange;
#[doc(hidden)]
pub use key_space::KeySpace;
pub use options::StoreOptions;
pub use provision::DefaultFabric;
pub use scan::{AsyncScan, Scan};
pub use session::Session;
pub use store::Store;
#[cfg(feature = "tables")]
pub use table::{AsyncRows, AsyncTableSession, Rows, Table, TableKey, TableSession, TableValue};

#[cfg(feature = "tcp")]
pub use darter_fabric::TcpOptions;
pub use darter_fabric::local::exit_on_bus_error;
#[cfg(feature = "tls")]
pub use darter_fabric::wire::{ClientTls, IdentityFiles, TlsError};
pub use darter_fabric::{
    ByteSize, Counters, Fabric, FabricError, GlobalAddr, OpKind, PoolUrl, Scheme, UrlError, block_on,
};
pub use darter_index::{
    AnyIndex, Condition, Dart, DartOptions, ErasedIndex, IndexError, IndexKind, KEY_BYTES_MAX, KeyValue,
    OrderedIndex, PutOutcome, Quiver, QuiverOptions, ScanRange,
};
pub use darter_pool::{Pool, PoolError};

/// The README's example, compiled and run.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
pub struct Readme;
