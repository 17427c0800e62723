//! Messages between replicas. Messages from one sender to one receiver arrive in order, or not at
//! all.

use super::duplicates::Duplicates;
use super::record::{Position, Record, StreamId};
use super::view::{ReplicaId, View};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

/// A message.
#[derive(Clone, Debug)]
pub enum Message {
    /// A view that the receiver may not know.
    View(Arc<View>),
    /// The sender is not a member of the view that it knows, and wants to be brought up.
    Join,
    /// The sender is a backup that is about to stop.
    Leave,
    /// The sender has restarted with its log, in which it had one of these names.
    Return {
        /// The view that it knows.
        view: u64,
        /// Its names.
        names: BTreeSet<ReplicaId>,
    },
    /// A primary begins a stream, and requests the end of the receiver's log.
    Attach {
        /// The stream.
        stream: StreamId,
        /// The view.
        view: Arc<View>,
    },
    /// The reply to [`Message::Attach`].
    Attached {
        /// The stream.
        stream: StreamId,
        /// The end of the log; `None` if there is none.
        last: Option<Position>,
    },
    /// The stream continues after the receiver's last record.
    Resume {
        /// The stream.
        stream: StreamId,
    },
    /// The stream brings the whole state, starting with this one.
    Begin {
        /// The stream.
        stream: StreamId,
        /// The state that is not in the memory.
        state: Arc<Beside>,
    },
    /// Records. The first one follows the last one sent.
    Records {
        /// The stream.
        stream: StreamId,
        /// The records, in order.
        records: Vec<Arc<Record>>,
        /// All replicas of the view have the records up to this one.
        everywhere: u64,
    },
    /// A part of the memory, as of the last record sent.
    Copy {
        /// The stream.
        stream: StreamId,
        /// Counts the parts, from 0.
        number: u64,
        /// Its offset.
        offset: u64,
        /// Its size in bytes.
        bytes: u64,
        /// The bytes; `None` if all are zero.
        content: Option<Box<[u8]>>,
        /// The copy is complete.
        is_last: bool,
    },
    /// A part of the stream is missing or does not fit.
    Lost {
        /// The stream.
        stream: StreamId,
    },
    /// The receiver has applied all of a stream up to here.
    Acknowledge {
        /// The stream.
        stream: StreamId,
        /// The last record.
        lsn: u64,
        /// Parts of the memory.
        copies: u64,
    },
    /// The primary is alive, and requests a lease.
    Heartbeat {
        /// The view.
        view: Arc<View>,
        /// The primary's clock when it sent the heartbeat.
        sent: Duration,
        /// As in [`Message::Records`].
        everywhere: u64,
    },
    /// The lease is granted, starting at that time.
    Granted {
        /// The view.
        view: u64,
        /// The `sent` time of the heartbeat.
        sent: Duration,
    },
    /// A candidate requests from a backup of the same view the records that it lacks.
    Survey {
        /// The view.
        view: u64,
        /// The end of the candidate's log.
        last: Position,
    },
    /// The reply to a survey. From now on the sender accepts no record of this view.
    Surveyed {
        /// The view.
        view: u64,
        /// The end of the sender's log.
        last: Position,
        /// Whether one of the two logs is a prefix of the other.
        fits: bool,
        /// The records that the candidate lacks.
        records: Vec<Arc<Record>>,
    },
}

/// A replica's state that is not in its memory, as sent at the start of a copy.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Beside {
    /// The end of the log.
    pub last: Position,
    /// The first record of each view.
    pub starts: Vec<Position>,
    /// Frames that clients may send again.
    pub duplicates: Duplicates,
    /// Sessions that are fenced.
    pub fenced: BTreeSet<u64>,
}
