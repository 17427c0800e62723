//! Waiting for room after an operation has found the pool full.
//!
//! Freed memory waits for epochs, so a pool whose values are overwritten can be full for a moment
//! although little is in use. The operation passes a request to the upkeep thread and awaits the
//! result; the thread runs rounds until there is room, or until it is known that there will be none
//! ([`darter_pool::RoomRequest`]). A store without that thread runs the rounds itself. Only then
//! the pool counts as full, and the memory of dead processes is swept (`sweeper`).

use crate::Error;
use crate::open_index::OpenIndex;
use crate::parts::StoreClient;
use darter_fabric::Endpoint;
use darter_pool::Room;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};
use std::time::{Duration, Instant};

/// Time for which a pool counts as full, as a multiple of the time that it took to find out.
const REST: u32 = 10;

/// The requests of a process's operations.
#[derive(Default)]
pub(crate) struct Rooms(Mutex<Requests>);

#[derive(Default)]
struct Requests {
    waiting: Vec<Waker>,
    /// Number of results so far; one result serves all requests that wait.
    answers: u64,
    /// The last result, its epoch, and its duration.
    last: Option<(Room, u64, Duration)>,
    /// The time until which the pool counts as full.
    full_until: Option<Instant>,
}

impl Rooms {
    fn lock(&self) -> MutexGuard<'_, Requests> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns whether operations wait.
    pub(crate) fn are_wanted(&self) -> bool {
        !self.lock().waiting.is_empty()
    }

    /// Wakes the waiting operations with a result. `epoch` is the process's; `took` is the duration
    /// of the request.
    pub(crate) fn answer(&self, room: Room, epoch: u64, took: Duration) {
        let waiting = {
            let mut requests = self.lock();
            requests.answers += 1;
            requests.last = Some((room, epoch, took));
            requests.full_until = None;
            std::mem::take(&mut requests.waiting)
        };
        waiting.into_iter().for_each(Waker::wake);
    }

    /// Notes that an operation found no room after several requests.
    pub(crate) fn confirm_full(&self) {
        let mut requests = self.lock();
        if let Some((Room::Full, _, took)) = requests.last {
            requests.full_until.get_or_insert_with(|| Instant::now() + took * REST);
        }
    }

    /// Returns the last result if a new request would have the same one: nothing was freed since,
    /// or the epoch has not advanced.
    pub(crate) fn known(&self, epoch: u64, has_garbage: bool) -> Option<Room> {
        let requests = self.lock();
        let (room, at, _) = requests.last?;
        let holds = match room {
            Room::Full => !has_garbage && requests.full_until.is_some_and(|until| Instant::now() < until),
            Room::HeldBack(_) => at == epoch,
            Room::Freed | Room::NotYet => false,
        };
        holds.then_some(room)
    }

    /// Waits for the next result; `ring` wakes the upkeep thread.
    pub(crate) async fn wait(&self, ring: impl Fn()) -> Room {
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

impl OpenIndex {
    /// Runs rounds of upkeep until there is room or it is known that there will be none. `rest` is
    /// called between two rounds; if it returns `false`, the wait ends.
    pub(crate) async fn find_room(
        &self,
        client: &mut StoreClient,
        mut rest: impl AsyncFnMut(&mut StoreClient) -> bool,
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
