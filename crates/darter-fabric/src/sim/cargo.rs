//! Batches that others carry, and whom these are to shut out.

use crate::Verb;

/// What is to be carried.
#[derive(Debug, Default)]
pub(super) struct Carriage {
    /// The last batch that was handed out.
    pub(super) last: u64,
    /// Processes that others have asked to shut out.
    pub(super) suspects: Vec<u32>,
}

/// A batch to be carried.
#[derive(Clone, Debug)]
pub struct Cargo {
    /// Its number.
    pub id: u64,
    /// The process that has posted it.
    pub process: u32,
    /// Its verbs.
    pub verbs: Vec<Verb>,
    /// The words that they carry, where [`Verb::at`] says.
    pub data: Vec<u64>,
}

impl Carriage {
    /// Somebody wants a process shut out.
    pub(super) fn suspect(&mut self, process: u32) {
        if !self.suspects.contains(&process) {
            self.suspects.push(process);
        }
    }
}
