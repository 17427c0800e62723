//! Histories to check: executions that are linearizable by construction, and disturbed versions of
//! them.

use std::ops::RangeInclusive;

use darter_check::history::{Action, Operation, Outcome};
use proptest::prelude::*;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

/// The plan for one operation of a sequential execution.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sketch {
    action: Action,
    /// How far its interval extends before and after the moment it takes effect; there is a moment
    /// every 10.
    reach: (u64, u64),
    fate: Fate,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Answered,
    /// Took effect without returning.
    Cut,
    /// Neither returned nor took effect.
    Ignored,
}

fn actions() -> impl Strategy<Value = Action> {
    let value = 0..3_u64;
    prop_oneof![
        4 => Just(Action::Get),
        2 => value.clone().prop_map(Action::Put),
        2 => value.clone().prop_map(Action::Insert),
        1 => value.clone().prop_map(Action::Update),
        1 => (value.clone(), value.clone()).prop_map(|(expected, value)| Action::Replace { expected, value }),
        2 => Just(Action::Delete),
        1 => value.prop_map(Action::DeleteIf),
    ]
}

/// A key's initial value, and the operations of a sequential execution on it.
pub(crate) fn sketches(count: RangeInclusive<usize>) -> impl Strategy<Value = (Option<u64>, Vec<Sketch>)> {
    let fate = prop_oneof![6 => Just(Fate::Answered), 1 => Just(Fate::Cut), 1 => Just(Fate::Ignored)];
    let reach = (0..25_u64, 0..25_u64);
    let sketch = (actions(), reach, fate).prop_map(|(action, reach, fate)| Sketch { action, reach, fate });
    (proptest::option::of(0..3_u64), proptest::collection::vec(sketch, count))
}

/// Executes the sketches one after another and stretches the moments to intervals.
pub(crate) fn stretched(initial: Option<u64>, sketches: &[Sketch]) -> Vec<Operation> {
    let mut state = initial;
    let mut operations = Vec::new();
    for (client, &Sketch { action, reach, fate }) in (0..).zip(sketches) {
        let moment = 30 + 10 * u64::from(client);
        let mut returned = None;
        if fate != Fate::Ignored {
            let (outcome, next) = action.apply(state);
            state = next;
            returned = (fate == Fate::Answered).then_some((moment + reach.1, outcome));
        }
        operations.push(Operation { client, key: 7, action, invoked: moment - reach.0, returned });
    }
    operations
}

/// Stretched executions of which up to three operations were changed.
pub(crate) fn perturbed(
    count: RangeInclusive<usize>,
) -> impl Strategy<Value = (Option<u64>, Vec<Operation>)> {
    (sketches(count), 0..4_usize, any::<u64>()).prop_map(|((initial, sketches), disturbances, seed)| {
        let mut operations = stretched(initial, &sketches);
        let mut dice = Pcg64Mcg::seed_from_u64(seed);
        for _ in 0..disturbances {
            disturb(&mut dice, &mut operations);
        }
        (initial, operations)
    })
}

/// The parameters of an execution.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mix {
    pub(crate) clients: usize,
    /// Number of values, or `None` if each is written once.
    pub(crate) values: Option<u64>,
    /// One operation in this many does not return; none if zero.
    pub(crate) pending: u64,
}

/// A client's operation in progress.
#[derive(Clone, Copy)]
struct Running {
    index: usize,
    outcome: Option<Outcome>,
}

/// Lets clients act, one event at a time: one invokes an operation, or its operation takes effect
/// or returns. A client whose operation does not return continues with another under a new name.
pub(crate) fn executed(dice: &mut Pcg64Mcg, mix: Mix, initial: Option<u64>, count: usize) -> Vec<Operation> {
    let mut operations: Vec<Operation> = Vec::new();
    let mut running: Vec<Option<Running>> = vec![None; mix.clients];
    let mut names: Vec<u32> = (0..mix.clients as u32).collect();
    let mut state = initial;
    let mut now = 0;
    while operations.len() < count || running.iter().any(Option::is_some) {
        // Sometimes two events share a moment.
        now += u64::from(dice.random_range(0..4) != 0);
        let client = dice.random_range(0..mix.clients);
        match &mut running[client] {
            idle @ None => {
                if operations.len() < count {
                    let action = any_action(dice, mix.values, operations.len() as u64);
                    *idle = Some(Running { index: operations.len(), outcome: None });
                    let client = names[client];
                    operations.push(Operation { client, key: 7, action, invoked: now, returned: None });
                }
            }
            Some(Running { index, outcome: effect @ None }) => {
                if mix.pending > 0 && dice.random_range(0..mix.pending * 2) == 0 {
                    running[client] = None;
                    names[client] += mix.clients as u32;
                } else {
                    let (outcome, next) = operations[*index].action.apply(state);
                    state = next;
                    *effect = Some(outcome);
                }
            }
            Some(Running { index, outcome: Some(outcome) }) => {
                if mix.pending > 0 && dice.random_range(0..mix.pending * 2) == 0 {
                    names[client] += mix.clients as u32;
                } else {
                    operations[*index].returned = Some((now, *outcome));
                }
                running[client] = None;
            }
        }
    }
    operations
}

fn any_action(dice: &mut Pcg64Mcg, values: Option<u64>, serial: u64) -> Action {
    let value = values.map_or(serial, |values| dice.random_range(0..values));
    match dice.random_range(0..20) {
        0..9 => Action::Get,
        9..13 => Action::Put(value),
        13..15 => Action::Insert(value),
        15..17 => Action::Update(value),
        17 => {
            let expected = values.map_or(serial.saturating_sub(dice.random_range(0..20_u64)), |values| {
                dice.random_range(0..values)
            });
            Action::Replace { expected, value }
        }
        _ => Action::Delete,
    }
}

/// Changes one operation: its result, its action, its interval, or whether it returned.
pub(crate) fn disturb(dice: &mut Pcg64Mcg, operations: &mut [Operation]) {
    let operation = &mut operations[dice.random_range(0..operations.len())];
    let Some((returned, outcome)) = &mut operation.returned else {
        operation.invoked += dice.random_range(0..20);
        return;
    };
    match dice.random_range(0..6) {
        0..3 => {
            *outcome = match (operation.action, *outcome) {
                (Action::Get, _) => {
                    Outcome::Found([None, Some(0), Some(1), Some(2)][dice.random_range(0..4)])
                }
                (Action::Delete, _) => Outcome::Deleted(dice.random_bool(0.5)),
                (Action::Put(_), Outcome::Inserted) => Outcome::Replaced,
                (Action::Put(_), _) | (Action::Insert(_), Outcome::Refused) => Outcome::Inserted,
                (Action::DeleteIf(_), Outcome::Refused) => Outcome::Deleted(true),
                (_, Outcome::Refused) => Outcome::Replaced,
                _ => Outcome::Refused,
            }
        }
        3 => *returned = operation.invoked,
        4 => operation.invoked = *returned,
        _ => operation.returned = None,
    }
}
