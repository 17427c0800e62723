//! The outside checker: what a key does, told to it anew, and how much it may do for one answer.
//!
//! The checker has no limit of its own. It asks the specification about every step, and a
//! specification that says no to all ends its search soon: so a budget, counted here, turns an
//! endless search into "unknown".

use crate::history::{Action, Outcome};
use std::cell::Cell;
use todc_utils::linearizability::WGLChecker;
use todc_utils::linearizability::history::{Action as Event, History};
use todc_utils::specifications::Specification;

/// Steps of the outside checker for one answer.
const STEPS_MAX: u64 = 400_000;
/// Bytes that its memory of one search may take: each state it has been in is a byte for each
/// event.
const BYTES_MAX: u64 = 256 << 20;
/// Bytes of such a state beside the events.
const STATE_BYTES: u64 = 64;
/// Operations of one question: beyond, its budget would hardly allow a straight way through.
const OPERATIONS_MAX: usize = 4000;

/// What is known of an operation's end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Told {
    /// The caller was told this.
    Outcome(Outcome),
    /// The caller was told nothing, and its value was found: it took effect.
    Success,
    /// Nothing: if it takes effect, it does what the key allows.
    Nothing,
}

/// One operation, as the outside checker gets it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Judged {
    pub(super) action: Action,
    pub(super) told: Told,
    pub(super) invoked: u64,
    pub(super) returned: u64,
}

impl Judged {
    /// What the key holds after this operation, where its outcome alone tells.
    #[allow(clippy::option_option)] // known or not, and absent or not
    pub(super) fn state_after(&self) -> Option<Option<u64>> {
        let took_effect = match self.told {
            Told::Outcome(outcome) => matches!(outcome, Outcome::Inserted | Outcome::Replaced),
            Told::Success => true,
            Told::Nothing => return None,
        };
        match (self.action, self.told) {
            (Action::Get, Told::Outcome(Outcome::Found(found))) => Some(found),
            (Action::Put(value) | Action::Insert(value) | Action::Update(value), _) if took_effect => {
                Some(Some(value))
            }
            (Action::Replace { value, .. }, _) if took_effect => Some(Some(value)),
            (Action::DeleteIf(_), Told::Outcome(Outcome::Deleted(true)))
            | (Action::Delete | Action::Update(_), _) => Some(None),
            _ => None,
        }
    }
}

/// What came of a question.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    Yes,
    No,
    /// It would take more than the budget.
    Unknown,
}

/// A step of the specification.
#[derive(Clone, Copy, Debug)]
enum Step {
    /// The key holds this; before all else.
    Begin(Option<u64>),
    Operation(Action, Told),
}

/// One key as a sequential object. It shares nothing with [`Action::apply`]: a mistake there must
/// not hide itself.
struct Key;

thread_local! {
    /// Steps and bytes left for the question at hand, and the bytes that each state takes.
    static BUDGET: Cell<(u64, u64, u64)> = const { Cell::new((0, 0, 0)) };
}

impl Specification for Key {
    type State = Option<u64>;
    type Operation = Step;

    fn init() -> Self::State {
        None
    }

    fn apply(step: &Step, held: &Self::State) -> (bool, Self::State) {
        let (steps, bytes, each) = BUDGET.get();
        if steps == 0 || bytes < each {
            BUDGET.set((0, bytes, each));
            return (false, *held);
        }
        let (is_allowed, next) = allowed(step, *held);
        BUDGET.set((steps - 1, if is_allowed { bytes - each } else { bytes }, each));
        (is_allowed, next)
    }
}

/// Whether a step is possible where the key holds `held`, and what it holds next.
fn allowed(step: &Step, held: Option<u64>) -> (bool, Option<u64>) {
    let (action, told) = match *step {
        Step::Begin(initial) => return (true, initial),
        Step::Operation(action, told) => (action, told),
    };
    let is_there = held.is_some();
    let (outcome, next) = match action {
        Action::Get => (Outcome::Found(held), held),
        Action::Delete => (Outcome::Deleted(is_there), None),
        Action::Put(value) => (if is_there { Outcome::Replaced } else { Outcome::Inserted }, Some(value)),
        Action::Insert(value) if !is_there => (Outcome::Inserted, Some(value)),
        Action::Update(value) if is_there => (Outcome::Replaced, Some(value)),
        Action::Replace { expected, value } if held == Some(expected) => (Outcome::Replaced, Some(value)),
        Action::DeleteIf(expected) if held == Some(expected) => (Outcome::Deleted(true), None),
        Action::Insert(_) | Action::Update(_) | Action::Replace { .. } | Action::DeleteIf(_) => {
            (Outcome::Refused, held)
        }
    };
    let is_allowed = match told {
        Told::Outcome(told) => told == outcome,
        Told::Success => outcome != Outcome::Refused,
        Told::Nothing => true,
    };
    (is_allowed, next)
}

/// Whether the operations and any of the optional ones have an order that begins where the key
/// holds `state`.
pub(super) fn ask(operations: &[Judged], optional: &[Judged], state: Option<u64>) -> Answer {
    let count = operations.len() + optional.len();
    if count > OPERATIONS_MAX {
        return Answer::Unknown;
    }
    let mut events = Vec::with_capacity(2 * count);
    for (process, judged) in (1..).zip(operations.iter().chain(optional)) {
        events.push((judged.invoked, false, process, judged));
        events.push((judged.returned, true, process, judged));
    }
    // Of events at one moment the invocations come first: such operations overlap.
    events.sort_by_key(|&(time, returns, process, _)| (time, returns, process));
    let begin = Step::Begin(state);
    let mut history = vec![(0, Event::Call(begin)), (0, Event::Response(begin))];
    history.extend(events.into_iter().map(|(_, returns, process, judged)| {
        let step = Step::Operation(judged.action, judged.told);
        (process, if returns { Event::Response(step) } else { Event::Call(step) })
    }));
    BUDGET.set((STEPS_MAX, BYTES_MAX, history.len() as u64 + STATE_BYTES));
    let is_linearizable = WGLChecker::<Key>::is_linearizable(History::from_actions(history));
    let (steps, ..) = BUDGET.get();
    match (is_linearizable, steps) {
        (true, _) => Answer::Yes,
        (false, 0) => Answer::Unknown,
        (false, _) => Answer::No,
    }
}
