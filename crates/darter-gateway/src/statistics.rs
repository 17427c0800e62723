//! The counts of a gateway. Each thread counts its own commands with plain stores, which other
//! threads may read at any time; the threads share the counts of rare events.

use super::fault::Fault;
use super::keyspace::{Census, DATABASES};
use super::table::{Command, TABLE};
use darter::report::OpCounters;
use darter::{Counters, OpKind};
use darter_telemetry::counters::{Counter, Histogram, HistogramSnapshot, NANOS_BOUNDS};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// The families of commands, in the order of the table.
pub(super) static FAMILIES: LazyLock<Vec<&'static str>> = LazyLock::new(|| {
    let mut families: Vec<_> = TABLE.iter().map(|command| command.group).collect();
    families.dedup();
    families
});

/// The index of each command's family.
static FAMILY_OF: LazyLock<Vec<usize>> = LazyLock::new(|| {
    let place = |command: &Command| FAMILIES.iter().position(|family| *family == command.group);
    TABLE.iter().map(|command| place(command).unwrap_or_default()).collect()
});

/// How a command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ending {
    /// It ran.
    Done,
    /// It ran and replied with an error.
    Failed,
    /// It did not run.
    Rejected,
    /// It waits for `EXEC`, and is not counted.
    Queued,
}

/// The counts of one thread.
#[derive(Debug)]
pub(super) struct ThreadCounts {
    /// Commands that ran, by command.
    commands: Vec<Counter>,
    /// Durations of commands in ns, by family.
    latencies: Vec<Histogram>,
    /// By command: ns in total, commands rejected, commands failed.
    details: Vec<[Counter; 3]>,
    /// The costs of pool operations, by kind of operation.
    fabric: [[Counter; OpCounters::COUNT]; OpKind::COUNT],
    /// Sessions opened.
    pub(super) sessions: Counter,
    /// When the thread last updated its counts, in ms since the gateway started.
    pub(super) looked_ms: Counter,
    /// Bytes of the buffers that the thread keeps for later clients.
    pub(super) spare_bytes: Counter,
    /// The most work of a turn, in bytes.
    pub(super) longest_turn_bytes: Counter,
}

impl Default for ThreadCounts {
    fn default() -> Self {
        Self {
            commands: TABLE.iter().map(|_| Counter::default()).collect(),
            latencies: FAMILIES.iter().map(|_| Histogram::new(&NANOS_BOUNDS)).collect(),
            details: TABLE.iter().map(|_| Default::default()).collect(),
            fabric: Default::default(),
            sessions: Counter::default(),
            looked_ms: Counter::default(),
            spare_bytes: Counter::default(),
            longest_turn_bytes: Counter::default(),
        }
    }
}

impl ThreadCounts {
    /// Counts a command.
    #[inline]
    pub(super) fn did(&self, command: &Command, ending: Ending, took: Duration) {
        let (at, nanos) = (command.id as usize, took.as_nanos() as u64);
        let [total, rejected, failed] = &self.details[at];
        match ending {
            Ending::Rejected => return rejected.add(1),
            Ending::Failed => failed.add(1),
            Ending::Done => {}
            Ending::Queued => return,
        }
        self.commands[at].add(1);
        total.add(nanos);
        self.latencies[FAMILY_OF[at]].record(nanos);
    }

    /// Adds the costs of pool operations.
    pub(super) fn spent(&self, more: &Counters) {
        for (counters, kind) in self.fabric.iter().zip(&more.kinds) {
            for (tally, more) in counters.iter().zip(kind.to_array()) {
                tally.add(more);
            }
        }
    }
}

/// The counts of a command.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct CommandSums {
    /// How often it ran.
    pub(super) calls: u64,
    /// Its total duration, in ns.
    pub(super) nanos: u64,
    /// How often it did not run.
    pub(super) rejected: u64,
    /// How often it ran and replied with an error.
    pub(super) failed: u64,
}

/// The sums of all threads' counts.
#[derive(Debug)]
pub(super) struct Sums {
    /// By command, in the order of the table.
    pub(super) commands: Vec<u64>,
    /// The details, in the same order.
    pub(super) details: Vec<CommandSums>,
    /// Bytes of the buffers that threads keep for later clients.
    pub(super) spare_bytes: u64,
    /// The most work of a turn of any thread, in bytes.
    pub(super) longest_turn_bytes: u64,
    /// By family, in the order of [`FAMILIES`].
    pub(super) latencies: Vec<HistogramSnapshot>,
    /// The costs of pool operations.
    pub(super) fabric: Counters,
    /// Sessions opened.
    pub(super) sessions: u64,
}

impl Sums {
    /// Adds the counts of at least one thread.
    pub(super) fn of(threads: &[impl AsRef<ThreadCounts>]) -> Self {
        let none = ThreadCounts::default();
        let mut sums = Self {
            commands: vec![0; TABLE.len()],
            details: vec![CommandSums::default(); TABLE.len()],
            spare_bytes: 0,
            longest_turn_bytes: 0,
            latencies: none.latencies.iter().map(Histogram::snapshot).collect(),
            fabric: Counters::default(),
            sessions: 0,
        };
        for thread in threads {
            let thread = thread.as_ref();
            for (sum, tally) in sums.commands.iter_mut().zip(&thread.commands) {
                *sum += tally.get();
            }
            for (sum, latency) in sums.latencies.iter_mut().zip(&thread.latencies) {
                *sum += latency.snapshot();
            }
            for (sum, counters) in sums.fabric.kinds.iter_mut().zip(&thread.fabric) {
                *sum += OpCounters::from_array(counters.each_ref().map(Counter::get));
            }
            for (sum, [nanos, rejected, failed]) in sums.details.iter_mut().zip(&thread.details) {
                sum.nanos += nanos.get();
                sum.rejected += rejected.get();
                sum.failed += failed.get();
            }
            sums.sessions += thread.sessions.get();
            sums.spare_bytes += thread.spare_bytes.get();
            sums.longest_turn_bytes = sums.longest_turn_bytes.max(thread.longest_turn_bytes.get());
        }
        for (details, calls) in sums.details.iter_mut().zip(&sums.commands) {
            details.calls = *calls;
        }
        sums
    }
}

/// Causes of error replies.
pub(super) const FAULTS: [&str; 3] = ["client", "full", "pool"];

/// The keys of a database and those of them that expire, as counted by the last complete round of the
/// expiry walk.
#[derive(Debug, Default)]
pub(super) struct CountedKeys {
    keys: AtomicU64,
    expiring: AtomicU64,
}

impl CountedKeys {
    /// Stores the counts of a round.
    pub(super) fn store(&self, census: &Census) {
        self.keys.store(census.keys, Ordering::Relaxed);
        self.expiring.store(census.expiring, Ordering::Relaxed);
    }

    /// Returns the number of keys, and of those that expire.
    pub(super) fn load(&self) -> [u64; 2] {
        [&self.keys, &self.expiring].map(|count| count.load(Ordering::Relaxed))
    }
}

/// Counts of rare events, which all threads share.
#[derive(Debug, Default)]
pub(super) struct Counts {
    pub(super) accepted: AtomicU64,
    pub(super) refused: AtomicU64,
    /// Connections dropped because they held too much.
    pub(super) dropped: AtomicU64,
    /// Error replies, in the order of [`FAULTS`].
    errors: [AtomicU64; FAULTS.len()],
    /// Error replies by their code, since the statistics were reset.
    codes: Mutex<BTreeMap<String, u64>>,
    pub(super) expired: AtomicU64,
    /// By database.
    pub(super) databases: [CountedKeys; DATABASES as usize],
    pub(super) slow: AtomicU64,
}

impl Counts {
    /// Returns the number of keys in all databases, and of those that expire.
    pub(super) fn keys(&self) -> [u64; 2] {
        self.databases
            .iter()
            .map(CountedKeys::load)
            .fold([0; 2], |[keys, expiring], [more, ends]| [keys + more, expiring + ends])
    }

    /// Counts an error reply.
    pub(super) fn note(&self, fault: &Fault) {
        let kind = match fault {
            Fault::Store(error) if error.is_out_of_space() => 1,
            Fault::Store(_) => 2,
            Fault::Said(_) | Fault::Ended(_) => 0,
        };
        self.errors[kind].fetch_add(1, Ordering::Relaxed);
        let text = fault.text();
        let code = text.split(' ').next().unwrap_or_default();
        let mut codes = self.codes();
        match codes.get_mut(code) {
            Some(count) => *count += 1,
            None => drop(codes.insert(code.to_owned(), 1)),
        }
    }

    /// Returns the error replies by their code. A gateway has a fixed number of codes.
    pub(super) fn codes(&self) -> MutexGuard<'_, BTreeMap<String, u64>> {
        self.codes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the error replies by cause.
    pub(super) fn errors(&self) -> impl Iterator<Item = (&'static str, u64)> {
        FAULTS.into_iter().zip(&self.errors).map(|(name, count)| (name, count.load(Ordering::Relaxed)))
    }
}

/// The counts when `CONFIG RESETSTAT` was last called, which `INFO` subtracts. In Prometheus they
/// continue.
#[derive(Debug, Default)]
pub(super) struct Baseline {
    details: Vec<CommandSums>,
    accepted: u64,
    refused: u64,
    expired: u64,
    errors: u64,
}

impl Baseline {
    /// Returns the current counts.
    pub(super) fn of(sums: &Sums, counts: &Counts) -> Self {
        Self {
            details: sums.details.clone(),
            accepted: counts.accepted.load(Ordering::Relaxed),
            refused: counts.refused.load(Ordering::Relaxed),
            expired: counts.expired.load(Ordering::Relaxed),
            errors: counts.errors().map(|(_, count)| count).sum(),
        }
    }
}

/// The counts since the statistics were reset.
#[derive(Debug)]
pub(super) struct Since {
    /// By command, in the order of the table.
    pub(super) details: Vec<CommandSums>,
    pub(super) accepted: u64,
    pub(super) refused: u64,
    pub(super) expired: u64,
    pub(super) errors: u64,
}

impl Since {
    /// Subtracts a baseline from the current counts.
    pub(super) fn new(sums: &Sums, counts: &Counts, base: &Baseline) -> Self {
        let now = Baseline::of(sums, counts);
        let none = CommandSums::default();
        let details = now.details.iter().enumerate().map(|(at, now)| {
            let base = base.details.get(at).unwrap_or(&none);
            CommandSums {
                calls: now.calls - base.calls,
                nanos: now.nanos - base.nanos,
                rejected: now.rejected - base.rejected,
                failed: now.failed - base.failed,
            }
        });
        Self {
            details: details.collect(),
            accepted: now.accepted - base.accepted,
            refused: now.refused - base.refused,
            expired: now.expired - base.expired,
            errors: now.errors - base.errors,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[test]
    fn threads_add_up() {
        let threads = [Arc::new(ThreadCounts::default()), Arc::new(ThreadCounts::default())];
        let get = Command::named(b"get").unwrap();
        for thread in &threads {
            thread.did(get, Ending::Done, Duration::from_micros(2));
            thread.did(get, Ending::Failed, Duration::from_micros(1));
            thread.did(get, Ending::Rejected, Duration::from_micros(1));
            let mut spent = Counters::default();
            spent[OpKind::Get] = OpCounters {
                ops: 1,
                round_trips: 3,
                verbs: 4,
                read_bytes: 256,
                write_bytes: 8,
                ..Default::default()
            };
            thread.spent(&spent);
        }
        let sums = Sums::of(&threads);
        assert_eq!(
            sums.details[get.id as usize],
            CommandSums { calls: 4, nanos: 6000, rejected: 2, failed: 2 }
        );
        assert_eq!(sums.commands.iter().sum::<u64>(), 4);
        let at = FAMILIES.iter().position(|family| *family == "string").unwrap();
        assert_eq!((sums.latencies[at].count(), sums.latencies[at].sum), (4, 6000));
        assert_eq!(sums.fabric[OpKind::Get].round_trips, 6);
        assert_eq!(sums.fabric[OpKind::Get].write_bytes, 16);
        assert_eq!(Sums::of(&[] as &[Arc<ThreadCounts>]).commands.len(), TABLE.len());
    }
}
