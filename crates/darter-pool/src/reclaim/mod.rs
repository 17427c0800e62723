//! Reclamation: when unlinked memory may be used again.
//!
//! | file | contents |
//! |---|---|
//! | `epoch` | the process epoch, the pins of clients, and why pinning is safe |
//! | `limbo` | objects that were unlinked and may still be read |
//! | `leftovers` | work that waits for the verbs of dropped operations |
//! | `reclaimer` | [`Reclaimer`], one client's pin and the objects that it has retired |
//! | `upkeep` | [`Reclamation`], the process's part, and a round of upkeep |
//! | `hand_over` | the timing of the steps of a hand-over of blocks |
//! | `extension` | work that upkeep does for other crates |
//! | `room` | waiting for memory that others have yet to give back |
//! | `snapshot`, `snapshot_word` | the moment at which a snapshot begins, and its end |
//! | `wait` | rounds of upkeep until a condition holds |
//!
//! This module builds on `blocks` and `members`; neither depends on it.

mod epoch;
mod extension;
mod hand_over;
#[cfg(test)]
mod interleavings;
mod leftovers;
mod limbo;
mod reclaimer;
mod room;
mod snapshot;
mod snapshot_word;
mod upkeep;
mod wait;

pub use extension::Extension;
pub use leftovers::Leftovers;
pub use limbo::Unlinked;
pub(crate) use reclaimer::Reclaimer;
pub use room::{Room, RoomRequest};
pub(crate) use snapshot::read_open as read_open_snapshot;
pub use snapshot_word::SnapshotId;
pub(crate) use upkeep::Reclamation;
