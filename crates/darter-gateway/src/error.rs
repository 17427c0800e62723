//! The errors of a gateway that serves; a client's fault is never one of them.

use std::io;
use std::net::SocketAddr;

/// Why a gateway cannot serve.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum GatewayError {
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
}

/// Wraps an error of the system.
pub(crate) fn system(action: &'static str) -> impl FnOnce(io::Error) -> GatewayError {
    move |source| GatewayError::System { action, source }
}
