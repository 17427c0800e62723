//! Processes that may only read: their reads are protected as those of any member, and they change
//! nothing but their member lines.

use darter_fabric::{Local, OpKind, Reading, block_on};
use darter_pool::{AllocKind, Client, Pool, PoolError, PoolOptions};

const OBJECT: u64 = 64;

fn create(memory: &Local) -> Pool<Local> {
    let options = PoolOptions { block_bytes: Some(256 << 10), lease_ms: 50, ..PoolOptions::default() };
    block_on(Pool::create(memory.clone(), &options)).unwrap()
}

fn open_to_read(memory: &Local) -> (Reading<Local>, Pool<Reading<Local>>) {
    let fabric = Reading::new(memory.clone());
    let pool = block_on(Pool::open(fabric.clone())).unwrap();
    assert!(pool.reads_only());
    (fabric, pool)
}

/// Rounds of upkeep of both processes, in turns.
fn maintain(
    (pool, client): (&Pool<Local>, &mut Client<Local>),
    (other, theirs): (&Pool<Reading<Local>>, &mut Client<Reading<Local>>),
) {
    for _ in 0..20 {
        block_on(pool.maintain(client)).unwrap();
        block_on(other.maintain(theirs)).unwrap();
    }
}

#[test]
fn memory_is_not_used_again_under_a_process_that_only_reads() {
    let memory = Local::memory(4 << 20, 1).unwrap();
    let pool = create(&memory);
    let (fabric, other) = open_to_read(&memory);
    let (mut client, mut theirs, mut upkeep) =
        (pool.client().unwrap(), other.client().unwrap(), other.client().unwrap());
    let addr = block_on(client.alloc(0, OBJECT, AllocKind::Leaf)).unwrap();
    let reads = block_on(theirs.pin(OpKind::Get)).unwrap();
    block_on(client.pin(OpKind::Delete)).unwrap().retire(addr, OBJECT, AllocKind::Leaf);
    maintain((&pool, &mut client), (&other, &mut upkeep));
    assert!(pool.has_garbage(), "a reader is pinned");
    assert!(pool.epoch() <= reads.epoch() + 1);
    drop(reads);
    maintain((&pool, &mut client), (&other, &mut upkeep));
    assert!(!pool.has_garbage());
    assert_eq!(other.epoch(), pool.epoch());
    drop((theirs, upkeep));
    block_on(other.close()).unwrap();
    assert_eq!(fabric.refused(), 0);
    let usage = block_on(pool.usage(&mut client)).unwrap();
    assert_eq!(usage.members.len(), 1, "it has given its line back");
    assert!(!usage.members[0].reads_only);
}

#[test]
fn a_process_that_only_reads_leaves_epochs_and_dead_members_to_others() {
    let memory = Local::memory(4 << 20, 1).unwrap();
    let (pool, dead) = (create(&memory), block_on(Pool::open(memory.clone())).unwrap());
    let mut client = pool.client().unwrap();
    dead.abandon();
    let (fabric, other) = open_to_read(&memory);
    let mut theirs = other.client().unwrap();
    assert_eq!(block_on(other.usage(&mut theirs)).unwrap().members.len(), 3);
    // Garbage of the other process waits for the epoch to advance.
    let addr = block_on(client.alloc(0, OBJECT, AllocKind::Leaf)).unwrap();
    block_on(client.pin(OpKind::Delete)).unwrap().retire(addr, OBJECT, AllocKind::Leaf);
    block_on(pool.evict(&mut client)).unwrap();
    for _ in 0..3 {
        block_on(pool.maintain(&mut client)).unwrap();
    }
    let epoch = pool.epoch();
    for _ in 0..3 {
        block_on(other.maintain(&mut theirs)).unwrap();
    }
    assert_eq!(other.epoch(), epoch, "the epoch is advanced by a member that may write");
    let members = block_on(other.usage(&mut theirs)).unwrap().members;
    assert_eq!(
        members.iter().map(|member| (member.reads_only, member.is_me)).collect::<Vec<_>>(),
        [(false, false), (true, true)]
    );
    drop(theirs);
    drop(other);
    assert_eq!(fabric.refused(), 0);
}

#[test]
fn what_changes_a_pool_is_refused_with_the_reason() {
    let memory = Local::memory(4 << 20, 1).unwrap();
    let _pool = create(&memory);
    let (fabric, other) = open_to_read(&memory);
    let mut theirs = other.client().unwrap();
    let errors = block_on(async {
        [
            theirs.alloc(0, OBJECT, AllocKind::Inner).await.map(drop).unwrap_err(),
            other.adopt(&mut theirs).await.map(drop).unwrap_err(),
            other.evict(&mut theirs).await.unwrap_err(),
            other.begin_snapshot(&mut theirs).await.map(drop).unwrap_err(),
        ]
    });
    for error in errors {
        assert!(matches!(error, PoolError::ReadOnly), "{error}");
        assert!(error.to_string().contains("`--token-file`"), "{error}");
    }
    assert_eq!(fabric.refused(), 0, "nothing was sent");
    // A pool cannot be created, either.
    let empty = Reading::new(Local::memory(4 << 20, 1).unwrap());
    let error = block_on(Pool::create(empty, &PoolOptions::default())).unwrap_err();
    assert!(matches!(error, PoolError::ReadOnly), "{error}");
}
