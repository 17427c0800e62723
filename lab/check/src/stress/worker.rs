//! A worker: several threads of one process that perform random operations on the shared keys, each
//! with its own log.
//!
//! All workers use the same few keys: half of the time in a neighbourhood that moves with the
//! shared clock, so that all meet there. Phases with more stores alternate with phases with more
//! removals, so that nodes grow, split, switch type and collapse while others are in them.

mod transactions;

use super::clock::now_ns;
use super::keys::{KeySet, LARGE_VALUE, UNKNOWN_VALUE, value_bytes, value_number};
use super::ledger;
use super::log::{Call, Entry, LogWriter, Refusal};
use super::tally::Tally;
use super::thread_stop::{self, SPARED};
use super::{Site, StressError};
use crate::dice::{Dice, mix};
use crate::history::Outcome;
use darter::{Condition, Error, PutOutcome, ScanRange, Session, Store};
use darter_fabric::decorate::{Aging, Delay, Delaying, Jitter};
use darter_fabric::{Provider, counted};
use std::fmt::Display;
use std::io::Read;
use std::ops::Bound;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Duration of a phase.
const PHASE_NS: u64 = 250_000_000;
/// Keys of a neighbourhood.
const NEIGHBOURS: u64 = 6;
/// Maximum number of keys of a `multi_get`.
const MULTI_GET_KEYS: u64 = 8;
/// How long to retry opening the pool before giving up.
const PATIENCE: Duration = Duration::from_secs(10);
/// Pause after the pool was full, or could not be opened or reached.
const REST: Duration = Duration::from_millis(2);

/// One operation in this many is on the keys of transactions, if there are any.
const TRANSACTIONS_ONE_IN: u64 = 4;

/// Words of the shortest WRITE that counts as one of a large value.
const LARGE_WORDS_MIN: u32 = 1024 / 8;

/// Bits of a value's number that count a client's writes; the client is above them.
const COUNTER_BITS: u32 = 32;
/// Bits of a client's number that name the thread; the life is above them.
const THREAD_BITS: u32 = 8;
/// Maximum number of threads of a worker.
pub const THREADS_MAX: u32 = 64;
/// Maximum number of lives in a run, limited by the numbers of clients.
pub const LIVES_MAX: u32 = 1 << (31 - THREAD_BITS);

/// The configuration of a worker.
#[derive(Clone, Debug)]
pub struct WorkerConfig {
    /// The pool, which exists.
    pub pool: Site,
    /// The directory of the logs.
    pub logs: PathBuf,
    /// The number of this process among all workers of a run, counted from 1.
    pub life: u32,
    /// Its place among the workers that run at the same time, counted from 0.
    pub slot: u32,
    /// Number of working threads.
    pub threads: u32,
    /// Number of keys.
    pub keys: u32,
    /// Random seed.
    pub seed: u64,
    /// The coordinator's process.
    pub coordinator: u32,
    /// Random delays of the verbs its threads post; their seed is mixed with that of this worker.
    pub jitter: Jitter,
    /// Whether values are large.
    pub large_values: bool,
    /// Whether transactions are among the operations.
    pub transactions: bool,
}

impl WorkerConfig {
    /// Returns the number of a thread's client.
    pub fn client(&self, thread: u32) -> u32 {
        self.life << THREAD_BITS | thread
    }

    /// Returns the log of a thread.
    pub fn log(&self, thread: u32) -> PathBuf {
        self.logs.join(format!("worker-{}-{thread}.log", self.life))
    }

    /// Returns the file in which the process keeps its counts.
    pub fn tally(&self) -> PathBuf {
        self.logs.join(format!("worker-{}.tally", self.life))
    }

    /// Returns the file in which the process reports its errors.
    pub fn complaints(&self) -> PathBuf {
        self.logs.join(format!("worker-{}.err", self.life))
    }
}

/// Runs a worker process: works until its standard input ends, and dies with the coordinator.
///
/// # Errors
/// Fails if the pool cannot be opened or returns an unexpected error, or if a log cannot be
/// written.
pub fn run(config: &WorkerConfig) -> Result<(), StressError> {
    use rustix::process::{Signal, getppid, set_parent_process_death_signal};
    // A worker may be stopped when the coordinator dies, and would not see its input end.
    let asked = set_parent_process_death_signal(Some(Signal::KILL));
    asked.map_err(|error| StressError::system("request to die with the coordinator", error.into()))?;
    if getppid().map(|parent| parent.as_raw_nonzero().get() as u32) != Some(config.coordinator) {
        // The coordinator died before that.
        return Ok(());
    }
    thread_stop::install().map_err(|error| StressError::system("handle a signal", error))?;
    let stop = Arc::new(AtomicBool::new(false));
    let told = Arc::clone(&stop);
    std::thread::Builder::new()
        .name(format!("{SPARED}input"))
        .spawn(move || {
            // No data is ever sent; the result of the read does not matter.
            let _ = std::io::stdin().read_to_end(&mut Vec::new());
            told.store(true, Ordering::Relaxed);
        })
        .map_err(|error| StressError::system("start a thread", error))?;
    serve(config, &stop)
}

/// Works until `stop` is set.
///
/// # Errors
/// Fails as [`run`] does.
pub fn serve(config: &WorkerConfig, stop: &AtomicBool) -> Result<(), StressError> {
    let keys = KeySet::new(config.keys);
    let mut clients = Vec::new();
    for thread in 0..config.threads.min(THREADS_MAX) {
        let id = config.client(thread);
        clients.push(Client {
            id,
            keys: &keys,
            log: LogWriter::create(config.log(thread), id)?,
            dice: Dice::new(config.seed ^ u64::from(id) << 32),
            seen: vec![None; keys.len()],
            written: 0,
            large_values: config.large_values,
            transactions: config.transactions,
        });
    }
    let (tally, ended, path) = (Tally::default(), AtomicBool::new(false), config.tally());
    std::thread::scope(|scope| {
        let keeper = std::thread::Builder::new()
            .name(format!("{SPARED}tally"))
            .spawn_scoped(scope, || tally.keep(&path, &ended))
            .map_err(|error| StressError::system("start a thread", error))?;
        let outcome = live(config, &mut clients, &tally, stop);
        ended.store(true, Ordering::Relaxed);
        let kept = keeper.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        outcome.and(kept)
    })
}

/// Works on the pool until `stop` is set, and reopens the pool when it is lost.
fn live(
    config: &WorkerConfig,
    clients: &mut [Client<'_>],
    tally: &Tally,
    stop: &AtomicBool,
) -> Result<(), StressError> {
    let site = &config.pool;
    let mut opened = 0;
    while !stop.load(Ordering::Relaxed) {
        opened += 1;
        // A process that was shut out returns as a new member of the pool.
        if config.jitter.share > 0.0 || config.large_values {
            let seed = mix(config.jitter.seed ^ u64::from(config.life) << 32 ^ opened);
            let delay = Delay { jitter: Jitter { seed, ..config.jitter }, ..Delay::default() };
            let decorated = || {
                site.open_decorated(|provider| {
                    let delaying = Delaying::new(Aging::new(provider, LARGE_WORDS_MIN), delay);
                    tally.follow(delaying.tally(), delaying.inner().tally());
                    Provider::foreign(delaying)
                })
            };
            let Some(store) = open(decorated, stop)? else { return Ok(()) };
            work(&store, clients, stop)?;
        } else {
            let Some(store) = open(|| site.open(), stop)? else { return Ok(()) };
            work(&store, clients, stop)?;
        }
    }
    Ok(())
}

/// Opens the pool, retrying for a while; `None` if `stop` is set before that.
fn open(attempt: impl Fn() -> Result<Store, Error>, stop: &AtomicBool) -> Result<Option<Store>, StressError> {
    let begin = Instant::now();
    loop {
        match attempt() {
            Ok(store) => return Ok(Some(store)),
            Err(_) if stop.load(Ordering::Relaxed) => return Ok(None),
            Err(error) if begin.elapsed() > PATIENCE => return Err(error.into()),
            Err(_) => std::thread::sleep(REST),
        }
    }
}

/// Lets every client work in its own thread, until `stop` is set or one of them has lost the pool.
fn work(store: &Store, clients: &mut [Client<'_>], stop: &AtomicBool) -> Result<(), StressError> {
    let lost = AtomicBool::new(false);
    let failure = Mutex::new(None);
    std::thread::scope(|scope| {
        for client in clients {
            scope.spawn(|| {
                let outcome = sessions(store).map_err(StressError::from).and_then(|mut session| {
                    while !stop.load(Ordering::Relaxed) && !lost.load(Ordering::Relaxed) {
                        if client.step(&mut session)? == Step::Lost {
                            break;
                        }
                    }
                    Ok(())
                });
                lost.store(true, Ordering::Relaxed);
                if let Err(error) = outcome {
                    failure.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
                }
            });
        }
    });
    failure.into_inner().unwrap_or_else(PoisonError::into_inner).map_or(Ok(()), Err)
}

/// The state of a client after an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// It may continue.
    Done,
    /// It must reopen the pool.
    Lost,
}

/// The work of one thread.
struct Client<'k> {
    id: u32,
    keys: &'k KeySet,
    log: LogWriter,
    dice: Dice,
    /// The last value it saw under each key, which a conditional write expects.
    seen: Vec<Option<u64>>,
    written: u32,
    large_values: bool,
    transactions: bool,
}

/// The sessions of a client: for single operations, and for transactions.
fn sessions(store: &Store) -> Result<(Session, Session), Error> {
    Ok((store.session()?, ledger::session(store)?))
}

impl Client<'_> {
    /// Performs one operation.
    fn step(&mut self, (session, ledger): &mut (Session, Session)) -> Result<Step, StressError> {
        if self.transactions && self.dice.one_in(TRANSACTIONS_ONE_IN) {
            return self.transact(ledger);
        }
        let phase = now_ns() / PHASE_NS;
        let key = self.choose_key(phase);
        match self.choose_call(phase) {
            Call::Get => self.get(session, key),
            Call::Delete => {
                self.log.begin(Call::Delete, key, 0, 0)?;
                let outcome = session.discard(self.keys.key(key));
                self.end_write(key, None, outcome.map(Outcome::Deleted))
            }
            Call::MultiGet => self.multi_get(session, key, phase),
            Call::Scan => self.scan(session, key),
            write => self.write(session, write, key),
        }
    }

    fn choose_key(&mut self, phase: u64) -> u32 {
        let count = self.keys.len() as u64;
        let key = if self.dice.one_in(2) {
            self.dice.below(count)
        } else {
            (Dice::new(phase).below(count) + self.dice.below(NEIGHBOURS)) % count
        };
        key as u32
    }

    fn choose_call(&mut self, phase: u64) -> Call {
        // Percentages while growing and while shrinking.
        const WEIGHTS: [(Call, u64, u64); 8] = [
            (Call::Get, 22, 22),
            (Call::Put, 18, 6),
            (Call::Insert, 20, 8),
            (Call::Update, 8, 8),
            (Call::Replace, 10, 10),
            (Call::Delete, 8, 32),
            (Call::MultiGet, 6, 6),
            (Call::Scan, 8, 8),
        ];
        let mut chance = self.dice.below(100);
        for (call, growing, shrinking) in WEIGHTS {
            let weight = if phase.is_multiple_of(2) { growing } else { shrinking };
            if chance < weight {
                return call;
            }
            chance -= weight;
        }
        Call::Get
    }

    /// Returns a value that no other write ever uses.
    fn fresh_value(&mut self) -> u64 {
        self.written += 1;
        let large = if self.large_values { LARGE_VALUE } else { 0 };
        large | u64::from(self.id) << COUNTER_BITS | u64::from(self.written)
    }

    fn get(&mut self, session: &mut Session, key: u32) -> Result<Step, StressError> {
        self.log.begin(Call::Get, key, 0, 0)?;
        match session.get(self.keys.key(key)) {
            Ok(found) => {
                let found = found.as_deref().map(value_number);
                self.seen[key as usize] = found;
                self.log.end(key, Entry::End(Outcome::Found(found)))?;
                Ok(Step::Done)
            }
            Err(error) => self.fail(key, error),
        }
    }

    fn write(&mut self, session: &mut Session, call: Call, key: u32) -> Result<Step, StressError> {
        let value = self.fresh_value();
        // A write that expects a value that was never present is refused, and that result is
        // checked too.
        let expected = match call {
            Call::Replace => self.seen[key as usize].filter(|&seen| seen != UNKNOWN_VALUE).unwrap_or(value),
            _ => 0,
        };
        let bytes = value_bytes(value);
        self.log.begin(call, key, value, expected)?;
        let at = self.keys.key(key);
        let outcome = match call {
            Call::Insert => session.try_insert(at, bytes).map(|done| told(done, Outcome::Inserted)),
            Call::Update => session
                .put_if(at, bytes, Condition::Present)
                .map(|done| told(done == PutOutcome::Replaced, Outcome::Replaced)),
            Call::Replace => session
                .compare_exchange(at, value_bytes(expected), bytes)
                .map(|done| told(done, Outcome::Replaced)),
            _ => session.put(at, bytes).map(|outcome| match outcome {
                PutOutcome::Inserted => Outcome::Inserted,
                PutOutcome::Replaced => Outcome::Replaced,
                PutOutcome::Refused => Outcome::Refused,
            }),
        };
        self.end_write(key, Some(value), outcome)
    }

    /// Records the end of a write; `now` is the key's value if it took effect.
    fn end_write(
        &mut self,
        key: u32,
        now: Option<u64>,
        outcome: Result<Outcome, Error>,
    ) -> Result<Step, StressError> {
        match outcome {
            Ok(outcome) => {
                self.log.end(key, Entry::End(outcome))?;
                if outcome != Outcome::Refused {
                    self.seen[key as usize] = now;
                }
                Ok(Step::Done)
            }
            Err(error) => self.fail(key, error),
        }
    }

    fn multi_get(&mut self, session: &mut Session, key: u32, phase: u64) -> Result<Step, StressError> {
        let mut ranks = vec![key];
        for _ in 0..self.dice.below(MULTI_GET_KEYS) {
            ranks.push(self.choose_key(phase));
        }
        let keys: Vec<&[u8]> = ranks.iter().map(|&rank| self.keys.key(rank)).collect();
        self.log.begin(Call::MultiGet, 0, 0, 0)?;
        match session.get_many(&keys) {
            Ok(found) if found.len() == ranks.len() => {
                let found = found.iter().map(|value| value.as_deref().map(value_number));
                self.end_reads(&ranks.into_iter().zip(found).collect::<Vec<_>>())
            }
            Ok(found) => Err(self.broken(format_args!(
                "{} for {} of a multi_get",
                counted(found.len() as u64, "result"),
                counted(ranks.len() as u64, "key")
            ))),
            Err(error) => self.fail(0, error),
        }
    }

    fn end_reads(&mut self, reads: &[(u32, Option<u64>)]) -> Result<Step, StressError> {
        self.log.end_reads(reads)?;
        for &(rank, found) in reads {
            self.seen[rank as usize] = found;
        }
        Ok(Step::Done)
    }

    /// Scans from or to `key`, with a random kind of range.
    fn scan(&mut self, session: &mut Session, key: u32) -> Result<Step, StressError> {
        let count = self.keys.len() as u64;
        let length = if self.dice.one_in(8) { count } else { self.dice.below(12) };
        let other = (u64::from(key) + length).min(count - 1) as u32;
        let mut bound = |rank: u32| match self.dice.below(8) {
            0 => Bound::Unbounded,
            1 | 2 => Bound::Excluded(self.keys.key(rank).to_vec()),
            _ => Bound::Included(self.keys.key(rank).to_vec()),
        };
        let (from, to) = (bound(key), bound(other));
        let range = ScanRange { from, to, reverse: self.dice.one_in(2) };
        if !self.keys.iter().any(|key| range.contains(key)) {
            // The scan would have nothing to check.
            return self.get(session, key);
        }
        let limit = if self.dice.one_in(3) { 1 + self.dice.below(8) as usize } else { usize::MAX };
        self.log.begin(Call::Scan, 0, 0, 0)?;
        // Scans in one go, or chunk by chunk.
        let pairs = if limit < usize::MAX && self.dice.one_in(2) {
            session.scan_chunk(&range, limit)
        } else {
            session.range(&range).limit(limit).collect()
        };
        match pairs {
            Ok(pairs) => match scan_reads(self.keys, &range, limit, &pairs) {
                Ok(reads) => self.end_reads(&reads),
                Err(what) => Err(self.broken(format_args!("a scan of {range:?}: {what}"))),
            },
            Err(error) => self.fail(0, error),
        }
    }

    /// Records that the operation has ended with an error, and returns how to continue.
    fn fail(&mut self, key: u32, error: Error) -> Result<Step, StressError> {
        let refusal = refusal(&error);
        self.log.end(key, Entry::Failed(refusal))?;
        match refusal {
            Refusal::OutOfSpace | Refusal::Disconnected => {
                std::thread::sleep(REST);
                Ok(Step::Done)
            }
            Refusal::ShutOut => Ok(Step::Lost),
            Refusal::Unexpected => Err(error.into()),
        }
    }

    /// The error of a broken guarantee that is visible without a history.
    fn broken(&self, what: impl Display) -> StressError {
        StressError::Broken(format!("client {}: {what}", self.id))
    }
}

fn told(done: bool, outcome: Outcome) -> Outcome {
    if done { outcome } else { Outcome::Refused }
}

/// Classifies an error.
fn refusal(error: &Error) -> Refusal {
    match error {
        error if error.is_out_of_space() => Refusal::OutOfSpace,
        error if error.is_shut_out() => Refusal::ShutOut,
        error if error.is_disconnected() => Refusal::Disconnected,
        _ => Refusal::Unexpected,
    }
}

/// Returns the reads of a scan: every key of the set in its range, absent if it was not returned;
/// if a limit cut the scan off, only up to the last one returned. The error describes a guarantee
/// that the pairs break by themselves.
pub(super) fn scan_reads(
    keys: &KeySet,
    range: &ScanRange,
    limit: usize,
    pairs: &[(Vec<u8>, Vec<u8>)],
) -> Result<Vec<(u32, Option<u64>)>, String> {
    let in_order = |a: &[u8], b: &[u8]| if range.reverse { a > b } else { a < b };
    let text = |key: &[u8]| key.escape_ascii().to_string();
    if pairs.len() > limit {
        return Err(format!("{} pairs, more than the limit of {limit}", pairs.len()));
    }
    if let Some(pair) = pairs.windows(2).find(|pair| !in_order(&pair[0].0, &pair[1].0)) {
        return Err(format!("key `{}` came after `{}`", text(&pair[1].0), text(&pair[0].0)));
    }
    let mut found = vec![None; keys.len()];
    for (key, value) in pairs {
        let rank = keys.rank(key).ok_or_else(|| format!("key `{}`, which no client stored", text(key)))?;
        if !range.contains(key) {
            return Err(format!("key `{}` is outside of the range", text(key)));
        }
        found[rank as usize] = Some(value_number(value));
    }
    let last = pairs.last().filter(|_| pairs.len() == limit).map(|(key, _)| key);
    let covered = |key: &[u8]| range.contains(key) && last.is_none_or(|last| !in_order(last, key));
    Ok((0..)
        .zip(keys.iter())
        .filter(|(_, key)| covered(key))
        .map(|(rank, _)| (rank, found[rank as usize]))
        .collect())
}

/// Returns the last lines of a process's error report.
pub(super) fn last_words(path: &Path) -> String {
    let text = std::fs::read(path).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(8)..].join("\n  ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stress::SubjectKind;

    fn pairs(keys: &KeySet, ranks: &[u32]) -> Vec<(Vec<u8>, Vec<u8>)> {
        ranks.iter().map(|&rank| (keys.key(rank).to_vec(), value_bytes(rank.into()))).collect()
    }

    #[test]
    fn a_scan_reads_what_it_returned_and_what_it_passed_over() {
        let keys = KeySet::new(10);
        let key = |rank| keys.key(rank).to_vec();
        let range = ScanRange { from: Bound::Excluded(key(2)), to: Bound::Included(key(7)), reverse: false };
        let reads = scan_reads(&keys, &range, 100, &pairs(&keys, &[3, 6])).unwrap();
        assert_eq!(reads, [(3, Some(3)), (4, None), (5, None), (6, Some(6)), (7, None)]);
        // Cut off by its limit: keys after the last are unknown.
        let reads = scan_reads(&keys, &range, 2, &pairs(&keys, &[3, 5])).unwrap();
        assert_eq!(reads, [(3, Some(3)), (4, None), (5, Some(5))]);
        let reads = scan_reads(&keys, &range.clone().reversed(), 1, &pairs(&keys, &[6])).unwrap();
        assert_eq!(reads, [(6, Some(6)), (7, None)]);
        let reads = scan_reads(&keys, &range, 3, &[]).unwrap();
        assert_eq!(reads.len(), 5);
    }

    #[test]
    fn scan_reads_fails_when_the_pairs_break_a_guarantee() {
        let keys = KeySet::new(10);
        let range =
            ScanRange { from: Bound::Unbounded, to: Bound::Excluded(keys.key(7).to_vec()), reverse: false };
        for (ranks, limit, word) in
            [(&[3, 2][..], 9, "after"), (&[2, 2], 9, "after"), (&[2, 7], 9, "outside"), (&[2, 3], 1, "limit")]
        {
            let error = scan_reads(&keys, &range, limit, &pairs(&keys, ranks)).unwrap_err();
            assert!(error.contains(word), "{error}");
        }
        let error = scan_reads(&keys, &range, 9, &[(b"\0foreign".to_vec(), vec![])]).unwrap_err();
        assert!(error.contains("no client"), "{error}");
    }

    #[test]
    fn values_of_different_writers_differ() {
        let config = |life| WorkerConfig {
            pool: Site::plain("file:p".parse().unwrap(), SubjectKind::Dart),
            logs: PathBuf::new(),
            life,
            slot: 0,
            threads: 2,
            keys: 1,
            seed: 0,
            coordinator: 0,
            jitter: Jitter::default(),
            large_values: true,
            transactions: false,
        };
        let last = u64::from(config(LIVES_MAX - 1).client(THREADS_MAX - 1)) << COUNTER_BITS;
        let last = last | u64::from(u32::MAX);
        assert!(last < LARGE_VALUE && LARGE_VALUE | last < UNKNOWN_VALUE - 1);
        assert_ne!(config(1).client(1), config(2).client(0));
    }
}
