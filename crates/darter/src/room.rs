//! Waiting for room: what an operation does that found the pool full.
//!
//! Freed memory waits for epochs, so a pool that is overwritten can be full for a moment although
//! little is in use. The operation hands a request to the upkeep thread and waits as a future does;
//! the thread runs rounds until there is room, or until it is known that there will be none
//! ([`darter_pool::RoomRequest`]). A store without that thread runs the rounds itself. Only then the
//! pool counts as full, and what the dead left is swept (`sweeper`).

use crate::Error;
use crate::open_index::OpenIndex;
use crate::open_store::OpenStore;
use darter_fabric::{Endpoint, Fabric, mutant};
use darter_index::OrderedIndex;
use darter_pool::{Client, Room};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};
use std::time::{Duration, Instant};

/// How long an operation tries again in a pool in which room comes and others take it.
const TRIES_MAX: Duration = Duration::from_secs(10);
/// Sweeps of what the dead left that an operation waits for.
const SWEEPS_MAX: usize = 2;
/// For how many times as long as it took to find out, a pool counts as full.
const REST: u32 = 10;

/// What one operation has waited for.
#[derive(Default)]
pub(crate) struct Attempts {
    since: Option<Instant>,
    sweeps: usize,
    /// It was tried once more after everything that was freed had come back.
    is_full: bool,
}

/// The requests of a process's operations.
#[derive(Default)]
pub(crate) struct Rooms(Mutex<Requests>);

#[derive(Default)]
struct Requests {
    waiting: Vec<Waker>,
    /// Requests that were answered together, counted.
    answers: u64,
    /// The last answer, the epoch that it was true at, and until when it is believed.
    last: Option<(Room, u64, Instant)>,
}

impl Rooms {
    fn lock(&self) -> MutexGuard<'_, Requests> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns whether operations wait.
    pub(crate) fn are_wanted(&self) -> bool {
        !self.lock().waiting.is_empty()
    }

    /// Answers the operations that wait. `epoch` is the process's; it took so long.
    pub(crate) fn answer(&self, room: Room, epoch: u64, took: Duration) {
        let waiting = {
            let mut requests = self.lock();
            requests.answers += 1;
            requests.last = Some((room, epoch, Instant::now() + took * REST));
            std::mem::take(&mut requests.waiting)
        };
        waiting.into_iter().for_each(Waker::wake);
    }

    /// Returns the last answer, if asking again is in vain: nothing was freed since, or the epoch
    /// has not moved.
    fn known(&self, epoch: u64, has_garbage: bool) -> Option<Room> {
        let (room, at, until) = self.lock().last?;
        let holds = match room {
            Room::Full => !has_garbage && Instant::now() < until,
            Room::HeldBack(_) => at == epoch,
            Room::Freed | Room::NotYet => false,
        };
        holds.then_some(room)
    }

    /// Waits for the next answer; `ring` wakes the upkeep thread.
    async fn wait(&self, ring: impl Fn()) -> Room {
        let mut seen = None;
        std::future::poll_fn(|context| {
            let mut requests = self.lock();
            match (seen, requests.last) {
                (Some(before), Some((room, ..))) if before < requests.answers => return Poll::Ready(room),
                _ => seen = seen.or(Some(requests.answers)),
            }
            requests.waiting.push(context.waker().clone());
            drop(requests);
            ring();
            Poll::Pending
        })
        .await
    }
}

impl<F: Fabric, I: OrderedIndex<F>> OpenIndex<F, I> {
    /// Runs rounds of upkeep until there is room or it is known that there will be none. `rest` is
    /// called between two rounds; `false` ends the wait.
    pub(crate) async fn find_room(
        &self,
        client: &mut Client<F>,
        mut rest: impl AsyncFnMut(&mut Client<F>) -> bool,
    ) -> Result<Room, Error> {
        let mut request = self.pool.ask_for_room();
        loop {
            self.maintain(client, false).await?;
            match request.progress(client.endpoint().now_ms()) {
                Room::NotYet if rest(client).await => {}
                room => return Ok(room),
            }
        }
    }
}

impl<F: Fabric, I: OrderedIndex<F>> OpenStore<F, I> {
    /// Waits for room after an operation of `client` has found none. After [`Room::Freed`] the
    /// operation is to be tried again.
    #[cold]
    pub(crate) async fn make_room(&self, client: &mut Client<F>, attempts: &mut Attempts) -> Room {
        let since = *attempts.since.get_or_insert_with(Instant::now);
        if !attempts.is_full && since.elapsed() < TRIES_MAX && !mutant!("store-full-without-a-wait") {
            match self.find_room(client).await {
                Room::Freed => return Room::Freed,
                held @ Room::HeldBack(_) => return held,
                Room::Full | Room::NotYet => {
                    // Room may have come before the request.
                    attempts.is_full = true;
                    return Room::Freed;
                }
            }
        }
        let Some(sweeper) = self.sweeper.as_ref().filter(|_| attempts.sweeps < SWEEPS_MAX) else {
            return Room::Full;
        };
        attempts.sweeps += 1;
        if sweeper.make_room().await { Room::Freed } else { Room::Full }
    }

    async fn find_room(&self, client: &mut Client<F>) -> Room {
        let pool = &self.open.pool;
        let Some(upkeep) = &self.upkeep else {
            let rest = async |client: &mut Client<F>| {
                client.pause().await;
                true
            };
            return self.open.find_room(client, rest).await.unwrap_or(Room::Full);
        };
        match upkeep.rooms().known(pool.epoch(), pool.has_garbage()) {
            Some(room) => room,
            None => upkeep.rooms().wait(|| upkeep.ring()).await,
        }
    }
}
