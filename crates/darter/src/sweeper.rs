//! Sweeps of the memory of dead processes, so that no repair is needed.
//!
//! | a sweep is due | because |
//! |---|---|
//! | soon after opening | members that died before may have left blocks |
//! | a lease after this process has ended a member | other members that died with it have been found |
//! | at once, when an operation finds the pool full | the operation is tried again if there is room then |
//! | at once, when a check is requested | memory of dead processes must not count as leaked |
//!
//! A process that ends earlier leaves the sweep to the next one. A sweep walks the whole index, so
//! it runs in a separate thread, one at a time, and only if there are blocks to sweep. It works for
//! a third of the time unless an operation waits for it. After a sweep that could not finish, or
//! that made no room for a waiting operation, the next one waits ten times the duration of that
//! sweep.

use crate::open_index::OpenIndex;
use darter_fabric::block_on;
use darter_index::snapshot::remove_old_values;
use darter_index::{IndexError, OrderedIndex, Swept};
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Back-off after a sweep, as a multiple of its duration.
const REST: u32 = 10;
/// Divisor of the lease: this part is the time between opening and the first sweep, and the minimum
/// between two sweeps in vain.
const LEASE_PART: u32 = 10;
/// How long a sweep without waiting operations works before it rests.
const WORK: Duration = Duration::from_millis(1);
const PAUSE: Duration = Duration::from_millis(2);

/// The sweeps of a process.
pub(crate) struct Sweeper {
    open: Arc<OpenIndex>,
    stop: AtomicBool,
    /// Whether an operation waits for the current sweep.
    is_awaited: AtomicBool,
    state: Mutex<State>,
}

struct State {
    /// When the next sweep is due without a request.
    due: Option<Instant>,
    /// Whether members were ended since the last sweep: closed blocks may contain objects that they
    /// had retired.
    has_evicted: bool,
    /// The thread of the last sweep.
    thread: Option<JoinHandle<()>>,
    is_running: bool,
    /// Number of sweeps that have ended.
    ended: u64,
    /// Whether the last one has made room.
    made_room: bool,
    /// Until when a full pool is assumed to be full.
    in_vain_until: Option<Instant>,
    waiting: Vec<Waker>,
}

/// The outcome of a sweep. The default: nothing was swept, and nothing is left to do.
#[derive(Clone, Copy, Default)]
struct Outcome {
    is_cut_short: bool,
    made_room: bool,
}

impl Sweeper {
    /// Returns the sweeps of a process that has just opened the pool.
    pub(crate) fn new(open: Arc<OpenIndex>) -> Arc<Self> {
        let state = State {
            due: Some(Instant::now() + open.pool.lease() / LEASE_PART),
            has_evicted: false,
            thread: None,
            is_running: false,
            ended: 0,
            made_room: false,
            in_vain_until: None,
            waiting: Vec::new(),
        };
        Arc::new(Self {
            open,
            stop: AtomicBool::new(false),
            is_awaited: AtomicBool::new(false),
            state: Mutex::new(state),
        })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins a sweep if one is due.
    pub(crate) fn tend(self: &Arc<Self>) {
        let mut state = self.lock();
        let now = Instant::now();
        if self.open.pool.take_evicted() {
            state.has_evicted = true;
            state.due.get_or_insert(now + self.open.pool.lease());
        }
        if !state.is_running && state.due.is_some_and(|due| due <= now) {
            self.begin(&mut state, false);
        }
    }

    /// Waits for the current sweep, or for one that begins now. Returns whether it has made room;
    /// returns `false` at once if the last one has just ended without making any.
    pub(crate) async fn make_room(self: &Arc<Self>) -> bool {
        let awaited = {
            let mut state = self.lock();
            let is_in_vain = state.in_vain_until.is_some_and(|until| Instant::now() < until);
            if !state.is_running && (is_in_vain || !self.begin(&mut state, true)) {
                return false;
            }
            state.ended + 1
        };
        self.ended(awaited).await
    }

    /// Sweeps all memory left by dead processes up to now, if any.
    pub(crate) async fn finish(self: &Arc<Self>) {
        self.rest().await;
        let awaited = {
            let mut state = self.lock();
            if !state.is_running && !self.begin(&mut state, false) {
                return;
            }
            state.ended + 1
        };
        self.ended(awaited).await;
    }

    /// Waits until no sweep is running; from then on none begins without a request until members
    /// die.
    pub(crate) async fn rest(&self) {
        let awaited = {
            let mut state = self.lock();
            state.due = None;
            state.ended + u64::from(state.is_running)
        };
        self.ended(awaited).await;
    }

    /// Waits until this number of sweeps have ended. Returns whether the last one has made room.
    async fn ended(&self, sweeps: u64) -> bool {
        std::future::poll_fn(|context| {
            let mut state = self.lock();
            if state.ended >= sweeps {
                return Poll::Ready(state.made_room);
            }
            self.is_awaited.store(true, Ordering::Relaxed);
            state.waiting.push(context.waker().clone());
            Poll::Pending
        })
        .await
    }

    /// Starts the thread of a sweep; returns whether there is one. Without a thread, the sweep is
    /// left to another process or to a repair.
    fn begin(self: &Arc<Self>, state: &mut State, is_full: bool) -> bool {
        if let Some(thread) = state.thread.take() {
            // The thread has ended. It has reported a panic itself.
            let _ = thread.join();
        }
        state.due = None;
        let takes_closed = std::mem::take(&mut state.has_evicted) || is_full;
        let sweeper = Arc::clone(self);
        let sweep = move || {
            let mut end = SweepEnd { sweeper: &sweeper, begin: Instant::now(), outcome: Outcome::default() };
            let swept = block_on(sweeper.paced(sweep(&sweeper.open, takes_closed)));
            let failed = Outcome { is_cut_short: true, made_room: false };
            end.outcome = swept.map_or(Outcome::default(), |swept| swept.unwrap_or(failed));
        };
        state.thread = std::thread::Builder::new().name("darter-sweep".to_owned()).spawn(sweep).ok();
        state.is_running = state.thread.is_some();
        state.is_running
    }

    /// Returns the output of a sweep, or `None` if it must stop at one of its awaits. Rests the
    /// thread regularly unless an operation waits.
    async fn paced<T>(&self, sweep: impl Future<Output = T>) -> Option<T> {
        let mut sweep = pin!(sweep);
        let mut rested = Instant::now();
        std::future::poll_fn(|context| {
            if self.stop.load(Ordering::Relaxed) {
                return Poll::Ready(None);
            }
            if rested.elapsed() > WORK && !self.is_awaited.load(Ordering::Relaxed) {
                std::thread::sleep(PAUSE);
                rested = Instant::now();
            }
            sweep.as_mut().poll(context).map(Some)
        })
        .await
    }

    /// Ends the current sweep, and waits for it. Blocks that it has adopted stay with this process
    /// until it ends; then another process sweeps them.
    pub(crate) fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
        let thread = self.lock().thread.take();
        if let Some(thread) = thread {
            let _ = thread.join();
        }
    }
}

/// Records the end of a sweep when dropped, also after a panic.
struct SweepEnd<'a> {
    sweeper: &'a Sweeper,
    begin: Instant,
    outcome: Outcome,
}

impl Drop for SweepEnd<'_> {
    fn drop(&mut self) {
        let (now, lease) = (Instant::now(), self.sweeper.open.pool.lease());
        let took = now - self.begin;
        let mut state = self.sweeper.lock();
        self.sweeper.is_awaited.store(false, Ordering::Relaxed);
        state.is_running = false;
        state.ended += 1;
        state.made_room = self.outcome.made_room;
        state.in_vain_until = (!self.outcome.made_room).then(|| now + (took * REST).max(lease / LEASE_PART));
        if self.outcome.is_cut_short {
            state.has_evicted = true;
            state.due = Some(now + took * REST + lease);
        }
        let waiting = std::mem::take(&mut state.waiting);
        drop(state);
        waiting.into_iter().for_each(Waker::wake);
    }
}

/// Sweeps if there is anything to sweep: blocks of dead processes or, if `takes_closed`, also
/// closed blocks.
async fn sweep(open: &OpenIndex, takes_closed: bool) -> Result<Outcome, IndexError> {
    let mut client = open.pool.client()?;
    client.set_yielding(true);
    open.pool.evict(&mut client).await?;
    if open.pool.take_ended_snapshot() {
        while remove_old_values(&open.index, &mut client).await? {}
    }
    let takes_closed = open.pool.take_evicted() || takes_closed;
    let usage = open.pool.usage(&mut client).await?;
    let is_left =
        |node: &darter_pool::NodeUsage| node.dead + node.sweeping > 0 || takes_closed && node.closed > 0;
    if !usage.nodes.iter().any(is_left) {
        return Ok(Outcome::default());
    }
    Ok(match open.index.sweep_dead(&mut client).await? {
        Swept::Done(report) => {
            Outcome { is_cut_short: !report.finished, made_room: report.reclaimed_bytes > 0 }
        }
        // A check reports violations; another sweep would not repair them.
        Swept::Refused(_) => Outcome::default(),
    })
}
