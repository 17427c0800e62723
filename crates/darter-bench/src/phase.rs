//! What a benchmark runs: a workload on a dataset, by so many threads, and the share of one process in it.

use crate::datasets::Dataset;
use crate::ycsb::Workload;
use indicatif::ProgressBar;
use serde::{Deserialize, Serialize};

/// What to run.
#[derive(Clone, Copy)]
pub(crate) struct Phase<'a> {
    pub(crate) workload: Workload,
    pub(crate) dataset: &'a dyn Dataset,
    /// Records there are: 0 for LOAD.
    pub(crate) loaded: u64,
    pub(crate) ops: u64,
    pub(crate) threads: usize,
    /// Operations that each thread has under way at a time.
    pub(crate) in_flight: usize,
    /// Which process of how many this is; each has as many threads.
    pub(crate) part: Part,
    pub(crate) theta: f64,
    pub(crate) value_bytes: usize,
    pub(crate) seed: u64,
    /// Which draw of the same workload this is.
    pub(crate) run: u64,
    pub(crate) progress: &'a ProgressBar,
}

impl Phase<'_> {
    /// Operations that fall to a thread, counted over all processes.
    pub(crate) fn ops_of(&self, thread: usize) -> u64 {
        let threads = (self.threads * self.part.processes) as u64;
        self.ops / threads + u64::from((thread as u64) < self.ops % threads)
    }
}

/// One process among several that share a phase's operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Part {
    pub(crate) process: usize,
    pub(crate) processes: usize,
}

impl Part {
    /// A process that does everything.
    pub(crate) const WHOLE: Self = Self { process: 0, processes: 1 };
}
