//! The outcome of a run: counts of events, and the violation, if there was one.

use super::fault::Fault;
use super::schedule::Schedule;
use crate::history::{Operation, Transaction};
use darter_sim::SimCounts;
use darter_sim::groups::Counts;
use std::any::Any;

/// A description of something that must not happen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Its kind: one word or two, the same for the same error.
    pub kind: &'static str,
    /// What happened, for a reader.
    pub text: String,
}

impl Violation {
    pub(super) fn new(kind: &'static str, text: impl Into<String>) -> Self {
        Self { kind, text: text.into() }
    }

    /// The violation of a run that panicked.
    pub(super) fn of_panic(panic: &(dyn Any + Send)) -> Self {
        let text = panic.downcast_ref::<String>().cloned();
        let text = text.or_else(|| panic.downcast_ref::<&str>().map(ToString::to_string));
        Self::new("panic", text.unwrap_or_default())
    }
}

/// Numbers of keys after lost memory nodes were given up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Left {
    /// Keys that are there.
    pub kept: u64,
    /// Keys that are absent, and were in a gap.
    pub gone: u64,
    /// Keys that have a value from before a transaction of which it is unknown whether it was
    /// decided.
    pub reverted: u64,
}

impl Left {
    pub(super) fn add(&mut self, more: Self) {
        self.kept += more.kept;
        self.gone += more.gone;
        self.reverted += more.reverted;
    }
}

/// The outcome of a run.
#[derive(Debug, Default)]
pub struct Outcome {
    /// The violation, if there was one.
    pub violation: Option<Violation>,
    /// Every decision made.
    pub schedule: Schedule,
    /// The clients' operations and their results.
    pub history: Vec<Operation>,
    /// The clients' commits and their results.
    pub transactions: Vec<Transaction>,
    /// Decisions made before each situation first occurred, while clients ran.
    pub met_at: Vec<usize>,
    /// Events performed.
    pub steps: u64,
    /// Verbs and other counts of the simulation.
    pub counts: SimCounts,
    /// Verbs of each process.
    pub verbs: Vec<u64>,
    /// Number of times that a write reached the medium.
    pub reached: u64,
    /// Pieces of the first server's verbs.
    pub server_pieces: u64,
    /// Awaits of each client.
    pub awaits: Vec<u64>,
    /// Events of each client.
    pub events: Vec<u64>,
    /// Allocation requests of each process.
    pub allocations: Vec<u64>,
    /// Faults that struck.
    pub struck: Vec<Fault>,
    /// Whether a process left remains for the next sweep: one that left while others held back what
    /// it had unlinked, or one whose sweep did so.
    pub has_remains: bool,
    /// For each client, the most round trips that one of its operations took, and its verbs; upkeep
    /// excluded.
    pub longest_op: Vec<(u64, u64)>,
    /// The words that a power failure left: how far back from the newest, and of how many
    /// possibilities.
    pub choices: Vec<(usize, usize)>,
    /// States that the checker visited.
    pub states: u64,
    /// Histories of transactions for which the checker's steps did not suffice.
    pub undecided: u64,
    /// Operations that returned that a value was lost.
    pub lost: u64,
    /// The keys that were left after memory nodes were lost.
    pub left: Left,
    /// Batches posted, including those of the checks.
    pub effort: u64,
    /// Events in the simulated groups.
    pub met: Counts,
    /// Whether the scheduler abandoned the run, so that nothing was checked.
    pub gave_up: bool,
    /// The run step by step, if the scheduler requested it.
    pub trace: Vec<String>,
}

impl Outcome {
    /// Whether the power has failed.
    pub(super) fn has_lost_power(&self) -> bool {
        self.struck.iter().any(|fault| matches!(fault, Fault::Power(..)))
    }

    /// The memory nodes that were lost, in ascending order.
    pub(super) fn lost_nodes(&self) -> Vec<u8> {
        let lost = |fault: &Fault| if let Fault::Lose(node, _) = *fault { Some(node as u8) } else { None };
        let mut nodes: Vec<u8> = self.struck.iter().filter_map(lost).collect();
        nodes.sort_unstable();
        nodes.dedup();
        nodes
    }

    /// Number of moments at which the power can fail.
    pub(super) fn power_points(&self) -> u64 {
        self.verbs.iter().sum::<u64>() + self.reached
    }

    /// The most round trips of one operation, and its verbs, of all clients except one.
    pub(super) fn longest_op_but(&self, client: Option<u32>) -> (u64, u64) {
        let others = (0_u32..).zip(&self.longest_op).filter(|(other, _)| Some(*other) != client);
        others.map(|(_, &took)| took).max().unwrap_or_default()
    }

    /// Whether no fault struck that leaves remains. An operation that finds no memory changes
    /// nothing, and a held client continues.
    pub(super) fn is_clean(&self) -> bool {
        !self.has_remains
            && (self.has_room() || self.transactions.is_empty())
            && self.struck.iter().all(|fault| matches!(fault, Fault::Refuse(..) | Fault::Hold(..)))
    }

    /// Whether no request for memory was refused. Without room, the intents of an aborted
    /// transaction stay until a sweep.
    pub(super) fn has_room(&self) -> bool {
        !self.struck.iter().any(|fault| matches!(fault, Fault::Refuse(..)))
    }

    /// The same for the clients other than the stopped one, if one has stopped for ever.
    pub(super) fn longest_op_while_stopped(&self) -> Option<(u64, u64)> {
        let stopped = |fault: &Fault| if let Fault::Stop(who, _) = *fault { Some(who) } else { None };
        self.struck.iter().filter_map(stopped).map(|who| self.longest_op_but(Some(who))).max()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operations_of_a_stopped_client_do_not_count_as_those_of_others() {
        let outcome = Outcome {
            longest_op: vec![(5, 9), (2000, 2000), (7, 8)],
            struck: vec![Fault::Cancel(2, 0), Fault::Stop(1, 3)],
            ..Outcome::default()
        };
        assert_eq!(outcome.longest_op_but(None), (2000, 2000));
        assert_eq!(outcome.longest_op_while_stopped(), Some((7, 8)));
        assert_eq!(Outcome::default().longest_op_while_stopped(), None);
    }
}
