//! The state that all threads of a gateway share: its store, its clients, its counts and its log.

use super::clients::Clients;
use super::fault::Fault;
use super::options::GatewayOptions;
use super::slow::SlowLog;
use super::statistics::{Counts, Sums, ThreadCounts};
use darter::Store;
use darter_telemetry::log_limit::{LogKind, LogLimiter};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;
use tracing::warn;

/// The state of a gateway.
#[derive(Debug)]
pub(super) struct GatewayState {
    pub(super) options: GatewayOptions,
    pub(super) store: Store,
    pub(super) clients: Clients,
    pub(super) counts: Counts,
    /// By thread.
    pub(super) threads: Vec<Arc<ThreadCounts>>,
    pub(super) slow: SlowLog,
    log: Mutex<LogLimiter<LogLine>>,
    pub(super) since: Instant,
    /// Bytes of requests and replies that are waiting.
    pub(super) held_bytes: AtomicUsize,
    pub(super) is_stopping: AtomicBool,
    pub(super) is_shut_out: AtomicBool,
}

/// The kinds of log lines that clients can cause.
#[derive(Clone, Copy, Debug)]
pub(super) enum LogLine {
    Accepted,
    Closed,
    Refused,
    Dropped,
    Slow,
    Failed,
    Accepting,
}

impl LogKind for LogLine {
    const NAMES: &'static [&'static str] = &[
        "connections accepted",
        "connections closed",
        "connections refused",
        "connections dropped",
        "slow commands",
        "commands that failed",
        "connections that could not be accepted",
    ];

    fn index(self) -> usize {
        self as usize
    }
}

impl GatewayState {
    pub(super) fn new(store: Store, options: GatewayOptions) -> Self {
        let threads = (0..options.threads.max(1)).map(|_| Arc::default()).collect();
        Self {
            threads,
            slow: SlowLog::new(options.slow, options.slow_entries),
            log: Mutex::new(LogLimiter::new(Instant::now())),
            options,
            store,
            clients: Clients::default(),
            counts: Counts::default(),
            since: Instant::now(),
            held_bytes: AtomicUsize::new(0),
            is_stopping: AtomicBool::new(false),
            is_shut_out: AtomicBool::new(false),
        }
    }

    /// Counts an error reply, and logs a failure of the store.
    pub(super) fn note(&self, fault: &Fault) {
        self.counts.note(fault);
        if let Fault::Store(error) = fault {
            if self.may_log(LogLine::Failed) {
                warn!(%error, "a command failed");
            }
            if error.is_shut_out() {
                self.is_shut_out.store(true, Ordering::Relaxed);
            }
        }
    }

    /// Returns whether one more line of a kind may be logged now.
    pub(super) fn may_log(&self, line: LogLine) -> bool {
        self.log().allows(line, Instant::now())
    }

    pub(super) fn log(&self) -> MutexGuard<'_, LogLimiter<LogLine>> {
        self.log.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the sums of all threads' counts.
    pub(super) fn sums(&self) -> Sums {
        Sums::of(&self.threads)
    }

    /// Returns the milliseconds since the gateway started.
    pub(super) fn uptime_ms(&self) -> u64 {
        u64::try_from(self.since.elapsed().as_millis()).unwrap_or(u64::MAX)
    }
}
