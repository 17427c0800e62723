//! Errors of calls.

use crate::counted;

/// Maximum bytes of a [`ProcedureError`]'s message; the rest is cut off.
pub const MESSAGE_BYTES_MAX: usize = 512;

/// A call that failed or whose outcome is unknown.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("procedure {procedure} of memory node {node}: {fault}")]
pub struct CallError {
    /// The memory node.
    pub node: u8,
    /// The number of the procedure.
    pub procedure: u64,
    /// The reason.
    pub fault: CallFault,
}

/// Why a call returned no result.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CallFault {
    /// This provider does not support calls ([`Capabilities::calls`](crate::Capabilities::calls)).
    /// Nothing was sent.
    #[error("this fabric makes no calls; use memory nodes over TCP (tcp://)")]
    Unsupported,
    /// The node runs no procedures. Nothing was done.
    #[error("the node runs no procedures; start its server")]
    NoServer,
    /// The node has no procedure of this number. Nothing was done.
    #[error("the node has no such procedure; use the same release at both ends")]
    Unknown,
    /// The request has too many words. Nothing was done.
    #[error("a request of {}, {max} at most; make several calls", counted(*.words as u64, "word"))]
    RequestTooLarge {
        /// Words of the request.
        words: usize,
        /// Maximum words that the node accepts.
        max: usize,
    },
    /// The result has too many words. The procedure has run to its end.
    #[error("a result of {}, {max} at most; request less", counted(*.words as u64, "word"))]
    AnswerTooLarge {
        /// Words of the result.
        words: usize,
        /// Maximum words of a result.
        max: usize,
    },
    /// Too many calls wait for the node's workers. Nothing was done.
    #[error("too many calls wait there; nothing was done; try again later")]
    Busy,
    /// The server or the connection to it ended during the call: the procedure may have run to its
    /// end, in part, or not at all.
    #[error("its server is gone; whether the procedure has run is unknown; try again later")]
    ServerGone,
    /// The procedure ended with an error. Its effects until then remain.
    #[error(transparent)]
    Failed(ProcedureError),
}

/// An error returned by a procedure.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message} (code {code})")]
pub struct ProcedureError {
    /// A number defined by the procedure.
    pub code: u64,
    /// What went wrong, and what to do.
    pub message: String,
}

impl ProcedureError {
    /// The code of a procedure that got an error from the fabric.
    pub const FABRIC: u64 = u64::MAX;
    /// The code of a procedure that panicked.
    pub const PANIC: u64 = u64::MAX - 1;

    /// Returns an error. Its message is cut to [`MESSAGE_BYTES_MAX`] bytes.
    pub fn new(code: u64, message: impl Into<String>) -> Self {
        let mut message: String = message.into();
        let mut end = message.len().min(MESSAGE_BYTES_MAX);
        while !message.is_char_boundary(end) {
            end -= 1;
        }
        message.truncate(end);
        Self { code, message }
    }
}
