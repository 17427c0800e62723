//! The processes that fill, read and serve the damaged pools: each ends in time, within a limit of
//! memory, or is at fault.

use darter_cli::credentials::without_credentials;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

/// Longer than any process takes, even on a busy machine.
const HANGS_AFTER: Duration = Duration::from_secs(300);
/// Kibibytes of addresses that a process may use: many times the size of its pool.
const MEMORY_KIB: u64 = 4 << 20;
/// Interval of checks on a process.
const LOOK: Duration = Duration::from_millis(2);
/// The end of a process's messages that is kept.
const MESSAGE_BYTES: u64 = 16 << 10;

/// Returns this program as a command with a limit of memory.
fn program(words: &[OsString]) -> io::Result<Command> {
    let mut command = Command::new("sh");
    command.arg("-c").arg(format!("ulimit -v {MEMORY_KIB}; exec \"$0\" \"$@\""));
    command.arg(std::env::current_exe()?).args(words);
    without_credentials(&mut command);
    command.env_remove("DARTER_POOL").env("RUST_BACKTRACE", "0");
    Ok(command)
}

/// The results of a process that has ended.
#[derive(Debug)]
pub(super) struct Ended {
    pub(super) code: Option<i32>,
    pub(super) out: String,
    pub(super) err: String,
}

/// Runs a command of this program.
pub(super) fn run(words: &[OsString]) -> io::Result<Ended> {
    let mut child =
        program(words)?.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    let read = |from: Option<Box<dyn Read + Send>>| {
        thread::spawn(move || {
            let mut bytes = Vec::new();
            if let Some(from) = from {
                let _ = from.take(1 << 20).read_to_end(&mut bytes);
            }
            String::from_utf8_lossy(&bytes).into_owned()
        })
    };
    let out = read(child.stdout.take().map(|out| Box::new(out) as Box<dyn Read + Send>));
    let err = read(child.stderr.take().map(|err| Box::new(err) as Box<dyn Read + Send>));
    let status = wait(&mut child, HANGS_AFTER)?;
    let mut err = err.join().unwrap_or_default();
    if status.is_none() {
        err.push_str("killed, since it did not end");
        let _ = child.kill();
        child.wait()?;
    }
    Ok(Ended { code: status.and_then(|status| status.code()), out: out.join().unwrap_or_default(), err })
}

/// Waits for a process. Returns `None` if it does not end in time.
fn wait(child: &mut Child, patience: Duration) -> io::Result<Option<ExitStatus>> {
    let end = Instant::now() + patience;
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        if Instant::now() > end {
            return Ok(None);
        }
        thread::sleep(LOOK);
    }
}

/// A memory node; killed when dropped.
#[derive(Debug)]
pub(super) struct Node {
    child: Child,
    messages: std::path::PathBuf,
    /// The first line of its output: its URL, or empty if it has ended without serving.
    url: Option<mpsc::Receiver<String>>,
}

impl Node {
    /// Starts a memory node with these arguments, whose messages go to a file.
    pub(super) fn start(words: &[OsString], messages: &Path) -> io::Result<Self> {
        let words: Vec<OsString> = ["memnode".into(), "--until-stdin-closes".into()]
            .into_iter()
            .chain(words.iter().cloned())
            .collect();
        let mut command = program(&words)?;
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(File::create(messages)?);
        let mut child = command.spawn()?;
        let (sender, receiver) = mpsc::channel();
        let out = child.stdout.take();
        thread::spawn(move || {
            let mut line = String::new();
            if let Some(out) = out {
                let _ = BufReader::new(out).read_line(&mut line);
            }
            sender.send(line.trim().to_owned())
        });
        Ok(Self { child, messages: messages.to_owned(), url: Some(receiver) })
    }

    /// Waits until the node serves, and returns its URL; an empty one if it has ended.
    pub(super) fn url(&mut self) -> Result<String, String> {
        let line = self.url.take().map(|url| url.recv_timeout(HANGS_AFTER));
        line.and_then(Result::ok).ok_or_else(|| format!("a node neither serves nor ends: {}", self.said()))
    }

    /// Waits for the exit code of a node that has ended by itself.
    pub(super) fn code(&mut self) -> io::Result<Option<i32>> {
        Ok(wait(&mut self.child, HANGS_AFTER)?.and_then(|status| status.code()))
    }

    /// Requests the node to stop, and waits for it.
    pub(super) fn stop(mut self) -> io::Result<()> {
        drop(self.child.stdin.take());
        wait(&mut self.child, HANGS_AFTER).map(drop)
    }

    /// The end of its messages.
    pub(super) fn said(&self) -> String {
        let said = fs::read(&self.messages).unwrap_or_default();
        let begin = said.len().saturating_sub(MESSAGE_BYTES as usize);
        String::from_utf8_lossy(&said[begin..]).into_owned()
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
