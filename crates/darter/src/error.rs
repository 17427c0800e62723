//! The errors of the store. Every message states what to do about it.

use darter_fabric::{FabricError, UrlError};
use darter_index::IndexError;
use darter_pool::PoolError;
use std::path::PathBuf;
use std::sync::Arc;

/// An error of the store. What was stored before is intact.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The pool's name cannot be read.
    #[error(transparent)]
    Url(#[from] UrlError),
    /// There is no pool at the place named.
    #[error(
        "pool `{pool}`: {path} does not exist or is empty; check the path, or create it with `?size=`, as in \
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
    /// A new pool was to be created, and the file holds something already.
    #[error(
        "pool `{pool}`: {path} exists already; open it with `create_new(false)`, choose another path, or replace what it \
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
    /// The pool was required to survive a power failure, and its memory does not.
    #[error(
        "pool `{pool}`: a power failure may lose what it has acknowledged; use memory nodes that run with \
             `--durability log`, or a file on persistent memory with `?durability=flush`"
    )]
    NotDurable {
        /// The pool's name.
        pool: String,
    },
    /// The pool ended this process's membership during an operation that was to change something:
    /// it took effect or not. The store joins the pool again by itself, and the next operation works.
    #[error("the operation may have taken effect or not: {0}")]
    Interrupted(#[source] Box<Error>),
    /// The pool has ended this process's membership, and the store cannot join it again yet, for the
    /// reason inside.
    #[error(
        "the pool has ended this process's membership, and the store, which tries again by itself, cannot join it yet; \
             nothing was sent: {0}"
    )]
    Outside(#[source] Arc<Error>),
    /// The memory nodes no longer hold the pool that was open, but another.
    #[error(
        "the memory nodes hold another pool now, which was made in place of the one that was open; open the store again \
             to use it"
    )]
    AnotherPool,
    /// The memory nodes no longer hold the pool that was open, and this store has joined another there,
    /// as [`crate::StoreOptions::accept_new_pool`] allows. The next operation of the session works
    /// on that one.
    #[error(
        "the memory nodes hold another pool now, which was made in place of the one that was open; nothing was sent, and \
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
    /// The file is there, and no pool can be opened from it.
    #[error("pool `{pool}`: {source}")]
    Open {
        /// The pool's name.
        pool: String,
        /// Why.
        source: PoolError,
    },
    /// The file is a copy of a pool that processes had open when it was copied, or had left without
    /// closing it.
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
        /// What was tried.
        action: &'static str,
        /// The system's error.
        source: std::io::Error,
    },
    /// A thread that opens the store or does its upkeep could not be started.
    #[error(
        "cannot start a thread: {0}; free threads, or open with `maintenance(false)` and call `maintain`"
    )]
    Thread(std::io::Error),
    /// A pair of a table is not of the table's types.
    #[error("table `{table}` {what}: {why}; use the types that it was written with")]
    Table {
        /// The table's name.
        table: String,
        /// What is wrong.
        what: &'static str,
        /// What the decoder says.
        why: String,
    },
    /// The index refused or failed: a key or value too long, damage, unsorted bulk load.
    #[error(transparent)]
    Index(IndexError),
    /// The pool refused or failed: out of space, most often.
    #[error(transparent)]
    Pool(PoolError),
    /// The fabric failed.
    #[error(transparent)]
    Fabric(#[from] FabricError),
}

impl Error {
    /// Returns whether the caller's request is impossible, as with a malformed name or a pool that does
    /// not exist. Other errors are the pool's or the system's.
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

    /// Returns whether the pool is full: delete something, or create a larger one. Everything
    /// stored is intact and readable. [`Error::is_held_back`] says whether it is full for a while
    /// only.
    pub fn is_out_of_space(&self) -> bool {
        matches!(self, Self::Pool(PoolError::OutOfSpace { .. } | PoolError::HeldBack(_)))
    }

    /// Returns whether freed memory waits for a process that is stopped or does not go on, which the
    /// message names. The pool has room when that process goes on or has ended.
    pub fn is_held_back(&self) -> bool {
        matches!(self, Self::Pool(PoolError::HeldBack(_)))
    }

    /// Returns whether a memory node could not be reached: the operation took effect or not. The
    /// node may be back later.
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
    /// for its silence beyond its lease, or a memory node with a log has crashed and ended its
    /// session. The store joins the pool again by itself, unless [`crate::StoreOptions::rejoin`]
    /// says no; [`Error::is_unsent`] returns whether the operation may be repeated.
    pub fn is_shut_out(&self) -> bool {
        let evicted = |error: &PoolError| matches!(error, PoolError::Evicted);
        self.fabric().is_some_and(FabricError::is_shut_out)
            || matches!(self, Self::Interrupted(_) | Self::Outside(_))
            || matches!(self, Self::Pool(error) | Self::Open { source: error, .. } if evicted(error))
    }

    /// Returns whether the membership is over: the pool has ended it, or its first memory node, which
    /// lists the members, has come back without its contents.
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

    /// Returns whether the operation that failed has not taken effect: it was refused, or a memory
    /// node could not be reached before anything was changed. It may be tried again without doing
    /// anything twice. If this returns false, an operation that was to change something may have
    /// taken effect or not.
    ///
    /// Of an operation on many keys (`put_many`, `remove_many`, `remove_range`, `clear`) this says
    /// nothing about the keys other than the one that it failed at.
    pub fn is_unsent(&self) -> bool {
        self.fabric().is_some_and(|error| error.unsent_to().is_some())
            || self.is_too_long()
            || self.is_usage()
            || self.is_out_of_space()
            || matches!(self, Self::Outside(_) | Self::AnotherPool | Self::Replaced)
    }

    /// Returns whether this key or value can never be stored in this pool, while others can.
    pub fn is_too_long(&self) -> bool {
        matches!(self, Self::Index(IndexError::KeyTooLong { .. } | IndexError::ValueTooLong { .. }))
    }
}

impl From<PoolError> for Error {
    /// The fabric's errors come out as themselves, whichever layer met them first.
    #[cold]
    fn from(error: PoolError) -> Self {
        match error {
            PoolError::Fabric(error) => Self::Fabric(error),
            error => Self::Pool(error),
        }
    }
}

impl From<IndexError> for Error {
    /// The pool's and the fabric's errors come out as themselves.
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
