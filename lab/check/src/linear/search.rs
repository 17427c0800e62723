//! The search: a walk through the orders in which one key's operations could have taken effect.
//!
//! See the [module](super) for the algorithm and the reasons of its shortcuts. The set of
//! operations linearized so far is never stored as such. Completed operations are sorted by
//! invocation; all before the *frontier* are linearized, except the *skipped* ones. A skipped
//! operation was still running when the last one before the frontier was invoked (otherwise that
//! one could not have been linearized), so all skipped operations overlap one another. Numbering
//! operations by *slots*, such that two that overlap never share one, makes the skipped ones a set
//! of a few bits, one per concurrent operation, however long the history and however slow any of its
//! operations.

use std::cmp::Reverse;

use super::memo::Memo;
use super::prepared::{Completed, Demand, Pending, Prepared, StateId};
use crate::history::Operation;

/// An operation: completed ones first, then the pending ones, each by invocation.
type Item = usize;

/// The value of the key.
#[derive(Clone, Copy, Debug, Default)]
struct KeyState {
    value: Option<u64>,
    id: StateId,
}

/// A linearized operation, and the data for undoing it.
#[derive(Clone, Copy, Debug)]
struct Placement {
    item: Item,
    /// Index of its first alternative.
    alternatives: usize,
    frontier: usize,
    held: KeyState,
    before_pending: Option<KeyState>,
}

/// The aim of a search.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Aim {
    /// To find out whether there is an order. The search gives up when a state is lost that an
    /// operation still needs.
    Decide,
    /// To find the longest partial order too.
    Longest,
}

/// How a search ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SearchEnd {
    /// Every completed operation is linearized: the path is an order.
    Placed,
    /// There is no order.
    Exhausted,
    /// The budget was spent.
    OutOfSteps,
}

/// One search, and the memory that the next one reuses.
#[derive(Debug, Default)]
pub(super) struct Search {
    history: Prepared,
    /// Whether a state that is still needed may be given up.
    may_lose: bool,

    /// All completed operations before this are linearized, except the skipped ones.
    frontier: usize,
    /// One bit per slot: a skipped completed operation, or a linearized pending one.
    marks: Vec<u64>,
    /// For each slot: the completed operation that was skipped there last.
    skipped: Vec<Item>,
    held: KeyState,
    /// If the last operation linearized is a pending one: the value of the key before it.
    before_pending: Option<KeyState>,
    /// Number of completed operations that are linearized.
    placed: usize,
    /// The demand for each state.
    demand: Vec<Demand>,

    path: Vec<Placement>,
    alternatives: Vec<Item>,
    memo: Memo,
    steps: u64,

    /// The path that placed the most completed operations, of the paths that ended.
    longest: Vec<Item>,
    /// Number of completed operations in it.
    longest_placed: usize,
    /// Length of the prefix that it shares with the current path.
    longest_shared: usize,
}

impl Search {
    /// Searches an order of the operations of one key that begins with `initial`.
    pub(super) fn run(
        &mut self,
        operations: &[Operation],
        initial: Option<u64>,
        budget: u64,
        aim: Aim,
    ) -> SearchEnd {
        self.history.take(operations, initial);
        self.begin(initial, aim);
        if self.history.completed.is_empty() {
            return SearchEnd::Placed;
        }
        let never_given = |state| self.is_needed(state) && state != self.history.initial;
        if !self.may_lose && (0..self.demand.len()).any(never_given) {
            return SearchEnd::Exhausted;
        }
        let mut alternatives = 0;
        self.remember();
        self.collect();
        loop {
            if self.alternatives.len() > alternatives {
                if self.steps == budget {
                    return SearchEnd::OutOfSteps;
                }
                self.steps += 1;
                let item = self.alternatives.pop().expect("there are alternatives");
                self.place(item, alternatives);
                if self.placed == self.history.completed.len() {
                    return SearchEnd::Placed;
                }
                alternatives = self.alternatives.len();
                if self.remember() {
                    self.collect();
                }
            } else {
                self.note_longest();
                match self.undo() {
                    Some(earlier) => alternatives = earlier,
                    None => return SearchEnd::Exhausted,
                }
            }
        }
    }

    /// Returns the number of transitions tried.
    pub(super) fn steps(&self) -> u64 {
        self.steps
    }

    /// Returns the order found, as indexes into the input.
    pub(super) fn order(&self) -> Vec<usize> {
        self.path.iter().map(|placement| self.index_of(placement.item)).collect()
    }

    /// Returns the longest partial order visited, as indexes into the input. It ends with a
    /// completed operation.
    pub(super) fn longest(&self) -> Vec<usize> {
        self.longest.iter().map(|&item| self.index_of(item)).collect()
    }

    fn index_of(&self, item: Item) -> usize {
        match self.history.completed.get(item) {
            Some(completed) => completed.index,
            None => self.history.pending[item - self.history.completed.len()].index,
        }
    }

    /// Resets the search to a state in which no operation is linearized.
    fn begin(&mut self, initial: Option<u64>, aim: Aim) {
        let (completed_words, pending_words) = self.history.slot_words();
        self.may_lose = aim == Aim::Longest;
        self.frontier = 0;
        self.marks.clear();
        self.marks.resize(completed_words + pending_words, 0);
        self.skipped.clear();
        self.skipped.resize(self.history.slots.len(), 0);
        self.held = KeyState { value: initial, id: self.history.initial };
        self.before_pending = None;
        self.placed = 0;
        self.demand.clone_from(&self.history.demand);
        self.path.clear();
        self.alternatives.clear();
        self.memo.reset(3 + completed_words, pending_words);
        self.steps = 0;
        self.longest.clear();
        self.longest_placed = 0;
        self.longest_shared = 0;
    }

    /// Adds the current state to the memo. Returns `false` if it was visited before, or was visited
    /// with the same operations left to linearize and more pending ones available.
    fn remember(&mut self) -> bool {
        let before = self.before_pending.map_or(0, |before| 1 + before.id as u64);
        let head = [self.frontier as u64, self.held.id as u64, before];
        self.memo.insert(head, &self.marks)
    }

    fn is_marked(&self, slot: usize) -> bool {
        self.marks[slot / 64] >> (slot % 64) & 1 == 1
    }

    fn mark(&mut self, slot: usize) {
        self.marks[slot / 64] |= 1 << (slot % 64);
    }

    fn unmark(&mut self, slot: usize) {
        self.marks[slot / 64] &= !(1 << (slot % 64));
    }

    /// Whether the state is needed and, once it is gone, no operation can restore it.
    fn is_needed(&self, state: StateId) -> bool {
        let Demand { needs, gives } = self.demand[state];
        needs > 0 && gives == 0
    }

    /// Pushes the operations that could be linearized next onto the alternatives, the most
    /// promising last.
    fn collect(&mut self) {
        let start = self.alternatives.len();
        // No operation may come next that was invoked after one of these returned.
        let mut urgent = Urgent { item: 0, returned: u64::MAX };
        for word in 0..self.history.slot_words().0 {
            let mut bits = self.marks[word];
            while bits != 0 {
                let slot = word * 64 + bits.trailing_zeros() as usize;
                bits &= bits - 1;
                let item = self.skipped[slot];
                urgent.consider(item, &self.history.completed[item]);
                if self.offer(item, start) {
                    return;
                }
            }
        }
        for item in self.frontier..self.history.completed.len() {
            let operation = &self.history.completed[item];
            if operation.invoked > urgent.returned {
                break;
            }
            urgent.consider(item, operation);
            if self.offer(item, start) {
                return;
            }
        }
        self.offer_pending(urgent.returned);
        self.rank(start, urgent.item);
    }

    /// Adds a completed operation that no other must precede as an alternative, if its result fits.
    /// Returns `true` if no other alternative needs to be tried.
    fn offer(&mut self, item: Item, start: usize) -> bool {
        let Completed { action, outcome, needs, gives, .. } = self.history.completed[item];
        if action.apply(self.held.value).0 != outcome {
            return false;
        }
        let Some(next) = gives else {
            self.alternatives.truncate(start);
            self.alternatives.push(item);
            return true;
        };
        let pending_was_needless =
            self.before_pending.is_some_and(|before| action.apply(before.value).0 == outcome);
        let demand = self.demand[self.held.id];
        let others_need = demand.needs > u32::from(needs == Some(self.held.id)) && demand.gives == 0;
        let loses = others_need && next != self.held.id && !self.may_lose;
        if !pending_was_needless && !loses {
            self.alternatives.push(item);
        }
        false
    }

    /// Adds the pending operations that would change something as alternatives.
    fn offer_pending(&mut self, horizon: u64) {
        if self.is_needed(self.held.id) && !self.may_lose {
            return;
        }
        for (i, operation) in self.history.pending.iter().enumerate() {
            if operation.invoked > horizon {
                break;
            }
            let next = operation.action.apply(self.held.value).1;
            let needless =
                |before: KeyState| next == before.value || operation.action.apply(before.value).1 == next;
            let is_useful = next != self.held.value && !self.before_pending.is_some_and(needless);
            let is_twins_turn = operation.twin.is_none_or(|twin| self.is_marked(twin));
            if is_useful && is_twins_turn && !self.is_marked(operation.slot) {
                self.alternatives.push(self.history.completed.len() + i);
            }
        }
    }

    /// Orders the alternatives from `start` on, of which the last is tried first: operations that
    /// would let the urgent operation come next, then those that returned first, then pending
    /// operations, those whose state is needed before others. The order determines only how soon an
    /// order is found.
    fn rank(&mut self, start: usize, urgent: Item) {
        if self.alternatives.len() - start < 2 {
            return;
        }
        let Self { history: Prepared { completed, pending, .. }, held, demand, .. } = self;
        let Completed { action, outcome, .. } = completed[urgent];
        self.alternatives[start..].sort_unstable_by_key(|&item| {
            let (asked, returned) = if let Some(operation) = completed.get(item) {
                (operation.action, operation.returned)
            } else {
                let Pending { action, gives, .. } = pending[item - completed.len()];
                (action, u64::MAX - u64::from(demand[gives].needs > 0))
            };
            let helps = item == urgent || action.apply(asked.apply(held.value).1).0 == outcome;
            Reverse((!helps, returned, item))
        });
    }

    /// Linearizes an operation whose alternatives start at `alternatives`.
    fn place(&mut self, item: Item, alternatives: usize) {
        let (frontier, held, before_pending) = (self.frontier, self.held, self.before_pending);
        self.path.push(Placement { item, alternatives, frontier, held, before_pending });
        if let Some(&Completed { action, slot, needs, gives, .. }) = self.history.completed.get(item) {
            if item < frontier {
                self.unmark(slot);
            } else {
                for passed in frontier..item {
                    let slot = self.history.completed[passed].slot;
                    self.skipped[slot] = passed;
                    self.mark(slot);
                }
                self.frontier = item + 1;
            }
            if let Some(state) = needs {
                self.demand[state].needs -= 1;
            }
            if let Some(state) = gives {
                self.demand[state].gives -= 1;
                self.held = KeyState { value: action.apply(held.value).1, id: state };
            }
            self.before_pending = None;
            self.placed += 1;
        } else {
            let Pending { action, slot, gives, .. } =
                self.history.pending[item - self.history.completed.len()];
            self.mark(slot);
            self.demand[gives].gives -= 1;
            self.before_pending = Some(held);
            self.held = KeyState { value: action.apply(held.value).1, id: gives };
        }
    }

    /// Takes the last operation back and returns the index of its first alternative, or `None` if
    /// no operation is linearized.
    fn undo(&mut self) -> Option<usize> {
        let Placement { item, alternatives, frontier, held, before_pending } = self.path.pop()?;
        self.longest_shared = self.longest_shared.min(self.path.len());
        if let Some(&Completed { slot, needs, gives, .. }) = self.history.completed.get(item) {
            if item < frontier {
                self.skipped[slot] = item;
                self.mark(slot);
            } else {
                for passed in frontier..item {
                    self.unmark(self.history.completed[passed].slot);
                }
            }
            if let Some(state) = needs {
                self.demand[state].needs += 1;
            }
            if let Some(state) = gives {
                self.demand[state].gives += 1;
            }
            self.placed -= 1;
        } else {
            let Pending { slot, gives, .. } = self.history.pending[item - self.history.completed.len()];
            self.unmark(slot);
            self.demand[gives].gives += 1;
        }
        self.frontier = frontier;
        self.held = held;
        self.before_pending = before_pending;
        Some(alternatives)
    }

    /// At the end of a path, keeps it if no path placed more. Pending operations at its end are
    /// dropped.
    fn note_longest(&mut self) {
        if self.placed <= self.longest_placed {
            return;
        }
        let completed = self.history.completed.len();
        let end =
            self.path.iter().rposition(|placement| placement.item < completed).map_or(0, |last| last + 1);
        self.longest.truncate(self.longest_shared);
        self.longest.extend(self.path[self.longest_shared..end].iter().map(|placement| placement.item));
        self.longest_placed = self.placed;
        self.longest_shared = end;
    }
}

/// The operation that returned first, of the operations that are not linearized.
struct Urgent {
    item: Item,
    returned: u64,
}

impl Urgent {
    fn consider(&mut self, item: Item, operation: &Completed) {
        if operation.returned < self.returned {
            *self = Self { item, returned: operation.returned };
        }
    }
}
