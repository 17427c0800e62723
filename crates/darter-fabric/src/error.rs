//! Errors between a client and a memory node, with advice on what to do.
//!
//! Every variant holds at most one word, so that a verb returns `Result<Batch, FabricError>` in two
//! registers: this type is on the path of each round trip, but errors are rare.

use crate::{ByteSize, CallError, CallFault, GlobalAddr};
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

/// An error of the fabric. The state of the failed batch's verbs is unknown unless the message
/// states it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FabricError {
    /// A verb named bytes outside the node's region: the pool is damaged, or another pool's address
    /// was used.
    #[error("{0}; run `darter check` on the pool")]
    OutOfBounds(Box<OutOfBounds>),
    /// A verb's address was not a multiple of 8.
    #[error("{addr}: not aligned to 8 bytes; run `darter check` on the pool")]
    Misaligned {
        /// The address of the verb.
        addr: GlobalAddr,
    },
    /// The operating system refused a file or a mapping.
    #[error(transparent)]
    Io(Box<IoFailure>),
    /// A file system has no room for a file for which space was being reserved.
    #[error(transparent)]
    DiskFull(Box<DiskFull>),
    /// A client slot is held by another live process.
    #[error("client slot {slot} is held by another live process")]
    IdentityTaken {
        /// The slot.
        slot: u32,
    },
    /// The requested shape is impossible, or a file does not have the shape of a pool.
    #[error("{0}")]
    Geometry(Box<Refusal>),
    /// The connection to a memory node is lost. Verbs to it that were in flight may have taken
    /// effect or not.
    #[error(
        "connection to memory node {node} lost; whether the last verbs took effect is unknown; try again later"
    )]
    Disconnected {
        /// The node.
        node: u8,
    },
    /// There is no connection to a memory node, and none could be opened. Verbs to it were not
    /// sent.
    #[error("memory node {node} cannot be reached; nothing was sent to it; try again later")]
    Unreachable {
        /// The node.
        node: u8,
    },
    /// The memory node at this address has different memory from the pool's: it was restarted
    /// without its contents. Verbs to it were not sent.
    #[error(
        "memory node {node} was restarted with another memory: its part of the pool is gone, and nothing was sent to \
         it; run `darter pool status` to see what can be done"
    )]
    Lost {
        /// The node.
        node: u8,
    },
    /// Other processes have declared this process dead and fenced it.
    #[error(
        "this process was shut out of the pool, since it was silent beyond its lease or a memory node lost its session \
         in a crash; the pool must be opened again, which a `Store` does by itself"
    )]
    Fenced,
    /// A memory node with a log has crashed, and its disk may lack the last words of this session.
    /// So it has ended the session. Verbs to it were not sent.
    #[error(
        "memory node {node} crashed and was restarted, which has ended this process's session; nothing was sent to it; \
         the pool must be opened again, which a `Store` does by itself"
    )]
    Forgotten {
        /// The node.
        node: u8,
    },
    /// A memory node lets this process only read, because its token is a read-only one. Of the verbs
    /// to that node, none has taken effect.
    #[error(
        "memory node {node} lets this process only read, since its token is a read-only one, and refused a change; to \
         change data, open the pool with a token of the node's `--token-file`"
    )]
    ReadOnly {
        /// The node.
        node: u8,
    },
    /// The process has forked since the pool was opened, and this is the child: the pool's member
    /// belongs to the parent.
    #[error("this pool was opened before the process forked; open it again in this process")]
    Forked,
    /// A memory node guarantees that all that it acknowledges is durable, and cannot do so any
    /// longer: its log has failed. Verbs to it may have taken effect or not.
    #[error(transparent)]
    NotDurable(Box<NotDurable>),
    /// A call of a procedure at a memory node failed.
    #[error(transparent)]
    Call(Box<CallError>),
    /// A decorator injected a failure here.
    #[error("injected failure at verb {verb}")]
    Injected {
        /// Verbs submitted before it since the plan was set.
        verb: u64,
    },
}

const _: () = assert!(size_of::<Result<crate::Batch, FabricError>>() == 16);

impl FabricError {
    /// Returns whether a verb's address was wrong, rather than the connection or the process.
    pub fn is_bad_address(&self) -> bool {
        matches!(self, Self::OutOfBounds(_) | Self::Misaligned { .. })
    }

    /// Returns the memory node that nothing was sent to, if the error guarantees that.
    pub fn unsent_to(&self) -> Option<u8> {
        match *self {
            Self::Unreachable { node } | Self::Lost { node } | Self::Forgotten { node } => Some(node),
            _ => None,
        }
    }

    /// Returns whether the memory nodes refuse all verbs of this process until it opens the pool
    /// again.
    pub fn is_shut_out(&self) -> bool {
        matches!(self, Self::Fenced | Self::Forgotten { .. })
    }

    /// Returns the error for another batch that waited for the same connection.
    #[cfg(feature = "tcp")]
    pub(crate) fn again(&self) -> Self {
        match *self {
            Self::Unreachable { node } => Self::Unreachable { node },
            Self::Lost { node } => Self::Lost { node },
            Self::Fenced => Self::Fenced,
            Self::ReadOnly { node } => Self::ReadOnly { node },
            Self::Forked => Self::Forked,
            Self::Forgotten { node } => Self::Forgotten { node },
            Self::NotDurable(ref told) => Self::NotDurable(told.clone()),
            ref other => Self::geometry(other.to_string()),
        }
    }

    /// Returns the error of a memory node whose log has failed for a reason.
    #[cold]
    pub fn not_durable(node: u8, why: impl Into<String>) -> Self {
        Self::NotDurable(Box::new(NotDurable { node, why: why.into() }))
    }

    /// Returns an error of the operating system about a file.
    #[cold]
    pub fn io(path: &Path, action: &'static str, source: io::Error) -> Self {
        Self::Io(Box::new(IoFailure { path: path.to_owned(), action, source }))
    }

    /// Returns the error of a file of `needed` bytes on a file system without room for it.
    #[cold]
    pub fn disk_full(path: &Path, needed: u64) -> Self {
        Self::DiskFull(Box::new(DiskFull { path: path.to_owned(), needed: ByteSize(needed) }))
    }

    /// Returns an error about an impossible shape. The message states the shape, the reason, and
    /// what to do.
    #[cold]
    pub fn geometry(message: impl Into<String>) -> Self {
        Self::Geometry(Box::new(Refusal(message.into())))
    }

    /// Returns the error of a verb of `bytes` bytes at `addr` that leaves its region of
    /// `region_bytes` bytes (0: the node does not exist).
    #[cold]
    pub fn out_of_bounds(addr: GlobalAddr, bytes: u64, region_bytes: u64) -> Self {
        Self::OutOfBounds(Box::new(OutOfBounds { addr, bytes, region_bytes }))
    }
}

impl CallFault {
    /// Returns the error of a call with this fault.
    #[cold]
    pub fn of(self, node: u8, procedure: u64) -> FabricError {
        FabricError::Call(Box::new(CallError { node, procedure, fault: self }))
    }
}

/// A memory node that can make nothing durable, and the reason.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("memory node {node} no longer acknowledges anything: {why}")]
pub struct NotDurable {
    /// The node.
    pub node: u8,
    /// The reason that the node reports.
    pub why: String,
}

/// Bytes outside a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutOfBounds {
    /// The address of the verb.
    pub addr: GlobalAddr,
    /// The bytes it named.
    pub bytes: u64,
    /// The size of the node's region; 0 if the node does not exist.
    pub region_bytes: u64,
}

impl fmt::Display for OutOfBounds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { addr, bytes, region_bytes } = self;
        if *region_bytes == 0 {
            return write!(f, "{addr}: there is no memory node {}", addr.node());
        }
        write!(f, "{addr}: {bytes} bytes reach outside the region of {region_bytes} bytes")
    }
}

/// A refusal by the operating system.
#[derive(Debug, thiserror::Error)]
#[error("{}: cannot {action}: {source}", path.display())]
pub struct IoFailure {
    /// The file.
    pub path: PathBuf,
    /// The attempted action.
    pub action: &'static str,
    /// The system's error.
    pub source: io::Error,
}

/// A file for which there is no room.
#[derive(Clone, Debug, thiserror::Error)]
#[error(
    "{}: its file system has no room for {needed}; make room, choose less or another place, or make the file \
     sparse (`sparse`): it then takes space on first access, and a full disk ends the accessing process", path.display()
)]
pub struct DiskFull {
    /// The file.
    pub path: PathBuf,
    /// Size of the whole file in bytes.
    pub needed: ByteSize,
}

/// The reason why a shape is impossible and what to do, in a sentence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal(String);

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_say_where_and_what_to_do() {
        let at = GlobalAddr::new(3, 64);
        let text = FabricError::out_of_bounds(at, 16, 72).to_string();
        assert_eq!(
            text,
            "mn3+0x40: 16 bytes reach outside the region of 72 bytes; run `darter check` on the pool"
        );
        assert!(FabricError::out_of_bounds(at, 16, 0).to_string().contains("no memory node 3"));
        let error = FabricError::io(Path::new("/p"), "open it", io::ErrorKind::NotFound.into());
        assert!(error.to_string().starts_with("/p: cannot open it: "), "{error}");
        assert_eq!(FabricError::geometry("too small").to_string(), "too small");
    }
}
