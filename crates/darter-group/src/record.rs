//! Records: the operations that a primary has executed, in order.

use super::view::ReplicaId;
use std::sync::Arc;

/// The end of a log: the number of its last record, and the view in which that record was made. The
/// pair identifies a record and all before it, since a view has one primary.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Position {
    /// The view; 0 before the first record.
    pub view: u64,
    /// Counts records, from 1.
    pub lsn: u64,
}

/// Identifies a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FrameId {
    /// The client's process.
    pub session: u64,
    /// One of its channels to the group.
    pub channel: u32,
    /// Counts the channel's frames. A frame that is sent again has the same one.
    pub id: u64,
    /// The client has the replies to all of the channel's frames up to this one.
    pub answered: u64,
}

/// Content of a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Content {
    /// A frame has changed memory.
    Frame {
        /// The frame.
        frame: FrameId,
        /// The words of its reply.
        results: Arc<[u8]>,
        /// The words that it stored ([`darter_fabric::effects`]).
        effects: Box<[u8]>,
    },
    /// A session was fenced.
    Fenced(u64),
}

/// A record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// Its place in the log.
    pub position: Position,
    /// Its content.
    pub content: Content,
}

impl Record {
    /// Returns its approximate size in bytes.
    pub fn bytes(&self) -> usize {
        let content = match &self.content {
            Content::Frame { results, effects, .. } => results.len() + effects.len(),
            Content::Fenced(_) => 8,
        };
        content + size_of::<Self>()
    }
}

/// Identifies the stream that a message between replicas belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamId {
    /// The view.
    pub view: u64,
    /// Its primary.
    pub primary: ReplicaId,
    /// Counts the streams of this primary to one replica.
    pub number: u64,
}
