//! What a replica knows while it serves.

use super::held::HeldReplies;
use super::peer::Peer;
use super::view::ReplicaId;
use darter_fabric::effects::Lines;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// What a replica knows while it serves.
#[derive(Debug)]
pub(super) struct Primary {
    pub(super) peers: BTreeMap<ReplicaId, Peer>,
    /// Learners whose acknowledgements are awaited as if they were backups.
    pub(super) extra: BTreeSet<ReplicaId>,
    /// Replies wait until all backups have the records up to this one: those that the primary before
    /// may have executed without answering anybody.
    pub(super) floor: u64,
    pub(super) lines: Lines,
    pub(super) held: HeldReplies,
    /// The newest connection of each channel.
    pub(super) attempts: BTreeMap<(u64, u32), u64>,
    /// Streams that it has begun.
    pub(super) streams: u64,
    /// When the next heartbeat is due.
    pub(super) heartbeat: Duration,
    /// Whom it hands over to, and until when it waits for that.
    pub(super) handing: Option<(ReplicaId, Duration)>,
}

impl Primary {
    pub(super) fn new(floor: u64, now: Duration) -> Self {
        Self {
            peers: BTreeMap::new(),
            extra: BTreeSet::new(),
            floor,
            lines: Lines::default(),
            held: HeldReplies::default(),
            attempts: BTreeMap::new(),
            streams: 0,
            heartbeat: now,
            handing: None,
        }
    }

    /// Returns the last record that a reply depends on, of which this is known. The floor is not
    /// behind it.
    pub(super) fn need(&self, known: u64) -> u64 {
        if known == 0 { known } else { known.max(self.floor) }
    }

    /// Returns the same primary in its next view.
    pub(super) fn goes_on(mut self, now: Duration) -> Self {
        for peer in self.peers.values_mut() {
            *peer = Peer { stream: peer.stream, ..Peer::new(now) };
        }
        self.extra.clear();
        self.handing = None;
        self.heartbeat = now;
        self
    }
}
