//! The stress with real processes: several of them work on one pool file, are killed and stopped at random moments, and
//! everything they were told is judged by the [linearizability checker](crate::linear).
//!
//! ```text
//! coordinator ──starts, SIGKILLs, SIGSTOPs, SIGCONTs──> worker processes, each with several threads
//!      │                                                    │ operations        │ a log a thread
//!      │ now and then a repair ─────────────> pool file or memory nodes         │
//!      └──────────────── watches, and reads in the end ─────────────────────────┘
//! ```
//!
//! Memory nodes of a run's own ([`cluster`]) are killed and started again, stopped and continued like workers, and have links
//! that are cut and healed (`network.rs`).
//!
//! [`coordinator::run`] works in *rounds*, which bound what the logs and the checker need. In each it starts workers, kills
//! some and starts others in their place, stops some for longer than the pool's lease, repairs the pool while they work, and
//! in the end lets them go. Then it reads every key itself, as part of the histories, and judges: no history may lack an
//! order, no invariant of the pool may be broken, nothing may be leaked after a repair, no worker may have ended by itself or
//! hang. What the keys hold is where the next round begins.
//!
//! [`worker`] does the operations and [`log`] defines what they leave on record. A killed worker's
//! last operation, and one that met an error, is *pending*: it may have taken effect or not. One
//! that found the pool full has changed nothing. Timestamps are of one clock that all processes of
//! the machine share ([`clock`]).
//!
//! What timing alone would hardly bring about is helped along: [`worker`]s can delay what they post
//! at random, within batches too, and the coordinator can stop single threads of them
//! ([`thread_stop`]). What happened inside of workers they count themselves ([`tally`]).
//!
//! A seed fixes what everybody tries and when the coordinator strikes, not how the system schedules the processes: a run
//! cannot be repeated, but the logs of a failed one are kept. What must repeat is the schedule explorer's business.

pub mod clock;
pub mod cluster;
pub mod collect;
pub mod coordinator;
mod error;
mod fleet;
pub mod judge;
pub mod keys;
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

/// A pool, and what it takes to open it.
#[derive(Clone, Debug)]
pub struct Site {
    /// The pool.
    pub url: PoolUrl,
    /// Credentials, and all else.
    pub options: StoreOptions,
    /// The index it holds.
    pub index: SubjectKind,
}

impl Site {
    /// A pool that needs nothing special. Its stores stay shut out, so that the judge learns of it.
    pub fn plain(url: PoolUrl, kind: SubjectKind) -> Self {
        Self { url, options: Store::options().rejoin(false), index: kind }
    }

    /// The same pool, opened by processes that leave what the dead left to repairs.
    #[must_use]
    pub fn without_sweeps(&self) -> Self {
        Self { url: self.url.clone(), options: self.options.clone().sweep(false), index: self.index }
    }

    /// Opens the pool, which must be there.
    ///
    /// # Errors
    /// Fails as [`StoreOptions::open`] does.
    pub fn open(&self) -> Result<Store, darter::Error> {
        self.index.open(&self.options.clone().create(false), &self.url)
    }

    /// Opens the pool, which must be there, with its fabric wrapped by `decorate`.
    ///
    /// # Errors
    /// Fails as [`darter::engine::open_decorated`] does.
    pub fn open_decorated(
        &self,
        decorate: impl FnOnce(Provider) -> Provider,
    ) -> Result<Store, darter::Error> {
        self.index.open_decorated(&self.options, &self.url, decorate)
    }

    /// Opens the pool, or makes it.
    pub(crate) fn make(&self) -> Result<Store, darter::Error> {
        self.index.open(&self.options, &self.url)
    }
}

/// Where a stress takes place.
#[derive(Clone, Debug)]
pub enum Environment {
    /// A pool without keys: a file, absent or not, or memory nodes.
    Pool(Box<Site>),
    /// Memory nodes of the run's own, with this index.
    Cluster(ClusterConfig, SubjectKind),
}

/// How to start the processes of a run.
#[derive(Clone, Copy)]
pub struct Launch<'l> {
    /// Workers.
    pub worker: &'l LaunchWorker<'l>,
    /// Memory nodes.
    pub node: &'l LaunchNode<'l>,
}

/// What to do to a pool.
#[derive(Clone, Debug)]
pub struct StressConfig {
    /// The pool they work on.
    pub environment: Environment,
    /// Worker processes at a time.
    pub processes: u32,
    /// Threads of each.
    pub threads: u32,
    /// Keys they work on.
    pub keys: u32,
    /// Where chance comes from.
    pub seed: u64,
    /// How long they work, judgements not counted.
    pub duration: Duration,
    /// End sooner, after this many operations and, where they are asked for, [`EVENTS_MIN`] kills,
    /// pauses and thread stops.
    pub operations: Option<u64>,
    /// End sooner, after this many kills.
    pub kills: Option<u64>,
    /// Kills a second, on average.
    pub kills_per_second: f64,
    /// Pauses a second, on average.
    pub pauses_per_second: f64,
    /// Repairs a second while they work, on average.
    pub repairs_per_second: f64,
    /// Stops of single threads a second, on average.
    pub thread_stops_per_second: f64,
    /// Delays at random of what the workers post; the run's seed decides them.
    pub jitter: Jitter,
    /// Whether values are large, some kilobytes: then a small pool's memory is used again within
    /// milliseconds.
    pub large_values: bool,
    /// Falsify one outcome before the judgement, which must then find it: a test of the test.
    pub canary: bool,
    /// End sooner, once this is set.
    pub stop: Arc<AtomicBool>,
}

/// Kills, pauses and thread stops that a run which ends by its count of operations waits for.
pub const EVENTS_MIN: u64 = 3;

/// How far a run is.
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
    /// Stops of single threads asked for.
    pub thread_stops: u64,
    /// Whether the round is over and being judged.
    pub judging: bool,
}

/// What a run did and found.
#[derive(Clone, Debug)]
pub struct Report {
    /// Time worked.
    pub worked: Duration,
    /// Rounds judged.
    pub rounds: u64,
    /// Counts of operations. Its histories are empty.
    pub counts: Collected,
    /// Workers killed.
    pub kills: u64,
    /// Pauses made.
    pub pauses: u64,
    /// The longest pause.
    pub pause_max: Duration,
    /// Stops of single threads that were asked for.
    pub thread_stops: u64,
    /// The longest of them.
    pub thread_stop_max: Duration,
    /// What workers counted, up to a few milliseconds before each was killed.
    pub inside: WorkerCounts,
    /// Bytes of the values that were written for certain, each of which took memory of its own.
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
    /// Bytes those gave back.
    pub repaired_bytes: u64,
    /// Operations on the key that had most in a round.
    pub longest_history: u64,
    /// Steps the checker took.
    pub checker_steps: u64,
    /// Keys whose history is not known to be linearizable.
    pub failures: Vec<KeyFailure>,
    /// What the last checks of the pool found.
    pub pool: PoolJudgement,
    /// Everything else that should not have been, each in a sentence.
    pub findings: Vec<String>,
    /// Where the logs are, when anything was found.
    pub logs: Option<PathBuf>,
}

/// The verdict over a whole run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Everything was as promised.
    Linearizable,
    /// Something was not.
    Violation,
    /// The checker ran out of steps for a key, and nothing else was found.
    Undecided,
}

impl Verdict {
    /// In a word.
    pub fn name(self) -> &'static str {
        match self {
            Self::Linearizable => "linearizable",
            Self::Violation => "violation",
            Self::Undecided => "undecided",
        }
    }
}

impl Report {
    /// How many times the pool's whole memory was written with values.
    pub fn times_rewritten(&self) -> f64 {
        self.written_bytes as f64 / self.pool_bytes.max(1) as f64
    }

    /// The verdict.
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
