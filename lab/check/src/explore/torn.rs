//! Torn READs of scans: they return some words from before others' writes and some from after, so
//! that the words were never in memory together.

use super::op::Op;
use super::schedule::Decision;
use darter_index::checker::{Situation, note};
use darter_sim::{Event, EventKind, TaskId, WordOrder};
use std::ops::Range;

/// A torn READ of an ascending scan.
const ASCENDING: Situation = Situation::Met("ScanReadTorn");
/// A torn READ of a descending scan.
const DESCENDING: Situation = Situation::Met("ScanDownReadTorn");

/// Situations that must occur in a full exploration of any index.
pub(super) const SITUATIONS: [Situation; 2] = [ASCENDING, DESCENDING];

/// The READs of scans that have executed in part.
#[derive(Debug, Default)]
pub(super) struct TornReads(Vec<Part>);

/// A READ that has executed in part.
#[derive(Debug)]
struct Part {
    task: TaskId,
    batch: u64,
    verb: u32,
    node: u8,
    order: WordOrder,
    /// Words that it has read.
    read: Range<u64>,
    /// Words that it has yet to read.
    rest: Range<u64>,
    /// Whether another task has written words after they were read.
    is_outdated: bool,
    /// Whether, since then, another task has written words that it has yet to read.
    is_torn: bool,
    descends: bool,
}

impl Part {
    /// Records that it read further words.
    fn advance(&mut self, words: u64) {
        let words = words.min(self.rest.end - self.rest.start);
        if self.order == WordOrder::Ascending {
            self.rest.start += words;
            self.read.end += words;
        } else {
            self.rest.end -= words;
            self.read.start -= words;
        }
    }

    /// Records that another task writes these words.
    fn write(&mut self, words: &Range<u64>) {
        let meets = |own: &Range<u64>| own.start < words.end && words.start < own.end;
        self.is_outdated |= meets(&self.read);
        self.is_torn |= self.is_outdated && meets(&self.rest);
    }
}

impl TornReads {
    /// Follows an event that is about to happen; notes a torn READ when its last words execute.
    pub(super) fn perform(&mut self, event: &Event, decision: Decision, operations: &[Option<Op>]) {
        let EventKind::Execute { batch, node, verb, access } = event.kind else { return };
        let words = access.start..access.start + u64::from(access.words);
        if access.writes {
            let others = self.0.iter_mut().filter(|part| part.node == node && part.task != event.task);
            others.for_each(|part| part.write(&words));
            return;
        }
        let (count, order) = decision.piece();
        let is_it = |part: &Part| (part.task, part.batch, part.verb) == (event.task, batch, verb);
        let at = self.0.iter().position(is_it);
        if count >= access.words || !access.is_long {
            if let Some(part) = at.map(|at| self.0.swap_remove(at)).filter(|part| part.is_torn) {
                note(if part.descends { DESCENDING } else { ASCENDING });
            }
        } else if let Some(at) = at {
            self.0[at].advance(count.into());
        } else if let Some(descends) =
            operations.get(event.task as usize).copied().flatten().and_then(Op::scans)
        {
            let first = if order == WordOrder::Ascending { words.start } else { words.end };
            let (task, read, rest) = (event.task, first..first, words);
            let (is_outdated, is_torn) = (false, false);
            let mut part =
                Part { task, batch, verb, node, order, read, rest, is_outdated, is_torn, descends };
            part.advance(count.into());
            self.0.push(part);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use darter_index::checker::take_situations;
    use darter_sim::Access;

    /// Returns a verb of a task on the words 10 to 20, or on one of them.
    fn verb(task: TaskId, words: Range<u64>, writes: bool) -> Event {
        let (start, words) = (words.start, (words.end - words.start) as u32);
        let access = Access { start, words, writes, is_long: words > 1, is_border: false };
        Event { task, kind: EventKind::Execute { batch: u64::from(task), node: 0, verb: 0, access } }
    }

    /// Returns the situations of a READ that executes in two parts, with these words written by
    /// task 1 between them.
    fn met(operation: Op, (first, descending): (u16, bool), written: &[u64]) -> Vec<Situation> {
        let _ = take_situations();
        let (mut torn, operations) = (TornReads::default(), [Some(operation), Some(Op::Put(0))]);
        torn.perform(&verb(0, 10..20, false), Decision { words: first, descending, event: 0 }, &operations);
        for &word in written {
            torn.perform(&verb(1, word..word + 1, true), Decision::default(), &operations);
        }
        torn.perform(&verb(0, 10..20, false), Decision::default(), &operations);
        assert!(torn.0.is_empty());
        take_situations().into_keys().collect()
    }

    #[test]
    fn a_scan_read_is_torn_if_a_word_read_is_written_before_a_word_to_be_read() {
        assert_eq!(met(Op::Scan(false), (4, false), &[13, 14]), [ASCENDING]);
        assert_eq!(met(Op::Windows(true), (4, true), &[16, 15]), [DESCENDING]);
        for (operation, part, written) in [
            (Op::Scan(false), (4, false), &[14, 13][..]),
            (Op::Scan(false), (4, true), &[15, 16]),
            (Op::Scan(false), (4, false), &[13, 12, 20]),
            (Op::Get(0), (4, false), &[13, 14]),
        ] {
            assert_eq!(met(operation, part, written), [], "{operation}, {part:?}, {written:?}");
        }
    }
}
