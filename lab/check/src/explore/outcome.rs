//! What came of a run: the counts of what happened, and the violation, if something must not have
//! happened.

use super::fault::Fault;
use super::schedule::Schedule;
use crate::history::Operation;
use darter_sim::SimCounts;
use darter_sim::groups::Counts;
use std::any::Any;

/// Something that must not happen, in words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// What kind: one word or two, the same for the same error.
    pub kind: &'static str,
    /// What happened, for a person.
    pub text: String,
}

impl Violation {
    pub(super) fn new(kind: &'static str, text: impl Into<String>) -> Self {
        Self { kind, text: text.into() }
    }

    /// A panic.
    pub(super) fn of_panic(panic: &(dyn Any + Send)) -> Self {
        let text = panic.downcast_ref::<String>().cloned();
        let text = text.or_else(|| panic.downcast_ref::<&str>().map(ToString::to_string));
        Self::new("panic", text.unwrap_or_default())
    }
}

/// What came of a run.
#[derive(Debug, Default)]
pub struct Outcome {
    /// What must not have happened.
    pub violation: Option<Violation>,
    /// Every decision that was made.
    pub schedule: Schedule,
    /// What clients did and were told.
    pub history: Vec<Operation>,
    /// Decisions made before each situation was first met, while clients ran.
    pub met_at: Vec<usize>,
    /// Events performed.
    pub steps: u64,
    /// Verbs and the like.
    pub counts: SimCounts,
    /// Verbs of each process.
    pub verbs: Vec<u64>,
    /// Times that something reached the medium.
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
    /// Something was left that the next sweep finds: by a process that left while others held back
    /// what it had unlinked, or by a sweep that did.
    pub has_remains: bool,
    /// The most round trips, and the verbs in them, that one operation of each client took; upkeep
    /// left out.
    pub longest_op: Vec<(u64, u64)>,
    /// What a power failure left: how far back from the newest, and of how many possibilities.
    pub choices: Vec<(usize, usize)>,
    /// States that the checker looked at.
    pub states: u64,
    /// Operations that were told that a value was lost.
    pub lost: u64,
    /// Batches posted, those of the verdict among them.
    pub effort: u64,
    /// What the world of a simulated group has met.
    pub met: Counts,
    /// The scheduler gave the run up: nothing was judged.
    pub gave_up: bool,
    /// What happened step by step, where the scheduler asked for it.
    pub trace: Vec<String>,
}

impl Outcome {
    /// Whether the power has failed.
    pub(super) fn has_lost_power(&self) -> bool {
        self.struck.iter().any(|fault| matches!(fault, Fault::Power(..)))
    }

    /// Moments at which the power can fail.
    pub(super) fn power_points(&self) -> u64 {
        self.verbs.iter().sum::<u64>() + self.reached
    }

    /// The most round trips of one operation, and its verbs, of all clients but one.
    pub(super) fn longest_op_but(&self, client: Option<u32>) -> (u64, u64) {
        let others = (0_u32..).zip(&self.longest_op).filter(|(other, _)| Some(*other) != client);
        others.map(|(_, &took)| took).max().unwrap_or_default()
    }

    /// Whether nothing struck that leaves anything behind. An operation that finds no memory
    /// changes nothing, and who is held goes on.
    pub(super) fn is_clean(&self) -> bool {
        !self.has_remains
            && self.struck.iter().all(|fault| matches!(fault, Fault::Refuse(..) | Fault::Hold(..)))
    }

    /// The same beside a client that has stopped for ever, if one has.
    pub(super) fn longest_op_beside_stopped(&self) -> Option<(u64, u64)> {
        let stopped = |fault: &Fault| if let Fault::Stop(who, _) = *fault { Some(who) } else { None };
        self.struck.iter().filter_map(stopped).map(|who| self.longest_op_but(Some(who))).max()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_stopped_client_took_itself_is_not_what_others_took_beside_it() {
        let outcome = Outcome {
            longest_op: vec![(5, 9), (2000, 2000), (7, 8)],
            struck: vec![Fault::Cancel(2, 0), Fault::Stop(1, 3)],
            ..Outcome::default()
        };
        assert_eq!(outcome.longest_op_but(None), (2000, 2000));
        assert_eq!(outcome.longest_op_beside_stopped(), Some((7, 8)));
        assert_eq!(Outcome::default().longest_op_beside_stopped(), None);
    }
}
