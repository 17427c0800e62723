//! Inputs and outputs of a replica, except messages.

use super::disk::{Entry, Logged};
use super::message::Message;
use super::record::FrameId;
use super::view::{ReplicaId, StoreRequest, View};
use std::sync::Arc;
use std::time::Duration;

/// Times and limits of a group. All replicas must have the same.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Length of a lease: how long a primary serves reads after it sent a heartbeat that all
    /// backups have acknowledged.
    pub lease: Duration,
    /// How long a backup waits for a heartbeat, and a primary for a backup, before it requests a
    /// view without the other: at least one and a half leases.
    pub patience: Duration,
    /// Bytes of one part of the memory, when it is copied to a learner.
    pub copy_bytes: usize,
    /// Maximum number of parts that a learner has not acknowledged yet.
    pub copies_under_way: u64,
    /// Parts that a primary sends to a learner in one turn. Its clients wait during that time.
    pub copies_a_turn: u64,
    /// Maximum rate at which a primary copies memory to a learner, in bytes per second. It sends at
    /// least four parts in a patience.
    pub copy_rate: u64,
    /// Maximum number of replicas in a view. Further replicas are *spares*: they hold no data, and
    /// are brought up when a member is lost.
    pub members_max: usize,
    /// Minimum number of replicas that must have a record before a reply may depend on it. No view
    /// with fewer members is requested while it can be avoided.
    pub members_min: usize,
    /// Maximum bytes of records that not all replicas have. Above it a primary takes no requests.
    pub log_bytes_max: usize,
    /// Bytes of the newest records that are kept in memory, so that a replica that was away can
    /// catch up without a copy of the memory.
    pub kept_bytes_max: usize,
    /// Maximum number of a channel's frames whose replies the client may not have. Above it the
    /// channel's requests are refused.
    pub channel_frames_max: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            lease: Duration::from_millis(600),
            patience: Duration::from_secs(1),
            copy_bytes: 64 << 10,
            copies_under_way: 64,
            copies_a_turn: 4,
            copy_rate: u64::MAX,
            members_max: usize::MAX,
            members_min: 1,
            log_bytes_max: 64 << 20,
            kept_bytes_max: 64 << 20,
            channel_frames_max: 4096,
        }
    }
}

/// Initial state of a replica.
#[derive(Debug)]
pub enum Start {
    /// As a member, in the first view, of a group that has never served.
    Bootstrap(Arc<View>),
    /// With nothing.
    Empty,
    /// With the state that its log restored, to which its new name was added, and with the memory
    /// that belongs to it. The replica keeps a log: [`Output::Log`]. It stands in for itself in a
    /// view that has one of its earlier names; it has a new one because it cannot know which
    /// replicas it had suspected, what it had promised, and what it had requested from the store.
    Logged(Box<Logged>),
}

/// Identifies a request and its client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// The connection that the reply goes to.
    pub connection: u64,
    /// Counts the channel's connections: frames of older ones than the newest are not executed.
    pub attempt: u64,
    /// The view that the client uses.
    pub view: u64,
    /// The frame.
    pub frame: FrameId,
}

/// Outcome of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It was executed, with these words.
    Done(Arc<[u8]>),
    /// Its session is fenced.
    Fenced,
    /// It was not executed here, or its outcome is unknown; the current view.
    View(Option<Arc<View>>),
    /// It was not executed: the primary is handing over or has reached a limit.
    Later,
    /// It was not executed: one of its verbs lies outside the region.
    OutOfBounds,
}

/// An action for the driver of the replica.
#[derive(Debug)]
pub enum Output {
    /// A reply to a client.
    Reply {
        /// The connection that the request came by.
        connection: u64,
        /// The frame.
        id: u64,
        /// The outcome.
        outcome: Outcome,
    },
    /// A message to another replica.
    Send {
        /// The receiver.
        to: ReplicaId,
        /// The message.
        message: Message,
    },
    /// A message to all other replicas that can be reached.
    SendAll(Message),
    /// The next entry of the log. Report it with [`super::Replica::logged`] when it is durable.
    Log(Entry),
    /// A request to the store of views.
    Store(StoreRequest),
}

/// Role of a replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Serves.
    Primary,
    /// Follows, and may become the next primary.
    Backup,
    /// Is being brought up, or has no state yet.
    Learner,
}
