//! The errors of a memory node that serves; a peer's fault is never one of them.

use darter_fabric::{ByteSize, FabricError};
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

/// Why a memory node cannot serve.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MemNodeError {
    /// The address cannot be listened on.
    #[error("{address}: cannot listen there: {source}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// The error of the system.
        source: io::Error,
    },
    /// The system refused something that serving needs.
    #[error("cannot {action}: {source}")]
    System {
        /// The operation that failed.
        action: &'static str,
        /// The error of the system.
        source: io::Error,
    },
    /// The region is not the memory of exactly one node.
    #[error("a memory node serves one region; this pool has {nodes}")]
    Regions {
        /// The number of nodes that it has.
        nodes: usize,
    },
    /// The file beside the region's, in which the node records the sessions that it has fenced,
    /// cannot be used.
    #[error("{}: cannot {action}: {source}; it belongs to the region's file and goes with it", path.display())]
    Ledger {
        /// The file.
        path: PathBuf,
        /// The operation that failed.
        action: &'static str,
        /// The error of the system.
        source: io::Error,
    },
    /// The region's file is a copy, made while its node served it or after the node was killed.
    #[error(
        "{}: this file is a copy of a region whose node had not ended when it was copied, so it may mix two states; copy \
         it again with its `.node` file when the node has ended, or start the node with `--accept-copy` and run \
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
        /// The error of the system.
        source: io::Error,
    },
    /// What had reached the disk is not there any more.
    #[error(
        "{}: {what}. What was acknowledged may be lost, so the node does not start: restore the whole directory, \
         or move it away and begin anew",
        path.display()
    )]
    LogDamaged {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        what: String,
    },
    /// The log is that of another region.
    #[error("{}: the log of a region of {has}; start the node with that size, not {wanted}", path.display())]
    LogSize {
        /// The directory.
        path: PathBuf,
        /// The size of the region that the log is of.
        has: ByteSize,
        /// The size that was asked for.
        wanted: ByteSize,
    },
    /// The options ask for something that a region with a log cannot have.
    #[error("{what}")]
    LogOptions {
        /// What, and why not.
        what: &'static str,
    },
    /// The options of a memory group make no sense.
    #[error("{what}")]
    GroupOptions {
        /// What is wrong with them.
        what: String,
    },
    /// The log could not be written.
    #[error("{why}")]
    LogFailed {
        /// Why.
        why: String,
    },
    /// The region cannot be accessed.
    #[error(transparent)]
    Fabric(#[from] FabricError),
}

/// Wraps an error of the system.
pub(crate) fn system(action: &'static str) -> impl FnOnce(io::Error) -> MemNodeError {
    move |source| MemNodeError::System { action, source }
}
