//! The combined record of a round's logs: a history for each key, ready for the checker, and
//! counts.

use super::keys::{UNKNOWN_VALUE, value_length};
use super::ledger::{LISTS, MONEY, list};
use super::log::{Call, Record, Refusal};
use crate::elle;
use crate::history::{Action, Operation, Outcome};

/// Operations of all clients, key by key.
#[derive(Clone, Debug)]
pub struct Collected {
    histories: Vec<Vec<Operation>>,
    calls: [u64; Call::ALL.len()],
    /// Transactions over lists, and single operations on them.
    pub appends: Vec<elle::Transaction>,
    /// Sums of all accounts that were wrong, each described in a sentence.
    pub wrong_sums: Vec<String>,
    /// The last operation on lists that began, and the generation of the lists.
    last: (Call, u32),
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
            appends: Vec::new(),
            wrong_sums: Vec::new(),
            last: (Call::Append, 0),
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

    /// Adds an operation on lists that began: its element, and the lists and their generation as in
    /// [`Call::Append`].
    pub(super) fn begin_lists(&mut self, call: Call, begin: &Record, element: u64, lists: u64) {
        let changed = (0..LISTS).filter(|place| lists >> 32 >> place & 1 == 1);
        let step = |place| {
            let list = list(lists as u32, place);
            if call == Call::ListPut {
                elle::Step::Put { list, element }
            } else {
                elle::Step::Append { list, element }
            }
        };
        let steps = changed.map(step).collect();
        self.last = (call, lists as u32);
        let Record { client, time: invoked, .. } = *begin;
        self.appends.push(elle::Transaction { client, steps, invoked, end: elle::End::Unknown });
    }

    /// Adds an outcome of the last operation on lists that began: that it took effect, that it had
    /// no effect, or an element that it found in a list. All elements of a list follow each other.
    pub(super) fn end_lists(&mut self, place: u32, time: u64, outcome: Outcome) {
        let Some(last) = self.appends.last_mut() else { return };
        let found = match outcome {
            Outcome::Found(found) => found,
            Outcome::Refused => {
                last.end = elle::End::Aborted(time);
                return;
            }
            _ => {
                last.end = elle::End::Committed(time);
                if self.last.0 == Call::ListScan {
                    self.split_scan();
                }
                return;
            }
        };
        let list = list(self.last.1, place);
        match last.steps.first_mut() {
            Some(elle::Step::Read { list: known, elements }) if *known == list => elements.extend(found),
            _ => last.steps.insert(0, elle::Step::Read { list, elements: found.into_iter().collect() }),
        }
    }

    /// Replaces the last operation, a scan, by a transaction for each key: a scan may read each key
    /// at another moment.
    fn split_scan(&mut self) {
        let Some(scan) = self.appends.pop() else { return };
        for (place, step) in (0..).zip(scan.steps) {
            // Transactions of one client must not overlap.
            let client = scan.client | (1 << 31) | place << (31 - LISTS.ilog2());
            self.appends.push(elle::Transaction { client, steps: vec![step], ..scan });
        }
    }

    /// Checks the outcome of a transfer.
    pub(super) fn end_transfer(&mut self, client: u32, sequence: u64, outcome: Outcome) {
        if let Outcome::Found(Some(sum)) = outcome
            && sum != MONEY
        {
            self.wrong_sums.push(format!(
                "operation {sequence} of client {client} found {sum} in all accounts, which hold {MONEY}"
            ));
        }
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
