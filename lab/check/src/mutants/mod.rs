//! The errors that can be planted in the code ([`darter_fabric::mutants`]), by area: what each is, and which check finds it.
//!
//! Each is a slip that a good engineer could make: a step left out, done too early, or done by the wrong word. A check is
//! believed as far as it finds them. `scripts/mutants` plants one after the other and prints who found it after how long;
//! `tests/it/mutants.rs` holds the explorer to what this list says of it.

mod flush;
mod gateway;
mod group;
mod hunt;
mod indexes;
mod medium;
mod memnode;
mod pool;
mod quiver;
mod radix;
mod rdma;
mod redo_log;
mod skip_table;
mod tcp;
mod tree;
mod views;
mod wort;
mod xstore_models;
mod xstore_ranges;

use darter_fabric::sim::Medium;

/// What finds a planted error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FoundBy {
    /// Schedules of this index, with all the faults that it promises to survive, at most so many: some four times as many as it
    /// took with the slowest of four seeds, since schedules change with every verb that the code posts.
    Explorer(&'static str, u64),
    /// The same from some of the index's scenarios, where it is one of few situations that tell.
    Focused {
        /// The index.
        index: &'static str,
        /// The scenarios.
        scenarios: &'static [&'static str],
        /// At most so many.
        schedules: u64,
    },
    /// The same where verbs promise no more than RDMA does.
    Relaxed {
        /// The index.
        index: &'static str,
        /// At most so many.
        schedules: u64,
    },
    /// The sweep of this index from these scenarios: a fault at every point of every operation.
    Sweep {
        /// The index.
        index: &'static str,
        /// The fault.
        fault: &'static str,
        /// The scenarios.
        scenarios: &'static [&'static str],
    },
    /// Schedules of this index whose memory has this rule, in half of which the power fails.
    Power {
        /// The index.
        index: &'static str,
        /// What memory keeps.
        medium: Medium,
        /// At most so many.
        schedules: u64,
    },
    /// `cargo test` with these arguments.
    Tests(&'static str),
    /// `darter-lab stress` with these arguments.
    Stress(&'static str),
    /// Nothing can: no caller can tell the difference, for this reason.
    Equivalent(&'static str),
    /// Nothing does yet.
    Nobody,
}

/// An error that can be planted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mutant {
    /// The name in the code, and in the environment variable that plants it.
    pub name: &'static str,
    /// The part of the system it is planted in.
    pub area: &'static str,
    /// What is wrong, in a sentence.
    pub what: &'static str,
    /// The check that finds it soonest.
    pub found_by: FoundBy,
}

impl Mutant {
    /// A line of the list.
    const fn new(area: &'static str, name: &'static str, what: &'static str, found_by: FoundBy) -> Self {
        Self { name, area, what, found_by }
    }
}

/// All of them, by area.
pub fn mutants() -> impl Iterator<Item = &'static Mutant> {
    [
        pool::MUTANTS,
        tree::MUTANTS,
        radix::MUTANTS,
        skip_table::MUTANTS,
        indexes::MUTANTS,
        quiver::MUTANTS,
        rdma::MUTANTS,
        tcp::MUTANTS,
        memnode::MUTANTS,
        redo_log::MUTANTS,
        group::MUTANTS,
        views::MUTANTS,
        flush::MUTANTS,
        medium::MUTANTS,
        gateway::MUTANTS,
        xstore_models::MUTANTS,
        xstore_ranges::MUTANTS,
        wort::MUTANTS,
    ]
    .into_iter()
    .flatten()
}
