//! Stress with real processes: several of them work on one pool file, are killed and stopped at
//! random moments, and the results they received are checked for [linearizability](crate::linear).
//!
//! ```text
//! coordinator ──starts, SIGKILLs, SIGSTOPs, SIGCONTs──> worker processes, each with several threads
//!      │                                                    │ operations        │ one log per thread
//!      │ now and then a repair ─────────────> pool file or memory nodes         │
//!      └──────────────── watches, and reads at the end ─────────────────────────┘
//! ```
//!
//! Memory nodes of the run ([`cluster`]) are killed and started again, stopped and continued like
//! workers, and their links are cut and healed (`network.rs`).
//!
//! [`coordinator::run`] works in *rounds*, which bound the size of the logs and the memory of the
//! checker. In each round it starts workers, kills some and starts others in their place, stops
//! some for longer than the pool's lease, repairs the pool while they work, and finally ends them.
//! Then it reads every key itself, as part of the histories, and checks: every history must be
//! linearizable, every invariant of the pool must hold, nothing may be leaked after a repair, and
//! no worker may have ended by itself or hang. The next round starts from the resulting values.
//!
//! [`worker`] performs the operations, and [`log`] defines their record. A killed worker's last
//! operation, and one that met an error, is *pending*: it may have taken effect or not. An
//! operation that found the pool full changed nothing. Timestamps are from one clock that all
//! processes of the machine share ([`clock`]).
//!
//! To reach states that are rare by timing alone, [`worker`]s can delay the verbs they post at
//! random, also within batches, and the coordinator can stop single threads of them
//! ([`thread_stop`]). Workers count such events themselves ([`tally`]).
//!
//! With `transactions`, some operations are transactions and single operations on separate keys
//! (`ledger.rs`), whose common history [`elle`](crate::elle) checks.
//!
//! A seed determines the workers' operations and the coordinator's strikes, but not how the system
//! schedules the processes: a run cannot be repeated, but the logs of a failed run are kept. The
//! schedule explorer finds repeatable failures.

pub mod clock;
pub mod cluster;
pub mod collect;
pub mod coordinator;
mod error;
mod fleet;
pub mod judge;
pub mod keys;
mod ledger;
pub mod log;
pub mod log_reader;
mod network;
mod repairer;
pub mod replicas;
mod subject;
pub mod tally;
pub mod thread_stop;
pub mod worker;

pub use error::StressError;
pub use fleet::LaunchWorker;
pub use subject::SubjectKind;

use cluster::{ClusterConfig, LaunchNode};
use collect::Collected;
use darter::{PoolUrl, Store, StoreOptions};
use darter_fabric::Provider;
use darter_fabric::decorate::Jitter;
use judge::{KeyFailure, PoolJudgement};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;
use tally::WorkerCounts;

/// A pool, and the options for opening it.
#[derive(Clone, Debug)]
pub struct Site {
    /// The pool.
    pub url: PoolUrl,
    /// Credentials and all other options.
    pub options: StoreOptions,
    /// The index it holds.
    pub index: SubjectKind,
}

impl Site {
    /// A pool that needs no special options. Its stores stay shut out, so that the checks notice
    /// it.
    pub fn plain(url: PoolUrl, kind: SubjectKind) -> Self {
        Self { url, options: Store::options().rejoin(false), index: kind }
    }

    /// The same pool, opened by processes that leave remains of dead processes to repairs.
    #[must_use]
    pub fn without_sweeps(&self) -> Self {
        Self { url: self.url.clone(), options: self.options.clone().sweep(false), index: self.index }
    }

    /// Opens the pool, which must exist.
    ///
    /// # Errors
    /// Fails as [`StoreOptions::open`] does.
    pub fn open(&self) -> Result<Store, darter::Error> {
        self.index.open(&self.options.clone().create(false), &self.url)
    }

    /// Opens the pool, which must exist, with its fabric wrapped by `decorate`.
    ///
    /// # Errors
    /// Fails as [`darter::engine::open_decorated`] does.
    pub fn open_decorated(
        &self,
        decorate: impl FnOnce(Provider) -> Provider,
    ) -> Result<Store, darter::Error> {
        self.index.open_decorated(&self.options, &self.url, decorate)
    }

    /// Opens the pool, or creates it.
    pub(crate) fn make(&self) -> Result<Store, darter::Error> {
        self.index.open(&self.options, &self.url)
    }
}

/// The pool or memory nodes of a stress run.
#[derive(Clone, Debug)]
pub enum Environment {
    /// A pool without keys: a file, which may not exist yet, or memory nodes.
    Pool(Box<Site>),
    /// Memory nodes started for the run, with this index.
    Cluster(ClusterConfig, SubjectKind),
}

/// The commands that start the processes of a run.
#[derive(Clone, Copy)]
pub struct Launch<'l> {
    /// Workers.
    pub worker: &'l LaunchWorker<'l>,
    /// Memory nodes.
    pub node: &'l LaunchNode<'l>,
}

/// The configuration of a stress run.
#[derive(Clone, Debug)]
pub struct StressConfig {
    /// The pool that the workers use.
    pub environment: Environment,
    /// Number of worker processes at a time.
    pub processes: u32,
    /// Number of threads of each worker.
    pub threads: u32,
    /// Number of keys.
    pub keys: u32,
    /// Random seed.
    pub seed: u64,
    /// How long the workers work, excluding checks.
    pub duration: Duration,
    /// Ends the run sooner, after this many operations and, if they are configured, [`EVENTS_MIN`]
    /// kills, pauses and thread stops.
    pub operations: Option<u64>,
    /// Ends the run sooner, after this many kills.
    pub kills: Option<u64>,
    /// Kills per second, on average.
    pub kills_per_second: f64,
    /// Pauses per second, on average.
    pub pauses_per_second: f64,
    /// Repairs per second while the workers work, on average.
    pub repairs_per_second: f64,
    /// Stops of single threads per second, on average.
    pub thread_stops_per_second: f64,
    /// Random delays of the verbs that workers post, determined by the run's seed.
    pub jitter: Jitter,
    /// Whether values are large, some kilobytes: a small pool's memory is then reused within
    /// milliseconds.
    pub large_values: bool,
    /// Whether transactions are among the operations.
    pub transactions: bool,
    /// Falsifies one outcome before the checks, which must then detect it: a test of the test.
    pub canary: bool,
    /// Ends the run sooner once this is set.
    pub stop: Arc<AtomicBool>,
}

/// Kills, pauses and thread stops for which a run waits that ends by its number of operations.
pub const EVENTS_MIN: u64 = 3;

/// The progress of a run.
#[derive(Clone, Copy, Debug)]
pub struct Progress {
    /// Time worked.
    pub worked: Duration,
    /// Operations begun.
    pub operations: u64,
    /// Workers killed.
    pub kills: u64,
    /// Pauses made.
    pub pauses: u64,
    /// Stops of single threads requested.
    pub thread_stops: u64,
    /// Whether the round is over and being checked.
    pub judging: bool,
}

/// The results of a run.
#[derive(Clone, Debug)]
pub struct Report {
    /// Time worked.
    pub worked: Duration,
    /// Rounds checked.
    pub rounds: u64,
    /// Counts of operations. Its histories are empty.
    pub counts: Collected,
    /// Workers killed.
    pub kills: u64,
    /// Pauses made.
    pub pauses: u64,
    /// The longest pause.
    pub pause_max: Duration,
    /// Stops of single threads requested.
    pub thread_stops: u64,
    /// The longest stop of a thread.
    pub thread_stop_max: Duration,
    /// Counts of the workers, up to a few milliseconds before each was killed.
    pub inside: WorkerCounts,
    /// Total bytes of the values that were certainly written, each of which took separate memory.
    pub written_bytes: u64,
    /// Bytes of the pool.
    pub pool_bytes: u64,
    /// Memory nodes killed.
    pub node_kills: u64,
    /// Memory nodes stopped.
    pub node_pauses: u64,
    /// Links cut or slowed.
    pub cuts: u64,
    /// Repairs while the workers worked.
    pub repairs: u64,
    /// Bytes freed by those repairs.
    pub repaired_bytes: u64,
    /// Operations on the key that had the most in a round.
    pub longest_history: u64,
    /// Steps the checker took.
    pub checker_steps: u64,
    /// Keys whose history is not known to be linearizable.
    pub failures: Vec<KeyFailure>,
    /// Transactions over lists that were checked.
    pub appends: u64,
    /// The results of the last checks of the pool.
    pub pool: PoolJudgement,
    /// All other findings, each described in a sentence.
    pub findings: Vec<String>,
    /// The directory of the logs, if there are findings.
    pub logs: Option<PathBuf>,
}

/// The verdict over a whole run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// All checks passed.
    Linearizable,
    /// A check failed.
    Violation,
    /// The checker ran out of steps for a key, and there are no other findings.
    Undecided,
}

impl Verdict {
    /// Returns its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Linearizable => "linearizable",
            Self::Violation => "violation",
            Self::Undecided => "undecided",
        }
    }
}

impl Report {
    /// Returns how many times the pool's whole memory was written with values.
    pub fn times_rewritten(&self) -> f64 {
        self.written_bytes as f64 / self.pool_bytes.max(1) as f64
    }

    /// Returns the verdict.
    pub fn verdict(&self) -> Verdict {
        let proven = self.failures.iter().any(|failure| failure.is_violation);
        if proven || !self.findings.is_empty() || !self.pool.violations.is_empty() {
            Verdict::Violation
        } else if self.failures.is_empty() {
            Verdict::Linearizable
        } else {
            Verdict::Undecided
        }
    }
}
