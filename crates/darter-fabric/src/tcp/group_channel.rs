//! A channel to a memory group: its state that outlives connections.
//!
//! When a connection is lost, or the replica at its other end no longer serves, the frames without
//! a reply are sent again on the next connection, in order and with the same ids. The group
//! executes none of them twice (crate `darter-group`). So the death of a replica is a pause for
//! waiting tasks rather than an error.

use super::batches::Batches;
use super::connection::{Connection, Sent};
use std::collections::VecDeque;
use std::time::Duration;

/// How long a replica may be silent at first before the client searches for the one that serves.
/// Each time that the silent replica turns out to serve after all, the limit is doubled.
const SUSPICION: Duration = Duration::from_millis(250);

/// The state that outlives a connection.
#[derive(Debug)]
pub(super) struct GroupChannel {
    /// The last frame's id.
    last_id: u64,
    /// The frames without a reply, by their ids.
    unanswered: VecDeque<Sent>,
    /// How long a replica may be silent.
    pub(super) patience: Duration,
}

impl Default for GroupChannel {
    fn default() -> Self {
        Self { last_id: 0, unanswered: VecDeque::new(), patience: SUSPICION }
    }
}

impl GroupChannel {
    /// Takes the state of a lost connection. Returns whether it needs another connection.
    pub(super) fn keep(&mut self, last_id: u64, sent: VecDeque<Sent>) -> bool {
        self.last_id = self.last_id.max(last_id);
        self.unanswered = sent;
        !self.unanswered.is_empty()
    }

    /// Records that the replica was silent for too long.
    pub(super) fn was_silent(&mut self, patience_max: Duration) {
        self.patience = (self.patience * 2).min(patience_max);
    }

    /// Records that the replica has replied.
    pub(super) fn was_heard(&mut self) {
        self.patience = SUSPICION;
    }

    /// Sends the frames without a reply again, on a new connection.
    pub(super) fn resume(&mut self, connection: &mut Connection, node: u8, batches: &mut Batches) {
        // Reused ids would be mistaken for frames that already have a reply.
        connection.last_id = self.last_id;
        for sent in std::mem::take(&mut self.unanswered) {
            // A frame whose caller has gone needs no reply.
            let Some(pending) = batches.get(sent.batch) else { continue };
            let (verbs, data) = pending.batch.parts_mut();
            // It is listed first, so that its own id does not count as answered.
            connection.sent.push_back(sent);
            connection.put_verbs(Some(sent.id), node, &verbs[sent.first..sent.end], data);
        }
    }

    /// Returns the frames that will have no reply.
    pub(super) fn give_up(&mut self) -> VecDeque<Sent> {
        std::mem::take(&mut self.unanswered)
    }
}
