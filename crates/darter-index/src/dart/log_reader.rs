//! How far a process has read the log of retired nodes ([`super::retired_log`] describes the log).

use super::situations;
use crate::checker::note;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Words of the log of retired nodes.
pub(crate) const LOG_WORDS: usize = 56;
/// Maximum number of position ranges that a process records as its own until it reads the count; of
/// further ranges it reads the entries.
const OWN_MAX: usize = 64;

/// How far a process has read the log of retired nodes.
#[derive(Debug)]
pub(crate) struct LogReader {
    /// Number of times that all nodes were forgotten.
    era: AtomicU64,
    progress: Mutex<Progress>,
}

/// Positions whose nodes the process has forgotten.
#[derive(Debug, Default)]
struct Progress {
    /// All positions below this one.
    read: u64,
    /// Ranges above that, for nodes that the process itself has retired.
    own: Vec<Range<u64>>,
}

impl Progress {
    /// Advances `read` past the nodes that the process has retired itself.
    fn settle(&mut self) {
        while let Some(at) = self.own.iter().position(|own| own.start <= self.read) {
            self.read = self.read.max(self.own.swap_remove(at).end);
        }
    }
}

impl LogReader {
    /// A reader for a process that has cached no nodes yet, and so has nothing to forget up to
    /// `count`.
    pub(crate) fn new(count: u64) -> Self {
        let progress = Progress { read: count, own: Vec::new() };
        Self { era: AtomicU64::new(0), progress: Mutex::new(progress) }
    }

    /// The era. Read it before finding a node that will be cached for it.
    #[inline]
    pub(crate) fn era(&self) -> u64 {
        self.era.load(Ordering::Acquire)
    }

    fn progress(&self) -> MutexGuard<'_, Progress> {
        // No panic can leave the progress inconsistent.
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The positions below `count` that must be read. Forgets all if the ring no longer holds them.
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

    /// Records that the nodes at all positions below `count` are forgotten.
    pub(super) fn follow_to(&self, count: u64) {
        let mut progress = self.progress();
        progress.read = progress.read.max(count);
    }

    /// Forgets all nodes, unless the nodes below `count` have been forgotten already.
    pub(super) fn forget_all(&self, count: u64) {
        let mut progress = self.progress();
        if progress.read < count {
            self.era.fetch_add(1, Ordering::AcqRel);
            progress.read = count;
        }
    }

    /// Records that this process has retired the nodes at these positions, and forgotten them.
    pub(super) fn note_own(&self, positions: Range<u64>) {
        let mut progress = self.progress();
        progress.own.push(positions);
        progress.settle();
        if progress.own.len() > OWN_MAX {
            progress.own.swap_remove(0);
        }
    }
}
