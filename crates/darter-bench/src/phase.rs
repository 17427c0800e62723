//! A phase: one run of a workload, and the share of one process in it.

use crate::datasets::Dataset;
use crate::progress::Progress;
use crate::ycsb::Workload;
use serde::{Deserialize, Serialize};

/// One run of a workload under given conditions.
#[derive(Clone, Copy)]
pub(crate) struct Phase<'a> {
    pub(crate) workload: Workload,
    pub(crate) dataset: &'a dyn Dataset,
    /// Records in the index at the beginning; 0 for LOAD.
    pub(crate) loaded: u64,
    pub(crate) ops: u64,
    pub(crate) threads: usize,
    /// Operations that each thread has under way at a time.
    pub(crate) in_flight: usize,
    /// This process's part. Each process has `threads` threads.
    pub(crate) part: Part,
    pub(crate) theta: f64,
    pub(crate) value_bytes: usize,
    pub(crate) seed: u64,
    /// Number of this draw of the workload.
    pub(crate) run: u64,
    pub(crate) progress: &'a Progress,
}

impl Phase<'_> {
    /// Returns the operations of a thread; threads are counted over all processes.
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
    /// The part of a process that runs everything.
    pub(crate) const WHOLE: Self = Self { process: 0, processes: 1 };
}
