//! Requests to stop or to reload, by signals or by the end of the parent process.
//!
//! A daemon drains ([`asked_to_stop`]); SIGHUP makes it read its credentials again. A long-running command ends at the next safe point and
//! reports the work done ([`Interrupt`]). A second signal ends either at once.

use crate::failure::{EXIT_FAILED, EXIT_INTERRUPTED, Failure, complain};
use darter_memnode::Stop;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGXFSZ};
use signal_hook::flag;
use signal_hook::iterator::Signals;
use signal_hook::low_level;
use std::io::{IsTerminal, Read};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// Interval of checks for a signal while another thread works.
const LOOK: Duration = Duration::from_millis(20);

/// Maximum time for a daemon to end after a second request.
const URGENT_PATIENCE: Duration = Duration::from_millis(500);

/// The only instance, since signals are per process.
static ONE: OnceLock<Interrupt> = OnceLock::new();

/// Returns the signals that request the process to end: SIGTERM, SIGINT and SIGHUP, which is sent
/// when a terminal closes, unless the parent set it to be ignored (`nohup`).
pub(crate) fn ending_signals() -> Vec<i32> {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mut signals = vec![SIGTERM, SIGINT];
    if !is_ignored(&status, SIGHUP) {
        signals.push(SIGHUP);
    }
    signals
}

/// Returns whether a process ignores a signal, according to its file `status` in /proc.
fn is_ignored(status: &str, signal: i32) -> bool {
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let ignored = ignored.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    ignored.is_some_and(|mask| mask >> (signal - 1) & 1 == 1)
}

/// Whether one of the [`ending_signals`] has arrived.
#[derive(Clone, Debug)]
pub struct Interrupt {
    flag: Arc<AtomicBool>,
}

impl Interrupt {
    /// Handles the [`ending_signals`]: from now on the first only sets a flag, and the second ends
    /// the process. All calls return the same value.
    pub fn on_signals() -> Result<Self, Failure> {
        if let Some(one) = ONE.get() {
            return Ok(one.clone());
        }
        let flag = Arc::new(AtomicBool::new(false));
        for signal in ending_signals() {
            // In this order: the first signal must not find the flag set.
            flag::register_conditional_shutdown(signal, i32::from(EXIT_INTERRUPTED), Arc::clone(&flag))
                .and_then(|_| flag::register(signal, Arc::clone(&flag)))
                .map_err(Failure::failed)?;
        }
        Ok(ONE.get_or_init(|| Self { flag }).clone())
    }

    /// Returns the value if the signals are handled already, as in the shell; a signal ends other
    /// commands at once.
    pub(crate) fn of_shell() -> Option<&'static Self> {
        ONE.get()
    }

    /// Returns whether a signal has arrived.
    pub fn has_come(&self) -> bool {
        self.flag.load(Ordering::Relaxed)
    }

    /// Returns whether a signal has arrived, and resets the flag.
    pub(crate) fn take(&self) -> bool {
        self.flag.swap(false, Ordering::Relaxed)
    }

    /// Returns the flag, for code in other crates.
    pub fn flag(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.flag)
    }

    /// Waits for a message. Returns `None` on a signal, or if the sender is dropped.
    pub(crate) fn receive<T>(&self, from: &mpsc::Receiver<T>) -> Option<T> {
        while !self.has_come() {
            match from.recv_timeout(LOOK) {
                Ok(message) => return Some(message),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return None,
            }
        }
        None
    }

    /// Runs `work` in a separate thread and waits for its result. Returns `None` on a signal; the
    /// thread then runs until the process ends.
    pub(crate) fn or_result<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<Option<T>, Failure> {
        let (send, receive) = mpsc::sync_channel(1);
        in_a_thread("work", move || {
            // After a signal the result has no receiver.
            let _ = send.send(work());
        })?;
        Ok(self.receive(&receive))
    }
}

/// Runs work that can block for ever, such as opening a FIFO. A signal interrupts it: it ends the
/// process, except in the shell, which handles signals and gets a failure.
pub(crate) fn unless_interrupted<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Failure> + Send + 'static,
) -> Result<T, Failure> {
    match Interrupt::of_shell() {
        None => work(),
        Some(interrupt) => {
            let result = interrupt.or_result(work)?;
            result.unwrap_or_else(|| Err(Failure::Interrupted("interrupted; nothing was done".to_owned())))
        }
    }
}

/// Stops a daemon: the first request lets it drain, the second ends it at once.
struct Stopper {
    stop: Arc<Stop>,
    /// Maximum time for the daemon to end, if limited.
    patience: Option<Duration>,
}

impl Stopper {
    fn ask(&self) {
        self.stop.ask();
        if self.stop.is_urgent() {
            end_within(URGENT_PATIENCE, EXIT_INTERRUPTED);
        } else if let Some(patience) = self.patience {
            end_within(patience, EXIT_FAILED);
        }
    }
}

/// Ends the process with an exit code after `patience`, unless it has ended by then: absent memory
/// nodes or disks must not delay the end of a daemon.
pub(crate) fn end_within(patience: Duration, code: u8) {
    let deadline = move || {
        std::thread::sleep(patience);
        complain("ended without waiting further for the pool or the disk; nothing acknowledged is lost");
        low_level::exit(code.into());
    };
    // Without the thread the process ends when it has left the pool.
    let _ = in_a_thread("deadline", deadline);
}

/// Returns the requests that are triggered by signals and, if `until_stdin_closes`, by the end of
/// stdin. After the first request to stop the daemon has `patience` to end, if limited. SIGHUP
/// requests a reload, unless the daemon's terminal was closed.
pub(crate) fn asked_to_stop(
    until_stdin_closes: bool,
    patience: Option<Duration>,
) -> Result<Arc<Stop>, Failure> {
    let stop = Arc::new(Stop::default());
    let stopper = Arc::new(Stopper { stop: Arc::clone(&stop), patience });
    let had_terminal = std::io::stdin().is_terminal();
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    // Set by `nohup`.
    let outlives_terminal = is_ignored(&status, SIGHUP);
    let mut signals = Signals::new([SIGTERM, SIGINT, SIGHUP]).map_err(Failure::failed)?;
    if until_stdin_closes {
        stop_when_stdin_closes(Arc::clone(&stopper))?;
    }
    let handle = move |signal| {
        // A terminal that was closed answers no more questions.
        let is_closed = had_terminal && !outlives_terminal && !std::io::stdin().is_terminal();
        if signal == SIGHUP && !is_closed { stopper.stop.ask_to_reload() } else { stopper.ask() }
    };
    in_a_thread("signals", move || signals.forever().for_each(handle))?;
    Ok(stop)
}

/// Requests a stop at the end of stdin: the process at its other end has ended.
fn stop_when_stdin_closes(stopper: Arc<Stopper>) -> Result<(), Failure> {
    in_a_thread("stdin", move || {
        let mut stdin = std::io::stdin().lock();
        while stdin.read(&mut [0; 64]).is_ok_and(|count| count > 0) {}
        if !stopper.stop.is_asked() {
            stopper.ask();
        }
    })
}

/// Handles the signals that would end a process without a message because of its files. From now on
/// a write beyond the process's limit on file size (SIGXFSZ) fails with EFBIG, like a write to a
/// full disk; an access to a page of a pool file that cannot be read (SIGBUS) ends the process with
/// a message.
pub(crate) fn report_limits_of_files() -> Result<(), Failure> {
    flag::register(SIGXFSZ, Arc::new(AtomicBool::new(false))).map_err(Failure::failed)?;
    darter::exit_on_bus_error().map_err(Failure::failed)
}

/// Starts a detached thread.
pub fn in_a_thread(name: &str, work: impl FnOnce() + Send + 'static) -> Result<(), Failure> {
    std::thread::Builder::new().name(name.to_owned()).spawn(work).map_err(Failure::failed)?;
    Ok(())
}
