//! The errors of the store. Every message states how to resolve it.

use crate::BackupError;
use darter_fabric::{FabricError, UrlError};
use darter_index::IndexError;
use darter_pool::PoolError;
use std::path::PathBuf;
use std::sync::Arc;

/// An error of the store. Data stored before it is intact.
///
/// ```
/// use darter::{Error, Store};
///
/// let error = Store::open("file:/dev/shm/no/such/pool").unwrap_err();
/// assert!(matches!(error, Error::Missing { .. }));
/// println!("{error}"); // says how to create the pool
/// ```
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The pool's name is malformed.
    #[error(transparent)]
    Url(#[from] UrlError),
    /// There is no pool at this path.
    #[error(
        "pool `{pool}`: {path} does not exist or is empty; check the path, or create it with `?size=`, for example \
             `file:{path}?size=1G`"
    )]
    Missing {
        /// The pool's name.
        pool: String,
        /// The file.
        path: PathBuf,
    },
    /// A pool in this process's memory was required to exist already.
    #[error(
        "pool `{pool}`: a pool in memory is always new, so it cannot be required to exist; use `file:PATH`"
    )]
    NeverExists {
        /// The pool's name.
        pool: String,
    },
    /// A new pool was requested, but the file is not empty.
    #[error(
        "pool `{pool}`: {path} exists already; open it with `create_new(false)`, choose another path, or replace its \
             holds with `truncate(true)`"
    )]
    Exists {
        /// The pool's name.
        pool: String,
        /// The file.
        path: PathBuf,
    },
    /// The store was opened with `read_only(true)`, and the operation writes.
    #[error("the store was opened with `read_only(true)`; open it without that to write")]
    ReadOnly,
    /// The pool was required to survive a power failure, but its memory does not.
    #[error(
        "pool `{pool}`: a power failure may lose acknowledged writes; use memory nodes that run with \
             `--durability log`, or a file on persistent memory with `?durability=flush`"
    )]
    NotDurable {
        /// The pool's name.
        pool: String,
    },
    /// The pool ended this process's membership during an operation that changes data: the
    /// operation took effect or not. The store joins the pool again by itself, and the next
    /// operation works.
    #[error("the operation may have taken effect or not: {0}")]
    Interrupted(#[source] Box<Error>),
    /// The pool has ended this process's membership, and the store cannot join it again yet; the
    /// error is the reason.
    #[error(
        "the pool has ended this process's membership, and the store, which tries again by itself, cannot join it yet; \
             nothing was sent: {0}"
    )]
    Outside(#[source] Arc<Error>),
    /// The memory nodes hold another pool, which has replaced the open one.
    #[error(
        "the memory nodes now hold another pool, which has replaced the one that was open; open the store again \
             to use it"
    )]
    AnotherPool,
    /// The memory nodes hold another pool, which has replaced the open one, and this store has
    /// joined it, as [`crate::StoreOptions::accept_new_pool`] allows. The next operation of the
    /// session works on the new pool.
    #[error(
        "the memory nodes now hold another pool, which has replaced the one that was open; nothing was sent, and \
             the next operation works on the new pool"
    )]
    Replaced,
    /// The pool's provider is not compiled into this program.
    #[error(
        "pool `{pool}`: this program was built without it; build it with the feature `{feature}` of `darter`"
    )]
    NotBuiltIn {
        /// The pool's name.
        pool: String,
        /// The feature that has it.
        feature: &'static str,
    },
    /// The file exists, but no pool can be opened from it.
    #[error("pool `{pool}`: {source}")]
    Open {
        /// The pool's name.
        pool: String,
        /// The reason.
        source: PoolError,
    },
    /// The file is a copy of a pool that was open when it was copied, or that processes had left
    /// without closing it.
    #[error(
        "pool `{pool}`: this file is a copy of a pool that was open when it was copied, so it may mix two states; copy \
             the pool again when no process has it open, or run `darter check --repair` on the copy, which accepts it \
             if it is sound"
    )]
    CopyOfOpen {
        /// The pool's name.
        pool: String,
    },
    /// The operating system refused a file.
    #[error("{path}: cannot {action}: {source}")]
    Io {
        /// The file.
        path: PathBuf,
        /// The operation that failed.
        action: &'static str,
        /// The system error.
        source: std::io::Error,
    },
    /// A thread that opens the store or does its upkeep could not be started.
    #[error(
        "cannot start a thread: {0}; reduce the number of threads, or open with `maintenance(false)` and call `maintain`"
    )]
    Thread(std::io::Error),
    /// A transaction was not committed; nothing has changed.
    #[error(transparent)]
    Transaction(#[from] crate::TransactionError),
    /// A pair of a table does not have the table's types.
    #[error("table `{table}` {what}: {why}; use the types that it was written with")]
    Table {
        /// The table's name.
        table: String,
        /// What is wrong with the pair.
        what: &'static str,
        /// The decoder's error.
        why: String,
    },
    /// A backup cannot be written, read or restored.
    #[error(transparent)]
    Backup(#[from] BackupError),
    /// The index refused the operation or failed: a key or value too long, damage, unsorted bulk
    /// load.
    #[error(transparent)]
    Index(IndexError),
    /// The pool refused the operation or failed: most often, it is out of space.
    #[error(transparent)]
    Pool(PoolError),
    /// The fabric failed.
    #[error(transparent)]
    Fabric(#[from] FabricError),
}

/// What an error means to a program: the way to continue is the same for all errors of a kind.
///
/// ```
/// use darter::{ErrorKind, Store};
///
/// let kind = |url: &str| Store::open(url).unwrap_err().kind();
/// assert_eq!(kind("file:/dev/shm/no/such/pool"), ErrorKind::Missing);
/// assert_eq!(kind("no-such-scheme:pool"), ErrorKind::Usage);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The request can never be carried out: a malformed name, options that contradict each other.
    Usage,
    /// The pool does not exist.
    Missing,
    /// The pool exists already.
    Exists,
    /// The file or memory does not hold a pool.
    NotAPool,
    /// The store was opened for reading only, or by a token that allows only that.
    ReadOnly,
    /// The key or the value can never be stored in this pool.
    TooLong,
    /// The pool is full; data can be deleted.
    Full,
    /// The pool is full until a stopped process continues or ends ([`Error::is_held_back`]).
    HeldBack,
    /// Another client changed a key of the transaction; run it again.
    Conflict,
    /// The transaction has too many keys or bytes; split it.
    TransactionSize,
    /// A memory node cannot be reached ([`Error::is_disconnected`]).
    Disconnected,
    /// The pool has ended this process's membership ([`Error::is_shut_out`]).
    ShutOut,
    /// The pool ended this process's membership during the operation, which took effect or not.
    Interrupted,
    /// The process has forked since the pool was opened, and this is the child; open it again.
    Forked,
    /// The pool has the format or the index of another version of darter.
    Version,
    /// The pool is damaged, or a copy that may mix two states; restore it from a copy.
    Damaged,
    /// A pair of a table does not have the table's types.
    Table,
    /// A snapshot cannot begin at this moment, or was given up; try again later.
    Snapshot,
    /// Any other error, most often of the operating system.
    Other,
}

impl Error {
    /// Returns the kind of the error.
    ///
    /// ```
    /// # fn main() -> Result<(), darter::Error> {
    /// use darter::{ErrorKind, Store};
    ///
    /// let store = Store::open("mem:16M")?;
    /// let error = store.put(vec![0; darter::KEY_BYTES_MAX + 1], "").unwrap_err();
    /// assert_eq!(error.kind(), ErrorKind::TooLong);
    /// # Ok(())
    /// # }
    /// ```
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Missing { .. } | Self::NeverExists { .. } => ErrorKind::Missing,
            Self::Exists { .. } => ErrorKind::Exists,
            Self::ReadOnly => ErrorKind::ReadOnly,
            Self::Interrupted(_) => ErrorKind::Interrupted,
            Self::Transaction(crate::TransactionError::Conflict) => ErrorKind::Conflict,
            Self::Transaction(_) => ErrorKind::TransactionSize,
            Self::CopyOfOpen { .. }
            | Self::Index(IndexError::Corrupt { .. } | IndexError::LostInWrite { .. }) => ErrorKind::Damaged,
            Self::Index(IndexError::NoIndex { .. }) => ErrorKind::Version,
            Self::Table { .. } => ErrorKind::Table,
            Self::Backup(error) => match error {
                BackupError::NotABackup | BackupError::Version(_) => ErrorKind::Version,
                BackupError::CutShort { .. } | BackupError::Damaged { .. } => ErrorKind::Damaged,
                BackupError::NotEmpty => ErrorKind::Exists,
                BackupError::Io(_) => ErrorKind::Other,
            },
            _ if self.is_too_long() => ErrorKind::TooLong,
            _ if self.is_disconnected() => ErrorKind::Disconnected,
            _ if self.is_shut_out() => ErrorKind::ShutOut,
            _ if self.is_usage() => ErrorKind::Usage,
            Self::Pool(error) | Self::Open { source: error, .. } => kind_of_pool(error),
            Self::Fabric(error) => kind_of_fabric(error),
            _ => ErrorKind::Other,
        }
    }

    /// Returns whether the caller's request cannot be carried out, for example because a name is
    /// malformed or a pool does not exist. Other errors are those of the pool or the system.
    ///
    /// ```
    /// let error = darter::Store::options().create(false).open("mem:16M").unwrap_err();
    /// assert!(error.is_usage(), "a pool in memory never exists before");
    /// ```
    pub fn is_usage(&self) -> bool {
        matches!(
            self,
            Self::Url(_)
                | Self::Missing { .. }
                | Self::NeverExists { .. }
                | Self::Exists { .. }
                | Self::ReadOnly
                | Self::NotDurable { .. }
                | Self::NotBuiltIn { .. }
                | Self::Index(IndexError::NoIndex { .. })
        )
    }

    /// Returns whether the pool is full: delete data, or create a larger one. Everything stored is
    /// intact and readable. [`Error::is_held_back`] returns whether it is full only temporarily.
    ///
    /// ```
    /// # fn main() -> Result<(), darter::Error> {
    /// let store = darter::Store::open("mem:8M")?;
    /// let fill = |number: u32| store.put(number.to_be_bytes(), [7; 100_000]);
    /// let error = (0..).find_map(|number| fill(number).err()).unwrap();
    /// assert!(error.is_out_of_space());
    /// assert_eq!(store.get(0_u32.to_be_bytes())?, Some(vec![7; 100_000]));
    /// # Ok(())
    /// # }
    /// ```
    pub fn is_out_of_space(&self) -> bool {
        matches!(self, Self::Pool(PoolError::OutOfSpace { .. } | PoolError::HeldBack(_)))
    }

    /// Returns whether freed memory is held back by a process that is stopped or makes no progress,
    /// which the message names. The pool has room again when that process continues or has ended.
    ///
    /// ```
    /// use darter::{Error, PoolError};
    ///
    /// let full = Error::from(PoolError::OutOfSpace { needed: 4096, node: 0 });
    /// assert!(full.is_out_of_space());
    /// assert!(!full.is_held_back(), "waiting does not help");
    /// ```
    pub fn is_held_back(&self) -> bool {
        matches!(self, Self::Pool(PoolError::HeldBack(_)))
    }

    /// Returns whether a memory node could not be reached: the operation took effect or not. The
    /// node may be reachable later.
    ///
    /// ```
    /// use darter::{Error, FabricError};
    ///
    /// let lost_reply = Error::from(FabricError::Disconnected { node: 1 });
    /// assert!(lost_reply.is_disconnected() && !lost_reply.is_unsent());
    /// let no_connection = Error::from(FabricError::Unreachable { node: 1 });
    /// assert!(no_connection.is_disconnected() && no_connection.is_unsent());
    /// ```
    pub fn is_disconnected(&self) -> bool {
        use std::io::ErrorKind as Kind;
        if let Self::Outside(why) = self {
            return why.is_disconnected();
        }
        match self.fabric() {
            Some(
                FabricError::Disconnected { .. } | FabricError::Unreachable { .. } | FabricError::Lost { .. },
            ) => true,
            Some(FabricError::Io(failure)) => matches!(
                failure.source.kind(),
                Kind::ConnectionRefused
                    | Kind::ConnectionReset
                    | Kind::ConnectionAborted
                    | Kind::NotConnected
                    | Kind::BrokenPipe
                    | Kind::HostUnreachable
                    | Kind::NetworkUnreachable
                    | Kind::NetworkDown
                    | Kind::TimedOut
                    | Kind::WouldBlock
                    | Kind::UnexpectedEof
            ),
            _ => false,
        }
    }

    /// Returns whether the pool has ended this process's membership: others have declared it dead
    /// because it was silent beyond its lease, or a memory node with a log has crashed and ended
    /// its session. The store joins the pool again by itself, unless
    /// [`crate::StoreOptions::rejoin`] is false; [`Error::is_unsent`] returns whether the operation
    /// may be repeated.
    ///
    /// ```
    /// use darter::{Error, PoolError};
    ///
    /// assert!(Error::from(PoolError::Evicted).is_shut_out());
    /// ```
    pub fn is_shut_out(&self) -> bool {
        let evicted = |error: &PoolError| matches!(error, PoolError::Evicted);
        self.fabric().is_some_and(FabricError::is_shut_out)
            || matches!(self, Self::Interrupted(_) | Self::Outside(_))
            || matches!(self, Self::Pool(error) | Self::Open { source: error, .. } if evicted(error))
    }

    /// Returns whether the membership has ended: the pool has ended it, or the pool's first memory
    /// node, which lists the members, was restarted without its contents.
    pub(crate) fn ends_membership(&self) -> bool {
        self.is_shut_out() || matches!(self.fabric(), Some(FabricError::Lost { node: 0 }))
    }

    fn fabric(&self) -> Option<&FabricError> {
        match self {
            Self::Fabric(error)
            | Self::Pool(PoolError::Fabric(error))
            | Self::Open { source: PoolError::Fabric(error), .. } => Some(error),
            _ => None,
        }
    }

    /// Returns the memory node, other than node 0, that could not be reached, if that is why the operation
    /// failed.
    pub(crate) fn absent_node(&self) -> Option<u8> {
        match self.fabric() {
            Some(
                FabricError::Unreachable { node }
                | FabricError::Lost { node }
                | FabricError::Disconnected { node },
            ) => Some(*node),
            _ => None,
        }
        .filter(|&node| node > 0)
    }

    /// Returns whether the failed operation has not taken effect: it was refused, or a memory node
    /// could not be reached before anything was changed. It can then be repeated safely. If this
    /// returns false, an operation that changes data may have taken effect or not.
    ///
    /// For an operation on many keys (`put_many`, `remove_many`, `remove_range`, `clear`) this only
    /// applies to the key at which it failed.
    ///
    /// ```
    /// # fn main() -> Result<(), darter::Error> {
    /// # let store = darter::Store::open("mem:16M")?;
    /// # use darter::{Change, Error, Store};
    /// /// Adds 1 to a counter, and tries again only if that cannot count twice.
    /// fn count(store: &Store, key: &str) -> Result<(), Error> {
    ///     let add = |old: Option<&[u8]>| Change::Put(vec![old.map_or(1, |old| old[0] + 1)]);
    ///     match store.update(key, add) {
    ///         Err(error) if error.is_unsent() => store.update(key, add).map(drop),
    ///         result => result.map(drop),
    ///     }
    /// }
    /// count(&store, "visits")?;
    /// assert_eq!(store.get("visits")?, Some(vec![1]));
    /// # Ok(())
    /// # }
    /// ```
    pub fn is_unsent(&self) -> bool {
        self.fabric().is_some_and(|error| error.unsent_to().is_some())
            || self.is_too_long()
            || self.is_usage()
            || self.is_out_of_space()
            || matches!(self, Self::Outside(_) | Self::AnotherPool | Self::Replaced | Self::Transaction(_))
    }

    /// Returns whether this key or value can never be stored in this pool, while others can.
    ///
    /// ```
    /// # fn main() -> Result<(), darter::Error> {
    /// # let store = darter::Store::open("mem:16M")?;
    /// let error = store.put(vec![0; darter::KEY_BYTES_MAX + 1], "").unwrap_err();
    /// assert!(error.is_too_long() && error.is_unsent());
    /// # Ok(())
    /// # }
    /// ```
    pub fn is_too_long(&self) -> bool {
        matches!(self, Self::Index(IndexError::KeyTooLong { .. } | IndexError::ValueTooLong { .. }))
    }
}

fn kind_of_pool(error: &PoolError) -> ErrorKind {
    match error {
        PoolError::NotAPool { .. } => ErrorKind::NotAPool,
        PoolError::AlreadyAPool { .. } => ErrorKind::Exists,
        PoolError::WrongVersion { .. } => ErrorKind::Version,
        PoolError::Damaged { .. } | PoolError::NodeMismatch { .. } => ErrorKind::Damaged,
        PoolError::TooLarge { .. } => ErrorKind::TooLong,
        PoolError::OutOfSpace { .. } => ErrorKind::Full,
        PoolError::HeldBack(_) => ErrorKind::HeldBack,
        PoolError::ReadOnly => ErrorKind::ReadOnly,
        PoolError::ChangesHeld
        | PoolError::SnapshotTaken { .. }
        | PoolError::SnapshotOpen
        | PoolError::SnapshotHeldBack(_)
        | PoolError::SnapshotUnknown { .. }
        | PoolError::SnapshotOver => ErrorKind::Snapshot,
        PoolError::Options(_) | PoolError::TooSmall { .. } => ErrorKind::Usage,
        PoolError::Fabric(error) => kind_of_fabric(error),
        _ => ErrorKind::Other,
    }
}

fn kind_of_fabric(error: &FabricError) -> ErrorKind {
    match error {
        FabricError::Geometry(_) => ErrorKind::Usage,
        FabricError::Forked => ErrorKind::Forked,
        FabricError::ReadOnly { .. } => ErrorKind::ReadOnly,
        error if error.is_bad_address() => ErrorKind::Damaged,
        _ => ErrorKind::Other,
    }
}

impl From<PoolError> for Error {
    /// Errors of the fabric are returned as such, whichever layer received them first.
    #[cold]
    fn from(error: PoolError) -> Self {
        match error {
            PoolError::Fabric(error) => Self::Fabric(error),
            error => Self::Pool(error),
        }
    }
}

impl From<IndexError> for Error {
    /// Errors of the pool and the fabric are returned as such.
    #[cold]
    fn from(error: IndexError) -> Self {
        match error {
            IndexError::Pool(error) => error.into(),
            IndexError::Fabric(error) => Self::Fabric(error),
            error => Self::Index(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The kinds that callers cannot provoke easily.
    #[test]
    fn errors_have_the_kind_that_their_questions_confirm() {
        let kinds = [
            (Error::Fabric(FabricError::Unreachable { node: 1 }), ErrorKind::Disconnected),
            (Error::Fabric(FabricError::Fenced), ErrorKind::ShutOut),
            (Error::Fabric(FabricError::Forked), ErrorKind::Forked),
            (Error::Pool(PoolError::Evicted), ErrorKind::ShutOut),
            (Error::Pool(PoolError::OutOfSpace { needed: 8, node: 0 }), ErrorKind::Full),
            (Error::Pool(PoolError::NotAPool { node: 0 }), ErrorKind::NotAPool),
            (Error::Outside(Arc::new(Error::AnotherPool)), ErrorKind::ShutOut),
            (Error::Interrupted(Box::new(Error::Fabric(FabricError::Fenced))), ErrorKind::Interrupted),
            (Error::Transaction(crate::TransactionError::Conflict), ErrorKind::Conflict),
            (Error::AnotherPool, ErrorKind::Other),
        ];
        for (error, kind) in kinds {
            assert_eq!(error.kind(), kind, "{error}");
        }
    }

    #[test]
    fn errors_say_whether_an_operation_took_effect() {
        let unsent = [
            Error::Fabric(FabricError::Unreachable { node: 1 }),
            Error::Fabric(FabricError::Lost { node: 1 }),
            Error::Fabric(FabricError::Forgotten { node: 1 }),
            Error::Pool(PoolError::OutOfSpace { needed: 8, node: 0 }),
            Error::Index(IndexError::ValueTooLong { bytes: 9, max: 8 }),
            Error::Outside(Arc::new(Error::AnotherPool)),
            Error::Replaced,
        ];
        assert!(unsent.iter().all(Error::is_unsent));
        let unknown = [
            Error::Fabric(FabricError::Disconnected { node: 1 }),
            Error::Fabric(FabricError::Fenced),
            Error::Fabric(FabricError::not_durable(1, "a full disk")),
            Error::Pool(PoolError::Evicted),
            Error::Interrupted(Box::new(Error::Fabric(FabricError::Fenced))),
        ];
        assert!(!unknown.iter().any(Error::is_unsent));
        assert!(
            [&unsent[2], &unsent[5], &unknown[1], &unknown[3], &unknown[4]]
                .iter()
                .all(|error| error.is_shut_out())
        );
        assert!([&unsent[0], &unsent[1], &unknown[0]].iter().all(|error| error.is_disconnected()));
        assert!(![&unsent[0], &unsent[1], &unknown[0]].iter().any(|error| error.is_shut_out()));
    }
}
