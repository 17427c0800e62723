//! Memory nodes as children of a benchmark, and cores to pin them to.

use crate::Program;
use crate::child_process::ChildProcess;
use darter_bench::BenchError;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// The core of servers, among the cores this process may use.
pub(crate) const SERVER_CORE: usize = 0;
/// The core of the measured client.
pub(crate) const CLIENT_CORE: usize = 1;

/// Cores this process may use.
fn cores() -> Vec<usize> {
    let Ok(set) = sched_getaffinity(None) else { return Vec::new() };
    (0..CpuSet::MAX_CPU).filter(|&core| set.is_set(core)).collect()
}

/// The cores that this process may use, one for the server and one for the client. Unpins the
/// calling thread when dropped.
#[derive(Debug)]
pub(crate) struct Cores {
    all: Vec<usize>,
}

impl Cores {
    /// Pins the calling thread to the client's core.
    pub(crate) fn claim() -> Self {
        let cores = Self { all: cores() };
        cores.pin(CLIENT_CORE);
        cores
    }

    /// Keeps the calling thread, and the threads and processes it starts, on a core, if there are
    /// two.
    pub(crate) fn pin(&self, number: usize) {
        if self.all.len() > 1 {
            Self::keep_to(&self.all[number..=number]);
        }
    }

    fn keep_to(cores: &[usize]) {
        let mut set = CpuSet::new();
        for &core in cores {
            set.set(core);
        }
        // Running on another core is slower, not wrong.
        let _ = sched_setaffinity(None, &set);
    }

    /// Returns a note if server and client share a core.
    pub(crate) fn note(&self) -> Option<&'static str> {
        match self.all.len() {
            0 => Some("the system does not report its cores; nothing is pinned"),
            1 => Some("there is one core, which server and client share: neither rates nor ratios mean much"),
            _ => None,
        }
    }
}

impl Drop for Cores {
    fn drop(&mut self) {
        if self.all.len() > 1 {
            Self::keep_to(&self.all);
        }
    }
}

/// Starts a memory node on the server's core. `spin` is in microseconds.
pub(crate) fn start_node(
    program: &Program,
    cores: &Cores,
    size: &str,
    spin: u64,
) -> Result<ChildProcess, BenchError> {
    cores.pin(SERVER_CORE);
    let words = ["--size", size, "--spin", &spin.to_string()].map(str::to_owned);
    let node = ChildProcess::memnode(program, &words);
    cores.pin(CLIENT_CORE);
    node
}
