//! Indexes on simulated memory groups: replicas in place of memory nodes, which die, come back,
//! pause and are partitioned.
//!
//! A plan with `groups=` begins from a fixture like any other, with the explorer's clients. But
//! their batches are not executed at once: each becomes a frame to a group in a separate world
//! (`darter_sim::groups`), or one frame to each group that it has verbs for. A world resends frames
//! without a reply, executes them on the serving replica, and replies when the group may. A
//! client's process may die on the way, or be shut out while it lives. At the end the groups must
//! come to rest, with all replicas members and equal, and with logs that have no frame twice and
//! none after the fence of its session; then the memory of the primaries is checked like that of
//! any run.

mod driver;
mod nodes;
mod outcomes;
mod plans;
mod run;

pub(super) use plans::fit;
pub(super) use run::run;
