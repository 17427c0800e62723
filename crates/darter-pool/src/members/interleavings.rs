//! Tests of races among members that join, lapse and die, with schedules driven by hand.

use darter_fabric::{Fabric, OpKind, block_on};
use darter_sim::Sim;
use darter_sim::{EventKind, Executor, WordOrder};
use std::cell::RefCell;
use std::pin::pin;

use super::evict::evict_gone;
use super::member::{LINE_WORDS, read_table};
use crate::fixtures::{LEASE_MS, create, is_pending_after, maintain, open, open_first, options, slow};
use crate::{AllocKind, Pool, PoolError, ReachableSet};

#[test]
fn members_that_renew_their_leases_are_not_shut_out() {
    let sim = Sim::new(1, 4 << 20);
    let pools = [create(&sim), open(&sim, 1)];
    for _ in 0..20 {
        sim.advance_ms(LEASE_MS / 4 + 1);
        for pool in &pools {
            maintain(pool, 1);
        }
    }
}

/// The clocks of any two of the processes are an hour to twenty years apart, and drift.
#[test]
fn clocks_that_differ_and_drift_shut_out_only_a_member_that_is_silent() {
    let sim = Sim::new(1, 4 << 20);
    sim.let_clocks_drift();
    let pools: Vec<_> = [create(&sim)].into_iter().chain((1..5).map(|process| open(&sim, process))).collect();
    for _ in 0..100 {
        sim.advance_ms(LEASE_MS / 8);
        for pool in &pools {
            maintain(pool, 1);
        }
    }
    for silent in (1..5).rev() {
        for _ in 0..24 {
            assert!((0..silent as u32).all(|process| !sim.process(process).is_fenced()));
            sim.advance_ms(LEASE_MS / 8);
            pools[..silent].iter().for_each(|pool| maintain(pool, 1));
        }
        assert!(sim.process(silent as u32).is_fenced(), "process {silent} was silent for three leases");
    }
    pools.iter().for_each(Pool::abandon);
}

/// No process can read the lines, or renew a lease, while their memory node is absent.
#[test]
fn first_observer_after_a_node_returns_leaves_others_time_to_renew() {
    let sim = Sim::new(1, 4 << 20);
    let pools = [create(&sim), open(&sim, 1), open(&sim, 2)];
    for first in 0..pools.len() {
        for pool in &pools {
            maintain(pool, 1);
        }
        sim.advance_ms(LEASE_MS / 4);
        maintain(&pools[first], 1);
        sim.advance_ms(20 * LEASE_MS);
        for later in 0..pools.len() {
            maintain(&pools[(first + later) % pools.len()], 2);
            sim.advance_ms(LEASE_MS / 10);
        }
    }
    // One of them does not come back.
    let [one, two, three] = pools;
    sim.advance_ms(20 * LEASE_MS);
    for _ in 0..8 {
        maintain(&one, 1);
        maintain(&two, 1);
        sim.advance_ms(LEASE_MS / 10);
    }
    assert!(sim.process(2).is_fenced());
    drop((one, two));
    three.abandon();
}

/// A round of upkeep waits for a memory node at each of its round trips, for longer than a lease.
#[test]
fn lease_is_renewed_while_a_round_waits() {
    for polls in 1.. {
        let sim = Sim::new(1, 4 << 20);
        let one = create(&sim);
        let two = block_on(Pool::open(slow(&sim, 1))).unwrap();
        let (mut client, mut beside) = (two.client().unwrap(), two.client().unwrap());
        let mut round = pin!(two.maintain(&mut client));
        let has_ended = !is_pending_after(round.as_mut(), polls);
        for _ in 0..20 {
            sim.advance_ms(LEASE_MS / 4);
            block_on(two.renew(&mut beside)).unwrap();
            maintain(&one, 1);
        }
        assert!(!sim.process(1).is_fenced(), "after {polls} polls");
        if has_ended {
            assert!(polls > 2, "a round has several round trips");
            break;
        }
        block_on(round).unwrap();
        one.abandon();
        two.abandon();
    }
}

#[test]
fn member_that_renews_its_lease_after_the_first_observation_has_not_lapsed() {
    let sim = Sim::new(1, 4 << 20);
    let (one, two) = (create(&sim), open(&sim, 1));
    let mut endpoint = sim.endpoint().unwrap();
    let stale = block_on(read_table(&mut endpoint, 2)).unwrap().lines[1];
    sim.advance_ms(LEASE_MS / 2);
    maintain(&two, 1);
    let evictions = block_on(evict_gone(&sim, &mut endpoint, [(1, stale, true)].into_iter())).unwrap();
    assert!(!evictions.any && !sim.process(1).is_fenced());
    drop((one, two));
}

/// The second READ of a dead member's line tears: its end belongs to the next member in that slot.
#[test]
fn the_next_in_a_slot_is_not_shut_out_for_the_one_before() {
    let sim = Sim::new(1, 4 << 20);
    let (one, two) = (create(&sim), open(&sim, 1));
    let mut endpoint = sim.process(0).endpoint().unwrap();
    let stale = block_on(read_table(&mut endpoint, 2)).unwrap().lines[1];
    two.abandon();
    sim.process(1).kill();
    let mut executor = Executor::new(&sim);
    let fabric = sim.process(0);
    executor.spawn(0, async move {
        let _ = evict_gone(&fabric, &mut endpoint, [(1, stale, true)].into_iter()).await;
    });
    let mut events = Vec::new();
    for _ in 0..3 {
        executor.events(&mut events);
        // The state, then state, epochs and heartbeat, but not yet the holder.
        executor.perform(events[0], 4, WordOrder::Ascending);
    }
    sim.schedule(false);
    let next = open(&sim, 2);
    assert_eq!(next.member().member, 1);
    sim.schedule(true);
    loop {
        executor.events(&mut events);
        let Some(&event) = events.first() else { break };
        executor.perform(event, 0, WordOrder::Ascending);
        executor.perform(event, u32::MAX, WordOrder::Ascending);
    }
    sim.schedule(false);
    assert!(!sim.process(2).is_fenced());
    drop((one, next));
}

/// A READ of the member lines tears: its last word is from before a member went live, the others
/// are from after.
#[test]
fn member_seen_live_is_seen_with_its_own_words() {
    let sim = Sim::new(1, 4 << 20);
    let one = create(&sim);
    let mut endpoint = sim.process(0).endpoint().unwrap();
    let read = RefCell::new(None);
    let mut executor = Executor::new(&sim);
    executor.spawn(0, async {
        *read.borrow_mut() = Some(read_table(&mut endpoint, 2).await.unwrap());
    });
    let mut events = Vec::new();
    loop {
        executor.events(&mut events);
        let event = events[0];
        if matches!(event.kind, EventKind::Execute { verb: 2, .. }) {
            executor.perform(event, 1, WordOrder::Descending);
            break;
        }
        executor.perform(event, u32::MAX, WordOrder::Ascending);
    }
    sim.schedule(false);
    let two = open(&sim, 1);
    sim.schedule(true);
    while read.borrow().is_none() {
        executor.events(&mut events);
        executor.perform(events[0], u32::MAX, WordOrder::Ascending);
    }
    sim.schedule(false);
    let table = read.borrow_mut().take().unwrap();
    for (slot, line) in table.live() {
        assert!(line.nodes == 1 && line.holder != 0, "slot {slot}: {line:?}");
    }
    drop(executor);
    drop((one, two));
}

/// A member joins and the epoch advances while the table is read slowly, the last word of each verb
/// first. A process that found that epoch and not the member would advance the epoch over its pin.
#[test]
fn member_that_joined_before_an_epoch_is_seen_with_it() {
    for expected in [1, 2] {
        let words = (0..100).take_while(|&words| joins_after(expected, words)).count();
        assert!(words > 2 * LINE_WORDS, "the epoch is read once, and the lines twice");
    }
}

/// Reads a table of `expected` lines; a member joins after `words` words have been read. Returns
/// `false` if the read ended before.
fn joins_after(expected: u32, words: usize) -> bool {
    let sim = Sim::new(1, 4 << 20);
    let one = create(&sim);
    let mut endpoint = sim.endpoint().unwrap();
    let read = RefCell::new(None);
    let mut executor = Executor::new(&sim);
    executor.spawn(0, async {
        *read.borrow_mut() = Some(read_table(&mut endpoint, expected).await.unwrap());
    });
    let mut events = Vec::new();
    let mut left = words;
    while left > 0 && read.borrow().is_none() {
        executor.events(&mut events);
        left -= usize::from(matches!(events[0].kind, EventKind::Execute { .. }));
        executor.perform(events[0], 1, WordOrder::Descending);
    }
    let has_ended = read.borrow().is_some();

    sim.schedule(false);
    let two = open(&sim, 1);
    let mut client = two.client().unwrap();
    let addr = block_on(client.alloc(0, 64, AllocKind::Leaf)).unwrap();
    block_on(client.pin(OpKind::Delete)).unwrap().retire(addr, 64, AllocKind::Leaf);
    drop(client);
    let before = one.epoch();
    for _ in 0..3 {
        maintain(&two, 1);
        maintain(&one, 1);
    }
    assert!(one.epoch() > before);
    sim.schedule(true);

    while read.borrow().is_none() {
        executor.events(&mut events);
        executor.perform(events[0], u32::MAX, WordOrder::Ascending);
    }
    sim.schedule(false);
    let table = read.borrow_mut().take().unwrap();
    assert!(table.epoch <= before || table.live().count() == 2, "after {words} words of {expected} lines");
    drop(executor);
    drop((one, two));
    !has_ended
}

#[test]
fn member_that_may_write_to_unknown_nodes_is_not_ended() {
    let sim = Sim::new(2, 4 << 20);
    (0..3).for_each(|process| sim.process(process).limit_nodes(1));
    let (one, two) = (create(&sim), open(&sim, 1));
    block_on(one.add_node(&mut one.client().unwrap(), "sim:1")).unwrap();
    let mut endpoint = sim.process(2).endpoint().unwrap();
    let line = block_on(read_table(&mut endpoint, 2)).unwrap().lines[1];
    two.abandon();
    sim.process(1).kill();
    let fabric = sim.process(2);
    let evictions = block_on(evict_gone(&fabric, &mut endpoint, [(1, line, true)].into_iter())).unwrap();
    assert!(evictions.unsure && !evictions.any);
    drop(one);
}

#[test]
fn a_line_is_free_again_when_its_node_cannot_be_added() {
    let sim = Sim::new(2, 4 << 20);
    (0..2).for_each(|process| sim.process(process).limit_nodes(1));
    let (one, two) = (create(&sim), open(&sim, 1));
    assert!(block_on(one.add_node(&mut one.client().unwrap(), "sim:7")).is_err());
    assert_eq!(block_on(two.add_node(&mut two.client().unwrap(), "sim:1")).unwrap(), 1);
    maintain(&one, 3);
    assert_eq!(one.process.blocks.layout().node_count(), 2);
}

#[test]
fn member_that_joins_during_an_addition_reaches_the_node_before_others_use_it() {
    for polls in 0.. {
        let sim = Sim::new(2, 4 << 20);
        (0..2).for_each(|process| sim.process(process).limit_nodes(1));
        let one = create(&sim);
        let mut opening = pin!(Pool::open(slow(&sim, 1)));
        let is_open = !is_pending_after(opening.as_mut(), polls);
        if is_open {
            assert!(polls > 3, "a process joins in several round trips");
            break;
        }
        block_on(one.add_node(&mut one.client().unwrap(), "sim:1")).unwrap();
        maintain(&one, 3);
        let two = block_on(opening).unwrap();
        assert!(one.nodes() == 1 || two.process.blocks.layout().node_count() == 2, "after {polls} polls");
        two.abandon();
        one.abandon();
    }
}

#[test]
fn block_of_a_member_that_joins_during_an_observation_is_not_swept() {
    for polls in 0.. {
        let sim = Sim::new(1, 4 << 20);
        let one = block_on(Pool::create(slow(&sim, 0), &options())).unwrap();
        let mut client = one.client().unwrap();
        let mut adopting = pin!(one.adopt(&mut client));
        if !is_pending_after(adopting.as_mut(), polls) {
            assert!(polls > 3, "members and blocks are read one after the other");
            break;
        }
        let two = open(&sim, 1);
        let mut other = two.client().unwrap();
        block_on(other.alloc(0, 64, AllocKind::Leaf)).unwrap();
        assert_eq!(block_on(adopting).unwrap().blocks(), 0, "after {polls} polls");
        drop(other);
        two.abandon();
        one.abandon();
    }
}

/// Frees an object of `bytes` bytes that the walk met, after the walk.
fn assert_freed_after_the_walk(bytes: u64) {
    let sim = Sim::new(1, 4 << 20);
    let dead = open_first(&sim, 1);
    let addr = block_on(dead.client().unwrap().alloc(0, bytes, AllocKind::Leaf)).unwrap();
    let sweeper = open(&sim, 0);
    let mut client = sweeper.client().unwrap();
    dead.abandon();
    sim.process(1).kill();
    let adoption = block_on(sweeper.adopt(&mut client)).unwrap();
    assert_eq!(adoption.dead_blocks(), 1);
    let mut met = ReachableSet::new();
    assert!(met.insert(addr, bytes));
    block_on(client.pin(OpKind::Delete)).unwrap().retire(addr, bytes, AllocKind::Leaf);
    let report = block_on(sweeper.finish_adoption(&mut client, adoption, &met)).unwrap();
    assert!(report.finished && report.violations.is_empty());
    let audit = block_on(sweeper.audit(&mut client, &ReachableSet::new())).unwrap();
    assert_eq!((report.kept_bytes, audit.leaked_bytes), (0, 0));
}

#[test]
fn what_is_freed_after_the_walk_of_a_sweep_is_free() {
    assert_freed_after_the_walk(64);
}

/// An object has fewer bytes than its slot. Sweeps once subtracted the slot's bytes from the bytes
/// that the walk had met.
#[test]
fn a_sweep_counts_what_was_freed_as_the_walk_has_met_it() {
    for bytes in [72, 4648, 70 << 10] {
        assert_freed_after_the_walk(bytes);
    }
}

/// A process that was never live together with another one frees an object that its sweep has met,
/// at every round trip of the sweep, including between the read of the freed bits and the first
/// allocation.
#[test]
fn what_is_freed_during_a_sweep_is_free() {
    let mut freed = 0;
    for polls in 0.. {
        let sim = Sim::new(1, 4 << 20);
        let former = open_first(&sim, 1);
        let addr = block_on(former.client().unwrap().alloc(0, 64, AllocKind::Leaf)).unwrap();
        block_on(former.close()).unwrap();
        let sweeper = block_on(Pool::open(slow(&sim, 0))).unwrap();
        let (mut client, mut other) = (sweeper.client().unwrap(), sweeper.client().unwrap());
        let adoption = block_on(sweeper.adopt(&mut client)).unwrap();
        let mut met = ReachableSet::new();
        assert!(met.insert(addr, 64));
        let is_swept = {
            let mut sweep = pin!(sweeper.finish_adoption(&mut client, adoption, &met));
            let is_swept = !is_pending_after(sweep.as_mut(), polls);
            block_on(other.pin(OpKind::Delete)).unwrap().retire(addr, 64, AllocKind::Leaf);
            if !is_swept {
                for _ in 0..8 {
                    block_on(sweeper.maintain(&mut other)).unwrap();
                }
                freed += usize::from(sweeper.garbage() == 0);
                assert!(block_on(sweep).unwrap().finished);
            }
            is_swept
        };
        block_on(sweeper.settle(&mut client)).unwrap();
        let audit = block_on(sweeper.audit(&mut client, &ReachableSet::new())).unwrap();
        assert_eq!(audit.leaked_bytes, 0, "after {polls} polls");
        drop((client, other));
        sweeper.abandon();
        if is_swept {
            break;
        }
    }
    assert!(freed > 3, "{freed}");
}

/// A sweep is cut short at every round trip. From the round trip on that adds the bits, which may
/// then be in flight, no other sweep of that process takes the block. A sweep of another process
/// does, once the first process is gone.
#[test]
fn a_sweep_cut_short_while_it_adds_bits_is_not_begun_again() {
    let mut taken = Vec::new();
    for polls in 1.. {
        let sim = Sim::new(1, 4 << 20);
        let former = open_first(&sim, 1);
        let mut client = former.client().unwrap();
        let addrs = [0; 2].map(|_| block_on(client.alloc(0, 64, AllocKind::Leaf)).unwrap());
        drop(client);
        block_on(former.close()).unwrap();
        let sweeper = block_on(Pool::open(slow(&sim, 0))).unwrap();
        let mut client = sweeper.client().unwrap();
        let mut met = ReachableSet::new();
        assert!(met.insert(addrs[0], 64));
        let adoption = block_on(sweeper.adopt(&mut client)).unwrap();
        assert_eq!(adoption.blocks(), 1);
        let mut sweep = Box::pin(sweeper.finish_adoption(&mut client, adoption, &met));
        let is_swept = !is_pending_after(sweep.as_mut(), polls);
        drop(sweep);
        if !is_swept {
            taken.push(block_on(sweeper.adopt(&mut client)).unwrap().blocks());
        }
        drop(client);
        sweeper.abandon();
        sim.process(0).kill();
        let last = open(&sim, 2);
        let mut client = last.client().unwrap();
        let adoption = block_on(last.adopt(&mut client)).unwrap();
        assert_eq!(adoption.blocks(), 1, "after {polls} polls");
        assert!(block_on(last.finish_adoption(&mut client, adoption, &met)).unwrap().finished);
        let audit = block_on(last.audit(&mut client, &met)).unwrap();
        assert_eq!((audit.leaked_bytes, audit.violations.len()), (0, 0), "after {polls} polls: {audit:?}");
        drop(client);
        last.abandon();
        if is_swept {
            break;
        }
    }
    // The last round trip adds the bits.
    let (last, others) = taken.split_last().unwrap();
    assert!(others.len() > 3 && others.iter().all(|&blocks| blocks == 1), "{taken:?}");
    assert_eq!(*last, 0, "{taken:?}");
}

/// One process creates a pool and stops at any round trip; another begins, and stops at any of its
/// own; then both continue.
#[test]
fn one_of_two_concurrent_creations_of_a_pool_fails() {
    let mut contended = 0;
    'first: for first_polls in 0.. {
        for second_polls in 0.. {
            let sim = Sim::new(2, 4 << 20);
            let (one, two) = (slow(&sim, 0), slow(&sim, 1));
            let options = options();
            let mut first = pin!(Pool::create(one, &options));
            let is_first_done = !is_pending_after(first.as_mut(), first_polls);
            if is_first_done {
                assert!(first_polls > 10, "creating a pool takes many round trips");
                break 'first;
            }
            let mut second = pin!(Pool::create(two, &options));
            if !is_pending_after(second.as_mut(), second_polls) {
                break;
            }
            let outcomes = [block_on(first), block_on(second)];
            let at = format!("after {first_polls} and {second_polls} polls");
            let won: Vec<_> = outcomes.iter().filter_map(|outcome| outcome.as_ref().ok()).collect();
            assert_eq!(won.len(), 1, "{at}");
            let refused = outcomes.iter().find_map(|outcome| outcome.as_ref().err()).unwrap();
            contended += usize::from(matches!(refused, PoolError::BeingCreated { .. }));
            let is_told = matches!(refused, PoolError::BeingCreated { .. } | PoolError::AlreadyAPool { .. });
            assert!(is_told, "{at}: {refused}");
            let opened = open(&sim, 2);
            assert_eq!((opened.id(), opened.secret()), (won[0].id(), won[0].secret()), "{at}");
            for pool in won {
                pool.abandon();
            }
            opened.abandon();
        }
    }
    assert!(contended > 0);
}

/// A process dies at any round trip while it creates a pool.
#[test]
fn a_pool_left_half_made_is_made_again() {
    for polls in 0.. {
        let sim = Sim::new(2, 4 << 20);
        let options = options();
        {
            let mut first = pin!(Pool::create(slow(&sim, 0), &options));
            if !is_pending_after(first.as_mut(), polls) {
                assert!(polls > 10, "creating a pool takes many round trips");
                return;
            }
            sim.process(0).kill();
        }
        match block_on(Pool::create(sim.process(1), &options)) {
            Ok(pool) => drop(pool),
            Err(PoolError::AlreadyAPool { .. }) => drop(open(&sim, 1)),
            Err(error) => panic!("after {polls} polls: {error}"),
        }
        drop(open(&sim, 2));
    }
}
