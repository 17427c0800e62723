//! Allocation until nothing is left, frees by others, epochs, adoption, sweeps and audits.

use darter_fabric::{Fabric, GlobalAddr, Local, OpKind, block_on};
use darter_pool::size_class::{class_bytes, class_of};
use darter_pool::{AllocKind, Client, Pool, PoolError, PoolOptions, ReachableSet};
use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering};

const BLOCK: u64 = 256 << 10;

fn create(bytes: u64, nodes: usize) -> Pool<Local> {
    let options = PoolOptions { block_bytes: Some(BLOCK), lease_ms: 50, ..PoolOptions::default() };
    block_on(Pool::create(Local::memory(bytes, nodes).unwrap(), &options)).unwrap()
}

fn open(pool: &Pool<Local>) -> Pool<Local> {
    block_on(Pool::open(pool.fabric().clone())).unwrap()
}

fn fill(client: &mut Client<Local>, bytes: u64, kind: AllocKind) -> Vec<GlobalAddr> {
    let mut objects = Vec::new();
    loop {
        match block_on(client.alloc(0, bytes, kind)) {
            Ok(addr) => objects.push(addr),
            Err(PoolError::OutOfSpace { needed, .. }) => {
                assert_eq!(needed, class_bytes(class_of(bytes).unwrap()));
                return objects;
            }
            Err(error) => panic!("{error}"),
        }
    }
}

fn retire_all(client: &mut Client<Local>, objects: &[GlobalAddr], bytes: u64, kind: AllocKind) {
    for &addr in objects {
        block_on(client.pin(OpKind::Delete)).unwrap().retire(addr, bytes, kind);
    }
}

fn used_blocks(pool: &Pool<Local>, client: &mut Client<Local>) -> u64 {
    block_on(pool.usage(client)).unwrap().used_bytes() / pool.block_bytes()
}

fn reachable(objects: &[GlobalAddr], bytes: u64) -> ReachableSet {
    let mut set = ReachableSet::new();
    for &addr in objects {
        assert!(set.insert(addr, bytes), "{addr} overlaps");
    }
    set
}

#[test]
fn a_pool_can_be_filled_emptied_and_filled_again() {
    let pool = create(2 << 20, 2);
    let mut client = pool.client().unwrap();
    for (bytes, kind) in [
        (100, AllocKind::Leaf),
        (2048, AllocKind::Inner),
        (40_000, AllocKind::Leaf),
        (16, AllocKind::Leaf),
        (150_000, AllocKind::Inner),
    ] {
        let first = fill(&mut client, bytes, kind);
        assert_eq!(first.iter().collect::<HashSet<_>>().len(), first.len());
        let set = reachable(&first, bytes);
        let report = block_on(pool.audit(&mut client, &set)).unwrap();
        assert_eq!((report.leaked_bytes, report.violations.as_slice()), (0, &[][..]));
        if bytes == 100 {
            assert!(set.bytes() * 100 / (14 * BLOCK) >= 97, "{} of {}", set.bytes(), 14 * BLOCK);
        }
        assert!(matches!(block_on(client.alloc(1, bytes, kind)), Err(PoolError::OutOfSpace { .. })));
        retire_all(&mut client, &first, bytes, kind);
        block_on(pool.settle(&mut client)).unwrap();
        assert_eq!(used_blocks(&pool, &mut client), 0);
        let again = fill(&mut client, bytes, kind);
        assert_eq!(again.len(), first.len());
        retire_all(&mut client, &again, bytes, kind);
        block_on(pool.settle(&mut client)).unwrap();
    }
    assert!(matches!(block_on(client.alloc(0, 1 << 20, AllocKind::Leaf)), Err(PoolError::TooLarge { .. })));
    assert!(matches!(block_on(client.alloc(0, u64::MAX, AllocKind::Leaf)), Err(PoolError::TooLarge { .. })));
}

#[test]
fn pinning_alone_reclaims_without_any_other_thread() {
    let pool = create(2 << 20, 1);
    let mut client = pool.client().unwrap();
    for _ in 0..200_000 {
        let mut pinned = block_on(client.pin(OpKind::Update)).unwrap();
        let addr = block_on(pinned.alloc(0, 100, AllocKind::Leaf)).unwrap();
        pinned.retire(addr, 100, AllocKind::Leaf);
    }
    assert!(pool.garbage() < 6000, "{}", pool.garbage());
}

#[test]
fn out_of_space_ends_once_garbage_has_ripened() {
    let pool = create(1 << 20, 1);
    let mut client = pool.client().unwrap();
    let objects = fill(&mut client, 1000, AllocKind::Leaf);
    retire_all(&mut client, &objects[..100], 1000, AllocKind::Leaf);
    assert!(block_on(client.alloc(0, 1000, AllocKind::Leaf)).is_err());
    let mut pinned = block_on(client.pin(OpKind::Insert)).unwrap();
    assert!(block_on(pinned.alloc(0, 1000, AllocKind::Leaf)).is_ok());
}

#[test]
fn kinds_do_not_share_blocks() {
    let pool = create(4 << 20, 1);
    let mut client = pool.client().unwrap();
    let block = |addr: GlobalAddr| (addr.offset() - (64 << 10)) / BLOCK;
    let mut blocks = [HashSet::new(), HashSet::new()];
    for _ in 0..5000 {
        for kind in [AllocKind::Inner, AllocKind::Leaf] {
            blocks[kind as usize].insert(block(block_on(client.alloc(0, 128, kind)).unwrap()));
        }
    }
    assert!(blocks[0].is_disjoint(&blocks[1]));
}

#[test]
fn a_pinned_client_keeps_garbage_and_rounds_free_it_afterwards() {
    let pool = create(1 << 20, 1);
    let mut writer = pool.client().unwrap();
    let mut reader = pool.client().unwrap();
    let addr = block_on(writer.alloc(0, 64, AllocKind::Leaf)).unwrap();
    let pinned = block_on(reader.pin(OpKind::Get)).unwrap();
    retire_all(&mut writer, &[addr], 64, AllocKind::Leaf);
    for _ in 0..10 {
        block_on(pool.maintain(&mut writer)).unwrap();
    }
    assert_eq!(pool.garbage(), 1);
    assert!(pool.epoch() <= pinned.epoch() + 1);
    drop(pinned);
    for _ in 0..4 {
        block_on(pool.maintain(&mut writer)).unwrap();
    }
    assert_eq!(pool.garbage(), 0);
}

#[test]
fn noted_objects_pass_two_graces() {
    let pool = create(1 << 20, 1);
    let mut client = pool.client().unwrap();
    let addr = block_on(client.alloc(0, 64, AllocKind::Inner)).unwrap();
    block_on(client.pin(OpKind::Insert)).unwrap().unlink(addr, 64, AllocKind::Inner, [7].into());
    assert!(client.take_graced().is_empty());
    for _ in 0..4 {
        block_on(pool.maintain(&mut client)).unwrap();
    }
    let mut other = pool.client().unwrap();
    let taken = other.take_graced();
    assert_eq!((taken.len(), taken[0].addr, &*taken[0].note), (1, addr, &[7u8][..]));
    let mut pinned = block_on(other.pin(OpKind::Maintain)).unwrap();
    for object in taken {
        pinned.retire(object.addr, object.bytes, object.kind);
    }
    drop(pinned);
    block_on(pool.settle(&mut client)).unwrap();
    block_on(pool.settle(&mut other)).unwrap();
    assert_eq!(used_blocks(&pool, &mut client), 0);
}

#[test]
fn others_free_what_one_allocated() {
    let mine = create(2 << 20, 2);
    let theirs = open(&mine);
    let (mut a, mut b) = (mine.client().unwrap(), theirs.client().unwrap());
    for bytes in [64, 1500, 40_000] {
        let objects = fill(&mut a, bytes, AllocKind::Leaf);
        retire_all(&mut b, &objects, bytes, AllocKind::Leaf);
        for _ in 0..8 {
            block_on(mine.maintain(&mut a)).unwrap();
            block_on(theirs.maintain(&mut b)).unwrap();
        }
        assert_eq!(theirs.garbage(), 0);
        let again = fill(&mut a, bytes, AllocKind::Leaf);
        assert_eq!(again.len(), objects.len());
        retire_all(&mut a, &again, bytes, AllocKind::Leaf);
        for _ in 0..8 {
            block_on(mine.maintain(&mut a)).unwrap();
            block_on(theirs.maintain(&mut b)).unwrap();
        }
        block_on(mine.settle(&mut a)).unwrap();
        assert_eq!(used_blocks(&mine, &mut a), 0, "{bytes}");
    }
}

#[test]
fn frees_after_the_owner_closed_come_back_too() {
    let mine = create(2 << 20, 1);
    let theirs = open(&mine);
    let mut a = mine.client().unwrap();
    let objects = fill(&mut a, 200, AllocKind::Leaf);
    drop(a);
    block_on(mine.close()).unwrap();
    let mut b = theirs.client().unwrap();
    let report = block_on(theirs.audit(&mut b, &reachable(&objects, 200))).unwrap();
    assert_eq!((report.leaked_bytes, report.violations.len()), (0, 0), "{report:?}");
    retire_all(&mut b, &objects[10..], 200, AllocKind::Leaf);
    block_on(theirs.settle(&mut b)).unwrap();
    assert_eq!(used_blocks(&theirs, &mut b), 1);
    retire_all(&mut b, &objects[..10], 200, AllocKind::Leaf);
    block_on(theirs.settle(&mut b)).unwrap();
    assert_eq!(used_blocks(&theirs, &mut b), 0);
}

#[test]
fn what_waits_to_be_freed_in_a_closed_block_is_not_leaked() {
    let mine = create(2 << 20, 1);
    let theirs = open(&mine);
    let mut a = mine.client().unwrap();
    let objects = [0; 20].map(|_| block_on(a.alloc(0, 200, AllocKind::Leaf)).unwrap());
    drop(a);
    block_on(mine.close()).unwrap();
    let mut b = theirs.client().unwrap();
    retire_all(&mut b, &objects[..5], 200, AllocKind::Leaf);
    let report = block_on(theirs.audit(&mut b, &reachable(&objects[5..], 200))).unwrap();
    assert_eq!((report.leaked_bytes, report.garbage_bytes), (0, 5 * 208), "{report:?}");
    let report = block_on(theirs.audit(&mut b, &reachable(&objects[6..], 200))).unwrap();
    assert_eq!((report.leaked_bytes, report.closed_leaked_bytes), (208, 208), "{report:?}");
}

#[test]
fn short_lived_members_reuse_what_closed_ones_left() {
    let pool = create(1 << 20, 1);
    let mut kept = Vec::new();
    for _ in 0..200 {
        let member = open(&pool);
        let mut client = member.client().unwrap();
        kept.push(block_on(client.alloc(0, 300, AllocKind::Leaf)).unwrap());
    }
    let mut client = pool.client().unwrap();
    assert_eq!(used_blocks(&pool, &mut client), 1);
    let report = block_on(pool.audit(&mut client, &reachable(&kept, 300))).unwrap();
    assert_eq!((report.leaked_bytes, report.violations.len()), (0, 0), "{report:?}");
}

#[test]
fn an_audit_counts_leaks_and_finds_contradictions() {
    let pool = create(2 << 20, 1);
    let mut client = pool.client().unwrap();
    let objects: Vec<_> =
        (0..100).map(|_| block_on(client.alloc(0, 200, AllocKind::Leaf)).unwrap()).collect();
    let mut idle = pool.client().unwrap();
    block_on(idle.alloc(0, 64, AllocKind::Inner)).unwrap();
    let report = block_on(pool.audit(&mut client, &reachable(&objects[5..], 200))).unwrap();
    assert_eq!((report.leaked_bytes, report.violations.len()), (5 * 208 + 64, 0), "{report:?}");
    let mut set = reachable(&objects, 200);
    client.free_unpublished(objects[7], 200, AllocKind::Leaf);
    retire_all(&mut client, &objects[9..10], 200, AllocKind::Leaf);
    set.insert(GlobalAddr::new(0, 1 << 20), 64);
    set.insert(GlobalAddr::new(0, 4096), 64);
    let report = block_on(pool.audit(&mut client, &set)).unwrap();
    assert_eq!((report.violations.len(), report.leaked_bytes), (4, 64), "{report:?}");
    assert_eq!(report.garbage_bytes, 208);
}

fn die(pool: Pool<Local>, client: Client<Local>) {
    pool.abandon();
    std::mem::forget(client);
    std::mem::forget(pool);
}

#[test]
fn a_dead_members_blocks_are_swept() {
    let pool = create(2 << 20, 2);
    let dying = open(&pool);
    let mut client = dying.client().unwrap();
    let objects = fill(&mut client, 200, AllocKind::Leaf);
    retire_all(&mut client, &objects[..10], 200, AllocKind::Leaf);
    die(dying, client);

    let mut client = pool.client().unwrap();
    assert!(block_on(client.alloc(0, 200, AllocKind::Leaf)).is_err());
    // A live member's garbage in the dead member's blocks, waiting when the sweep begins.
    retire_all(&mut client, &objects[10..20], 200, AllocKind::Leaf);
    let adoption = block_on(pool.adopt(&mut client)).unwrap();
    assert_eq!((adoption.blocks(), adoption.dead_blocks()), (14, 14));
    let walked = reachable(&objects[20..30], 200);
    // Reachable in the walk, freed before the sweep.
    retire_all(&mut client, &objects[20..25], 200, AllocKind::Leaf);
    let audit = block_on(pool.audit(&mut client, &walked)).unwrap();
    assert_eq!((audit.dead_blocks, audit.violations.len()), (14, 0));
    assert!(audit.dead_leaked_bytes > 13 * BLOCK);
    let nothing = block_on(pool.audit(&mut client, &reachable(&[], 200))).unwrap();
    assert_eq!(nothing.dead_leaked_bytes - audit.dead_leaked_bytes, 10 * 208);
    let report = block_on(pool.finish_adoption(&mut client, adoption, &walked)).unwrap();
    assert!(report.finished && report.violations.is_empty(), "{report:?}");
    assert_eq!((report.blocks, report.kept_bytes), (14, 5 * 208));
    let again = fill(&mut client, 200, AllocKind::Leaf);
    assert_eq!(again.len(), objects.len() - 5);
    let mut all = again;
    all.extend(&objects[25..30]);
    let audit = block_on(pool.audit(&mut client, &reachable(&all, 200))).unwrap();
    assert_eq!((audit.leaked_bytes, audit.violations.len()), (0, 0), "{audit:?}");
}

/// In each round, a member fills the free memory that it finds, leaves one reachable object in each
/// block, and dies. The process that sweeps needs no memory itself.
#[test]
fn memory_freed_by_a_sweep_is_available_to_all_members() {
    let pool = create(2 << 20, 2);
    let mut client = pool.client().unwrap();
    let mut kept: Vec<GlobalAddr> = Vec::new();
    let mut filled = Vec::new();
    for _ in 0..5 {
        let dying = open(&pool);
        let mut other = dying.client().unwrap();
        let objects = fill(&mut other, 200, AllocKind::Leaf);
        filled.push(objects.len() + kept.len());
        if kept.is_empty() {
            let mut blocks = HashSet::new();
            kept.extend(
                objects.iter().filter(|addr| blocks.insert((addr.node(), addr.offset() / BLOCK))).copied(),
            );
        }
        die(dying, other);
        let adoption = block_on(pool.adopt(&mut client)).unwrap();
        let report = block_on(pool.finish_adoption(&mut client, adoption, &reachable(&kept, 200))).unwrap();
        assert!(report.finished, "{report:?}");
        assert_eq!(
            block_on(pool.usage(&mut client)).unwrap().nodes.iter().map(|node| node.mine).sum::<u64>(),
            0
        );
    }
    assert!(kept.len() >= 14 && filled.iter().all(|&objects| objects == filled[0]), "{filled:?}");
    // Another sweep of the same blocks finds no more room in them.
    let adoption = block_on(pool.adopt(&mut client)).unwrap();
    let report = block_on(pool.finish_adoption(&mut client, adoption, &reachable(&kept, 200))).unwrap();
    assert_eq!((report.finished, report.blocks, report.reclaimed_bytes), (true, 14, 0));
}

#[test]
fn a_sweep_waits_for_live_members_and_frees_nothing_when_they_do_not_move() {
    let pool = create(2 << 20, 1);
    let slow = open(&pool);
    let dying = open(&pool);
    let mut client = dying.client().unwrap();
    let objects = fill(&mut client, 200, AllocKind::Leaf);
    die(dying, client);
    let mut sleeper = slow.client().unwrap();
    retire_all(&mut sleeper, &objects[..3], 200, AllocKind::Leaf);

    let mut client = pool.client().unwrap();
    let adoption = block_on(pool.adopt(&mut client)).unwrap();
    let report = block_on(pool.finish_adoption(&mut client, adoption, &ReachableSet::new())).unwrap();
    assert_eq!((report.finished, report.waiting_for.as_slice()), (false, &[1][..]));
    assert!(block_on(client.alloc(0, 200, AllocKind::Leaf)).is_err());

    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                block_on(slow.maintain(&mut sleeper)).unwrap();
                std::thread::yield_now();
            }
        });
        let adoption = block_on(pool.adopt(&mut client)).unwrap();
        let report = block_on(pool.finish_adoption(&mut client, adoption, &ReachableSet::new())).unwrap();
        stop.store(true, Ordering::Relaxed);
        assert!(report.finished, "{report:?}");
    });
    assert_eq!(fill(&mut client, 200, AllocKind::Leaf).len(), objects.len());
}

#[test]
fn a_sweep_of_a_dead_sweeper_loses_nothing() {
    let pool = create(2 << 20, 1);
    let first = open(&pool);
    let mut client = first.client().unwrap();
    let objects = fill(&mut client, 1000, AllocKind::Inner);
    die(first, client);
    let second = open(&pool);
    let mut client = second.client().unwrap();
    let adoption = block_on(second.adopt(&mut client)).unwrap();
    assert!(!adoption.is_empty());
    die(second, client);
    let mut client = pool.client().unwrap();
    let adoption = block_on(pool.adopt(&mut client)).unwrap();
    let set = reachable(&objects[..1], 1000);
    let report = block_on(pool.finish_adoption(&mut client, adoption, &set)).unwrap();
    assert_eq!((report.finished, report.kept_bytes), (true, 1008));
    assert_eq!(used_blocks(&pool, &mut client), 1);
}

/// Several members swap objects in a few root words. Each object names its own version, and a
/// reader that reads an object twice while pinned must see the same version twice. Reuse under a
/// reader shows as another version.
#[test]
fn readers_never_see_reuse() {
    let options = PoolOptions { block_bytes: Some(BLOCK), lease_ms: 1000, ..PoolOptions::default() };
    let file = tempfile::NamedTempFile::new().unwrap();
    let first =
        block_on(Pool::create(Local::file_create(file.path(), 2 << 20, 2).unwrap(), &options)).unwrap();
    let second = block_on(Pool::open(Local::file_open(file.path()).unwrap())).unwrap();
    let pools = [&first, &second, &first];
    let operations = 60_000u64;
    std::thread::scope(|scope| {
        for (thread, pool) in (0u64..).zip(pools) {
            scope.spawn(move || {
                let mut client = pool.client().unwrap();
                for i in 0..operations {
                    let version = thread << 32 | (i + 1);
                    block_on(swap_and_look(pool, &mut client, version)).unwrap();
                    if i % 200 == 0 {
                        block_on(pool.maintain(&mut client)).unwrap();
                    }
                }
            });
        }
    });
    let mut client = first.client().unwrap();
    let mut other = second.client().unwrap();
    for _ in 0..8 {
        block_on(first.maintain(&mut client)).unwrap();
        block_on(second.maintain(&mut other)).unwrap();
    }
    assert_eq!((first.garbage(), second.garbage()), (0, 0));
    let mut set = ReachableSet::new();
    for root in 0..4 {
        set.insert(read_root(&first, &mut client, root), 128);
    }
    drop(other);
    block_on(second.close()).unwrap();
    block_on(first.settle(&mut client)).unwrap();
    let audit = block_on(first.audit(&mut client, &set)).unwrap();
    assert_eq!((audit.leaked_bytes, audit.violations.as_slice()), (0, &[][..]));
    assert_eq!(block_on(first.usage(&mut client)).unwrap().bad_frees, 0);
}

fn read_root<F: Fabric>(pool: &Pool<F>, client: &mut Client<F>, root: usize) -> GlobalAddr {
    let mut batch = client.batch();
    let read = batch.read(pool.root_word(root), 1);
    let batch = block_on(client.submit(batch)).unwrap();
    GlobalAddr::from_bits(batch.words(read)[0])
}

async fn swap_and_look(
    pool: &Pool<Local>,
    client: &mut Client<Local>,
    version: u64,
) -> Result<(), PoolError> {
    let mut pinned = client.pin(OpKind::Update).await?;
    let root = pool.root_word((version % 4) as usize);
    let mut batch = pinned.batch();
    let read = batch.read(root, 1);
    let batch = pinned.submit(batch).await?;
    let old = batch.words(read)[0];
    pinned.recycle(batch);
    let mut look = None;
    for _ in 0..3 {
        if old == 0 {
            break;
        }
        let mut batch = pinned.batch();
        let read = batch.read(GlobalAddr::from_bits(old), 16);
        let batch = pinned.submit(batch).await?;
        let words = batch.words(read).to_vec();
        pinned.recycle(batch);
        assert!(words.iter().all(|&word| word == words[0]), "torn: {words:x?}");
        assert!(look.is_none() || look == Some(words[0]), "reused under a reader");
        look = Some(words[0]);
    }
    let new = match pinned.alloc((version % 2) as u8, 128, AllocKind::Leaf).await {
        Ok(new) => new,
        Err(PoolError::OutOfSpace { .. }) => {
            // A thread that sleeps while pinned holds the epoch back; let it run.
            drop(pinned);
            std::thread::yield_now();
            return Ok(());
        }
        Err(error) => return Err(error),
    };
    let mut batch = pinned.batch();
    batch.write(new, &[version; 16]);
    let cas = batch.cas(root, old, new.bits());
    // The object may be on another node than the root; this fabric executes batches in order even
    // then.
    let batch = pinned.submit(batch).await?;
    let won = batch.swapped(cas);
    pinned.recycle(batch);
    if !won {
        pinned.free_unpublished(new, 128, AllocKind::Leaf);
    } else if old != 0 {
        pinned.retire(GlobalAddr::from_bits(old), 128, AllocKind::Leaf);
    }
    Ok(())
}

#[test]
fn two_sweeps_of_a_process_take_different_blocks() {
    let pool = create(4 << 20, 1);
    let dead = open(&pool);
    let mut theirs = dead.client().unwrap();
    let kept: Vec<_> = (0..100).map(|_| block_on(theirs.alloc(0, 64, AllocKind::Leaf)).unwrap()).collect();
    drop(theirs);
    dead.abandon();
    let (mut one, mut two) = (pool.client().unwrap(), pool.client().unwrap());
    let first = block_on(pool.adopt(&mut one)).unwrap();
    assert!(!first.is_empty());
    // The second finds nothing to do while the first holds its adoption, and takes over once that
    // is dropped.
    assert!(block_on(pool.adopt(&mut two)).unwrap().is_empty());
    let blocks = first.blocks();
    drop(first);
    let second = block_on(pool.adopt(&mut two)).unwrap();
    assert_eq!(second.blocks(), blocks);
    assert!(block_on(pool.adopt(&mut one)).unwrap().is_empty());
    let reachable = reachable(&kept, 64);
    assert!(block_on(pool.finish_adoption(&mut two, second, &reachable)).unwrap().finished);
    let audit = block_on(pool.audit(&mut two, &reachable)).unwrap();
    assert!(audit.violations.is_empty() && audit.leaked_bytes == 0, "{audit:?}");
}
