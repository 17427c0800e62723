//! What the clones and sessions of a store share, and what happens when the last of them is
//! dropped.

use crate::Error;
use crate::open_index::OpenIndex;
use crate::sweeper::Sweeper;
use crate::upkeep::Upkeep;
use darter_fabric::{Fabric, PoolUrl, block_on, mutant};
use darter_index::OrderedIndex;
use darter_pool::{Client, Room};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long an operation tries again in a pool in which room comes and others take it.
const TRIES_MAX: Duration = Duration::from_secs(10);
/// Sweeps of what the dead left that an operation waits for.
const SWEEPS_MAX: usize = 2;
/// An open store. Dropped with the last clone and session.
pub(crate) struct OpenStore<F: Fabric, I: OrderedIndex<F>> {
    /// `None` for a program that does the upkeep itself.
    pub(crate) upkeep: Option<Upkeep>,
    /// `None` for a program that does not want what the dead left to be swept.
    pub(crate) sweeper: Option<Arc<Sweeper<F, I>>>,
    pub(crate) open: Arc<OpenIndex<F, I>>,
    pub(crate) url: Option<PoolUrl>,
    pub(crate) auto_adjust: bool,
    /// Opens the same pool again in the same way; `None` for a store over a fabric of the program.
    pub(crate) reopen: Option<Reopen<F, I>>,
}

/// Opens a store anew.
pub(crate) type Reopen<F, I> = Box<dyn Fn() -> Result<Arc<OpenStore<F, I>>, Error> + Send + Sync>;

/// What one operation has waited for.
#[derive(Default)]
pub(crate) struct Attempts {
    since: Option<Instant>,
    sweeps: usize,
    /// It was tried once more after everything that was freed had come back.
    is_full: bool,
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

impl<F: Fabric, I: OrderedIndex<F>> Drop for OpenStore<F, I> {
    /// Ends the threads, then frees what was retired: only the index can scrub what it has
    /// unlinked, so this comes before the pool closes. What cannot be freed, because others hold it
    /// back or the fabric fails, is left to a repair.
    fn drop(&mut self) {
        drop(self.upkeep.take());
        if let Some(sweeper) = self.sweeper.take() {
            sweeper.stop();
        }
        if let Ok(mut client) = self.open.pool.client() {
            let _ = block_on(self.open.settle(&mut client));
        }
    }
}
