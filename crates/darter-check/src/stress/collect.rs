//! What all logs of a round say together: a history for each key, ready to be judged, and what can be counted.

use super::keys::{UNKNOWN_VALUE, value_length};
use super::log::{self, Call, LogError, Refusal, operations_begun};
use crate::history::{Action, Operation, Outcome};
use std::fs::File;
use std::io;
use std::path::PathBuf;

/// Operations of all clients, key by key.
#[derive(Clone, Debug)]
pub struct Collected {
    histories: Vec<Vec<Operation>>,
    calls: [u64; Call::ALL.len()],
    /// Operations of which nobody was told.
    pub pending: u64,
    /// Operations refused because the pool was full. They are no part of any history.
    pub out_of_space: u64,
    /// Operations refused because the process had been shut out.
    pub shut_out: u64,
    /// Of these, operations that lost a memory node.
    pub disconnected: u64,
    /// Operations refused for any other reason.
    pub unexpected: u64,
    /// Logs whose last record was torn.
    pub torn: u64,
}

impl Collected {
    /// Nothing yet, about `keys` keys.
    pub fn new(keys: u32) -> Self {
        Self {
            histories: vec![Vec::new(); keys as usize],
            calls: [0; Call::ALL.len()],
            pending: 0,
            out_of_space: 0,
            shut_out: 0,
            disconnected: 0,
            unexpected: 0,
            torn: 0,
        }
    }

    /// How many keys there are.
    pub fn keys(&self) -> u32 {
        self.histories.len() as u32
    }

    /// The history of each key, by rank.
    pub fn histories(&self) -> &[Vec<Operation>] {
        &self.histories
    }

    /// How many operations of a kind have begun.
    pub fn calls(&self, call: Call) -> u64 {
        self.calls[call as usize]
    }

    /// How many operations have begun.
    pub fn operations(&self) -> u64 {
        self.calls.iter().sum()
    }

    pub(super) fn count(&mut self, call: Call) {
        self.calls[call as usize] += 1;
    }

    pub(super) fn refuse(&mut self, refusal: Refusal) {
        *match refusal {
            Refusal::OutOfSpace => &mut self.out_of_space,
            Refusal::ShutOut => &mut self.shut_out,
            Refusal::Disconnected => &mut self.disconnected,
            Refusal::Unexpected => &mut self.unexpected,
        } += 1;
    }

    /// Bytes of all values that were written for certain.
    pub fn written_bytes(&self) -> u64 {
        let written = |operation: &Operation| match (operation.action, operation.returned) {
            (
                Action::Put(value)
                | Action::Insert(value)
                | Action::Update(value)
                | Action::Replace { value, .. },
                Some((_, Outcome::Inserted | Outcome::Replaced)),
            ) => value_length(value) as u64,
            _ => 0,
        };
        self.histories.iter().flatten().map(written).sum()
    }

    /// Adds an operation to its key's history. The key must be one of the set.
    pub fn add(&mut self, operation: Operation) {
        self.histories[operation.key as usize].push(operation);
    }

    pub(super) fn leave_pending(&mut self, operation: Operation) {
        self.pending += 1;
        self.add(operation);
    }

    /// Makes the last outcome of the first key one that cannot be.
    pub(super) fn falsify(&mut self) {
        // No client writes it: client numbers end before.
        let never_written = UNKNOWN_VALUE - 1;
        if let Some((_, outcome)) = self.histories[0].last_mut().and_then(|last| last.returned.as_mut()) {
            *outcome = Outcome::Found(Some(never_written));
        }
    }

    /// Adds the counts of another, and not its histories.
    pub(super) fn add_counts(&mut self, other: &Self) {
        for (mine, theirs) in self.calls.iter_mut().zip(other.calls) {
            *mine += theirs;
        }
        self.pending += other.pending;
        self.out_of_space += other.out_of_space;
        self.shut_out += other.shut_out;
        self.disconnected += other.disconnected;
        self.unexpected += other.unexpected;
        self.torn += other.torn;
    }
}

/// The logs of a round: watched as they grow, read when they are whole.
#[derive(Debug)]
pub(super) struct LogSet {
    logs: Vec<Log>,
}

#[derive(Debug)]
struct Log {
    path: PathBuf,
    /// Open while it may grow and once it is there.
    file: Option<File>,
    grows: bool,
    operations: u64,
}

impl Log {
    fn look(&mut self) -> io::Result<()> {
        if self.file.is_none() {
            self.file = match File::open(&self.path) {
                Ok(file) => Some(file),
                // Its writer has not come so far, or died before it did.
                Err(error) if error.kind() == io::ErrorKind::NotFound => None,
                Err(error) => return Err(error),
            };
        }
        if let Some(file) = &self.file {
            self.operations = operations_begun(file)?;
        }
        Ok(())
    }
}

impl LogSet {
    pub(super) fn new() -> Self {
        Self { logs: Vec::new() }
    }

    /// Watches these from now on.
    pub(super) fn follow(&mut self, paths: Vec<PathBuf>) {
        let logs = paths.into_iter().map(|path| Log { path, file: None, grows: true, operations: 0 });
        self.logs.extend(logs);
    }

    /// How many operations have begun.
    pub(super) fn operations(&mut self) -> Result<u64, LogError> {
        for log in self.logs.iter_mut().filter(|log| log.grows) {
            log.look().map_err(|source| LogError::Io { path: log.path.clone(), action: "read", source })?;
        }
        Ok(self.logs.iter().map(|log| log.operations).sum())
    }

    /// Looks at these no more: their writer is dead.
    pub(super) fn end(&mut self, paths: &[PathBuf]) -> Result<(), LogError> {
        self.operations()?;
        for log in self.logs.iter_mut().filter(|log| paths.contains(&log.path)) {
            (log.file, log.grows) = (None, false);
        }
        Ok(())
    }

    /// Reads them all, about `keys` keys, when nobody writes any more.
    pub(super) fn read(self, keys: u32) -> Result<Collected, LogError> {
        let mut collected = Collected::new(keys);
        for log in self.logs {
            log::read(&log.path, &mut collected)?;
        }
        Ok(collected)
    }
}
