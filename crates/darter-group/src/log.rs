//! The records that another replica may still lack.

use super::message::Beside;
use super::record::{Content, Position, Record};
use darter_fabric::effects::effects;
use std::collections::VecDeque;
use std::sync::Arc;

/// The newest records, in order and without a gap.
#[derive(Clone, Debug, Default)]
pub(super) struct Log {
    records: VecDeque<Arc<Record>>,
    bytes: usize,
    /// All replicas of the view have the records up to this one.
    settled: u64,
    /// Bytes of the records after that.
    unsettled_bytes: usize,
}

impl Log {
    /// Returns the bytes of the records that not all replicas of the view have.
    pub(super) fn unsettled_bytes(&self) -> usize {
        self.unsettled_bytes
    }

    pub(super) fn push(&mut self, record: Arc<Record>) {
        self.bytes += record.bytes();
        self.unsettled_bytes += record.bytes();
        self.records.push_back(record);
    }

    /// Notes that no replica that follows lacks the records up to this one. The newest of them are
    /// kept, if all records have at most `kept` bytes, for replicas that return.
    pub(super) fn settle(&mut self, lsn: u64, kept: usize) {
        if let Some(first) = self.first() {
            let skipped = (self.settled + 1).saturating_sub(first);
            let rest = self.records.iter().skip(usize::try_from(skipped).unwrap_or(usize::MAX));
            let settled = rest.take_while(|record| record.position.lsn <= lsn);
            self.unsettled_bytes -= settled.map(|record| record.bytes()).sum::<usize>();
        }
        self.settled = self.settled.max(lsn);
        while self.bytes > kept
            && let Some(first) = self.records.front().filter(|first| first.position.lsn <= self.settled)
        {
            self.bytes -= first.bytes();
            self.records.pop_front();
        }
    }

    /// Returns the records after this one, if all of them are still in the log.
    pub(super) fn after(&self, lsn: u64, last: u64) -> Option<impl Iterator<Item = &Arc<Record>>> {
        let first = self.records.front().map_or(last + 1, |first| first.position.lsn);
        let skipped = (lsn + 1).checked_sub(first)?;
        Some(self.records.iter().skip(usize::try_from(skipped).unwrap_or(usize::MAX)))
    }

    pub(super) fn first(&self) -> Option<u64> {
        self.records.front().map(|first| first.position.lsn)
    }
}

impl Beside {
    /// Returns whether a log that ends at `end` is a prefix of this one.
    pub(super) fn contains(&self, end: Position) -> bool {
        let is_same = || {
            let start = self.starts.iter().rev().find(|start| start.lsn <= end.lsn);
            start.is_some_and(|start| start.view == end.view)
        };
        end.lsn <= self.last.lsn && (end.lsn == 0 || is_same())
    }

    /// Applies the next record. `store` stores words at an offset of the memory, and returns whether
    /// they lie in it. Returns whether all did.
    pub(super) fn apply(&mut self, record: &Record, mut store: impl FnMut(u64, &[u8]) -> bool) -> bool {
        match &record.content {
            Content::Frame { frame, results, effects: changed } => {
                if !effects(changed).all(|effect| effect.is_some_and(|(offset, bytes)| store(offset, bytes)))
                {
                    return false;
                }
                self.duplicates.executed(frame, record.position.lsn, Arc::clone(results));
            }
            Content::Fenced(session) => {
                self.fenced.insert(*session);
                self.duplicates.forget(*session);
            }
        }
        self.advance(record.position);
        true
    }

    /// Notes that the log has one more record.
    pub(super) fn advance(&mut self, to: Position) {
        if self.starts.last().is_none_or(|start| start.view != to.view) {
            self.starts.push(to);
        }
        self.last = to;
    }

    /// Drops the beginnings of views that ended before this record.
    pub(super) fn trim(&mut self, first: u64) {
        let needless = self.starts.windows(2).take_while(|pair| pair[1].lsn < first).count();
        self.starts.drain(..needless);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_is_known_by_its_last_record() {
        let mut beside = Beside::default();
        for (view, lsn) in [(1, 1), (1, 2), (3, 3), (3, 4)] {
            beside.advance(Position { view, lsn });
        }
        let contains = |view, lsn| beside.contains(Position { view, lsn });
        assert!(contains(0, 0) && contains(1, 2) && contains(3, 3) && contains(3, 4));
        assert!(!contains(1, 3) && !contains(2, 3) && !contains(3, 5) && !contains(3, 2));
        beside.trim(4);
        assert!(beside.contains(Position { view: 3, lsn: 3 }));
        assert!(!beside.contains(Position { view: 1, lsn: 2 }), "forgotten");
    }

    #[test]
    fn records_that_are_forgotten_are_missed() {
        let mut log = Log::default();
        let record = |lsn| Record { position: Position { view: 1, lsn }, content: Content::Fenced(lsn) };
        (1..=5).for_each(|lsn| log.push(Arc::new(record(lsn))));
        log.settle(2, 0);
        assert!(log.after(1, 5).is_none());
        let after = |lsn| log.after(lsn, 5).unwrap().map(|record| record.position.lsn).collect::<Vec<_>>();
        assert_eq!((after(2), after(5)), (vec![3, 4, 5], vec![]));
        log.settle(5, 0);
        assert!(log.after(5, 5).is_some_and(|mut rest| rest.next().is_none()) && log.unsettled_bytes() == 0);
        assert!(log.after(4, 5).is_none());
    }

    #[test]
    fn settled_records_are_kept_up_to_a_size() {
        let mut log = Log::default();
        let record =
            |lsn| Arc::new(Record { position: Position { view: 1, lsn }, content: Content::Fenced(lsn) });
        let size = record(1).bytes();
        (1..=4).for_each(|lsn| log.push(record(lsn)));
        log.settle(3, 3 * size);
        assert_eq!((log.first(), log.unsettled_bytes()), (Some(2), size));
        log.push(record(5));
        log.settle(3, 3 * size);
        assert_eq!((log.first(), log.unsettled_bytes()), (Some(3), 2 * size));
        log.settle(1, 0);
        assert_eq!((log.first(), log.unsettled_bytes()), (Some(4), 2 * size));
    }
}
