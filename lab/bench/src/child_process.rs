//! Child processes of a measurement: memory nodes and writers. Each prints a line when it is ready
//! and ends when its standard input does.

use crate::Program;
use darter_bench::BenchError;
use std::ffi::OsString;
use std::io::{self, BufRead, BufReader, Read, Take};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

/// Longest line that a child prints, in bytes.
const LINE_BYTES_MAX: u64 = 256;
/// How long a child may take to end by itself.
const PATIENCE: Duration = Duration::from_secs(30);
/// Pause between two checks whether a child has ended.
const LOOK_EVERY: Duration = Duration::from_millis(1);

/// Turns an error of the system into one of the benchmark.
fn heard<T>(outcome: io::Result<T>) -> Result<T, BenchError> {
    outcome.map_err(|error| BenchError::Process(error.to_string()))
}

/// A child process that is ready. It is killed when dropped before its end.
#[derive(Debug)]
pub(crate) struct ChildProcess {
    child: Child,
    out: BufReader<Take<ChildStdout>>,
    /// The line that it printed when it was ready.
    line: String,
}

impl ChildProcess {
    /// Starts one of the program's commands with `words` appended, and waits until it is ready.
    pub(crate) fn start(
        program: &Program,
        command: &[OsString],
        words: &[String],
    ) -> Result<Self, BenchError> {
        let mut process = Command::new(&program.path);
        process.args(command).args(words).stdin(Stdio::piped()).stdout(Stdio::piped());
        // A signal from the terminal is for the parent, which ends its children.
        process.process_group(0);
        for variable in &program.credentials {
            process.env_remove(variable);
        }
        let mut child = heard(process.spawn())?;
        let out =
            child.stdout.take().ok_or_else(|| BenchError::Process("a child has no stdout".to_owned()))?;
        let mut child = Self { child, out: BufReader::new(out.take(LINE_BYTES_MAX)), line: String::new() };
        child.line = child.read_line()?;
        if child.line.is_empty() {
            let name = command.first().map_or_else(Default::default, |name| name.to_string_lossy());
            return Err(BenchError::Process(format!("`{name}` ended before it was ready")));
        }
        Ok(child)
    }

    /// Returns the next line that it prints; an empty one if it has ended.
    pub(crate) fn read_line(&mut self) -> Result<String, BenchError> {
        let mut line = String::new();
        self.out.get_mut().set_limit(LINE_BYTES_MAX);
        heard(self.out.read_line(&mut line))?;
        Ok(line)
    }

    /// Writes to the child's standard input.
    #[cfg(feature = "peers")]
    pub(crate) fn write(&mut self, bytes: &[u8]) -> Result<(), BenchError> {
        heard(self.child.stdin.iter_mut().try_for_each(|input| io::Write::write_all(input, bytes)))
    }

    /// Waits until the process has ended by itself.
    #[cfg(feature = "peers")]
    pub(crate) fn wait(&mut self) -> Result<std::process::ExitStatus, BenchError> {
        heard(self.child.wait())
    }

    /// Starts a memory node on a port that it chooses.
    pub(crate) fn memnode(program: &Program, words: &[String]) -> Result<Self, BenchError> {
        let own = ["--until-stdin-closes", "--log-level", "error", "--listen", "127.0.0.1:0"];
        let own = own.into_iter().map(str::to_owned);
        Self::start(program, &program.memnode, &own.chain(words.iter().cloned()).collect::<Vec<_>>())
    }

    /// Returns a memory node's address.
    pub(crate) fn address(&self) -> &str {
        self.line.trim().trim_start_matches("tcp://")
    }

    /// Returns the process id, by which the pool's member table knows it too.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Returns whether the process has ended.
    pub(crate) fn has_ended(&mut self) -> Result<bool, BenchError> {
        Ok(heard(self.child.try_wait())?.is_some())
    }

    /// Kills the process (SIGKILL) and waits for its end.
    pub(crate) fn kill(&mut self) -> Result<(), BenchError> {
        heard(self.child.kill().and_then(|()| self.child.wait())).map(drop)
    }

    /// Closes the child's standard input, which makes it end.
    pub(crate) fn ask_to_end(&mut self) {
        drop(self.child.stdin.take());
    }

    /// Makes the process end and waits until it has.
    ///
    /// # Errors
    /// Fails if it does not end in time.
    pub(crate) fn end(mut self) -> Result<(), BenchError> {
        self.ask_to_end();
        let begin = Instant::now();
        while !self.has_ended()? {
            if begin.elapsed() > PATIENCE {
                let pid = self.pid();
                return Err(BenchError::Process(format!("process {pid} does not end on request")));
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
