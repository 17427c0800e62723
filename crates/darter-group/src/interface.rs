//! What goes into a replica and what comes out, messages aside.

use super::log::Log;
use super::message::{Beside, Message};
use super::record::FrameId;
use super::view::{ReplicaId, StoreRequest, View};
use std::sync::Arc;
use std::time::Duration;

/// Times and bounds of a group. All replicas have the same.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// How long a primary answers reads behind the sending of a heartbeat that all backups have
    /// answered.
    pub lease: Duration,
    /// How long a backup waits for a heartbeat, and a primary for a backup, before it asks for a
    /// view without the other: at least one and a half leases.
    pub patience: Duration,
    /// Bytes of a part of the memory that is copied to a learner.
    pub copy_bytes: usize,
    /// Parts that a learner may not have acknowledged yet.
    pub copies_under_way: u64,
    /// Parts that a primary sends to a learner in one turn. Its clients wait for them.
    pub copies_a_turn: u64,
    /// Bytes of the memory that a primary sends to a learner in a second, at most. It sends no fewer
    /// than four parts in a patience.
    pub copy_rate: u64,
    /// Replicas that a view has at most. Those beyond are *spares*: they have nothing, and are brought
    /// up when a member is lost.
    pub members_max: usize,
    /// Bytes of records that not all replicas have. Beyond it a primary takes no requests.
    pub log_bytes_max: usize,
    /// Frames of a channel whose reply the client may not have. Beyond it the channel's requests are
    /// refused.
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
            log_bytes_max: 64 << 20,
            channel_frames_max: 4096,
        }
    }
}

/// How a replica begins.
#[derive(Debug)]
pub enum Start {
    /// As a member of a group that has never served, in its first view.
    Bootstrap(Arc<View>),
    /// With nothing.
    Empty,
    /// With the memory of when it stopped, and what it left beside it. Under its new name it goes on
    /// with that if it was alone in its view, and that is still the current one. Else it begins with
    /// nothing: it cannot know whom it had suspected, and what it had asked the store for.
    Kept(Box<Kept>),
}

/// What a replica that stops leaves beside its memory.
#[derive(Clone, Debug)]
pub struct Kept {
    pub(super) id: ReplicaId,
    pub(super) view: Arc<View>,
    pub(super) beside: Beside,
    pub(super) log: Log,
    pub(super) told: u64,
}

/// Whose request it is, and which.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// The connection, which the reply goes to.
    pub connection: u64,
    /// Counts the channel's connections: frames of older ones than the newest are not executed.
    pub attempt: u64,
    /// The view that the client goes by.
    pub view: u64,
    /// The frame.
    pub frame: FrameId,
}

/// What became of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It was executed, with these words.
    Done(Arc<[u8]>),
    /// Its session was shut out.
    Fenced,
    /// It was not executed here, or its outcome is not known: this is the view.
    View(Option<Arc<View>>),
    /// It was not executed, since the primary hands over or has too much to keep.
    Later,
    /// It was not executed: a verb of it lies outside the region.
    OutOfBounds,
}

/// What a replica wants done.
#[derive(Debug)]
pub enum Output {
    /// A reply to a client.
    Reply {
        /// The connection that the request came by.
        connection: u64,
        /// The frame.
        id: u64,
        /// What became of it.
        outcome: Outcome,
    },
    /// A message to another replica.
    Send {
        /// Which.
        to: ReplicaId,
        /// What.
        message: Message,
    },
    /// A request to the store of views.
    Store(StoreRequest),
}

/// What a replica does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Serves.
    Primary,
    /// Follows, and may be the next primary.
    Backup,
    /// Is brought up, or knows nothing yet.
    Learner,
}
