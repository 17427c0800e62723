//! The log of a durable replica: hands the state machine's entries to the journal, and reports how
//! many of them are durable.

use crate::error::MemNodeError;
use crate::log_metrics::LogMetrics;
use crate::redo_log::{Journal, OpenLog, SessionFacts};
use darter_fabric::Local;
use darter_group::{Entry, Logged, Region, Replica, ReplicaId};
use std::collections::VecDeque;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Instant;

/// The log of a durable replica.
#[derive(Debug)]
pub(super) struct Disk {
    journal: Journal,
    /// The state that the log has restored, until the replica starts with it.
    restored: Option<Logged>,
    /// Number of entries since the replica started.
    entries: u64,
    /// Numbers of entries that are not durable, with the log's positions after them.
    pending: VecDeque<(u64, u64)>,
}

impl Disk {
    /// Starts the log's threads, and makes the replica's new name durable.
    ///
    /// # Errors
    /// Fails if the system has no thread or descriptor left, or the log cannot be written.
    pub(super) fn start(
        me: ReplicaId,
        (log, mut restored): (OpenLog, Logged),
        memory: &Local,
        metrics: Arc<LogMetrics>,
    ) -> Result<Self, MemNodeError> {
        let mut journal = Journal::start(log, memory, metrics)?;
        journal.enter(&restored.rename(me));
        journal.sync()?;
        Ok(Self { journal, restored: Some(restored), entries: 0, pending: VecDeque::new() })
    }

    /// Takes the state with which the replica starts.
    pub(super) fn take_restored(&mut self) -> Option<Logged> {
        self.restored.take()
    }

    /// Returns whether the group may be founded: the log does not belong to one.
    pub(super) fn is_new(&self) -> bool {
        self.restored.as_ref().is_some_and(|restored| restored.lsn() == 0 && restored.is_whole())
    }

    pub(super) fn bell(&self) -> BorrowedFd<'_> {
        self.journal.bell()
    }

    /// Returns whether too many bytes wait for the disk to take more requests.
    pub(super) fn is_full(&self) -> bool {
        self.journal.is_full()
    }

    /// Tells the replica what has become durable.
    pub(super) fn begin_turn(&mut self, replica: &mut Replica<Region>) {
        self.journal.advance();
        let durable = self.journal.durable();
        let count = self.pending.partition_point(|(_, position)| *position <= durable);
        if let Some((entries, _)) = self.pending.drain(..count).next_back() {
            replica.logged(entries);
        }
    }

    /// Adds an entry.
    pub(super) fn add(&mut self, entry: &Entry) {
        self.journal.enter(entry);
        self.entries += 1;
    }

    /// Ends a turn: hands the entries to the thread that writes them.
    pub(super) fn end_turn(&mut self, now: Instant, replica: &Replica<Region>) {
        if self.pending.back().map_or(0, |(entries, _)| *entries) < self.entries {
            self.pending.push_back((self.entries, self.journal.position()));
        }
        self.journal.end_turn(now, || {
            let mut facts = SessionFacts::default();
            replica.restored().put(&mut facts.replica);
            facts
        });
    }

    pub(super) fn into_journal(self) -> Journal {
        self.journal
    }
}
