//! Explores all states of a scenario breadth-first, so that the first trace to a violation is a
//! shortest one.
//!
//! These properties must hold: every result is explained by an order of the operations; every
//! client that has not returned has a step, whatever the others do; no memory is lost at the end;
//! and no state recurs. Then each run ends, and if clients stop for ever at any step, the others
//! end all the same, since their steps are a run too.
//!
//! Known states are kept as fingerprints of 64 bits. With 10^7 states, two have the same one with a
//! probability of 3 in 10^6; then some of the states would not be explored.

use crate::fingerprint::{Fingerprints, fingerprint};
use crate::judge::Judge;
use crate::memory::{FRAMES, Kind, Life, WORDS};
use crate::scenario::{Flaw, Scenario};
use crate::situation::Situations;
use crate::state::{Pc, State};
use crate::turn::{Next, Turn};
use std::collections::HashMap;
use std::fmt::Write as _;

/// The result of an exploration.
#[derive(Debug)]
pub(crate) struct Outcome {
    /// Distinct states.
    pub(crate) states: usize,
    /// Whether no state was left out.
    pub(crate) complete: bool,
    pub(crate) met: Situations,
    /// The violation, and a line for every step that leads to it.
    pub(crate) violation: Option<(&'static str, Vec<String>)>,
}

/// Explores `scenario` with an error planted, or none, until a violation or `limit` states.
pub(crate) fn explore(scenario: &Scenario, flaw: Option<Flaw>, limit: usize) -> Outcome {
    let mut judge = Judge::default();
    let mut met = Situations::default();
    let start = scenario.start(&mut judge);
    let mut graph = Graph::default();
    graph.number(&start, (0, 0));
    let mut level = vec![start];
    let mut next = Vec::new();
    while !level.is_empty() && graph.origins.len() < limit {
        let mut deeper = Vec::new();
        for state in level {
            let number = graph.first.len() as u32;
            graph.first.push(graph.edges.len() as u32);
            next.clear();
            let mut wrong = successors(scenario, flaw, &mut judge, &mut met, state, &mut next);
            let mut last = number;
            for (choice, (state, violation)) in next.iter().enumerate() {
                let origin = (number, choice as u16);
                if violation.is_some() {
                    (wrong, last) = (*violation, graph.origins.len() as u32);
                    graph.origins.push(origin);
                    break;
                }
                let (to, is_new) = graph.number(state, origin);
                graph.edges.push(to);
                if is_new {
                    deeper.push(*state);
                }
            }
            if let Some(what) = wrong {
                let trace = trace(scenario, flaw, &mut judge, &graph.way_to(last));
                return Outcome {
                    states: graph.origins.len(),
                    complete: false,
                    met,
                    violation: Some((what, trace)),
                };
            }
        }
        level = deeper;
    }
    let (states, complete) = (graph.origins.len(), level.is_empty());
    let way = if complete { graph.cycle() } else { None };
    let violation = way.map(|way| ("operations may go on for ever", trace(scenario, flaw, &mut judge, &way)));
    Outcome { states, complete, met, violation }
}

/// The states and steps seen so far. States are numbered in the order in which they are found, and
/// are expanded in the same order.
#[derive(Default)]
struct Graph {
    numbers: HashMap<u64, u32, Fingerprints>,
    /// For each state, the number of its predecessor, and its index among the predecessor's
    /// successors.
    origins: Vec<(u32, u16)>,
    /// For each expanded state, the place of its first successor in `edges`.
    first: Vec<u32>,
    edges: Vec<u32>,
}

impl Graph {
    /// Returns a state's number, and whether it is new.
    fn number(&mut self, state: &State, origin: (u32, u16)) -> (u32, bool) {
        let new = self.origins.len() as u32;
        let number = *self.numbers.entry(fingerprint(state)).or_insert(new);
        if number == new {
            self.origins.push(origin);
        }
        (number, number == new)
    }

    /// The successors of a state, by number.
    fn after(&self, number: usize) -> &[u32] {
        let end = self.first.get(number + 1).map_or(self.edges.len(), |&end| end as usize);
        &self.edges[self.first[number] as usize..end]
    }

    /// The successor to take in each state on a shortest way to this one.
    fn way_to(&self, mut number: u32) -> Vec<u16> {
        let mut way = Vec::new();
        while number != 0 {
            let (before, choice) = self.origins[number as usize];
            way.push(choice);
            number = before;
        }
        way.reverse();
        way
    }

    /// Returns a way to a state and then around a cycle, if there is one.
    ///
    /// Removes states without predecessors, with their steps, as long as there are any. The
    /// remaining states are on cycles or after them.
    fn cycle(&self) -> Option<Vec<u16>> {
        let mut before = vec![0_u32; self.first.len()];
        for &to in &self.edges {
            before[to as usize] += 1;
        }
        let mut open: Vec<usize> = (0..before.len()).filter(|&number| before[number] == 0).collect();
        let mut gone = vec![false; before.len()];
        while let Some(number) = open.pop() {
            gone[number] = true;
            for &to in self.after(number) {
                before[to as usize] -= 1;
                if before[to as usize] == 0 {
                    open.push(to as usize);
                }
            }
        }
        let left = gone.iter().position(|&gone| !gone)?;
        // Each remaining state has a remaining predecessor: going back leads to a cycle.
        let mut from = vec![None; gone.len()];
        for number in (0..gone.len()).filter(|&number| !gone[number]) {
            for (choice, &to) in self.after(number).iter().enumerate() {
                from[to as usize] = Some((number, choice as u16));
            }
        }
        let mut seen = vec![false; gone.len()];
        let mut number = left;
        while !std::mem::replace(&mut seen[number], true) {
            number = from[number]?.0;
        }
        let mut around = Vec::new();
        let mut at = number;
        loop {
            let (before, choice) = from[at]?;
            around.push(choice);
            at = before;
            if at == number {
                break;
            }
        }
        let mut way = self.way_to(number as u32);
        way.extend(around.iter().rev());
        Some(way)
    }
}

/// Puts all states after one step of any client in `out`. Returns a violation in `state` itself: a
/// client has no step, or memory is lost at the end.
fn successors(
    scenario: &Scenario,
    flaw: Option<Flaw>,
    judge: &mut Judge,
    met: &mut Situations,
    state: State,
    out: &mut Vec<Next>,
) -> Option<&'static str> {
    for (client, ops) in scenario.clients.iter().enumerate() {
        let before = out.len();
        Turn { scenario, flaw, judge, client, met, state, out }.step();
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

/// Returns the steps of a way from the start, by repeating it.
fn trace(scenario: &Scenario, flaw: Option<Flaw>, judge: &mut Judge, way: &[u16]) -> Vec<String> {
    let mut state = scenario.start(judge);
    let mut lines = Vec::new();
    let mut next = Vec::new();
    for &choice in way {
        next.clear();
        successors(scenario, flaw, judge, &mut Situations::default(), state, &mut next);
        let (after, _) = next[choice as usize];
        lines.push(describe(scenario, &state, &after));
        state = after;
    }
    lines
}

/// Describes the changes of a step.
fn describe(scenario: &Scenario, before: &State, after: &State) -> String {
    let mut line = String::new();
    for (client, ops) in scenario.clients.iter().enumerate() {
        let (old, new) = (&before.clients[client], &after.clients[client]);
        if old.pc != new.pc || old.begun != new.begun {
            let op = ops[new.begun as usize - 1];
            let _ = write!(line, "client {client}, {op:?}: {:?}", new.pc);
        }
    }
    for (slot, (old, new)) in before.slots.iter().zip(&after.slots).enumerate() {
        if old != new {
            let _ = write!(line, "; slot {slot} from {old:?} to {new:?}");
        }
    }
    for (frame, (old, new)) in before.frames.iter().zip(&after.frames).enumerate() {
        for place in (0..WORDS).filter(|&place| old.words[place] != new.words[place]) {
            let (old, new) = (old.words[place], new.words[place]);
            let _ = write!(line, "; word {place} of frame {frame} from {old:?} to {new:?}");
        }
        if old.life != new.life {
            let _ = write!(line, "; frame {frame} from {:?} to {:?}", old.life, new.life);
        }
    }
    line
}
