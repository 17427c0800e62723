//! A channel to a memory group: what of it outlives its connections.
//!
//! When a connection is lost, or the replica at its other end serves no more, the frames without a
//! reply are sent again on the next connection, in their order and under the same ids. The group
//! executes none twice (crate `darter-group`). So the death of a replica is a pause to tasks that wait,
//! and no error.

use super::batches::Batches;
use super::connection::{Connection, Sent};
use std::collections::VecDeque;
use std::time::Duration;

/// How long a replica may be silent at first before the client asks who serves. Each time in a row
/// that it was silent for so long, and served all the same, it may be silent for twice as long.
const SUSPICION: Duration = Duration::from_millis(250);

/// What outlives a connection.
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
    /// Takes what a connection leaves. Returns whether another is needed for it.
    pub(super) fn keep(&mut self, last_id: u64, sent: VecDeque<Sent>) -> bool {
        self.last_id = self.last_id.max(last_id);
        self.unanswered = sent;
        !self.unanswered.is_empty()
    }

    /// The replica was silent for too long.
    pub(super) fn was_silent(&mut self, patience_max: Duration) {
        self.patience = (self.patience * 2).min(patience_max);
    }

    /// The replica has replied.
    pub(super) fn was_heard(&mut self) {
        self.patience = SUSPICION;
    }

    /// Sends what has no reply again, on a new connection.
    pub(super) fn resume(&mut self, connection: &mut Connection, node: u8, batches: &mut Batches) {
        // Ids of before would be taken for frames that were answered.
        connection.last_id = self.last_id;
        for sent in std::mem::take(&mut self.unanswered) {
            // A frame whose caller has gone needs no reply.
            let Some(pending) = batches.get(sent.batch) else { continue };
            let (verbs, data) = pending.batch.parts_mut();
            // Its place is taken first: it is itself not answered.
            connection.sent.push_back(sent);
            connection.put_verbs(Some(sent.id), node, &verbs[sent.first..sent.end], data);
        }
    }

    /// Returns the frames that will have no reply.
    pub(super) fn give_up(&mut self) -> VecDeque<Sent> {
        std::mem::take(&mut self.unanswered)
    }
}
