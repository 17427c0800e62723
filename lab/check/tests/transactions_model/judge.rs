//! Strict serializability: every operation takes effect at one moment between its first step and
//! its return, all keys at once. One that has not returned may have taken effect or not.
//!
//! Effects are put in order only when an operation returns, and then only effects that must precede
//! its own. This finds an order if there is one: an effect can be moved to the moment just before
//! the next return, together with all that follow it.

use crate::scenario::Scenario;
use crate::state::{CLIENTS, KEYS, State, Values};

/// A map that the results so far permit.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Possible {
    map: [u8; KEYS],
    /// Results of the operations that have taken effect but not returned, by client.
    results: [Option<Values>; CLIENTS],
}

impl Possible {
    pub(crate) fn new(map: Values) -> Self {
        Self { map, results: [None; CLIENTS] }
    }
}

/// Records that the operation of a client returns these values, or that it returns without effect.
/// `possible` becomes empty if no order exists.
pub(crate) fn narrow(scenario: &Scenario, state: &mut State, returning: usize, result: Option<Values>) {
    let mut open = std::mem::take(&mut state.possible);
    let mut narrowed = Vec::new();
    while let Some(mut one) = open.pop() {
        if one.results[returning] == result {
            one.results[returning] = None;
            narrowed.push(one);
            continue;
        }
        if one.results[returning].is_some() {
            continue;
        }
        for client in 0..scenario.clients.len() {
            let (true, Some(op)) = (state.clients[client].running, state.op(scenario, client)) else {
                continue;
            };
            if one.results[client].is_none() {
                let mut next = one;
                let number = scenario.number(client, state.clients[client].place);
                next.results[client] = Some(op.apply(number, &mut next.map));
                open.push(next);
            }
        }
    }
    narrowed.sort_unstable();
    narrowed.dedup();
    state.possible = narrowed;
}
