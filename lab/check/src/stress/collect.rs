//! The combined record of a round's logs: a history for each key, ready for the checker, and
//! counts.

use super::keys::{UNKNOWN_VALUE, value_length};
use super::log::{Call, Refusal};
use crate::history::{Action, Operation, Outcome};

/// Operations of all clients, key by key.
#[derive(Clone, Debug)]
pub struct Collected {
    histories: Vec<Vec<Operation>>,
    calls: [u64; Call::ALL.len()],
    /// Operations without an outcome.
    pub pending: u64,
    /// Operations refused because the pool was full. They do not belong to any history.
    pub out_of_space: u64,
    /// Operations refused because the process had been shut out.
    pub shut_out: u64,
    /// Pending operations that lost a memory node.
    pub disconnected: u64,
    /// Operations refused for any other reason.
    pub unexpected: u64,
    /// Logs whose last record was torn.
    pub torn: u64,
}

impl Collected {
    /// An empty record of `keys` keys.
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

    /// Returns the number of keys.
    pub fn keys(&self) -> u32 {
        self.histories.len() as u32
    }

    /// Returns the history of each key, by rank.
    pub fn histories(&self) -> &[Vec<Operation>] {
        &self.histories
    }

    /// Returns the number of operations of a kind that have begun.
    pub fn calls(&self, call: Call) -> u64 {
        self.calls[call as usize]
    }

    /// Returns the number of operations that have begun.
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

    /// Returns the total bytes of all values that were certainly written.
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

    /// Replaces the last outcome of the first key by an impossible one.
    pub(super) fn falsify(&mut self) {
        // No client writes it: client numbers are smaller.
        let never_written = UNKNOWN_VALUE - 1;
        if let Some((_, outcome)) = self.histories[0].last_mut().and_then(|last| last.returned.as_mut()) {
            *outcome = Outcome::Found(Some(never_written));
        }
    }

    /// Adds the counts of another record, but not its histories.
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
