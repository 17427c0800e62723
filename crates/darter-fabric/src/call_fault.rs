//! What a call can come to, other than an answer.

use crate::counted;

/// Most bytes of a [`ProcedureError`]'s message; the rest is cut off.
pub const MESSAGE_BYTES_MAX: usize = 512;

/// A call that came to nothing, or to nobody knows what.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("procedure {procedure} of memory node {node}: {fault}")]
pub struct CallError {
    /// The memory node.
    pub node: u8,
    /// The number of the procedure.
    pub procedure: u64,
    /// What became of the call.
    pub fault: CallFault,
}

/// What became of a call that brought no answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CallFault {
    /// This provider makes no calls ([`Capabilities::calls`](crate::Capabilities::calls)). Nothing
    /// was sent.
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
        /// Most words that the node takes.
        max: usize,
    },
    /// The answer has too many words. The procedure has run to its end.
    #[error("an answer of {}, {max} at most; ask for less", counted(*.words as u64, "word"))]
    AnswerTooLarge {
        /// Words of the answer.
        words: usize,
        /// Most words that an answer may have.
        max: usize,
    },
    /// Too many calls wait for the node's workers. Nothing was done.
    #[error("too many calls wait there; nothing was done; try again later")]
    Busy,
    /// The server ended, or the connection to it, while the call was under way: the procedure may
    /// have run to its end, in part, or not at all.
    #[error("its server is gone; whether the procedure has run is unknown; try again later")]
    ServerGone,
    /// The procedure ended with an error. What it did until then remains.
    #[error(transparent)]
    Failed(ProcedureError),
}

/// The error that a procedure answers with.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message} (code {code})")]
pub struct ProcedureError {
    /// A number whose meaning is the procedure's affair.
    pub code: u64,
    /// What went wrong, and what to do.
    pub message: String,
}

impl ProcedureError {
    /// The code of a procedure to which the fabric returned an error.
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
