//! The YCSB workloads (Cooper et al., 2010) as the papers use them, two workloads that only write,
//! and the streams of operations that they generate.
//!
//! | workload | operations | records |
//! |---|---|---|
//! | LOAD | 100% insert | every record once |
//! | A | 50% read, 50% update | scrambled Zipf |
//! | B | 95% read, 5% update | scrambled Zipf |
//! | C | 100% read | scrambled Zipf |
//! | D | 95% read, 5% insert | latest: Zipf by age, the newest first |
//! | E | 95% scan of 1 to 100 records, uniformly, 5% insert | scrambled Zipf |
//! | F | 50% read, 50% read-modify-write | scrambled Zipf |
//! | I | 100% insert, not part of YCSB: LOAD into loaded records | fresh records |
//! | U | 100% update, not part of YCSB | scrambled Zipf |
//!
//! Each thread has its own stream and generator, so that its operations depend only on the seed,
//! the workload and the thread's number. The one exception is D on several threads, where "newest"
//! depends on the progress of the other threads. Inserts take fresh records: the k-th of thread t
//! is number `loaded + k × threads + t`.

use crate::datasets::Dataset;
use crate::permutation::derive_seed;
use crate::zipf::{Ranks, ScrambledZipf};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use std::fmt;
use std::str::FromStr;
use std::sync::atomic::{AtomicU64, Ordering};

/// Longest scan of workload E, in records.
pub const SCAN_RECORDS_MAX: u32 = 100;
/// Operations prepared at a time, outside the measured time.
const CHUNK_OPS: usize = 1024;
/// Operations prepared for each of a thread's tasks, if that is more.
const CHUNK_OPS_OF_TASK: usize = 64;
/// Bytes of keys after which a chunk is cut short.
const CHUNK_KEY_BYTES: usize = 1 << 20;

/// A workload: one of YCSB's, or one with a single kind of write.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Workload {
    /// Every record is inserted, once.
    Load,
    /// Half reads, half updates.
    A,
    /// Mostly reads, some updates.
    B,
    /// Reads only.
    C,
    /// Reads of the newest records, some inserts.
    D,
    /// Short scans, some inserts.
    E,
    /// Half reads, half read-modify-writes.
    F,
    /// Fresh records are inserted.
    I,
    /// Updates only.
    U,
}

/// What one operation does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// A key's value is read.
    Read,
    /// A present key's value is replaced.
    Update,
    /// A fresh key is stored.
    Insert,
    /// Pairs are read from a key on.
    Scan,
    /// A value is read, then replaced.
    ReadModifyWrite,
}

impl Workload {
    /// YCSB's workloads, in the order of their names.
    pub const ALL: [Self; 7] = [Self::Load, Self::A, Self::B, Self::C, Self::D, Self::E, Self::F];
    /// Workloads that are not part of YCSB.
    pub const OTHERS: [Self; 2] = [Self::I, Self::U];

    /// Returns the name on the command line and in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Load => "load",
            Self::A => "a",
            Self::B => "b",
            Self::C => "c",
            Self::D => "d",
            Self::E => "e",
            Self::F => "f",
            Self::I => "i",
            Self::U => "u",
        }
    }

    /// Returns the actions with their percentages.
    pub const fn mix(self) -> &'static [(Action, u32)] {
        match self {
            Self::Load | Self::I => &[(Action::Insert, 100)],
            Self::U => &[(Action::Update, 100)],
            Self::A => &[(Action::Read, 50), (Action::Update, 50)],
            Self::B => &[(Action::Read, 95), (Action::Update, 5)],
            Self::C => &[(Action::Read, 100)],
            Self::D => &[(Action::Read, 95), (Action::Insert, 5)],
            Self::E => &[(Action::Scan, 95), (Action::Insert, 5)],
            Self::F => &[(Action::Read, 50), (Action::ReadModifyWrite, 50)],
        }
    }

    /// Returns whether it adds records.
    pub fn inserts(self) -> bool {
        self.mix().iter().any(|(action, _)| *action == Action::Insert)
    }

    /// Returns the most fresh records that `ops` operations on `threads` threads need, except for
    /// LOAD. The number is random; the bound is ten standard deviations above its mean.
    pub fn fresh_records_max(self, ops: u64, threads: u64) -> u64 {
        let per_thread = ops.div_ceil(threads);
        match self {
            Self::D | Self::E => {}
            Self::I => return threads * per_thread,
            Self::Load | Self::A | Self::B | Self::C | Self::F | Self::U => return 0,
        }
        let bound = per_thread as f64 * 0.05 + 10.0 * (per_thread as f64 * 0.05 * 0.95).sqrt() + 1.0;
        threads * (bound as u64).min(per_thread)
    }
}

impl fmt::Display for Workload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Workload {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        Self::ALL
            .into_iter()
            .chain(Self::OTHERS)
            .find(|workload| workload.name().eq_ignore_ascii_case(name))
            .ok_or_else(|| "choose from load, a, b, c, d, e, f, i, u, separated by commas".to_owned())
    }
}

/// A counter in its own cache line.
#[derive(Debug, Default)]
#[repr(align(64))]
struct Padded(AtomicU64);

/// The records that exist while a workload runs.
#[derive(Debug)]
pub struct KeySpace {
    /// Records `0..loaded` exist from the beginning.
    pub loaded: u64,
    /// Inserts that each thread has finished.
    finished: Box<[Padded]>,
}

impl KeySpace {
    /// Returns records `0..loaded`, to which `threads` threads add.
    pub fn new(loaded: u64, threads: usize) -> Self {
        Self { loaded, finished: (0..threads).map(|_| Padded::default()).collect() }
    }

    /// Returns the record of a thread's `k`-th insert.
    fn fresh(&self, thread: usize, k: u64) -> u64 {
        self.loaded + k * self.finished.len() as u64 + thread as u64
    }

    /// Marks a thread's first `inserts` inserts as finished.
    pub fn finish(&self, thread: usize, inserts: u64) {
        self.finished[thread].0.store(inserts, Ordering::Release);
    }

    /// Returns the number of inserts that a thread has finished.
    fn finished(&self, thread: usize) -> u64 {
        self.finished[thread].0.load(Ordering::Acquire)
    }

    /// Returns `n` if this thread, after its own first `inserted` inserts, can rely on records
    /// `0..n`.
    fn present(&self, thread: usize, inserted: u64) -> u64 {
        let others = self.finished.iter().enumerate().filter(|(other, _)| *other != thread);
        let least = others.map(|(_, finished)| finished.0.load(Ordering::Acquire)).fold(inserted, u64::min);
        self.loaded + least * self.finished.len() as u64
    }

    /// Returns the fresh records below the highest inserted one that no thread inserted, after all
    /// threads have stopped. Inserting them makes the records contiguous again.
    pub fn holes(&self) -> Vec<u64> {
        let inserted: Vec<u64> =
            self.finished.iter().map(|finished| finished.0.load(Ordering::Acquire)).collect();
        let most = inserted.iter().copied().max().unwrap_or(0);
        let missing = |(thread, &done): (usize, &u64)| (done..most).map(move |k| self.fresh(thread, k));
        inserted.iter().enumerate().flat_map(missing).collect()
    }

    /// Returns the number of records after the holes are filled.
    pub fn total(&self) -> u64 {
        let most = self.finished.iter().map(|finished| finished.0.load(Ordering::Acquire)).max().unwrap_or(0);
        self.loaded + most * self.finished.len() as u64
    }
}

/// One operation of a chunk.
#[derive(Clone, Copy, Debug)]
pub struct Op {
    /// The action.
    pub action: Action,
    key_at: u32,
    key_bytes: u32,
    /// Most records that a scan returns.
    pub limit: u32,
}

/// Operations ready to run, with their keys.
#[derive(Debug)]
pub struct Chunk {
    /// The operations, in order.
    pub ops: Vec<Op>,
    keys: Vec<u8>,
    ops_max: usize,
}

impl Chunk {
    /// Returns a chunk for `tasks` tasks, long enough to keep all of them busy most of the time.
    pub fn for_tasks(tasks: usize) -> Self {
        Self::of(CHUNK_OPS.max(CHUNK_OPS_OF_TASK * tasks))
    }

    /// Returns a chunk of at most `ops` operations.
    pub fn of(ops_max: usize) -> Self {
        Self { ops: Vec::new(), keys: Vec::new(), ops_max }
    }

    /// Returns an operation's key.
    #[inline]
    pub fn key(&self, op: Op) -> &[u8] {
        &self.keys[op.key_at as usize..][..op.key_bytes as usize]
    }
}

/// How a stream chooses among the existing records.
#[derive(Clone, Copy, Debug)]
enum Chooser {
    Zipf(ScrambledZipf),
    Latest(Ranks),
    /// There are no records to choose from.
    None,
}

/// The parameters of a stream.
#[derive(Clone, Copy)]
pub struct StreamSpec<'a> {
    /// The workload.
    pub workload: Workload,
    /// The keys.
    pub dataset: &'a dyn Dataset,
    /// The existing records.
    pub space: &'a KeySpace,
    /// Zipf exponent of the access frequencies.
    pub theta: f64,
    /// Selects the popular records; the same for all workloads of a run.
    pub seed: u64,
    /// Selects the random draws; different for warm-up and measurement, and for each round.
    pub run: u64,
    /// Whether a thread's operations run one after another, so that an insert is finished before a
    /// later operation accesses its record.
    pub in_order: bool,
}

/// One thread's operations.
pub struct OpStream<'a> {
    spec: StreamSpec<'a>,
    chooser: Chooser,
    thread: usize,
    rng: Pcg64Mcg,
    left: u64,
    inserted: u64,
    key: Vec<u8>,
}

impl<'a> OpStream<'a> {
    /// Returns a stream of `ops` operations for thread number `thread`.
    pub fn new(spec: StreamSpec<'a>, thread: usize, ops: u64) -> Self {
        let loaded = spec.space.loaded;
        let chooser = match spec.workload {
            _ if loaded == 0 => Chooser::None,
            Workload::D => Chooser::Latest(Ranks::new(loaded, spec.theta)),
            _ => Chooser::Zipf(ScrambledZipf::new(loaded, spec.theta, spec.seed)),
        };
        let seed = [spec.workload as u64, spec.run, thread as u64].into_iter().fold(spec.seed, derive_seed);
        let rng = Pcg64Mcg::seed_from_u64(seed);
        Self { spec, chooser, thread, rng, left: ops, inserted: 0, key: Vec::new() }
    }

    /// Returns the number of inserts handed out so far.
    pub fn inserted(&self) -> u64 {
        self.inserted
    }

    /// Replaces the contents of `chunk` with the next operations; it stays empty if none are left.
    /// Returns `None` if the dataset has no fresh record for an insert.
    pub fn fill(&mut self, chunk: &mut Chunk) -> Option<()> {
        chunk.ops.clear();
        chunk.keys.clear();
        while self.left > 0 && chunk.ops.len() < chunk.ops_max && chunk.keys.len() < CHUNK_KEY_BYTES {
            self.left -= 1;
            let action = self.action();
            let record = if action == Action::Insert { self.fresh()? } else { self.choose() };
            let limit = if action == Action::Scan { self.rng.random_range(1..=SCAN_RECORDS_MAX) } else { 0 };
            self.spec.dataset.key(record, &mut self.key);
            let key_at = chunk.keys.len() as u32;
            chunk.keys.extend_from_slice(&self.key);
            chunk.ops.push(Op { action, key_at, key_bytes: self.key.len() as u32, limit });
        }
        Some(())
    }

    fn action(&mut self) -> Action {
        let mix = self.spec.workload.mix();
        if let [(only, _)] = mix {
            return *only;
        }
        let mut ticket = self.rng.random_range(0..100);
        for &(action, percent) in mix {
            if ticket < percent {
                return action;
            }
            ticket -= percent;
        }
        mix[0].0
    }

    fn fresh(&mut self) -> Option<u64> {
        let record = self.spec.space.fresh(self.thread, self.inserted);
        self.inserted += 1;
        (record < self.spec.dataset.capacity()).then_some(record)
    }

    fn choose(&mut self) -> u64 {
        match &self.chooser {
            Chooser::Zipf(zipf) => zipf.sample(&mut self.rng),
            Chooser::Latest(ages) => {
                let space = self.spec.space;
                let own = if self.spec.in_order { self.inserted } else { space.finished(self.thread) };
                space.present(self.thread, own) - 1 - ages.sample(&mut self.rng)
            }
            Chooser::None => 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::datasets::{Dense, RandInt};
    use std::collections::HashSet;

    fn spec<'a>(workload: Workload, dataset: &'a dyn Dataset, space: &'a KeySpace) -> StreamSpec<'a> {
        StreamSpec { workload, dataset, space, theta: 0.99, seed: 5, run: 0, in_order: true }
    }

    /// Returns all operations of a stream: action, dense key, limit.
    fn drain(mut stream: OpStream<'_>) -> Vec<(Action, u64, u32)> {
        let (mut chunk, mut all) = (Chunk::for_tasks(1), Vec::new());
        loop {
            stream.fill(&mut chunk).unwrap();
            if chunk.ops.is_empty() {
                return all;
            }
            for &op in &chunk.ops {
                let key = u64::from_be_bytes(chunk.key(op).try_into().unwrap());
                all.push((op.action, key, op.limit));
            }
        }
    }

    #[test]
    fn mixes_have_their_percentages() {
        for workload in Workload::ALL.into_iter().chain(Workload::OTHERS) {
            assert_eq!(workload.mix().iter().map(|(_, percent)| percent).sum::<u32>(), 100);
            let space = KeySpace::new(1000, 1);
            let ops = drain(OpStream::new(spec(workload, &Dense, &space), 0, 100_000));
            assert_eq!(ops.len(), 100_000);
            for &(action, percent) in workload.mix() {
                let count = ops.iter().filter(|op| op.0 == action).count() as f64;
                assert!((count / 1000.0 - f64::from(percent)).abs() < 1.0, "{workload}: {action:?} {count}");
            }
        }
    }

    #[test]
    fn load_inserts_every_record_once_on_any_number_of_threads() {
        for threads in [1, 3] {
            let space = KeySpace::new(0, threads);
            let records: Vec<u64> = (0..threads)
                .flat_map(|thread| {
                    let ops = (10_000 - thread as u64).div_ceil(threads as u64);
                    drain(OpStream::new(spec(Workload::Load, &Dense, &space), thread, ops))
                })
                .map(|op| op.1)
                .collect();
            assert_eq!(records.len(), 10_000);
            assert_eq!(records.iter().copied().collect::<HashSet<_>>(), (0..10_000).collect());
        }
    }

    #[test]
    fn latest_reads_what_was_inserted_and_mostly_the_newest() {
        let space = KeySpace::new(100_000, 1);
        let mut newest = 100_000;
        let (mut reads, mut recent) = (0, 0);
        for (action, key, _) in drain(OpStream::new(spec(Workload::D, &Dense, &space), 0, 100_000)) {
            if action == Action::Insert {
                assert_eq!(key, newest);
                newest += 1;
            } else {
                assert!(key < newest);
                reads += 1;
                recent += u32::from(newest - key <= 100);
            }
        }
        assert!(recent * 3 > reads, "{recent} of {reads} reads were of the newest hundred");
    }

    #[test]
    fn latest_on_two_threads_reads_only_what_is_finished() {
        let space = KeySpace::new(1000, 2);
        space.finish(1, 50);
        assert_eq!(space.present(0, 70), 1000 + 2 * 50);
        assert_eq!(space.present(0, 20), 1000 + 2 * 20);
        space.finish(0, 52);
        assert_eq!(space.holes(), [1000 + 2 * 50 + 1, 1000 + 2 * 51 + 1]);
        assert_eq!(space.total(), 1000 + 2 * 52);
    }

    #[test]
    fn latest_side_by_side_reads_no_insert_that_may_be_under_way() {
        let space = KeySpace::new(1000, 1);
        let latest = StreamSpec { in_order: false, ..spec(Workload::D, &Dense, &space) };
        let reads = |op: &(Action, u64, u32)| op.0 == Action::Read;
        let ops = drain(OpStream::new(latest, 0, 10_000));
        assert!(ops.iter().filter(|op| reads(op)).all(|op| op.1 < 1000));
        assert!(ops.iter().any(|op| op.1 >= 1000), "nothing was inserted");
    }

    #[test]
    fn scans_are_uniform_from_1_to_100() {
        let space = KeySpace::new(1000, 1);
        let ops = drain(OpStream::new(spec(Workload::E, &Dense, &space), 0, 100_000));
        let lengths: Vec<u32> = ops.iter().filter(|op| op.0 == Action::Scan).map(|op| op.2).collect();
        assert_eq!((lengths.iter().min(), lengths.iter().max()), (Some(&1), Some(&100)));
        let mean = f64::from(lengths.iter().sum::<u32>()) / lengths.len() as f64;
        assert!((mean - 50.5).abs() < 1.0, "{mean}");
    }

    #[test]
    fn streams_depend_on_seed_thread_and_run() {
        let (space, dataset) = (KeySpace::new(1000, 2), RandInt::new(1));
        let base = spec(Workload::A, &dataset, &space);
        let stream = |spec, thread| drain(OpStream::new(spec, thread, 1000));
        assert_eq!(stream(base, 0), stream(base, 0));
        assert_ne!(stream(base, 0), stream(base, 1));
        assert_ne!(stream(base, 0), stream(StreamSpec { run: 1, ..base }, 0));
        assert_ne!(stream(base, 0), stream(StreamSpec { seed: 6, ..base }, 0));
    }

    #[test]
    fn fresh_bounds_hold() {
        assert_eq!(Workload::A.fresh_records_max(1000, 1), 0);
        assert_eq!(Workload::I.fresh_records_max(1000, 3), 1002);
        for ops in [1, 10, 1000, 1_000_000] {
            let bound = Workload::D.fresh_records_max(ops, 2);
            assert!(bound >= ops / 20 && bound <= ops + 1, "{ops}: {bound}");
        }
        assert_eq!("LOAD".parse::<Workload>().unwrap(), Workload::Load);
        assert_eq!("u".parse::<Workload>().unwrap(), Workload::U);
        assert!("g".parse::<Workload>().unwrap_err().contains("choose"));
    }
}
