//! State of a replica that serves.

use super::held::HeldReplies;
use super::peer::Peer;
use super::view::ReplicaId;
use darter_fabric::effects::Lines;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// State of a replica that serves.
#[derive(Debug)]
pub(super) struct Primary {
    pub(super) peers: BTreeMap<ReplicaId, Peer>,
    /// Learners whose acknowledgements are awaited as if they were backups.
    pub(super) extra: BTreeSet<ReplicaId>,
    /// Replies wait until all backups have the records up to this one: the previous primary may
    /// have executed them without replying to any client.
    pub(super) floor: u64,
    pub(super) lines: Lines,
    pub(super) held: HeldReplies,
    /// The newest connection of each channel.
    pub(super) attempts: BTreeMap<(u64, u32), u64>,
    /// Number of streams started.
    pub(super) streams: u64,
    /// When the next heartbeat is due.
    pub(super) heartbeat: Duration,
    /// The replica that it hands over to, and the deadline.
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

    /// Returns the last record that a reply depends on, given that `known` is one of them. The
    /// result is never below the floor.
    pub(super) fn need(&self, known: u64) -> u64 {
        if known == 0 { known } else { known.max(self.floor) }
    }

    /// Returns the primary's state for its next view.
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
