//! Events of the simulated world.

use super::client::{Frame, Payload};
use darter_group::{Message, Outcome, ReplicaId, Request, StoreReply, StoreRequest};

/// Nanoseconds in a millisecond.
pub const MS: u64 = 1_000_000;
/// Replica names contain their addresses: a name is this number times the count of lives, plus the
/// address.
pub(super) const ADDRESSES: u64 = 10;
/// The client number on the fencer's connections, which belong to no client.
pub(super) const FENCER: usize = usize::MAX;

/// Returns the address of a replica.
pub(super) fn address(id: ReplicaId) -> usize {
    (id % ADDRESSES) as usize
}

/// An event.
#[derive(Debug)]
pub(super) enum Event {
    Tick {
        node: usize,
    },
    /// A turn that a pause has interrupted ends.
    TurnEnds {
        node: usize,
        life: ReplicaId,
    },
    Message {
        from: ReplicaId,
        to: ReplicaId,
        link: u64,
        message: Message,
    },
    Parted {
        node: usize,
        other: usize,
    },
    /// A node's disk has synced this number of entries.
    Synced {
        node: usize,
        life: ReplicaId,
        entries: usize,
    },
    Request {
        node: usize,
        request: Request,
        frame: Frame,
    },
    Fence {
        node: usize,
        request: Request,
        session: u64,
    },
    Reply {
        client: usize,
        connection: u64,
        id: u64,
        outcome: Outcome,
    },
    Disconnected {
        node: usize,
        connection: u64,
    },
    StoreRequest {
        from: ReplicaId,
        request: StoreRequest,
    },
    StoreReply {
        to: ReplicaId,
        reply: StoreReply,
    },
    /// A client checks its connection, and sends pending frames.
    Client {
        client: usize,
    },
    /// A client posts a frame.
    Post {
        client: usize,
        payload: Payload,
    },
    Fencer,
    Fault,
    /// A node dies, or pauses.
    Strike {
        node: usize,
    },
}

impl Event {
    /// Returns the node that it concerns, if the event waits while that node is paused.
    pub(super) fn node(&self) -> Option<usize> {
        match self {
            Self::Tick { node }
            | Self::Parted { node, .. }
            | Self::Synced { node, .. }
            | Self::Request { node, .. }
            | Self::Fence { node, .. }
            | Self::Disconnected { node, .. } => Some(*node),
            Self::Message { to, .. } | Self::StoreReply { to, .. } => Some(address(*to)),
            _ => None,
        }
    }
}
