//! Memory nodes as children of a benchmark, and cores to pin them to.

use crate::{BenchError, Program};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

/// Where servers run, among the cores this process may use.
pub(crate) const SERVER_CORE: usize = 0;
/// Where the measured client runs.
pub(crate) const CLIENT_CORE: usize = 1;

/// Cores this process may use.
fn cores() -> Vec<usize> {
    let Ok(set) = sched_getaffinity(None) else { return Vec::new() };
    (0..CpuSet::MAX_CPU).filter(|&core| set.is_set(core)).collect()
}

/// Which of the cores this process may use a benchmark gives to whom. Gives the calling thread its freedom back when dropped.
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

    /// Keeps the calling thread, and the threads and processes it starts, on a core, where there are two.
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
        // Anywhere else is slower, not wrong.
        let _ = sched_setaffinity(None, &set);
    }

    /// What to tell people when server and client share what there is.
    pub(crate) fn note(&self) -> Option<&'static str> {
        match self.all.len() {
            0 => Some("the system does not say which cores there are; nothing is pinned"),
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

/// A memory node; ended when dropped.
#[derive(Debug)]
pub(crate) struct Node {
    child: Child,
    pub(crate) address: String,
}

impl Node {
    /// Starts one on the server's core. `spin` is in microseconds.
    pub(crate) fn start(program: &Program, cores: &Cores, size: &str, spin: u64) -> Result<Self, BenchError> {
        let failed = |what: String| BenchError::Process(what);
        let mut command = Command::new(&program.path);
        command.args(&program.memnode);
        for variable in &program.credentials {
            command.env_remove(variable);
        }
        command.args(["--listen", "127.0.0.1:0", "--size", size, "--spin", &spin.to_string()]);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        cores.pin(SERVER_CORE);
        let spawned = command.spawn();
        cores.pin(CLIENT_CORE);
        let mut child = spawned.map_err(|error| failed(format!("{}: {error}", program.path.display())))?;
        let mut line = String::new();
        if let Some(stdout) = child.stdout.take() {
            BufReader::new(stdout).read_line(&mut line).map_err(|error| failed(error.to_string()))?;
        }
        let address = line.trim().strip_prefix("tcp://").map(str::to_owned);
        let mut node = Self { child, address: String::new() };
        node.address = address.ok_or_else(|| failed("it ended before it listened".to_owned()))?;
        Ok(node)
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        // It may be gone already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
