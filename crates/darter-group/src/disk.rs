//! The log that a durable replica keeps on disk: its entries, the state that they restore, and how
//! far they are durable.
//!
//! A replica hands each entry to its driver ([`super::Output::Log`]), which writes them in order and
//! reports how many are durable ([`super::Replica::logged`]). Only then does the replica acknowledge
//! what they contain, and a primary reply. A power failure may take any number of the last entries
//! that were not reported. The others restore the replica ([`Logged`]).

use super::log::Log;
use super::message::Beside;
use super::record::Record;
use super::view::ReplicaId;
use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

/// Maximum bytes of the newest records that are kept when a log is replayed.
const RECENT_BYTES_MAX: usize = 256 << 20;

/// An entry of a replica's log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Entry {
    /// The names under which the replica has acknowledged what the log contains.
    Names(BTreeSet<ReplicaId>),
    /// The next record.
    Record(Arc<Record>),
    /// A copy of the whole state begins, with this part of it. The state before is void.
    Began(Arc<Beside>),
    /// A part of the memory.
    Part {
        /// Its offset in bytes.
        offset: u64,
        /// Its words.
        content: Box<[u8]>,
    },
    /// The copy is complete.
    Whole,
}

/// The state that a replica's log restores, except the memory. The default is that of an empty log,
/// with zeroed memory.
#[derive(Clone, Debug)]
pub struct Logged {
    pub(super) names: BTreeSet<ReplicaId>,
    /// The memory is that after the last record.
    pub(super) is_whole: bool,
    pub(super) beside: Beside,
    /// The newest records.
    pub(super) recent: Log,
}

impl Default for Logged {
    fn default() -> Self {
        let (names, beside, recent) = Default::default();
        Self { names, is_whole: true, beside, recent }
    }
}

impl Logged {
    /// Applies the next entry. `store` stores words at an offset of the memory, and returns whether
    /// they lie in it. Returns `false` if the entry does not continue the log or does not fit the
    /// memory.
    pub fn apply(&mut self, entry: &Entry, mut store: impl FnMut(u64, &[u8]) -> bool) -> bool {
        match entry {
            Entry::Names(names) => self.names.clone_from(names),
            Entry::Record(record) => {
                let is_next = record.position.lsn == self.beside.last.lsn + 1;
                if !is_next || !self.beside.apply(record, store) {
                    return false;
                }
                self.recent.push(Arc::clone(record));
                self.recent.settle(record.position.lsn, RECENT_BYTES_MAX);
            }
            Entry::Began(beside) => {
                self.is_whole = false;
                self.beside = Beside::clone(beside);
                self.recent = Log::default();
            }
            Entry::Part { offset, content } => return store(*offset, content),
            Entry::Whole => self.is_whole = true,
        }
        true
    }

    /// Returns the replica's names, none if it never started.
    pub fn names(&self) -> &BTreeSet<ReplicaId> {
        &self.names
    }

    /// Returns whether its memory is that after the last record.
    pub fn is_whole(&self) -> bool {
        self.is_whole
    }

    /// Adds a name, and returns the entry that does so.
    pub fn rename(&mut self, name: ReplicaId) -> Entry {
        self.names.insert(name);
        Entry::Names(self.names.clone())
    }

    /// Returns the number of the last record.
    pub fn lsn(&self) -> u64 {
        self.beside.last.lsn
    }
}

/// A point of a replica's state that is not durable yet.
#[derive(Clone, Copy, Debug)]
struct Mark {
    /// The number of entries that it needs.
    entries: u64,
    lsn: u64,
    copies: u64,
    /// When it was reached.
    since: Duration,
}

/// How far a replica's log is durable.
#[derive(Clone, Debug, Default)]
pub(super) struct Written {
    /// Number of entries handed to the driver.
    entries: u64,
    /// Number of entries that are durable.
    durable: u64,
    marks: VecDeque<Mark>,
    /// The last record, and the number of copied parts, that are durable.
    reached: (u64, u64),
    /// The last time known.
    now: Duration,
}

impl Written {
    /// Returns the state of a log that was restored up to this record.
    pub(super) fn new(lsn: u64, now: Duration) -> Self {
        Self { reached: (lsn, 0), now, ..Self::default() }
    }

    pub(super) fn tick(&mut self, now: Duration) {
        self.now = now;
    }

    /// Counts an entry.
    pub(super) fn add(&mut self) {
        self.entries += 1;
    }

    /// Notes that the replica has this record and this number of parts once all entries so far are
    /// durable.
    pub(super) fn mark(&mut self, lsn: u64, copies: u64) {
        if self.durable == self.entries {
            self.reached = (lsn, copies);
        } else if let Some(last) = self.marks.back_mut().filter(|last| last.entries == self.entries) {
            (last.lsn, last.copies) = (lsn, copies);
        } else {
            self.marks.push_back(Mark { entries: self.entries, lsn, copies, since: self.now });
        }
    }

    /// Notes that this number of entries is durable. Returns whether more of the state is.
    pub(super) fn advance(&mut self, entries: u64) -> bool {
        self.durable = self.durable.max(entries.min(self.entries));
        let before = self.marks.len();
        while let Some(mark) = self.marks.front().filter(|mark| mark.entries <= self.durable) {
            self.reached = (mark.lsn, mark.copies);
            self.marks.pop_front();
        }
        self.marks.len() < before
    }

    /// Forgets what was reached: another state replaces the current one.
    pub(super) fn restart(&mut self) {
        self.marks.clear();
        self.reached = (0, 0);
    }

    /// Returns the last record, and the number of parts, that are durable.
    pub(super) fn reached(&self) -> (u64, u64) {
        self.reached
    }

    /// Returns whether everything is durable.
    pub(super) fn is_even(&self) -> bool {
        self.marks.is_empty()
    }

    /// Returns how long the oldest entry has waited for the disk.
    pub(super) fn waits(&self) -> Duration {
        self.marks.front().map_or(Duration::ZERO, |mark| self.now.saturating_sub(mark.since))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Content, Position};

    #[test]
    fn a_state_is_reached_when_its_entries_are_durable() {
        let mut written = Written::new(7, Duration::ZERO);
        assert_eq!(written.reached(), (7, 0));
        written.add();
        written.mark(8, 0);
        written.add();
        written.mark(9, 0);
        written.mark(10, 1);
        assert_eq!((written.reached(), written.is_even()), ((7, 0), false));
        assert!(written.advance(1));
        assert_eq!(written.reached(), (8, 0));
        written.tick(Duration::from_secs(3));
        assert_eq!(written.waits(), Duration::from_secs(3));
        assert!(written.advance(2) && !written.advance(9));
        assert_eq!((written.reached(), written.waits()), ((10, 1), Duration::ZERO));
        written.mark(11, 0);
        assert_eq!(written.reached(), (11, 0), "it needs no entry");
    }

    #[test]
    fn a_log_restores_its_state_and_refuses_a_gap() {
        let mut logged = Logged::default();
        let record = |lsn| {
            Entry::Record(Arc::new(Record {
                position: Position { view: 1, lsn },
                content: Content::Fenced(lsn),
            }))
        };
        let mut words = Vec::new();
        let mut apply = |entry: &Entry| {
            logged.apply(entry, |offset, content| {
                words.push((offset, content.len()));
                offset < 64
            })
        };
        assert!(apply(&Entry::Names([3].into())) && apply(&record(1)) && !apply(&record(3)));
        assert!(
            apply(&Entry::Began(Arc::default()))
                && !apply(&Entry::Part { offset: 64, content: [0; 8].into() })
        );
        assert!(apply(&Entry::Part { offset: 0, content: [0; 16].into() }));
        assert_eq!(words, [(64, 8), (0, 16)]);
        assert!(!logged.is_whole && logged.beside == Beside::default());
        assert!(logged.apply(&Entry::Whole, |_, _| false) && logged.is_whole);
        assert_eq!((logged.rename(9), logged.lsn()), (Entry::Names([3, 9].into()), 0));
    }
}
