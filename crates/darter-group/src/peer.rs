//! A primary's knowledge of the other replicas.

use super::view::ReplicaId;
use std::time::Duration;

/// Progress of a replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// It has no stream.
    Detached,
    /// The request for the end of its log was sent, at this time.
    Asked(Duration),
    /// The records up to this one were sent.
    Following(u64),
    /// It is receiving the whole state.
    Copying {
        /// The records up to this one were sent.
        sent: u64,
        /// The memory up to here was sent, in this number of parts.
        next: u64,
        copies: u64,
        /// The number of parts acknowledged.
        acknowledged: u64,
        /// When the next part may be sent.
        due: Duration,
    },
    /// Its log is not a prefix of the primary's.
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
    /// When the latest heartbeat that it acknowledged was sent.
    pub(super) granted: Option<Duration>,
    /// When its last message arrived.
    pub(super) heard: Duration,
    /// The backup that it was before it restarted.
    pub(super) former: Option<ReplicaId>,
}

impl Peer {
    pub(super) fn new(heard: Duration) -> Self {
        Self { stream: 0, stage: Stage::Detached, acked: 0, granted: None, heard, former: None }
    }

    /// Returns whether it has received everything that was sent so far.
    pub(super) fn is_whole(&self, parts: u64) -> bool {
        match self.stage {
            Stage::Following(_) => true,
            Stage::Copying { acknowledged, .. } => acknowledged == parts,
            _ => false,
        }
    }
}

/// A replica with unknown progress.
pub(super) static NOBODY: Peer =
    Peer { stream: 0, stage: Stage::Detached, acked: 0, granted: None, heard: Duration::ZERO, former: None };
