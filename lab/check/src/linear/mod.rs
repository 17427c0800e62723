//! Linearizability of a history: whether every operation could have taken effect at one moment of its interval.
//!
//! Linearizability is local (Herlihy and Wing, 1990): a history is linearizable if its operations on each key are. So a
//! key is judged at a time, as a register that may be absent ([`Action::apply`](crate::history::Action::apply)).
//!
//! The search is Wing and Gong's ("Testing and verifying concurrent objects", 1993) with Lowe's improvement ("Testing for
//! linearizability", 2017): linearize, one after another, any operation that no unlinearized one must precede and whose
//! outcome fits; where none fits, take the last one back; and never search on from a state, which is the set of
//! linearized operations and the value, that was met before. It is a loop, not a recursion, and counts its steps: one for
//! each operation it linearizes. A budget bounds them, and with them the memory.
//!
//! - **Time.** An operation precedes another if it returned *before* the other was invoked, `returned < invoked`. At
//!   equal timestamps the two overlap and may come in either order: a clock too coarse makes the judgement lenient, never
//!   unjust. This holds for operations of one client too.
//! - **Pending operations**, which were never answered, may come at any time after their invocation or be left out. The
//!   search ends when all completed operations have their place.
//!
//! Of two states with the same completed operations linearized and the same value, the one that used fewer of the pending
//! operations can do all that the other can: the search does not go on from the other, either.
//!
//! Four shortcuts leave out orders that are not needed. If there are orders at all, at least one of them passes all four:
//! take one with the fewest pending operations, move what only observes to the front, and exchange twins.
//!
//! - **What only observes goes first.** A completed operation that fits and by its outcome changed nothing (a search, a
//!   refusal) is linearized at once, without alternatives: in any order that has it later, it can be moved here.
//! - **A pending operation must be needed** by the one after it. If it changes nothing, or the next operation would have
//!   had the same outcome and left the same value without it, an order with one pending operation less exists.
//! - **Pending twins go in order.** Of pending operations that asked the same, the one invoked first is used first. Values
//!   that nobody was told of or asked for count as the same.
//! - **A state that is needed is not given up.** If an operation was told of a state (found it, replaced it), and none that
//!   is left could leave that state behind, the key cannot be made to hold another one first.
//!
//! The last would cut partial orders short, so a violation is searched once more without it, for the longest one.

mod explain;
mod keys;
mod memo;
mod prepared;
mod search;

pub use explain::explain;
pub use keys::{KeyFailure, Report};

use search::{Aim, End, Search};

use crate::history::Operation;

/// What the checker found for one key. Operations are named by their index in what was judged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// There is an order.
    Linearizable {
        /// Such an order, of all completed operations and those pending ones that it needs.
        order: Vec<usize>,
    },
    /// There is none.
    Violation {
        /// A longest partial order, by the number of completed operations, that respects time and all outcomes: the
        /// longest there is, unless the history is so large that the checker stopped looking.
        longest: Vec<usize>,
        /// The operations that time would allow next, none of which fits: one of them was told something wrong, or
        /// something before them took effect that should not have. By invocation.
        blocked: Vec<usize>,
    },
    /// The budget was spent before either was certain.
    Unknown {
        /// Steps taken.
        steps: u64,
    },
}

/// What the search for the longest partial order of a violation may cost.
const LONGEST_BUDGET: u64 = 1_000_000;

/// Judges one history after another. Keep one: what it allocates serves the next history too.
#[derive(Debug, Default)]
pub struct Checker {
    search: Search,
    steps: u64,
}

impl Checker {
    /// A checker that has judged nothing.
    pub fn new() -> Self {
        Self::default()
    }

    /// Judge all operations of one key, in any order, where the key held `initial` before the first of them. At most
    /// `budget` operations are linearized (again, after others were taken back); each costs a few dozen bytes until the
    /// next history is judged. For a violation, up to a million steps more are spent to find the longest partial order; if
    /// they do not suffice, the verdict has the longest one met.
    ///
    /// # Panics
    ///
    /// If an operation returned before it was invoked.
    pub fn check(&mut self, operations: &[Operation], initial: Option<u64>, budget: u64) -> Verdict {
        match self.is_linearizable(operations, initial, budget) {
            Some(true) => Verdict::Linearizable { order: self.search.order() },
            Some(false) => {
                let end = self.search.run(operations, initial, LONGEST_BUDGET, Aim::Longest);
                assert_ne!(end, End::Placed, "the checker's shortcuts overlooked an order");
                self.steps += self.search.steps();
                let longest = self.search.longest();
                let blocked = next_in_time(operations, &longest);
                Verdict::Violation { longest, blocked }
            }
            None => Verdict::Unknown { steps: self.steps },
        }
    }

    /// Judge like [`Checker::check`], without saying why; `None` if the budget was spent. This allocates nothing once the
    /// checker has judged a history as large.
    ///
    /// # Panics
    ///
    /// If an operation returned before it was invoked.
    pub fn is_linearizable(
        &mut self,
        operations: &[Operation],
        initial: Option<u64>,
        budget: u64,
    ) -> Option<bool> {
        let end = self.search.run(operations, initial, budget, Aim::Decide);
        self.steps = self.search.steps();
        match end {
            End::Placed => Some(true),
            End::Exhausted => Some(false),
            End::OutOfSteps => None,
        }
    }

    /// Steps that the last judgement of one key took.
    pub fn steps(&self) -> u64 {
        self.steps
    }
}

/// The completed operations that nothing outside `placed` must precede, by invocation.
fn next_in_time(operations: &[Operation], placed: &[usize]) -> Vec<usize> {
    let mut is_placed = vec![false; operations.len()];
    for &index in placed {
        is_placed[index] = true;
    }
    let waiting = || {
        let answered = operations.iter().enumerate().filter(|&(index, _)| !is_placed[index]);
        answered.filter_map(|(index, operation)| Some((index, operation.invoked, operation.returned?.0)))
    };
    let horizon = waiting().map(|(.., returned)| returned).min().unwrap_or(u64::MAX);
    let mut next: Vec<_> =
        waiting().filter(|&(_, invoked, _)| invoked <= horizon).map(|(index, ..)| index).collect();
    next.sort_by_key(|&index| operations[index].invoked);
    next
}

#[cfg(test)]
mod tests;
