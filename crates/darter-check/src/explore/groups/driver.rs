//! Between the simulation whose tasks are the clients and the world of the group: what tasks post
//! becomes frames, and what the group answers lets them go on. Nobody moves at the same time as
//! anybody else, and one seed decides everything.

use super::super::clients::Recorder;
use super::super::execution::{Process, kill};
use super::super::outcome::Violation;
use super::super::subject::Subject;
use super::outcomes::Outcomes;
use darter_fabric::group::bed::{MS, Payload, World};
use darter_fabric::sim::{Event, EventKind, Executor, Sim, TaskId, WordOrder};
use std::cell::RefCell;
use std::collections::BTreeMap;

/// How long things go wrong at most, how long clients may take then, and the group without them.
const STORM: u64 = 20_000 * MS;
const CALM: u64 = 600_000 * MS;
const REST: u64 = 20_000 * MS;
/// How long a task that waits for the clock waits.
const PAUSE: u64 = 10 * MS;
/// How often it is looked whether the group rests.
const LOOK: u64 = 100 * MS;

/// What happens to one of the clients' processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Blow {
    /// It dies.
    Death,
    /// It is shut out while it lives.
    ShutOut,
}

/// A run under way.
pub(super) struct Driver<'r> {
    pub(super) sim: Sim,
    pub(super) world: World<Outcomes>,
    pub(super) recorder: &'r RefCell<Recorder>,
    /// The clients of the group that processes are.
    pub(super) sessions: BTreeMap<u32, usize>,
    /// What strikes which process when.
    pub(super) blow: Option<(Blow, u32, u64)>,
    /// Of how many batches in a thousand the process waits before it posts them, and for how long
    /// at most.
    pub(super) slowness: (u64, u64),
    /// When each task has moved last.
    pub(super) moved: BTreeMap<TaskId, u64>,
    /// Processes that are no more, which the group has to shut out.
    pub(super) dead: Vec<u32>,
    pub(super) is_calm: bool,
}

impl Driver<'_> {
    /// Lets everything happen until all tasks have ended and the group rests.
    pub(super) fn play<S: Subject>(
        &mut self,
        executor: &mut Executor<'_>,
        processes: &mut [Option<Process<S>>],
    ) -> Result<(), Violation> {
        let mut events = Vec::new();
        let (mut next_look, mut end) = (0, STORM + CALM);
        loop {
            executor.events(&mut events);
            if let Some(event) = self.next_to_move(&events) {
                self.moved.insert(event.task, self.world.now());
                executor.perform(event, 0, WordOrder::Ascending);
                self.load();
                continue;
            }
            if events.is_empty() && self.recorder.borrow_mut().end_rests() {
                continue;
            }
            let has_ended = executor.all_ended();
            self.strike(executor, processes, has_ended);
            if !self.is_calm && (has_ended || self.world.now() > STORM) {
                self.calm();
            }
            if has_ended {
                end = end.min(self.world.now() + REST);
            }
            if self.is_calm && has_ended && self.world.now() >= next_look {
                next_look = self.world.now() + LOOK;
                if self.unrest().is_none() {
                    return self.world.log_fault().map_or(Ok(()), |what| Err(Violation::new("log", what)));
                }
            }
            if self.world.now() > end || !self.world.step() {
                let what = self.unrest().unwrap_or_else(|| "a client has not ended".to_owned());
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
                self.moved.get(&event.task).is_none_or(|moved| self.world.now() >= moved + PAUSE)
            }
            EventKind::Execute { .. } | EventKind::Reach { .. } => false,
        };
        events.iter().find(may).copied()
    }

    /// Sends what tasks have posted, some of it later.
    fn load(&mut self) {
        for batch in self.sim.diverted() {
            let client = self.client_of(batch.process);
            let (permille, most) = self.slowness;
            let is_late = !self.is_calm && self.world.random.happens(permille);
            let pause = if is_late { self.world.random.below(most) } else { 0 };
            self.world.post_after(pause, client, Payload::new(batch.id, &batch.verbs, &batch.data));
        }
    }

    /// The client that a process is: one that posts for the first time joins.
    fn client_of(&mut self, process: u32) -> usize {
        if let Some(&client) = self.sessions.get(&process) {
            return client;
        }
        let client = self.world.join(u64::from(process) + 1);
        let pause = self.world.random.below(100 * MS);
        self.world.watch(client, pause);
        self.sessions.insert(process, client);
        client
    }

    /// Passes on what the group has said, and asks it for what tasks want of it.
    fn unload<S: Subject>(&mut self, executor: &mut Executor<'_>, processes: &mut [Option<Process<S>>]) {
        for (batch, answer) in std::mem::take(&mut self.world.users.answers) {
            self.sim.deliver(batch, answer);
        }
        for client in std::mem::take(&mut self.world.users.news) {
            let found = self.sessions.iter().find(|(_, known)| **known == client);
            let Some(&process) = found.map(|(process, _)| process) else { continue };
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
            let client = self.client_of(process);
            self.world.shut_out_after(0, client);
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

    /// Strikes a process when its time has come.
    fn strike<S: Subject>(
        &mut self,
        executor: &mut Executor<'_>,
        processes: &mut [Option<Process<S>>],
        is_over: bool,
    ) {
        let Some((blow, process, when)) = self.blow else { return };
        if self.world.now() < when || is_over || self.is_calm {
            return;
        }
        self.blow = None;
        let client = self.client_of(process);
        match blow {
            Blow::Death => {
                let all: Vec<u32> = self.recorder.borrow().processes_of(process).collect();
                kill(executor, processes, process);
                for process in all {
                    let client = self.client_of(process);
                    self.world.leave(client);
                    self.dead.push(process);
                }
                *self.world.counts.entry("dead clients").or_default() += 1;
            }
            Blow::ShutOut => {
                self.world.shut_out_after(0, client);
                *self.world.counts.entry("clients shut out alive").or_default() += 1;
            }
        }
    }

    /// Nothing goes wrong any more, and whoever is dead is shut out.
    fn calm(&mut self) {
        self.is_calm = true;
        self.world.calm();
        for process in self.dead.clone() {
            let client = self.client_of(process);
            if !self.world.users.fenced.contains(&client) {
                self.world.shut_out_after(0, client);
            }
        }
    }

    fn unrest(&self) -> Option<String> {
        let fencer = self.world.has_fencer().then(|| "somebody is not shut out yet".to_owned());
        fencer.or_else(|| self.world.unrest())
    }
}
