//! Creating, opening, refusing, joining and leaving a pool.

use darter_fabric::decorate::FailPoint;
use darter_fabric::{Endpoint, Fabric, Failing, GlobalAddr, Local, OpKind, block_on};
use darter_pool::{AllocKind, Client, Pool, PoolError, PoolOptions, ROOT_WORDS};

fn options(block_bytes: u64) -> PoolOptions {
    PoolOptions { block_bytes: Some(block_bytes), ..PoolOptions::default() }
}

fn memory(bytes: u64, nodes: usize) -> Local {
    Local::memory(bytes, nodes).unwrap()
}

fn xor(fabric: &Local, addr: GlobalAddr, mask: u64) {
    let mut endpoint = fabric.endpoint().unwrap();
    let mut batch = endpoint.batch();
    let read = batch.read(addr, 1);
    let batch = block_on(endpoint.submit(batch)).unwrap();
    let word = batch.words(read)[0];
    let mut batch = endpoint.batch();
    batch.write(addr, &[word ^ mask]);
    block_on(endpoint.submit(batch)).unwrap();
}

#[test]
fn futures_are_send() {
    fn check<T: Send>(_: &T) {}
    let pool = block_on(Pool::create(memory(4 << 20, 1), &options(1 << 20))).unwrap();
    let mut client = pool.client().unwrap();
    check(&client.pin(OpKind::Get));
    check(&client.alloc(0, 10, AllocKind::Leaf));
    check(&pool.maintain(&mut client));
    check(&pool.settle(&mut client));
    check(&pool.usage(&mut client));
    check(&pool.adopt(&mut client));
    let reachable = darter_pool::ReachableSet::new();
    check(&pool.audit(&mut client, &reachable));
    let adoption = block_on(pool.adopt(&mut client)).unwrap();
    check(&pool.finish_adoption(&mut client, adoption, &reachable));
    drop(client);
    check(&pool.close());
}

#[test]
fn a_pool_opens_as_it_was_created() {
    let fabric = memory(4 << 20, 3);
    let created = block_on(Pool::create(fabric.clone(), &options(512 << 10))).unwrap();
    let opened = block_on(Pool::open(fabric.clone())).unwrap();
    assert_eq!(created.secret(), opened.secret());
    assert_eq!(created.id(), opened.id());
    assert_eq!((opened.nodes(), opened.block_bytes()), (3, 512 << 10));
    assert_eq!(opened.object_bytes_max(), 448 << 10);
    let mut client = opened.client().unwrap();
    let usage = block_on(opened.usage(&mut client)).unwrap();
    assert_eq!(usage.members.len(), 2);
    assert_eq!(usage.nodes.iter().map(|node| node.free).sum::<u64>(), 21);
    let mut batch = client.batch();
    let reads: Vec<_> = (0..ROOT_WORDS).map(|i| batch.read(opened.root_word(i), 1)).collect();
    let batch = block_on(client.submit(batch)).unwrap();
    assert!(reads.iter().all(|&read| batch.words(read)[0] == 0));
    assert!(matches!(
        block_on(Pool::create(fabric, &options(512 << 10))),
        Err(PoolError::AlreadyAPool { node: 2 | 0 })
    ));
}

#[test]
fn every_flipped_superblock_word_is_refused_and_nothing_is_harmed() {
    let fabric = memory(2 << 20, 2);
    drop(block_on(Pool::create(fabric.clone(), &options(256 << 10))).unwrap());
    for node in 0..2 {
        for word in 0..16 {
            for bit in [0, 17, 40, 63] {
                let addr = GlobalAddr::new(node, word * 8);
                xor(&fabric, addr, 1 << bit);
                let error = block_on(Pool::open(fabric.clone())).unwrap_err();
                match word {
                    0 => assert!(matches!(error, PoolError::NotAPool { node: n } if n == node), "{error}"),
                    1 => assert!(matches!(error, PoolError::WrongVersion { .. }), "{error}"),
                    _ => assert!(matches!(error, PoolError::Damaged { node: n, .. } if n == node), "{error}"),
                }
                xor(&fabric, addr, 1 << bit);
            }
        }
    }
    block_on(Pool::open(fabric)).unwrap();
}

#[test]
fn damaged_tables_are_errors_or_violations_never_panics() {
    for bit in 0..64 {
        for word in [128, 136, 144, 4096, 4104, 4112, 20480, 53248, 53256] {
            let fabric = memory(2 << 20, 1);
            drop(block_on(Pool::create(fabric.clone(), &options(256 << 10))).unwrap());
            xor(&fabric, GlobalAddr::new(0, word), 1 << bit);
            let Ok(pool) = block_on(Pool::open(fabric)) else { continue };
            let mut client = pool.client().unwrap();
            let _ = block_on(client.alloc(0, 100, AllocKind::Leaf));
            let _ = block_on(pool.maintain(&mut client));
            let _ = block_on(pool.usage(&mut client));
            let _ = block_on(pool.audit(&mut client, &darter_pool::ReachableSet::new()));
            pool.abandon();
        }
    }
}

#[test]
fn damaged_books_of_a_closed_block_lose_pages_only() {
    // Page words, freed words and the first slab's bitmap of the first block, which begins at 64
    // KiB.
    for (word, bit) in
        [0u64, 1, 4, 5, 7, 8, 9].into_iter().flat_map(|word| (0..64).map(move |bit| (word, bit)))
    {
        let fabric = memory(2 << 20, 1);
        let pool = block_on(Pool::create(fabric.clone(), &options(256 << 10))).unwrap();
        let mut client = pool.client().unwrap();
        let addr = block_on(client.alloc(0, 100, AllocKind::Leaf)).unwrap();
        assert_eq!(addr.offset() >> 16, 1);
        block_on(client.alloc(0, 70_000, AllocKind::Leaf)).unwrap();
        drop(client);
        block_on(pool.close()).unwrap();
        xor(&fabric, GlobalAddr::new(0, (64 << 10) + word * 8), 1 << bit);
        let pool = block_on(Pool::open(fabric)).unwrap();
        let mut client = pool.client().unwrap();
        let report = block_on(pool.audit(&mut client, &darter_pool::ReachableSet::new())).unwrap();
        assert!(report.leaked_bytes <= 256 << 10, "{report:?}");
        while block_on(client.alloc(0, 5000, AllocKind::Leaf)).is_ok() {}
        block_on(pool.settle(&mut client)).unwrap();
    }
}

/// Damage must not make objects in use look free: later objects would overwrite them.
#[test]
fn nothing_is_allocated_from_a_closed_block_with_damaged_books() {
    const WORDS: u64 = 32; // page words in a block of this size, then as many freed words
    let block = GlobalAddr::new(0, 64 << 10);
    let damages: [fn(&mut [u64]); 4] = [
        |words| words[0] = 0,
        |words| words[..WORDS as usize].fill(0),
        |words| words[1] = words[0],
        |words| words[WORDS as usize..].fill(u64::MAX),
    ];
    for (nth, damage) in damages.iter().enumerate() {
        let fabric = memory(2 << 20, 1);
        let pool = block_on(Pool::create(fabric.clone(), &options(256 << 10))).unwrap();
        let mut client = pool.client().unwrap();
        let used = [5000, 100, 5000].map(|bytes| block_on(client.alloc(0, bytes, AllocKind::Leaf)).unwrap());
        assert!(used.iter().all(|addr| addr.offset() - block.offset() < 256 << 10));
        drop(client);
        block_on(pool.close()).unwrap();
        let mut endpoint = fabric.endpoint().unwrap();
        let mut batch = endpoint.batch();
        let read = batch.read(block, 2 * WORDS as usize);
        let mut words = block_on(endpoint.submit(batch)).unwrap().words(read).to_vec();
        damage(&mut words);
        let mut batch = endpoint.batch();
        batch.write(block, &words);
        block_on(endpoint.submit(batch)).unwrap();
        let pool = block_on(Pool::open(fabric)).unwrap();
        let mut client = pool.client().unwrap();
        let mut allocated = 0;
        for bytes in [5000, 100, 1000] {
            while let Ok(addr) = block_on(client.alloc(0, bytes, AllocKind::Leaf)) {
                assert!(
                    !(block.offset()..block.offset() + (256 << 10)).contains(&addr.offset()),
                    "damage {nth}"
                );
                allocated += 1;
            }
        }
        assert!(allocated > 200, "the other blocks are in use: {allocated}");
        let report = block_on(pool.audit(&mut client, &darter_pool::ReachableSet::new())).unwrap();
        assert!(
            report.violations.iter().any(|what| what.contains("block 0") || what.contains("freed bits")),
            "{nth}: {report:?}"
        );
    }
}

#[test]
fn impossible_options_are_refused() {
    assert!(matches!(
        block_on(Pool::create(memory(4 << 20, 1), &options(3 << 20))),
        Err(PoolError::Options(_))
    ));
    assert!(matches!(
        block_on(Pool::create(memory(4 << 20, 1), &options(4 << 20))),
        Err(PoolError::TooSmall { node: 0, .. })
    ));
    assert!(matches!(block_on(Pool::open(memory(1 << 20, 1))), Err(PoolError::NotAPool { node: 0 })));
}

#[test]
fn all_slots_can_be_taken_and_come_back() {
    let fabric = memory(2 << 20, 1);
    let mut pools = vec![block_on(Pool::create(fabric.clone(), &options(256 << 10))).unwrap()];
    while pools.len() < 256 {
        pools.push(block_on(Pool::open(fabric.clone())).unwrap());
    }
    assert!(matches!(block_on(Pool::open(fabric.clone())), Err(PoolError::MembersFull { max: 256 })));
    pools.truncate(3);
    pools.push(block_on(Pool::open(fabric.clone())).unwrap());
    let mut client = pools[3].client().unwrap();
    let usage = block_on(pools[3].usage(&mut client)).unwrap();
    assert_eq!(
        usage.members.iter().map(|m| (m.slot, m.incarnation)).collect::<Vec<_>>(),
        [(0, 1), (1, 1), (2, 1), (3, 2)]
    );
}

#[test]
fn close_refuses_while_a_client_lives() {
    let pool = block_on(Pool::create(memory(2 << 20, 1), &options(256 << 10))).unwrap();
    let client: Client<Local> = pool.client().unwrap();
    let fabric = pool.fabric().clone();
    assert!(matches!(block_on(pool.close()), Err(PoolError::StillInUse { handles: 1 })));
    drop(client);
    let pool = block_on(Pool::open(fabric)).unwrap();
    let mut client = pool.client().unwrap();
    assert_eq!(block_on(pool.usage(&mut client)).unwrap().members.len(), 1);
}

#[test]
fn member_declared_dead_gets_an_error() {
    let fabric = memory(2 << 20, 1);
    let pool = block_on(Pool::create(fabric.clone(), &options(256 << 10))).unwrap();
    let mut client = pool.client().unwrap();
    pool.abandon();
    let other = block_on(Pool::open(fabric)).unwrap();
    assert!(matches!(block_on(pool.maintain(&mut client)), Err(PoolError::Evicted)));
    let mut client = other.client().unwrap();
    assert_eq!(block_on(other.usage(&mut client)).unwrap().members.len(), 1);
}

#[test]
fn a_member_silent_beyond_its_lease_is_shut_out_and_holds_nothing_back() {
    let sim = darter_sim::Sim::new(1, 2 << 20);
    let lease_ms = 1000;
    let options = PoolOptions { lease_ms, ..options(256 << 10) };
    let one = block_on(Pool::create(sim.process(0), &options)).unwrap();
    let two = block_on(Pool::open(sim.process(1))).unwrap();
    let (mut mine, mut theirs) = (one.client().unwrap(), two.client().unwrap());
    let round = |mine: &mut Client<_>| block_on(one.maintain(mine)).unwrap();
    let live = |mine: &mut Client<_>| block_on(one.usage(mine)).unwrap().members.len();
    // As long as it renews its lease now and then, it is never shut out.
    for _ in 0..20 {
        sim.advance_ms(lease_ms * 3 / 4);
        block_on(two.maintain(&mut theirs)).unwrap();
        round(&mut mine);
        assert_eq!(live(&mut mine), 2);
    }
    // Then it becomes silent in the middle of an operation.
    let pinned = block_on(theirs.pin(OpKind::Get)).unwrap();
    sim.advance_ms(lease_ms - 1);
    round(&mut mine);
    assert_eq!(live(&mut mine), 2);
    assert!(!sim.process(1).is_fenced());
    sim.advance_ms(lease_ms / 2);
    round(&mut mine);
    assert_eq!(live(&mut mine), 1);
    assert!(sim.process(1).is_fenced());
    drop(pinned);
    assert!(block_on(two.maintain(&mut theirs)).is_err());
    two.abandon();
}

/// A simulation of three nodes of which processes 0 to 2 reach only the first, with a pool on it.
fn one_node_of_three() -> (darter_sim::Sim, Pool<darter_sim::Sim>) {
    let sim = darter_sim::Sim::new(3, 2 << 20);
    (0..3).for_each(|process| sim.process(process).limit_nodes(1));
    let pool = block_on(Pool::create(sim.process(0), &options(256 << 10))).unwrap();
    (sim, pool)
}

#[test]
fn a_node_is_used_when_all_members_can_reach_it() {
    let (sim, one) = one_node_of_three();
    let two = block_on(Pool::open(sim.process(1))).unwrap();
    let (mut mine, mut theirs) = (one.client().unwrap(), two.client().unwrap());
    assert_eq!(block_on(one.add_node(&mut mine, "sim:1")).unwrap(), 1);
    block_on(one.maintain(&mut mine)).unwrap();
    block_on(one.maintain(&mut mine)).unwrap();
    // The other member does not know of it yet.
    assert_eq!((one.nodes(), two.nodes()), (1, 1));
    assert_eq!(block_on(mine.alloc(1, 100, AllocKind::Leaf)).unwrap().node(), 0);
    // A process that joins now reaches it, and still waits for the other member.
    let three = block_on(Pool::open(sim.process(2))).unwrap();
    assert_eq!((three.nodes(), sim.process(2).nodes()), (1, 2));
    let mut third = three.client().unwrap();
    // In one round it learns of the node, in the next it publishes that.
    block_on(two.maintain(&mut theirs)).unwrap();
    assert_eq!(sim.process(1).nodes(), 2);
    block_on(two.maintain(&mut theirs)).unwrap();
    for (pool, client) in [(&one, &mut mine), (&two, &mut theirs), (&three, &mut third)] {
        block_on(pool.maintain(client)).unwrap();
        block_on(pool.maintain(client)).unwrap();
        assert_eq!(pool.nodes(), 2);
        assert_eq!(block_on(client.alloc(1, 100, AllocKind::Leaf)).unwrap().node(), 1);
    }
    assert!(block_on(one.await_nodes(&mut mine, 0)).unwrap().is_empty());
    assert_eq!(block_on(one.add_node(&mut mine, "sim:2")).unwrap(), 2);
    assert_eq!(block_on(one.await_nodes(&mut mine, 5)).unwrap(), [0, 1, 2][1..]);
}

#[test]
fn an_addition_that_was_cut_short_anywhere_is_finished_or_begun_again() {
    for cut_at in 0.. {
        let (sim, one) = one_node_of_three();
        let two = block_on(Pool::open(sim.process(1))).unwrap();
        let failing = Failing::new(sim.process(2));
        let adder = block_on(Pool::open(failing.clone())).unwrap();
        let mut client = adder.client().unwrap();
        failing.plan().fail_from(FailPoint::Verb(cut_at));
        let added = block_on(adder.add_node(&mut client, "sim:1"));
        drop(client);
        adder.abandon();
        // The adder is dead. Others can add the same node, or find it added.
        let mut mine = one.client().unwrap();
        sim.advance_ms(100_000);
        for _ in 0..3 {
            block_on(two.maintain(&mut two.client().unwrap())).unwrap();
            block_on(one.maintain(&mut mine)).unwrap();
            sim.advance_ms(2000);
        }
        let again = block_on(one.add_node(&mut mine, "sim:1"));
        let count = sim.process(0).nodes();
        assert!(again.is_ok() || count == 2, "cut at {cut_at}: {again:?}, {count} nodes");
        for _ in 0..3 {
            block_on(two.maintain(&mut two.client().unwrap())).unwrap();
            block_on(one.maintain(&mut mine)).unwrap();
        }
        assert_eq!((one.nodes(), two.nodes()), (2, 2), "cut at {cut_at}");
        assert_eq!(block_on(mine.alloc(1, 100, AllocKind::Leaf)).unwrap().node(), 1);
        if added.is_ok() {
            assert!(cut_at > 5);
            return;
        }
    }
}

#[test]
fn a_node_that_is_none_is_not_added() {
    let (sim, one) = one_node_of_three();
    let mut mine = one.client().unwrap();
    for address in ["", "sim:2", "elsewhere", &"x".repeat(105)] {
        assert!(block_on(one.add_node(&mut mine, address)).is_err(), "{address}");
    }
    // Another pool's node.
    let other = sim.process(7);
    drop(block_on(async {
        let mut endpoint = other.endpoint().unwrap();
        let mut batch = endpoint.batch();
        batch.write(GlobalAddr::new(1, 0), &[darter_fabric::SUPERBLOCK_MAGIC]);
        endpoint.submit(batch).await
    }));
    let error = block_on(one.add_node(&mut mine, "sim:1")).unwrap_err();
    assert!(matches!(error, PoolError::AlreadyAPool { node: 1 }), "{error}");
    assert_eq!(sim.process(0).nodes(), 1);
    // A pool in one piece cannot grow.
    let whole = block_on(Pool::create(memory(4 << 20, 1), &options(1 << 20))).unwrap();
    let mut client = whole.client().unwrap();
    let error = block_on(whole.add_node(&mut client, "127.0.0.1:1")).unwrap_err().to_string();
    assert!(error.contains("cannot grow"), "{error}");
}

/// The verbs of a cancelled addition can complete the line that another addition is writing, so the
/// other addition must wait.
#[test]
fn no_node_is_added_while_verbs_of_a_cancelled_addition_are_on_their_way() {
    use darter_sim::{EventKind, Executor, WordOrder};
    use std::cell::RefCell;
    use std::task::Poll;

    // Word 1 of node 1's line in the directory.
    const WORD_1: u64 = (20_480 + 128 + 8) / 8;
    let (sim, pool) = one_node_of_three();
    let (mut one, mut two) = (pool.client().unwrap(), pool.client().unwrap());
    let mut add_another = || {
        sim.schedule(false);
        let added = block_on(pool.add_node(&mut two, "sim:1"));
        sim.schedule(true);
        added
    };
    let adding = RefCell::new(Some(Box::pin(pool.add_node(&mut one, "sim:1"))));
    let mut executor = Executor::new(&sim);
    executor.spawn(
        0,
        std::future::poll_fn(|context| match adding.borrow_mut().as_mut() {
            Some(adding) => adding.as_mut().poll(context).map(drop),
            None => Poll::Ready(()),
        }),
    );
    // Run up to the batch that writes the line and completes it.
    let mut events = Vec::new();
    loop {
        executor.events(&mut events);
        if let EventKind::Execute { access, .. } = events[0].kind
            && access.start == WORD_1
            && access.writes
        {
            break;
        }
        executor.perform(events[0], u32::MAX, WordOrder::Ascending);
    }
    let beside = add_another();
    drop(adding.take());
    let after = add_another();
    while !events.is_empty() {
        executor.perform(events[0], u32::MAX, WordOrder::Ascending);
        executor.events(&mut events);
    }
    sim.schedule(false);
    for (refused, why) in [(beside, "is adding"), (after, "are in flight")] {
        let error = refused.unwrap_err();
        assert!(matches!(error, PoolError::Options(what) if what.contains(why)), "{error}");
    }
    // All verbs have landed: node 1 is found added, and the next node is added after it.
    block_on(pool.add_node(&mut two, "sim:2")).unwrap();
    assert_eq!(sim.process(0).nodes(), 3);
}
