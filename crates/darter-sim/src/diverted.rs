//! What is diverted: batches that are executed elsewhere, and processes that are shut out there.

use darter_fabric::Verb;

/// What is diverted.
#[derive(Debug, Default)]
pub(super) struct Diversion {
    /// The last batch that was handed out.
    pub(super) last: u64,
    /// Processes that others have asked to shut out.
    pub(super) suspects: Vec<u32>,
}

/// A batch that is executed elsewhere.
#[derive(Clone, Debug)]
pub struct DivertedBatch {
    /// Its number.
    pub id: u64,
    /// The process that has posted it.
    pub process: u32,
    /// Its verbs.
    pub verbs: Vec<Verb>,
    /// Their words, where [`Verb::at`] says.
    pub data: Vec<u64>,
}

impl Diversion {
    /// Somebody wants a process shut out.
    pub(super) fn suspect(&mut self, process: u32) {
        if !self.suspects.contains(&process) {
            self.suspects.push(process);
        }
    }
}
