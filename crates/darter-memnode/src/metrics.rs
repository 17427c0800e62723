//! What a memory node counts. The serving thread alone writes, with plain relaxed stores; whoever wants the numbers reads
//! them meanwhile: a scrape, a health check, the log's last line.

use darter_fabric::wire::Refusal;
use darter_fabric::{Verb, VerbKind};
use darter_telemetry::counters::{Counter, Histogram};
use std::time::{Duration, Instant};

/// Why a connection was not let in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RefusedFor {
    /// It does not speak TLS where the node does, or showed no certificate that holds, or did not believe the node's.
    Tls,
    /// It does not speak our protocol at all.
    Protocol,
    /// Another version of it.
    Version,
    /// No token, or a wrong one.
    Credentials,
    /// Its session was shut out.
    Fenced,
    /// There are as many connections as the node takes.
    Busy,
    /// The node is stopping.
    Closing,
    /// The system had no random numbers to greet it with.
    System,
}

impl RefusedFor {
    /// The reasons as metrics and logs name them, in order.
    pub const NAMES: [&str; 8] =
        ["tls", "protocol", "version", "credentials", "fenced", "busy", "closing", "system"];

    /// The reason as metrics and logs name it.
    pub fn name(self) -> &'static str {
        Self::NAMES[self as usize]
    }
}

impl From<Refusal> for RefusedFor {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::Version => Self::Version,
            Refusal::Credentials => Self::Credentials,
            Refusal::Fenced => Self::Fenced,
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
    /// It sent what makes no sense.
    Malformed,
    /// It left its answers unread.
    Unread,
    /// It did not finish its greeting, or a request, in time.
    Silent,
    /// Its session was shut out.
    Fenced,
    /// It held the most of what all connections may hold together.
    Memory,
    /// The node stopped before it had taken its answers.
    Closing,
    /// The system would not watch its socket.
    System,
}

impl DroppedFor {
    /// The reasons as metrics and logs name them, in order.
    pub const NAMES: [&str; 7] = ["malformed", "unread", "silent", "fenced", "memory", "closing", "system"];

    /// The reason as metrics and logs name it.
    pub fn name(self) -> &'static str {
        Self::NAMES[self as usize]
    }
}

/// Everything a memory node counts, from its first moment on.
#[derive(Debug)]
pub struct MemNodeMetrics {
    began: Instant,
    pub(crate) region_bytes: u64,
    /// Connections there are, greeted or not.
    pub(crate) open: Counter,
    pub(crate) accepted: Counter,
    pub(crate) refused: [Counter; RefusedFor::NAMES.len()],
    pub(crate) dropped: [Counter; DroppedFor::NAMES.len()],
    pub(crate) sessions: Counter,
    pub(crate) fenced_sessions: Counter,
    pub(crate) frames: Counter,
    pub(crate) verbs: [Counter; VERB_KINDS.len()],
    pub(crate) batch_verbs: Histogram<1, 2, 10>,
    /// Nanoseconds from finding sockets ready to having served them all.
    pub(crate) turn_nanos: Histogram<1000, 2, 10>,
    pub(crate) received_bytes: Counter,
    pub(crate) sent_bytes: Counter,
    /// Bytes of answers that peers have not taken.
    pub(crate) waiting_bytes: Counter,
    /// Memory behind all connections' buffers.
    pub(crate) buffer_bytes: Counter,
    pub(crate) is_draining: Counter,
    /// Milliseconds from the beginning to the last look around.
    looked_ms: Counter,
}

/// Verbs by the code of their kind.
pub(crate) const VERB_KINDS: [(VerbKind, &str); 4] =
    [(VerbKind::Read, "read"), (VerbKind::Write, "write"), (VerbKind::Cas, "cas"), (VerbKind::Faa, "faa")];

/// How long a node may not look around before it counts as stuck; it does several times a second.
const STUCK: Duration = Duration::from_secs(10);

/// Whether a memory node can be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Health {
    /// It serves.
    Serving,
    /// It is stopping.
    Draining,
    /// Its thread has not looked around for 10 seconds.
    Stuck,
}

/// What a memory node has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemNodeCounts {
    /// Connections let in.
    pub accepted: u64,
    /// Connections refused, for any reason.
    pub refused: u64,
    /// Connections that the node ended, for any reason.
    pub dropped: u64,
    /// Frames taken.
    pub frames: u64,
    /// Verbs executed.
    pub verbs: u64,
}

impl MemNodeMetrics {
    pub(crate) fn new(region_bytes: u64) -> Self {
        Self {
            began: Instant::now(),
            region_bytes,
            open: Counter::default(),
            accepted: Counter::default(),
            refused: Default::default(),
            dropped: Default::default(),
            sessions: Counter::default(),
            fenced_sessions: Counter::default(),
            frames: Counter::default(),
            verbs: Default::default(),
            batch_verbs: Histogram::default(),
            turn_nanos: Histogram::default(),
            received_bytes: Counter::default(),
            sent_bytes: Counter::default(),
            waiting_bytes: Counter::default(),
            buffer_bytes: Counter::default(),
            is_draining: Counter::default(),
            looked_ms: Counter::default(),
        }
    }

    /// A batch was executed.
    #[inline]
    pub(crate) fn executed(&self, verbs: impl Iterator<Item = Verb>) {
        let mut count = 0;
        for verb in verbs {
            self.verbs[verb.kind as usize].add(1);
            count += 1;
        }
        self.batch_verbs.record(count);
    }

    /// The sockets that were ready have been served.
    pub(crate) fn turned(&self, took: Duration) {
        self.turn_nanos.record(u64::try_from(took.as_nanos()).unwrap_or(u64::MAX));
    }

    /// The serving thread has looked around.
    pub(crate) fn looked(&self, now: Instant) {
        self.looked_ms.set(millis(now.saturating_duration_since(self.began)));
    }

    /// How long there has been this node.
    pub fn uptime(&self) -> Duration {
        self.began.elapsed()
    }

    /// Whether the node can be used.
    pub fn health(&self) -> Health {
        if self.is_draining.get() != 0 {
            Health::Draining
        } else if millis(self.uptime()).saturating_sub(self.looked_ms.get()) > millis(STUCK) {
            Health::Stuck
        } else {
            Health::Serving
        }
    }

    /// The sums.
    pub fn counts(&self) -> MemNodeCounts {
        let sum = |counters: &[Counter]| counters.iter().map(Counter::get).sum();
        MemNodeCounts {
            accepted: self.accepted.get(),
            refused: sum(&self.refused),
            dropped: sum(&self.dropped),
            frames: self.frames.get(),
            verbs: sum(&self.verbs),
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
    fn a_thread_that_looks_no_more_is_stuck() {
        let mut metrics = MemNodeMetrics::new(1 << 20);
        assert_eq!(metrics.health(), Health::Serving);
        // As if it had begun long ago.
        if let Some(long_ago) = metrics.began.checked_sub(2 * STUCK) {
            metrics.began = long_ago;
            assert_eq!(metrics.health(), Health::Stuck);
            metrics.looked(Instant::now());
            assert_eq!(metrics.health(), Health::Serving);
        }
        metrics.is_draining.set(1);
        assert_eq!(metrics.health(), Health::Draining);
    }
}
