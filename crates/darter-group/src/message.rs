//! What replicas tell each other. Messages of one sender to one receiver arrive in order, or not at
//! all.

use super::duplicates::Duplicates;
use super::record::{Position, Record, StreamId};
use super::view::View;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

/// A message.
#[derive(Clone, Debug)]
pub enum Message {
    /// A view, of which the receiver may not know.
    View(Arc<View>),
    /// The sender is no member of the view that it knows, and wants to be brought up.
    Join,
    /// The sender is a backup that is about to stop.
    Leave,
    /// A primary begins a stream, and asks where the receiver's log ends.
    Attach {
        /// The stream.
        stream: StreamId,
        /// The view.
        view: Arc<View>,
    },
    /// The answer.
    Attached {
        /// The stream.
        stream: StreamId,
        /// The end of the log; `None` if there is none.
        last: Option<Position>,
    },
    /// The stream goes on behind the receiver's last record.
    Resume {
        /// The stream.
        stream: StreamId,
    },
    /// The stream brings everything, from this state on.
    Begin {
        /// The stream.
        stream: StreamId,
        /// What is beside the memory.
        state: Arc<Beside>,
    },
    /// Records, the first of which follows the last one sent.
    Records {
        /// The stream.
        stream: StreamId,
        /// In order.
        records: Vec<Arc<Record>>,
        /// All replicas of the view have the records up to this one.
        everywhere: u64,
    },
    /// A part of the memory, as it is behind the last record sent.
    Copy {
        /// The stream.
        stream: StreamId,
        /// Counts the parts, from 0.
        number: u64,
        /// Where.
        offset: u64,
        /// How many bytes.
        bytes: u64,
        /// The bytes; `None` if all are zero.
        content: Option<Box<[u8]>>,
        /// Nothing is missing now.
        is_last: bool,
    },
    /// A part of the stream is missing, or does not fit.
    Lost {
        /// The stream.
        stream: StreamId,
    },
    /// All of a stream up to here has been applied.
    Acknowledge {
        /// The stream.
        stream: StreamId,
        /// The last record.
        lsn: u64,
        /// Parts of the memory.
        copies: u64,
    },
    /// The primary lives, and asks for a lease.
    Heartbeat {
        /// The view.
        view: Arc<View>,
        /// The primary's clock when it was sent.
        sent: Duration,
        /// As in [`Message::Records`].
        everywhere: u64,
    },
    /// The lease is granted, from then on.
    Granted {
        /// The view.
        view: u64,
        /// The heartbeat's.
        sent: Duration,
    },
    /// A candidate asks a backup of the same view for what it lacks.
    Survey {
        /// The view.
        view: u64,
        /// Where the candidate's log ends.
        last: Position,
    },
    /// The answer. The sender takes no record of this view any more.
    Surveyed {
        /// The view.
        view: u64,
        /// Where its log ends, and whether the candidate's begins or ends it.
        last: Position,
        /// It and the candidate's log do not contradict each other.
        fits: bool,
        /// What the candidate lacks.
        records: Vec<Arc<Record>>,
    },
}

/// What a replica knows beside its memory, as a copy begins with it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Beside {
    /// Where the log ends.
    pub last: Position,
    /// The first record of each view.
    pub starts: Vec<Position>,
    /// Frames that clients may send again.
    pub duplicates: Duplicates,
    /// Sessions that were shut out.
    pub fenced: BTreeSet<u64>,
}
