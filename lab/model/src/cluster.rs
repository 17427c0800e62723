//! Runs client tasks on the threads of a modelled cluster, in the order of virtual time.
//!
//! A task runs at one instant of the host and of its thread's clock: its thread is busy for the
//! cost of switching to the task, its operations and its posts, while other tasks of the thread
//! wait. A task is run when a batch it posted is complete, when its pause is over, and when its
//! waker was woken, by another task or by itself: then it costs the thread `wake-ns`, so that a
//! spin cannot stop the clock.

use super::call_flight::Request;
use super::fabric::Model;
use super::nic::{PS, Ps};
use super::report::Report;
use super::spec::Seat;
use super::world::{Cost, Happening};
use parking_lot::Mutex;
use std::cell::RefCell;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Wake, Waker};

/// No event is left, and tasks have not ended: they wait for events that never happen.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{waiting} of {tasks} tasks, number {first} first, wait for events that never happen, {at_ns} ns into the model; \
     one that holds a lock has ended, or a waker was lost"
)]
pub struct Stuck {
    /// Tasks that have not ended.
    pub waiting: usize,
    /// Number of all tasks.
    pub tasks: usize,
    /// The first of them that has not ended.
    pub first: usize,
    /// When the last event happened, in nanoseconds.
    pub at_ns: u64,
}

/// The numbers of tasks that were woken.
type Woken = Arc<Mutex<Vec<u32>>>;

/// Wakes one task.
struct TaskWaker {
    task: u32,
    woken: Woken,
    /// Whether it already is in the list.
    is_listed: AtomicBool,
}

impl Wake for TaskWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if !self.is_listed.swap(true, Ordering::AcqRel) {
            self.woken.lock().push(self.task);
        }
    }
}

struct Task<'f> {
    thread: usize,
    /// `None` after it has ended.
    future: Option<Pin<Box<dyn Future<Output = ()> + 'f>>>,
    handle: Arc<TaskWaker>,
    waker: Waker,
}

/// Client tasks on the threads of a [`Model`], run by the calling thread alone.
pub struct Cluster<'f> {
    model: Model,
    tasks: Vec<Task<'f>>,
    /// The model's number of the first task.
    first: u32,
    woken: Woken,
}

impl std::fmt::Debug for Cluster<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Cluster").field("tasks", &self.tasks.len()).finish_non_exhaustive()
    }
}

/// Marks the running task until dropped, also by a panic.
struct Running<'m>(&'m Model);

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.0.world().running = None;
    }
}

impl<'f> Cluster<'f> {
    /// A cluster without tasks. A model has one cluster at a time.
    pub fn new(model: &Model) -> Self {
        let first = model.world().tasks;
        Self { model: model.clone(), tasks: Vec::new(), first, woken: Woken::default() }
    }

    /// Adds a task of a thread ([`super::Seat::thread`], which must exist); it begins when the
    /// cluster runs.
    pub fn spawn(&mut self, thread: usize, future: impl Future<Output = ()> + 'f) {
        let mut world = self.model.world();
        assert!(thread < world.threads.len(), "thread {thread} does not exist");
        let task = self.first + self.tasks.len() as u32;
        let handle =
            Arc::new(TaskWaker { task, woken: Arc::clone(&self.woken), is_listed: AtomicBool::new(false) });
        let waker = Waker::from(Arc::clone(&handle));
        self.tasks.push(Task { thread, future: Some(Box::pin(future)), handle, waker });
        world.tasks = task + 1;
        world.alive += 1;
        let now = world.clock;
        world.push(now, Happening::Run { task, cost: Cost::Nothing });
    }

    /// Runs a client on each of the cluster's seats, from a new measurement to the end of all;
    /// returns the utilization of all resources and the clients' outputs, in the order of
    /// [`super::ModelSpec::seats`].
    ///
    /// # Errors
    /// Fails if clients wait and no event is left.
    pub fn drive<T: 'f, C: Future<Output = T> + 'f>(
        model: &Model,
        mut client: impl FnMut(Seat) -> C,
    ) -> Result<(Report, Vec<T>), Stuck> {
        let outputs = Rc::new(RefCell::new(Vec::new()));
        let mut cluster = Self::new(model);
        for seat in model.spec().seats() {
            let (client, outputs) = (client(seat), Rc::clone(&outputs));
            cluster.spawn(seat.thread, async move {
                let output = client.await;
                outputs.borrow_mut().push((seat.task, output));
            });
        }
        model.measure();
        cluster.run()?;
        drop(cluster);
        let mut outputs = outputs.take();
        outputs.sort_by_key(|&(task, _)| task);
        Ok((model.report(), outputs.into_iter().map(|(_, output)| output).collect()))
    }

    /// Runs until all tasks have ended and all verbs have executed.
    ///
    /// # Errors
    /// Fails if tasks wait and no event is left.
    pub fn run(&mut self) -> Result<(), Stuck> {
        self.run_to(Ps::MAX).map(drop)
    }

    /// Runs until all tasks have ended, or up to a moment of virtual time; returns whether they
    /// have ended. The others continue in the next run; dropping the cluster drops them.
    ///
    /// # Errors
    /// Fails if tasks wait and no event is left.
    pub fn run_until(&mut self, ns: u64) -> Result<bool, Stuck> {
        self.run_to(ns.saturating_mul(PS))
    }

    fn run_to(&mut self, until: Ps) -> Result<bool, Stuck> {
        let model = self.model.clone();
        let now = model.world().clock;
        self.heed_wakes(now);
        loop {
            let mut world = model.world();
            let Some(happening) = world.next(until) else {
                let has_ended = world.alive == 0;
                if world.is_idle() && !has_ended {
                    let at_ns = world.clock / PS;
                    drop(world);
                    return Err(self.stuck(at_ns));
                }
                return Ok(has_ended);
            };
            match happening {
                Happening::Arrive { flight, verb } => world.arrive(flight, verb),
                Happening::Execute { flight, verb } => world.execute(flight, verb),
                Happening::Return { flight, verb } => world.answer(flight, verb),
                Happening::CallArrive { call } => world.call_arrives(call),
                Happening::CallReturn { call } => world.call_returns(call),
                Happening::CallRun { call } => {
                    let request = world.take_request(call);
                    drop(world);
                    let Some(outcome) = request.map(Request::run) else { continue };
                    model.world().call_ran(call, outcome);
                }
                Happening::Run { task, cost } => {
                    let number = task.wrapping_sub(self.first) as usize;
                    let Some(Task { thread, future: Some(_), .. }) = self.tasks.get(number) else { continue };
                    let (thread, now) = (*thread, world.clock);
                    let free_at = world.threads[thread].free_at;
                    if free_at > now {
                        // The thread is busy with another task. Waiting tasks keep their order.
                        world.push(free_at, happening);
                        continue;
                    }
                    world.threads[thread].free_at = now;
                    world.running = Some((task, thread));
                    let time = match cost {
                        Cost::Nothing => 0,
                        Cost::Poll => world.prices.poll,
                        Cost::Wake => world.prices.wake,
                    };
                    world.work(time);
                    drop(world);
                    self.poll(number);
                }
            }
        }
    }

    fn poll(&mut self, number: usize) {
        let running = Running(&self.model);
        let task = &mut self.tasks[number];
        let Some(future) = &mut task.future else { return };
        let has_ended = future.as_mut().poll(&mut Context::from_waker(&task.waker)).is_ready();
        if has_ended {
            // Its destructors still run as the task.
            task.future = None;
        }
        let mut world = self.model.world();
        let now = world.now();
        if has_ended {
            world.alive -= 1;
            world.ended_at = world.ended_at.max(now);
        }
        drop(world);
        drop(running);
        self.heed_wakes(now);
    }

    /// Schedules the woken tasks to run next.
    fn heed_wakes(&self, now: Ps) {
        let mut woken = self.woken.lock();
        if woken.is_empty() {
            return;
        }
        let mut world = self.model.world();
        for task in woken.drain(..) {
            let number = task.wrapping_sub(self.first) as usize;
            self.tasks[number].handle.is_listed.store(false, Ordering::Release);
            world.push(now, Happening::Run { task, cost: Cost::Wake });
        }
    }

    fn stuck(&self, at_ns: u64) -> Stuck {
        let is_left = |task: &Task<'_>| task.future.is_some();
        Stuck {
            waiting: self.tasks.iter().filter(|task| is_left(task)).count(),
            tasks: self.tasks.len(),
            first: self.tasks.iter().position(is_left).unwrap_or(0),
            at_ns,
        }
    }
}

impl Drop for Cluster<'_> {
    fn drop(&mut self) {
        let left = self.tasks.iter().filter(|task| task.future.is_some()).count();
        self.tasks.clear();
        self.model.world().alive -= left;
    }
}
