//! Tests of rebalances: alone, against a client that is stopped anywhere, of a mover that dies anywhere,
//! of two at once, and with a client that works.

use super::evacuations::{
    OPERATIONS, assert_operated, finish_in_any_order, key, keys_on, loaded_with, operate, options, sound,
    value as operated_value, work,
};
use super::{Quiver, QuiverOptions};
use crate::fixtures::{LEASE_MS, Unscheduled, advance, alone, finish, writes};
use crate::ordered::{Balance, NodeFill};
use crate::rebalance::{RebalanceEnd, RebalanceProgress, Rebalanced, rebalance};
use crate::{Condition, OrderedIndex, ScanRange, TreeView};
use darter_fabric::block_on;
use darter_pool::{Client, Pool};
use darter_sim::{Executor, Sim};
use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering};

/// A value that is stored in its page, or in a leaf of one of two sizes.
fn value(number: usize) -> Vec<u8> {
    vec![number as u8; [8, 300, 2000][number % 3]]
}

/// A pool of one memory node with these many pairs, to which others were added.
fn grown(
    nodes: usize,
    pairs: usize,
    remembers: bool,
    value: fn(usize) -> Vec<u8>,
) -> (Sim, Pool<Sim>, Quiver<Sim>) {
    let sim = Sim::new(nodes, 8 << 20);
    (0..3).for_each(|process| sim.process(process).limit_nodes(1));
    let (pool, quiver) = loaded_with(&sim, pairs, options(remembers), value);
    let mut client = pool.client().unwrap();
    for node in 1..nodes {
        let added = block_on(pool.add_node(&mut client, &format!("sim:{node}"))).unwrap();
        assert_eq!(usize::from(added), node);
    }
    drop(client);
    (sim, pool, quiver)
}

fn goes_on(_: &RebalanceProgress) -> ControlFlow<()> {
    ControlFlow::Continue(())
}

async fn rebalanced(quiver: &Quiver<Sim>, client: &mut Client<Sim>) -> Rebalanced {
    rebalance(quiver, client, &mut goes_on).await.unwrap()
}

fn assert_holds(quiver: &Quiver<Sim>, client: &mut Client<Sim>, pairs: usize) {
    for number in 0..pairs {
        let found = block_on(quiver.get(client, &key(number))).unwrap();
        assert_eq!(found, Some(value(number)), "pair {number}");
    }
}

/// No memory is lost, and none is in use that the index does not reach.
fn assert_exact(pool: &Pool<Sim>, quiver: &Quiver<Sim>, client: &mut Client<Sim>, context: &str) {
    block_on(pool.settle(client)).unwrap();
    block_on(quiver.sweep_dead(client)).unwrap();
    let reachable = block_on(quiver.check(client)).unwrap().reachable;
    let audit = block_on(pool.audit(client, &reachable)).unwrap();
    assert_eq!((audit.leaked_bytes, audit.violations), (0, Vec::new()), "{context}");
}

#[test]
fn added_nodes_get_their_share_and_a_second_call_moves_nothing() {
    const PAIRS: usize = 300;
    let (sim, pool, quiver) = grown(3, PAIRS, true, value);
    let mut client = pool.client().unwrap();
    let done = block_on(rebalanced(&quiver, &mut client));
    assert_eq!(done.end, RebalanceEnd::Even, "{done:?}");
    let (before, after) = done.fullest();
    assert!(before > 2.9 && after <= 1.15 && done.objects > 100, "{done:?}");
    // What is left over is not moved back and forth.
    let all: u64 = done.before.iter().map(|fill| fill.bytes).sum();
    assert!(done.bytes <= all * 3 / 4, "{done:?}");
    sound(&quiver, &mut client);
    assert_holds(&quiver, &mut client, PAIRS);
    let again = block_on(rebalanced(&quiver, &mut client));
    assert_eq!((again.end, again.objects, &again.before), (RebalanceEnd::Even, 0, &again.after));
    let other = block_on(Pool::open(sim.process(1))).unwrap();
    let mut others = other.client().unwrap();
    let opened = block_on(Quiver::open(&mut others, options(true))).unwrap();
    assert_holds(&opened, &mut others, PAIRS);
    for number in 0..PAIRS {
        let (own, value) = (key(number), value(number));
        block_on(opened.put(&mut others, &own, &value, Condition::Always)).unwrap();
    }
    // Puts move few objects to other nodes, although pages are rebuilt.
    let again = block_on(rebalanced(&opened, &mut others));
    assert!(again.fullest().0 < 1.4, "{again:?}");
    assert_holds(&quiver, &mut client, PAIRS);
    drop((others, opened));
    // What both have unlinked is freed.
    for pool in [&pool, &other].into_iter().cycle().take(40) {
        block_on(pool.maintain(&mut pool.client().unwrap())).unwrap();
    }
    block_on(other.close()).unwrap();
    assert_exact(&pool, &quiver, &mut client, "at the end");
}

fn first_that_branches(view: &TreeView) -> &TreeView {
    match &view.children[..] {
        [(_, only)] if only.label.starts_with("node") => first_that_branches(only),
        _ => view,
    }
}

/// No key needs other memory nodes than its own and the first.
#[test]
fn nodes_that_all_keys_share_stay_on_the_first_memory_node() {
    let sim = Sim::new(2, 8 << 20);
    sim.process(0).limit_nodes(1);
    let (pool, quiver) = loaded_with(&sim, 0, options(true), value);
    let mut client = pool.client().unwrap();
    let stem = [&[b'p'; 40][..], b"ear-"].concat();
    for number in 0..400 {
        let own = [&stem[..], format!("{number:04}").as_bytes()].concat();
        block_on(quiver.put(&mut client, &own, &value(number), Condition::Always)).unwrap();
    }
    block_on(pool.add_node(&mut client, "sim:1")).unwrap();
    let done = block_on(rebalanced(&quiver, &mut client));
    assert_eq!(done.end, RebalanceEnd::Even, "{done:?}");
    let view = block_on(quiver.tree(&mut client, b"", 64, 257)).unwrap();
    let branches = first_that_branches(&view);
    assert!(branches.prefix.len() >= stem.len() && branches.children.len() > 1, "{branches:?}");
    assert_eq!((view.addr.node(), branches.addr.node()), (0, 0));
}

/// A pool whose pages are all below the root, which stays: its pages are moved one by one. The pages
/// that replace them are on the same memory nodes.
#[test]
fn a_page_that_was_moved_stays_there_when_it_is_rebuilt() {
    let sim = Sim::new(2, 8 << 20);
    sim.process(0).limit_nodes(1);
    let options = QuiverOptions { page_records: 16, page_delta: 2, ..options(true) };
    let (pool, quiver) = loaded_with(&sim, 0, options, value);
    let mut client = pool.client().unwrap();
    let put_all = |client: &mut Client<Sim>, first: u8| {
        for own in (first..=255).step_by(2) {
            block_on(quiver.put(client, &[own], &[own; 200], Condition::Always)).unwrap();
        }
    };
    put_all(&mut client, 0);
    block_on(pool.add_node(&mut client, "sim:1")).unwrap();
    let done = block_on(rebalanced(&quiver, &mut client));
    assert_eq!(done.end, RebalanceEnd::Even, "{done:?}");
    // Twice as many keys: every page is rebuilt.
    put_all(&mut client, 1);
    let again = block_on(rebalanced(&quiver, &mut client));
    assert!(again.fullest().0 < 1.3, "{again:?}");
}

#[test]
fn what_cannot_be_rebalanced_is_refused() {
    let refused = |quiver: &Quiver<Sim>, client: &mut Client<Sim>, why: &str| {
        let error = block_on(rebalance(quiver, client, &mut goes_on)).unwrap_err();
        assert!(error.to_string().contains(why), "{error}");
    };
    let (_sim, pool, quiver) = grown(1, 20, true, value);
    refused(&quiver, &mut pool.client().unwrap(), "a single memory node");
    let (sim, pool, quiver) = grown(3, 60, true, value);
    let mut client = pool.client().unwrap();
    let _removal = block_on(pool.begin_removal(&mut client, 2)).unwrap();
    refused(&quiver, &mut client, "a memory node is leaving");
    assert!(block_on(pool.cancel_removal(&mut client, 2)).unwrap());
    sim.lose_node(1);
    refused(&quiver, &mut client, "memory node 1 cannot be reached");
    assert_eq!(block_on(quiver.get(&mut client, &key(3))).unwrap(), Some(value(3)));
}

/// While a process rebalances a pool, neither another one nor another thread of it does. A memory node
/// that begins to leave ends the rebalance. Then, another process may begin.
#[test]
fn one_process_rebalances_at_a_time_and_not_while_a_node_leaves() {
    let (sim, pool, quiver) = grown(3, 60, true, value);
    let other = block_on(Pool::open(sim.process(1))).unwrap();
    let mut others = other.client().unwrap();
    let opened = block_on(Quiver::open(&mut others, options(true))).unwrap();
    let (mut client, mut second) = (pool.client().unwrap(), pool.client().unwrap());
    let mut calls = 0;
    let ended = block_on(rebalance(&quiver, &mut client, &mut |_| {
        calls += 1;
        if calls == 1 {
            for (quiver, client, why) in
                [(&opened, &mut others, "another process"), (&quiver, &mut second, "this process")]
            {
                let refused = block_on(rebalance(quiver, client, &mut goes_on)).unwrap_err();
                assert!(refused.to_string().contains(why), "{refused}");
            }
            let _removal = block_on(pool.begin_removal(&mut second, 2)).unwrap();
            block_on(pool.maintain(&mut second)).unwrap();
        }
        ControlFlow::Continue(())
    }));
    assert!(ended.unwrap_err().to_string().contains("has begun to leave"));
    assert!(block_on(pool.cancel_removal(&mut client, 2)).unwrap());
    let mut some = |progress: &RebalanceProgress| {
        if progress.objects == 0 { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    };
    block_on(other.maintain(&mut others)).unwrap();
    let interrupted = block_on(rebalance(&opened, &mut others, &mut some)).unwrap();
    assert!(interrupted.end == RebalanceEnd::Interrupted && interrupted.objects > 0, "{interrupted:?}");
    let done = block_on(rebalanced(&quiver, &mut client));
    assert_eq!(done.end, RebalanceEnd::Even, "{done:?}");
    assert_holds(&opened, &mut others, 60);
}

const PAIRS: usize = 45;

/// Moves about half of everything from the first memory node to the second, whatever it holds.
async fn level(quiver: &Quiver<Sim>, client: &mut Client<Sim>) -> u64 {
    let fills = [(0, 1 << 20), (1, 0)].map(|(node, bytes)| NodeFill::new(node, bytes, 1 << 30));
    let mut balance = Balance::new(&fills);
    let (mut next, mut objects) = (Some(Vec::new()), 0);
    while let Some(from) = next {
        let moved = quiver.level(client, &mut balance, &from).await.unwrap();
        (next, objects) = (moved.next, objects + moved.objects);
    }
    objects
}

/// A pool with two processes, to which a memory node was added.
struct Grown {
    sim: Sim,
    pools: [Pool<Sim>; 2],
    quivers: [Quiver<Sim>; 2],
}

impl Grown {
    fn new() -> Self {
        let (sim, pool, quiver) = grown(2, PAIRS, false, operated_value);
        let other = block_on(Pool::open(sim.process(1))).unwrap();
        let opened = block_on(Quiver::open(&mut other.client().unwrap(), options(false))).unwrap();
        let this = Self { sim, pools: [pool, other], quivers: [quiver, opened] };
        for pool in this.pools.iter().cycle().take(8) {
            block_on(pool.maintain(&mut pool.client().unwrap())).unwrap();
        }
        assert!(this.pools.iter().all(|pool| pool.homes() == [0, 1]));
        this
    }

    /// A pair whose leaf is moved; found out in another pool.
    fn moved_pair() -> usize {
        let this = Self::new();
        let mut client = this.pools[0].client().unwrap();
        assert!(block_on(level(&this.quivers[0], &mut client)) > 10);
        let view = block_on(this.quivers[0].tree(&mut client, b"", 64, 257)).unwrap();
        let keys = keys_on(&view, 1);
        let is_moved = |number: &usize| operated_value(*number).len() == 300 && keys.contains(&key(*number));
        (0..PAIRS).find(is_moved).unwrap_or_else(|| panic!("these leaves were moved: {keys:?}"))
    }
}

/// One of a mover and a client is stopped after each of its writes in turn, while the other does all
/// that it has to do. Or the mover dies there, and another one goes on.
fn stop_at_every_write(operation: (&str, usize), stops_mover: bool, dies: bool) {
    for writes_done in 0.. {
        let grown = Grown::new();
        let _at_the_end = Unscheduled(grown.sim.clone());
        let [mut movers, mut clients] = grown.pools.each_ref().map(|pool| pool.client().unwrap());
        let [moving, working] = &grown.quivers;
        let mut executor = Executor::new(&grown.sim);
        let has_ended = if stops_mover {
            let task = executor.spawn(0, async {
                let _objects = level(moving, &mut movers).await;
            });
            let has_ended = advance(&mut executor, task, writes_done, writes);
            if dies {
                executor.kill(0);
            }
            alone(&grown.pools[1], operate(working, &mut clients, operation));
            if !dies {
                finish(&mut executor, task);
            }
            has_ended
        } else {
            let task = executor.spawn(1, operate(working, &mut clients, operation));
            let has_ended = advance(&mut executor, task, writes_done, writes);
            assert!(alone(&grown.pools[0], level(moving, &mut movers)) > 10);
            finish(&mut executor, task);
            has_ended
        };
        drop(executor);
        grown.sim.schedule(false);
        let mut client = grown.pools[1].client().unwrap();
        if dies {
            grown.sim.advance_ms(LEASE_MS * 3);
            block_on(grown.pools[1].evict(&mut client)).unwrap();
            block_on(level(working, &mut client));
        }
        let context = format!("{}, after {writes_done} writes", operation.0);
        assert_eq!(grown.sim.misuse(), None, "{context}");
        assert_operated(working, &mut client, operation);
        sound(working, &mut client);
        if has_ended {
            assert!(writes_done > 1, "{context}");
            return;
        }
    }
}

#[test]
fn a_client_is_stopped_anywhere_while_a_pool_is_rebalanced() {
    let own = Grown::moved_pair();
    for name in OPERATIONS {
        stop_at_every_write((name, own), false, false);
    }
}

#[test]
fn a_rebalance_is_stopped_anywhere_while_a_client_works() {
    let own = Grown::moved_pair();
    for name in OPERATIONS {
        stop_at_every_write((name, own), true, false);
    }
}

#[test]
fn a_process_that_moves_objects_dies_anywhere() {
    stop_at_every_write(("overwrite", Grown::moved_pair()), true, true);
}

/// A rebalance dies after each of its writes in turn: those of its claim, of the mover and of upkeep. The
/// pool has all pairs, and another process completes the rebalance and finds nothing leaked.
#[test]
fn another_process_completes_a_rebalance_that_dies_anywhere() {
    const PAIRS: usize = 24;
    let mut moved = [0; 2];
    for writes_done in 0.. {
        let (sim, pool, quiver) = grown(2, PAIRS, writes_done % 2 == 1, value);
        let _at_the_end = Unscheduled(sim.clone());
        let mut dying = pool.client().unwrap();
        let mut executor = Executor::new(&sim);
        let task = executor.spawn(0, async { drop(rebalanced(&quiver, &mut dying).await) });
        let has_ended = advance(&mut executor, task, writes_done, writes);
        executor.kill(0);
        drop(executor);
        pool.abandon();
        sim.process(0).kill();
        sim.schedule(false);
        sim.advance_ms(LEASE_MS * 3);
        let context = format!("after {writes_done} writes");
        let other = block_on(Pool::open(sim.process(1))).unwrap();
        let mut client = other.client().unwrap();
        let opened = block_on(Quiver::open(&mut client, options(true))).unwrap();
        assert_holds(&opened, &mut client, PAIRS);
        let done = block_on(rebalanced(&opened, &mut client));
        assert_eq!(done.end, RebalanceEnd::Even, "{context}: {done:?}");
        moved[usize::from(done.objects > 0)] += 1;
        sound(&opened, &mut client);
        assert_holds(&opened, &mut client, PAIRS);
        assert_exact(&other, &opened, &mut client, &context);
        if has_ended {
            break;
        }
    }
    assert!(moved[0] > 0 && moved[1] > 20, "{moved:?}");
}

/// A client does whatever comes, compares every result with a map, and runs upkeep, while another
/// process rebalances the pool.
#[test]
fn a_client_works_during_a_rebalance_in_any_order_of_verbs() {
    for seed in 0..12 {
        let remembers = seed % 2 == 1;
        let (sim, pool, quiver) = grown(3, PAIRS, remembers, value);
        let other = block_on(Pool::open(sim.process(1))).unwrap();
        let _at_the_end = Unscheduled(sim.clone());
        let (mut client, mut working) = (pool.client().unwrap(), other.client().unwrap());
        let opened = block_on(Quiver::open(&mut working, options(remembers))).unwrap();
        let mut map: BTreeMap<_, _> = (0..PAIRS).map(|number| (key(number), value(number))).collect();
        let is_over = AtomicBool::new(false);
        let mut executor = Executor::new(&sim);
        executor.spawn(0, async {
            let done = rebalanced(&quiver, &mut client).await;
            assert!(done.objects > 10, "{done:?}");
            is_over.store(true, Ordering::Relaxed);
        });
        executor.spawn(1, work((&other, &opened, working), (seed, PAIRS, value), &mut map, &is_over));
        finish_in_any_order(&sim, &mut executor, seed);
        drop(executor);
        sim.schedule(false);
        assert_eq!(sim.misuse().filter(|_| !remembers), None, "seed {seed}");
        let mut client = pool.client().unwrap();
        let found = block_on(quiver.scan(&mut client, &ScanRange::all(), usize::MAX)).unwrap();
        assert!(found.into_iter().eq(map), "seed {seed}");
        sound(&quiver, &mut client);
    }
}
