//! A process's state of one tree: the addresses of its root words, its format and lock, the root
//! pointer as last seen, counts of flushes, and the lines touched.
//!
//! An operation reads the root word and, in the same batch, the node that the word was last seen to
//! name, so that the word costs no round trip. That node is read only if the word was read by an
//! operation pinned at the same epoch or a later one: it was unlinked, if at all, after that, and
//! is not freed before this operation ends.

use super::WortOptions;
use super::lines::{Flushes, Recorder};
use super::node::{Format, Slot};
use crate::hocl::Hocl;
use crate::sync::lock;
use darter_fabric::{Fabric, GlobalAddr};
use darter_pool::Pool;
use smallvec::SmallVec;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

/// Addresses of the index's root words.
#[derive(Clone, Copy, Debug)]
pub(super) struct RootWords {
    /// The kind of index that the pool holds.
    pub(super) kind: GlobalAddr,
    /// The slot of the whole tree. Locking it locks out all other writers.
    pub(super) root: GlobalAddr,
    /// The lock's descriptor.
    pub(super) locks: GlobalAddr,
}

impl RootWords {
    pub(super) fn of<F: Fabric>(pool: &Pool<F>) -> Self {
        Self { kind: pool.root_word(3), root: pool.root_word(8), locks: pool.root_word(9) }
    }
}

/// An operation in progress.
pub(super) type Operation<'a, F> = crate::operation::Operation<'a, Shared, F>;

/// The flushes that writers of a process needed, in the model of the paper: cache lines of 64
/// bytes, objects aligned to a line, and only written lines flushed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Persistence {
    /// Lines flushed.
    pub lines: u64,
    /// Fences that waited for flushes.
    pub fences: u64,
}

/// State of the index shared by the clients of a compute node.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) words: RootWords,
    pub(super) format: Format,
    pub(super) hocl: Hocl,
    pub(super) options: WortOptions,
    /// The root's slot as last seen, and the epoch of its reader.
    root: Mutex<(Slot, u64)>,
    lines: AtomicU64,
    fences: AtomicU64,
    /// The lines touched, if they are recorded.
    pub(super) touched: Recorder,
}

impl Shared {
    pub(super) fn new(words: RootWords, hocl: Hocl, options: WortOptions) -> Self {
        let root = Mutex::new((Slot::EMPTY, 0));
        let (lines, fences) = (AtomicU64::new(0), AtomicU64::new(0));
        let (format, touched) = (options.design.format(), Recorder::default());
        Self { words, format, hocl, options, root, lines, fences, touched }
    }

    /// Returns the root's slot as last seen, if an operation pinned at `epoch` may read the node it
    /// names.
    pub(super) fn root(&self, epoch: u64) -> Option<Slot> {
        let (slot, seen_at) = *lock(&self.root);
        (seen_at >= epoch).then_some(slot)
    }

    /// Stores the root's slot, which an operation pinned at `epoch` has read or written.
    pub(super) fn remember_root(&self, slot: Slot, epoch: u64) {
        let mut root = lock(&self.root);
        if epoch >= root.1 {
            *root = (slot, epoch);
        }
    }

    /// Counts the flushes of a change.
    pub(super) fn count(&self, flushes: &Flushes) {
        let lines: usize = flushes.iter().map(SmallVec::len).sum();
        let fences = flushes.iter().filter(|lines| !lines.is_empty()).count();
        self.lines.fetch_add(lines as u64, Ordering::Relaxed);
        self.fences.fetch_add(fences as u64, Ordering::Relaxed);
        self.touched.flush(flushes);
    }

    pub(super) fn persistence(&self) -> Persistence {
        let load = |count: &AtomicU64| count.load(Ordering::Relaxed);
        Persistence { lines: load(&self.lines), fences: load(&self.fences) }
    }
}
