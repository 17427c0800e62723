//! The other replicas, as a primary knows them.

use std::time::Duration;

/// How far a replica is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// It has no stream.
    Detached,
    /// It was asked where its log ends, at this time.
    Asked(Duration),
    /// It was sent the records up to this one.
    Following(u64),
    /// It is sent everything.
    Copying {
        /// The records up to this one were sent.
        sent: u64,
        /// The memory up to here was sent, in so many parts.
        next: u64,
        copies: u64,
        /// So many parts were acknowledged.
        acknowledged: u64,
        /// When the next part may be sent.
        due: Duration,
    },
    /// Its log is no beginning of the primary's.
    Misfit,
}

/// Another replica, as the primary knows it.
#[derive(Clone, Debug)]
pub(super) struct Peer {
    /// The number of its newest stream.
    pub(super) stream: u64,
    pub(super) stage: Stage,
    /// The last record that it has.
    pub(super) acked: u64,
    /// When the latest heartbeat was sent that it has answered.
    pub(super) granted: Option<Duration>,
    /// When it was heard last.
    pub(super) heard: Duration,
}

impl Peer {
    pub(super) fn new(heard: Duration) -> Self {
        Self { stream: 0, stage: Stage::Detached, acked: 0, granted: None, heard }
    }

    /// Returns whether it has everything that it was sent, so far.
    pub(super) fn is_whole(&self, parts: u64) -> bool {
        match self.stage {
            Stage::Following(_) => true,
            Stage::Copying { acknowledged, .. } => acknowledged == parts,
            _ => false,
        }
    }
}

/// A replica of which nothing is known.
pub(super) static NOBODY: Peer =
    Peer { stream: 0, stage: Stage::Detached, acked: 0, granted: None, heard: Duration::ZERO };
