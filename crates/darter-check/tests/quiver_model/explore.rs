//! Explores all states of a scenario in breadth, so that the first trace to a violation is a
//! shortest one.
//!
//! Known states are kept as fingerprints of 64 bits. With 10^7 states, two have the same one with a
//! probability of 3 in 10^6; then a part of the states would go unseen.

use crate::judge::Judge;
use crate::memory::{FRAMES, Kind, Life, WORDS};
use crate::scenario::{Flaw, Scenario};
use crate::state::{Pc, State};
use crate::turn::{Next, Turn};
use std::collections::HashSet;
use std::hash::{BuildHasherDefault, Hash, Hasher};

/// Mixes words by a multiplication to 128 bits.
#[derive(Default)]
struct Mixer(u64);

impl Hasher for Mixer {
    fn finish(&self) -> u64 {
        fold(self.0 ^ 0x9e37_79b9_7f4a_7c15, 0xd6e8_feb8_6659_fd93)
    }

    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.write_u64(u64::from_le_bytes(word));
        }
    }

    fn write_u8(&mut self, value: u8) {
        self.write_u64(u64::from(value));
    }

    fn write_u16(&mut self, value: u16) {
        self.write_u64(u64::from(value));
    }

    fn write_u64(&mut self, value: u64) {
        self.0 = fold(self.0 ^ value ^ 0xa076_1d64_78bd_642f, 0xe703_7ed1_a0b4_28db);
    }
}

fn fold(left: u64, right: u64) -> u64 {
    let product = u128::from(left) * u128::from(right);
    (product as u64) ^ (product >> 64) as u64
}

/// A hasher for what is a fingerprint already.
#[derive(Default)]
struct Fingerprint(u64);

impl Hasher for Fingerprint {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, _: &[u8]) {
        unreachable!("only fingerprints are kept");
    }

    fn write_u64(&mut self, value: u64) {
        self.0 = value;
    }
}

/// What an exploration has found.
#[derive(Debug)]
pub(crate) struct Outcome {
    /// Distinct states.
    pub(crate) states: usize,
    /// Steps from the start to the farthest state.
    pub(crate) depth: usize,
    /// Whether no state was left out.
    pub(crate) complete: bool,
    /// What is wrong, and a line for every step that leads there.
    pub(crate) violation: Option<(&'static str, Vec<String>)>,
}

/// Explores `scenario` with an error planted, or none, until a violation or `limit` states.
pub(crate) fn explore(scenario: &Scenario, flaw: Option<Flaw>, limit: usize) -> Outcome {
    let mut judge = Judge::default();
    let start = scenario.start(&mut judge);
    let mut known: HashSet<u64, BuildHasherDefault<Fingerprint>> = HashSet::default();
    known.insert(fingerprint(&start));
    // For each state, the number of the one before and which of its successors it is.
    let mut origins: Vec<(u32, u16)> = vec![(0, 0)];
    let mut level = vec![(0_u32, start)];
    let mut depth = 0;
    let mut next = Vec::new();
    while !level.is_empty() && known.len() < limit {
        let mut deeper = Vec::new();
        for (number, state) in level {
            next.clear();
            let mut wrong = successors(scenario, flaw, &mut judge, state, &mut next);
            for (choice, &(state, violation)) in next.iter().enumerate() {
                if violation.is_none() && !known.insert(fingerprint(&state)) {
                    continue;
                }
                origins.push((number, choice as u16));
                wrong = wrong.or(violation);
                deeper.push((origins.len() as u32 - 1, state));
                if violation.is_some() {
                    break;
                }
            }
            if let Some(what) = wrong {
                let last = if next.is_empty() { number } else { origins.len() as u32 - 1 };
                let trace = trace(scenario, flaw, &mut judge, &origins, last);
                return Outcome { states: known.len(), depth, complete: false, violation: Some((what, trace)) };
            }
        }
        level = deeper;
        depth += usize::from(!level.is_empty());
    }
    Outcome { states: known.len(), depth, complete: level.is_empty(), violation: None }
}

fn fingerprint(state: &State) -> u64 {
    let mut mixer = Mixer::default();
    state.hash(&mut mixer);
    mixer.finish()
}

/// Puts all states after one step of any client in `out`. Returns what is wrong with `state` itself:
/// a client has no step, or memory is lost at the end.
fn successors(
    scenario: &Scenario,
    flaw: Option<Flaw>,
    judge: &mut Judge,
    state: State,
    out: &mut Vec<Next>,
) -> Option<&'static str> {
    for (client, ops) in scenario.clients.iter().enumerate() {
        let before = out.len();
        Turn { scenario, flaw, judge, client, state, out }.step();
        let done = state.clients[client].pc == Pc::Idle && state.clients[client].begun as usize == ops.len();
        if out.len() == before && !done {
            out.clear();
            return Some("a client has no step");
        }
    }
    (out.is_empty() && !owns_all(&state)).then_some("memory is lost")
}

/// Whether every frame is free or in a slot.
fn owns_all(state: &State) -> bool {
    let linked = |frame: usize| {
        state.slots.iter().any(|slot| slot.is(Kind::Page) && usize::from(slot.second()) == frame)
    };
    (0..FRAMES).all(|frame| match state.frames[frame].life {
        Life::Free => !linked(frame),
        Life::Linked => linked(frame),
        Life::Draft | Life::Retired(_) => false,
    })
}

/// The steps that lead to a state, by going there again.
fn trace(
    scenario: &Scenario,
    flaw: Option<Flaw>,
    judge: &mut Judge,
    origins: &[(u32, u16)],
    last: u32,
) -> Vec<String> {
    let mut choices = Vec::new();
    let mut number = last;
    while number != 0 {
        choices.push(origins[number as usize].1);
        number = origins[number as usize].0;
    }
    let mut state = scenario.start(judge);
    let mut lines = Vec::new();
    let mut next = Vec::new();
    for &choice in choices.iter().rev() {
        next.clear();
        successors(scenario, flaw, judge, state, &mut next);
        let (after, _) = next[choice as usize];
        lines.push(describe(scenario, &state, &after));
        state = after;
    }
    lines
}

/// What a step changes.
fn describe(scenario: &Scenario, before: &State, after: &State) -> String {
    let mut line = String::new();
    for (client, ops) in scenario.clients.iter().enumerate() {
        let (old, new) = (&before.clients[client], &after.clients[client]);
        if old.pc != new.pc || old.begun != new.begun {
            let op = ops[new.begun as usize - 1];
            line += &format!("client {client}, {op:?}: {:?}", new.pc);
        }
    }
    for (slot, (old, new)) in before.slots.iter().zip(&after.slots).enumerate() {
        if old != new {
            line += &format!("; slot {slot} from {old:?} to {new:?}");
        }
    }
    for (frame, (old, new)) in before.frames.iter().zip(&after.frames).enumerate() {
        for place in (0..WORDS).filter(|&place| old.words[place] != new.words[place]) {
            let (old, new) = (old.words[place], new.words[place]);
            line += &format!("; word {place} of frame {frame} from {old:?} to {new:?}");
        }
        if old.life != new.life {
            line += &format!("; frame {frame} from {:?} to {:?}", old.life, new.life);
        }
    }
    line
}
