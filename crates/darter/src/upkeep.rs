//! The threads that do the upkeep of a store: leases, epochs, reclamation, scrubbing, adjustment.
//!
//! They must never own the store: the store's last owner stops them and waits for them.

use crate::Error;
use crate::holds::Holds;
use crate::open_index::OpenIndex;
use crate::parts::StoreClient;
use crate::room::Rooms;
use crate::sweeper::Sweeper;
use darter_fabric::{Fabric, block_on};
use darter_pool::Room;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// The pause between two rounds, if the last one succeeded.
const INTERVAL: Duration = Duration::from_millis(50);
/// The pause between two rounds after many failures in a row.
const INTERVAL_MAX: Duration = Duration::from_secs(5);

/// The pause between two rounds while another process waits for room.
const ASKED_INTERVAL: Duration = Duration::from_millis(2);
/// The pause between two rounds while operations of this process wait for room, or a snapshot is
/// about to begin.
const SHORT_INTERVAL: Duration = Duration::from_millis(1);

/// The running threads. Stopped and joined when dropped.
pub(crate) struct Upkeep {
    stop: Arc<Stop>,
    threads: Vec<JoinHandle<()>>,
    /// The process in which they run.
    process: u32,
}

/// Requests the threads to end, or the first of them to make room.
#[derive(Default)]
struct Stop {
    requested: Mutex<bool>,
    changed: Condvar,
    rooms: Rooms,
    holds: Holds,
}

impl Stop {
    fn request(&self) {
        *self.requested.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.changed.notify_all();
    }

    /// Blocks for `interval` or until a stop is requested; returns whether it was.
    fn wait(&self, interval: Duration) -> bool {
        let requested = self.requested.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.changed.wait_timeout_while(requested, interval, |requested| !*requested);
        *waited.unwrap_or_else(PoisonError::into_inner).0
    }

    /// The same, but returns earlier if operations wait for room.
    fn wait_or_serve(&self, interval: Duration) -> bool {
        let requested = self.requested.lock().unwrap_or_else(PoisonError::into_inner);
        let goes_on = |requested: &mut bool| !*requested && !self.rooms.are_wanted();
        let waited = self.changed.wait_timeout_while(requested, interval, goes_on);
        *waited.unwrap_or_else(PoisonError::into_inner).0
    }
}

impl Upkeep {
    /// Starts the thread, which also begins sweeps when they are due, and calls `shut_out` after
    /// each round that detects the end of the membership. On memory groups a second thread renews
    /// the lease while the first has to wait for a group that changes its primary.
    ///
    /// # Errors
    /// Fails if the pool fails, or the system has no thread left.
    pub(crate) fn start(
        open: Arc<OpenIndex>,
        adjust: bool,
        sweeper: Option<Arc<Sweeper>>,
        shut_out: impl Fn() + Send + 'static,
    ) -> Result<Self, Error> {
        let mut upkeep =
            Self { stop: Arc::new(Stop::default()), threads: Vec::new(), process: std::process::id() };
        if !open.pool.fabric().capabilities().failover.is_zero() {
            let (open, client) = (Arc::clone(&open), open.pool.client()?);
            upkeep.spawn("darter-lease", move |stop| keep_lease(&open, client, stop))?;
        }
        let client = open.pool.client()?;
        let keep = Keep { open, sweeper, adjust, shut_out };
        upkeep.spawn("darter-upkeep", move |stop| keep.up(client, stop))?;
        Ok(upkeep)
    }

    /// The requests of operations that wait for room.
    pub(crate) fn rooms(&self) -> &Rooms {
        &self.stop.rooms
    }

    /// The operations that wait until a snapshot has begun.
    pub(crate) fn holds(&self) -> &Holds {
        &self.stop.holds
    }

    /// Wakes the thread for a request.
    pub(crate) fn ring(&self) {
        // Under the lock, so that the thread is not between its check for requests and its sleep.
        let _requested = self.stop.requested.lock().unwrap_or_else(PoisonError::into_inner);
        self.stop.changed.notify_all();
    }

    fn spawn(&mut self, name: &str, work: impl FnOnce(&Stop) + Send + 'static) -> Result<(), Error> {
        let stop = Arc::clone(&self.stop);
        let thread = std::thread::Builder::new().name(name.to_owned()).spawn(move || work(&stop));
        self.threads.push(thread.map_err(Error::Thread)?);
        Ok(())
    }
}

impl Drop for Upkeep {
    fn drop(&mut self) {
        if self.process != std::process::id() {
            // A forked child does not have its parent's threads, and may have a lock held by one of
            // them.
            self.threads.drain(..).for_each(std::mem::forget);
            return;
        }
        self.stop.request();
        for thread in self.threads.drain(..) {
            // The thread has reported a panic itself.
            let _ = thread.join();
        }
    }
}

/// The state that the upkeep thread serves.
struct Keep<S> {
    open: Arc<OpenIndex>,
    sweeper: Option<Arc<Sweeper>>,
    adjust: bool,
    /// Called after each round that detects the end of the membership.
    shut_out: S,
}

impl<S: Fn()> Keep<S> {
    fn up(&self, mut client: StoreClient, stop: &Stop) {
        let open = &*self.open;
        // The lease must be renewed even if all rounds fail.
        let interval_max = INTERVAL_MAX.min(open.pool.lease() / 8).max(INTERVAL);
        let mut interval = INTERVAL;
        while !stop.wait_or_serve(interval) {
            let outcome = if stop.rooms.are_wanted() {
                find_room(open, &mut client, stop)
            } else {
                block_on(open.maintain(&mut client, self.adjust))
            };
            interval = match outcome {
                Ok(()) if open.pool.is_snapshot_beginning() => SHORT_INTERVAL,
                Ok(()) if open.pool.is_asked_for_room() => ASKED_INTERVAL,
                Ok(()) => INTERVAL,
                Err(_) => (interval * 2).clamp(INTERVAL, interval_max),
            };
            // After an error the state is unknown; the operations then report their own errors.
            if outcome.is_err() || !open.pool.holds_changes() {
                stop.holds.release();
            }
            if let Some(sweeper) = &self.sweeper {
                sweeper.tend();
            }
            open.note_upkeep(outcome.err().as_ref());
            if open.is_shut_out() {
                (self.shut_out)();
            }
        }
    }
}

/// Requests room, and wakes the operations that wait for it.
fn find_room(open: &OpenIndex, client: &mut StoreClient, stop: &Stop) -> Result<(), Error> {
    let began = Instant::now();
    let found = block_on(open.find_room(client, async |_| !stop.wait(SHORT_INTERVAL)));
    // After an error the state is unknown; the operations then report their own errors.
    let room = *found.as_ref().unwrap_or(&Room::NotYet);
    stop.rooms.answer(room, open.pool.epoch(), began.elapsed());
    found.map(drop)
}

fn keep_lease(open: &OpenIndex, mut client: StoreClient, stop: &Stop) {
    while !stop.wait((open.pool.lease() / 8).max(INTERVAL)) {
        // An error here also occurs in the upkeep thread, which reports it.
        let _ = block_on(open.pool.renew(&mut client));
    }
}
