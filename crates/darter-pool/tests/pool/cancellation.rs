//! Operations dropped at any await, their verbs landing late or never: no object is handed out
//! twice or reused under a late verb, and a sweep recovers lost memory.

use darter_fabric::{
    Batch, Capabilities, Endpoint, Fabric, FabricError, FenceOutcome, GlobalAddr, Identity, Local,
    Membership, OpKind, Orphans, block_on,
};
use darter_pool::{AllocKind, Client, Pool, PoolError, PoolOptions, ReachableSet};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use std::collections::VecDeque;
use std::future::Future;
use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

type Queue = Arc<Mutex<VecDeque<Batch>>>;

/// A fabric whose batches stay in flight until [`Late::land`] when their future is dropped.
#[derive(Clone)]
struct Late {
    inner: Local,
    /// Submits that complete at once before one stays in flight; `usize::MAX` for none.
    countdown: Arc<AtomicUsize>,
    queues: Arc<Mutex<Vec<Queue>>>,
}

struct LateEndpoint {
    inner: <Local as Fabric>::Endpoint,
    countdown: Arc<AtomicUsize>,
    queue: Queue,
}

impl Late {
    fn new(bytes: u64) -> Self {
        let inner = Local::memory(bytes, 1).unwrap();
        Self { inner, countdown: Arc::new(AtomicUsize::new(usize::MAX)), queues: Arc::default() }
    }

    /// Executes the batches in flight, oldest first on each endpoint.
    fn land(&self) {
        let mut endpoint = self.inner.endpoint().unwrap();
        for queue in self.queues.lock().unwrap().iter() {
            while let Some(batch) = queue.lock().unwrap().pop_front() {
                block_on(endpoint.submit(batch)).unwrap();
            }
        }
    }
}

impl Membership for Late {
    fn claim(&self, slot: u32) -> Result<Box<dyn Identity>, FabricError> {
        self.inner.claim(slot)
    }

    fn fence(&self, suspect: darter_fabric::Suspect) -> Result<FenceOutcome, FabricError> {
        self.inner.fence(suspect)
    }
}

impl Fabric for Late {
    type Endpoint = LateEndpoint;

    fn endpoint(&self) -> Result<LateEndpoint, FabricError> {
        let queue = Queue::default();
        self.queues.lock().unwrap().push(Arc::clone(&queue));
        Ok(LateEndpoint { inner: self.inner.endpoint()?, countdown: Arc::clone(&self.countdown), queue })
    }

    fn nodes(&self) -> usize {
        self.inner.nodes()
    }

    fn node_bytes(&self, node: u8) -> u64 {
        self.inner.node_bytes(node)
    }

    fn capabilities(&self) -> Capabilities {
        self.inner.capabilities()
    }

    fn persist(&self) -> Result<(), FabricError> {
        self.inner.persist()
    }
}

impl Endpoint for LateEndpoint {
    fn batch(&mut self) -> Batch {
        self.inner.batch()
    }

    fn recycle(&mut self, batch: Batch) {
        self.inner.recycle(batch);
    }

    async fn submit(&mut self, batch: Batch) -> Result<Batch, FabricError> {
        let left = self.countdown.load(Ordering::SeqCst);
        if left == usize::MAX {
            return self.inner.submit(batch).await;
        }
        if left > 0 {
            self.countdown.store(left - 1, Ordering::SeqCst);
            return self.inner.submit(batch).await;
        }
        self.countdown.store(usize::MAX, Ordering::SeqCst);
        self.queue.lock().unwrap().push_back(batch);
        std::future::pending().await
    }

    fn orphans(&self) -> Option<Arc<dyn Orphans>> {
        Some(Arc::new(Waiting(Arc::clone(&self.queue))))
    }
}

#[derive(Debug)]
struct Waiting(Queue);

impl Orphans for Waiting {
    fn in_flight(&self) -> usize {
        self.0.lock().unwrap().len()
    }
}

/// Polls a future once; a pending one is dropped, which cancels it.
fn poll_once<T>(future: impl Future<Output = T>) -> Option<T> {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(value) => Some(value),
        Poll::Pending => None,
    }
}

fn options() -> PoolOptions {
    PoolOptions { block_bytes: Some(256 << 10), lease_ms: 1000, ..PoolOptions::default() }
}

#[test]
fn a_cancelled_operation_stays_pinned_until_its_verbs_have_landed() {
    let fabric = Late::new(1 << 20);
    let pool = block_on(Pool::create(fabric.clone(), &options())).unwrap();
    let (mut client, mut other) = (pool.client().unwrap(), pool.client().unwrap());
    let before = pool.epoch();
    let operation = async {
        let mut pinned = client.pin(OpKind::Update).await.unwrap();
        let mut batch = pinned.batch();
        batch.write(pinned.pool().root_word(0), &[1]);
        fabric.countdown.store(0, Ordering::SeqCst);
        pinned.submit(batch).await.unwrap();
    };
    assert!(poll_once(operation).is_none());
    let garbage = block_on(other.alloc(0, 64, AllocKind::Leaf)).unwrap();
    block_on(other.pin(OpKind::Delete)).unwrap().retire(garbage, 64, AllocKind::Leaf);
    for _ in 0..6 {
        block_on(pool.maintain(&mut other)).unwrap();
    }
    assert_eq!((pool.epoch(), pool.garbage()), (before + 1, 1));
    // Another operation of the client keeps the pin of the first; so does dropping the client.
    assert_eq!(block_on(client.pin(OpKind::Get)).unwrap().epoch(), before);
    drop(client);
    block_on(pool.maintain(&mut other)).unwrap();
    assert_eq!(pool.garbage(), 1);
    fabric.land();
    for _ in 0..4 {
        block_on(pool.maintain(&mut other)).unwrap();
    }
    assert_eq!(pool.garbage(), 0);
}

/// One operation: replaces the object under a root word.
async fn replace(client: &mut Client<Late>, root: usize, version: u64, bytes: u64) -> Result<(), PoolError> {
    let mut pinned = client.pin(OpKind::Update).await?;
    let root = pinned.pool().root_word(root);
    let mut batch = pinned.batch();
    let read = batch.read(root, 1);
    let batch = pinned.submit(batch).await?;
    let old = batch.words(read)[0];
    pinned.recycle(batch);
    let new = match pinned.alloc(0, bytes, AllocKind::Leaf).await {
        Ok(new) => new,
        Err(PoolError::OutOfSpace { .. }) => return Ok(()),
        Err(error) => return Err(error),
    };
    let mut batch = pinned.batch();
    batch.write(new, &[version, bytes, version]);
    let cas = batch.cas(root, old, new.bits() | bytes << 48);
    let batch = pinned.submit(batch).await?;
    let won = batch.swapped(cas);
    pinned.recycle(batch);
    if !won {
        pinned.free_unpublished(new, bytes, AllocKind::Leaf);
    } else if old != 0 {
        pinned.retire(GlobalAddr::from_bits(old), old >> 48, AllocKind::Leaf);
    }
    Ok(())
}

/// Returns the objects under the root words; fails if their contents are not whole.
fn walk(fabric: &Late, pool: &Pool<Late>) -> ReachableSet {
    let mut endpoint = fabric.inner.endpoint().unwrap();
    let mut set = ReachableSet::new();
    for root in 0..8 {
        let mut batch = endpoint.batch();
        let read = batch.read(pool.root_word(root), 1);
        let batch = block_on(endpoint.submit(batch)).unwrap();
        let word = batch.words(read)[0];
        if word == 0 {
            continue;
        }
        let addr = GlobalAddr::from_bits(word);
        assert!(set.insert(addr, word >> 48), "root {root} shares memory with another");
        let mut batch = endpoint.batch();
        let read = batch.read(addr, 3);
        let batch = block_on(endpoint.submit(batch)).unwrap();
        let words = batch.words(read);
        assert!(words[0] == words[2] && words[1] == word >> 48, "root {root} was overwritten: {words:x?}");
    }
    set
}

#[test]
fn cancelled_anywhere_nothing_is_used_twice() {
    for seed in 1..=if cfg!(miri) { 1 } else { 60u64 } {
        let mut dice = Pcg64Mcg::seed_from_u64(seed);
        let fabric = Late::new(3 << 20);
        let pools = [
            block_on(Pool::create(fabric.clone(), &options())).unwrap(),
            block_on(Pool::open(fabric.clone())).unwrap(),
        ];
        let mut clients: Vec<_> = (0..4).map(|i| pools[i % 2].client().unwrap()).collect();
        for step in 1..1500u64 {
            let pick: u64 = dice.random();
            let at = (pick % 4) as usize;
            let bytes = [100, 100, 24, 1500, 40_000][(pick >> 8) as usize % 5];
            if (pick >> 16).is_multiple_of(8) {
                fabric.countdown.store((pick >> 20) as usize % 9, Ordering::SeqCst);
            }
            let client = &mut clients[at];
            let outcome = match (pick >> 32) % 12 {
                0 => poll_once(pools[at % 2].maintain(client)),
                1 if (pick >> 40).is_multiple_of(8) => poll_once(pools[at % 2].settle(client)),
                _ => poll_once(replace(client, (pick >> 48) as usize % 8, step, bytes)),
            };
            outcome.transpose().unwrap();
            fabric.countdown.store(usize::MAX, Ordering::SeqCst);
            if (pick >> 52).is_multiple_of(6) {
                fabric.land();
            }
            if (pick >> 56).is_multiple_of(40) {
                clients[at] = pools[at % 2].client().unwrap();
            }
            walk(&fabric, &pools[0]);
        }
        fabric.land();
        for _ in 0..8 {
            for (at, client) in clients.iter_mut().enumerate() {
                block_on(pools[at % 2].maintain(client)).unwrap();
            }
        }
        drop(clients);
        for pool in pools {
            block_on(pool.close()).unwrap();
        }
        let pool = block_on(Pool::open(fabric.clone())).unwrap();
        let mut client = pool.client().unwrap();
        let set = walk(&fabric, &pool);
        let audit = block_on(pool.audit(&mut client, &set)).unwrap();
        assert!(audit.violations.is_empty(), "seed {seed}: {audit:?}");
        let adoption = block_on(pool.adopt(&mut client)).unwrap();
        let report = block_on(pool.finish_adoption(&mut client, adoption, &set)).unwrap();
        assert!(report.finished && report.violations.is_empty(), "seed {seed}: {report:?}");
        walk(&fabric, &pool);
        let audit = block_on(pool.audit(&mut client, &set)).unwrap();
        assert_eq!((audit.leaked_bytes, audit.violations.len()), (0, 0), "seed {seed}: {audit:?}");
    }
}

#[test]
fn what_a_cancelled_operation_gives_back_is_not_reused_under_its_verbs() {
    let fabric = Late::new(1 << 20);
    let pool = block_on(Pool::create(fabric.clone(), &options())).unwrap();
    let mut client = pool.client().unwrap();
    let mut held = GlobalAddr::NULL;
    let operation = async {
        let mut pinned = client.pin(OpKind::Insert).await.unwrap();
        held = pinned.alloc(0, 50_000, AllocKind::Leaf).await.unwrap();
        let mut batch = pinned.batch();
        batch.write(held, &[1]);
        fabric.countdown.store(0, Ordering::SeqCst);
        pinned.submit(batch).await.unwrap();
    };
    assert!(poll_once(operation).is_none());
    client.free_unpublished(held, 50_000, AllocKind::Leaf);
    for _ in 0..5 {
        block_on(pool.maintain(&mut client)).unwrap();
    }
    while let Ok(addr) = block_on(client.alloc(0, 50_000, AllocKind::Leaf)) {
        assert_ne!(addr, held);
    }
    fabric.land();
    for _ in 0..5 {
        block_on(pool.maintain(&mut client)).unwrap();
    }
    assert_eq!(block_on(client.alloc(0, 50_000, AllocKind::Leaf)).unwrap(), held);
}

#[test]
fn a_block_whose_return_was_cancelled_is_not_lost_to_a_late_verb() {
    for late in 0..12 {
        let fabric = Late::new(1 << 20);
        let pool = block_on(Pool::create(fabric.clone(), &options())).unwrap();
        let mut client = pool.client().unwrap();
        let mut other = pool.client().unwrap();
        let fill = |client: &mut Client<Late>| {
            let mut set = ReachableSet::new();
            while let Ok(addr) = block_on(client.alloc(0, 3000, AllocKind::Leaf)) {
                assert!(set.insert(addr, 3000));
            }
            set
        };
        for (addr, _) in fill(&mut client).iter() {
            client.free_unpublished(addr, 3000, AllocKind::Leaf);
        }
        fabric.countdown.store(late, Ordering::SeqCst);
        let _ = poll_once(pool.settle(&mut client));
        fabric.countdown.store(usize::MAX, Ordering::SeqCst);
        let set = fill(&mut other);
        fabric.land();
        let audit = block_on(pool.audit(&mut other, &set)).unwrap();
        assert_eq!(audit.violations, Vec::<String>::new(), "late {late}");
    }
}
