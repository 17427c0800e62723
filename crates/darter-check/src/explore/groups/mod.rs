//! Indexes on simulated memory groups: what runs on one node runs on replicas, while these die,
//! come back, pause and are parted.
//!
//! A run begins from a fixture as any other does, and its clients are the explorer's. But nothing
//! executes their batches at once: each is a frame to a group in a world of its own
//! (`darter_fabric::group::bed`), which sends what was not answered again, executes it on whoever
//! serves, and answers when the group may. A client's process may die on the way, or be shut out
//! while it lives. At the end the group must come to rest, with all replicas members and equal, and
//! with a log that has no frame twice and none behind the fence of its session; then the memory of
//! the primary is judged as that of any run.

mod campaign;
mod driver;
mod outcomes;
mod run;

pub use campaign::{GroupFinding, GroupSummary, Groups};
pub(super) use run::run;
