//! One thread's or task's access to a pool: verbs, pins, allocation, retirement.
//!
//! A client consists of an endpoint, a stock of free objects (`blocks`) and its part in reclamation
//! (`reclaim`). [`Client::pin`] begins an operation; dropping the [`Pinned`] guard ends it. A
//! cancelled operation drops its guard while verbs may still be in flight: the pin then stays until
//! the endpoint has seen them complete (rule R6), so that no object the operation was using is
//! reused under a late verb. For the same reason, objects passed to [`Client::free_unpublished`]
//! while verbs are in flight are retired instead.

use darter_fabric::{Batch, Endpoint, Fabric, FabricError, GlobalAddr, OpKind};
use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::task::Poll;

use crate::blocks::{AllocKind, Found, MemberId, Object, Stock, class_of};
use crate::error::PoolError;
use crate::members::is_live;
use crate::pool::Pool;
use crate::process::Process;
use crate::reclaim::{Leftovers, Reclaimer, SnapshotId, Unlinked};
use crate::round_trip::{self, Completed, Swap};

/// One thread's or task's access to a pool.
pub struct Client<F: Fabric> {
    pool: Pool<F>,
    link: Link<F::Endpoint>,
    stock: Stock,
    reclaimer: Reclaimer,
    /// Whether to yield before each batch.
    yields: bool,
}

/// A client's endpoint, present until the client is dropped.
struct Link<E>(Option<E>);

impl<E> Deref for Link<E> {
    type Target = E;

    #[inline]
    fn deref(&self) -> &E {
        match &self.0 {
            Some(endpoint) => endpoint,
            None => unreachable!("the endpoint is present until drop"),
        }
    }
}

impl<E> DerefMut for Link<E> {
    #[inline]
    fn deref_mut(&mut self) -> &mut E {
        match &mut self.0 {
            Some(endpoint) => endpoint,
            None => unreachable!("the endpoint is present until drop"),
        }
    }
}

impl<F: Fabric> std::fmt::Debug for Client<F> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Client")
            .field("pool", &self.pool)
            .field("pinned", &self.reclaimer.pinned())
            .finish_non_exhaustive()
    }
}

impl<F: Fabric> Pool<F> {
    /// Creates a client, for one thread or task.
    ///
    /// # Errors
    /// If the fabric provides no endpoint.
    pub fn client(&self) -> Result<Client<F>, PoolError> {
        let Process { blocks, reclamation, .. } = &*self.process;
        let endpoint = blocks.fabric().endpoint()?;
        let stock = Stock::new(blocks);
        Ok(Client {
            reclaimer: Reclaimer::new(reclamation, &endpoint, stock.magazines()),
            stock,
            link: Link(Some(endpoint)),
            pool: self.clone(),
            yields: false,
        })
    }
}

impl<F: Fabric> Client<F> {
    /// Returns the pool.
    pub fn pool(&self) -> &Pool<F> {
        &self.pool
    }

    /// Returns the endpoint.
    #[inline]
    pub fn endpoint(&self) -> &F::Endpoint {
        &self.link
    }

    pub(crate) fn parts(&mut self) -> (&Process<F>, &mut F::Endpoint) {
        (&self.pool.process, &mut self.link)
    }

    /// Returns an empty batch.
    #[inline]
    pub fn batch(&mut self) -> Batch {
        self.link.batch()
    }

    /// Posts a batch and waits for it: one round trip.
    ///
    /// # Errors
    /// The fabric's.
    #[inline]
    pub async fn submit(&mut self, batch: Batch) -> Result<Batch, FabricError> {
        if self.yields {
            yield_once().await;
        }
        self.link.submit(batch).await
    }

    /// Calls a procedure of a memory node: one round trip and no verb.
    ///
    /// # Errors
    /// The fabric's; [`FabricError::Call`] reports the outcome of the call.
    pub async fn call(&mut self, node: u8, procedure: u64, words: Vec<u64>) -> Result<Vec<u64>, FabricError> {
        if self.yields {
            yield_once().await;
        }
        self.link.call(node, procedure, words).await
    }

    /// Sets whether this client's futures are pending once before each batch, even if every batch
    /// completes at once. The task that polls them can then pace a long walk, or end it.
    pub fn set_yielding(&mut self, yes: bool) {
        self.yields = yes;
    }

    /// Returns a batch's buffers to the endpoint.
    #[inline]
    pub fn recycle(&mut self, batch: Batch) {
        self.link.recycle(batch);
    }

    /// Posts a batch and waits for it: one round trip. Dropping the result returns the batch's
    /// buffers.
    ///
    /// # Errors
    /// The fabric's.
    #[inline]
    pub async fn complete(&mut self, batch: Batch) -> Result<Completed<'_, F::Endpoint>, FabricError> {
        if self.yields {
            yield_once().await;
        }
        round_trip::submit(&mut *self.link, batch).await
    }

    /// Posts the verbs that `fill` adds and ignores their results: one round trip.
    ///
    /// # Errors
    /// The fabric's.
    #[inline]
    pub async fn post(&mut self, fill: impl FnOnce(&mut Batch)) -> Result<(), FabricError> {
        round_trip::post(&mut *self.link, fill).await
    }

    /// Reads `N` words from `addr` by one READ: one round trip.
    ///
    /// # Errors
    /// The fabric's.
    #[inline]
    pub async fn read_words<const N: usize>(&mut self, addr: GlobalAddr) -> Result<[u64; N], FabricError> {
        round_trip::read_words(&mut *self.link, addr).await
    }

    /// Reads the words at these addresses, in this order, by one READ each: one round trip.
    ///
    /// # Errors
    /// The fabric's.
    #[inline]
    pub async fn read_each<const N: usize>(
        &mut self,
        addrs: [GlobalAddr; N],
    ) -> Result<[u64; N], FabricError> {
        round_trip::read_each(&mut *self.link, addrs).await
    }

    /// Reads `words` words from `addr` by one READ: one round trip.
    ///
    /// # Errors
    /// The fabric's.
    #[inline]
    pub async fn read(&mut self, addr: GlobalAddr, words: usize) -> Result<Vec<u64>, FabricError> {
        round_trip::read(&mut *self.link, addr, words).await
    }

    /// Posts a batch, waits for it, and leaves it empty: one round trip.
    ///
    /// # Errors
    /// The fabric's.
    #[inline]
    pub async fn send(&mut self, batch: &mut Batch) -> Result<(), FabricError> {
        round_trip::send(&mut *self.link, batch).await
    }

    /// Swaps the word at `addr` from `expected` to `desired` by one CAS: one round trip.
    ///
    /// # Errors
    /// The fabric's.
    #[inline]
    pub async fn cas(&mut self, addr: GlobalAddr, expected: u64, desired: u64) -> Result<Swap, FabricError> {
        round_trip::cas(&mut *self.link, addr, expected, desired).await
    }

    /// Lets other tasks run for about a millisecond of the provider's clock.
    pub async fn pause(&mut self) {
        self.link.pause().await;
    }

    /// Counts a lost race of the current operation.
    #[inline]
    pub fn retried(&mut self) {
        self.link.retried();
    }

    /// Begins an operation of this kind. Runs upkeep first, as part of the operation, if this
    /// client has had 1,024 operations since the last check and garbage waits. Inside another pin
    /// of the same client it only counts the operation.
    ///
    /// # Errors
    /// Those of [`Pool::maintain`], when upkeep was due.
    #[inline]
    pub async fn pin(&mut self, kind: OpKind) -> Result<Pinned<'_, F>, PoolError> {
        self.link.begin(kind);
        self.pin_again().await
    }

    /// Begins an operation that changes keys: pins the client around the operations of the index that
    /// carry it out. If a snapshot is open ([`Client::open_snapshot`]), the old values of these keys
    /// must be preserved before they change.
    ///
    /// # Errors
    /// [`PoolError::ChangesHeld`] while a snapshot begins, which takes some milliseconds; and those of
    /// [`Client::pin`].
    #[inline]
    pub async fn pin_for_change(&mut self) -> Result<Pinned<'_, F>, PoolError> {
        let pinned = self.pin_again().await?;
        if pinned.pool.process.reclamation.holds_changes() {
            return Err(PoolError::ChangesHeld);
        }
        Ok(pinned)
    }

    /// Returns the open snapshot, as this process knows it. While the client is pinned for a change,
    /// that is exact.
    #[inline]
    pub fn open_snapshot(&self) -> Option<SnapshotId> {
        self.pool.process.reclamation.open_snapshot()
    }

    #[inline]
    async fn pin_again(&mut self) -> Result<Pinned<'_, F>, PoolError> {
        if !self.reclaimer.is_pinned() {
            if self.reclaimer.count_operation() {
                // Boxed, so that the future of every operation need not reserve space for it.
                Box::pin(self.due_upkeep()).await?;
            }
            let epoch = self.reclaimer.enter(&self.pool.process.reclamation, &*self.link);
            self.note_pin(Some(epoch));
            if self.pool.process.blocks.is_handing_over() {
                self.flush_magazines();
            }
        }
        self.reclaimer.nest();
        Ok(Pinned { client: self })
    }

    #[inline]
    fn note_pin(&mut self, epoch: Option<u64>) {
        if let Some(observer) = self.link.observer() {
            observer.note_pin(epoch);
        }
    }

    #[inline]
    fn leave(&mut self) {
        if self.reclaimer.unnest() {
            self.note_pin(None);
            self.reclaimer.leave(&*self.link);
        }
    }

    #[cold]
    async fn due_upkeep(&mut self) -> Result<(), PoolError> {
        for _ in 0..self.reclaimer.take_due_rounds(&self.pool.process.reclamation) {
            if self.reclaimer.has_garbage(&self.pool.process.reclamation) {
                self.maintain().await?;
            }
        }
        Ok(())
    }

    /// Runs one round of upkeep ([`Pool::maintain`]).
    ///
    /// # Errors
    /// As [`Pool::maintain`].
    pub async fn maintain(&mut self) -> Result<(), PoolError> {
        self.reclaimer.release_lingering_pin(&self.pool.process.reclamation);
        let (process, endpoint) = self.parts();
        process.upkeep(endpoint).await
    }

    pub(crate) async fn settle(&mut self) -> Result<(), PoolError> {
        self.reclaimer.release_lingering_pin(&self.pool.process.reclamation);
        self.flush_magazines();
        let (process, endpoint) = self.parts();
        process.settle(endpoint).await
    }

    /// Does the work that this client's earlier operations left, if none of their verbs is in
    /// flight.
    pub fn settle_leftovers(&mut self) {
        self.reclaimer.settle_own_leftovers(&*self.link);
    }

    /// Whether this incarnation of a member has not ended. An incarnation that never existed counts
    /// as ended.
    ///
    /// # Errors
    /// Fabric errors.
    pub async fn is_live(&mut self, member: MemberId) -> Result<bool, PoolError> {
        is_live(&mut *self.link, member).await
    }

    /// Returns the epoch at which this client is pinned, or was last. A later operation may use the
    /// data that an earlier one read as long as both are pinned at the same epoch (rule R4).
    #[inline]
    pub fn epoch(&self) -> u64 {
        self.reclaimer.epoch()
    }

    /// Allocates from this client's magazine without touching shared state. Returns `None` if the
    /// magazine is empty: then call [`Client::alloc`].
    #[inline]
    pub fn try_alloc(&mut self, node: u8, bytes: u64, kind: AllocKind) -> Option<GlobalAddr> {
        self.note_unpinned();
        self.stock.take(&self.pool.process.blocks, &mut *self.link, node, bytes, kind)
    }

    /// Allocates an object of at least `bytes` bytes, on `node` if it has room, otherwise on
    /// another node. Its contents are undefined. An operation that does not publish the object
    /// returns it by [`Client::free_unpublished`].
    ///
    /// # Errors
    /// [`PoolError::TooLarge`]; [`PoolError::OutOfSpace`], which leaves all stored data intact;
    /// [`PoolError::ReadOnly`]; fabric errors.
    #[inline]
    pub async fn alloc(&mut self, node: u8, bytes: u64, kind: AllocKind) -> Result<GlobalAddr, PoolError> {
        if !self.stock.is_refused()
            && let Some(addr) = self.try_alloc(node, bytes, kind)
        {
            return Ok(addr);
        }
        self.note_unpinned();
        if self.stock.take_refusal() {
            return Err(PoolError::OutOfSpace { needed: bytes, node });
        }
        Box::pin(self.alloc_slowly(node, bytes, kind)).await
    }

    /// Keeps the process's blocks if an object is taken or given back outside any operation, as
    /// some tests do: it is unknown when the object is linked.
    #[inline]
    fn note_unpinned(&self) {
        if !self.reclaimer.is_pinned() {
            self.pool.process.blocks.keep_blocks();
        }
    }

    #[cold]
    async fn alloc_slowly(&mut self, node: u8, bytes: u64, kind: AllocKind) -> Result<GlobalAddr, PoolError> {
        let Self { pool, link, stock, reclaimer, .. } = self;
        let (process, endpoint) = (&*pool.process, &mut **link);
        process.members.verify_may_write()?;
        let preferred = (node, process.members.usable_nodes());
        let shortage = match stock.look_elsewhere(&process.blocks, endpoint, preferred, bytes, kind)? {
            Found::Object(addr) => return Ok(addr),
            Found::Nothing(shortage) => shortage,
        };
        let mut found = Vec::with_capacity(shortage.want);
        if let Err(error) = process.obtain(endpoint, stock.magazines(), shortage, &mut found).await {
            if matches!(error, PoolError::OutOfSpace { .. }) {
                reclaimer.note_out_of_space(&process.reclamation);
            }
            return Err(error);
        }
        Ok(stock.refill(&process.blocks, shortage, &found))
    }

    /// Gives back an object that has never been published. `bytes` and `kind` are those of its
    /// allocation.
    pub fn free_unpublished(&mut self, addr: GlobalAddr, bytes: u64, kind: AllocKind) {
        let Some(class) = class_of(bytes) else { return };
        let blocks = &self.pool.process.blocks;
        if blocks.layout().node(addr.node()).is_none() {
            return;
        }
        let has_late_verbs = self.reclaimer.lingers() || self.link.in_flight() > 0;
        if has_late_verbs {
            // Outside any operation, the object counts as older than all others.
            self.reclaimer.retire(&self.pool.process.reclamation, Object::new(addr, class));
            return;
        }
        self.note_unpinned();
        self.stock.put(blocks, addr, class, kind);
    }

    /// Returns objects of any client of this process that have passed their first grace period.
    /// Retire each through this client, put it back, or leave it to the next sweep. Costs nothing
    /// if there are none.
    #[inline]
    pub fn take_graced(&mut self) -> Vec<Unlinked> {
        self.reclaimer.take_graced(&self.pool.process.reclamation)
    }

    /// Returns an object from [`Client::take_graced`] to wait for another first grace period.
    pub fn put_back(&mut self, object: Unlinked) {
        self.reclaimer.put_back(&self.pool.process.reclamation, object);
    }

    /// Empties the magazines into the process's heap.
    pub(crate) fn flush_magazines(&mut self) {
        self.stock.flush(&self.pool.process.blocks);
    }
}

impl<F: Fabric> Drop for Client<F> {
    fn drop(&mut self) {
        let Process { blocks, reclamation, .. } = &*self.pool.process;
        self.stock.close(blocks);
        self.reclaimer.close(reclamation, self.link.0.take());
    }
}

/// Returns `Pending` once.
#[cold]
async fn yield_once() {
    let mut has_yielded = false;
    std::future::poll_fn(|context| {
        if std::mem::replace(&mut has_yielded, true) {
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

/// An operation under way: a client whose pin keeps the objects that it reads from being freed.
/// Derefs to the client.
#[derive(Debug)]
pub struct Pinned<'a, F: Fabric> {
    client: &'a mut Client<F>,
}

impl<F: Fabric> Deref for Pinned<'_, F> {
    type Target = Client<F>;

    #[inline]
    fn deref(&self) -> &Client<F> {
        self.client
    }
}

impl<F: Fabric> DerefMut for Pinned<'_, F> {
    #[inline]
    fn deref_mut(&mut self) -> &mut Client<F> {
        self.client
    }
}

impl<F: Fabric> Drop for Pinned<'_, F> {
    #[inline]
    fn drop(&mut self) {
        self.client.leave();
    }
}

impl<F: Fabric> Pinned<'_, F> {
    /// Retires an object that this operation has unlinked: it is freed once no reader can hold it.
    pub fn retire(&mut self, addr: GlobalAddr, bytes: u64, _kind: AllocKind) {
        let Some(class) = class_of(bytes) else { return };
        let Client { pool, reclaimer, .. } = &mut *self.client;
        reclaimer.retire(&pool.process.reclamation, Object::new(addr, class));
    }

    /// Retires an object that this operation has unlinked and that hints may still name (rule R3).
    /// Once no reader can reach it through the tree, [`Client::take_graced`] returns it with its
    /// note; clear the hints, then [`Pinned::retire`] it, or [`Client::put_back`] if that failed.
    pub fn unlink(&mut self, addr: GlobalAddr, bytes: u64, kind: AllocKind, note: Box<[u8]>) {
        let Client { pool, reclaimer, .. } = &mut *self.client;
        reclaimer.unlink(&pool.process.reclamation, addr, bytes, kind, note);
    }

    /// Returns the list of work to do once this operation's verbs have completed, whether it ends
    /// or is cancelled.
    pub fn leftovers(&mut self) -> Arc<Leftovers> {
        self.client.reclaimer.leftovers()
    }
}
