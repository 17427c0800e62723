//! Waiting for room: what an operation does that found the pool full.
//!
//! Freed memory waits for epochs, so a pool that is overwritten can be full for a moment although
//! little is in use. The operation hands a request to the upkeep thread and waits as a future does;
//! the thread runs rounds until there is room, or until it is known that there will be none
//! ([`darter_pool::RoomRequest`]). A store without that thread runs the rounds itself. Only then the
//! pool counts as full, and what the dead left is swept (`sweeper`).

use crate::Error;
use crate::open_index::OpenIndex;
use crate::parts::StoreClient;
use darter_fabric::Endpoint;
use darter_pool::Room;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};
use std::time::{Duration, Instant};

/// For how many times as long as it took to find out, a pool counts as full.
const REST: u32 = 10;

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

    /// Wakes the operations that wait, with a result. `epoch` is the process's, `took` the time that
    /// the request took.
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
    pub(crate) fn known(&self, epoch: u64, has_garbage: bool) -> Option<Room> {
        let (room, at, until) = self.lock().last?;
        let holds = match room {
            Room::Full => !has_garbage && Instant::now() < until,
            Room::HeldBack(_) => at == epoch,
            Room::Freed | Room::NotYet => false,
        };
        holds.then_some(room)
    }

    /// Waits for the next answer; `ring` wakes the upkeep thread.
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
    /// called between two rounds; `false` ends the wait.
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
