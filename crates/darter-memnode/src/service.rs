//! State shared by all connections of a memory node: the region, the sessions, the metrics and the
//! log.

use crate::group::Group;
use crate::limits::Gate;
use crate::metrics::{DroppedFor, MemNodeMetrics, RefusedFor};
use crate::options::MemNodeOptions;
use crate::queues::{QueueId, Queues};
use crate::redo_log::Journal;
use crate::sessions::Sessions;
use crate::workers::Workers;
use darter_fabric::Local;
use darter_fabric::wire::{Pairing, Refusal};
use darter_telemetry::log_limit::{LogKind, LogLimiter};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;
use tracing::{debug, info, warn};

/// The kinds of log lines that peers can cause.
#[derive(Clone, Copy, Debug)]
pub(crate) enum LogLine {
    Accepted,
    Closed,
    Refused,
    Dropped,
    Fenced,
    Accepting,
}

impl LogKind for LogLine {
    const NAMES: &'static [&'static str] = &[
        "connections accepted",
        "connections closed",
        "connections refused",
        "connections dropped",
        "sessions fenced",
        "connections that could not be accepted",
    ];

    fn index(self) -> usize {
        self as usize
    }
}

/// State shared by all connections while they are served.
pub(crate) struct Service<'s> {
    pub(crate) options: &'s MemNodeOptions,
    pub(crate) region: &'s Local,
    pub(crate) boot_id: u64,
    pub(crate) sessions: Sessions,
    pub(crate) queues: Queues,
    pub(crate) workers: Workers,
    /// `None` if no log is kept.
    pub(crate) journal: Option<Journal>,
    /// `None` if the node is not a replica.
    pub(crate) group: Option<Group>,
    /// The limits on the load of sessions and tenants.
    pub(crate) gate: Gate,
    pub(crate) metrics: &'s MemNodeMetrics,
    pub(crate) log: LogLimiter<LogLine>,
    /// Maximum number of connections that have completed the handshake.
    pub(crate) connections_max: usize,
    /// Open connections that have completed the handshake.
    pub(crate) greeted: usize,
    /// New connections are no longer accepted.
    pub(crate) is_draining: bool,
    /// When the ready sockets were found.
    pub(crate) now: Instant,
}

/// The log, if one is kept.
impl Service<'_> {
    /// Records new facts about sessions in the log. Returns the position up to which it must be
    /// durable before a client may learn of them, or of anything done so far.
    pub(crate) fn note_facts(&mut self) -> u64 {
        let facts = self.sessions.take_facts();
        self.journal.as_mut().map_or(0, |journal| journal.note(facts))
    }

    /// Returns whether acknowledged writes survive a power failure.
    pub(crate) fn is_durable(&self) -> bool {
        self.journal.is_some() || self.group.as_ref().is_some_and(Group::is_durable)
    }

    /// Returns the reason to refuse every request, if the log has failed.
    pub(crate) fn log_failure(&self) -> Option<Arc<str>> {
        self.journal.as_ref().and_then(Journal::failure)
    }

    /// Returns whether requests must wait for the disk.
    pub(crate) fn waits_for_disk(&self) -> bool {
        self.journal.as_ref().is_some_and(|journal| journal.is_full() && journal.failure().is_none())
    }

    /// Returns whether clients' requests must wait, for the disk or for other replicas.
    pub(crate) fn defers_requests(&self) -> bool {
        self.waits_for_disk() || self.group.as_ref().is_some_and(Group::is_full)
    }

    /// Returns whether a session is fenced.
    pub(crate) fn is_fenced(&self, session: u64) -> bool {
        self.sessions.is_fenced(session) || self.group.as_ref().is_some_and(|group| group.is_fenced(session))
    }

    /// Returns why a session is refused, with a text for people; `None` if it is admitted.
    pub(crate) fn refusal(&self, session: u64) -> Option<(Refusal, &'static str)> {
        let fenced = (Refusal::Fenced, "this session was shut out");
        self.sessions.refusal(session).or_else(|| self.is_fenced(session).then_some(fenced))
    }

    /// Ends a turn of the event loop.
    pub(crate) fn end_turn(&mut self, now: Instant) {
        let Self { journal, sessions, .. } = self;
        if let Some(journal) = journal {
            journal.end_turn(now, || sessions.facts());
        }
    }
}

/// Queue pairs, counted.
impl Service<'_> {
    /// Creates a queue pair for a session.
    pub(crate) fn pair(
        &mut self,
        session: u64,
        theirs: &Pairing,
    ) -> Result<(QueueId, Pairing), (Refusal, String)> {
        let paired = self.queues.pair(session, theirs);
        self.metrics.queue_pairs.set(self.queues.len() as u64);
        paired
    }

    /// Ends a queue pair.
    pub(crate) fn end_queue(&mut self, queue: QueueId) {
        self.queues.end(queue);
        self.metrics.queue_pairs.set(self.queues.len() as u64);
    }

    /// Ends the queue pairs of fenced sessions, and cancels their calls that have not begun.
    pub(crate) fn end_fenced(&mut self) {
        let Self { queues, sessions, workers, .. } = self;
        workers.forget_fenced(|session| sessions.is_fenced(session));
        queues.end_fenced(|session| sessions.is_fenced(session));
        self.metrics.queue_pairs.set(self.queues.len() as u64);
    }
}

/// Counting and logging of connections.
impl Service<'_> {
    /// Counts a connection that completed the handshake.
    pub(crate) fn accepted(&mut self, peer: SocketAddr, session: u64) {
        self.greeted += 1;
        self.metrics.accepted.add(1);
        self.metrics.sessions.set(self.sessions.connected() as u64);
        if self.log.allows(LogLine::Accepted, self.now) {
            info!(%peer, session = format_args!("{session:#x}"), "connection accepted");
        }
    }

    /// Counts a connection that was refused.
    pub(crate) fn refused(&mut self, peer: SocketAddr, reason: RefusedFor) {
        self.metrics.refused[reason as usize].add(1);
        if self.log.allows(LogLine::Refused, self.now) {
            warn!(%peer, reason = reason.name(), "connection refused");
        }
    }

    /// Counts a connection that ended; `reason` is set if the node ended it.
    pub(crate) fn parted(&mut self, peer: SocketAddr, session: u64, reason: Option<DroppedFor>) {
        self.metrics.sessions.set(self.sessions.connected() as u64);
        let session = format!("{session:#x}");
        let Some(reason) = reason else {
            if self.log.allows(LogLine::Closed, self.now) {
                debug!(%peer, session, "connection closed");
            }
            return;
        };
        self.metrics.dropped[reason as usize].add(1);
        if self.log.allows(LogLine::Dropped, self.now) {
            warn!(%peer, session, reason = reason.name(), "connection dropped");
        }
    }

    /// Logs the sessions fenced since `known` of them were.
    pub(crate) fn tell_fenced(&mut self, known: &mut u64, by: SocketAddr) {
        let (total, newest) = self.sessions.fenced_ever();
        if total == *known {
            return;
        }
        let count = total - std::mem::replace(known, total);
        self.metrics.fenced_sessions.set(self.sessions.fenced() as u64);
        if self.log.allows(LogLine::Fenced, self.now) {
            let session = newest.unwrap_or_default();
            warn!(session = format_args!("{session:#x}"), count, %by, "session fenced");
        }
    }
}
