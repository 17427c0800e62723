//! Scenarios: the values at the start and the clients' programs; and the errors that can be planted
//! in the protocol.

use crate::state::{ABSENT, ATTEMPTS, Attempt, CLIENTS, Client, KEYS, State, Value, Values, Word};

/// A list of keys.
pub(crate) type Keys = &'static [usize];

/// An operation. Each value that it writes is new.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Op {
    Get(usize),
    /// Writes blindly.
    Put(usize),
    /// Writes, and returns the old value.
    Modify(usize),
    /// Writes if the key is absent, and returns the old value.
    Insert(usize),
    /// Returns the old value.
    Delete(usize),
    /// Reads and writes keys. Installs intents in the order of `reads`, then of the other `writes`,
    /// if the scenario has an order.
    Transaction {
        reads: Keys,
        writes: Keys,
        /// Those of `writes` that become absent.
        deletes: Keys,
    },
    /// Reads keys by two equal collects.
    Snapshot(Keys),
}

impl Op {
    /// Keys that the operation returns the values of.
    pub(crate) fn reads(self) -> Vec<usize> {
        match self {
            Self::Get(key) | Self::Modify(key) | Self::Insert(key) | Self::Delete(key) => vec![key],
            Self::Put(_) => vec![],
            Self::Transaction { reads, .. } | Self::Snapshot(reads) => reads.to_vec(),
        }
    }

    /// Keys that the operation writes.
    pub(crate) fn writes(self) -> Vec<usize> {
        match self {
            Self::Get(_) | Self::Snapshot(_) => vec![],
            Self::Put(key) | Self::Modify(key) | Self::Insert(key) | Self::Delete(key) => vec![key],
            Self::Transaction { writes, .. } => writes.to_vec(),
        }
    }

    /// All keys, those read first.
    pub(crate) fn keys(self) -> Vec<usize> {
        let mut keys = self.reads();
        keys.extend(self.writes().into_iter().filter(|key| !self.reads().contains(key)));
        keys
    }

    /// The value that the operation with this number writes to a key whose value is `held`.
    pub(crate) fn written(self, number: usize, key: usize, held: Value) -> Value {
        let is_absent = match self {
            _ if !self.writes().contains(&key) => return held,
            Self::Insert(_) if held != ABSENT => return held,
            Self::Delete(_) => true,
            Self::Transaction { deletes, .. } => deletes.contains(&key),
            _ => false,
        };
        if is_absent { ABSENT } else { (1 + KEYS + number * KEYS + key) as Value }
    }

    /// Applies the operation to the map. Returns the values that it reads.
    pub(crate) fn apply(self, number: usize, map: &mut Values) -> Values {
        let mut result = [ABSENT; KEYS];
        for key in self.reads() {
            result[key] = map[key];
        }
        for key in self.writes() {
            map[key] = self.written(number, key, map[key]);
        }
        result
    }

    /// Whether the operation may commit through intents.
    pub(crate) fn has_intents(self) -> bool {
        matches!(self, Self::Transaction { .. } | Self::Snapshot(_))
    }
}

/// An error in the protocol.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Flaw {
    /// A reader returns the new value of an undecided intent.
    ReaderTakesUndecided,
    /// A reader returns the old value of a committed intent.
    ReaderIgnoresCommit,
    /// A put replaces an undecided intent without an abort.
    PutWithoutAbort,
    /// Keys that are only read are read again before the commit; no intent is installed in them.
    ReadsValidated,
    /// The commit is a WRITE of the status.
    CommitByWrite,
    /// The cleanup of an aborted attempt writes the new values.
    CleanupOfAbortedNew,
    /// The owner reads the status of another's undecided intent, and replaces it without an abort.
    InstallWithoutAbort,
    /// The owner aborts its attempt, but installs the other keys and acts as after a commit.
    CommitAfterAbort,
    /// The owner does not compare the values that it reads at the installation.
    ReadsNotCompared,
    /// An abort is taken for successful without its result.
    AbortAssumed,
    /// A snapshot reads the words once.
    SingleCollect,
    /// A snapshot compares the words of two collects, but not the statuses.
    StatusNotCompared,
    /// A snapshot accepts two equal collects that contain absent keys.
    AbsentAccepted,
}

impl Flaw {
    pub(crate) const ALL: [Self; 13] = [
        Self::ReaderTakesUndecided,
        Self::ReaderIgnoresCommit,
        Self::PutWithoutAbort,
        Self::ReadsValidated,
        Self::CommitByWrite,
        Self::CleanupOfAbortedNew,
        Self::InstallWithoutAbort,
        Self::CommitAfterAbort,
        Self::ReadsNotCompared,
        Self::AbortAssumed,
        Self::SingleCollect,
        Self::StatusNotCompared,
        Self::AbsentAccepted,
    ];
}

/// The order in which an operation goes through its keys.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Order {
    /// One key after another, in the order of the operation.
    Listed,
    /// All keys at the same time.
    Any,
}

/// The client and the place in its program of an operation with intents.
#[derive(Clone, Copy)]
pub(crate) struct Owner {
    pub(crate) client: usize,
    pub(crate) place: u8,
}

impl Owner {
    /// Whether the owner has noticed that the attempt is decided.
    pub(crate) fn has_left(self, state: &State, attempt: Attempt) -> bool {
        let Client { place, attempt: current, .. } = state.clients[self.client];
        (place, current) > (self.place, attempt % ATTEMPTS)
    }
}

#[derive(Clone)]
pub(crate) struct Scenario {
    pub(crate) name: &'static str,
    pub(crate) start: Values,
    pub(crate) order: Order,
    pub(crate) flaw: Option<Flaw>,
    pub(crate) clients: Vec<Vec<Op>>,
    /// The operations with intents.
    owners: Vec<Owner>,
}

impl Scenario {
    /// A scenario in which all keys but those of `absent` have a value.
    pub(crate) fn new(name: &'static str, absent: Keys, programs: &[&[Op]]) -> Self {
        assert!(programs.len() <= CLIENTS);
        let start = std::array::from_fn(|key| if absent.contains(&key) { ABSENT } else { 1 + key as Value });
        let clients: Vec<Vec<Op>> = programs.iter().map(|program| program.to_vec()).collect();
        let mut owners = Vec::new();
        for (client, ops) in clients.iter().enumerate() {
            let places = (0..ops.len()).filter(|&place| ops[place].has_intents());
            owners.extend(places.map(|place| Owner { client, place: place as u8 }));
        }
        Self { name, start, order: Order::Listed, flaw: None, clients, owners }
    }

    pub(crate) fn in_order(self, order: Order) -> Self {
        Self { order, ..self }
    }

    pub(crate) fn with(&self, flaw: Flaw) -> Self {
        Self { flaw: Some(flaw), ..self.clone() }
    }

    pub(crate) fn has(&self, flaw: Flaw) -> bool {
        self.flaw == Some(flaw)
    }

    /// The number of an operation among those of all clients.
    pub(crate) fn number(&self, client: usize, place: u8) -> usize {
        self.clients[..client].iter().map(Vec::len).sum::<usize>() + usize::from(place)
    }

    /// The number of an attempt of the operation with intents that `client` is in.
    pub(crate) fn attempt(&self, state: &State, client: usize) -> Attempt {
        let Client { place, attempt, .. } = state.clients[client];
        let owner = self.owners.iter().position(|owner| owner.client == client && owner.place == place);
        owner.map_or(Attempt::MAX, |owner| owner as Attempt * ATTEMPTS + attempt)
    }

    pub(crate) fn owner(&self, attempt: Attempt) -> Option<Owner> {
        self.owners.get(usize::from(attempt / ATTEMPTS)).copied()
    }

    /// The state before any step.
    pub(crate) fn first(&self) -> State {
        State {
            words: self.start.map(Word::Plain),
            records: Default::default(),
            clients: [Client::at(0); CLIENTS],
            possible: vec![crate::judge::Possible::new(self.start)],
        }
    }
}
