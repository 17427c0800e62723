//! What went on in a run, moment by moment: the states of each key, against which reads are held.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;

/// What one key went through: for each state the moments at which its write began and ended.
#[derive(Default)]
pub(super) struct History(pub(super) Vec<(Option<Vec<u8>>, u64, u64)>);

/// The moments and histories of a run, and where readers have come.
#[derive(Default)]
pub(super) struct Chronicle {
    pub(super) now: Cell<u64>,
    pub(super) histories: RefCell<BTreeMap<u64, History>>,
    pub(super) proven: Cell<u64>,
    pub(super) found: Cell<u64>,
}

impl Chronicle {
    pub(super) fn begin(&self, key: u64, value: Option<Vec<u8>>) {
        let entry = (value, self.now.get(), u64::MAX);
        self.histories.borrow_mut().entry(key).or_default().0.push(entry);
    }

    pub(super) fn end(&self, key: u64) {
        if let Some(last) = self.histories.borrow_mut().entry(key).or_default().0.last_mut() {
            last.2 = self.now.get();
        }
    }

    /// Whether a read that began and ends now may see this state; `seen` is the oldest state that
    /// the same reader may have seen before.
    pub(super) fn is_right(&self, key: u64, value: Option<&Vec<u8>>, began: u64, seen: &mut usize) -> bool {
        let histories = self.histories.borrow();
        let states = &histories[&key].0;
        let ended = states.iter().rposition(|&(_, _, ended)| ended <= began).unwrap_or(0);
        let at = (ended.max(*seen)..states.len()).find(|&at| states[at].0.as_ref() == value);
        *seen = at.unwrap_or(*seen);
        at.is_some()
    }
}
