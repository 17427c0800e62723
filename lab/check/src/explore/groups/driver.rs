//! Between the simulation whose tasks are the clients and the worlds of the groups: what tasks post
//! becomes frames, and what the groups answer lets them go on. Nobody moves at the same time as
//! anybody else, and one seed decides everything.

use super::super::clients::Recorder;
use super::super::execution::{Process, kill};
use super::super::fault::Fault;
use super::super::outcome::Violation;
use super::super::subject::Subject;
use super::nodes::Nodes;
use darter_sim::groups::{MS, Random};
use darter_sim::{Event, EventKind, Executor, Sim, TaskId, WordOrder};
use std::cell::RefCell;
use std::collections::BTreeMap;

/// How long clients may take when nothing goes wrong any more, and the groups without them.
const CALM: u64 = 600_000 * MS;
const REST: u64 = 20_000 * MS;
/// How long a task that waits for the clock waits.
const PAUSE: u64 = 10 * MS;
/// How often it is looked whether the groups rest.
const LOOK: u64 = 100 * MS;

/// A run under way.
pub(super) struct Driver<'r> {
    pub(super) sim: Sim,
    pub(super) nodes: Nodes,
    pub(super) random: Random,
    pub(super) recorder: &'r RefCell<Recorder>,
    /// Faults of processes that have not struck.
    pub(super) pending: Vec<Fault>,
    /// Those that have.
    pub(super) struck: Vec<Fault>,
    /// When things stop going wrong.
    pub(super) until: u64,
    /// Of how many batches in a thousand the process waits before it posts them, and for how long
    /// at most.
    pub(super) slowness: (u64, u64),
    /// When each task has moved last.
    pub(super) moved: BTreeMap<TaskId, u64>,
    /// Processes that are no more, which the groups have to shut out.
    pub(super) dead: Vec<u32>,
    pub(super) is_calm: bool,
}

impl Driver<'_> {
    /// Lets everything happen until all tasks have ended and the groups rest.
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

    /// Who goes on now: a task whose batch is answered, or that has waited for the clock.
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

    /// Sends what tasks have posted, some of it later.
    fn load(&mut self) {
        for batch in self.sim.diverted() {
            let (permille, most) = self.slowness;
            let is_late = !self.is_calm && self.random.happens(permille);
            let pause = if is_late { self.random.below(most) } else { 0 };
            self.nodes.post(batch, pause, &mut self.random);
        }
    }

    /// Passes on what the groups have said, and asks them for what tasks want of them.
    fn unload<S: Subject>(&mut self, executor: &mut Executor<'_>, processes: &mut [Option<Process<S>>]) {
        for (batch, answer) in self.nodes.answered() {
            self.sim.deliver(batch, answer);
        }
        for process in self.nodes.newly_shut_out() {
            self.sim.process(process).shut_out();
            if self.dead.contains(&process) {
                continue;
            }
            // It learns of it with what it does next, and can do nothing any more.
            self.dead.push(process);
            self.drain(executor);
            kill(executor, processes, process);
        }
        for process in self.sim.suspects() {
            self.nodes.shut_out(process, &mut self.random);
        }
    }

    /// Lets tasks go on whose batches have failed.
    fn drain(&mut self, executor: &mut Executor<'_>) {
        let mut events = Vec::new();
        loop {
            executor.events(&mut events);
            let Some(event) = events.iter().find(|event| event.kind == EventKind::Complete) else { return };
            executor.perform(*event, 0, WordOrder::Ascending);
            self.load();
        }
    }

    /// Strikes processes whose time has come.
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
                // The others strike by the counts of the clients.
                _ => {}
            }
        }
    }

    /// Nothing goes wrong any more, and whoever is dead is shut out.
    fn calm(&mut self) {
        self.is_calm = true;
        self.nodes.calm();
        for process in self.dead.clone() {
            self.nodes.shut_out(process, &mut self.random);
        }
    }
}
