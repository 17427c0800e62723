//! Judges histories as they grow: keeps the set of all configurations that explain the replies so
//! far. Equal sets have equal numbers, so that a state stores one number.
//!
//! A configuration is the word's value, the set of fenced clients, and for every client's operation
//! whether it is pending or has taken effect with which result. The start of an operation enlarges
//! the set, closed under "a pending operation takes effect". A reply keeps the configurations in
//! which the operation has taken effect with that result. The history is linearizable as long as
//! the set is not empty.

use crate::state::{CLIENTS, Op};
use std::collections::{BTreeSet, HashMap};

/// Status of one client's operation.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
enum Status {
    Absent,
    Pending(Op),
    Done(u8),
}

/// One way to explain a history.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
struct Configuration {
    value: u8,
    fenced: u8,
    status: [Status; CLIENTS],
}

type Set = BTreeSet<Configuration>;

/// The sets found so far.
#[derive(Debug)]
pub(crate) struct Judge {
    sets: Vec<Set>,
    numbers: HashMap<Set, u32>,
}

impl Default for Judge {
    fn default() -> Self {
        let start = Configuration { value: 0, fenced: 0, status: [Status::Absent; CLIENTS] };
        let start = Set::from([start]);
        Self { sets: vec![start.clone()], numbers: HashMap::from([(start, 0)]) }
    }
}

impl Judge {
    fn number(&mut self, set: Set) -> Option<u32> {
        if set.is_empty() {
            return None;
        }
        if let Some(&number) = self.numbers.get(&set) {
            return Some(number);
        }
        let number = self.sets.len() as u32;
        self.sets.push(set.clone());
        self.numbers.insert(set, number);
        Some(number)
    }

    /// A client begins an operation. Returns the number of the new set.
    pub(crate) fn begin(&mut self, number: u32, client: usize, op: Op) -> u32 {
        let mut open: Vec<_> = self.sets[number as usize].iter().copied().collect();
        for configuration in &mut open {
            configuration.status[client] = Status::Pending(op);
        }
        let mut set = Set::new();
        while let Some(configuration) = open.pop() {
            if set.insert(configuration) {
                open.extend((0..CLIENTS).filter_map(|client| takes_effect(configuration, client)));
            }
        }
        self.number(set).unwrap_or(0)
    }

    /// A client's operation returns. Returns the number of the new set; `None` if no configuration
    /// explains the result.
    pub(crate) fn answer(&mut self, number: u32, client: usize, result: u8) -> Option<u32> {
        let set = &self.sets[number as usize];
        let explained = set.iter().filter(|known| known.status[client] == Status::Done(result));
        let rest = explained.map(|known| without(*known, client)).collect();
        self.number(rest)
    }

    /// A client's operation is refused for good: it has taken effect, or never will.
    pub(crate) fn refuse(&mut self, number: u32, client: usize) -> Option<u32> {
        let rest = self.sets[number as usize].iter().map(|known| without(*known, client)).collect();
        self.number(rest)
    }
}

fn without(mut configuration: Configuration, client: usize) -> Configuration {
    configuration.status[client] = Status::Absent;
    configuration
}

fn takes_effect(mut configuration: Configuration, client: usize) -> Option<Configuration> {
    let Status::Pending(op) = configuration.status[client] else { return None };
    let result = match op {
        Op::Add if configuration.fenced >> client & 1 != 0 => return None,
        Op::Add => {
            configuration.value += 1;
            configuration.value - 1
        }
        Op::Read => configuration.value,
        Op::Fence => {
            configuration.fenced |= 1 << (1 - client);
            0
        }
    };
    configuration.status[client] = Status::Done(result);
    Some(configuration)
}
