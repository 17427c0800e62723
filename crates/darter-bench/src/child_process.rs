//! Processes of a measurement's own: memory nodes and writers, which say a line when they are ready and end when their
//! standard input does.

use crate::{BenchError, Program};
use std::ffi::OsString;
use std::io::{self, BufRead, BufReader, Read};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Bytes of the line by which a child says that it is ready.
const LINE_BYTES_MAX: u64 = 256;
/// How long a child that was asked to end may take.
const PATIENCE: Duration = Duration::from_secs(30);
/// Between two looks whether it has.
const LOOK_EVERY: Duration = Duration::from_millis(1);

/// What the system said of a process, as an error of the benchmark.
fn heard<T>(outcome: io::Result<T>) -> Result<T, BenchError> {
    outcome.map_err(|error| BenchError::Process(error.to_string()))
}

/// A child that is ready; killed when dropped before its end.
#[derive(Debug)]
pub(crate) struct ChildProcess {
    child: Child,
    /// What it said.
    line: String,
}

impl ChildProcess {
    /// Starts one of the program's commands, `words` after its own, and waits for its line.
    pub(crate) fn start(
        program: &Program,
        command: &[OsString],
        words: &[String],
    ) -> Result<Self, BenchError> {
        let mut process = Command::new(&program.path);
        process.args(command).args(words).stdin(Stdio::piped()).stdout(Stdio::piped());
        for variable in &program.credentials {
            process.env_remove(variable);
        }
        let mut child = Self { child: heard(process.spawn())?, line: String::new() };
        if let Some(out) = child.child.stdout.take() {
            heard(BufReader::new(out.take(LINE_BYTES_MAX)).read_line(&mut child.line))?;
        }
        if child.line.is_empty() {
            let name = command.first().map_or_else(Default::default, |name| name.to_string_lossy());
            return Err(BenchError::Process(format!("`{name}` ended before it was ready")));
        }
        Ok(child)
    }

    /// Starts a memory node on a port of its own choice.
    pub(crate) fn memnode(program: &Program, words: &[String]) -> Result<Self, BenchError> {
        let own = ["--until-stdin-closes", "--log-level", "error", "--listen", "127.0.0.1:0"];
        let own = own.into_iter().map(str::to_owned);
        Self::start(program, &program.memnode, &own.chain(words.iter().cloned()).collect::<Vec<_>>())
    }

    /// A memory node's address.
    pub(crate) fn address(&self) -> &str {
        self.line.trim().trim_start_matches("tcp://")
    }

    /// What the system and the pool call it.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Whether it has ended already.
    pub(crate) fn has_ended(&mut self) -> Result<bool, BenchError> {
        Ok(heard(self.child.try_wait())?.is_some())
    }

    /// Ends it by SIGKILL.
    pub(crate) fn kill(&mut self) -> Result<(), BenchError> {
        heard(self.child.kill().and_then(|()| self.child.wait())).map(drop)
    }

    /// Asks it to end by itself.
    pub(crate) fn ask_to_end(&mut self) {
        drop(self.child.stdin.take());
    }

    /// Asks it to end, and waits until it has.
    pub(crate) fn end(mut self) -> Result<(), BenchError> {
        self.ask_to_end();
        let begin = Instant::now();
        while !self.has_ended()? {
            if begin.elapsed() > PATIENCE {
                let pid = self.pid();
                return Err(BenchError::Process(format!("process {pid} does not end though asked to")));
            }
            std::thread::sleep(LOOK_EVERY);
        }
        Ok(())
    }
}

impl Drop for ChildProcess {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
