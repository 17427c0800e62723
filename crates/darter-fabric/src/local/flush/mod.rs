//! Persistent memory with processor caches, `durability=flush`: a batch completes when all that it
//! wrote and all that it read is on the medium.
//!
//! A store reaches the medium when its cache line is written back, which the processor does at any
//! time, line by line. So each batch ([`Turn`]) flushes the lines that it stores to, and fences:
//!
//! - A WRITE is flushed at once. A later verb that may change a word executes only after a fence,
//!   so that writes reach the medium in posting order, and a slot never before the leaf that it
//!   names.
//! - Everything is fenced before the batch completes.
//! - Other clients can see a word before it is flushed. They detect that by a table of
//!   [`Counters`], which all processes share: a line's counter is raised before a store, and
//!   lowered after its flush and fence. A client that has read a line and *then* finds its counter
//!   at zero has read the content of the medium; otherwise it flushes the line itself. A writer
//!   that dies leaves its counters raised, which only costs flushes.
//!
//! ```text
//! regions, node 0 to the last | mark, 1 MiB | counters, 1 MiB
//! ```
//!
//! The counters need not be durable: after a power failure no line is in a cache, and any count is
//! correct. The mark is durable; it keeps out processes that would neither flush nor count.

mod counters;
mod domain;
mod instructions;
#[cfg(test)]
mod tests;
mod turn;

use super::mapping::Mapping;
use counters::Counters;
use std::fmt;
use std::fs::File;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

pub(super) use counters::Raised;
use instructions::Instruction;
pub(super) use instructions::require;
pub(super) use turn::Turn;

/// Words in a cache line.
pub(super) const LINE_WORDS: usize = 8;
/// Bytes after the regions that hold mark and counters; devices map in pages of this size.
pub(super) const TABLE_BYTES: usize = 2 << 20;
/// The first word after the regions of a pool whose clients flush.
const MARK: u64 = u64::from_le_bytes(*b"DARTERFL");
/// Words from the mark to the first counter.
const COUNTERS_AT: usize = TABLE_BYTES / 2 / 8;
/// Words of the lines after the mark's line that are used to measure instructions.
const TRIAL_WORDS: Range<usize> = 64 * LINE_WORDS..128 * LINE_WORDS;

/// Writes lines from the caches to the medium.
pub trait Persistence: Send + Sync + fmt::Debug {
    /// Starts to write a cache line back: 8 words.
    fn flush(&self, line: &[AtomicU64]);

    /// Returns when everything that this thread has flushed is on the medium.
    fn fence(&self);
}

/// How a pool's words reach their medium, and the table of stores that may not have reached it.
#[derive(Clone, Debug)]
pub(super) struct Flushing {
    persistence: Arc<dyn Persistence>,
    /// The index of the mapping's word at which the table begins.
    table_at: usize,
}

impl Flushing {
    /// Uses the fastest instruction for the file's medium. `bytes` is the size of the regions; the
    /// mapping has [`TABLE_BYTES`] more.
    pub(super) fn of_file(file: &File, mapping: &Mapping, bytes: usize) -> Self {
        let trial = TRIAL_WORDS.start + bytes / 8..TRIAL_WORDS.end + bytes / 8;
        let instruction = Instruction::choose(file, &mapping.words()[trial]);
        Self::new(Arc::new(instruction), bytes)
    }

    /// `bytes` is the size of the regions; the mapping has [`TABLE_BYTES`] more.
    pub(super) fn new(persistence: Arc<dyn Persistence>, bytes: usize) -> Self {
        Self { persistence, table_at: bytes / 8 }
    }

    /// Returns whether the mapping has the mark after `bytes` bytes.
    pub(super) fn is_marked(mapping: &Mapping, bytes: usize) -> bool {
        mapping.words().get(bytes / 8).is_some_and(|word| word.load(Ordering::Acquire) == MARK)
    }

    /// Marks a new pool as one whose clients flush. All other stores to the mapping are on the
    /// medium too when this returns.
    pub(super) fn mark(&self, mapping: &Mapping, flushes_all: bool) {
        let words = mapping.words();
        words[self.table_at].store(MARK, Ordering::Release);
        let from = if flushes_all { 0 } else { self.table_at };
        let to = if flushes_all { words.len() } else { self.table_at + LINE_WORDS };
        words[from..to].chunks(LINE_WORDS).for_each(|line| self.persistence.flush(line));
        self.persistence.fence();
    }

    pub(super) fn persistence(&self) -> &dyn Persistence {
        &*self.persistence
    }

    pub(super) fn counters<'m>(&self, mapping: &'m Mapping) -> Counters<'m> {
        let from = self.table_at + COUNTERS_AT;
        Counters::over(&mapping.words()[from..self.table_at + TABLE_BYTES / 8])
    }
}
