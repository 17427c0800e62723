//! The walk, round after round, that removes what is over though nobody asks for it, and counts what it passes.

use super::{Family, Head, Keyspace, cursors, session};
use crate::gateway::fault::Fault;
use darter::ScanRange;
use std::ops::Bound;

/// Records that a step looks at.
const STEP: usize = 1000;
/// When one in so many of a step's records was over, the next step is due at once.
const DENSE: usize = 10;

/// What a round has counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Census {
    /// Keys.
    pub keys: u64,
    /// Those among them whose time is limited.
    pub expiring: u64,
}

/// What came of a step.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Stepped {
    /// Keys that were removed.
    pub removed: u64,
    /// The next step is due at once.
    pub goes_on: bool,
    /// The step ended a round.
    pub census: Option<Census>,
}

/// Where the walk is.
#[derive(Debug)]
pub(crate) struct Expiry {
    left: ScanRange,
    family: Family,
    counted: Census,
}

fn whole(family: Family) -> ScanRange {
    let from = Bound::Included(vec![family as u8]);
    ScanRange { from, to: Bound::Excluded(vec![family as u8 + 1]), reverse: false }
}

impl Default for Expiry {
    fn default() -> Self {
        Self { left: whole(Family::Key), family: Family::Key, counted: Census::default() }
    }
}

/// When a record ends, if it does.
fn end_of(family: Family, record: &[u8]) -> Option<u64> {
    match family {
        Family::Key => Head::parse(record).ok()?.expiry,
        Family::Cursor => Some(cursors::parse(record)?.0),
    }
}

impl Expiry {
    /// Looks at some records more.
    ///
    /// # Errors
    /// The store's; the same step is then taken again.
    pub(crate) async fn step(&mut self, keys: &mut Keyspace) -> Result<Stepped, Fault> {
        let (now, family) = (keys.now, self.family);
        let mut over = Vec::new();
        let mut last = Vec::new();
        let mut counted = Census::default();
        let session = session(&mut keys.session, &keys.store)?;
        let seen = session.scan_with(&self.left, STEP, |place, record| {
            last.clear();
            last.extend_from_slice(place);
            let end = end_of(family, record);
            if end.is_some_and(|end| end < now) {
                over.push(place.to_vec());
            } else {
                counted.keys += 1;
                counted.expiring += u64::from(end.is_some());
            }
        });
        let seen = seen.await?;
        let mut stepped = Stepped { goes_on: seen > 0 && over.len() * DENSE >= seen, ..Stepped::default() };
        for place in over {
            let is_over = |record: &[u8]| end_of(family, record).is_some_and(|end| end < now);
            let is_removed = session.delete_if(&place, is_over).await?;
            stepped.removed += u64::from(is_removed && family == Family::Key);
        }
        if family == Family::Key {
            self.counted.keys += counted.keys;
            self.counted.expiring += counted.expiring;
        }
        if seen == STEP {
            self.left.from = Bound::Excluded(last);
        } else if family == Family::Key {
            stepped.census = Some(std::mem::take(&mut self.counted));
            (self.family, self.left) = (Family::Cursor, whole(Family::Cursor));
        } else {
            (self.family, self.left) = (Family::Key, whole(Family::Key));
        }
        Ok(stepped)
    }
}
