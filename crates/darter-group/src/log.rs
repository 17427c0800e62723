//! The records that another replica may still lack.

use super::message::Beside;
use super::record::{Position, Record};
use std::collections::VecDeque;
use std::sync::Arc;

/// The newest records, in order and without a gap.
#[derive(Clone, Debug, Default)]
pub(super) struct Log {
    records: VecDeque<Arc<Record>>,
    bytes: usize,
}

impl Log {
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(super) fn push(&mut self, record: Arc<Record>) {
        self.bytes += record.bytes();
        self.records.push_back(record);
    }

    /// Drops the records up to this one.
    pub(super) fn trim(&mut self, lsn: u64) {
        while let Some(first) = self.records.front().filter(|first| first.position.lsn <= lsn) {
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
    use crate::Content;

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
        log.trim(2);
        assert!(log.after(1, 5).is_none());
        let after = |lsn| log.after(lsn, 5).unwrap().map(|record| record.position.lsn).collect::<Vec<_>>();
        assert_eq!((after(2), after(5)), (vec![3, 4, 5], vec![]));
        log.trim(5);
        assert!(log.after(5, 5).is_some_and(|mut rest| rest.next().is_none()) && log.bytes() == 0);
        assert!(log.after(4, 5).is_none());
    }
}
