//! Runs one workload on one target: threads, time, latencies, counts.
//!
//! Each thread prepares its operations a chunk at a time, keys included, and only the running of a chunk is timed; upkeep
//! runs inline at the end of each chunk, inside the measured time. So with one thread nothing else happens meanwhile, and the
//! counts of two runs are equal. `seconds` is the busy time of the busiest thread.

use crate::BenchError;
use crate::datasets::Dataset;
use crate::target::{SortedPairs, Target, TargetSession};
use crate::ycsb::{Action, Chunk, KeySpace, Op, OpStream, StreamSpec, Workload};
use darter::Counters;
use hdrhistogram::Histogram;
use indicatif::ProgressBar;
use rand::{Rng, SeedableRng};
use rand_pcg::Pcg64Mcg;
use std::hint::black_box;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Every how many operations one is timed, once there are [`SAMPLED_FROM_OPS`] of them.
const LATENCY_EVERY: usize = 8;
/// Operations of a thread from which on latencies are sampled; below, every operation is timed.
const SAMPLED_FROM_OPS: u64 = 1_000_000;
/// Longest latency told apart, in nanoseconds: one minute.
const LATENCY_NS_MAX: u64 = 60_000_000_000;

/// What to run.
#[derive(Clone, Copy)]
pub(crate) struct Phase<'a> {
    pub(crate) workload: Workload,
    pub(crate) dataset: &'a dyn Dataset,
    /// Records there are: 0 for LOAD.
    pub(crate) loaded: u64,
    pub(crate) ops: u64,
    pub(crate) threads: usize,
    pub(crate) theta: f64,
    pub(crate) value_bytes: usize,
    pub(crate) seed: u64,
    /// Which draw of the same workload this is.
    pub(crate) run: u64,
    pub(crate) progress: &'a ProgressBar,
}

/// What came of it.
#[derive(Clone, Debug)]
pub(crate) struct Outcome {
    pub(crate) ops: u64,
    pub(crate) seconds: f64,
    /// Reads, updates and scans that did not find their key.
    pub(crate) not_found: u64,
    /// In nanoseconds.
    pub(crate) latency: Histogram<u64>,
    /// `None` when the target does not count.
    pub(crate) counters: Option<Counters>,
    /// Records there are now.
    pub(crate) records: u64,
}

impl Outcome {
    pub(crate) fn ops_per_s(&self) -> f64 {
        if self.seconds > 0.0 { self.ops as f64 / self.seconds } else { 0.0 }
    }
}

/// Values to write: random bytes, of which the first eight count up.
#[derive(Debug)]
pub(crate) struct Values {
    bytes: Vec<u8>,
    next: u64,
}

impl Values {
    pub(crate) fn new(value_bytes: usize, seed: u64) -> Self {
        let mut bytes = vec![0; value_bytes];
        Pcg64Mcg::seed_from_u64(seed).fill_bytes(&mut bytes);
        Self { bytes, next: 0 }
    }

    #[inline]
    pub(crate) fn next(&mut self) -> &[u8] {
        self.next += 1;
        let counted = self.bytes.len().min(8);
        self.bytes[..counted].copy_from_slice(&self.next.to_le_bytes()[..counted]);
        &self.bytes
    }
}

/// One thread's share of an outcome.
struct Share {
    busy: Duration,
    ops: u64,
    not_found: u64,
    latency: Histogram<u64>,
    counters: Option<Counters>,
}

/// Runs a phase to its end, then fills the holes that uneven inserts left, so that records are contiguous again.
pub(crate) fn run_phase<T: Target>(target: &T, phase: &Phase<'_>) -> Result<Outcome, BenchError> {
    let space = KeySpace::new(phase.loaded, phase.threads);
    let sessions = (0..phase.threads).map(|_| target.session()).collect::<Result<Vec<_>, _>>()?;
    let start = Barrier::new(phase.threads);
    let stop = AtomicBool::new(false);
    let shares: Vec<Result<Share, BenchError>> = std::thread::scope(|scope| {
        let workers: Vec<_> = sessions
            .into_iter()
            .enumerate()
            .map(|(thread, session)| {
                let worker = Worker { phase, space: &space, thread, session, index: target.name() };
                let (start, stop) = (&start, &stop);
                scope.spawn(move || {
                    start.wait();
                    let share = worker.run(stop);
                    if share.is_err() {
                        stop.store(true, Ordering::Relaxed);
                    }
                    share
                })
            })
            .collect();
        let join = |worker: std::thread::ScopedJoinHandle<'_, _>| {
            worker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        };
        workers.into_iter().map(join).collect()
    });
    let shares = shares.into_iter().collect::<Result<Vec<_>, _>>()?;
    fill_holes(target, phase, &space)?;

    let mut outcome = Outcome {
        ops: 0,
        seconds: 0.0,
        not_found: 0,
        latency: latency_histogram(),
        counters: shares.iter().map(|share| share.counters).sum(),
        records: space.total(),
    };
    for share in shares {
        outcome.ops += share.ops;
        outcome.not_found += share.not_found;
        outcome.seconds = outcome.seconds.max(share.busy.as_secs_f64());
        // Equal bounds and precision: nothing can be out of range.
        let _ = outcome.latency.add(&share.latency);
    }
    Ok(outcome)
}

fn fill_holes<T: Target>(target: &T, phase: &Phase<'_>, space: &KeySpace) -> Result<(), BenchError> {
    let holes = space.holes();
    if holes.is_empty() {
        return Ok(());
    }
    let mut session = target.session()?;
    let (mut key, mut values) = (Vec::new(), Values::new(phase.value_bytes, phase.seed));
    for record in holes {
        phase.dataset.key(record, &mut key);
        session.insert(&key, values.next())?;
    }
    Ok(())
}

/// Fills an empty target with the dataset's first `records` records.
pub(crate) fn bulk_load<T: Target>(
    target: &T,
    dataset: &dyn Dataset,
    records: u64,
    value_bytes: usize,
    progress: &ProgressBar,
) -> Result<(), BenchError> {
    let mut values = Values::new(value_bytes, records);
    let mut done = 0_u64;
    let pairs: SortedPairs<'_> = Box::new(dataset.sorted(records).map(move |key| {
        done += 1;
        if done.is_multiple_of(4096) {
            progress.set_position(done);
        }
        (key, values.next().to_vec())
    }));
    let loaded = target.session()?.bulk_load(pairs)?;
    if loaded == records {
        Ok(())
    } else {
        Err(BenchError::WrongAnswer {
            index: target.name(),
            what: format!("bulk load took {loaded} of {records} records"),
        })
    }
}

/// A histogram of nanoseconds. One that grows by itself would not when it is asked to saturate.
pub(crate) fn latency_histogram() -> Histogram<u64> {
    // Bounds and precision are constants that the constructor accepts.
    Histogram::new_with_bounds(1, LATENCY_NS_MAX, 3)
        .unwrap_or_else(|error| unreachable!("constant histogram bounds: {error:?}"))
}

/// One thread at work.
struct Worker<'a, S> {
    phase: &'a Phase<'a>,
    space: &'a KeySpace,
    thread: usize,
    session: S,
    index: &'static str,
}

impl<S: TargetSession> Worker<'_, S> {
    /// Operations that fall to this thread.
    fn ops(&self) -> u64 {
        let (threads, thread) = (self.phase.threads as u64, self.thread as u64);
        self.phase.ops / threads + u64::from(thread < self.phase.ops % threads)
    }

    fn run(mut self, stop: &AtomicBool) -> Result<Share, BenchError> {
        let phase = self.phase;
        let spec = StreamSpec {
            workload: phase.workload,
            dataset: phase.dataset,
            space: self.space,
            theta: phase.theta,
            seed: phase.seed,
            run: phase.run,
        };
        let ops = self.ops();
        let mut stream = OpStream::new(spec, self.thread, ops);
        let mut executor = Executor {
            values: Values::new(phase.value_bytes, phase.seed ^ self.thread as u64),
            read: Vec::new(),
            value_bytes: phase.value_bytes,
            not_found: 0,
        };
        let every = if ops < SAMPLED_FROM_OPS { 1 } else { LATENCY_EVERY };
        let mut latency = latency_histogram();
        let (mut chunk, mut busy, mut done) = (Chunk::default(), Duration::ZERO, 0);
        let before = self.session.counters();
        while !stop.load(Ordering::Relaxed) {
            stream.fill(&mut chunk).ok_or_else(|| {
                BenchError::Usage(
                    "the dataset has no key left to insert; use fewer --records or --ops".to_owned(),
                )
            })?;
            if chunk.ops.is_empty() {
                break;
            }
            let begin = Instant::now();
            for (at, &op) in chunk.ops.iter().enumerate() {
                if at % every == 0 {
                    let begin = Instant::now();
                    self.execute(&mut executor, &chunk, op)?;
                    latency.saturating_record(begin.elapsed().as_nanos() as u64);
                } else {
                    self.execute(&mut executor, &chunk, op)?;
                }
            }
            self.session.maintain()?;
            busy += begin.elapsed();
            done += chunk.ops.len() as u64;
            self.space.finish(self.thread, stream.inserted());
            phase.progress.inc(chunk.ops.len() as u64);
        }
        let counters = self.session.counters().zip(before).map(|(after, before)| after - before);
        Ok(Share { busy, ops: done, not_found: executor.not_found, latency, counters })
    }

    #[inline]
    fn execute(&mut self, executor: &mut Executor, chunk: &Chunk, op: Op) -> Result<(), BenchError> {
        executor.execute(&mut self.session, chunk.key(op), op).map_err(|failure| match failure {
            Failure::Error(error) => error,
            Failure::Wrong(what) => BenchError::WrongAnswer {
                index: self.index,
                what: format!("{what}, in workload {}", self.phase.workload),
            },
        })
    }
}

/// Why an operation failed.
enum Failure {
    Error(BenchError),
    Wrong(&'static str),
}

impl From<BenchError> for Failure {
    fn from(error: BenchError) -> Self {
        Self::Error(error)
    }
}

/// Runs single operations.
struct Executor {
    values: Values,
    read: Vec<u8>,
    value_bytes: usize,
    not_found: u64,
}

impl Executor {
    #[inline]
    fn execute(&mut self, session: &mut impl TargetSession, key: &[u8], op: Op) -> Result<(), Failure> {
        match op.action {
            Action::Read => self.read(session, key),
            Action::Update => self.update(session, key),
            Action::ReadModifyWrite => {
                self.read(session, key)?;
                self.update(session, key)
            }
            Action::Insert => {
                if session.insert(key, self.values.next())? {
                    Ok(())
                } else {
                    Err(Failure::Wrong("a fresh key was refused as present"))
                }
            }
            Action::Scan => {
                let found = session.scan(key, op.limit as usize, &mut self.read)?;
                self.not_found += u64::from(found == 0);
                if self.read.len() == found * self.value_bytes {
                    black_box(&self.read);
                    Ok(())
                } else {
                    Err(Failure::Wrong("a scan brought values of another length"))
                }
            }
        }
    }

    #[inline]
    fn read(&mut self, session: &mut impl TargetSession, key: &[u8]) -> Result<(), Failure> {
        if !session.read(key, &mut self.read)? {
            self.not_found += 1;
        } else if self.read.len() != self.value_bytes {
            return Err(Failure::Wrong("a read brought a value of another length"));
        }
        black_box(&self.read);
        Ok(())
    }

    #[inline]
    fn update(&mut self, session: &mut impl TargetSession, key: &[u8]) -> Result<(), Failure> {
        self.not_found += u64::from(!session.update(key, self.values.next())?);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::datasets::{Dense, Email};
    use std::collections::BTreeMap;
    use std::ops::Bound;
    use std::sync::Mutex;

    /// The driver's own yardstick: a locked map that can lie.
    #[derive(Default)]
    struct Model {
        map: Mutex<BTreeMap<Vec<u8>, Vec<u8>>>,
        forget_inserts: bool,
    }

    struct ModelSession<'a>(&'a Model);

    impl Target for Model {
        type Session<'a> = ModelSession<'a>;

        fn name(&self) -> &'static str {
            "model"
        }

        fn session(&self) -> Result<ModelSession<'_>, BenchError> {
            Ok(ModelSession(self))
        }
    }

    impl TargetSession for ModelSession<'_> {
        fn read(&mut self, key: &[u8], value: &mut Vec<u8>) -> Result<bool, BenchError> {
            let map = self.0.map.lock().unwrap();
            let found = map.get(key);
            value.clear();
            value.extend(found.into_iter().flatten());
            Ok(found.is_some())
        }

        fn update(&mut self, key: &[u8], value: &[u8]) -> Result<bool, BenchError> {
            let mut map = self.0.map.lock().unwrap();
            Ok(map.get_mut(key).map(|slot| slot.copy_from_slice(value)).is_some())
        }

        fn insert(&mut self, key: &[u8], value: &[u8]) -> Result<bool, BenchError> {
            if self.0.forget_inserts {
                return Ok(false);
            }
            Ok(self.0.map.lock().unwrap().insert(key.to_vec(), value.to_vec()).is_none())
        }

        fn scan(&mut self, from: &[u8], limit: usize, values: &mut Vec<u8>) -> Result<usize, BenchError> {
            values.clear();
            let map = self.0.map.lock().unwrap();
            let range = (Bound::Included(from), Bound::Unbounded);
            let found = map.range::<[u8], _>(range).take(limit);
            Ok(found.map(|(_, value)| values.extend(value)).count())
        }

        fn bulk_load(&mut self, sorted: SortedPairs<'_>) -> Result<u64, BenchError> {
            let mut map = self.0.map.lock().unwrap();
            Ok(sorted.map(|(key, value)| map.insert(key, value)).count() as u64)
        }
    }

    fn phase<'a>(workload: Workload, dataset: &'a dyn Dataset, progress: &'a ProgressBar) -> Phase<'a> {
        Phase {
            workload,
            dataset,
            loaded: if workload == Workload::Load { 0 } else { 5000 },
            ops: 5000,
            threads: 1,
            theta: 0.99,
            value_bytes: 64,
            seed: 9,
            run: 0,
            progress,
        }
    }

    #[test]
    fn every_workload_finds_its_keys_and_keeps_records_contiguous() {
        let progress = ProgressBar::hidden();
        for threads in [1, 3] {
            let (model, email) = (Model::default(), Email::new(1));
            let mut loaded = 0;
            for workload in Workload::ALL {
                let outcome =
                    run_phase(&model, &Phase { loaded, threads, ..phase(workload, &email, &progress) })
                        .unwrap();
                assert_eq!((outcome.ops, outcome.not_found), (5000, 0), "{workload}");
                assert_eq!(outcome.latency.len(), 5000);
                loaded = outcome.records;
                assert_eq!(model.map.lock().unwrap().len() as u64, loaded);
            }
            assert!(loaded > 5400, "{loaded}: two workloads insert 5% each");
            let mut key = Vec::new();
            for record in 0..loaded {
                email.key(record, &mut key);
                assert!(model.map.lock().unwrap().contains_key(&key), "record {record}");
            }
        }
    }

    #[test]
    fn bulk_load_brings_the_records_that_workloads_ask_for() {
        let progress = ProgressBar::hidden();
        let model = Model::default();
        bulk_load(&model, &Dense, 5000, 64, &progress).unwrap();
        let outcome = run_phase(&model, &phase(Workload::F, &Dense, &progress)).unwrap();
        assert_eq!(outcome.not_found, 0);
        let missing = run_phase(&model, &Phase { loaded: 10_000, ..phase(Workload::C, &Dense, &progress) });
        assert!(missing.unwrap().not_found > 0);
    }

    #[test]
    fn wrong_answers_end_the_run_on_all_threads() {
        let progress = ProgressBar::hidden();
        let model = Model { forget_inserts: true, ..Model::default() };
        let load = Phase { threads: 2, ..phase(Workload::Load, &Dense, &progress) };
        let error = run_phase(&model, &load).unwrap_err();
        assert!(error.to_string().contains("refused as present") && !error.is_usage());

        let model = Model::default();
        bulk_load(&model, &Dense, 5000, 64, &progress).unwrap();
        let other = Phase { value_bytes: 32, ..phase(Workload::C, &Dense, &progress) };
        assert!(run_phase(&model, &other).unwrap_err().to_string().contains("another length"));
    }

    #[test]
    fn values_count_up_and_have_their_length() {
        for bytes in [0, 3, 8, 64] {
            let mut values = Values::new(bytes, 1);
            let first = values.next().to_vec();
            assert_eq!(first.len(), bytes);
            assert_eq!(first == values.next(), bytes == 0);
        }
    }
}
