//! The errors of a memory node that serves; a peer's fault is never one of them.

use darter_fabric::FabricError;
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
    /// The region cannot be accessed.
    #[error(transparent)]
    Fabric(#[from] FabricError),
}

/// Wraps an error of the system.
pub(crate) fn system(action: &'static str) -> impl FnOnce(io::Error) -> MemNodeError {
    move |source| MemNodeError::System { action, source }
}
