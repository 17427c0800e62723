//! The skip table as known to a process.
//!
//! The root word was last read, or written, by a client pinned at the epoch *seen*. A client pinned
//! no later may use the table that the word named: a client that replaces the table stamps it with
//! an epoch that it reads after the CAS, which is therefore at least *seen*. The table is freed
//! when no client is pinned at its stamp or before. A client pinned later reads the root word
//! again, together with that of the root node.

use super::table::Table;
use crate::radix::sampling::{Sampling, is_due};
use arc_swap::{ArcSwap, Guard};
use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Epochs after which a word that was not read in between could belong to another table: fewer
/// tables than there are versions can have been made in that time.
const WORD_KEPT: u64 = 1 << 10;
/// One search in this many is sampled.
const SAMPLED: u32 = 16;

/// The table that a root word named.
#[derive(Debug)]
pub(super) struct View {
    word: u64,
    pub(super) table: Option<Table>,
    /// The latest epoch of a client that read or wrote this word; 0 if there was none.
    seen: AtomicU64,
}

/// State of the skip table shared by the clients of a process.
#[derive(Debug)]
pub(in crate::quiver) struct Skip {
    view: ArcSwap<View>,
    /// Searches, and the nodes that they read.
    pub(in crate::quiver) sampling: Sampling,
}

impl Skip {
    /// The state known from the root word, as read by a client pinned at this epoch: only whether
    /// there is a table.
    pub(in crate::quiver) fn new(word: u64, epoch: u64) -> Self {
        let view = View { word: 0, table: None, seen: AtomicU64::new(0) };
        let skip = Self { view: ArcSwap::from_pointee(view), sampling: Sampling::default() };
        skip.see(word, epoch);
        skip
    }

    /// Whether a client pinned at this epoch need not read the root word.
    pub(in crate::quiver) fn is_seen(&self, epoch: u64) -> bool {
        self.view(epoch).is_some()
    }

    /// The view that a client pinned at this epoch may use; `None` if it has to read the root word.
    pub(super) fn view(&self, epoch: u64) -> Option<Guard<Arc<View>>> {
        let view = self.view.load();
        (view.seen.load(Ordering::Acquire) >= epoch).then_some(view)
    }

    /// Notes that a client pinned at this epoch read the root word. Returns whether the process
    /// knows the table that it names.
    pub(super) fn see(&self, word: u64, epoch: u64) -> bool {
        let view = self.view.load();
        let seen = view.seen.load(Ordering::Acquire);
        let is_known = view.word == word && (word == 0 || seen + WORD_KEPT > epoch);
        if is_known {
            view.seen.fetch_max(epoch, Ordering::AcqRel);
        }
        is_known
    }

    /// Notes the table that the root word named to a client pinned at this epoch, or that the
    /// client linked. Of two words the one seen later is kept.
    pub(super) fn learn(&self, word: u64, table: Table, epoch: u64) {
        let new = Arc::new(View { word, table: Some(table), seen: AtomicU64::new(epoch) });
        self.view.rcu(|known| {
            let is_late = known.seen.load(Ordering::Acquire) > epoch;
            Arc::clone(if is_late { known } else { &new })
        });
    }

    /// Counts a search that read `nodes_read` nodes, if it is one of those sampled.
    #[inline]
    pub(in crate::quiver) fn note_search(&self, nodes_read: u32) {
        thread_local! {
            static SINCE: Cell<u32> = const { Cell::new(0) };
        }
        if is_due(&SINCE, SAMPLED) {
            self.sampling.note(nodes_read);
        }
    }
}
