//! An ordered key-value map whose bytes live in a memory pool, shared by threads and processes.
//!
//! A [`Store`] is an open pool with its index. Its calls work from any thread; [`AsyncStore`] has
//! the same calls as futures. A [`Session`] has its own connection, for a thread that does many
//! operations. No operation waits for another client, whether that client is running, stopped or
//! dead. After a call returns, its changes are visible to every client in any process.
//!
//! ```
//! use darter::{Error, Store};
//!
//! # fn main() -> Result<(), Error> {
//! let store = Store::open("mem:64M")?; // or `file:/dev/shm/pool?size=8G`, shared by processes
//! store.put("fly", "agaric")?;
//! store.put("flying", "fish")?;
//! assert_eq!(store.get("fly")?.as_deref(), Some(&b"agaric"[..]));
//! for pair in store.prefix("fly") {
//!     let (key, value) = pair?;
//!     println!("{} = {}", key.escape_ascii(), value.escape_ascii());
//! }
//! # Ok(())
//! # }
//! ```
//!
//! # Guarantees
//! Operations on one key are linearizable. An iteration over a range returns keys in order, each at
//! most once: every key that is present from its beginning to its end, and none that is absent for
//! that time. A process can be killed at any instant; every acknowledged write stays, and no other
//! process waits. Dropping a future at any await is safe: the operation took effect or it did not.
//!
//! Keys are any bytes, ordered bytewise: 0 to 65,536 of them, 65,535 if the first is FE or FF.
//! Values are any bytes, up to what fits in one block of the pool. Gateways of the same pool keep
//! their keys apart from these; `darter_gateway::Database` reads and writes their strings.
//!
//! # Layers
//! `darter-index` finds keys, `darter-pool` allocates and reclaims memory, `darter-fabric` moves
//! bytes. The module [`engine`] gives access to them.
//!
//! # Features
//! - `tcp` (default): pools on memory nodes over TCP and RDMA (`tcp://`, `rdma://`).
//! - `tls` (default): TLS with memory nodes; needs a C compiler.
//! - `tables` (default): typed tables, [`Table`].
//! - `stream` (default): [`AsyncRange`] is a `futures_core::Stream`.
//! - `tracing`: each operation of a session is a span of level trace; checks and repairs are spans
//!
//! Without `tcp`, only `mem:` and `file:` pools are available.

mod async_session;
mod async_store;
pub mod backup;
mod backup_error;
mod batch;
mod blocking;
mod calls;
mod change;
mod cursor;
pub mod drain;
pub mod engine;
mod error;
pub mod give_up;
mod holds;
mod inspect;
mod into_pool_url;
mod key_range;
mod key_space;
mod link;
mod membership;
mod open;
mod open_index;
mod open_store;
mod options;
mod parts;
mod provision;
mod range;
pub mod rebalance;
pub mod report;
mod room;
pub mod salvage;
mod session;
mod snapshot;
mod store;
mod sweeper;
#[cfg(feature = "tables")]
mod table;
mod transaction;
mod upkeep;
mod worker;
mod workers;

pub use async_session::AsyncSession;
pub use async_store::AsyncStore;
pub use backup::BackupReport;
pub use backup_error::BackupError;
pub use change::Change;
pub use error::{Error, ErrorKind};
pub use into_pool_url::IntoPoolUrl;
pub use key_range::KeyRange;
pub use options::StoreOptions;
pub use range::{AsyncRange, Range};
pub use session::Session;
pub use snapshot::{Snapshot, SnapshotRange};
pub use store::Store;
#[cfg(feature = "tables")]
pub use table::{
    AsyncTable, AsyncTableRange, AsyncTableTransaction, Table, TableKey, TableRange, TableTransaction,
    TableValue,
};

pub use transaction::{AsyncTransaction, Transaction, TransactionError};

#[cfg(feature = "tcp")]
pub use darter_fabric::TcpOptions;
pub use darter_fabric::local::exit_on_bus_error;
#[cfg(feature = "tls")]
pub use darter_fabric::wire::{ClientTls, IdentityFiles, TlsError};
#[cfg(feature = "tcp")]
pub use darter_fabric::wire::{Credential, CredentialStatus, Expiry, Secrets, SecretsError};
pub use darter_fabric::{
    ByteSize, Counters, FabricError, GlobalAddr, OpKind, PoolUrl, Scheme, UrlError, block_on,
};
pub use darter_index::{Condition, IndexError, IndexKind, KEY_BYTES_MAX, KeyValue, PutOutcome, ScanRange};
pub use darter_pool::PoolError;

/// The README's example, compiled and run.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
pub struct Readme;
