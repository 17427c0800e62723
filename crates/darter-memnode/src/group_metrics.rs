//! The counters of a replica of a memory group, written by the serving thread.

use darter_group::{Memory, Replica, Role};
use darter_telemetry::counters::Counter;
use std::time::{Duration, Instant};

/// The roles of a replica, in the order of [`Role`]'s codes.
pub(crate) const ROLES: [&str; 3] = ["primary", "backup", "learner"];

/// The counters since the node's start.
#[derive(Debug)]
pub(crate) struct GroupMetrics {
    began: Instant,
    pub(crate) view: Counter,
    /// The code of a [`Role`].
    pub(crate) role: Counter,
    pub(crate) members: Counter,
    pub(crate) replicas: Counter,
    pub(crate) lsn: Counter,
    pub(crate) lag_records: Counter,
    pub(crate) log_bytes: Counter,
    pub(crate) held: Counter,
    pub(crate) failovers: Counter,
    pub(crate) store_errors: Counter,
    /// Milliseconds from the start to the time when it began to serve, plus 1; 0 if it never did.
    served_ms: Counter,
}

impl GroupMetrics {
    pub(crate) fn new(replicas: usize) -> Self {
        let metrics = Self {
            began: Instant::now(),
            view: Counter::default(),
            role: Counter::default(),
            members: Counter::default(),
            replicas: Counter::default(),
            lsn: Counter::default(),
            lag_records: Counter::default(),
            log_bytes: Counter::default(),
            held: Counter::default(),
            failovers: Counter::default(),
            store_errors: Counter::default(),
            served_ms: Counter::default(),
        };
        metrics.replicas.set(replicas as u64);
        metrics.role.set(Role::Learner as u64);
        metrics
    }

    fn millis(&self, at: Instant) -> u64 {
        u64::try_from(at.saturating_duration_since(self.began).as_millis()).unwrap_or(u64::MAX)
    }

    /// Records a replica's state.
    pub(crate) fn note<M: Memory>(&self, view: u64, role: Role, replica: &Replica<M>) {
        self.view.set(view);
        self.role.set(role as u64);
        self.members.set(replica.view().map_or(0, |view| view.members().count() as u64));
        self.lsn.set(replica.lsn());
        self.lag_records.set(replica.lsn().saturating_sub(replica.everywhere_lsn()));
        self.log_bytes.set(replica.log_bytes() as u64);
        self.held.set(replica.held_replies() as u64);
    }

    /// Records that the replica began to serve, in a view that may be the group's first.
    pub(crate) fn began_to_serve(&self, view: u64, now: Instant) {
        self.served_ms.set(self.millis(now) + 1);
        if view > 1 {
            self.failovers.add(1);
        }
    }

    /// Returns the time since the replica began to serve; 0 if it never did.
    pub(crate) fn since_failover(&self) -> Duration {
        match self.served_ms.get() {
            0 => Duration::ZERO,
            since => Duration::from_millis(self.millis(Instant::now()).saturating_sub(since - 1)),
        }
    }
}
