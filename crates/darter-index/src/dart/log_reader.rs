//! How far a process has followed the log of retired nodes ([`super::retired_log`] argues the log).

use super::situations;
use crate::checker::note;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Words of the log of retired nodes.
pub(crate) const LOG_WORDS: usize = 56;
/// Ranges of positions that a process notes as its own until it reads the count; of more it reads
/// the entries.
const OWN_MAX: usize = 64;

/// How far a process has followed the log.
#[derive(Debug)]
pub(crate) struct LogReader {
    /// How often all was forgotten.
    era: AtomicU64,
    progress: Mutex<Progress>,
}

/// Positions whose nodes the process has forgotten.
#[derive(Debug, Default)]
struct Progress {
    /// All below this.
    read: u64,
    /// Ranges above that, of nodes that the process itself has retired.
    own: Vec<Range<u64>>,
}

impl Progress {
    /// Goes on past what the process has retired itself.
    fn settle(&mut self) {
        while let Some(at) = self.own.iter().position(|own| own.start <= self.read) {
            self.read = self.read.max(self.own.swap_remove(at).end);
        }
    }
}

impl LogReader {
    /// A reader that remembers nothing yet, and is therefore done with the log up to `count`.
    pub(crate) fn new(count: u64) -> Self {
        let progress = Progress { read: count, own: Vec::new() };
        Self { era: AtomicU64::new(0), progress: Mutex::new(progress) }
    }

    /// The era: to be read before any node is found that is remembered for it.
    #[inline]
    pub(crate) fn era(&self) -> u64 {
        self.era.load(Ordering::Acquire)
    }

    fn progress(&self) -> MutexGuard<'_, Progress> {
        // Whole whatever panics beside it.
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The positions below `count` that are to be read. Forgets all if the ring no longer holds
    /// them.
    pub(super) fn unread(&self, count: u64) -> Range<u64> {
        let read = {
            let mut progress = self.progress();
            progress.settle();
            progress.read
        };
        if count.saturating_sub(read) > LOG_WORDS as u64 {
            note(situations::LOG_LAPPED);
            self.forget_all(count);
            return count..count;
        }
        read.min(count)..count
    }

    /// The nodes at all positions below `count` are forgotten.
    pub(super) fn follow_to(&self, count: u64) {
        let mut progress = self.progress();
        progress.read = progress.read.max(count);
    }

    /// Forgets all nodes, if it has not been done for those below `count`.
    pub(super) fn forget_all(&self, count: u64) {
        let mut progress = self.progress();
        if progress.read < count {
            self.era.fetch_add(1, Ordering::AcqRel);
            progress.read = count;
        }
    }

    /// This process has retired the nodes at these positions, and forgotten them.
    pub(super) fn note_own(&self, positions: Range<u64>) {
        let mut progress = self.progress();
        progress.own.push(positions);
        progress.settle();
        if progress.own.len() > OWN_MAX {
            progress.own.swap_remove(0);
        }
    }
}
