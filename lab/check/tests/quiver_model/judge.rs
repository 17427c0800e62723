//! Checks histories while they grow: for each key, it keeps the set of all configurations that
//! explain the results so far.
//!
//! A configuration is the key's value and, for every client's operation on the key, whether it is
//! pending or has taken effect, and with which result. An operation that begins makes the set
//! larger, closed under "a pending operation takes effect". One that returns keeps the
//! configurations in which it has taken effect with that result. The history is linearizable as
//! long as the set is not empty. Keys are independent of each other, since linearizability is a
//! local property.
//!
//! Equal sets have equal numbers, so that a state holds one number per key.

use crate::memory::CLIENTS;
use crate::state::Op;
use std::collections::{BTreeSet, HashMap};

/// The progress of one client's operation on the key.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
enum Status {
    Absent,
    Pending(Code),
    Done(u8),
}

/// An operation without its key, as an ordered value.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
enum Code {
    Get,
    Put(u8),
    Insert(u8),
    Delete,
    Rebuild,
}

impl Code {
    fn of(op: Op) -> Self {
        match op {
            Op::Get(_) => Self::Get,
            Op::Put(_, value) => Self::Put(value),
            Op::Insert(_, value) => Self::Insert(value),
            Op::Delete(_) => Self::Delete,
            Op::Rebuild(_) => Self::Rebuild,
        }
    }

    fn apply(self, value: u8) -> (u8, u8) {
        match self {
            Self::Get => Op::Get(0),
            Self::Put(new) => Op::Put(0, new),
            Self::Insert(new) => Op::Insert(0, new),
            Self::Delete => Op::Delete(0),
            Self::Rebuild => Op::Rebuild(0),
        }
        .apply(value)
    }
}

/// One explanation of a history.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
struct Configuration {
    value: u8,
    status: [Status; CLIENTS],
}

type Configurations = BTreeSet<Configuration>;

/// Sets of configurations by number.
#[derive(Debug, Default)]
pub(crate) struct Judge {
    sets: Vec<Configurations>,
    numbers: HashMap<Configurations, u16>,
    begun: HashMap<(u16, usize, Op), u16>,
    returned: HashMap<(u16, usize, u8), Option<u16>>,
}

impl Judge {
    /// Returns the number of "the value, and no operation".
    pub(crate) fn initial(&mut self, value: u8) -> u16 {
        self.number([Configuration { value, status: [Status::Absent; CLIENTS] }].into())
    }

    /// Returns the set after `client` has begun `op`.
    pub(crate) fn begins(&mut self, set: u16, client: usize, op: Op) -> u16 {
        if let Some(&known) = self.begun.get(&(set, client, op)) {
            return known;
        }
        let mut closed = Configurations::new();
        let mut open: Vec<Configuration> = self.sets[set as usize].iter().copied().collect();
        for configuration in &mut open {
            configuration.status[client] = Status::Pending(Code::of(op));
        }
        while let Some(configuration) = open.pop() {
            if !closed.insert(configuration) {
                continue;
            }
            for other in 0..CLIENTS {
                if let Status::Pending(code) = configuration.status[other] {
                    let (value, result) = code.apply(configuration.value);
                    let mut next = Configuration { value, ..configuration };
                    next.status[other] = Status::Done(result);
                    open.push(next);
                }
            }
        }
        let number = self.number(closed);
        self.begun.insert((set, client, op), number);
        number
    }

    /// Returns the set after `client`'s operation has returned `result`; `None` if no configuration
    /// explains that.
    pub(crate) fn returns(&mut self, set: u16, client: usize, result: u8) -> Option<u16> {
        if let Some(&known) = self.returned.get(&(set, client, result)) {
            return known;
        }
        let kept: Configurations = self.sets[set as usize]
            .iter()
            .filter(|configuration| configuration.status[client] == Status::Done(result))
            .map(|&(mut configuration)| {
                configuration.status[client] = Status::Absent;
                configuration
            })
            .collect();
        let number = if kept.is_empty() { None } else { Some(self.number(kept)) };
        self.returned.insert((set, client, result), number);
        number
    }

    fn number(&mut self, set: Configurations) -> u16 {
        if let Some(&number) = self.numbers.get(&set) {
            return number;
        }
        let number = u16::try_from(self.sets.len()).expect("a scenario has few sets");
        self.sets.push(set.clone());
        self.numbers.insert(set, number);
        number
    }
}
