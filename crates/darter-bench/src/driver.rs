//! Runs one workload on one target: threads, operations in flight, time, latencies, counts.
//!
//! A thread has a task and a session for each operation that it keeps in flight; a task takes the
//! next operation when it has finished one. Each thread prepares operations and their keys a chunk
//! at a time, and only the execution of a chunk is timed. Upkeep runs inline at the end of each
//! chunk, inside the measured time. With one thread, nothing else runs during the phase, so the
//! counts of two runs are equal. `seconds` is the busy time of the busiest thread.

use crate::BenchError;
use crate::datasets::Dataset;
use crate::executor::{Executor, Failure, Values};
use crate::outcome::Outcome;
use crate::phase::Phase;
use crate::progress::Progress;
use crate::target::{SortedPairs, Target, TargetSession};
use crate::ycsb::{Chunk, KeySpace, OpStream, StreamSpec};
use darter::{Counters, block_on};
use darter_fabric::run_all;
use hdrhistogram::Histogram;
use std::cell::{Cell, RefCell};
use std::pin::pin;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// One in this many operations is timed, in runs of at least [`SAMPLED_FROM_OPS`].
const LATENCY_EVERY: usize = 8;
/// Threads with at least this many operations sample latencies; others time every operation.
const SAMPLED_FROM_OPS: u64 = 1_000_000;

/// Runs a phase to its end, then inserts the records that threads of unequal speed left out, so
/// that records are contiguous again.
///
/// # Errors
/// Fails if the target fails or returns a wrong result, or if the run is interrupted.
pub fn run_phase<T: Target>(target: &T, phase: &Phase<'_>) -> Result<Outcome, BenchError> {
    let space = KeySpace::new(phase.loaded, phase.threads * phase.part.processes);
    let sessions = |_| (0..phase.in_flight).map(|_| target.session()).collect::<Result<Vec<_>, _>>();
    let sessions = (0..phase.threads).map(sessions).collect::<Result<Vec<_>, _>>()?;
    let start = Barrier::new(phase.threads);
    let stop = AtomicBool::new(false);
    let shares: Vec<Result<Outcome, BenchError>> = std::thread::scope(|scope| {
        let workers: Vec<_> = sessions
            .into_iter()
            .enumerate()
            .map(|(thread, sessions)| {
                let thread = phase.part.process * phase.threads + thread;
                let worker = Worker { phase, space: &space, thread, sessions, index: target.name() };
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
    phase.progress.go_on()?;
    fill_holes(target, phase, &space)?;

    let mut outcome = Outcome::new(space.total());
    for share in &shares {
        outcome.add(share);
    }
    Ok(outcome)
}

/// Inserts the records below the highest one that no thread has inserted.
///
/// # Errors
/// Fails if the target fails.
pub fn fill_holes<T: Target>(target: &T, phase: &Phase<'_>, space: &KeySpace) -> Result<(), BenchError> {
    let holes = space.holes();
    if holes.is_empty() {
        return Ok(());
    }
    let mut session = target.session()?;
    let (mut key, mut values) = (Vec::new(), Values::new(phase.value_bytes, phase.seed));
    for record in holes {
        phase.dataset.key(record, &mut key);
        block_on(session.insert(&key, values.next()))?;
    }
    Ok(())
}

/// Fills an empty target with the dataset's first `records` records.
///
/// # Errors
/// Fails if the target fails or returns a wrong result, or if the run is interrupted.
pub fn bulk_load<T: Target>(
    target: &T,
    dataset: &dyn Dataset,
    records: u64,
    value_bytes: usize,
    progress: &Progress,
) -> Result<(), BenchError> {
    let mut values = Values::new(value_bytes, records);
    let mut done = 0_u64;
    let keys = dataset.sorted(records).take_while(|_| !progress.should_end());
    let pairs = keys.map(move |key| {
        done += 1;
        if done.is_multiple_of(4096) {
            progress.set_position(done);
        }
        (key, values.next().to_vec())
    });
    let pairs: SortedPairs<'_> = Box::new(Announced { pairs, left: records as usize });
    let mut session = target.session()?;
    let loaded = block_on(session.bulk_load(pairs))?;
    progress.go_on()?;
    if loaded == records {
        Ok(())
    } else {
        Err(BenchError::WrongAnswer {
            index: target.name(),
            what: format!("bulk load took {loaded} of {records} records"),
        })
    }
}

/// Pairs with a known count: an index on several memory nodes divides them by it. There are fewer
/// only if the user ends the program.
struct Announced<I> {
    pairs: I,
    left: usize,
}

impl<I: Iterator> Iterator for Announced<I> {
    type Item = I::Item;

    fn next(&mut self) -> Option<I::Item> {
        let pair = self.pairs.next();
        self.left = if pair.is_some() { self.left.saturating_sub(1) } else { 0 };
        pair
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left, Some(self.left))
    }
}

/// One thread of a phase, with a session for each operation that it keeps in flight.
struct Worker<'a, S> {
    phase: &'a Phase<'a>,
    space: &'a KeySpace,
    /// The thread's number, counted over all processes.
    thread: usize,
    sessions: Vec<S>,
    index: &'static str,
}

impl<S: TargetSession> Worker<'_, S> {
    fn counters(&self) -> Option<Counters> {
        self.sessions.iter().map(TargetSession::counters).sum()
    }

    fn run(mut self, stop: &AtomicBool) -> Result<Outcome, BenchError> {
        let phase = self.phase;
        let spec = StreamSpec {
            workload: phase.workload,
            dataset: phase.dataset,
            space: self.space,
            theta: phase.theta,
            seed: phase.seed,
            run: phase.run,
            in_order: phase.in_flight == 1,
        };
        let ops = phase.ops_of(self.thread);
        let mut stream = OpStream::new(spec, self.thread, ops);
        let every = if ops < SAMPLED_FROM_OPS { 1 } else { LATENCY_EVERY };
        let mut executors: Vec<Executor> = (0..self.sessions.len())
            .map(|task| Executor::new(phase.value_bytes, phase.seed ^ (self.thread + task) as u64))
            .collect();
        let (mut chunk, mut busy) = (Chunk::for_tasks(self.sessions.len()), Duration::ZERO);
        let mut outcome = Outcome::new(0);
        let before = self.counters();
        while !stop.load(Ordering::Relaxed) && !phase.progress.should_end() {
            stream.fill(&mut chunk).ok_or_else(BenchError::no_fresh_key)?;
            if chunk.ops.is_empty() {
                break;
            }
            let latency = RefCell::new(&mut outcome.latency);
            let work = Work { chunk: &chunk, next: Cell::new(0), every, latency };
            let begin = Instant::now();
            let tasks = self
                .sessions
                .iter_mut()
                .zip(&mut executors)
                .map(|(session, executor)| work.task(session, executor));
            for ended in run_all(tasks) {
                ended.map_err(|failure| failure.of(self.index, phase.workload))?;
            }
            for session in &mut self.sessions {
                block_on(session.maintain())?;
            }
            busy += begin.elapsed();
            outcome.ops += chunk.ops.len() as u64;
            self.space.finish(self.thread, stream.inserted());
            phase.progress.inc(chunk.ops.len() as u64);
        }
        outcome.seconds = busy.as_secs_f64();
        outcome.not_found = executors.iter().map(|executor| executor.not_found).sum();
        outcome.counters = self.counters().zip(before).map(|(after, before)| after - before);
        Ok(outcome)
    }
}

/// A chunk of operations shared by a thread's tasks.
struct Work<'a> {
    chunk: &'a Chunk,
    next: Cell<usize>,
    every: usize,
    latency: RefCell<&'a mut Histogram<u64>>,
}

impl Work<'_> {
    /// Runs one operation after another until none is left.
    async fn task(&self, session: &mut impl TargetSession, executor: &mut Executor) -> Result<(), Failure> {
        loop {
            let at = self.next.get();
            let Some(&op) = self.chunk.ops.get(at) else { return Ok(()) };
            self.next.set(at + 1);
            let begin = at.is_multiple_of(self.every).then(Instant::now);
            let done = pin!(executor.execute(session, self.chunk.key(op), op)).await;
            if done.is_err() {
                // The other tasks stop as well.
                self.next.set(self.chunk.ops.len());
                return done;
            }
            if let Some(begin) = begin {
                self.latency.borrow_mut().saturating_record(begin.elapsed().as_nanos() as u64);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::datasets::{Dense, KeyFile};
    use crate::phase::Part;
    use crate::ycsb::Workload;
    use std::collections::BTreeMap;
    use std::io::Write;
    use std::ops::Bound;
    use std::sync::{Arc, Mutex};

    /// The driver's own baseline: a locked map that can return wrong results.
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
        async fn read(&mut self, key: &[u8], value: &mut Vec<u8>) -> Result<bool, BenchError> {
            let map = self.0.map.lock().unwrap();
            let found = map.get(key);
            value.clear();
            value.extend(found.into_iter().flatten());
            Ok(found.is_some())
        }

        async fn update(&mut self, key: &[u8], value: &[u8]) -> Result<bool, BenchError> {
            let mut map = self.0.map.lock().unwrap();
            Ok(map.get_mut(key).map(|slot| slot.copy_from_slice(value)).is_some())
        }

        async fn insert(&mut self, key: &[u8], value: &[u8]) -> Result<bool, BenchError> {
            if self.0.forget_inserts {
                return Ok(false);
            }
            Ok(self.0.map.lock().unwrap().insert(key.to_vec(), value.to_vec()).is_none())
        }

        async fn scan(
            &mut self,
            from: &[u8],
            limit: usize,
            values: &mut Vec<u8>,
        ) -> Result<usize, BenchError> {
            values.clear();
            let map = self.0.map.lock().unwrap();
            let range = (Bound::Included(from), Bound::Unbounded);
            let found = map.range::<[u8], _>(range).take(limit);
            Ok(found.map(|(_, value)| values.extend(value)).count())
        }

        async fn bulk_load(&mut self, sorted: SortedPairs<'_>) -> Result<u64, BenchError> {
            let mut map = self.0.map.lock().unwrap();
            Ok(sorted.map(|(key, value)| map.insert(key, value)).count() as u64)
        }
    }

    fn phase<'a>(workload: Workload, dataset: &'a dyn Dataset, progress: &'a Progress) -> Phase<'a> {
        Phase {
            workload,
            dataset,
            loaded: if workload == Workload::Load { 0 } else { 5000 },
            ops: 5000,
            threads: 1,
            in_flight: 1,
            part: Part::WHOLE,
            theta: 0.99,
            value_bytes: 64,
            seed: 9,
            run: 0,
            progress,
        }
    }

    #[test]
    fn every_workload_finds_its_keys_and_keeps_records_contiguous() {
        let progress = Progress::hidden(&Arc::default());
        let mut file = tempfile::NamedTempFile::new().unwrap();
        (0..20_000).for_each(|n| writeln!(file, "key {n}").unwrap());
        let keys = KeyFile::read(file.path(), 1).unwrap();
        for (threads, in_flight) in [(1, 1), (3, 1), (1, 7), (2, 5)] {
            let model = Model::default();
            let mut loaded = 0;
            for workload in Workload::ALL {
                let outcome = run_phase(
                    &model,
                    &Phase { loaded, threads, in_flight, ..phase(workload, &keys, &progress) },
                )
                .unwrap();
                assert_eq!((outcome.ops, outcome.not_found), (5000, 0), "{workload}");
                assert_eq!(outcome.latency.len(), 5000);
                loaded = outcome.records;
                assert_eq!(model.map.lock().unwrap().len() as u64, loaded);
            }
            assert!(loaded > 5400, "{loaded}: two workloads insert 5% each");
            let mut key = Vec::new();
            for record in 0..loaded {
                keys.key(record, &mut key);
                assert!(model.map.lock().unwrap().contains_key(&key), "record {record}");
            }
        }
    }

    #[test]
    fn bulk_load_stores_the_records_that_workloads_read() {
        let progress = Progress::hidden(&Arc::default());
        let model = Model::default();
        bulk_load(&model, &Dense, 5000, 64, &progress).unwrap();
        let outcome = run_phase(&model, &phase(Workload::F, &Dense, &progress)).unwrap();
        assert_eq!(outcome.not_found, 0);
        let missing = run_phase(&model, &Phase { loaded: 10_000, ..phase(Workload::C, &Dense, &progress) });
        assert!(missing.unwrap().not_found > 0);
    }

    #[test]
    fn wrong_answers_end_the_run_on_all_threads() {
        let progress = Progress::hidden(&Arc::default());
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
    fn an_interrupted_phase_ends_on_all_threads() {
        let stop = Arc::new(AtomicBool::new(true));
        let progress = Progress::hidden(&stop);
        let model = Model::default();
        assert!(matches!(bulk_load(&model, &Dense, 5000, 64, &progress), Err(BenchError::Interrupted)));
        let load = Phase { threads: 2, ..phase(Workload::Load, &Dense, &progress) };
        assert!(matches!(run_phase(&model, &load), Err(BenchError::Interrupted)));
        assert!(model.map.lock().unwrap().is_empty());
    }
}
