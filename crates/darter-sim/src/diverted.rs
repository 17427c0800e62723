//! Diverted batches, which are executed elsewhere, and processes to be fenced elsewhere.

use darter_fabric::Verb;

/// State of a diversion.
#[derive(Debug, Default)]
pub(super) struct Diversion {
    /// The last batch handed out.
    pub(super) last: u64,
    /// Processes that others have requested to fence.
    pub(super) suspects: Vec<u32>,
}

/// A batch to be executed elsewhere.
#[derive(Clone, Debug)]
pub struct DivertedBatch {
    /// Its number.
    pub id: u64,
    /// The process that posted it.
    pub process: u32,
    /// Its verbs.
    pub verbs: Vec<Verb>,
    /// Their words, at the indices given by [`Verb::at`].
    pub data: Vec<u64>,
}

impl Diversion {
    /// Notes that a client requests to fence a process.
    pub(super) fn suspect(&mut self, process: u32) {
        if !self.suspects.contains(&process) {
            self.suspects.push(process);
        }
    }
}
