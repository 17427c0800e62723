//! The errors of a memory node that serves. A peer's fault is never such an error.

use darter_fabric::{ByteSize, FabricError};
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

/// Why a memory node cannot serve.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MemNodeError {
    /// The node cannot listen on the address.
    #[error("{address}: cannot listen: {source}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// The system error.
        source: io::Error,
    },
    /// The system refused an operation that serving needs.
    #[error("cannot {action}: {source}")]
    System {
        /// The operation that failed.
        action: &'static str,
        /// The system error.
        source: io::Error,
    },
    /// The region is not the memory of exactly one node.
    #[error("a memory node serves one region; this pool has {nodes}")]
    Regions {
        /// The number of nodes of the fabric.
        nodes: usize,
    },
    /// The file next to the region's file, in which the node records the sessions that it has
    /// fenced, cannot be used.
    #[error("{}: cannot {action}: {source}; keep it together with the region's file", path.display())]
    Ledger {
        /// The file.
        path: PathBuf,
        /// The operation that failed.
        action: &'static str,
        /// The system error.
        source: io::Error,
    },
    /// The region's file is a copy, made while its node served it or after the node was killed.
    #[error(
        "{}: this file is a copy of a region whose node had not ended when it was copied, so it may mix two states; \
         copy it again with its `.node` file after the node has ended, or start the node with `--accept-copy` and run \
         `darter check --repair`",
        path.display()
    )]
    CopyOfServed {
        /// The file.
        path: PathBuf,
    },
    /// The directory of the log, or a file in it, cannot be used.
    #[error("{}: cannot {action}: {source}", path.display())]
    Log {
        /// The directory or file.
        path: PathBuf,
        /// The operation that failed.
        action: &'static str,
        /// The system error.
        source: io::Error,
    },
    /// Data that had been on disk is missing.
    #[error(
        "{}: {what}. Acknowledged writes may be lost, so the node does not start: restore the whole directory, \
         or move it away to start with an empty region",
        path.display()
    )]
    LogDamaged {
        /// The file.
        path: PathBuf,
        /// The damage.
        what: String,
    },
    /// The log belongs to a replica and is opened for a node that is none, or the other way round.
    #[error(
        "{}: the log belongs to a node that {} a replica of a memory group; start it as that, or choose another directory",
        path.display(),
        if *wants_replica { "is not" } else { "is" }
    )]
    LogOfOther {
        /// The directory.
        path: PathBuf,
        /// The node is a replica.
        wants_replica: bool,
    },
    /// The log belongs to a region of another size.
    #[error("{}: the log belongs to a region of {has}; start the node with that size, not {wanted}", path.display())]
    LogSize {
        /// The directory.
        path: PathBuf,
        /// The size of the log's region.
        has: ByteSize,
        /// The requested size.
        wanted: ByteSize,
    },
    /// The options are invalid for a region with a log.
    #[error("{what}")]
    LogOptions {
        /// The reason.
        what: &'static str,
    },
    /// Limits, or read-only tokens, cannot be combined with other options.
    #[error("{what}")]
    LimitOptions {
        /// The reason.
        what: &'static str,
    },
    /// The options of the memory group are invalid.
    #[error("{what}")]
    GroupOptions {
        /// The reason.
        what: String,
    },
    /// The log could not be written.
    #[error("{why}")]
    LogFailed {
        /// The reason.
        why: String,
    },
    /// The region cannot be accessed.
    #[error(transparent)]
    Fabric(#[from] FabricError),
}

/// Wraps a system error.
pub(crate) fn system(action: &'static str) -> impl FnOnce(io::Error) -> MemNodeError {
    move |source| MemNodeError::System { action, source }
}
