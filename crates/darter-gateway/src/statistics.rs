//! The counts of a gateway. Each thread counts its own commands with plain stores and is read
//! meanwhile; the threads count rare events together.

use super::fault::Fault;
use super::table::{Command, TABLE};
use darter::{Counters, OpCounters, OpKind};
use darter_telemetry::counters::{Counter, Histogram, HistogramSnapshot};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Durations of commands, in ns: a bucket up to a microsecond, then buckets that double, up to four
/// seconds.
type Latency = Histogram<1000, 1, 24>;

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

/// The counts of one thread.
#[derive(Debug)]
pub(super) struct ThreadCounts {
    /// By command.
    commands: Vec<Counter>,
    /// By family.
    latencies: Vec<Latency>,
    /// The costs of pool operations, by kind of operation.
    fabric: [[Counter; 6]; OpKind::COUNT],
    /// Sessions opened.
    pub(super) sessions: Counter,
    /// When the thread last did its accounting, in ms since the gateway started.
    pub(super) looked_ms: Counter,
}

impl Default for ThreadCounts {
    fn default() -> Self {
        Self {
            commands: TABLE.iter().map(|_| Counter::default()).collect(),
            latencies: FAMILIES.iter().map(|_| Latency::default()).collect(),
            fabric: Default::default(),
            sessions: Counter::default(),
            looked_ms: Counter::default(),
        }
    }
}

impl ThreadCounts {
    /// Counts a command.
    #[inline]
    pub(super) fn did(&self, command: &Command, took: Duration) {
        let at = command.id as usize;
        self.commands[at].add(1);
        self.latencies[FAMILY_OF[at]].record(took.as_nanos() as u64);
    }

    /// Adds the costs of pool operations.
    pub(super) fn spent(&self, more: &Counters) {
        for (counters, kind) in self.fabric.iter().zip(&more.kinds) {
            let OpCounters { ops, round_trips, verbs, read_bytes, write_bytes, retries } = *kind;
            for (tally, more) in
                counters.iter().zip([ops, round_trips, verbs, read_bytes, write_bytes, retries])
            {
                tally.add(more);
            }
        }
    }
}

/// The sums of all threads' counts.
#[derive(Debug)]
pub(super) struct Sums {
    /// By command, in the order of the table.
    pub(super) commands: Vec<u64>,
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
                let [ops, round_trips, verbs, read_bytes, write_bytes, retries] =
                    counters.each_ref().map(Counter::get);
                *sum += OpCounters { ops, round_trips, verbs, read_bytes, write_bytes, retries };
            }
            sums.sessions += thread.sessions.get();
        }
        sums
    }
}

/// Causes of error replies.
pub(super) const FAULTS: [&str; 3] = ["client", "full", "pool"];

/// Counts of rare events, which all threads share.
#[derive(Debug, Default)]
pub(super) struct Counts {
    pub(super) accepted: AtomicU64,
    pub(super) refused: AtomicU64,
    /// Connections dropped because they held too much.
    pub(super) dropped: AtomicU64,
    /// By [`FAULTS`].
    errors: [AtomicU64; FAULTS.len()],
    pub(super) expired: AtomicU64,
    /// As the last complete round of the expiry walk counted them.
    pub(super) keys: AtomicU64,
    pub(super) expiring: AtomicU64,
    pub(super) slow: AtomicU64,
}

impl Counts {
    /// Counts an error reply.
    pub(super) fn note(&self, fault: &Fault) {
        let kind = match fault {
            Fault::Said(_) => 0,
            Fault::Store(error) if error.is_out_of_space() => 1,
            Fault::Store(_) => 2,
        };
        self.errors[kind].fetch_add(1, Ordering::Relaxed);
    }

    /// Returns the error replies by cause.
    pub(super) fn errors(&self) -> impl Iterator<Item = (&'static str, u64)> {
        FAULTS.into_iter().zip(&self.errors).map(|(name, count)| (name, count.load(Ordering::Relaxed)))
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
            thread.did(get, Duration::from_micros(3));
            let mut spent = Counters::default();
            spent[OpKind::Get] =
                OpCounters { ops: 1, round_trips: 3, verbs: 4, read_bytes: 256, write_bytes: 8, retries: 0 };
            thread.spent(&spent);
        }
        let sums = Sums::of(&threads);
        assert_eq!(sums.commands[get.id as usize], 2);
        assert_eq!(sums.commands.iter().sum::<u64>(), 2);
        let at = FAMILIES.iter().position(|family| *family == "string").unwrap();
        assert_eq!((sums.latencies[at].count(), sums.latencies[at].sum), (2, 6000));
        assert_eq!(sums.fabric[OpKind::Get].round_trips, 6);
        assert_eq!(sums.fabric[OpKind::Get].write_bytes, 16);
        assert_eq!(Sums::of(&[] as &[Arc<ThreadCounts>]).commands.len(), TABLE.len());
    }
}
