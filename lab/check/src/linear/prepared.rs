//! One key's operations prepared for the search: sorted, numbered, and with the states that each
//! needs and produces.

use std::mem::{Discriminant, discriminant};

use crate::history::{Action, Operation, Outcome};

/// A state of the key that occurs in the history: [`ABSENT`], or the values from 1 on.
pub(super) type StateId = usize;

/// The key is absent.
const ABSENT: StateId = 0;

/// An operation whose result is known.
#[derive(Clone, Copy, Debug)]
pub(super) struct Completed {
    /// Its index in the input.
    pub(super) index: usize,
    pub(super) action: Action,
    pub(super) outcome: Outcome,
    pub(super) invoked: u64,
    pub(super) returned: u64,
    /// A number that no operation overlapping it has.
    pub(super) slot: usize,
    /// The state that its result observed, if any.
    pub(super) needs: Option<StateId>,
    /// The state it left, or `None` if by its result it leaves the key as it is, whatever its
    /// state.
    pub(super) gives: Option<StateId>,
}

/// An operation that may have taken effect. Searches are not among these.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pending {
    /// Its index in the input.
    pub(super) index: usize,
    pub(super) action: Action,
    pub(super) invoked: u64,
    /// A number that no other operation has.
    pub(super) slot: usize,
    /// The slot of the last pending operation invoked before this one that could replace it: one
    /// with the same action, except for the value it writes if no operation observed or expected
    /// either value.
    pub(super) twin: Option<usize>,
    /// The state it leaves if it takes effect.
    pub(super) gives: StateId,
}

/// The number of operations not yet linearized that need a state, and that may produce it.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Demand {
    pub(super) needs: u32,
    pub(super) gives: u32,
}

/// A history of one key.
#[derive(Debug, Default)]
pub(super) struct Prepared {
    /// By invocation.
    pub(super) completed: Vec<Completed>,
    /// By invocation.
    pub(super) pending: Vec<Pending>,
    /// For each slot of completed operations, when the last one in it returned.
    pub(super) slots: Vec<u64>,
    /// For each state, the demand before any operation is linearized.
    pub(super) demand: Vec<Demand>,
    /// The initial state.
    pub(super) initial: StateId,
    /// The values that occur, in order.
    values: Vec<u64>,
    /// For each state: whether an operation observed or expected it.
    observed: Vec<bool>,
}

impl Prepared {
    /// Replaces the history.
    pub(super) fn take(&mut self, operations: &[Operation], initial: Option<u64>) {
        self.number_states(operations, initial);
        self.completed.clear();
        self.pending.clear();
        for (index, operation) in operations.iter().enumerate() {
            debug_assert_eq!(operation.key, operations[0].key, "operation {index} is of another key");
            let &Operation { action, invoked, returned, .. } = operation;
            match returned {
                Some((returned, outcome)) => {
                    assert!(invoked <= returned, "operation {index} returned before it was invoked");
                    let (needs, gives) = self.needs_and_gives(action, outcome);
                    let completed =
                        Completed { index, action, outcome, invoked, returned, slot: 0, needs, gives };
                    self.completed.push(completed);
                }
                None if action == Action::Get => {}
                None => {
                    let gives = self.id_of(written(action));
                    self.pending.push(Pending { index, action, invoked, slot: 0, twin: None, gives });
                }
            }
        }
        self.completed
            .sort_unstable_by_key(|operation| (operation.invoked, operation.returned, operation.index));
        self.pending.sort_unstable_by_key(|operation| (operation.invoked, operation.index));
        self.count_demand();
        self.mark_observed(operations);
        self.number_slots();
    }

    /// Returns the number of words of 64 slots for the completed operations, and for the pending
    /// ones, which start a new word.
    pub(super) fn slot_words(&self) -> (usize, usize) {
        (self.slots.len().div_ceil(64), self.pending.len().div_ceil(64))
    }

    fn number_states(&mut self, operations: &[Operation], initial: Option<u64>) {
        self.values.clear();
        self.values.extend(initial);
        for operation in operations {
            self.values.extend(written(operation.action));
            self.values.extend(operation.action.expected());
            if let Some((_, Outcome::Found(Some(value)))) = operation.returned {
                self.values.push(value);
            }
        }
        self.values.sort_unstable();
        self.values.dedup();
        self.initial = self.id_of(initial);
    }

    fn id_of(&self, state: Option<u64>) -> StateId {
        state.map_or(ABSENT, |value| 1 + self.values.binary_search(&value).expect("the value occurs"))
    }

    fn needs_and_gives(&self, action: Action, outcome: Outcome) -> (Option<StateId>, Option<StateId>) {
        let needs = match (action, outcome) {
            (_, Outcome::Found(state)) => Some(self.id_of(state)),
            (_, Outcome::Inserted | Outcome::Deleted(false)) | (Action::Update(_), Outcome::Refused) => {
                Some(ABSENT)
            }
            (Action::Replace { expected, .. }, Outcome::Replaced)
            | (Action::DeleteIf(expected), Outcome::Deleted(true)) => Some(self.id_of(Some(expected))),
            _ => None,
        };
        let observes = matches!(outcome, Outcome::Found(_) | Outcome::Refused | Outcome::Deleted(false));
        let gives = (action != Action::Get && !observes).then(|| self.id_of(written(action)));
        (needs, gives)
    }

    fn number_slots(&mut self) {
        self.slots.clear();
        for operation in &mut self.completed {
            let vacant = self.slots.iter().position(|&returned| returned < operation.invoked);
            operation.slot = vacant.unwrap_or(self.slots.len());
            match vacant {
                Some(slot) => self.slots[slot] = operation.returned,
                None => self.slots.push(operation.returned),
            }
        }
        for i in 0..self.pending.len() {
            let work = self.work(&self.pending[i]);
            let twin =
                self.pending[..i].iter().rfind(|other| self.work(other) == work).map(|other| other.slot);
            self.pending[i].twin = twin;
            self.pending[i].slot = self.slots.len().next_multiple_of(64) + i;
        }
    }

    /// Returns the effect of a pending operation, as far as others can distinguish it.
    fn work(&self, operation: &Pending) -> (Discriminant<Action>, Option<u64>, Option<StateId>) {
        let expected = operation.action.expected();
        let gives = Some(operation.gives).filter(|&state| self.observed[state]);
        (discriminant(&operation.action), expected, gives)
    }

    fn mark_observed(&mut self, operations: &[Operation]) {
        self.observed.clear();
        self.observed.extend(self.demand.iter().map(|demand| demand.needs > 0));
        self.observed[ABSENT] = true;
        for operation in operations {
            if let Some(expected) = operation.action.expected() {
                let state = self.id_of(Some(expected));
                self.observed[state] = true;
            }
        }
    }

    fn count_demand(&mut self) {
        self.demand.clear();
        self.demand.resize(1 + self.values.len(), Demand::default());
        for operation in &self.completed {
            if let Some(state) = operation.needs {
                self.demand[state].needs += 1;
            }
            if let Some(state) = operation.gives {
                self.demand[state].gives += 1;
            }
        }
        for operation in &self.pending {
            self.demand[operation.gives].gives += 1;
        }
    }
}

/// Returns the state that an action other than a search leaves if it takes effect.
fn written(action: Action) -> Option<u64> {
    match action {
        Action::Put(value)
        | Action::Insert(value)
        | Action::Update(value)
        | Action::Replace { value, .. } => Some(value),
        Action::Get | Action::Delete | Action::DeleteIf(_) => None,
    }
}
