//! Blocks that one member hands over to others: they give room, and hold no object in use that the
//! next owner does not know of.

use darter_fabric::{GlobalAddr, Local, OpKind, block_on};
use darter_pool::{AllocKind, Client, Pool, PoolOptions, ReachableSet, Room};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

const BLOCK: u64 = 256 << 10;

/// Members of one pool of 2 MiB.
fn members<const N: usize>() -> [Pool<Local>; N] {
    let options = PoolOptions { block_bytes: Some(BLOCK), lease_ms: 60_000, ..PoolOptions::default() };
    let fabric = Local::memory(2 << 20, 1).unwrap();
    let first = block_on(Pool::create(fabric.clone(), &options)).unwrap();
    let mut first = Some(first);
    [(); N].map(|()| match first.take() {
        Some(pool) => pool,
        None => block_on(Pool::open(fabric.clone())).unwrap(),
    })
}

/// Allocates one object per operation, until no room is left.
fn fill(client: &mut Client<Local>, bytes: u64, kind: AllocKind) -> Vec<GlobalAddr> {
    let mut objects = Vec::new();
    while let Ok(addr) =
        block_on(async { client.pin(OpKind::Insert).await.unwrap().alloc(0, bytes, kind).await })
    {
        objects.push(addr);
    }
    objects
}

fn retire(client: &mut Client<Local>, addr: GlobalAddr, bytes: u64, kind: AllocKind) {
    block_on(client.pin(OpKind::Delete)).unwrap().retire(addr, bytes, kind);
}

/// One member has filled the pool and freed all but one object in sixteen, so that none of its
/// blocks is empty. Its clients are idle, with full magazines.
#[test]
fn blocks_with_few_objects_in_use_are_handed_over() {
    let [one, two] = members();
    let (mut holder, mut asking) = (one.client().unwrap(), two.client().unwrap());
    let objects = fill(&mut holder, 1000, AllocKind::Leaf);
    let count = objects.len();
    let (kept, freed): (Vec<_>, Vec<_>) = (0..).zip(objects).partition(|(at, _)| at % 16 == 0);
    for (_, addr) in freed {
        retire(&mut holder, addr, 1000, AllocKind::Leaf);
    }
    for _ in 0..8 {
        block_on(one.maintain(&mut holder)).unwrap();
        block_on(two.maintain(&mut asking)).unwrap();
    }
    let mut got = fill(&mut asking, 1000, AllocKind::Leaf);
    // In each round the holder does one step, and the member that needs room uses what it got.
    for _ in 0..20 {
        let mut request = two.ask_for_room();
        while request.progress(0) == Room::NotYet {
            block_on(two.maintain(&mut asking)).unwrap();
            block_on(one.maintain(&mut holder)).unwrap();
        }
        drop(request);
        got.extend(fill(&mut asking, 1000, AllocKind::Leaf));
    }
    assert!(got.len() > count * 3 / 4, "{} of {count}", got.len());
    let mut reachable = ReachableSet::new();
    for &addr in kept.iter().map(|(_, addr)| addr).chain(&got) {
        assert!(reachable.insert(addr, 1000), "{addr} is in use twice");
    }
    drop(holder);
    block_on(one.close()).unwrap();
    let audit = block_on(two.audit(&mut asking, &reachable)).unwrap();
    assert_eq!((audit.leaked_bytes, audit.violations.as_slice()), (0, &[][..]));
}

/// Objects in use, with their bytes and kind, and whether the index has them.
type InUse = Mutex<HashMap<GlobalAddr, (u64, AllocKind, bool)>>;

fn lock(in_use: &InUse) -> std::sync::MutexGuard<'_, HashMap<GlobalAddr, (u64, AllocKind, bool)>> {
    in_use.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Members allocate, link, give back and free in a pool that is too small, so that blocks are
/// handed over all the time, while a client sweeps. No object is handed out twice.
#[test]
fn no_object_of_a_client_is_in_a_block_that_is_handed_over() {
    const SIZES: [u64; 5] = [40, 300, 2500, 9000, 20_000];
    let pools: [_; 3] = members();
    let in_use = InUse::default();
    let (working, sweeping, swept) = (AtomicUsize::new(6), AtomicUsize::new(1), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        for (at, pool) in pools.iter().chain(&pools).enumerate() {
            let (in_use, working) = (&in_use, &working);
            scope.spawn(move || {
                let _ends = Ends(working);
                work(pool, in_use, at as u64 + 1, &SIZES);
            });
        }
        for (at, pool) in pools.iter().enumerate() {
            let (in_use, working, sweeping, swept) = (&in_use, &working, &sweeping, &swept);
            scope.spawn(move || {
                let _ends = (at == 0).then(|| Ends(sweeping));
                let mut client = pool.client().unwrap();
                // A sweep waits for rounds of the others.
                while if at == 0 { working } else { sweeping }.load(Ordering::SeqCst) > 0 {
                    block_on(pool.maintain(&mut client)).unwrap();
                    if at == 0 {
                        swept.fetch_add(sweep(pool, &mut client, in_use), Ordering::SeqCst);
                    }
                    std::thread::yield_now();
                }
            });
        }
    });
    assert!(swept.load(Ordering::SeqCst) > 0, "no closed block was swept");
}

/// Notes the end of a thread, even if it panics.
struct Ends<'a>(&'a AtomicUsize);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

/// One time in eight, lets the other threads run for a while.
fn pause(random: usize) {
    for _ in 0..if random == 0 { 300 } else { 0 } {
        std::thread::yield_now();
    }
}

/// Random operations by a client of `pool`.
fn work(pool: &Pool<Local>, in_use: &InUse, seed: u64, sizes: &[u64]) {
    let mut client = pool.client().unwrap();
    let mut dice = Pcg64Mcg::seed_from_u64(seed);
    let mut next = |below: usize| dice.random_range(0..below);
    let mut linked: Vec<GlobalAddr> = Vec::new();
    for _ in 0..400 {
        let (bytes, kind) = (sizes[next(sizes.len())], [AllocKind::Leaf, AllocKind::Inner][next(2)]);
        let allocated = block_on(async {
            let mut pinned = client.pin(OpKind::Insert).await.unwrap();
            let addr = pinned.alloc(0, bytes, kind).await.ok()?;
            let before = lock(in_use).insert(addr, (bytes, kind, false));
            assert_eq!(before, None, "{addr} is in use twice");
            pause(next(8));
            if next(3) == 0 {
                lock(in_use).remove(&addr);
                pinned.free_unpublished(addr, bytes, kind);
            } else {
                lock(in_use).insert(addr, (bytes, kind, true));
                linked.push(addr);
            }
            Some(())
        });
        pause(next(8));
        let is_full = allocated.is_none();
        while linked.len() > 40 || is_full && linked.len() > 15 {
            let addr = linked.swap_remove(next(linked.len()));
            let mut pinned = block_on(client.pin(OpKind::Delete)).unwrap();
            let removed = lock(in_use).remove(&addr);
            let (bytes, kind, _) = removed.unwrap();
            pinned.retire(addr, bytes, kind);
        }
        if is_full {
            let mut request = pool.ask_for_room();
            while request.progress(0) == Room::NotYet {
                block_on(pool.maintain(&mut client)).unwrap();
                std::thread::yield_now();
            }
        }
    }
}

/// Sweeps closed blocks; returns their number.
fn sweep(pool: &Pool<Local>, client: &mut Client<Local>, in_use: &InUse) -> usize {
    let adoption = block_on(pool.adopt(client)).unwrap();
    let mut reachable = ReachableSet::new();
    for (&addr, &(bytes, _, is_linked)) in &*lock(in_use) {
        if is_linked {
            assert!(reachable.insert(addr, bytes), "{addr} overlaps");
        }
    }
    let report = block_on(pool.finish_adoption(client, adoption, &reachable)).unwrap();
    assert_eq!(report.violations, [""; 0]);
    report.blocks as usize
}
