//! The content of the pool, and the progress of the clients.

use crate::judge::Possible;
use crate::scenario::{Op, Scenario};

/// Maximum number of keys of a scenario.
pub(crate) const KEYS: usize = 3;
/// Maximum number of clients.
pub(crate) const CLIENTS: usize = 4;
/// Maximum number of operations that may commit through intents.
pub(crate) const TRANSACTIONS: usize = 4;
/// Attempts of a transaction before it returns without effect.
pub(crate) const ATTEMPTS: u8 = 2;

/// A plain word's content: the address of a value, which does not recur, or [`ABSENT`].
pub(crate) type Value = u8;
pub(crate) type Values = [Value; KEYS];

/// The value of a key that is not in the index. Its word is the same each time.
pub(crate) const ABSENT: Value = 0;

/// Number of an attempt of a transaction; its two attempts have adjacent numbers.
pub(crate) type Attempt = u8;

/// A key's word.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Word {
    Plain(Value),
    Intent(Attempt),
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub(crate) enum Status {
    #[default]
    Undecided,
    Committed,
    Aborted,
}

/// An attempt's status word and the content of its intents, by key. An intent's content is set when
/// its word is installed, and does not change after that.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub(crate) struct Record {
    pub(crate) status: Status,
    pub(crate) old: Values,
    pub(crate) new: Values,
}

impl Record {
    /// The value of a key whose word leads to this record.
    pub(crate) fn effective(self, key: usize) -> Value {
        if self.status == Status::Committed { self.new[key] } else { self.old[key] }
    }
}

/// The progress of an operation at one key.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub(crate) enum Phase {
    #[default]
    Idle,
    /// The word was read and contains this intent; its status is next.
    Met(Attempt),
    /// A CAS of the word from `from` is next. `held` is the effective value.
    Ready {
        from: Word,
        held: Value,
    },
    Done,
}

/// The part of a transaction or snapshot that a client is in. Other operations remain in `Read`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub(crate) enum Stage {
    #[default]
    Read,
    /// A snapshot reads all words again.
    Again,
    Install,
    /// Only with a planted error: keys that are not written are read again.
    Validate,
    Commit,
    /// The CAS of the own status to aborted is next.
    GiveUp,
}

/// A word as a snapshot saw it, with the status that it led to.
pub(crate) type Sight = (Word, Status);

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Client {
    /// Place of the operation in the program.
    pub(crate) place: u8,
    /// Whether the operation has taken a step.
    pub(crate) running: bool,
    /// Attempts of the operation before this one.
    pub(crate) attempt: u8,
    pub(crate) stage: Stage,
    pub(crate) phases: [Phase; KEYS],
    /// The values that the operation has read.
    pub(crate) seen: Values,
    /// What a snapshot saw first, and again.
    pub(crate) sights: [[Sight; KEYS]; 2],
}

impl Client {
    /// A client before the operation at `place`.
    pub(crate) fn at(place: u8) -> Self {
        Self {
            place,
            running: false,
            attempt: 0,
            stage: Stage::default(),
            phases: [Phase::default(); KEYS],
            seen: [ABSENT; KEYS],
            sights: [[(Word::Plain(ABSENT), Status::Undecided); KEYS]; 2],
        }
    }
}

#[derive(Clone, PartialEq, Eq, Hash)]
pub(crate) struct State {
    pub(crate) words: [Word; KEYS],
    pub(crate) records: [Record; TRANSACTIONS * ATTEMPTS as usize],
    pub(crate) clients: [Client; CLIENTS],
    /// What the results so far permit; empty if they have no order.
    pub(crate) possible: Vec<Possible>,
}

impl State {
    /// The effective value of a key.
    pub(crate) fn effective(&self, key: usize) -> Value {
        match self.words[key] {
            Word::Plain(value) => value,
            Word::Intent(attempt) => self.records[usize::from(attempt)].effective(key),
        }
    }

    /// A word and the status that it leads to.
    pub(crate) fn sight(&self, key: usize) -> Sight {
        let status = match self.words[key] {
            Word::Plain(_) => Status::Undecided,
            Word::Intent(attempt) => self.records[usize::from(attempt)].status,
        };
        (self.words[key], status)
    }

    /// The operation of a client that has not returned from all of its program.
    pub(crate) fn op(&self, scenario: &Scenario, client: usize) -> Option<Op> {
        scenario.clients.get(client)?.get(usize::from(self.clients[client].place)).copied()
    }

    /// CAS of a status from undecided. Returns whether it succeeds.
    pub(crate) fn decide(&mut self, attempt: Attempt, status: Status) -> bool {
        let word = &mut self.records[usize::from(attempt)].status;
        let undecided = *word == Status::Undecided;
        if undecided {
            *word = status;
        }
        undecided
    }

    /// CAS of a key's word. Returns whether it succeeds.
    pub(crate) fn cas(&mut self, key: usize, from: Word, to: Word) -> bool {
        let equal = self.words[key] == from;
        if equal {
            self.words[key] = to;
        }
        equal
    }

    /// Forgets the records that no client can reach, so that equal states are equal.
    pub(crate) fn tidy(&mut self, scenario: &Scenario) {
        for attempt in 0..self.records.len() {
            let name = attempt as Attempt;
            let in_use = self.words.contains(&Word::Intent(name))
                || self.clients.iter().any(|client| client.phases.contains(&Phase::Met(name)))
                || scenario.owner(name).is_some_and(|owner| !owner.has_left(self, name));
            if !in_use {
                self.records[attempt] = Record::default();
            }
        }
    }
}
