//! Sherman's hierarchical on-chip lock (section 2.1), which the authors of Sherman and SMART also
//! use in ART.
//!
//! *Global tables.* Each memory node has a table of lock words. A page is locked by the word of its
//! own node that its address hashes to, so that a WRITE to the page and the unlocking WRITE can
//! share a doorbell batch in order. The tables are placed in NIC memory if the fabric supports it
//! ([`Fabric::place_on_chip`]).
//!
//! *Local tables.* The clients of a compute node first queue for a local lock of the same number.
//! They hand the global lock over to the next client in the queue, a few times in a row, without
//! accessing it.
//!
//! ```text
//! descriptor   words of a table | address of node 0's table | … of node 255's, 0 without a table       2056 bytes
//! ```
//!
//! *Two pages can share a word*, so an operation that holds one lock calls [`Locked::covers`]
//! before it takes another. It takes the other by [`Hocl::try_lock`] unless all operations take
//! their locks in one order.

use crate::compute_node::{LocalGuard, LocalLocks};
use crate::lock_token::{LockToken, LockTokens};
use crate::remote_lock::{self, Acquired};
use darter_fabric::{Batch, Fabric, GlobalAddr, NODES_MAX, OpKind};
use darter_index::{CheckReport, IndexError, Result};
use darter_pool::{AllocKind, Client, Pinned, PoolError, Swap};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Words of a table by default: 256 KiB, as Sherman puts on a NIC.
pub(crate) const TABLE_WORDS: u64 = 32_768;
const DESCRIPTOR_WORDS: usize = 1 + NODES_MAX;
const DESCRIPTOR_BYTES: u64 = DESCRIPTOR_WORDS as u64 * 8;

/// How a lock is released.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unlock {
    /// By a WRITE that shares a doorbell batch with the last WRITEs under the lock (Sherman,
    /// section 2.2).
    Combined,
    /// By a separate WRITE: one more round trip.
    Apart,
    /// By a separate FAA, as in FG (SIGMOD 2019). If a NIC executes the atomics of an address one
    /// after another, it waits after the CASes of all clients that want the lock.
    Atomic,
}

/// The parts of the lock in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HoclOptions {
    /// Clients of a compute node queue for a local lock first.
    pub local: bool,
    /// Maximum number of handovers in a row within a compute node; needs `local`.
    pub handovers_max: u32,
    /// The tables are placed in NIC memory.
    pub on_chip: bool,
    /// How a lock is released.
    pub unlock: Unlock,
}

impl Default for HoclOptions {
    /// All parts.
    fn default() -> Self {
        Self { local: true, handovers_max: 8, on_chip: true, unlock: Unlock::Combined }
    }
}

impl HoclOptions {
    /// No part: words in the pool on which clients spin, as before Sherman.
    pub fn spin() -> Self {
        Self { local: false, handovers_max: 0, on_chip: false, unlock: Unlock::Atomic }
    }
}

/// The locks of an index.
#[derive(Debug)]
pub(crate) struct Hocl {
    descriptor: GlobalAddr,
    words: u64,
    /// By node: the address of its table, 0 if this process does not know it.
    tables: Box<[AtomicU64]>,
    tokens: Arc<LockTokens>,
    local: Option<Arc<LocalLocks<LockToken>>>,
    options: HoclOptions,
}

/// A lock that is held until [`Locked::end`], or until it is dropped. After a drop others take it
/// over once the operation's verbs have completed.
#[derive(Debug)]
pub(crate) struct Locked {
    word: GlobalAddr,
    token: LockToken,
    local: Option<LocalGuard<LockToken>>,
    handovers_max: u32,
    unlock: Unlock,
    /// The former holder died or gave up while it held the lock: check for changes left half done.
    pub(crate) is_taken_over: bool,
    /// The batch with the unlocking WRITE was posted.
    unlocked: bool,
}

impl Hocl {
    /// Creates a descriptor without tables, in a separate batch, and returns its address, which the
    /// index has to store. `words` is rounded to a power of two for which the pool has room in one
    /// object.
    ///
    /// # Errors
    /// Errors of the pool.
    pub(crate) async fn create<F: Fabric>(client: &mut Pinned<'_, F>, words: u64) -> Result<GlobalAddr> {
        let room = (client.pool().object_bytes_max() / 8).max(1);
        let words = words.clamp(1, 1 << 24).next_power_of_two().min(1 << room.ilog2());
        let descriptor = client.alloc(0, DESCRIPTOR_BYTES, AllocKind::Inner).await?;
        let mut image = vec![0; DESCRIPTOR_WORDS];
        image[0] = words;
        client.post(|batch| batch.write(descriptor, &image)).await?;
        Ok(descriptor)
    }

    /// Frees a descriptor that lost the race to become the index's.
    pub(crate) fn free_unpublished<F: Fabric>(client: &mut Client<F>, descriptor: GlobalAddr) {
        client.free_unpublished(descriptor, DESCRIPTOR_BYTES, AllocKind::Inner);
    }

    /// Opens the locks that a descriptor describes.
    ///
    /// # Errors
    /// [`IndexError::Corrupt`]; errors of the fabric.
    pub(crate) async fn open<F: Fabric>(
        client: &mut Client<F>,
        descriptor: GlobalAddr,
        options: HoclOptions,
    ) -> Result<Self> {
        let image = client.read(descriptor, DESCRIPTOR_WORDS).await?;
        let words = image[0];
        if !words.is_power_of_two() || words > 1 << 24 {
            return Err(IndexError::corrupt(descriptor, "a lock table of an invalid length"));
        }
        let hocl = Self {
            descriptor,
            words,
            tables: image[1..].iter().map(|&table| AtomicU64::new(table)).collect(),
            tokens: LockTokens::of(client.pool()),
            local: options.local.then(Arc::default),
            options,
        };
        for &table in image[1..].iter().filter(|&&table| table != 0) {
            hocl.place(client, GlobalAddr::from_bits(table));
        }
        Ok(hocl)
    }

    fn place<F: Fabric>(&self, client: &Client<F>, table: GlobalAddr) {
        if self.options.on_chip {
            client.pool().fabric().on_chip_memory().place(table, self.words * 8);
        }
    }

    /// Returns the lock word of a page.
    ///
    /// # Errors
    /// Errors of the pool if the page's node has no table yet.
    async fn word_of<F: Fabric>(&self, client: &mut Pinned<'_, F>, page: GlobalAddr) -> Result<GlobalAddr> {
        let known = self.tables[usize::from(page.node())].load(Ordering::Acquire);
        let table = if known == 0 {
            Box::pin(self.table(client, page.node())).await?
        } else {
            GlobalAddr::from_bits(known)
        };
        // Fibonacci hashing, because pages are at regular distances.
        let hash = (page.offset() >> 3).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        Ok(table.plus((hash & (self.words - 1)) * 8))
    }

    /// Creates the tables of all nodes while there is room. Every client that creates an index
    /// calls it, because the first clients of a new index may all miss the same table at once, and
    /// each would create one.
    ///
    /// # Errors
    /// Errors of the pool and the fabric.
    pub(crate) async fn make_tables<F: Fabric>(&self, client: &mut Client<F>) -> Result<()> {
        let mut client = client.pin(OpKind::Maintain).await?;
        for node in 0..client.pool().nodes() {
            if self.tables[usize::from(node)].load(Ordering::Acquire) == 0 {
                match self.table(&mut client, node).await {
                    Ok(_) | Err(IndexError::Pool(PoolError::OutOfSpace { .. })) => {}
                    Err(error) => return Err(error),
                }
            }
        }
        Ok(())
    }

    /// Finds or creates the table of a node.
    async fn table<F: Fabric>(&self, client: &mut Pinned<'_, F>, node: u8) -> Result<GlobalAddr> {
        let bytes = self.words * 8;
        let table = client.alloc(node, bytes, AllocKind::Inner).await?;
        if table.node() != node {
            client.free_unpublished(table, bytes, AllocKind::Inner);
            return Err(PoolError::OutOfSpace { needed: bytes, node }.into());
        }
        client.post(|batch| batch.write(table, &vec![0; self.words as usize])).await?;
        let Swap { swapped: won, found } =
            client.cas(self.descriptor.plus(8 + u64::from(node) * 8), 0, table.bits()).await?;
        let table = if won {
            table
        } else {
            client.free_unpublished(table, bytes, AllocKind::Inner);
            GlobalAddr::from_bits(found)
        };
        self.place(client, table);
        self.tables[usize::from(node)].store(table.bits(), Ordering::Release);
        Ok(table)
    }

    /// Locks a page: one round trip if no client holds the lock, none if another client of this
    /// compute node hands it over.
    ///
    /// # Errors
    /// Errors of the pool and the fabric.
    pub(crate) async fn lock<F: Fabric>(
        &self,
        client: &mut Pinned<'_, F>,
        page: GlobalAddr,
    ) -> Result<Locked> {
        Ok(self.lock_reading(client, page, None).await?.0)
    }

    /// Locks a page and reads a word of it in the same round trip, unless another client of this
    /// compute node hands the lock over.
    ///
    /// # Errors
    /// Errors of the pool and the fabric.
    pub(crate) async fn lock_reading<F: Fabric>(
        &self,
        client: &mut Pinned<'_, F>,
        page: GlobalAddr,
        beside: Option<GlobalAddr>,
    ) -> Result<(Locked, Option<u64>)> {
        let word = self.word_of(client, page).await?;
        let mut local = match &self.local {
            Some(locks) => Some(locks.lock(word.bits()).await),
            None => None,
        };
        if let Some(mut token) = local.as_mut().and_then(LocalGuard::take_handed) {
            token.pass_to(client);
            let acquired = Acquired { token, is_taken_over: false, beside: None };
            return Ok((self.locked(word, acquired, local), None));
        }
        let acquired = remote_lock::acquire(&self.tokens, client, (word, beside)).await?;
        let read = acquired.beside;
        Ok((self.locked(word, acquired, local), read))
    }

    /// Locks a page unless a client holds its lock, in this compute node or another.
    ///
    /// # Errors
    /// Errors of the pool and the fabric.
    pub(crate) async fn try_lock<F: Fabric>(
        &self,
        client: &mut Pinned<'_, F>,
        page: GlobalAddr,
    ) -> Result<Option<Locked>> {
        let word = self.word_of(client, page).await?;
        let local = match &self.local {
            Some(locks) => match locks.try_lock(word.bits()) {
                Some(guard) => Some(guard),
                None => return Ok(None),
            },
            None => None,
        };
        let acquired = remote_lock::try_acquire(&self.tokens, client, word).await?;
        Ok(acquired.map(|acquired| self.locked(word, acquired, local)))
    }

    /// Locks two pages in the order of their words, or once if both have the same word. Operations
    /// that take locks only by this function and, while they hold none, by [`Hocl::lock`] never
    /// deadlock.
    ///
    /// # Errors
    /// Errors of the pool and the fabric.
    pub(crate) async fn lock_two<F: Fabric>(
        &self,
        client: &mut Pinned<'_, F>,
        one: GlobalAddr,
        other: GlobalAddr,
    ) -> Result<(Locked, Option<Locked>)> {
        let words = (self.word_of(client, one).await?, self.word_of(client, other).await?);
        let (first, second) = if words.0 <= words.1 { (one, other) } else { (other, one) };
        let locked = self.lock(client, first).await?;
        let second = if words.0 == words.1 { None } else { Some(self.lock(client, second).await?) };
        Ok((locked, second))
    }

    fn locked(&self, word: GlobalAddr, acquired: Acquired, local: Option<LocalGuard<LockToken>>) -> Locked {
        let Acquired { token, is_taken_over, .. } = acquired;
        let HoclOptions { handovers_max, unlock, .. } = self.options;
        Locked { word, token, local, handovers_max, unlock, is_taken_over, unlocked: false }
    }

    /// Adds the descriptor and the tables to the objects that a check has reached.
    ///
    /// # Errors
    /// Errors of the fabric.
    pub(crate) async fn report<F: Fabric>(
        &self,
        client: &mut Client<F>,
        report: &mut CheckReport,
    ) -> Result<()> {
        let image = client.read(self.descriptor, DESCRIPTOR_WORDS).await?;
        report.reachable.insert(self.descriptor, DESCRIPTOR_BYTES);
        report.stats.index_bytes += DESCRIPTOR_BYTES;
        for &table in image[1..].iter().filter(|&&table| table != 0) {
            report.reachable.insert(GlobalAddr::from_bits(table), self.words * 8);
            report.stats.index_bytes += self.words * 8;
        }
        Ok(())
    }
}

impl Locked {
    /// Returns whether this lock also locks that page.
    ///
    /// # Errors
    /// Errors of [`Hocl::lock`].
    pub(crate) async fn covers<F: Fabric>(
        &self,
        hocl: &Hocl,
        client: &mut Pinned<'_, F>,
        page: GlobalAddr,
    ) -> Result<bool> {
        Ok(hocl.word_of(client, page).await? == self.word)
    }

    /// Adds the unlocking WRITE, unless the lock will be handed over or is unlocked by a separate
    /// verb. Call it on the last batch posted under the lock, after its other verbs, then submit
    /// the batch and call [`Locked::end`].
    pub(crate) fn unlock_in<F: Fabric>(&mut self, fabric: &F, batch: &mut Batch) {
        let hands_over = self.local.as_ref().is_some_and(|local| local.may_hand_over(self.handovers_max));
        if self.unlock == Unlock::Combined && !hands_over {
            self.token.unlock_in(fabric, batch, self.word);
            self.unlocked = !hands_over;
        }
    }

    /// Ends the lock after all verbs under it have completed: hands it over, or unlocks it by a
    /// round trip if [`Locked::unlock_in`] has not.
    ///
    /// # Errors
    /// Errors of the fabric.
    pub(crate) async fn end<F: Fabric>(self, client: &mut Pinned<'_, F>) -> Result<()> {
        let Self { word, mut token, mut local, handovers_max, unlock, mut unlocked, .. } = self;
        while !unlocked {
            match local.take() {
                Some(guard) if guard.may_hand_over(handovers_max) => match guard.hand_over(token.leave()) {
                    Ok(()) => return Ok(()),
                    Err((guard, back)) => {
                        (local, token) = (Some(guard), back);
                        token.pass_to(client);
                    }
                },
                guard => {
                    let mut batch = client.batch();
                    if unlock == Unlock::Atomic {
                        batch.faa(word, token.word().wrapping_neg());
                    } else {
                        token.unlock_in(client.pool().fabric(), &mut batch, word);
                    }
                    client.complete(batch).await?;
                    (local, unlocked) = (guard, true);
                }
            }
        }
        token.release();
        drop(local);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use darter_fabric::{Counting, Endpoint, Local, block_on, run_all};
    use darter_pool::{Pool, PoolOptions};
    use std::future::Future;
    use std::task::{Context, Poll, Waker};

    type Locals = Counting<Local>;

    const TASKS: u64 = 6;
    const TURNS: u64 = 100;

    fn modes() -> [HoclOptions; 3] {
        let (all, spin) = (HoclOptions::default(), HoclOptions::spin());
        [all, spin, HoclOptions { unlock: Unlock::Apart, ..spin }]
    }

    fn pool() -> Pool<Locals> {
        let fabric = Counting::new(Local::memory(16 << 20, 2).unwrap());
        block_on(Pool::create(fabric, &PoolOptions::default())).unwrap()
    }

    fn open(pool: &Pool<Locals>, options: HoclOptions) -> Hocl {
        let mut client = pool.client().unwrap();
        block_on(async {
            let mut client = client.pin(OpKind::Maintain).await.unwrap();
            let descriptor = Hocl::create(&mut client, 4).await.unwrap();
            Hocl::open(&mut client, descriptor, options).await.unwrap()
        })
    }

    /// Adds one to a word without an atomic, under its lock; cancelled calls add nothing.
    async fn add_one(hocl: &Hocl, client: &mut Client<Locals>, page: GlobalAddr, gives_up: bool) {
        let mut client = client.pin(OpKind::Update).await.unwrap();
        let mut locked = hocl.lock(&mut client, page).await.unwrap();
        if gives_up {
            return;
        }
        let mut batch = client.batch();
        let read = batch.read(page, 1);
        let done = client.submit(batch).await.unwrap();
        let value = done.words(read)[0];
        client.recycle(done);
        crate::compute_node::yield_now().await;
        let mut batch = client.batch();
        batch.write(page, &[value + 1]);
        locked.unlock_in(client.pool().fabric(), &mut batch);
        let done = client.submit(batch).await.unwrap();
        client.recycle(done);
        locked.end(&mut client).await.unwrap();
    }

    #[test]
    fn lock_excludes_others_even_if_waiting_clients_give_up() {
        for options in modes() {
            let pool = pool();
            let hocl = open(&pool, options);
            let page = pool.root_word(50);
            std::thread::scope(|scope| {
                for _ in 0..2 {
                    scope.spawn(|| {
                        run_all((0..TASKS).map(|_| {
                            let (mut client, hocl) = (pool.client().unwrap(), &hocl);
                            async move {
                                for turn in 0..TURNS {
                                    add_one(hocl, &mut client, page, turn % 50 == 49).await;
                                }
                            }
                        }));
                    });
                }
            });
            let mut client = pool.client().unwrap();
            let mut batch = client.batch();
            let read = batch.read(page, 1);
            let done = block_on(client.submit(batch)).unwrap();
            assert_eq!(done.words(read)[0], 2 * TASKS * (TURNS - TURNS / 50));
        }
    }

    #[test]
    fn a_free_lock_costs_one_round_trip_and_unlocking_none() {
        let pool = pool();
        let hocl = open(&pool, HoclOptions::default());
        let mut client = pool.client().unwrap();
        block_on(add_one(&hocl, &mut client, pool.root_word(50), false));
        let before = client.endpoint().counters().unwrap()[OpKind::Update];
        block_on(add_one(&hocl, &mut client, pool.root_word(50), false));
        let cost = client.endpoint().counters().unwrap()[OpKind::Update] - before;
        assert_eq!((cost.round_trips, cost.verbs, cost.retries), (3, 4, 0));
    }

    #[test]
    fn what_was_abandoned_is_taken_over_and_said_to_be() {
        let pool = pool();
        let hocl = open(&pool, HoclOptions::default());
        let page = pool.root_word(50);
        let (mut one, mut two) = (pool.client().unwrap(), pool.client().unwrap());
        block_on(async {
            add_one(&hocl, &mut one, page, true).await;
            let mut client = two.pin(OpKind::Update).await.unwrap();
            assert!(hocl.try_lock(&mut client, page).await.unwrap().is_none());
            let locked = hocl.lock(&mut client, page).await.unwrap();
            assert!(locked.is_taken_over && locked.covers(&hocl, &mut client, page).await.unwrap());
            assert!(hocl.try_lock(&mut client, page).await.unwrap().is_none());
            locked.end(&mut client).await.unwrap();
            let locked = hocl.try_lock(&mut client, page).await.unwrap().unwrap();
            assert!(!locked.is_taken_over);
            locked.end(&mut client).await.unwrap();
        });
    }

    /// A waiter is dropped right after it was handed the lock, and the client that handed it over
    /// stays idle.
    #[test]
    fn a_lock_handed_to_who_went_away_is_taken_over() {
        let pool = pool();
        let hocl = open(&pool, HoclOptions::default());
        let page = pool.root_word(50);
        let [mut one, mut two, mut three] = std::array::from_fn(|_| pool.client().unwrap());
        let mut context = Context::from_waker(Waker::noop());
        {
            let mut giver = block_on(one.pin(OpKind::Update)).unwrap();
            let locked = block_on(hocl.lock(&mut giver, page)).unwrap();
            let mut waiter = block_on(two.pin(OpKind::Update)).unwrap();
            let mut waiting = Box::pin(hocl.lock(&mut waiter, page));
            assert!(waiting.as_mut().poll(&mut context).is_pending());
            block_on(locked.end(&mut giver)).unwrap();
        }
        let mut client = block_on(three.pin(OpKind::Update)).unwrap();
        let mut locking = Box::pin(hocl.lock(&mut client, page));
        let found = (0..1000).find_map(|_| match locking.as_mut().poll(&mut context) {
            Poll::Ready(locked) => Some(locked.unwrap()),
            Poll::Pending => None,
        });
        drop(locking);
        let locked = found.expect("no client holds the lock");
        assert!(locked.is_taken_over);
        block_on(locked.end(&mut client)).unwrap();
    }

    /// The client that was handed a lock drops it during its operation, whose verbs may still take
    /// effect.
    #[test]
    fn a_lock_handed_over_is_its_takers() {
        let pool = pool();
        let hocl = open(&pool, HoclOptions::default());
        let page = pool.root_word(50);
        let [mut one, mut two, mut three] = std::array::from_fn(|_| pool.client().unwrap());
        let mut giver = block_on(one.pin(OpKind::Update)).unwrap();
        let locked = block_on(hocl.lock(&mut giver, page)).unwrap();
        let (lock, mut taker) = (locked.word, block_on(two.pin(OpKind::Update)).unwrap());
        {
            let mut waiting = Box::pin(hocl.lock(&mut taker, page));
            let mut context = Context::from_waker(Waker::noop());
            assert!(waiting.as_mut().poll(&mut context).is_pending());
            block_on(locked.end(&mut giver)).unwrap();
            let Poll::Ready(locked) = waiting.as_mut().poll(&mut context) else {
                panic!("the lock was not handed over")
            };
            drop(locked.unwrap());
        }
        drop(giver);
        let mut batch = three.batch();
        let read = batch.read(lock, 1);
        let done = block_on(three.submit(batch)).unwrap();
        let holder = done.words(read)[0];
        assert!(
            !block_on(hocl.tokens.holder_has_ended(&mut three, holder)).unwrap(),
            "its operation is in progress"
        );
        drop(taker);
        assert!(block_on(hocl.tokens.holder_has_ended(&mut three, holder)).unwrap());
    }
}
