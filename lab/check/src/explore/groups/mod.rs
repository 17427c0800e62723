//! Indexes on simulated memory groups: what runs on memory nodes runs on replicas, while these die,
//! come back, pause and are parted.
//!
//! A plan that says `groups=` begins from a fixture as any other does, and its clients are the
//! explorer's. But nothing executes their batches at once: each is a frame to a group in a world of
//! its own (`darter_sim::groups`), or one to each group that it has verbs for. A world sends
//! what was not answered again, executes it on whoever serves, and answers when the group may. A
//! client's process may die on the way, or be shut out while it lives. At the end the groups must
//! come to rest, with all replicas members and equal, and with logs that have no frame twice and
//! none behind the fence of its session; then the memory of the primaries is judged as that of any
//! run.

mod driver;
mod nodes;
mod outcomes;
mod plans;
mod run;

pub(super) use plans::fit;
pub(super) use run::run;
