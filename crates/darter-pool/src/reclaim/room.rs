//! Waiting for room, after an operation found a pool full while freed memory waits.
//!
//! An allocation cannot wait: its own pin holds the epoch back. So the operation fails first, and
//! its caller requests room ([`crate::Pool::ask_for_room`]) and runs rounds of upkeep. While the
//! request lives, the epoch advances, and this process's member line shows the request to the
//! others: their rounds then follow each other closely, and give back memory that they hold and do
//! not use. A request ends when an object was freed, or when every member has had time for that and
//! nothing waits any longer; or, so that no process waits for a stopped one for ever, when the
//! epoch has not moved for a while.
//!
//! While a member waits, the others take no blocks from the pool except surplus free ones, until
//! their own request has ended with [`Room::Full`]. Otherwise a member that reuses its own memory
//! would take back the blocks that it has handed over.

use std::fmt;

use super::upkeep::{EpochDemand, Reclamation};
use crate::laggard::Laggard;

/// Epochs in which every member has read the request, given back and handed over what it can, which
/// takes at most two more epochs, and published.
const EPOCHS: u64 = 7;
/// Bounds of the time without a new epoch after which a request gives up, in ms.
const PATIENCE_MS: (u64, u64) = (1_000, 10_000);

/// The outcome of a request for room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Room {
    /// Nothing yet: run another round of upkeep.
    NotYet,
    /// Memory was freed: try again.
    Freed,
    /// All memory that was freed before the request is in use again, or free: the pool is full if
    /// further tries fail.
    Full,
    /// Freed memory waits for a member that makes no progress.
    HeldBack(Laggard),
}

/// A request for room. The members help while it exists.
pub struct RoomRequest<'g> {
    reclamation: &'g Reclamation,
    _demand: EpochDemand<'g>,
    _request: EpochDemand<'g>,
    first: u64,
    freed: u64,
    patience_ms: u64,
    /// The newest epoch, and when it was first seen.
    moved: Option<(u64, u64)>,
}

impl fmt::Debug for RoomRequest<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RoomRequest").field("first", &self.first).finish_non_exhaustive()
    }
}

impl RoomRequest<'_> {
    /// Returns the outcome so far, after a round of upkeep that ended at `now_ms` by the clock of
    /// the process's endpoints.
    pub fn progress(&mut self, now_ms: u64) -> Room {
        let epoch = self.reclamation.epoch();
        if self.reclamation.limbo.freed() > self.freed {
            return Room::Freed;
        }
        if epoch >= self.first + EPOCHS && !self.reclamation.has_garbage() {
            self.reclamation.note_turn(true);
            return Room::Full;
        }
        let since = match self.moved {
            Some((seen, since)) if seen == epoch => since,
            _ => now_ms,
        };
        self.moved = Some((epoch, since));
        let for_ms = now_ms.saturating_sub(since);
        if for_ms <= self.patience_ms {
            return Room::NotYet;
        }
        self.reclamation.laggard().map_or(Room::Full, |laggard| Room::HeldBack(Laggard { for_ms, ..laggard }))
    }
}

impl Reclamation {
    /// Makes the epoch advance and the other members help while the value lives.
    pub(crate) fn ask_for_room(&self, lease_ms: u64) -> RoomRequest<'_> {
        RoomRequest {
            reclamation: self,
            _demand: self.demand_epochs(),
            _request: self.request_room(),
            first: self.epoch(),
            freed: self.limbo.freed(),
            patience_ms: (lease_ms + lease_ms / 2).clamp(PATIENCE_MS.0, PATIENCE_MS.1),
            moved: None,
        }
    }
}
