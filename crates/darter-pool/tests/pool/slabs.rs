//! Pools with small pages: slabs of several pages, with objects of many sizes, filled, freed by
//! others, closed, swept after a death and audited.

use darter_fabric::{GlobalAddr, Local, OpKind, block_on};
use darter_pool::{AllocKind, Client, Pool, PoolError, PoolOptions, ReachableSet};

/// Sizes whose slabs have 1, 2, 4 and 8 pages of 8 KiB, and sizes of runs of 5 and 13 pages.
const SIZES: [u64; 8] = [100, 1000, 5000, 10_000, 14_000, 20_000, 40_000, 100_000];

type Objects = Vec<(GlobalAddr, u64)>;

fn create(block_bytes: u64) -> Pool<Local> {
    let options = PoolOptions { block_bytes: Some(block_bytes), lease_ms: 50, ..PoolOptions::default() };
    block_on(Pool::create(Local::memory(block_bytes * 8, 1).unwrap(), &options)).unwrap()
}

fn open(pool: &Pool<Local>) -> Pool<Local> {
    block_on(Pool::open(pool.fabric().clone())).unwrap()
}

/// Sets all bits of an object, which may be the place of a later bitmap.
fn write(client: &mut Client<Local>, addr: GlobalAddr, bytes: u64) {
    let mut pinned = block_on(client.pin(OpKind::Insert)).unwrap();
    let mut batch = pinned.batch();
    batch.write(addr, &vec![u64::MAX; bytes as usize / 8]);
    block_on(pinned.submit(batch)).unwrap();
}

/// Allocates and writes objects of all sizes, one of each size after the other, until no size has
/// room.
fn fill(client: &mut Client<Local>) -> Objects {
    let mut objects = Vec::new();
    let mut sizes = SIZES.to_vec();
    while !sizes.is_empty() {
        sizes.retain(|&bytes| match block_on(client.alloc(0, bytes, AllocKind::Leaf)) {
            Ok(addr) => {
                write(client, addr, bytes);
                objects.push((addr, bytes));
                true
            }
            Err(PoolError::OutOfSpace { .. }) => false,
            Err(error) => panic!("{error}"),
        });
    }
    objects
}

fn retire(client: &mut Client<Local>, objects: &[(GlobalAddr, u64)]) {
    for &(addr, bytes) in objects {
        block_on(client.pin(OpKind::Delete)).unwrap().retire(addr, bytes, AllocKind::Leaf);
    }
}

/// Fails if two objects overlap.
fn reachable<'a>(objects: impl IntoIterator<Item = &'a (GlobalAddr, u64)>) -> ReachableSet {
    let mut set = ReachableSet::new();
    for &(addr, bytes) in objects {
        assert!(set.insert(addr, bytes), "{addr} overlaps");
    }
    set
}

fn assert_sound(pool: &Pool<Local>, client: &mut Client<Local>, objects: &Objects) {
    let report = block_on(pool.audit(client, &reachable(objects))).unwrap();
    assert_eq!((report.leaked_bytes, &report.violations[..]), (0, &[][..]), "{report:?}");
}

/// Every `step`-th object from `from` on, and the others.
fn split(objects: &Objects, from: usize, step: usize) -> (Objects, Objects) {
    let chosen = |at: usize| at % step == from;
    let part = |wanted: bool| {
        let numbered = objects.iter().enumerate().filter(|&(at, _)| chosen(at) == wanted);
        numbered.map(|(_, &object)| object).collect()
    };
    (part(true), part(false))
}

#[test]
fn objects_of_many_sizes_fill_a_pool_and_leave_it_empty() {
    for block_bytes in [256 << 10, 512 << 10, 1 << 20, 2 << 20] {
        let pool = create(block_bytes);
        let mut client = pool.client().unwrap();
        for _ in 0..3 {
            let objects = fill(&mut client);
            assert_sound(&pool, &mut client, &objects);
            // Every third object first, so that others lie between them, then the rest.
            let (first, rest) = split(&objects, 1, 3);
            retire(&mut client, &first);
            block_on(pool.settle(&mut client)).unwrap();
            assert_sound(&pool, &mut client, &rest);
            retire(&mut client, &rest);
            block_on(pool.settle(&mut client)).unwrap();
            block_on(pool.maintain(&mut client)).unwrap();
            assert_sound(&pool, &mut client, &Vec::new());
        }
    }
}

/// The owner gets back the objects that another member frees in its slabs, and the next owner those
/// that are free in the slabs of a closed block.
#[test]
fn objects_of_slabs_of_several_pages_are_freed_by_others_and_change_owners() {
    let pool = create(512 << 10);
    let other = open(&pool);
    let mut client = other.client().unwrap();
    let objects = fill(&mut client);
    let (freed, mut kept) = split(&objects, 0, 2);
    let mut freeing = pool.client().unwrap();
    retire(&mut freeing, &freed);
    let rounds = |one: &mut Client<Local>, two: &mut Client<Local>| {
        for _ in 0..8 {
            block_on(pool.maintain(one)).unwrap();
            block_on(other.maintain(two)).unwrap();
        }
        assert_eq!((pool.garbage(), other.garbage()), (0, 0));
    };
    rounds(&mut freeing, &mut client);
    let again = fill(&mut client);
    assert!(again.len() >= freed.len() / 2, "{} of {}", again.len(), freed.len());
    kept.extend(again);
    assert_sound(&other, &mut client, &kept);
    let (freed, mut kept) = split(&kept, 1, 2);
    retire(&mut client, &freed);
    rounds(&mut freeing, &mut client);
    drop(client);
    block_on(other.close()).unwrap();
    assert_sound(&pool, &mut freeing, &kept);
    let again = fill(&mut freeing);
    assert!(again.len() >= freed.len() / 2, "{} of {}", again.len(), freed.len());
    kept.extend(again);
    assert_sound(&pool, &mut freeing, &kept);
}

/// A member that had filled the pool with objects of all sizes dies. A few of them are reachable,
/// and some of those are freed during the sweep.
#[test]
fn slabs_of_several_pages_are_swept_after_a_death() {
    for block_bytes in [256 << 10, 512 << 10, 1 << 20, 2 << 20] {
        let pool = create(block_bytes);
        let mut client = pool.client().unwrap();
        let mut kept = Vec::new();
        for round in 0..4 {
            let dying = open(&pool);
            let mut other = dying.client().unwrap();
            let filled = fill(&mut other);
            assert!(!filled.is_empty());
            kept.extend(filled);
            dying.abandon();
            std::mem::forget((other, dying));
            let (lost, walked) = split(&kept, round, 4);
            let adoption = block_on(pool.adopt(&mut client)).unwrap();
            let (freed, rest) = split(&walked, round, 5);
            retire(&mut client, &freed);
            let audit = block_on(pool.audit(&mut client, &reachable(&walked))).unwrap();
            assert!(audit.violations.is_empty() && !lost.is_empty(), "{audit:?}");
            let report = block_on(pool.finish_adoption(&mut client, adoption, &reachable(&walked))).unwrap();
            assert!(report.finished && report.violations.is_empty(), "{report:?}");
            assert_eq!(report.kept_bytes, reachable(&rest).bytes());
            assert_sound(&pool, &mut client, &rest);
            kept = rest;
        }
        // The books that the sweep left are right: newly allocated objects overlap none that were
        // kept.
        kept.extend(fill(&mut client));
        assert_sound(&pool, &mut client, &kept);
    }
}
