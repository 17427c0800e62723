//! Runs one workload on a modelled cluster: the same operations as the driver's, by the model's
//! clock.
//!
//! Threads are assigned to the compute nodes round-robin; each node has a separate target, an index
//! handle with its cache. A thread has a stream of operations, and a task and a session for each
//! operation that it keeps in flight. Generating keys takes no modelled time; the model determines
//! the processor time of an operation.

use darter::block_on;
use darter_bench::BenchError;
use darter_bench::driver::fill_holes;
use darter_bench::executor::{Executor, Failure};
use darter_bench::outcome::Outcome;
use darter_bench::phase::Phase;
use darter_bench::target::{Target, TargetSession};
use darter_bench::ycsb::{Action, Chunk, KeySpace, Op, OpStream, StreamSpec};
use darter_model::{Cluster, Model};
use std::cell::{Cell, RefCell};

/// Operations prepared at a time: few, so that a stream knows of others' inserts.
const CHUNK_OPS: usize = 16;
/// Operations of a session between two rounds of upkeep.
const UPKEEP_OPS: u64 = 1024;

/// Rounds of upkeep after a phase: two graces, with scrubbing between them, and one to free.
const RECLAIM_ROUNDS: usize = 6;

/// A thread's operations, handed out one by one.
struct Feed<'a> {
    stream: OpStream<'a>,
    chunk: Chunk,
    next: usize,
    /// Inserts handed out, and those of them that are in flight, by number.
    inserts: u64,
    under_way: Vec<u64>,
}

/// An operation in progress. Inserts have a number.
struct InHand {
    op: Op,
    insert: Option<u64>,
}

impl Feed<'_> {
    /// Returns the next operation, with its key in `key`; `None` if none is left.
    fn take(&mut self, key: &mut Vec<u8>) -> Result<Option<InHand>, BenchError> {
        if self.next == self.chunk.ops.len() {
            self.next = 0;
            self.stream.fill(&mut self.chunk).ok_or_else(BenchError::no_fresh_key)?;
        }
        let Some(&op) = self.chunk.ops.get(self.next) else { return Ok(None) };
        self.next += 1;
        key.clear();
        key.extend_from_slice(self.chunk.key(op));
        let insert = (op.action == Action::Insert).then(|| {
            self.inserts += 1;
            self.under_way.push(self.inserts - 1);
            self.inserts - 1
        });
        Ok(Some(InHand { op, insert }))
    }

    /// Records that an insert is done. Returns the number of inserts before the first that is not.
    fn done(&mut self, insert: u64) -> u64 {
        self.under_way.retain(|&other| other != insert);
        self.under_way.iter().copied().min().unwrap_or(self.inserts)
    }
}

/// State that all tasks of a phase share.
struct PhaseState<'a> {
    model: &'a Model,
    phase: &'a Phase<'a>,
    space: &'a KeySpace,
    outcome: RefCell<Outcome>,
    /// When each operation ended, in nanoseconds.
    ends_ns: RefCell<Vec<u64>>,
    /// When the first thread had nothing left to do.
    all_busy_until_ns: Cell<u64>,
    failure: Cell<Option<Failure>>,
    has_failed: Cell<bool>,
}

/// Runs a phase to its end; `nodes` are the compute nodes' targets. It runs in a fresh thread,
/// which has no state of earlier phases, so that equal phases take equal times to the picosecond.
pub(crate) fn run_phase<T: Target>(
    model: &Model,
    nodes: &[T],
    phase: &Phase<'_>,
) -> Result<Outcome, BenchError> {
    std::thread::scope(|scope| {
        let runner = scope.spawn(|| run_here(model, nodes, phase));
        runner.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

fn run_here<T: Target>(model: &Model, nodes: &[T], phase: &Phase<'_>) -> Result<Outcome, BenchError> {
    let space = KeySpace::new(phase.loaded, phase.threads);
    let state = PhaseState {
        model,
        phase,
        space: &space,
        outcome: RefCell::new(Outcome::new(0)),
        ends_ns: RefCell::default(),
        all_busy_until_ns: Cell::new(u64::MAX),
        failure: Cell::new(None),
        has_failed: Cell::new(false),
    };
    let feeds: Vec<RefCell<Feed<'_>>> =
        (0..phase.threads).map(|thread| RefCell::new(state.feed(thread))).collect();
    let mut cluster = Cluster::new(model);
    for (thread, feed) in feeds.iter().enumerate() {
        for task in 0..phase.in_flight {
            let session = nodes[thread % nodes.len()].session()?;
            let executor = Executor::new(phase.value_bytes, phase.seed ^ (thread + task) as u64);
            cluster.spawn(thread, state.task(thread, feed, session, executor));
        }
    }
    model.measure();
    let begin_ns = model.now_ns();
    cluster.run().map_err(|stuck| BenchError::Failed(format!("the modelled cluster is stuck: {stuck}")))?;
    drop(cluster);
    let report = model.report();
    drop(feeds);
    let PhaseState { outcome, ends_ns, all_busy_until_ns, failure, .. } = state;
    if let Some(failure) = failure.take() {
        return Err(failure.of(nodes[0].name(), phase.workload));
    }
    phase.progress.go_on()?;
    fill_holes(&nodes[0], phase, &space)?;
    reclaim(nodes)?;
    // The rate covers the time in which every thread had work: what the last ones do alone says
    // little about the cluster.
    let until_ns = all_busy_until_ns.get().min(begin_ns + report.elapsed_ns);
    let ends_ns = ends_ns.into_inner();
    let ended = ends_ns.iter().filter(|&&end| end <= until_ns).count().max(1);
    let ns_per_op = (until_ns - begin_ns) as f64 / ended as f64;
    Ok(Outcome {
        seconds: ns_per_op * ends_ns.len() as f64 / 1e9,
        records: space.total(),
        bottleneck: report.bottleneck().map(|busiest| busiest.to_string()),
        ..outcome.into_inner()
    })
}

/// Runs upkeep on every compute node, outside of the model's time, until unlinked memory can be
/// reused.
fn reclaim<T: Target>(nodes: &[T]) -> Result<(), BenchError> {
    let sessions = nodes.iter().map(Target::session).collect::<Result<Vec<_>, _>>();
    let mut sessions = sessions?;
    for _ in 0..RECLAIM_ROUNDS {
        for session in &mut sessions {
            block_on(session.maintain())?;
        }
    }
    Ok(())
}

impl PhaseState<'_> {
    fn feed(&self, thread: usize) -> Feed<'_> {
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
        let stream = OpStream::new(spec, thread, phase.ops_of(thread));
        Feed { stream, chunk: Chunk::of(CHUNK_OPS), next: 0, inserts: 0, under_way: Vec::new() }
    }

    /// Runs one operation after another until none is left or a task has failed.
    async fn task(
        &self,
        thread: usize,
        feed: &RefCell<Feed<'_>>,
        mut session: impl TargetSession,
        mut executor: Executor,
    ) {
        let before = session.counters();
        let (mut key, mut ops) = (Vec::new(), 0);
        while !self.has_failed.get() && !self.phase.progress.should_end() {
            let taken = feed.borrow_mut().take(&mut key);
            let in_hand = match taken {
                Ok(Some(in_hand)) => in_hand,
                Ok(None) => {
                    let first = self.all_busy_until_ns.get().min(self.model.now_ns());
                    self.all_busy_until_ns.set(first);
                    break;
                }
                Err(error) => return self.fail(error.into()),
            };
            let begin = self.model.now_ns();
            if let Err(failure) = executor.execute(&mut session, &key, in_hand.op).await {
                return self.fail(failure);
            }
            let end = self.model.now_ns();
            let took = end - begin;
            self.ends_ns.borrow_mut().push(end);
            self.outcome.borrow_mut().latency.saturating_record(took);
            if let Some(insert) = in_hand.insert {
                self.space.finish(thread, feed.borrow_mut().done(insert));
            }
            ops += 1;
            self.phase.progress.inc(1);
            if ops % UPKEEP_OPS == 0
                && let Err(error) = session.maintain().await
            {
                return self.fail(error.into());
            }
        }
        let mut outcome = self.outcome.borrow_mut();
        outcome.ops += ops;
        outcome.not_found += executor.not_found;
        let own = session.counters().zip(before).map(|(after, before)| after - before);
        outcome.counters = outcome.counters.zip(own).map(|(all, own)| all + own);
    }

    fn fail(&self, failure: Failure) {
        if !self.has_failed.replace(true) {
            self.failure.set(Some(failure));
        }
    }
}
