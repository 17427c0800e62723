//! Tests of drains: alone, against a client that is stopped anywhere, of a mover that dies anywhere,
//! and with a client that works.

use super::{Quiver, QuiverOptions};
use crate::drain::{DrainProgress, Drained, drain};
use crate::fixtures::{
    LEASE_MS, Unscheduled, advance, alone, each_pair_of_stops, executes, finish, finish_in_turn, process_on,
    writes,
};
use crate::{Access, CheckReport, Commit, Condition, OrderedIndex, ScanRange, TreeView, Write};
use darter_fabric::block_on;
use darter_pool::{Client, Pool};
use darter_sim::{Event, Executor, Sim, WordOrder};
use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// With a cache, memory is also read after it was freed (L2), so that misuse cannot be judged.
pub(super) fn options(remembers: bool) -> QuiverOptions {
    let cache_bytes = if remembers { 1 << 16 } else { 0 };
    QuiverOptions { page_records: 3, page_delta: 2, cache_bytes, ..QuiverOptions::default() }
}

/// Calls of `watch` after which a drain of a pool at rest must be over.
const CALLS_MAX: usize = 10_000;

/// A value of one of three lengths: it is stored in its page, in a leaf, or in a run of pages.
pub(super) fn value(number: usize) -> Vec<u8> {
    vec![number as u8; [8, 300, 40_000][usize::from(number % 3 == 1) + usize::from(number % 97 == 1)]]
}

pub(super) fn key(number: usize) -> Vec<u8> {
    let stem = ["pear/", "a-long-prefix-that-all-of-these-keys-share/", ""][number / 3 % 3];
    format!("{stem}{:03}", number * 37 % 1000).into_bytes()
}

/// A pool on three memory nodes with these many pairs, each put twice, so that most are in leaves.
fn loaded(sim: &Sim, pairs: usize, remembers: bool) -> (Pool<Sim>, Quiver<Sim>) {
    loaded_with(sim, pairs, options(remembers), value)
}

/// The same with other options and values.
pub(super) fn loaded_with(
    sim: &Sim,
    pairs: usize,
    options: QuiverOptions,
    value: fn(usize) -> Vec<u8>,
) -> (Pool<Sim>, Quiver<Sim>) {
    let (pool, quiver) = process_on::<Quiver<Sim>>(sim, options, &[]);
    let mut client = pool.client().unwrap();
    for number in 0..pairs {
        for value in [b"before".to_vec(), b"between".to_vec(), value(number)] {
            block_on(quiver.put(&mut client, &key(number), &value, Condition::Always)).unwrap();
        }
    }
    (pool, quiver)
}

async fn drain_to_the_end(quiver: &Quiver<Sim>, client: &mut Client<Sim>, node: u8) -> Drained {
    let mut calls = 0;
    let mut watch = |_: &DrainProgress| {
        calls += 1;
        if calls < CALLS_MAX { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    };
    drain(quiver, client, node, &mut watch).await.unwrap()
}

fn assert_holds(quiver: &Quiver<Sim>, client: &mut Client<Sim>, pairs: usize) {
    for number in 0..pairs {
        let found = block_on(quiver.get(client, &key(number))).unwrap();
        assert_eq!(found, Some(value(number)), "pair {number}");
    }
}

/// The index is sound. Returns what a check has found.
pub(super) fn sound(quiver: &Quiver<Sim>, client: &mut Client<Sim>) -> CheckReport {
    let report = block_on(quiver.check(client)).unwrap();
    assert_eq!(report.violations, Vec::<String>::new());
    report
}

/// Nothing is reached on a node, and the index is sound.
fn assert_left(quiver: &Quiver<Sim>, client: &mut Client<Sim>, node: u8) {
    let report = sound(quiver, client);
    let there: Vec<_> = report.reachable.iter().filter(|(addr, _)| addr.node() == node).collect();
    assert_eq!(there, [], "objects on node {node}");
}

#[test]
fn a_drained_node_holds_nothing_and_no_process_needs_it() {
    const PAIRS: usize = 300;
    let sim = Sim::new(3, 8 << 20);
    let (pool, quiver) = loaded(&sim, PAIRS, true);
    let mut client = pool.client().unwrap();
    block_on(quiver.adjust_to(&mut client, &[2, 4])).unwrap();
    let report = block_on(quiver.check(&mut client)).unwrap();
    let on_nodes: Vec<_> =
        (0..3).map(|node| report.reachable.iter().filter(|(addr, _)| addr.node() == node).count()).collect();
    assert!(on_nodes.iter().all(|&count| count > 30), "{on_nodes:?}");
    for (node, left) in [(1, 2), (2, 1)] {
        let drained = block_on(drain_to_the_end(&quiver, &mut client, node));
        assert!(drained.is_removed && drained.objects > 30 && drained.behind.is_empty(), "{drained:?}");
        assert_left(&quiver, &mut client, node);
        let usage = block_on(pool.usage(&mut client)).unwrap();
        assert_eq!(usage.nodes.iter().filter(|node| !node.is_removed()).count(), left);
        assert_eq!(pool.homes().len(), left);
        assert_holds(&quiver, &mut client, PAIRS);
        // A process that opens the pool now never contacts the node.
        let other = block_on(Pool::open(sim.process(u32::from(node)))).unwrap();
        let mut others = other.client().unwrap();
        let opened = block_on(Quiver::open(&mut others, options(true))).unwrap();
        assert_holds(&opened, &mut others, PAIRS);
        for number in 0..PAIRS {
            let (own, value) = (key(number), value(number));
            block_on(opened.put(&mut others, &own, &value, Condition::Always)).unwrap();
        }
        let scanned = block_on(opened.scan(&mut others, &ScanRange::all(), PAIRS + 1)).unwrap();
        assert_eq!(scanned.len(), PAIRS);
        assert_eq!(sim.counts().to_retired, 0);
    }
    let again = block_on(drain(&quiver, &mut client, 1, &mut |_| ControlFlow::Continue(())));
    assert!(again.unwrap_err().to_string().contains("has left the pool already"));
    for (node, why) in [(0, "cannot leave"), (3, "no memory node of this number")] {
        let refused = block_on(drain(&quiver, &mut client, node, &mut |_| ControlFlow::Continue(())));
        assert!(refused.unwrap_err().to_string().contains(why), "node {node}");
    }
    assert_holds(&quiver, &mut client, PAIRS);
    assert_eq!(sim.counts().to_retired, 0);
}

#[test]
fn a_drain_can_be_cancelled_until_the_node_is_removed() {
    let sim = Sim::new(3, 8 << 20);
    let (pool, quiver) = loaded(&sim, 60, true);
    let mut client = pool.client().unwrap();
    let mut some = |progress: &DrainProgress| {
        if progress.objects == 0 { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    };
    let drained = block_on(drain(&quiver, &mut client, 2, &mut some)).unwrap();
    assert!(!drained.is_removed && drained.objects > 0, "{drained:?}");
    let other = block_on(drain(&quiver, &mut client, 1, &mut |_| ControlFlow::Continue(())));
    assert!(other.unwrap_err().to_string().contains("another memory node is leaving"));
    assert!(!block_on(pool.cancel_removal(&mut client, 1)).unwrap());
    assert!(block_on(pool.cancel_removal(&mut client, 2)).unwrap());
    block_on(pool.maintain(&mut client)).unwrap();
    assert_eq!(pool.homes(), [0, 1, 2]);
    assert_holds(&quiver, &mut client, 60);
    assert!(block_on(drain_to_the_end(&quiver, &mut client, 2)).is_removed);
    assert!(block_on(pool.cancel_removal(&mut client, 2)).is_ok_and(|was_leaving| !was_leaving));
    assert_holds(&quiver, &mut client, 60);
    assert_eq!(sim.counts().to_retired, 0);
}

#[test]
fn a_drain_without_room_changes_nothing() {
    let sim = Sim::new(2, 2 << 20);
    let (pool, quiver) = process_on::<Quiver<Sim>>(&sim, options(true), &[]);
    let mut client = pool.client().unwrap();
    for number in 0..1000_u32 {
        let own = number.to_be_bytes();
        if block_on(quiver.put(&mut client, &own, &[7; 2000], Condition::Always)).is_err() {
            break;
        }
    }
    let refused = block_on(drain(&quiver, &mut client, 1, &mut |_| ControlFlow::Continue(())));
    assert!(refused.unwrap_err().to_string().contains("add a memory node"));
    assert!(pool.accepts(1));
    assert_eq!(block_on(pool.removal_of(&mut client, 1)).unwrap(), None);
}

/// Operations for which a mover must not matter, on a pair whose leaf is on the node.
pub(super) const OPERATIONS: [&str; 6] = ["overwrite", "insert", "delete", "modify", "commit", "rebuild"];

pub(super) async fn operate(quiver: &Quiver<Sim>, client: &mut Client<Sim>, (name, own): (&str, usize)) {
    let (own, before_it) = (key(own), value(own));
    match name {
        "overwrite" => drop(quiver.put(client, &own, b"new", Condition::Always).await.unwrap()),
        "insert" => drop(quiver.put(client, b"pear/new", b"new", Condition::Absent).await.unwrap()),
        "delete" => assert!(quiver.delete(client, &own).await.unwrap()),
        "modify" => {
            let changed = quiver.modify(client, &own, |before, after| {
                assert_eq!(before, Some(&before_it[..]));
                after.extend_from_slice(b"new");
                crate::Decision::Put
            });
            changed.await.unwrap();
        }
        "commit" => {
            let read = quiver.read_versions(client, &[&own]).await.unwrap();
            let access = Access {
                key: &own,
                read: Some(read[0].0.as_deref()),
                version: read[0].1,
                write: Some(Write::Put(b"new")),
            };
            for attempt in 0.. {
                if let Commit::Done =
                    quiver.commit(client, std::slice::from_ref(&access), attempt).await.unwrap()
                {
                    break;
                }
            }
        }
        _ => {
            for last in b"abcdef" {
                let own = [&b"pear/"[..], &[*last]].concat();
                quiver.put(client, &own, b"new", Condition::Always).await.unwrap();
            }
        }
    }
}

pub(super) fn assert_operated(quiver: &Quiver<Sim>, client: &mut Client<Sim>, (name, own): (&str, usize)) {
    let mut expected: BTreeMap<Vec<u8>, Vec<u8>> =
        (0..PAIRS).map(|number| (key(number), value(number))).collect();
    match name {
        "insert" => drop(expected.insert(b"pear/new".to_vec(), b"new".to_vec())),
        "delete" => drop(expected.remove(&key(own))),
        "rebuild" => {
            expected.extend(b"abcdef".map(|last| ([&b"pear/"[..], &[last]].concat(), b"new".to_vec())));
        }
        _ => drop(expected.insert(key(own), b"new".to_vec())),
    }
    let found = block_on(quiver.scan(client, &ScanRange::all(), usize::MAX)).unwrap();
    assert_eq!(found, expected.into_iter().collect::<Vec<_>>(), "{name}");
}

const PAIRS: usize = 45;

/// A pool with two processes that know that a node is leaving, and the node.
struct Leaving {
    sim: Sim,
    pools: [Pool<Sim>; 2],
    quivers: [Quiver<Sim>; 2],
    /// The number of a pair whose leaf is on the node.
    own: usize,
}

/// The keys whose leaves are on a node.
pub(super) fn keys_on(view: &TreeView, node: u8) -> Vec<Vec<u8>> {
    let own = (view.label == "leaf" && view.addr.node() == node).then(|| view.prefix.clone());
    own.into_iter().chain(view.children.iter().flat_map(|(_, child)| keys_on(child, node))).collect()
}

const NODE: u8 = 1;

impl Leaving {
    fn new() -> Self {
        let this = Self::unaware();
        let mut client = this.pools[0].client().unwrap();
        let _removal = block_on(this.pools[0].begin_removal(&mut client, NODE)).unwrap();
        this.maintain();
        assert!(this.pools.iter().all(|pool| !pool.accepts(NODE)));
        this
    }

    /// The same, but the node is not leaving yet.
    fn unaware() -> Self {
        let sim = Sim::new(3, 8 << 20);
        let (pool, quiver) = loaded(&sim, PAIRS, false);
        let other = block_on(Pool::open(sim.process(1))).unwrap();
        let opened = block_on(Quiver::open(&mut other.client().unwrap(), options(false))).unwrap();
        let view = block_on(quiver.tree(&mut pool.client().unwrap(), b"", 64, 257)).unwrap();
        let keys = keys_on(&view, NODE);
        let own = (0..PAIRS).find(|&number| value(number).len() == 300 && keys.contains(&key(number)));
        let own = own.unwrap_or_else(|| panic!("these leaves are on the node: {keys:?}"));
        let this = Self { sim, pools: [pool, other], quivers: [quiver, opened], own };
        let mut client = this.pools[0].client().unwrap();
        let report = block_on(this.quivers[0].check(&mut client)).unwrap();
        let on = |node: u8| report.reachable.iter().filter(|(addr, _)| addr.node() == node).count();
        assert!(on(NODE) > 5, "objects on the nodes: {:?}", [0, 1, 2].map(on));
        assert_holds(&this.quivers[1], &mut this.pools[1].client().unwrap(), PAIRS);
        this
    }

    fn maintain(&self) {
        for pool in self.pools.iter().cycle().take(20) {
            let mut client = pool.client().unwrap();
            block_on(pool.maintain(&mut client)).unwrap();
        }
    }
}

async fn evacuate(quiver: &Quiver<Sim>, client: &mut Client<Sim>) {
    let mut next = Some(Vec::new());
    while let Some(from) = next {
        next = quiver.evacuate(client, NODE, &from).await.unwrap().next;
    }
}

/// One of a mover and a client is stopped after each of its writes in turn, while the other does all
/// that it has to do. Or it dies there.
fn stop_at_every_write(name: &str, stops_mover: bool, dies: bool) {
    for writes_done in 0.. {
        let leaving = Leaving::new();
        let _at_the_end = Unscheduled(leaving.sim.clone());
        let [mut movers, mut clients] = leaving.pools.each_ref().map(|pool| pool.client().unwrap());
        let [moving, working] = &leaving.quivers;
        let mut executor = Executor::new(&leaving.sim);
        let has_ended = if stops_mover {
            let task = executor.spawn(0, evacuate(moving, &mut movers));
            let has_ended = advance(&mut executor, task, writes_done, writes);
            if dies {
                executor.kill(0);
            }
            alone(&leaving.pools[1], operate(working, &mut clients, (name, leaving.own)));
            if !dies {
                finish(&mut executor, task);
            }
            has_ended
        } else {
            let task = executor.spawn(1, operate(working, &mut clients, (name, leaving.own)));
            let has_ended = advance(&mut executor, task, writes_done, writes);
            alone(&leaving.pools[0], evacuate(moving, &mut movers));
            finish(&mut executor, task);
            has_ended
        };
        drop(executor);
        leaving.sim.schedule(false);
        let mut client = leaving.pools[1].client().unwrap();
        if dies {
            leaving.sim.advance_ms(LEASE_MS * 3);
            block_on(leaving.pools[1].evict(&mut client)).unwrap();
            let drained = block_on(drain_to_the_end(working, &mut client, NODE));
            assert!(drained.is_removed, "after {writes_done} writes: {drained:?}");
        } else {
            block_on(evacuate(working, &mut client));
        }
        let context = format!("{name}, after {writes_done} writes");
        assert_eq!(leaving.sim.misuse(), None, "{context}");
        assert_operated(working, &mut client, (name, leaving.own));
        assert_left(working, &mut client, NODE);
        if has_ended {
            assert!(writes_done > 1, "{context}");
            return;
        }
    }
}

#[test]
fn a_client_is_stopped_anywhere_while_a_mover_works() {
    for name in OPERATIONS {
        stop_at_every_write(name, false, false);
    }
}

#[test]
fn a_mover_is_stopped_anywhere_while_a_client_works() {
    for name in OPERATIONS {
        stop_at_every_write(name, true, false);
    }
}

/// A put is stopped after each of its writes, at each write of a mover: also when its page has been
/// moved, and its leaf has not.
#[test]
fn a_put_is_stopped_anywhere_at_each_write_of_a_mover() {
    each_pair_of_stops(|[mover_writes, client_writes]| {
        let leaving = Leaving::new();
        let _at_the_end = Unscheduled(leaving.sim.clone());
        let [mut movers, mut clients] = leaving.pools.each_ref().map(|pool| pool.client().unwrap());
        let [moving, working] = &leaving.quivers;
        let mut executor = Executor::new(&leaving.sim);
        let mover = executor.spawn(0, evacuate(moving, &mut movers));
        let is_mover_over = advance(&mut executor, mover, mover_writes, writes);
        let client = executor.spawn(1, operate(working, &mut clients, ("overwrite", leaving.own)));
        let is_client_over = advance(&mut executor, client, client_writes, writes);
        finish(&mut executor, mover);
        finish(&mut executor, client);
        drop(executor);
        leaving.sim.schedule(false);
        let mut client = leaving.pools[1].client().unwrap();
        assert_eq!(leaving.sim.misuse(), None);
        assert_operated(working, &mut client, ("overwrite", leaving.own));
        [is_mover_over, is_client_over]
    });
}

#[test]
fn a_mover_dies_anywhere() {
    stop_at_every_write("overwrite", true, true);
}

/// A drain by itself dies after each of its writes in turn: those of the roster, of the mover, of
/// upkeep and of the node's line. Before or after that, the pool has all pairs, and another process
/// completes the drain.
#[test]
fn another_process_completes_a_drain_that_dies_anywhere() {
    const PAIRS: usize = 24;
    let mut were_final = [0; 2];
    for writes_done in 0.. {
        let sim = Sim::new(3, 8 << 20);
        let (pool, quiver) = loaded(&sim, PAIRS, writes_done % 2 == 1);
        let _at_the_end = Unscheduled(sim.clone());
        let mut dying = pool.client().unwrap();
        let mut executor = Executor::new(&sim);
        let task = executor.spawn(0, async {
            let _drained = drain_to_the_end(&quiver, &mut dying, NODE).await;
        });
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
        let is_removed = |client: &mut Client<Sim>| {
            block_on(other.usage(client)).unwrap().nodes[usize::from(NODE)].is_removed()
        };
        let was_removed = is_removed(&mut client);
        were_final[usize::from(was_removed)] += 1;
        if !was_removed {
            let drained = block_on(drain_to_the_end(&opened, &mut client, NODE));
            assert!(drained.is_removed && drained.behind.is_empty(), "{context}: {drained:?}");
        }
        assert!(is_removed(&mut client), "{context}");
        assert_eq!(other.homes(), [0, 2], "{context}");
        assert_left(&opened, &mut client, NODE);
        assert_holds(&opened, &mut client, PAIRS);
        block_on(opened.sweep_dead(&mut client)).unwrap();
        let reachable = block_on(opened.check(&mut client)).unwrap().reachable;
        let audit = block_on(other.audit(&mut client, &reachable)).unwrap();
        assert_eq!((audit.leaked_bytes, audit.violations), (0, Vec::new()), "{context}");
        assert_eq!(sim.counts().to_retired, 0, "{context}");
        if has_ended {
            break;
        }
    }
    assert!(were_final[0] > 30 && were_final[1] > 0, "{were_final:?}");
}

/// While a process that has the pool open is stopped, a drain moves nothing. It goes on when the
/// process continues.
#[test]
fn a_drain_waits_for_a_process_that_is_stopped() {
    let leaving = Leaving::unaware();
    let _at_the_end = Unscheduled(leaving.sim.clone());
    let [mut movers, mut others] = leaving.pools.each_ref().map(|pool| pool.client().unwrap());
    let (steps, is_drained) = (AtomicUsize::new(0), AtomicBool::new(false));
    let mut watch = |_: &DrainProgress| {
        steps.fetch_add(1, Ordering::Relaxed);
        ControlFlow::Continue(())
    };
    let mut executor = Executor::new(&leaving.sim);
    let mover = executor.spawn(0, async {
        let drained = drain(&leaving.quivers[0], &mut movers, NODE, &mut watch).await.unwrap();
        assert!(drained.is_removed && drained.objects > 5 && drained.behind.is_empty(), "{drained:?}");
        is_drained.store(true, Ordering::Relaxed);
    });
    assert!(!advance(&mut executor, mover, 5_000, executes), "the drain has ended");
    assert_eq!(steps.load(Ordering::Relaxed), 0, "it has gone on");
    assert!(leaving.pools[1].accepts(NODE) && !leaving.pools[0].accepts(NODE));
    executor.spawn(1, async {
        while !is_drained.load(Ordering::Relaxed) {
            leaving.pools[1].maintain(&mut others).await.unwrap();
        }
    });
    finish_in_turn(&mut executor);
    drop(executor);
    leaving.sim.schedule(false);
    let mut others = leaving.pools[1].client().unwrap();
    assert_holds(&leaving.quivers[1], &mut others, PAIRS);
    assert_left(&leaving.quivers[1], &mut others, NODE);
    assert_eq!(leaving.sim.counts().to_retired, 0);
}

/// A process that is stopped for longer than a lease is shut out, and the drain goes on.
#[test]
fn a_drain_shuts_a_process_out_that_does_not_respond() {
    let leaving = Leaving::unaware();
    leaving.sim.process(1).pause_process(true);
    let mut client = leaving.pools[0].client().unwrap();
    let drained = block_on(drain_to_the_end(&leaving.quivers[0], &mut client, NODE));
    assert!(drained.is_removed && drained.behind.is_empty(), "{drained:?}");
    leaving.sim.process(1).pause_process(false);
    let Err(error) = leaving.pools[1].client() else { panic!("the process was not shut out") };
    assert!(error.to_string().contains("shut out"), "{error}");
    assert_holds(&leaving.quivers[0], &mut client, PAIRS);
    assert_left(&leaving.quivers[0], &mut client, NODE);
}

/// A small generator of numbers, so that a seed names a schedule.
pub(super) struct Numbers(pub(super) u64);

impl Numbers {
    pub(super) fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % bound
    }
}

/// Does whatever comes, compares every result with a map, and runs upkeep, until `is_over` and for some
/// operations more. Then the client ends: the mover may wait for its process.
pub(super) async fn work(
    (pool, quiver, mut client): (&Pool<Sim>, &Quiver<Sim>, Client<Sim>),
    (seed, pairs, value): (u64, usize, fn(usize) -> Vec<u8>),
    map: &mut BTreeMap<Vec<u8>, Vec<u8>>,
    is_over: &AtomicBool,
) {
    let mut numbers = Numbers(seed);
    let mut after = 40;
    while after > 0 {
        after -= usize::from(is_over.load(Ordering::Relaxed));
        let own = key(numbers.below(pairs * 2));
        match numbers.below(6) {
            0 | 1 => {
                let value = value(numbers.below(100));
                quiver.put(&mut client, &own, &value, Condition::Always).await.unwrap();
                map.insert(own, value);
            }
            2 => {
                let is_deleted = quiver.delete(&mut client, &own).await.unwrap();
                assert_eq!(is_deleted, map.remove(&own).is_some());
            }
            3 => {
                let found = quiver.scan(&mut client, &ScanRange::all(), usize::MAX).await.unwrap();
                assert!(found.iter().map(|(key, value)| (key, value)).eq(&*map));
            }
            4 => pool.maintain(&mut client).await.unwrap(),
            _ => assert_eq!(quiver.get(&mut client, &own).await.unwrap(), map.get(&own).cloned()),
        }
    }
}

/// Runs all tasks to their ends, in an order that a seed decides.
pub(super) fn finish_in_any_order(sim: &Sim, executor: &mut Executor<'_>, seed: u64) {
    let (mut events, mut numbers): (Vec<Event>, _) = (Vec::new(), Numbers(seed * 7 + 1));
    while !executor.all_ended() {
        executor.events(&mut events);
        assert!(!events.is_empty(), "seed {seed}: both tasks wait");
        let event = events[numbers.below(events.len())];
        let words = [1, u32::MAX][numbers.below(2)];
        executor.perform(event, words, WordOrder::Ascending);
        sim.advance_ms(0);
    }
}

/// A client does whatever comes, compares every result with a map, and runs upkeep, while another
/// process drains a node.
#[test]
fn a_client_works_during_a_drain_in_any_order_of_verbs() {
    for seed in 0..12 {
        let sim = Sim::new(3, 8 << 20);
        let remembers = seed % 2 == 1;
        let (pool, quiver) = loaded(&sim, PAIRS, remembers);
        let other = block_on(Pool::open(sim.process(1))).unwrap();
        let _at_the_end = Unscheduled(sim.clone());
        let (mut client, mut working) = (pool.client().unwrap(), other.client().unwrap());
        let opened = block_on(Quiver::open(&mut working, options(remembers))).unwrap();
        let mut map: BTreeMap<_, _> = (0..PAIRS).map(|number| (key(number), value(number))).collect();
        let is_drained = AtomicBool::new(false);
        let mut executor = Executor::new(&sim);
        executor.spawn(0, async {
            let drained = drain_to_the_end(&quiver, &mut client, NODE).await;
            assert!(drained.is_removed, "{drained:?}");
            is_drained.store(true, Ordering::Relaxed);
        });
        executor.spawn(1, work((&other, &opened, working), (seed, PAIRS, value), &mut map, &is_drained));
        finish_in_any_order(&sim, &mut executor, seed);
        drop(executor);
        sim.schedule(false);
        assert_eq!(sim.misuse().filter(|_| !remembers), None, "seed {seed}");
        assert_eq!(sim.counts().to_retired, 0, "seed {seed}");
        let mut client = pool.client().unwrap();
        let found = block_on(quiver.scan(&mut client, &ScanRange::all(), usize::MAX)).unwrap();
        assert!(found.into_iter().eq(map), "seed {seed}");
        assert_left(&quiver, &mut client, NODE);
    }
}
