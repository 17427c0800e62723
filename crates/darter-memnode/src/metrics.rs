//! The counters of a memory node. Only the serving thread writes them; scrapes, health checks and
//! the log's last line can read them at any time.

use crate::group_metrics::GroupMetrics;
use crate::limits::TenantCounts;
use crate::log_metrics::LogMetrics;
use darter_fabric::VerbKind;
use darter_fabric::wire::{Credential, Refusal};
use darter_telemetry::counters::{Counter, Histogram, NANOS_BOUNDS, one_two_five};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Why a connection was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RefusedFor {
    /// The TLS handshake failed: the client does not speak TLS, has no valid certificate, or does
    /// not trust the node's.
    Tls,
    /// The client does not speak the protocol.
    Protocol,
    /// The client speaks another version of the protocol.
    Version,
    /// The client presented no token or a wrong one.
    Credentials,
    /// The client's session is fenced.
    Fenced,
    /// The node has as many connections as it accepts.
    Busy,
    /// The node is stopping.
    Closing,
    /// The system had no random numbers for the handshake.
    System,
}

impl RefusedFor {
    /// The names of the reasons in metrics and logs, in order.
    pub const NAMES: [&str; 8] =
        ["tls", "protocol", "version", "credentials", "fenced", "busy", "closing", "system"];

    /// Returns the name of the reason in metrics and logs.
    pub fn name(self) -> &'static str {
        Self::NAMES[self as usize]
    }
}

impl From<Refusal> for RefusedFor {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::Version => Self::Version,
            Refusal::Credentials | Refusal::ReadOnly => Self::Credentials,
            Refusal::Fenced | Refusal::Forgotten => Self::Fenced,
            Refusal::Busy => Self::Busy,
            Refusal::Closing => Self::Closing,
            Refusal::Failed => Self::System,
            _ => Self::Protocol,
        }
    }
}

/// Why the node ended a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DroppedFor {
    /// The client sent a malformed frame.
    Malformed,
    /// The client left its replies unread for too long.
    Unread,
    /// The client did not complete the handshake, or a request, in time.
    Silent,
    /// The client's session was fenced.
    Fenced,
    /// The connection had the largest buffers when all connections together exceeded their limit.
    Memory,
    /// The node stopped before the client had read its replies.
    Closing,
    /// The system refused to watch the socket.
    System,
}

impl DroppedFor {
    /// The names of the reasons in metrics and logs, in order.
    pub const NAMES: [&str; 7] = ["malformed", "unread", "silent", "fenced", "memory", "closing", "system"];

    /// Returns the name of the reason in metrics and logs.
    pub fn name(self) -> &'static str {
        Self::NAMES[self as usize]
    }
}

/// The bounds of the histogram of verbs in a batch, up to 5,000.
static BATCH_BOUNDS: [u64; 12] = one_two_five(1);

/// The counters of a memory node since its start.
#[derive(Debug)]
pub struct MemNodeMetrics {
    began: Instant,
    pub(crate) region_bytes: u64,
    /// Open connections, with or without a completed handshake.
    pub(crate) open: Counter,
    pub(crate) accepted: Counter,
    pub(crate) refused: [Counter; RefusedFor::NAMES.len()],
    pub(crate) dropped: [Counter; DroppedFor::NAMES.len()],
    /// Requests refused because their session may only read.
    pub(crate) read_only_refusals: Counter,
    pub(crate) sessions: Counter,
    pub(crate) fenced_sessions: Counter,
    pub(crate) queue_pairs: Counter,
    pub(crate) frames: Counter,
    /// Calls whose procedures have ended and whose outcome was sent to the client.
    pub(crate) calls: Counter,
    pub(crate) verbs: [Counter; VERB_KINDS.len()],
    pub(crate) batch_verbs: Histogram,
    /// Nanoseconds from finding sockets ready to having served all of them.
    pub(crate) turn_nanos: Histogram,
    pub(crate) received_bytes: Counter,
    pub(crate) sent_bytes: Counter,
    /// Bytes of replies that clients have not read.
    pub(crate) waiting_bytes: Counter,
    /// Bytes of memory of all connections' buffers.
    pub(crate) buffer_bytes: Counter,
    pub(crate) is_draining: Counter,
    /// Milliseconds from the start to the last iteration of the sweep.
    swept_ms: Counter,
    /// The log's counters, if one is kept.
    pub(crate) log: Option<Arc<LogMetrics>>,
    /// The tenants, if there are limits.
    tenants: Mutex<Vec<(String, Arc<TenantCounts>)>>,
    /// The credentials that were read from files.
    pub(crate) credentials: Vec<Credential>,
    /// The memory group's counters, if the node is a replica.
    pub(crate) group: Option<Arc<GroupMetrics>>,
}

/// The kinds of verbs, in the order of their codes.
pub(crate) const VERB_KINDS: [(VerbKind, &str); 4] =
    [(VerbKind::Read, "read"), (VerbKind::Write, "write"), (VerbKind::Cas, "cas"), (VerbKind::Faa, "faa")];

/// The age of the last sweep from which a node counts as stuck; it sweeps several times a second.
const STUCK: Duration = Duration::from_secs(10);

/// The health of a memory node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Health {
    /// The node serves.
    Serving,
    /// The node is stopping.
    Draining,
    /// The serving thread has not swept for 10 seconds.
    Stuck,
    /// The log can no longer be written, and the node refuses every request.
    LogFailed,
}

/// Totals of a memory node's counters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemNodeCounts {
    /// Connections that completed the handshake.
    pub accepted: u64,
    /// Connections refused, for any reason.
    pub refused: u64,
    /// Connections that the node ended, for any reason.
    pub dropped: u64,
    /// Frames received.
    pub frames: u64,
    /// Verbs executed.
    pub verbs: u64,
    /// Calls whose outcome was sent.
    pub calls: u64,
}

impl MemNodeMetrics {
    pub(crate) fn new(region_bytes: u64, log: Option<Arc<LogMetrics>>) -> Self {
        Self {
            log,
            tenants: Mutex::default(),
            credentials: Vec::new(),
            group: None,
            began: Instant::now(),
            region_bytes,
            open: Counter::default(),
            accepted: Counter::default(),
            refused: Default::default(),
            dropped: Default::default(),
            read_only_refusals: Counter::default(),
            sessions: Counter::default(),
            fenced_sessions: Counter::default(),
            queue_pairs: Counter::default(),
            frames: Counter::default(),
            calls: Counter::default(),
            verbs: Default::default(),
            batch_verbs: Histogram::new(&BATCH_BOUNDS),
            turn_nanos: Histogram::new(&NANOS_BOUNDS),
            received_bytes: Counter::default(),
            sent_bytes: Counter::default(),
            waiting_bytes: Counter::default(),
            buffer_bytes: Counter::default(),
            is_draining: Counter::default(),
            swept_ms: Counter::default(),
        }
    }

    /// Counts an executed batch.
    #[inline]
    pub(crate) fn executed(&self, counts: [u16; VerbKind::COUNT]) {
        for (counter, count) in self.verbs.iter().zip(counts) {
            counter.add(count.into());
        }
        self.batch_verbs.record(counts.into_iter().map(u64::from).sum());
    }

    /// Counts an iteration of the event loop.
    pub(crate) fn turned(&self, took: Duration) {
        self.turn_nanos.record(u64::try_from(took.as_nanos()).unwrap_or(u64::MAX));
    }

    /// Notes the tenants with limits.
    pub(crate) fn know_tenants(&self, tenants: impl FnOnce() -> Vec<(String, Arc<TenantCounts>)>) {
        *self.tenants.lock().unwrap_or_else(PoisonError::into_inner) = tenants();
    }

    /// Returns the tenants with limits.
    pub(crate) fn tenants(&self) -> Vec<(String, Arc<TenantCounts>)> {
        self.tenants.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Records when the serving thread last swept.
    pub(crate) fn swept(&self, now: Instant) {
        self.swept_ms.set(millis(now.saturating_duration_since(self.began)));
    }

    /// Returns the time since the node started.
    pub fn uptime(&self) -> Duration {
        self.began.elapsed()
    }

    /// Returns the node's health.
    pub fn health(&self) -> Health {
        if self.is_draining.get() != 0 {
            Health::Draining
        } else if self.log.as_ref().is_some_and(|log| log.has_failed.get() != 0) {
            Health::LogFailed
        } else if millis(self.uptime()).saturating_sub(self.swept_ms.get()) > millis(STUCK) {
            Health::Stuck
        } else {
            Health::Serving
        }
    }

    /// Returns the totals.
    pub fn counts(&self) -> MemNodeCounts {
        let sum = |counters: &[Counter]| counters.iter().map(Counter::get).sum();
        MemNodeCounts {
            accepted: self.accepted.get(),
            refused: sum(&self.refused),
            dropped: sum(&self.dropped),
            frames: self.frames.get(),
            verbs: sum(&self.verbs),
            calls: self.calls.get(),
        }
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn verbs_stand_where_their_codes_say() {
        for (at, (kind, _)) in VERB_KINDS.into_iter().enumerate() {
            assert_eq!(kind as usize, at);
        }
    }

    #[test]
    fn a_thread_that_stops_sweeping_is_stuck() {
        let mut metrics = MemNodeMetrics::new(1 << 20, None);
        assert_eq!(metrics.health(), Health::Serving);
        // Pretends that the node started long ago.
        if let Some(long_ago) = metrics.began.checked_sub(2 * STUCK) {
            metrics.began = long_ago;
            assert_eq!(metrics.health(), Health::Stuck);
            metrics.swept(Instant::now());
            assert_eq!(metrics.health(), Health::Serving);
        }
        metrics.is_draining.set(1);
        assert_eq!(metrics.health(), Health::Draining);
    }
}
