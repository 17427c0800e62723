//! A thread's loop: the tasks that it polls, the connections that it drives, and how it sleeps and
//! is woken.

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use std::cell::{Cell, RefCell};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

/// The outcome of a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Progress {
    /// Nothing is expected.
    Idle,
    /// Replies are expected, but none came.
    Waiting,
    /// Something was sent or received.
    Moved,
}

/// A provider's connections, which a thread must drive.
pub(crate) trait Drive: Send + Sync {
    /// Runs `then` while holding the lock that a post takes.
    fn hold(&self, then: &mut dyn FnMut());

    /// Sends and receives without blocking: on connections that expect replies or, if `thorough`,
    /// on all, before a sleep. Adds the wakers to call after all locks are released.
    fn turn(&self, thorough: bool, wakers: &mut Vec<Waker>) -> Progress;

    /// Sends what was posted, and watches its connections for replies. Adds the wakers to call
    /// after all locks are released.
    fn send(&self, wakers: &mut Vec<Waker>);

    /// Returns a descriptor that is readable when a turn would make progress.
    fn readable(&self) -> BorrowedFd<'_>;

    /// Returns how long to poll for replies before sleeping.
    fn spin(&self) -> Duration;

    /// Returns whether it will deliver nothing from now on.
    #[cfg(feature = "tcp")]
    fn is_closed(&self) -> bool;
}

/// The means by which other threads reach a thread's loop.
#[derive(Debug)]
pub(crate) struct Signal {
    #[cfg(feature = "tcp")]
    number: ThreadNumber,
    thread: Thread,
    asleep: AtomicBool,
    /// Tasks that other threads woke: level and number.
    wakes: Mutex<Vec<(usize, u32)>>,
    has_wakes: AtomicBool,
    /// The event that a loop sleeps on, in addition to its sockets.
    bell: OnceLock<OwnedFd>,
}

/// The tasks of one loop of this thread. A loop started by a task of another loop is one level
/// deeper.
#[derive(Default)]
struct Level {
    woken: Vec<u32>,
    /// Indexed by task.
    states: Vec<TaskState>,
    spare: Spare,
}

/// The effect of waking a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TaskState {
    /// It will be polled.
    Waits,
    /// None: it will be polled anyway.
    Woken,
    /// None: it has ended.
    Done,
}

impl Level {
    fn wake(&mut self, task: u32) {
        if let Some(state @ TaskState::Waits) = self.states.get_mut(task as usize) {
            *state = TaskState::Woken;
            self.woken.push(task);
        }
    }
}

/// Buffers of a loop, kept for the next one.
#[derive(Default)]
struct Spare {
    wakers: Vec<Waker>,
    woken: Vec<u32>,
    to_wake: Vec<Waker>,
}

struct Local {
    signal: Arc<Signal>,
    depth: Cell<usize>,
    levels: RefCell<Vec<Level>>,
    drives: RefCell<Vec<Arc<dyn Drive>>>,
    /// Counts changes of `drives`.
    version: Cell<u64>,
    /// A [`super::ExternalDriver`] drives them while no loop runs.
    has_external_driver: Cell<bool>,
    /// Called by the next post.
    on_post: Cell<Option<Waker>>,
}

/// A thread's number; 0 belongs to no thread.
type ThreadNumber = u64;

thread_local! {
    /// The thread's number while a loop runs in it.
    static DRIVING: Cell<ThreadNumber> = const { Cell::new(0) };
    static NUMBER: Cell<ThreadNumber> = const { Cell::new(0) };
    static LOCAL: Local = Local {
        signal: Arc::new(Signal {
            #[cfg(feature = "tcp")]
            number: number(),
            thread: thread::current(),
            asleep: AtomicBool::new(false),
            wakes: Mutex::default(),
            has_wakes: AtomicBool::new(false),
            bell: OnceLock::new(),
        }),
        depth: Cell::new(0),
        levels: RefCell::default(),
        drives: RefCell::default(),
        version: Cell::new(0),
        has_external_driver: Cell::new(false),
        on_post: Cell::new(None),
    };
}

/// Returns whether a loop of this crate runs in this thread: then the loop drives the connections,
/// and may sleep.
#[cfg(any(test, feature = "tcp"))]
#[inline]
pub(crate) fn is_driving() -> bool {
    DRIVING.get() != 0
}

/// Returns the calling thread's number.
#[inline]
fn number() -> ThreadNumber {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    if NUMBER.get() == 0 {
        NUMBER.set(NEXT.fetch_add(1, Ordering::Relaxed));
    }
    NUMBER.get()
}

/// Returns this thread's signal.
pub(crate) fn signal() -> Arc<Signal> {
    LOCAL.with(|local| Arc::clone(&local.signal))
}

/// Returns whether this thread has an external driver.
pub(super) fn has_external_driver() -> bool {
    LOCAL.with(|local| local.has_external_driver.get())
}

/// Records that an external driver begins or ends to drive this thread's connections.
pub(super) fn set_external_driver(has_external_driver: bool) {
    // The thread may be ending.
    let _ = LOCAL.try_with(|local| {
        local.has_external_driver.set(has_external_driver);
        drop(local.on_post.take());
    });
}

/// Sets the waker that this thread's next post calls.
pub(super) fn wake_on_post(waker: &Waker) {
    LOCAL.with(|local| {
        let known = local.on_post.take().filter(|known| known.will_wake(waker));
        local.on_post.set(Some(known.unwrap_or_else(|| waker.clone())));
    });
}

/// Notes that verbs were posted on a connection that this thread drives. A loop notices by itself;
/// an external driver is woken.
#[inline]
pub(crate) fn posted() {
    LOCAL.with(|local| {
        if let Some(waker) = local.on_post.take() {
            waker.wake();
        }
    });
}

/// Adds a drive to this thread's list.
#[cfg(feature = "tcp")]
pub(crate) fn adopt(drive: Arc<dyn Drive>) {
    LOCAL.with(|local| {
        let mut drives = local.drives.borrow_mut();
        drives.retain(|drive| !drive.is_closed());
        drives.push(drive);
        local.version.set(local.version.get() + 1);
    });
}

/// Marks that a loop runs in this thread, until dropped.
#[derive(Debug)]
pub(super) struct Driving {
    before: ThreadNumber,
}

impl Driving {
    #[inline]
    pub(super) fn begin() -> Self {
        Self { before: DRIVING.replace(number()) }
    }
}

impl Drop for Driving {
    #[inline]
    fn drop(&mut self) {
        DRIVING.set(self.before);
    }
}

impl Signal {
    /// Returns whether its thread is the calling one, and runs a loop.
    #[cfg(feature = "tcp")]
    #[inline]
    pub(crate) fn drives_here(&self) -> bool {
        DRIVING.get() == self.number
    }

    /// Returns whether its thread sleeps, or is about to and will check its drives once more.
    pub(crate) fn is_asleep(&self) -> bool {
        self.asleep.load(Ordering::SeqCst)
    }

    /// Returns the bell that ends its thread's sleep, created on first use. Fails if the process
    /// has no descriptors left.
    pub(super) fn bell(&self) -> rustix::io::Result<&OwnedFd> {
        if let Some(bell) = self.bell.get() {
            return Ok(bell);
        }
        let made = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(self.bell.get_or_init(|| made))
    }

    /// Silences the bell if it rang, and marks the thread asleep again, so that later rings are
    /// noticed.
    pub(super) fn answer_bell(&self) {
        if !self.asleep.swap(true, Ordering::SeqCst)
            && let Some(bell) = self.bell.get()
        {
            silence(bell);
        }
    }

    /// Ends its thread's sleep.
    pub(crate) fn rouse(&self) {
        if self.asleep.swap(false, Ordering::SeqCst) {
            self.thread.unpark();
            if let Some(bell) = self.bell.get() {
                // A full counter also wakes the thread.
                let _ = rustix::io::write(bell, &1_u64.to_ne_bytes());
            }
        }
    }

    fn wake(&self, level: usize, task: u32) {
        let is_here = LOCAL.try_with(|local| {
            let is_here = std::ptr::eq(self, &raw const *local.signal);
            if is_here && let Some(level) = local.levels.borrow_mut().get_mut(level) {
                level.wake(task);
            }
            is_here
        });
        if !is_here.unwrap_or(false) {
            self.wakes.lock().unwrap_or_else(PoisonError::into_inner).push((level, task));
            self.has_wakes.store(true, Ordering::SeqCst);
            self.rouse();
        }
    }
}

/// Silences a bell.
fn silence(bell: &OwnedFd) {
    let _ = rustix::io::read(bell, &mut [0_u8; 8]);
}

struct TaskWaker {
    signal: Arc<Signal>,
    level: usize,
    task: u32,
}

impl Wake for TaskWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.signal.wake(self.level, self.task);
    }
}

/// A running loop: its level, which is released when the loop ends, also by a panic.
struct Loop {
    level: usize,
    spare: Spare,
}

impl Loop {
    fn begin(tasks: usize) -> Self {
        LOCAL.with(|local| {
            let level = local.depth.get();
            local.depth.set(level + 1);
            let mut levels = local.levels.borrow_mut();
            if levels.len() == level {
                levels.push(Level::default());
            }
            let mut spare = std::mem::take(&mut levels[level].spare);
            for task in spare.wakers.len()..tasks {
                let signal = Arc::clone(&local.signal);
                spare.wakers.push(Arc::new(TaskWaker { signal, level, task: task as u32 }).into());
            }
            levels[level].woken.clear();
            levels[level].woken.extend(0..tasks as u32);
            levels[level].states.clear();
            levels[level].states.resize(tasks, TaskState::Woken);
            Self { level, spare }
        })
    }

    /// Moves the tasks that were woken since the last call to `spare.woken`.
    fn take_woken(&mut self) {
        self.spare.woken.clear();
        LOCAL.with(|local| {
            let mut levels = local.levels.borrow_mut();
            if local.signal.has_wakes.load(Ordering::Relaxed) {
                local.signal.has_wakes.store(false, Ordering::SeqCst);
                let mut wakes = local.signal.wakes.lock().unwrap_or_else(PoisonError::into_inner);
                for (level, task) in wakes.drain(..) {
                    levels[level].wake(task);
                }
            }
            let Level { woken, states, .. } = &mut levels[self.level];
            std::mem::swap(woken, &mut self.spare.woken);
            self.spare.woken.retain(|&task| {
                let state = &mut states[task as usize];
                // A task that woke itself and ended is listed once more.
                let goes_on = *state == TaskState::Woken;
                if goes_on {
                    *state = TaskState::Waits;
                }
                goes_on
            });
        });
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        LOCAL.with(|local| {
            local.depth.set(self.level);
            if self.level == 0 {
                // The external driver, if any, drives the connections again, and must watch them.
                posted();
            }
            if let Some(level) = local.levels.borrow_mut().get_mut(self.level) {
                level.spare = std::mem::take(&mut self.spare);
            }
        });
    }
}

/// Polls the task with this number. Not a type parameter, so that the loop is compiled once and not
/// for every future.
pub(super) type Polls<'a> = dyn FnMut(usize, &mut Context<'_>) -> Poll<()> + 'a;

/// Polls tasks `0..tasks` as they are woken, and drives this thread's connections, until each task
/// has been ready once.
pub(super) fn run(tasks: usize, poll: &mut Polls<'_>) {
    let mut this = Loop::begin(tasks);
    let mut drives = Drives::default();
    let (level, mut left) = (this.level, tasks);
    let mut idle_since = None;
    while left > 0 {
        this.take_woken();
        drives.update();
        let Spare { wakers, woken, to_wake } = &mut this.spare;
        if woken.is_empty() && drives.spin.is_zero() {
            // The check before the sleep receives what has arrived.
            LOCAL.with(|local| drives.sleep(&local.signal, to_wake));
            to_wake.drain(..).for_each(Waker::wake);
            continue;
        }
        let mut turn = Progress::Idle;
        hold(&drives.all, &mut || {
            for &task in &*woken {
                let mut context = Context::from_waker(&wakers[task as usize]);
                if poll(task as usize, &mut context).is_ready() {
                    LOCAL.with(|local| {
                        local.levels.borrow_mut()[level].states[task as usize] = TaskState::Done;
                    });
                    left -= 1;
                }
            }
            if left > 0 {
                turn = drives.turn(false, to_wake);
            }
        });
        let is_idle = woken.is_empty() && to_wake.is_empty() && turn != Progress::Moved;
        to_wake.drain(..).for_each(Waker::wake);
        if left == 0 || !is_idle {
            idle_since = None;
            continue;
        }
        let since = *idle_since.get_or_insert_with(Instant::now);
        if turn == Progress::Waiting && since.elapsed() < drives.spin {
            // Not at once: a check takes the socket's lock, which the sender of the reply needs.
            (0..PAUSES).for_each(|_| std::hint::spin_loop());
            // The sender may need this core.
            std::thread::yield_now();
            continue;
        }
        LOCAL.with(|local| drives.sleep(&local.signal, to_wake));
        to_wake.drain(..).for_each(Waker::wake);
        idle_since = None;
    }
}

/// Processor pauses between two checks of a loop's connections: a fraction of a microsecond.
const PAUSES: usize = 16;
/// How long to sleep before the next check for silent nodes: a fraction of the time after which a
/// client searches for another replica.
const NAP: Timespec = Timespec { tv_sec: 0, tv_nsec: 50_000_000 };
/// Runs `then` while holding the locks of all drives.
fn hold(drives: &[Arc<dyn Drive>], then: &mut dyn FnMut()) {
    match drives {
        [] => then(),
        [first, rest @ ..] => first.hold(&mut || hold(rest, then)),
    }
}

/// The drives of a loop: the thread's list as of some version.
#[derive(Default)]
pub(super) struct Drives {
    all: Vec<Arc<dyn Drive>>,
    version: u64,
    spin: Duration,
}

impl Drives {
    /// Takes over the thread's list if it has changed. Returns whether it has.
    pub(super) fn update(&mut self) -> bool {
        LOCAL.with(|local| {
            let is_new = self.version != local.version.get();
            if is_new {
                self.version = local.version.get();
                self.all.clone_from(&local.drives.borrow());
                self.spin = self.all.iter().map(|drive| drive.spin()).max().unwrap_or_default();
            }
            is_new
        })
    }

    pub(super) fn all(&self) -> &[Arc<dyn Drive>] {
        &self.all
    }

    pub(super) fn send(&self, wakers: &mut Vec<Waker>) {
        self.all.iter().for_each(|drive| drive.send(wakers));
    }

    pub(super) fn turn(&self, thorough: bool, wakers: &mut Vec<Waker>) -> Progress {
        self.all.iter().map(|drive| drive.turn(thorough, wakers)).max().unwrap_or(Progress::Idle)
    }

    /// Blocks until something happens. Later posts and wakes see that this thread sleeps; a last
    /// check finds those that came just before.
    fn sleep(&self, signal: &Signal, wakers: &mut Vec<Waker>) {
        signal.asleep.store(true, Ordering::SeqCst);
        let is_quiet = !signal.has_wakes.load(Ordering::SeqCst)
            && self.turn(true, wakers) != Progress::Moved
            && wakers.is_empty();
        if is_quiet {
            self.wait(signal);
        }
        signal.asleep.store(false, Ordering::SeqCst);
    }

    fn wait(&self, signal: &Signal) {
        if self.all.is_empty() {
            while signal.is_asleep() {
                thread::park();
            }
            return;
        }
        // Without a bell: poll repeatedly instead.
        let Ok(bell) = signal.bell() else { return thread::yield_now() };
        if !signal.is_asleep() {
            // Roused before there was a bell.
            return;
        }
        let watch = |fd| PollFd::from_borrowed_fd(fd, PollFlags::IN);
        // Woken early or not at all: the loop checks again.
        let wait = |watched: &mut [PollFd<'_>]| {
            let _ = poll(watched, Some(&NAP));
            !watched[0].revents().is_empty()
        };
        let has_rung = match &self.all[..] {
            [only] => wait(&mut [watch(bell.as_fd()), watch(only.readable())]),
            all => {
                let drives = all.iter().map(|drive| drive.readable());
                let mut watched: Vec<PollFd<'_>> =
                    std::iter::once(bell.as_fd()).chain(drives).map(watch).collect();
                wait(&mut watched)
            }
        };
        if has_rung {
            silence(bell);
        }
    }
}
