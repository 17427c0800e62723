//! Tasks and the possible next events. Each call is a further task, which belongs to its server's
//! process. The executor offers events and performs the one that the scheduler chose.

use super::world::{Life, Posted, World};
use super::{Sim, WordOrder};
use darter_fabric::VerbKind;
use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};

/// Identifies a task of an [`Executor`]. No two tasks of a simulation have the same id at the same
/// time.
pub type TaskId = u32;

/// The process of tasks that belong to no process.
const NOBODY: u32 = u32::MAX;

/// A possible next event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// The task that the event belongs to: the task that posted the verb, dead or alive, or the
    /// medium's.
    pub task: TaskId,
    /// Kind of the event.
    pub kind: EventKind,
}

/// Kind of an [`Event`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventKind {
    /// The task begins, or continues after waiting for the clock or for a task that woke it.
    Run,
    /// The task's batch completes or the reply to its call arrives, and the task runs until it
    /// posts the next.
    Complete,
    /// A verb executes at its node, completely or in part.
    Execute {
        /// The batch: ids count up from 1 in a run.
        batch: u64,
        /// The node.
        node: u8,
        /// The index of the verb in the batch.
        verb: u32,
        /// The words that it accesses.
        access: Access,
    },
    /// A store reaches a node's medium, completely or in part.
    Reach {
        /// The node.
        node: u8,
        /// Its first word's index in the region.
        word: u32,
        /// Number of pieces in which it may arrive: the stores of a log, or adjacent lines.
        pieces: u32,
    },
}

/// The words that a verb has yet to access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access {
    /// The first word's index in the region.
    pub start: u64,
    /// Number of words; for an atomic that executes in halves, number of halves.
    pub words: u32,
    /// Whether it can change them.
    pub writes: bool,
    /// Whether it can execute in pieces: READs and WRITEs of several words, and atomics if a
    /// [`Relaxations`](super::Relaxations) splits them into halves.
    pub is_long: bool,
    /// Whether it is the first of its batch, or the last that its batch waits for.
    pub is_border: bool,
}

/// Whether a task must be polled although none of its batches completed: it has not begun, waits
/// for the clock, or was woken.
#[derive(Debug)]
struct Ready(AtomicBool);

impl Ready {
    fn set(&self, ready: bool) {
        self.0.store(ready, Ordering::Relaxed);
    }

    fn get(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

impl Wake for Ready {
    fn wake(self: Arc<Self>) {
        self.set(true);
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.set(true);
    }
}

impl Sim {
    /// Runs a future to its end without any other task; its verbs execute as they are posted.
    /// Returns `None` if it waits for another task, or has not ended after `batches_max` batches
    /// and pauses; then it is dropped.
    pub fn run_alone<T>(&self, batches_max: u64, future: impl Future<Output = T>) -> Option<T> {
        let mut future = pin!(future);
        let ready = Arc::new(Ready(AtomicBool::new(true)));
        let waker = Waker::from(Arc::clone(&ready));
        let was_direct = {
            let mut world = self.world();
            world.direct_left = batches_max;
            std::mem::replace(&mut world.direct, true)
        };
        let mut output = None;
        while output.is_none() && ready.get() {
            ready.set(false);
            if let Poll::Ready(done) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
                output = Some(done);
            }
        }
        let mut world = self.world();
        (world.direct, world.direct_left) = (was_direct, u64::MAX);
        output
    }
}

struct Task<'f> {
    process: u32,
    /// `None` when it has ended or died.
    future: Option<Pin<Box<dyn Future<Output = ()> + 'f>>>,
    ready: Arc<Ready>,
    waker: Waker,
}

/// Runs tasks over a [`Sim`], one event at a time.
///
/// While an executor runs, executors created before it must not: it is dropped before they
/// continue.
pub struct Executor<'f> {
    sim: Sim,
    /// The id of its first task.
    first: TaskId,
    tasks: Vec<Task<'f>>,
    /// The task to which events of the medium belong.
    medium: Option<TaskId>,
}

impl std::fmt::Debug for Executor<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Executor").field("tasks", &self.tasks.len()).finish_non_exhaustive()
    }
}

/// Adds the stores that may reach the medium next.
fn reaching(world: &World, task: TaskId, events: &mut Vec<Event>) {
    for (node, memory) in (0..).zip(&world.nodes) {
        if let Some(volatile) = memory.lacks() {
            volatile.offer(|word, pieces| {
                events.push(Event { task, kind: EventKind::Reach { node, word, pieces } });
            });
        }
    }
}

impl<'f> Executor<'f> {
    /// Creates an executor without tasks. From now on verbs of the simulation wait for
    /// [`Executor::perform`].
    pub fn new(sim: &Sim) -> Self {
        sim.schedule(true);
        let first = sim.world().tasks;
        Self { sim: sim.clone(), first, tasks: Vec::new(), medium: None }
    }

    /// Adds a task of a process. The task does nothing until its first event.
    pub fn spawn(&mut self, process: u32, future: impl Future<Output = ()> + 'f) -> TaskId {
        let ready = Arc::new(Ready(AtomicBool::new(true)));
        let waker = Waker::from(Arc::clone(&ready));
        self.tasks.push(Task { process, future: Some(Box::pin(future)), ready, waker });
        let after = self.first + self.tasks.len() as TaskId;
        self.sim.world().tasks = after;
        after - 1
    }

    /// Returns the index of a task.
    fn place(&self, id: TaskId) -> usize {
        (id - self.first) as usize
    }

    fn task(&self, id: TaskId) -> &Task<'f> {
        &self.tasks[self.place(id)]
    }

    /// Adds the task to which events of the medium belong ([`super::Medium`]). It has no other
    /// events, and counts as ended.
    pub fn spawn_medium(&mut self) -> TaskId {
        let id = self.spawn(NOBODY, std::future::ready(()));
        let at = self.place(id);
        self.tasks[at].future = None;
        self.medium = Some(id);
        id
    }

    /// Lists the possible next events in a fixed order: for each task, first the event that lets it
    /// run, then its verbs.
    pub fn events(&self, events: &mut Vec<Event>) {
        events.clear();
        let world = self.sim.world();
        for (id, task) in (self.first..).zip(&self.tasks) {
            if self.medium == Some(id) {
                reaching(&world, id, events);
                continue;
            }
            let can_run = task.future.is_some() && world.life(task.process) != Life::Paused;
            if can_run && task.ready.get() {
                events.push(Event { task: id, kind: EventKind::Run });
            }
            if can_run && world.calls.is_answered(id) {
                events.push(Event { task: id, kind: EventKind::Complete });
            }
            for posted in world.posted.iter().filter(|posted| posted.task == id) {
                if can_run && posted.may_complete() {
                    events.push(Event { task: id, kind: EventKind::Complete });
                    continue;
                }
                for lane in posted.lanes.iter().filter(|lane| lane.at < posted.batch.len()) {
                    for at in posted.next(lane, world.relaxations.order) {
                        let verb = posted.batch.verbs()[at];
                        if lane.words_done == 0
                            && (world.awaits_second_half(posted.process, &verb)
                                || posted.awaits_medium(world.medium, lane, &verb))
                        {
                            continue;
                        }
                        let pieces = world.relaxations.pieces(&verb);
                        let done = if verb.is_long() && lane.order == WordOrder::Ascending {
                            lane.words_done
                        } else {
                            0
                        };
                        let is_first = at == 0 && lane.words_done == 0;
                        let access = Access {
                            start: verb.addr.offset() / 8 + u64::from(done),
                            words: pieces - lane.words_done,
                            is_border: posted.is_last(lane) || is_first,
                            writes: verb.kind != VerbKind::Read,
                            is_long: pieces > 1,
                        };
                        let kind =
                            EventKind::Execute { batch: posted.id, node: lane.node, verb: at as u32, access };
                        events.push(Event { task: id, kind });
                    }
                }
            }
        }
    }

    /// Performs an event that [`Executor::events`] has just offered. At most `words` words of a
    /// long verb execute; its first piece fixes the order. Nothing happens if the verb has executed
    /// since.
    pub fn perform(&mut self, event: Event, words: u32, order: WordOrder) {
        match event.kind {
            EventKind::Run => self.poll(event.task),
            EventKind::Complete => {
                let mut world = self.sim.world();
                let waiting = |posted: &&mut Posted| posted.task == event.task && posted.may_complete();
                if let Some(posted) = world.posted.iter_mut().find(waiting) {
                    posted.completed = true;
                } else {
                    world.calls.arrive(event.task);
                }
                drop(world);
                self.poll(event.task);
            }
            EventKind::Execute { batch, node, verb, .. } => {
                let mut world = self.sim.world();
                let at = world.posted.iter().position(|posted| posted.id == batch);
                if let Some(at) = at
                    && let Some(lane) = world.posted[at].lanes.iter().position(|lane| lane.node == node)
                    && !world.posted[at].lanes[lane].has_executed(verb as usize)
                {
                    world.execute(at, lane, verb as usize, words, order);
                }
            }
            EventKind::Reach { node, word, pieces } => {
                let is_descending = order == WordOrder::Descending;
                self.sim.world().write_back(node, word, (words, pieces), is_descending);
            }
        }
    }

    fn poll(&mut self, id: TaskId) {
        let at = self.place(id);
        let task = &mut self.tasks[at];
        let Some(future) = &mut task.future else { return };
        {
            let mut world = self.sim.world();
            world.current = id;
            world.slept = false;
        }
        task.ready.set(false);
        match future.as_mut().poll(&mut Context::from_waker(&task.waker)) {
            Poll::Ready(()) => task.future = None,
            Poll::Pending if self.sim.world().slept => task.ready.set(true),
            Poll::Pending => {}
        }
        // The calls that it has made begin as tasks of their servers.
        let arriving = self.sim.world().calls.take_arriving();
        for (call, server) in arriving {
            self.spawn(server, self.sim.clone().run_call(call));
        }
        self.sim.drop_given_up();
    }

    /// Returns the process of a task: a client's process, or the process of a server that runs a
    /// procedure.
    pub fn process_of(&self, task: TaskId) -> u32 {
        self.task(task).process
    }

    /// Returns whether a task has ended or died.
    pub fn has_ended(&self, task: TaskId) -> bool {
        self.task(task).future.is_none()
    }

    /// Returns whether all tasks of processes that are not paused have ended.
    pub fn all_ended(&self) -> bool {
        let world = self.sim.world();
        self.tasks.iter().all(|task| task.future.is_none() || world.life(task.process) == Life::Paused)
    }

    /// Kills a process: its tasks are dropped. Verbs that they posted may still take effect until
    /// the process is fenced.
    pub fn kill(&mut self, process: u32) {
        self.sim.process(process).die();
        // The futures' destructors must already see the process as dead.
        for task in self.tasks.iter_mut().filter(|task| task.process == process) {
            task.future = None;
        }
    }
}

impl Drop for Executor<'_> {
    fn drop(&mut self) {
        self.tasks.clear();
        self.sim.world().tasks = self.first;
    }
}
