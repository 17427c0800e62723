//! Explores all states of a scenario breadth first, so that the first trace to a violation is a
//! shortest one.
//!
//! Visited states are stored as 64-bit fingerprints. With 10^7 states, two have the same
//! fingerprint with a probability of 3 in 10^6; then a part of the states would be missed.

use crate::judge::Judge;
use crate::state::{Client, Flaw, Log, REPLICAS, Replica, State, View};
use crate::step::{Next, Scenario, Turn};
use std::collections::HashSet;
use std::hash::{BuildHasherDefault, Hash, Hasher};

/// Mixes words of eight small values, each by a multiplication to 128 bits.
#[derive(Default)]
struct Mixer {
    mixed: u64,
    word: u64,
}

impl Mixer {
    fn mix(&mut self) {
        self.mixed = fold(self.mixed ^ self.word ^ 0xa076_1d64_78bd_642f, 0xe703_7ed1_a0b4_28db);
        self.word = 0;
    }
}

impl Hasher for Mixer {
    fn finish(&self) -> u64 {
        fold(self.mixed ^ self.word.rotate_left(32) ^ 0x9e37_79b9_7f4a_7c15, 0xd6e8_feb8_6659_fd93)
    }

    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.write_u8(byte);
        }
    }

    fn write_u8(&mut self, value: u8) {
        // A word that has eight values is full: its first one, which is never 0, is at the top.
        if self.word >> 56 != 0 {
            self.mix();
        }
        let first = u64::from(self.word == 0) << 8;
        self.word = (self.word << 8) | first | u64::from(value);
    }

    fn write_u16(&mut self, value: u16) {
        self.write(&value.to_le_bytes());
    }

    fn write_u32(&mut self, value: u32) {
        self.write(&value.to_le_bytes());
    }

    fn write_isize(&mut self, value: isize) {
        self.write_u8(value as u8);
    }
}

fn fold(left: u64, right: u64) -> u64 {
    let product = u128::from(left) * u128::from(right);
    (product as u64) ^ (product >> 64) as u64
}

/// A hasher for keys that are already fingerprints.
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

/// Result of an exploration.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) states: usize,
    /// States in which every client has finished.
    pub(crate) ended: usize,
    pub(crate) is_complete: bool,
    /// The violation, and one line for every step that leads to it.
    pub(crate) violation: Option<(&'static str, Vec<String>)>,
}

impl Scenario {
    fn start(&self) -> State {
        let all = (1_u8 << self.replicas) - 1;
        let view = View { number: 1, primary: 0, backups: all & !1 };
        let mut replicas = [Replica::default(); REPLICAS];
        for replica in &mut replicas[..self.replicas] {
            *replica = Replica { is_alive: true, is_sound: true, view, ..Replica::default() };
        }
        if self.learns {
            replicas[self.replicas] = Replica { is_alive: true, view, ..Replica::default() };
        }
        replicas[0].attached = view.backups;
        replicas[0].has_lease = true;
        let mut views = [View::default(); 5];
        views[0] = view;
        let client = Client { index: 0, waits: false, target: 0, switches: self.switches };
        State {
            views,
            current: 0,
            replicas,
            clients: [client; 2],
            requests: 0,
            deaths: self.deaths,
            judgement: 0,
        }
    }

    fn has_ended(&self, state: &State) -> bool {
        let mut clients = state.clients.iter().zip(self.programs);
        clients.all(|(client, program)| usize::from(client.index) == program.len())
    }
}

/// Whether two replicas that serve or would serve disagree about a record that both have.
fn disagreement(state: &State) -> Option<&'static str> {
    let sound = |replica: &&Replica| replica.is_alive && replica.is_sound;
    let sound: Vec<&Log> = state.replicas.iter().filter(sound).map(|replica| &replica.log).collect();
    for (at, left) in sound.iter().enumerate() {
        for record in left.iter() {
            let times =
                left.iter().filter(|other| (other.client, other.index) == (record.client, record.index));
            if times.count() > 1 {
                return Some("a frame was executed twice");
            }
        }
        for right in &sound[at + 1..] {
            let last = left.len().min(right.len()).checked_sub(1);
            let is_same_place =
                |at: u8| left.get(at).map(|record| record.view) == right.get(at).map(|record| record.view);
            let differ = |last: u8| (0..=last).any(|at| left.get(at) != right.get(at));
            if last.is_some_and(|last| is_same_place(last) && differ(last)) {
                return Some("logs with the same last record differ");
            }
        }
    }
    None
}

/// Explores a scenario, with or without a planted error, until a violation or `limit` states.
pub(crate) fn explore(scenario: &Scenario, flaw: Option<Flaw>, limit: usize) -> Outcome {
    let mut judge = Judge::default();
    let mut known: HashSet<u64, BuildHasherDefault<Fingerprint>> = HashSet::default();
    // For each state found: its predecessor, and its index among the predecessor's successors.
    let mut origins: Vec<(u32, u16)> = vec![(0, 0)];
    let start = scenario.start();
    known.insert(fingerprint(scenario, &start));
    let mut level = vec![(0_u32, start)];
    let (mut next, mut ended) = (Vec::new(), 0);
    while !level.is_empty() && origins.len() < limit {
        let mut deeper = Vec::new();
        for (number, state) in level {
            ended += usize::from(scenario.has_ended(&state));
            successors(scenario, flaw, &mut judge, state, &mut next);
            for (choice, (_, state, wrong)) in next.iter().enumerate() {
                if !known.insert(fingerprint(scenario, state)) {
                    continue;
                }
                let new = origins.len() as u32;
                origins.push((number, choice as u16));
                if let Some(what) = wrong.or_else(|| disagreement(state)) {
                    let trace = trace(scenario, flaw, &mut judge, &origins, new);
                    let violation = Some((what, trace));
                    return Outcome { states: origins.len(), ended, is_complete: false, violation };
                }
                deeper.push((new, *state));
            }
        }
        level = deeper;
    }
    Outcome { states: origins.len(), ended, is_complete: level.is_empty(), violation: None }
}

/// The fingerprint of a state and of its mirror image, in which the first primary's two backups are
/// exchanged.
fn fingerprint(scenario: &Scenario, state: &State) -> u64 {
    let of = |state: &State| {
        let mut mixer = Mixer::default();
        state.hash(&mut mixer);
        mixer.finish()
    };
    if scenario.replicas < 3 { of(state) } else { of(state).min(of(&state.mirrored())) }
}

fn successors(scenario: &Scenario, flaw: Option<Flaw>, judge: &mut Judge, state: State, out: &mut Vec<Next>) {
    out.clear();
    // After the last reply only the logs can still be wrong, and further requests would have to
    // expose that.
    if !scenario.has_ended(&state) {
        Turn { scenario, flaw, judge, state, out }.take_all();
    }
}

/// Returns the steps from the start to a state, by replaying them.
fn trace(
    scenario: &Scenario,
    flaw: Option<Flaw>,
    judge: &mut Judge,
    origins: &[(u32, u16)],
    mut number: u32,
) -> Vec<String> {
    let mut way = Vec::new();
    while number != 0 {
        let (before, choice) = origins[number as usize];
        way.push(choice);
        number = before;
    }
    let (mut state, mut next, mut lines) = (scenario.start(), Vec::new(), Vec::new());
    for choice in way.into_iter().rev() {
        successors(scenario, flaw, judge, state, &mut next);
        let (step, after, _) = next[usize::from(choice)];
        lines.push(format!("{step:?}"));
        state = after;
    }
    lines
}
