//! Linearizability of a history: whether every operation could have taken effect at one moment of
//! its interval.
//!
//! Linearizability is local (Herlihy and Wing, 1990): a history is linearizable if its operations
//! on each key are. So each key is checked separately, as a register that may be absent
//! ([`Action::apply`](crate::history::Action::apply)).
//!
//! The search is Wing and Gong's ("Testing and verifying concurrent objects", 1993) with Lowe's
//! improvement ("Testing for linearizability", 2017): it linearizes, one after another, any
//! operation that no unlinearized one must precede and whose result fits; if none fits, it takes
//! the last one back; and it never continues from a state (the set of linearized operations, and
//! the value) that it has visited before. It is a loop, not a recursion, and counts its steps: one
//! for each operation it linearizes. A budget bounds the steps, and with them the memory.
//!
//! - **Time.** An operation precedes another if it returned *before* the other was invoked,
//!   `returned < invoked`. At equal timestamps the two overlap and may come in either order: too
//!   coarse a clock makes the check lenient, but never reports a false violation. This holds for
//!   operations of one client too.
//! - **Pending operations**, which did not return, may come at any time after their invocation or
//!   be left out. The search ends when all completed operations are linearized.
//!
//! Of two states with the same completed operations linearized and the same value, the one that
//! used fewer of the pending operations can do everything that the other can: the search does not
//! continue from the other, either.
//!
//! Four shortcuts leave out orders that are not needed. If there are orders at all, at least one of
//! them passes all four: take one with the fewest pending operations, move operations that only
//! observe to the front, and exchange twins.
//!
//! - **Operations that only observe go first.** A completed operation that fits and by its result
//!   changed nothing (a search, a refusal) is linearized at once, without alternatives: in any
//!   order that has it later, it can be moved here.
//! - **A pending operation must be needed** by the one after it. If it changes nothing, or the next
//!   operation would have had the same result and left the same value without it, an order with one
//!   pending operation less exists.
//! - **Pending twins go in order.** Of pending operations with the same action, the one invoked
//!   first is used first. Values that no operation returned or expected count as the same.
//! - **A needed state is not given up.** If an operation observed a state (found it, replaced it),
//!   and no remaining operation could produce that state, the key cannot take on another one first.
//!
//! The last would cut partial orders short, so after a violation the search runs once more without
//! it, for the longest one.

mod explain;
mod joint;
mod keys;
mod memo;
mod prepared;
mod search;

pub use explain::explain;
pub use joint::{Joint, Judgement};
pub use keys::{KeyFailure, Report};

use search::{Aim, Search, SearchEnd};

use crate::history::Operation;

/// The result of checking one key. Operations are named by their index in the input.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// There is an order.
    Linearizable {
        /// Such an order, of all completed operations and those pending operations that it needs.
        order: Vec<usize>,
    },
    /// There is none.
    Violation {
        /// A longest partial order, by the number of completed operations, that respects time and
        /// all results; in a very large history, the longest that the checker found before it
        /// stopped.
        longest: Vec<usize>,
        /// The operations that could come next in time, none of which fits: either one of them had
        /// a wrong result, or something before them took effect that should not have. By
        /// invocation.
        blocked: Vec<usize>,
    },
    /// The budget was spent before there was a result.
    Unknown {
        /// Steps taken.
        steps: u64,
    },
}

/// Budget of the search for the longest partial order of a violation.
const LONGEST_BUDGET: u64 = 1_000_000;

/// Checks one history after another. Reuse one checker: its allocations serve the next history too.
#[derive(Debug, Default)]
pub struct Checker {
    search: Search,
    steps: u64,
}

impl Checker {
    /// A checker that has not checked any history.
    pub fn new() -> Self {
        Self::default()
    }

    /// Checks all operations of one key, given in any order, whose value was `initial` before the
    /// first of them. At most `budget` operations are linearized (again, after others were taken
    /// back); each costs a few dozen bytes until the next history is checked. For a violation, up
    /// to a million more steps are spent on the longest partial order; if they do not suffice, the
    /// verdict has the longest one visited.
    ///
    /// # Panics
    ///
    /// Panics if an operation returned before it was invoked.
    pub fn check(&mut self, operations: &[Operation], initial: Option<u64>, budget: u64) -> Verdict {
        match self.is_linearizable(operations, initial, budget) {
            Some(true) => Verdict::Linearizable { order: self.search.order() },
            Some(false) => {
                let end = self.search.run(operations, initial, LONGEST_BUDGET, Aim::Longest);
                assert_ne!(end, SearchEnd::Placed, "the checker's shortcuts overlooked an order");
                self.steps += self.search.steps();
                let longest = self.search.longest();
                let blocked = next_in_time(operations, &longest);
                Verdict::Violation { longest, blocked }
            }
            None => Verdict::Unknown { steps: self.steps },
        }
    }

    /// Checks like [`Checker::check`], without an explanation; `None` if the budget was spent. This
    /// allocates nothing once the checker has checked a history as large.
    ///
    /// # Panics
    ///
    /// Panics if an operation returned before it was invoked.
    pub fn is_linearizable(
        &mut self,
        operations: &[Operation],
        initial: Option<u64>,
        budget: u64,
    ) -> Option<bool> {
        let end = self.search.run(operations, initial, budget, Aim::Decide);
        self.steps = self.search.steps();
        match end {
            SearchEnd::Placed => Some(true),
            SearchEnd::Exhausted => Some(false),
            SearchEnd::OutOfSteps => None,
        }
    }

    /// Returns the number of steps of the last check of one key.
    pub fn steps(&self) -> u64 {
        self.steps
    }
}

/// Returns the completed operations that no operation outside `placed` must precede, by invocation.
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
