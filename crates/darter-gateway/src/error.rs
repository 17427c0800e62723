//! The errors of a gateway. They never result from a client's request.

use super::database::DatabaseError;
use std::io;
use std::net::SocketAddr;

/// The reason why a gateway cannot serve.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum GatewayError {
    /// The gateway cannot listen on the address.
    #[error("{address}: cannot listen there: {source}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// The error from the system.
        source: io::Error,
    },
    /// The pool can only be read.
    #[error(
        "the token for the memory nodes is a read-only one, and a gateway writes to the pool by itself; use a token that \
         may write, and restrict the gateway's clients by users with `+@read` (docs/gateway.md)"
    )]
    ReadOnly,
    /// The users of the pool cannot be read.
    #[error("cannot read the users of the pool: {0}")]
    Users(DatabaseError),
    /// The system rejected an operation that serving needs.
    #[error("cannot {action}: {source}")]
    System {
        /// The operation that failed.
        action: &'static str,
        /// The error from the system.
        source: io::Error,
    },
}

/// Wraps an error from the system.
pub(crate) fn system(action: &'static str) -> impl FnOnce(io::Error) -> GatewayError {
    move |source| GatewayError::System { action, source }
}
