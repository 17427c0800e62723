//! Several processes that drive one pool. Each runs its share of a phase's operations, and the
//! parent adds up the results.
//!
//! The program starts itself again with the benchmark's own arguments and a *part*, which adds the
//! settings that the arguments leave open. A worker opens the pool, prints that it is ready, waits
//! for a line on its standard input, and prints its results in one line. It gets the memory nodes'
//! token as the parent did, from a file or the environment.

use crate::bench_target::{BenchTarget, TargetWork};
use crate::driver;
use crate::outcome::Outcome;
use crate::phase::{Part, Phase};
use crate::plan::{Benchmark, Plan};
use crate::progress::Progress;
use crate::report::print_json;
use crate::target::TargetSession;
use crate::ycsb::Workload;
use crate::{BenchError, Setting};
use darter::Counters;
use darter::block_on;
use darter::report::OpCounters;
use rustix::process::{Pid, Signal, kill_process};
use serde::{Deserialize, Serialize};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Interval at which upkeep runs and checks whether the phase should end.
const LOOK: Duration = Duration::from_millis(20);

/// The argument before a worker's part.
pub const WORKER_PART: &str = "--part";

/// A worker's task, beyond the benchmark's arguments.
#[derive(Debug, Serialize, Deserialize)]
struct Task {
    workload: String,
    part: Part,
    threads: usize,
    in_flight: usize,
    loaded: u64,
}

/// A worker's results.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Answer {
    ops: u64,
    seconds: f64,
    not_found: u64,
    /// Latencies in nanoseconds, each with its number of operations.
    latency: Vec<(u64, u64)>,
    /// Counters of each kind: [`OpCounters::to_array`].
    counters: Option<Vec<[u64; OpCounters::COUNT]>>,
}

impl Answer {
    fn of(outcome: &Outcome) -> Self {
        Self {
            ops: outcome.ops,
            seconds: outcome.seconds,
            not_found: outcome.not_found,
            latency: outcome
                .latency
                .iter_recorded()
                .map(|step| (step.value_iterated_to(), step.count_at_value()))
                .collect(),
            counters: outcome
                .counters
                .map(|counters| counters.kinds.iter().map(|kind| kind.to_array()).collect()),
        }
    }

    fn outcome(self, records: u64) -> Outcome {
        let mut outcome = Outcome::new(records);
        for (value, count) in self.latency {
            outcome.latency.saturating_record_n(value, count);
        }
        outcome.counters = self.counters.map(|rows| {
            let mut counters = Counters::default();
            for (kind, row) in counters.kinds.iter_mut().zip(rows) {
                *kind = OpCounters::from_array(row);
            }
            counters
        });
        Outcome { ops: self.ops, seconds: self.seconds, not_found: self.not_found, ..outcome }
    }
}

/// A worker process. It is killed if dropped before it exits.
struct Worker {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Worker {
    fn start(setting: &Setting, task: &Task) -> Result<Self, BenchError> {
        let part = serde_json::to_string(task).map_err(std::io::Error::from)?;
        let mut command = Command::new(&setting.program);
        command.args(&setting.worker).args([WORKER_PART, &part]);
        // A signal from the terminal should reach only the parent, which ends its workers.
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).process_group(0);
        let mut child = command.spawn().map_err(|error| BenchError::Process(error.to_string()))?;
        match (child.stdin.take(), child.stdout.take()) {
            (Some(input), Some(output)) => Ok(Self { child, input, output: BufReader::new(output) }),
            _ => Err(BenchError::Process("no pipes to it".to_owned())),
        }
    }

    /// Returns the next line that the worker prints.
    fn hear(&mut self) -> Result<String, BenchError> {
        let mut line = String::new();
        match self.output.read_line(&mut line) {
            Ok(0) => Err(BenchError::Process("a worker exited early; its messages are above".to_owned())),
            Ok(_) => Ok(line),
            Err(error) => Err(BenchError::Process(error.to_string())),
        }
    }

    /// Waits until the worker has closed its pool and its output. No other process gets its number,
    /// because it is not reaped here.
    fn await_end(&mut self) -> Result<(), BenchError> {
        match std::io::copy(&mut self.output, &mut std::io::sink()) {
            Ok(0) => Ok(()),
            Ok(_) => Err(BenchError::Process("a worker printed more than its results".to_owned())),
            Err(error) => Err(BenchError::Process(error.to_string())),
        }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        // It may have exited already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Runs a phase in `processes` processes and adds up their results. This process runs upkeep during
/// the phase; without it, the memory of replaced records would never become free.
pub(crate) fn run_phase(
    target: &impl BenchTarget,
    setting: &Setting,
    phase: &Phase<'_>,
    processes: usize,
) -> Result<Outcome, BenchError> {
    let task = |process| Task {
        workload: phase.workload.name().to_owned(),
        part: Part { process, processes },
        threads: phase.threads,
        in_flight: phase.in_flight,
        loaded: phase.loaded,
    };
    let workers = (0..processes).map(|process| Worker::start(setting, &task(process)));
    let mut workers = workers.collect::<Result<Vec<_>, _>>()?;
    beside_upkeep(
        (target, phase),
        &workers.iter().map(|worker| Pid::from_child(&worker.child)).collect::<Vec<_>>(),
        || drive(&mut workers, phase),
    )
}

/// Starts the workers' operations and adds up the results.
fn drive(workers: &mut [Worker], phase: &Phase<'_>) -> Result<Outcome, BenchError> {
    for worker in &mut *workers {
        worker.hear()?;
    }
    for worker in &mut *workers {
        writeln!(worker.input, "go").map_err(|error| BenchError::Process(error.to_string()))?;
    }
    let mut all = Outcome::new(phase.loaded);
    for worker in &mut *workers {
        let line = worker.hear()?;
        let answer: Answer =
            serde_json::from_str(&line).map_err(|error| BenchError::Process(error.to_string()))?;
        all.add(&answer.outcome(phase.loaded));
    }
    // A worker killed now would look to the pool like a crashed client.
    workers.iter_mut().try_for_each(Worker::await_end)?;
    Ok(all)
}

/// Does work that waits for processes while a thread runs upkeep. Kills the processes if the phase
/// should end.
fn beside_upkeep<T>(
    (target, phase): (&impl BenchTarget, &Phase<'_>),
    processes: &[Pid],
    work: impl FnOnce() -> Result<T, BenchError>,
) -> Result<T, BenchError> {
    let is_done = AtomicBool::new(false);
    let mut session = target.session()?;
    std::thread::scope(|scope| {
        let upkeep = scope.spawn(|| {
            let mut kept = Ok(());
            while !is_done.load(Ordering::Relaxed) {
                if phase.progress.should_end() {
                    // They have not been reaped yet, so no other process has their numbers.
                    for process in processes {
                        let _ = kill_process(*process, Signal::KILL);
                    }
                    break;
                }
                // Even if upkeep has failed, the end of the phase must reach the processes.
                if kept.is_ok() {
                    kept = block_on(session.maintain());
                }
                std::thread::sleep(LOOK);
            }
            kept
        });
        let outcome = work();
        is_done.store(true, Ordering::Relaxed);
        phase.progress.go_on()?;
        let outcome = outcome?;
        upkeep.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        Ok(outcome)
    })
}

/// Runs a worker. `part` is the parent's argument; `input` and `out` are the pipes to the parent.
///
/// # Errors
/// Fails as [`crate::run`] does, which the parent detects.
pub fn run_worker(
    benchmark: &impl Benchmark,
    setting: &Setting,
    part: &str,
    input: &mut dyn BufRead,
    out: &mut dyn Write,
) -> Result<(), BenchError> {
    let usage = |what: String| BenchError::Usage(format!("{WORKER_PART}: {what}"));
    let task: Task = serde_json::from_str(part).map_err(|error| usage(error.to_string()))?;
    let workload: Workload = task.workload.parse().map_err(usage)?;
    let Part { process, processes } = task.part;
    if process >= processes || task.threads == 0 || task.in_flight == 0 || task.loaded == 0 {
        return Err(usage("not in the form that a parent passes".to_owned()));
    }
    let plan = Plan::new(benchmark, setting, 1)?;
    let progress = Progress::hidden(&setting.stop);
    let phase = plan.phase(workload, (task.threads, task.in_flight), task.loaded, &progress);
    benchmark.with_target(&plan, false, Share { phase: Phase { part: task.part, ..phase }, input, out })
}

/// A worker's share of a phase, and the pipes to its parent.
struct Share<'a> {
    phase: Phase<'a>,
    input: &'a mut dyn BufRead,
    out: &'a mut dyn Write,
}

impl TargetWork for Share<'_> {
    type Output = ();

    fn on<T: BenchTarget>(self, target: &T) -> Result<(), BenchError> {
        writeln!(self.out, "ready")?;
        self.out.flush()?;
        self.input.read_line(&mut String::new())?;
        let outcome = driver::run_phase(target, &self.phase)?;
        print_json(self.out, &Answer::of(&outcome))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_outcome_survives_the_pipe() {
        let mut outcome = Outcome::new(7);
        outcome.ops = 3;
        outcome.seconds = 0.5;
        outcome.latency.record_n(1_234_567, 2).unwrap();
        outcome.latency.record(55).unwrap();
        outcome.counters.as_mut().unwrap().kinds[2].verbs = 9;
        let line = serde_json::to_string(&Answer::of(&outcome)).unwrap();
        let back = serde_json::from_str::<Answer>(&line).unwrap().outcome(7);
        assert_eq!((back.ops, back.records, back.counters), (3, 7, outcome.counters));
        assert_eq!(back.latency, outcome.latency);
        let mut twice = back.clone();
        twice.add(&back);
        assert_eq!((twice.ops, twice.latency.len(), twice.counters.unwrap().total().verbs), (6, 6, 18));
        assert!((twice.seconds - 0.5).abs() < f64::EPSILON, "they ran at the same time");
    }
}
