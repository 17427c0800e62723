//! A phase: one run of a workload, and one process's share of it.

use crate::datasets::Dataset;
use crate::progress::Progress;
use crate::ycsb::Workload;
use serde::{Deserialize, Serialize};

/// One run of a workload under given conditions.
#[derive(Clone, Copy)]
pub struct Phase<'a> {
    /// The workload.
    pub workload: Workload,
    /// The keys.
    pub dataset: &'a dyn Dataset,
    /// Records in the index at the beginning; 0 for LOAD.
    pub loaded: u64,
    /// Operations of all threads and processes together.
    pub ops: u64,
    /// Threads of each process.
    pub threads: usize,
    /// Operations that each thread keeps in flight.
    pub in_flight: usize,
    /// This process's part. Each process has `threads` threads.
    pub part: Part,
    /// Zipf exponent of the access frequencies.
    pub theta: f64,
    /// Bytes of a value.
    pub value_bytes: usize,
    /// Seed of keys and operations.
    pub seed: u64,
    /// Number of this draw of the workload.
    pub run: u64,
    /// Shows the progress, and holds the flag that ends the phase.
    pub progress: &'a Progress,
}

impl Phase<'_> {
    /// Returns the operations of a thread; threads are counted over all processes.
    pub fn ops_of(&self, thread: usize) -> u64 {
        let threads = (self.threads * self.part.processes) as u64;
        self.ops / threads + u64::from((thread as u64) < self.ops % threads)
    }
}

/// One process among several that share a phase's operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Part {
    /// The process's number, from 0.
    pub process: usize,
    /// Processes that take part.
    pub processes: usize,
}

impl Part {
    /// The part of a process that runs the whole phase.
    pub const WHOLE: Self = Self { process: 0, processes: 1 };
}
