//! The provider for the checker: verbs execute when a scheduler chooses them, one at a time, in one
//! thread, from one seed.
//!
//! A verb's life has three moments, and between any two of them other clients may do anything: it
//! is *posted* when the client's future is polled, it *executes* at its memory node, and its batch
//! *completes*, which lets the client continue. Verbs of one batch to one node execute in posting
//! order, unless that is relaxed; all others execute in any order. READs and WRITEs of several
//! words execute in as many pieces as the scheduler chooses, in ascending or descending order of
//! the words: they tear.
//!
//! - [`Sim`] is the fabric, seen from one simulated process; all processes of a simulation share
//!   its memory.
//! - [`Executor`] runs tasks (futures that use a `Sim`) and offers the possible next steps as
//!   [`Event`]s. It makes no choices.
//! - Verbs can be relaxed to the guarantees of RDMA devices ([`Relaxations`]). Then it matters
//!   whether the nodes' devices or their processors execute a process's verbs ([`Side`]).
//! - A process can be killed (posted verbs may still take effect until it is fenced), paused (it
//!   can then be fenced, and gets [`darter_fabric::FabricError::Fenced`] when it resumes), and cut
//!   off from a node and reconnected. A future that is dropped leaves its posted verbs in flight.
//!   All nodes can lose power ([`Sim::lose_power`]): only the content of their [`Medium`] is
//!   certain to remain.
//! - Batches can be diverted ([`Sim::divert`]): the driver of the simulation executes them
//!   elsewhere, on simulated memory groups, and supplies their outcome.
//! - A process can be a node's server ([`Sim::serve`]): each call is a task of that process, which
//!   dies, pauses and is fenced with it.
//!
//! Time is virtual: the simulation advances the clocks of leases. Each process has its own clock,
//! years apart from the others' ([`Sim::let_clocks_drift`]: at a different rate too), so that code
//! which compares them fails.

mod calls;
mod clocks;
mod counts;
mod divert;
mod diverted;
mod endpoint;
mod executor;
pub mod groups;
mod journal;
mod medium;
mod memory;
mod power;
mod relaxations;
mod server;
mod world;

pub use counts::SimCounts;
pub use diverted::DivertedBatch;
pub use endpoint::{Sim, SimEndpoint};
pub use executor::{Access, Event, EventKind, Executor, TaskId};
pub use medium::Medium;
pub use memory::{Misuse, Snapshot};
pub use relaxations::{Relaxations, Side};
pub use server::SimServer;

use std::ops::Range;

/// The order in which the words of a long verb execute.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WordOrder {
    /// First word first.
    #[default]
    Ascending,
    /// Last word first.
    Descending,
}

impl WordOrder {
    fn nth(self, step: u32, words: u32) -> usize {
        match self {
            Self::Ascending => step as usize,
            Self::Descending => (words - 1 - step) as usize,
        }
    }

    /// Returns the words of a region that the steps `from..to` of a verb access, for a verb that
    /// begins at word `start`.
    fn piece(self, start: usize, words: u32, (from, to): (u32, u32)) -> Range<usize> {
        match self {
            Self::Ascending => start + from as usize..start + to as usize,
            Self::Descending => start + (words - to) as usize..start + (words - from) as usize,
        }
    }
}

#[cfg(test)]
mod call_tests;
#[cfg(test)]
mod power_tests;
#[cfg(test)]
mod tests;
