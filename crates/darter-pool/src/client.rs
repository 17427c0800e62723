//! One thread's or task's access to a pool: verbs, pins, allocation, retirement.
//!
//! [`Client::pin`] begins an operation; the [`Pinned`] guard ends it. A cancelled operation drops its guard while verbs
//! may still be on their way: the pin then stays until the endpoint has seen them complete (rule R6), so nothing the
//! operation had in hand is reused under a late verb. For the same reason objects given to
//! [`Client::free_unpublished`] while verbs are on their way are retired instead.

use darter_fabric::{Batch, Endpoint, Fabric, FabricError, GlobalAddr, ObjectState, OpKind, mutant};
use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::epoch::{ClientState, lock};
use crate::layout::class_in;
use crate::limbo::{Limbo, Retired};
use crate::magazine::Magazine;
use crate::pool::Shared;
use crate::size_class::{CLASSES, class_bytes, class_of};
use crate::{AllocKind, Pool, PoolError, Unlinked};

/// Operations between looks at whether upkeep is due.
const UPKEEP_OPERATIONS: u32 = 1024;
/// Bags of garbage in one such span that make upkeep due at the next operation.
const UPKEEP_BAGS: u32 = 16;

/// One thread's or task's access to a pool.
#[expect(clippy::struct_excessive_bools, reason = "each is looked at alone, on its own path")]
pub struct Client<F: Fabric> {
    pool: Pool<F>,
    /// There until the client is dropped.
    endpoint: Option<F::Endpoint>,
    state: Arc<ClientState>,
    magazines: Vec<Option<Arc<Magazine>>>,
    epoch: u64,
    /// [`Pinned`] guards alive.
    depth: u32,
    /// The pin outlived its guard because verbs were on their way.
    lingers: bool,
    /// The operation has had a [`crate::Hold`].
    has_held: bool,
    /// Objects from `take_graced` may be in hand.
    has_hand: bool,
    until_upkeep: u32,
    bags: u32,
    /// A bit for each node that had no room at the last try: others' magazines are then as good.
    full: [u64; 4],
    /// A simulation refused the allocation under way.
    refused: bool,
}

impl<F: Fabric> std::fmt::Debug for Client<F> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Client")
            .field("pool", &self.pool)
            .field("pinned", &self.state.pinned())
            .finish_non_exhaustive()
    }
}

impl<F: Fabric> Client<F> {
    pub(crate) fn new(pool: Pool<F>) -> Result<Self, PoolError> {
        let endpoint = pool.shared.fabric.endpoint()?;
        let state = pool.shared.clients.add(endpoint.orphans());
        let sizes = usize::from(pool.shared.layout.node_count()) * AllocKind::COUNT * CLASSES;
        Ok(Self {
            epoch: pool.epoch(),
            endpoint: Some(endpoint),
            state,
            magazines: vec![None; sizes],
            depth: 0,
            lingers: false,
            has_held: false,
            has_hand: false,
            until_upkeep: UPKEEP_OPERATIONS,
            bags: 0,
            full: [0; 4],
            refused: false,
            pool,
        })
    }

    /// The pool.
    pub fn pool(&self) -> &Pool<F> {
        &self.pool
    }

    /// The endpoint below.
    #[inline]
    pub fn endpoint(&self) -> &F::Endpoint {
        match &self.endpoint {
            Some(endpoint) => endpoint,
            None => unreachable!("the endpoint is there until drop"),
        }
    }

    #[inline]
    fn endpoint_mut(&mut self) -> &mut F::Endpoint {
        match &mut self.endpoint {
            Some(endpoint) => endpoint,
            None => unreachable!("the endpoint is there until drop"),
        }
    }

    pub(crate) fn parts(&mut self) -> (&Shared<F>, &mut F::Endpoint) {
        match &mut self.endpoint {
            Some(endpoint) => (&self.pool.shared, endpoint),
            None => unreachable!("the endpoint is there until drop"),
        }
    }

    /// An empty batch.
    #[inline]
    pub fn batch(&mut self) -> Batch {
        self.endpoint_mut().batch()
    }

    /// Posts a batch and waits for it: one round trip.
    ///
    /// # Errors
    /// The fabric's.
    #[inline]
    pub async fn submit(&mut self, batch: Batch) -> Result<Batch, FabricError> {
        self.endpoint_mut().submit(batch).await
    }

    /// Gives a batch's buffers back.
    #[inline]
    pub fn recycle(&mut self, batch: Batch) {
        self.endpoint_mut().recycle(batch);
    }

    /// Lets others go on for about a millisecond of the provider's clock.
    pub async fn pause(&mut self) {
        self.endpoint_mut().pause().await;
    }

    /// Counts a lost race of the current operation.
    #[inline]
    pub fn retried(&mut self) {
        self.endpoint_mut().retried();
    }

    /// Begins an operation of this kind. Does upkeep first, on the operation's account, when this client has had 1,024
    /// operations since the last look and garbage waits. Inside another pin of the same client it only counts.
    ///
    /// # Errors
    /// Those of [`Pool::maintain`], when upkeep was due.
    #[inline]
    pub async fn pin(&mut self, kind: OpKind) -> Result<Pinned<'_, F>, PoolError> {
        self.endpoint_mut().begin(kind);
        if self.depth == 0 {
            self.until_upkeep = self.until_upkeep.saturating_sub(1);
            if self.until_upkeep == 0 {
                // Boxed, so that the future of every operation need not have room for it.
                Box::pin(self.due_upkeep()).await?;
            }
            self.enter();
        }
        self.depth += 1;
        Ok(Pinned { client: self })
    }

    #[inline]
    fn enter(&mut self) {
        if self.has_hand || self.lingers {
            self.enter_slowly();
        }
        if !self.lingers {
            self.epoch = self.state.pin(&self.pool.shared.clients);
        }
        let epoch = self.epoch;
        self.endpoint_mut().note_pin(Some(epoch));
    }

    #[cold]
    fn enter_slowly(&mut self) {
        if self.lingers {
            // From here on the pin is this operation's too: nobody else may end it.
            let lingers = std::mem::take(&mut *lock(&self.state.lingering));
            self.lingers = lingers
                && self.endpoint().in_flight() > 0
                && !mutant!("lingering-pin-moved-by-the-next-operation");
        }
        lock(&self.state.left_over).append(&mut lock(&self.state.abandoned));
        self.settle_holds();
        self.has_hand = self.has_hand && !Limbo::settle_hand(&self.state.ring);
    }

    #[inline]
    fn leave(&mut self) {
        self.depth -= 1;
        if self.depth == 0 {
            self.endpoint_mut().note_pin(None);
            self.lingers =
                self.endpoint().in_flight() > 0 && !mutant!("pin-dropped-with-a-cancelled-operation");
            if self.lingers {
                *lock(&self.state.lingering) = true;
                return;
            }
            if self.has_held {
                self.settle_holds();
            }
            self.state.unpin();
        }
    }

    /// What the last operation abandoned is over, unless its verbs are still on their way.
    #[cold]
    fn settle_holds(&mut self) {
        if self.has_held && (!self.lingers || mutant!("hold-over-before-its-late-verbs")) {
            self.has_held = false;
            self.pool.shared.holds.settle(&self.state);
        }
    }

    /// What earlier operations of this client abandoned is over when nothing of theirs is on its way: an operation must not wait
    /// for what only its own end would settle.
    pub(crate) fn settle_own_holds(&mut self) {
        if self.has_held && self.endpoint().in_flight() == 0 {
            self.pool.shared.holds.settle(&self.state);
        }
    }

    /// The operation under way has a hold.
    pub(crate) fn note_hold(&mut self) -> Arc<ClientState> {
        self.has_held = true;
        Arc::clone(&self.state)
    }

    #[cold]
    async fn due_upkeep(&mut self) -> Result<(), PoolError> {
        self.until_upkeep = UPKEEP_OPERATIONS;
        self.bags = 0;
        // Under pressure the epoch has to pass twice beyond the garbage's stamp, once a round.
        let rounds = if self.pool.shared.upkeep.take_pressure() { 4 } else { 1 };
        for _ in 0..rounds {
            if self.pool.shared.limbo.waiting() > 0 || !Limbo::is_empty(&self.state.ring) {
                self.upkeep().await?;
            }
        }
        Ok(())
    }

    pub(crate) async fn upkeep(&mut self) -> Result<(), PoolError> {
        self.release_lingering_pin();
        let (shared, endpoint) = self.parts();
        shared.upkeep(endpoint).await
    }

    pub(crate) async fn settle(&mut self) -> Result<(), PoolError> {
        self.release_lingering_pin();
        self.flush_magazines();
        let (shared, endpoint) = self.parts();
        shared.settle(endpoint).await
    }

    /// Ends a pin that outlived its operation, when its verbs have completed.
    fn release_lingering_pin(&mut self) {
        if self.depth == 0 && self.lingers {
            self.pool.shared.reap(&self.state);
            self.lingers = *lock(&self.state.lingering);
            self.settle_holds();
        }
    }

    /// The epoch this client is pinned at, or was last. What one operation read may be used by a later one as long as
    /// both are pinned at the same epoch (rule R4).
    #[inline]
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    #[inline]
    fn magazine_index(node: u8, kind: AllocKind, class: u8) -> usize {
        (usize::from(node) * AllocKind::COUNT + kind as usize) * CLASSES + usize::from(class)
    }

    /// Allocates from this client's magazine, touching nothing shared; `None` when it is empty: call [`Client::alloc`].
    #[inline]
    pub fn try_alloc(&mut self, node: u8, bytes: u64, kind: AllocKind) -> Option<GlobalAddr> {
        let class = class_of(bytes)?;
        if self.endpoint_mut().refuses_allocation() {
            self.refused = true;
            return None;
        }
        let magazine = self.magazines.get(Self::magazine_index(node, kind, class))?.as_ref()?;
        let object = magazine.pop()?;
        self.pool.shared.fabric.note_object(object, class_bytes(class), ObjectState::Allocated);
        if let Some(next) = magazine.peek() {
            // Written by the operation after this one.
            self.endpoint().prefetch(next, (class_bytes(class) / 8) as usize);
        }
        Some(object)
    }

    /// Allocates an object of at least `bytes` bytes, on `node` if it has room, else on any other. Its contents are
    /// undefined. An operation that does not publish it gives it back by [`Client::free_unpublished`].
    ///
    /// # Errors
    /// [`PoolError::TooLarge`]; [`PoolError::OutOfSpace`], with everything stored intact; fabric errors.
    #[inline]
    pub async fn alloc(&mut self, node: u8, bytes: u64, kind: AllocKind) -> Result<GlobalAddr, PoolError> {
        if !self.refused
            && let Some(addr) = self.try_alloc(node, bytes, kind)
        {
            return Ok(addr);
        }
        if std::mem::take(&mut self.refused) {
            return Err(PoolError::OutOfSpace { needed: bytes, node });
        }
        Box::pin(self.alloc_slowly(node, bytes, kind)).await
    }

    #[cold]
    async fn alloc_slowly(&mut self, node: u8, bytes: u64, kind: AllocKind) -> Result<GlobalAddr, PoolError> {
        let class = class_in(&self.pool.shared.layout, bytes)?;
        let node = node % self.pool.nodes();
        let (full_word, full_bit) = (usize::from(node) / 64, 1_u64 << (node % 64));
        if self.full[full_word] & full_bit != 0 {
            let nodes = self.pool.nodes();
            let mut others = (1..nodes).map(|step| (u16::from(node) + u16::from(step)) % u16::from(nodes));
            if let Some(addr) = others.find_map(|node| self.try_alloc(node as u8, bytes, kind)) {
                return Ok(addr);
            }
        }
        let want = self.magazine(node, kind, class).capacity().div_ceil(2);
        let mut taken = Vec::with_capacity(want);
        let (shared, endpoint) = self.parts();
        if let Err(error) = shared.obtain(endpoint, node, kind, class, want, &mut taken).await {
            if matches!(error, PoolError::OutOfSpace { .. }) {
                // The caller is pinned, so nothing ripens now; try hard before the next operation.
                shared.upkeep.set_pressure();
                self.until_upkeep = 1;
            }
            return Err(error);
        }
        let first = taken[0];
        if first.node() == node {
            self.full[full_word] &= !full_bit;
        } else {
            self.full[full_word] |= full_bit;
        }
        // The rest goes to the magazine of the node it lies on, in an order that hands out ascending addresses.
        let magazine = self.magazine(first.node(), kind, class);
        let surplus: Vec<_> = taken[1..].iter().rev().copied().filter(|&addr| !magazine.push(addr)).collect();
        self.give_back(&surplus, class);
        self.pool.shared.fabric.note_object(first, class_bytes(class), ObjectState::Allocated);
        Ok(first)
    }

    fn magazine(&mut self, node: u8, kind: AllocKind, class: u8) -> &Magazine {
        let at = Self::magazine_index(node, kind, class);
        if self.magazines.len() <= at {
            // A node that came since.
            self.magazines.resize((usize::from(node) + 1) * AllocKind::COUNT * CLASSES, None);
        }
        let (state, shared) = (&self.state, &self.pool.shared);
        self.magazines[at].get_or_insert_with(|| {
            let objects_max = shared.magazine_objects_max.load(Ordering::Relaxed);
            let magazine = Arc::new(Magazine::new(class, objects_max));
            lock(&state.magazines).push(Arc::clone(&magazine));
            magazine
        })
    }

    fn give_back(&self, objects: &[GlobalAddr], class: u8) {
        if !objects.is_empty() {
            let mut heap = lock(&self.pool.shared.heap);
            for &addr in objects {
                heap.free(addr, class);
            }
        }
    }

    /// Gives an object back that nobody else has ever seen. `bytes` and `kind` are those of its allocation.
    pub fn free_unpublished(&mut self, addr: GlobalAddr, bytes: u64, kind: AllocKind) {
        let Some(class) = class_of(bytes) else { return };
        if self.pool.shared.layout.node(addr.node()).is_none() {
            return;
        }
        if (self.lingers || self.endpoint().in_flight() > 0) && !mutant!("draft-freed-under-late-verbs") {
            self.retire(addr, bytes, kind);
            return;
        }
        self.pool.shared.fabric.note_object(addr, class_bytes(class), ObjectState::Free);
        let magazine = self.magazine(addr.node(), kind, class);
        if !magazine.push(addr) {
            let mut surplus = if mutant!("magazine-overflow-loses-one") { vec![] } else { vec![addr] };
            for _ in 0..magazine.capacity() / 2 {
                surplus.extend(magazine.pop());
            }
            self.give_back(&surplus, class);
        }
    }

    /// Hands over an object that this operation has unlinked: it is freed when nobody can be reading it any more.
    /// Call while pinned.
    pub fn retire(&mut self, addr: GlobalAddr, bytes: u64, _kind: AllocKind) {
        let Some(class) = class_of(bytes) else { return };
        let object = Retired::new(addr, class);
        if self.pool.shared.limbo.retire(&self.state.ring, object, self.birth()) {
            self.bags += 1;
            if self.bags >= UPKEEP_BAGS {
                self.until_upkeep = 1;
            }
        }
    }

    /// Hands over an object that this operation has unlinked and that hints may still name (rule R3). When nobody can
    /// have it from the tree any more, [`Client::take_graced`] brings it back with its note; clear the hints, then
    /// [`Client::retire`] it, or [`Client::put_back`] if that failed. Call while pinned.
    pub fn unlink(&mut self, addr: GlobalAddr, bytes: u64, kind: AllocKind, note: Box<[u8]>) {
        let object = Unlinked { addr, bytes, kind, note, born: self.birth(), hand: None };
        self.pool.shared.limbo.unlink(&self.state.ring, object);
    }

    /// The epoch that what is unlinked now counts as born in: this operation's. Out of any operation none is known.
    fn birth(&self) -> u64 {
        let epoch = if mutant!("born-in-the-process-epoch") { self.pool.epoch() } else { self.epoch };
        if self.depth > 0 { epoch } else { 0 }
    }

    /// Objects of any client of this process that have passed their first grace. Retire each through this client, or
    /// put it back, or lose it until the next sweep. Costs nothing when there are none.
    #[inline]
    pub fn take_graced(&mut self) -> Vec<Unlinked> {
        if self.pool.shared.limbo.graced() == 0 {
            return Vec::new();
        }
        self.has_hand = true;
        self.pool.shared.limbo.take_graced(&self.state.ring)
    }

    /// Hands over an object from [`Client::take_graced`] again, for another first grace.
    pub fn put_back(&mut self, object: Unlinked) {
        self.pool.shared.limbo.unlink(&self.state.ring, object);
    }

    /// Empties the magazines into the process's heap.
    pub(crate) fn flush_magazines(&mut self) {
        let mut heap = lock(&self.pool.shared.heap);
        for magazine in self.magazines.iter().flatten() {
            while let Some(addr) = magazine.pop() {
                heap.free(addr, magazine.class);
            }
        }
    }
}

impl<F: Fabric> Drop for Client<F> {
    fn drop(&mut self) {
        self.flush_magazines();
        let shared = &self.pool.shared;
        shared.limbo.collect(&self.state.ring);
        // Its pin outlives it as long as its last verbs are on their way.
        self.state.gone.store(true, Ordering::SeqCst);
        let mut lingering = lock(&self.state.lingering);
        *lingering = self.endpoint.take().is_some_and(|endpoint| endpoint.in_flight() > 0)
            && !mutant!("pin-of-a-dropped-client-ends-at-once");
        if !*lingering {
            shared.end_pin(&self.state, &mut lingering);
        }
    }
}

/// An operation under way: a client whose pin keeps what it reads from being freed. Derefs to the client.
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
