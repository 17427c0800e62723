//! Connects the simulation whose tasks are the clients with the worlds of the groups: batches that
//! tasks post become frames, and the groups' replies let the tasks continue. Only one party moves
//! at a time, and one seed decides everything.

use super::super::execution::{Process, kill};
use super::super::fault::Fault;
use super::super::outcome::Violation;
use super::super::recorder::Recorder;
use super::super::subject::Subject;
use super::nodes::Nodes;
use darter_sim::groups::{MS, Random};
use darter_sim::{Event, EventKind, Executor, Sim, TaskId, WordOrder};
use std::cell::RefCell;
use std::collections::BTreeMap;

/// Time limit for the clients after faults have ended, and then for the groups to come to rest.
const CALM: u64 = 600_000 * MS;
const REST: u64 = 20_000 * MS;
/// How long a task waits for the clock.
const PAUSE: u64 = 10 * MS;
/// How often to check whether the groups are at rest.
const LOOK: u64 = 100 * MS;

/// A run in progress.
pub(super) struct Driver<'r> {
    pub(super) sim: Sim,
    pub(super) nodes: Nodes,
    pub(super) random: Random,
    pub(super) recorder: &'r RefCell<Recorder>,
    /// Faults of processes that have not struck.
    pub(super) pending: Vec<Fault>,
    /// Faults of processes that have struck.
    pub(super) struck: Vec<Fault>,
    /// When faults end.
    pub(super) until: u64,
    /// How many batches in a thousand the process delays before posting, and the longest delay.
    pub(super) slowness: (u64, u64),
    /// When each task last moved.
    pub(super) moved: BTreeMap<TaskId, u64>,
    /// Dead processes, which the groups have to shut out.
    pub(super) dead: Vec<u32>,
    pub(super) is_calm: bool,
}

impl Driver<'_> {
    /// Performs events until all tasks have ended and the groups are at rest.
    pub(super) fn play<S: Subject>(
        &mut self,
        executor: &mut Executor<'_>,
        processes: &mut [Option<Process<S>>],
    ) -> Result<(), Violation> {
        let mut events = Vec::new();
        let (mut next_look, mut end) = (0, self.until + CALM);
        loop {
            executor.events(&mut events);
            if let Some(event) = self.next_to_move(&events) {
                self.moved.insert(event.task, self.nodes.now());
                executor.perform(event, 0, WordOrder::Ascending);
                self.load();
                continue;
            }
            if events.is_empty() && self.recorder.borrow_mut().end_rests() {
                continue;
            }
            let has_ended = executor.all_ended();
            if !has_ended && !self.is_calm {
                self.strike(executor, processes);
            }
            if !self.is_calm && (has_ended || self.nodes.now() >= self.until) {
                self.calm();
            }
            if has_ended {
                end = end.min(self.nodes.now() + REST);
            }
            if self.is_calm && has_ended && self.nodes.now() >= next_look {
                next_look = self.nodes.now() + LOOK;
                if self.nodes.unrest().is_none() {
                    return self.nodes.log_fault().map_or(Ok(()), |what| Err(Violation::new("log", what)));
                }
            }
            if self.nodes.now() > end || !self.nodes.step() {
                let what = self.nodes.unrest().unwrap_or_else(|| "a client has not ended".to_owned());
                return Err(Violation::new("unrest", what));
            }
            self.unload(executor, processes);
        }
    }

    /// Returns the next event of a task whose batch has a reply, or that has waited for the clock.
    fn next_to_move(&self, events: &[Event]) -> Option<Event> {
        let may = |event: &&Event| match event.kind {
            EventKind::Complete => true,
            EventKind::Run => {
                self.moved.get(&event.task).is_none_or(|moved| self.nodes.now() >= moved + PAUSE)
            }
            EventKind::Execute { .. } | EventKind::Reach { .. } => false,
        };
        events.iter().find(may).copied()
    }

    /// Sends the batches that tasks have posted, some of them later.
    fn load(&mut self) {
        for batch in self.sim.diverted() {
            let (permille, most) = self.slowness;
            let is_late = !self.is_calm && self.random.happens(permille);
            let pause = if is_late { self.random.below(most) } else { 0 };
            self.nodes.post(batch, pause, &mut self.random);
        }
    }

    /// Delivers the groups' replies to the tasks, and the tasks' requests to the groups.
    fn unload<S: Subject>(&mut self, executor: &mut Executor<'_>, processes: &mut [Option<Process<S>>]) {
        for (batch, answer) in self.nodes.answered() {
            self.sim.deliver(batch, answer);
        }
        for process in self.nodes.newly_shut_out() {
            self.sim.process(process).shut_out();
            if self.dead.contains(&process) {
                continue;
            }
            // It is notified with its next operation, and can do nothing after that.
            self.dead.push(process);
            self.drain(executor);
            kill(executor, processes, process);
        }
        for process in self.sim.suspects() {
            self.nodes.shut_out(process, &mut self.random);
        }
    }

    /// Continues tasks whose batches have failed.
    fn drain(&mut self, executor: &mut Executor<'_>) {
        let mut events = Vec::new();
        loop {
            executor.events(&mut events);
            let Some(event) = events.iter().find(|event| event.kind == EventKind::Complete) else { return };
            executor.perform(*event, 0, WordOrder::Ascending);
            self.load();
        }
    }

    /// Applies the faults of processes that are due.
    fn strike<S: Subject>(&mut self, executor: &mut Executor<'_>, processes: &mut [Option<Process<S>>]) {
        let now = self.nodes.now() / MS;
        let (due, rest): (Vec<_>, _) = self.pending.drain(..).partition(|fault| fault.parts().2 <= now);
        self.pending = rest;
        for fault in due {
            self.struck.push(fault);
            match fault {
                Fault::Kill(process, _) => {
                    let all: Vec<u32> = self.recorder.borrow().processes_of(process).collect();
                    kill(executor, processes, process);
                    for process in all {
                        self.nodes.leave(process, &mut self.random);
                        self.dead.push(process);
                    }
                }
                Fault::Pause(process, _) => self.nodes.shut_out(process, &mut self.random),
                // The other faults strike by the clients' counts.
                _ => {}
            }
        }
    }

    /// Ends all faults and has the groups shut out dead processes.
    fn calm(&mut self) {
        self.is_calm = true;
        self.nodes.calm();
        for process in self.dead.clone() {
            self.nodes.shut_out(process, &mut self.random);
        }
    }
}
