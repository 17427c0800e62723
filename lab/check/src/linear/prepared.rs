//! One key's operations made ready for the search: sorted, numbered, and what each needs and gives.

use std::mem::{Discriminant, discriminant};

use crate::history::{Action, Operation, Outcome};

/// A state of the key that occurs in the history: [`ABSENT`], the values from one on.
pub(super) type StateId = usize;

/// The key is absent.
const ABSENT: StateId = 0;

/// An operation whose outcome is known.
#[derive(Clone, Copy, Debug)]
pub(super) struct Completed {
    /// Where it is in the input.
    pub(super) index: usize,
    pub(super) action: Action,
    pub(super) outcome: Outcome,
    pub(super) invoked: u64,
    pub(super) returned: u64,
    /// A number that no operation overlapping it has.
    pub(super) slot: usize,
    /// The state it was told of, if its outcome tells one.
    pub(super) needs: Option<StateId>,
    /// The state it left, or `None` if it was told something that leaves the key as it is, whatever it holds.
    pub(super) gives: Option<StateId>,
}

/// An operation that may have taken effect. Searches are not among these.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pending {
    /// Where it is in the input.
    pub(super) index: usize,
    pub(super) action: Action,
    pub(super) invoked: u64,
    /// A number that no other operation has.
    pub(super) slot: usize,
    /// The slot of the last pending operation invoked before this one that could do its work: one that asked the same, but
    /// for the value it writes if nobody was told of either value or asked for it.
    pub(super) twin: Option<usize>,
    /// The state it leaves if it does anything.
    pub(super) gives: StateId,
}

/// How many of the operations that are not linearized need a state, and how many may give it.
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
    /// For each slot of completed operations, when the last one there returned.
    pub(super) slots: Vec<u64>,
    /// Where nothing is linearized: for each state.
    pub(super) demand: Vec<Demand>,
    /// The state at first.
    pub(super) initial: StateId,
    /// The values that occur, in order.
    values: Vec<u64>,
    /// For each state: whether an operation was told of it or asked for it.
    observed: Vec<bool>,
}

impl Prepared {
    /// Take another history.
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

    /// How many words of 64 slots the completed operations take, and how many the pending ones, which begin a new one.
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

    /// What a pending operation can do, as far as others can tell.
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

/// The state that an action, which is not a search, leaves if it does anything.
fn written(action: Action) -> Option<u64> {
    match action {
        Action::Put(value)
        | Action::Insert(value)
        | Action::Update(value)
        | Action::Replace { value, .. } => Some(value),
        Action::Get | Action::Delete | Action::DeleteIf(_) => None,
    }
}
