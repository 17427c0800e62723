//! The worker processes, which are started, killed, stopped, continued, and always ended with the
//! run.

use super::worker::{LIVES_MAX, WorkerConfig};
use super::{StressError, thread_stop};
use rustix::process::{Pid, Signal, kill_process};
use std::fs::File;
use std::io;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// Time in which a worker must end after a request: its operations in progress, and closing the
/// pool.
const END_PATIENCE: Duration = Duration::from_secs(30);
/// Time between two checks of processes that should end.
const LOOK: Duration = Duration::from_millis(5);

/// Returns the command that starts a worker, without its standard streams.
pub type LaunchWorker<'l> = dyn Fn(&WorkerConfig) -> io::Result<Command> + 'l;

/// A running worker.
struct Worker {
    child: Child,
    config: WorkerConfig,
    /// When it is continued, if it is stopped.
    stopped_until: Option<Instant>,
}

impl Worker {
    fn signal(&self, signal: Signal) -> Result<(), StressError> {
        // The process number is not reused before the child is waited for.
        kill_process(Pid::from_child(&self.child), signal)
            .map_err(|error| StressError::system("signal a worker", error.into()))
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        // Usually it has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A worker that did not end properly.
pub(super) struct Failed {
    pub(super) config: WorkerConfig,
    /// Its exit status, or `None` if it did not end.
    pub(super) status: Option<ExitStatus>,
}

/// All workers of a round.
#[derive(Default)]
pub(super) struct Fleet {
    workers: Vec<Worker>,
}

impl Fleet {
    pub(super) fn len(&self) -> usize {
        self.workers.len()
    }

    /// Returns the number of stopped workers.
    pub(super) fn stopped(&self) -> usize {
        self.workers.iter().filter(|worker| worker.stopped_until.is_some()).count()
    }

    /// Starts a worker with its command.
    pub(super) fn start(
        &mut self,
        config: WorkerConfig,
        command: io::Result<Command>,
    ) -> Result<(), StressError> {
        if config.life >= LIVES_MAX {
            return Err(StressError::Usage(format!(
                "more than {LIVES_MAX} workers were started; kill fewer or run for less time"
            )));
        }
        let complaints = config.complaints();
        let complaints = File::create(&complaints).map_err(|source| StressError::File {
            path: complaints,
            action: "create it",
            source,
        })?;
        let child = command
            .and_then(|mut command| {
                command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(complaints).spawn()
            })
            .map_err(|error| StressError::system("start a worker", error))?;
        self.workers.push(Worker { child, config, stopped_until: None });
        Ok(())
    }

    /// Kills the worker at an index with SIGKILL; returns its configuration.
    pub(super) fn kill(&mut self, index: usize) -> Result<WorkerConfig, StressError> {
        let mut worker = self.workers.swap_remove(index);
        let killed = worker.child.kill().and_then(|()| worker.child.wait());
        killed.map_err(|error| StressError::system("kill a worker", error))?;
        Ok(worker.config.clone())
    }

    /// Stops a worker for a while, unless it is stopped; returns whether it was running.
    pub(super) fn stop(&mut self, index: usize, until: Instant) -> Result<bool, StressError> {
        let worker = &mut self.workers[index];
        if worker.stopped_until.is_some() {
            return Ok(false);
        }
        worker.signal(Signal::STOP)?;
        worker.stopped_until = Some(until);
        Ok(true)
    }

    /// Stops one thread of the worker at an index, chosen by `choose` from the number of threads;
    /// returns whether there is one.
    pub(super) fn stop_thread(
        &self,
        index: usize,
        choose: impl FnOnce(u64) -> u64,
        time: Duration,
    ) -> Result<bool, StressError> {
        // The process number is not reused before the child is waited for.
        let process = self.workers[index].child.id();
        let threads = thread_stop::threads(process);
        let chosen = threads.get(choose(threads.len() as u64) as usize);
        chosen.map_or(Ok(false), |&thread| thread_stop::stop(process, thread, time))
    }

    /// Continues the workers that are due.
    pub(super) fn wake(&mut self, now: Instant) -> Result<(), StressError> {
        for worker in &mut self.workers {
            if worker.stopped_until.is_some_and(|until| until <= now) {
                worker.signal(Signal::CONT)?;
                worker.stopped_until = None;
            }
        }
        Ok(())
    }

    /// Returns when the next stopped worker is continued.
    pub(super) fn next_wake(&self) -> Option<Instant> {
        self.workers.iter().filter_map(|worker| worker.stopped_until).min()
    }

    /// Removes and returns the workers that have ended by themselves.
    pub(super) fn ended(&mut self) -> Result<Vec<Failed>, StressError> {
        let mut ended = Vec::new();
        let mut index = 0;
        while let Some(worker) = self.workers.get_mut(index) {
            let status = worker.child.try_wait();
            let status = status.map_err(|error| StressError::system("get the status of a worker", error))?;
            if status.is_some() {
                ended.push(Failed { config: self.workers.swap_remove(index).config.clone(), status });
            } else {
                index += 1;
            }
        }
        Ok(ended)
    }

    /// Ends all workers, and returns those that did not end properly.
    pub(super) fn end(mut self) -> Result<Vec<Failed>, StressError> {
        for worker in &mut self.workers {
            drop(worker.child.stdin.take());
            if worker.stopped_until.take().is_some() {
                worker.signal(Signal::CONT)?;
            }
        }
        let deadline = Instant::now() + END_PATIENCE;
        let mut failed = Vec::new();
        while !self.workers.is_empty() && Instant::now() < deadline {
            let ended = self.ended()?;
            failed.extend(
                ended.into_iter().filter(|ended| ended.status.is_none_or(|status| !status.success())),
            );
            std::thread::sleep(LOOK);
        }
        for worker in &self.workers {
            failed.push(Failed { config: worker.config.clone(), status: None });
        }
        Ok(failed)
    }
}
