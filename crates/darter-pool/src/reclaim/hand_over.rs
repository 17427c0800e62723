//! The timing of a hand-over's steps (`blocks/hand_over`): the operations that had begun before a
//! step must be over before the next.

use darter_fabric::Fabric;
use std::sync::atomic::{Ordering, fence};

use super::epoch::Clients;
use crate::blocks::Blocks;

/// How far a process has got with the blocks that it hands over.
#[derive(Debug, Default)]
pub(super) struct HandOver {
    /// The process epoch at which nothing more was taken from the blocks; `None` if there are none.
    since: Option<u64>,
    /// How often objects had been taken from the heap as of the last round.
    taken: u64,
}

impl HandOver {
    /// Does the part of a hand-over that a round at the process epoch `epoch` can do, because
    /// another member waits for room, or because a node is leaving. Returns whether the blocks must
    /// be closed now.
    pub(super) fn go_on<F: Fabric>(
        &mut self,
        clients: &Clients,
        blocks: &Blocks<F>,
        (is_asked, is_leaving): (bool, bool),
        epoch: u64,
    ) -> bool {
        let taken = blocks.taken();
        let is_idle = std::mem::replace(&mut self.taken, taken) == taken;
        if !is_asked && !is_leaving {
            self.since = None;
            if blocks.is_handing_over() {
                blocks.end_hand_over();
            }
            return false;
        }
        let Some(since) = self.since else {
            // A cancelled round may have left some.
            let has_blocks = blocks.is_handing_over() || blocks.begin_hand_over(is_idle, is_asked);
            self.since = has_blocks.then_some(epoch);
            return false;
        };
        // Pins are read after the blocks were chosen: an operation whose pin is not seen here sees
        // that blocks are handed over.
        fence(Ordering::SeqCst);
        let are_over = clients.oldest_pin().is_none_or(|pin| pin > since);
        if !are_over {
            return false;
        }
        self.since = None;
        // The others emptied their magazines when their operations began.
        for client in clients.all() {
            if client.pinned().is_none() {
                blocks.empty_magazines(&client.magazines);
            }
        }
        true
    }
}
