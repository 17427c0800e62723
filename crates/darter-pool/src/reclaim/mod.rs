//! Reclamation: when what was unlinked may be used again.
//!
//! | file | what it holds |
//! |---|---|
//! | `epoch` | the process epoch, the pins of clients, and why pinning is safe |
//! | `limbo` | what was unlinked and may still be read |
//! | `leftovers` | work that waits for the verbs of dropped operations |
//! | `reclaimer` | [`Reclaimer`], one client's pin and what it has retired |
//! | `upkeep` | [`Reclamation`], the process's part, and a round of upkeep |
//! | `hand_over` | when the steps of a hand-over of blocks follow each other |
//! | `extension` | what upkeep does for other crates |
//! | `room` | waiting for memory that others have yet to let go |
//! | `wait` | rounds until something has come about |
//!
//! The room builds on `blocks` and `members`; neither knows it.

mod epoch;
mod extension;
mod hand_over;
#[cfg(test)]
mod interleavings;
mod leftovers;
mod limbo;
mod reclaimer;
mod room;
mod upkeep;
mod wait;

pub use extension::Extension;
pub use leftovers::Leftovers;
pub use limbo::Unlinked;
pub(crate) use reclaimer::Reclaimer;
pub use room::{Room, RoomRequest};
pub(crate) use upkeep::Reclamation;
