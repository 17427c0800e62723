//! The records made by the primaries of the simulated world, in the order of the surviving log: no
//! frame may occur twice, and none after the fence of its session.

use darter_group::{FrameId, Position};
use std::collections::{BTreeMap, BTreeSet};

/// Subject of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Entry {
    Frame { session: u64, id: u64 },
    Fence(u64),
}

/// The records by number. If a number was used in several views, the last view's record counts: a
/// primary continues at the end of the log that it took over.
#[derive(Debug, Default)]
pub(super) struct Executed {
    records: BTreeMap<u64, (u64, Entry)>,
    frames: BTreeSet<(u64, u64)>,
}

impl Executed {
    /// Adds a frame recorded by a primary.
    pub(super) fn frame(&mut self, position: Position, frame: FrameId) {
        let (session, id) = (frame.session, frame.id);
        self.frames.insert((session, id));
        self.record(position, Entry::Frame { session, id });
    }

    /// Adds a fence recorded by a primary.
    pub(super) fn fence(&mut self, position: Position, session: u64) {
        self.record(position, Entry::Fence(session));
    }

    fn record(&mut self, position: Position, entry: Entry) {
        let known = self.records.entry(position.lsn).or_insert((position.view, entry));
        if known.0 <= position.view {
            *known = (position.view, entry);
        }
    }

    /// Returns whether some primary has recorded a frame.
    pub(super) fn knows(&self, frame: FrameId) -> bool {
        self.frames.contains(&(frame.session, frame.id))
    }

    /// Returns a description of the first error in the log up to a record.
    pub(super) fn fault(&self, last: u64) -> Option<String> {
        let (mut frames, mut fenced) = (BTreeSet::new(), BTreeSet::new());
        for (lsn, (_, entry)) in self.records.range(..=last) {
            match *entry {
                Entry::Fence(session) => _ = fenced.insert(session),
                Entry::Frame { session, id } if fenced.contains(&session) => {
                    return Some(format!(
                        "record {lsn}: frame {id} of session {session} comes after the session's fence"
                    ));
                }
                Entry::Frame { session, id } if !frames.insert((session, id)) => {
                    return Some(format!("record {lsn}: frame {id} of session {session} occurs twice"));
                }
                Entry::Frame { .. } => {}
            }
        }
        None
    }
}

#[test]
fn a_log_is_what_the_last_views_have_recorded() {
    let mut executed = Executed::default();
    let frame = |id| FrameId { session: 7, channel: 0, id, answered: 0 };
    let at = |view, lsn| Position { view, lsn };
    executed.frame(at(1, 1), frame(1));
    executed.frame(at(1, 2), frame(2));
    // Lost, and executed again by the next primary.
    executed.frame(at(1, 3), frame(3));
    executed.fence(at(2, 3), 8);
    executed.frame(at(2, 4), frame(3));
    assert!(executed.knows(frame(3)) && !executed.knows(frame(4)));
    assert_eq!(executed.fault(4), None);
    executed.frame(at(2, 5), frame(2));
    assert_eq!(executed.fault(4), None);
    assert!(executed.fault(5).is_some_and(|what| what.contains("twice")));
    executed.fence(at(3, 5), 7);
    executed.frame(at(3, 6), frame(6));
    assert!(executed.fault(6).is_some_and(|what| what.contains("fence")));
}
