//! The state shared by all threads of a gateway: its store, its clients, its counts and its log.

use super::acl::Acl;
use super::clients::Clients;
use super::fault::Fault;
#[cfg(feature = "scripts")]
use super::lua::Scripts;
use super::mailbox::HeldBytes;
use super::monitors::Monitors;
use super::notifications::Notifications;
use super::options::GatewayOptions;
use super::pause::Pause;
use super::peers::Peers;
use super::pubsub::PubSub;
use super::request::BULK_BYTES_MAX;
use super::slow::SlowLog;
use super::statistics::{Baseline, Counts, Since, Sums, ThreadCounts};
use super::tracking::Tracking;
use super::waiting::Waiting;
use darter::engine::Engine;
use darter::{IndexKind, Store};
use darter_fabric::wire::Credential;
use darter_fabric::{Fabric, Provider};
use darter_telemetry::descriptors;
use darter_telemetry::log_limit::{LogKind, LogLimiter};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tracing::{info, warn};

/// The state of a gateway.
#[derive(Debug)]
pub(super) struct GatewayState {
    pub(super) options: GatewayOptions,
    pub(super) store: Store,
    /// How many times the store had rejoined its pool when that was last logged.
    joins_logged: AtomicU64,
    /// Whether it was logged that the store is shut out.
    is_out_logged: AtomicBool,
    pub(super) clients: Clients,
    pub(super) counts: Counts,
    /// By thread.
    pub(super) threads: Vec<Arc<ThreadCounts>>,
    pub(super) slow: SlowLog,
    #[cfg(feature = "scripts")]
    pub(super) scripts: Scripts,
    base: Mutex<Baseline>,
    log: Mutex<LogLimiter<LogLine>>,
    pub(super) since: Instant,
    /// Whether the pool's index has transactions.
    pub(super) has_transactions: bool,
    /// Whether requests wait for round trips: the pool is not on this machine.
    pub(super) has_round_trips: bool,
    /// Whether prefetches of the pool's index have an effect.
    pub(super) is_prefetched: bool,
    /// The longest accepted argument, in bytes: the largest value of the pool.
    pub(super) argument_bytes_max: usize,
    /// Bytes of the buffers of requests and replies that are waiting, and of messages.
    pub(super) held_bytes: Arc<AtomicUsize>,
    pub(super) pubsub: Arc<PubSub>,
    pub(super) peers: Peers,
    pub(super) monitors: Arc<Monitors>,
    pub(super) pause: Pause,
    pub(super) notifications: Notifications,
    pub(super) acl: Acl,
    /// The credentials of this gateway, and of its connections to memory nodes, that were read from
    /// files.
    pub(super) credentials: Vec<Credential>,
    /// The clients that wait for elements of keys.
    pub(super) waiting: Arc<Waiting>,
    /// The keys that clients track.
    pub(super) tracking: Arc<Tracking>,
    pub(super) is_stopping: AtomicBool,
    /// Whether connections were ended while their requests were in progress, because the gateway ends.
    pub(super) is_cut: AtomicBool,
    /// The last failure to reach a memory node, and its time.
    node_failure: Mutex<Option<(String, Instant)>>,
}

/// How long the gateway counts as degraded after it has failed to reach a memory node: longer than
/// the longest pause of the background walk, which tries again.
const DEGRADED: Duration = Duration::from_secs(30);

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

/// Bytes of a pair without a Redis key and its value: two before the key, for the gateways' key
/// space and the kind of the record, and one before the value, for its type.
const RECORD_BYTES: usize = 3;

/// Returns the length of the largest value that a pool can store, under an empty key.
pub(super) fn value_bytes_max(store: &Store) -> usize {
    store.max_value_bytes().saturating_sub(RECORD_BYTES)
}

/// Descriptors kept free of clients, for the status page and the system.
const DESCRIPTORS_KEPT: usize = 64;
/// Descriptors of a serving thread without its connections to memory nodes.
const DESCRIPTORS_OF_A_THREAD: usize = 8;

/// Returns the most clients that the options and the limit of open files allow. A gateway without
/// descriptors for its connections to memory nodes serves no client.
fn connections_max(store: &Store, options: &GatewayOptions) -> usize {
    let nodes = usize::from(store.pool().nodes());
    let kept = DESCRIPTORS_KEPT + (options.threads.max(1) + 1) * (nodes + DESCRIPTORS_OF_A_THREAD);
    let left = descriptors::left();
    let allowed = left.saturating_sub(kept).max(left / 4).max(1);
    if allowed < options.connections_max {
        warn!(
            connections_max = allowed,
            "the limit of open files allows fewer connections than the options do"
        );
    }
    allowed.min(options.connections_max)
}

fn credentials_of(options: &GatewayOptions, store: &Store) -> Vec<Credential> {
    let mut credentials = options.credentials();
    credentials.extend(store.pool().fabric().remote_nodes().credentials());
    credentials
}

impl GatewayState {
    pub(super) fn new(store: Store, mut options: GatewayOptions) -> Self {
        options.connections_max = connections_max(&store, &options);
        let threads = (0..options.threads.max(1)).map(|_| Arc::default()).collect();
        let held_bytes = Arc::<AtomicUsize>::default();
        let held = HeldBytes::new(Arc::clone(&held_bytes), options.buffer_bytes_max);
        Self {
            pubsub: Arc::new(PubSub::new(held.clone())),
            monitors: Arc::new(Monitors::new(held.clone())),
            pause: Pause::default(),
            notifications: Notifications::default(),
            acl: Acl::new(options.password.clone()),
            credentials: credentials_of(&options, &store),
            tracking: Arc::new(Tracking::new(held.clone(), &options)),
            peers: Peers::new(held, options.message_bytes_max, options.announce.is_some()),
            threads,
            slow: SlowLog::new(options.slow, options.slow_entries),
            #[cfg(feature = "scripts")]
            scripts: Scripts::new(&options),
            base: Mutex::default(),
            log: Mutex::new(LogLimiter::new(Instant::now())),
            argument_bytes_max: value_bytes_max(&store).min(BULK_BYTES_MAX),
            has_round_trips: !matches!(store.pool().fabric().inner(), Provider::Local(_)),
            is_prefetched: store.index().kind() != Some(IndexKind::Quiver),
            has_transactions: store.index().kind() == Some(IndexKind::Quiver),
            options,
            store,
            joins_logged: AtomicU64::new(0),
            is_out_logged: AtomicBool::new(false),
            clients: Clients::default(),
            counts: Counts::default(),
            since: Instant::now(),
            held_bytes,
            waiting: Arc::default(),
            is_stopping: AtomicBool::new(false),
            is_cut: AtomicBool::new(false),
            node_failure: Mutex::default(),
        }
    }

    /// Returns whether a client of any gateway tracks keys, so that changed keys must be reported.
    #[inline]
    pub(super) fn are_changes_wanted(&self) -> bool {
        self.tracking.is_any() || self.peers.track()
    }

    /// Returns whether new clients must authenticate or complete a TLS handshake.
    pub(super) fn has_strangers(&self) -> bool {
        self.options.tls.is_some() || !self.acl.is_open()
    }

    /// Logs that the pool has ended this gateway's membership, and that the store has joined it again.
    pub(super) fn log_membership(&self) {
        let joins = self.store.joins();
        if self.joins_logged.swap(joins, Ordering::Relaxed) != joins {
            self.is_out_logged.store(false, Ordering::Relaxed);
            info!(joins, "the pool is open again, with another membership");
        }
        if self.store.is_shut_out() && !self.is_out_logged.swap(true, Ordering::Relaxed) {
            warn!("the pool has ended this gateway's membership; opening the pool again");
        }
    }

    /// Counts an error reply, and logs a failure of the store.
    pub(super) fn note(&self, fault: &Fault) {
        self.counts.note(fault);
        if let Fault::Store(error) = fault {
            if self.may_log(LogLine::Failed) {
                warn!(%error, "a command failed");
            }
            self.failed(error);
        }
    }

    /// Records a failure of the pool.
    fn failed(&self, error: &darter::Error) {
        if error.is_disconnected() {
            *self.node_failure() = Some((error.to_string(), Instant::now()));
        }
    }

    fn node_failure(&self) -> MutexGuard<'_, Option<(String, Instant)>> {
        self.node_failure.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the reason why commands may fail now, if there is one: the pool's upkeep fails, or a
    /// memory node could not be reached recently.
    pub(super) fn degraded(&self, now: Instant) -> Option<String> {
        let fabric = self.store.pool().fabric().notes();
        let upkeep = self.store.notes().into_iter().find(|note| !fabric.contains(note));
        let is_recent = |at: Instant| now.saturating_duration_since(at) < DEGRADED;
        let recent = || self.node_failure().clone().filter(|(_, at)| is_recent(*at)).map(|(why, _)| why);
        upkeep.or_else(recent)
    }

    /// Handles a failure of the background walk, which was not caused by a client: logs it if it is
    /// the first in a row.
    pub(super) fn note_of_walk(&self, fault: &Fault, is_first: bool) {
        if is_first {
            warn!(error = %fault.text(), "the walk that removes expired keys has failed, and tries again");
        }
        if let Fault::Store(error) = fault {
            self.failed(error);
        }
    }

    /// Returns whether another line of a kind may be logged now.
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

    /// Returns the counts since the statistics were reset.
    pub(super) fn since_reset(&self) -> Since {
        let base = self.base.lock().unwrap_or_else(PoisonError::into_inner);
        Since::new(&self.sums(), &self.counts, &base)
    }

    /// Resets the statistics that `INFO` reports.
    pub(super) fn reset_statistics(&self) {
        let mut base = self.base.lock().unwrap_or_else(PoisonError::into_inner);
        *base = Baseline::of(&self.sums(), &self.counts);
        self.counts.codes().clear();
    }

    /// Returns the milliseconds since the gateway started.
    pub(super) fn uptime_ms(&self) -> u64 {
        u64::try_from(self.since.elapsed().as_millis()).unwrap_or(u64::MAX)
    }
}
