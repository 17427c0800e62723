//! An open pool with its index and threads during one membership, and its end when the last owner
//! drops it.

use crate::open_index::OpenIndex;
use crate::parts::StoreClient;
use crate::sweeper::Sweeper;
use crate::upkeep::Upkeep;
use crate::{Error, StoreOptions};
use darter_fabric::{Fabric, block_on};
use darter_pool::Room;
use std::ops::Deref;
use std::sync::{Arc, OnceLock, mpsc};
use std::time::{Duration, Instant};

/// Maximum time that an operation is retried in a pool whose freed room is always taken by others.
const TRIES_MAX: Duration = Duration::from_secs(10);
/// Maximum time that dropping a store waits for memory nodes, in addition to the time of a
/// failover.
const CLOSE_PATIENCE: Duration = Duration::from_secs(4);
/// Number of requests for room without success after which the pool counts as full. Other members
/// may have taken the room that was found for one of them.
const REQUESTS_MAX: usize = 4;
/// Maximum number of sweeps of dead processes' memory that an operation waits for.
const SWEEPS_MAX: usize = 2;

/// An open pool. Dropped with the last session of the membership, and with the store.
pub(crate) struct OpenStore {
    /// Empty for a program that does the upkeep itself.
    upkeep: OnceLock<Upkeep>,
    /// `None` for a program that disables sweeps of dead processes' memory.
    pub(crate) sweeper: Option<Arc<Sweeper>>,
    pub(crate) open: Held<OpenIndex>,
    pub(crate) auto_adjust: bool,
}

/// A value that exists until its owner is dropped, and is then dropped by another thread.
pub(crate) struct Held<T>(Option<Arc<T>>);

impl<T> Deref for Held<T> {
    type Target = Arc<T>;

    fn deref(&self) -> &Arc<T> {
        self.0.as_ref().expect("only the owner's `drop` takes it")
    }
}

/// What an operation that found no room has waited for.
#[derive(Default)]
pub(crate) struct Waits {
    since: Option<Instant>,
    sweeps: usize,
    /// How often it was tried once more after all freed memory had become available.
    requests: usize,
}

impl OpenStore {
    pub(crate) fn new(open: OpenIndex, options: &StoreOptions) -> Arc<Self> {
        let open = Arc::new(open);
        open.pool.limit_blocks(options.quota_bytes, options.reserve_bytes);
        let sweeps = options.maintenance && options.sweep && !open.pool.reads_only();
        let sweeper = sweeps.then(|| Sweeper::new(Arc::clone(&open)));
        let open = Held(Some(open));
        Arc::new(Self { upkeep: OnceLock::new(), sweeper, open, auto_adjust: options.auto_adjust })
    }

    /// Starts the upkeep, which calls `shut_out` when it detects that the membership has ended.
    ///
    /// # Errors
    /// Fails if the pool fails, or the system has no thread left.
    pub(crate) fn keep_up(&self, shut_out: impl Fn() + Send + 'static) -> Result<(), Error> {
        let (open, sweeper) = (Arc::clone(&self.open), self.sweeper.clone());
        let upkeep = Upkeep::start(open, self.auto_adjust, sweeper, shut_out)?;
        self.upkeep.get_or_init(|| upkeep);
        Ok(())
    }

    /// Waits for room after an operation of `client` found none. After [`Room::Freed`] the
    /// operation must be tried again.
    #[cold]
    pub(crate) async fn make_room(&self, client: &mut StoreClient, waits: &mut Waits) -> Room {
        let since = *waits.since.get_or_insert_with(Instant::now);
        if waits.requests < REQUESTS_MAX && since.elapsed() < TRIES_MAX {
            match self.find_room(client).await {
                Room::Freed => return Room::Freed,
                held @ Room::HeldBack(_) => return held,
                Room::Full | Room::NotYet => {
                    // Room may have been freed before the request.
                    waits.requests += 1;
                    return Room::Freed;
                }
            }
        }
        if let Some(upkeep) = self.upkeep.get() {
            upkeep.rooms().confirm_full();
        }
        let Some(sweeper) = self.sweeper.as_ref().filter(|_| waits.sweeps < SWEEPS_MAX) else {
            return Room::Full;
        };
        waits.sweeps += 1;
        if sweeper.make_room().await { Room::Freed } else { Room::Full }
    }

    /// Waits while a snapshot holds changes.
    ///
    /// # Errors
    /// Fails if the pool fails.
    #[cold]
    pub(crate) async fn await_changes(&self, client: &mut StoreClient) -> Result<(), Error> {
        let open = &self.open;
        if let Some(upkeep) = self.upkeep.get() {
            upkeep.holds().wait(&open.pool).await;
            return Ok(());
        }
        while open.pool.holds_changes() {
            open.maintain(client, false).await?;
            client.pause().await;
        }
        Ok(())
    }

    async fn find_room(&self, client: &mut StoreClient) -> Room {
        let pool = &self.open.pool;
        let Some(upkeep) = self.upkeep.get() else {
            let rest = async |client: &mut StoreClient| {
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

impl Drop for OpenStore {
    /// Ends the threads, frees retired objects, and closes the pool. Waits for memory nodes that do
    /// not respond, at most for a failover and [`CLOSE_PATIENCE`].
    fn drop(&mut self) {
        let Some(open) = self.open.0.take() else { return };
        let (upkeep, sweeper) = (self.upkeep.take(), self.sweeper.take());
        let fabric = open.pool.fabric();
        // Only memory nodes that are processes have ids, and only they can hang.
        if fabric.remote_nodes().node_id(0).is_none() {
            return close(upkeep, sweeper, &open);
        }
        let patience = fabric.capabilities().failover + CLOSE_PATIENCE;
        let (ended, has_ended) = mpsc::channel::<()>();
        let closing = std::thread::Builder::new().name("darter-close".to_owned()).spawn(move || {
            close(upkeep, sweeper, &open);
            drop(open);
            drop(ended);
        });
        // The thread waits for nodes as long as operations do.
        if closing.is_ok() {
            let _ = has_ended.recv_timeout(patience);
        }
    }
}

/// Ends the threads, then frees retired objects: only the index can scrub objects that it has
/// unlinked, so this comes before the pool closes with its last handle. Objects that cannot be
/// freed, because other processes hold them back or the fabric fails, are left to a repair.
fn close(upkeep: Option<Upkeep>, sweeper: Option<Arc<Sweeper>>, open: &OpenIndex) {
    drop(upkeep);
    if let Some(sweeper) = sweeper {
        sweeper.stop();
    }
    if open.is_shut_out() {
        // The pool refuses every verb: this process counts as dead.
        open.pool.abandon();
    } else if let Ok(mut client) = open.pool.client() {
        let _ = block_on(open.settle(&mut client));
    }
}
