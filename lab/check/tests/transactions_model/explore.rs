//! Explores all states of a scenario breadth-first, so that the first trace to a violation is a
//! shortest one.
//!
//! In every state, the results must have an order, and each operation must end in a bounded number
//! of steps if all other clients have stopped. A client that stops forever needs no step: the steps
//! of the others are a run too.
//!
//! Known states are kept as fingerprints of 64 bits. With 10^7 states, two have the same one with a
//! probability of 3 in 10^6; then some of the states would not be explored.

use crate::fingerprint::{Fingerprints, fingerprint};
use crate::scenario::{Op, Scenario};
use crate::state::{ABSENT, Client, KEYS, State, Status, Value, Word};
use crate::turn::{Returned, TraceStep, clean, step};
use std::collections::HashSet;
use std::fmt::Write as _;

/// The violation of strict serializability.
pub(crate) const UNORDERED: &str = "the results have no order";

/// Maximum number of steps of operations that run alone, from any state.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Alone {
    pub(crate) get: usize,
    pub(crate) write: usize,
    /// Transactions and snapshots.
    pub(crate) several: usize,
}

/// The result of an exploration.
pub(crate) struct Outcome {
    /// Distinct states.
    pub(crate) states: usize,
    pub(crate) alone: Alone,
    /// The violation, and a line for every step that leads to it.
    pub(crate) violation: Option<(String, Vec<String>)>,
}

/// Explores `scenario` until a violation. Panics after `limit` states.
pub(crate) fn explore(scenario: &Scenario, limit: usize) -> Outcome {
    let mut known = HashSet::<u64, Fingerprints>::default();
    // For each state, the number of its predecessor, and its index among the successors.
    let mut origins = vec![(0_u32, 0_u8)];
    let mut progress = Progress { known: HashSet::default(), alone: Alone::default() };
    let mut level = vec![(0_u32, scenario.first())];
    while !level.is_empty() {
        let mut deeper = Vec::new();
        for (number, state) in level {
            let mut wrong = progress.check(scenario, &state).map(|what| (what, number));
            for (choice, (_, next)) in successors(scenario, &state).into_iter().enumerate() {
                if wrong.is_some() || !known.insert(fingerprint(&next)) {
                    continue;
                }
                let number_of_next = origins.len() as u32;
                origins.push((number, choice as u8));
                if next.possible.is_empty() {
                    wrong = Some((UNORDERED.to_owned(), number_of_next));
                }
                deeper.push((number_of_next, next));
            }
            if let Some((what, number)) = wrong {
                let trace = trace(scenario, &origins, number);
                return Outcome {
                    states: origins.len(),
                    alone: progress.alone,
                    violation: Some((what, trace)),
                };
            }
        }
        assert!(origins.len() <= limit, "{} has more than {limit} states", scenario.name);
        level = deeper;
    }
    Outcome { states: origins.len(), alone: progress.alone, violation: None }
}

/// All steps from a state.
fn successors(scenario: &Scenario, state: &State) -> Vec<(TraceStep, State)> {
    let mut all: Vec<_> = (0..KEYS).filter_map(|key| clean(scenario, state, key)).collect();
    for client in 0..scenario.clients.len() {
        all.extend((0..KEYS).filter_map(|key| step(scenario, state, client, key)));
    }
    all
}

/// Checks whether operations end if all other clients have stopped.
struct Progress {
    /// Fingerprints of the states that have been checked, without the results.
    known: HashSet<u64, Fingerprints>,
    alone: Alone,
}

impl Progress {
    /// Returns the operation that does not end.
    fn check(&mut self, scenario: &Scenario, state: &State) -> Option<String> {
        for (client, me) in state.clients.iter().enumerate() {
            let Some(op) = state.op(scenario, client) else { continue };
            if !self.known.insert(fingerprint((client, me, state.words, state.records))) {
                continue;
            }
            let (most, limit) = match op {
                Op::Get(_) => (&mut self.alone.get, 2),
                Op::Put(_) | Op::Modify(_) | Op::Insert(_) | Op::Delete(_) => (&mut self.alone.write, 6),
                Op::Transaction { .. } | Op::Snapshot(_) => (&mut self.alone.several, 24 * KEYS),
            };
            let Some((steps, has_effect)) = run_alone(scenario, state, client, limit) else {
                return Some(format!("{op:?} of client {client} does not end in {limit} steps alone"));
            };
            *most = steps.max(*most);
            if !has_effect && me.attempt == 0 {
                return Some(format!("{op:?} of client {client} returns without effect, but ran alone"));
            }
        }
        None
    }
}

/// Runs a client to the end of its operation. Returns the number of steps, and whether the operation
/// has taken effect.
fn run_alone(scenario: &Scenario, state: &State, client: usize, limit: usize) -> Option<(usize, bool)> {
    let mut state = State { possible: vec![], ..state.clone() };
    for steps in 1..=limit {
        let (taken, next) = (0..KEYS).find_map(|key| step(scenario, &state, client, key))?;
        if taken.result != Returned::Not {
            return Some((steps, taken.result != Returned::WithoutEffect));
        }
        state = next;
    }
    None
}

/// Returns the steps to a state, by repeating them.
fn trace(scenario: &Scenario, origins: &[(u32, u8)], mut number: u32) -> Vec<String> {
    let mut choices = Vec::new();
    while number != 0 {
        let (before, choice) = origins[number as usize];
        choices.push(choice);
        number = before;
    }
    let mut state = scenario.first();
    let mut lines = Vec::new();
    for choice in choices.into_iter().rev() {
        let (taken, next) = successors(scenario, &state).swap_remove(usize::from(choice));
        lines.push(describe(scenario, &state, taken, &next));
        state = next;
    }
    lines
}

fn describe(scenario: &Scenario, before: &State, taken: TraceStep, after: &State) -> String {
    let TraceStep { client, key, verb, result } = taken;
    let op = before.op(scenario, client);
    let mut line = match op {
        Some(op) if verb != "cleanup" => format!("client {client}, {op:?}: {verb}, key {key}"),
        _ => format!("client {client}: {verb}, key {key}"),
    };
    if before.words != after.words {
        let (old, new) = (word(before.words[key]), word(after.words[key]));
        let _ = write!(line, "; word {old} becomes {new}");
    }
    for (attempt, (old, new)) in before.records.iter().zip(&after.records).enumerate() {
        if old.status != new.status && new.status != Status::Undecided {
            let _ = write!(line, "; attempt {attempt} is {:?}", new.status);
        }
    }
    let (Client { attempt, .. }, Client { attempt: now, .. }) =
        (before.clients[client], after.clients[client]);
    match (result, op) {
        (Returned::Values(values), Some(op)) => {
            let values: Vec<_> = op.reads().iter().map(|&key| value(values[key])).collect();
            let _ = write!(line, "; returns [{}]", values.join(", "));
        }
        (Returned::WithoutEffect, _) => line.push_str("; returns without effect"),
        _ if now > attempt => line.push_str("; begins again"),
        _ => {}
    }
    line
}

fn word(word: Word) -> String {
    match word {
        Word::Plain(plain) => value(plain),
        Word::Intent(attempt) => format!("intent of attempt {attempt}"),
    }
}

fn value(value: Value) -> String {
    if value == ABSENT { "absent".to_owned() } else { format!("v{value}") }
}
