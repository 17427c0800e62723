//! Races in the tree and in changes of the express skip table, with explicit schedules.

use super::node::{NodeRef, Slot, slots};
use super::operation::Operation;
use super::{Dart, DartOptions};
use crate::fixtures::{
    LEASE_MS, ROUNDS, Unscheduled, advance, alone, each_pair_of_stops, executes, finish, go_on,
    go_on_by_the_last, pass_graces, process, process_on, touches, verify, writes,
};
use crate::{Condition, OrderedIndex, PutOutcome, ScanRange, Swept};
use darter_fabric::{OpKind, block_on};
use darter_pool::{Client, Pool};
use darter_sim::{EventKind, Executor, Sim};
use std::ops::Bound;

/// An index with segments of one bucket, whose walks take a new pin with every node, and whose
/// searches count no accesses.
pub(super) fn options() -> DartOptions {
    DartOptions { segment_buckets: 1, walk_nodes: 1, frequency_every: 0, ..DartOptions::default() }
}

async fn put(dart: &Dart<Sim>, client: &mut Client<Sim>, key: &[u8]) {
    assert_eq!(
        dart.put(client, key, b"true", Condition::Always).await.unwrap(),
        PutOutcome::Inserted,
        "{key:?}"
    );
}

/// Two keys below each of the prefixes `a` to `h`.
const PAIRS: [&[u8]; 16] = [
    b"a1", b"a2", b"b1", b"b2", b"c1", b"c2", b"d1", b"d2", b"e1", b"e2", b"f1", b"f2", b"g1", b"g2", b"h1",
    b"h2",
];

/// A node that a builder may have visited is removed and its entries are cleared, at every point of
/// the builder's work.
#[test]
fn a_table_that_is_built_names_no_node_that_is_gone() {
    for events in 0.. {
        let (pool, dart) = process::<Dart<Sim>>(options(), &PAIRS);
        let _at_the_end = Unscheduled(pool.fabric().clone());
        let (mut slow, mut quick) = (pool.client().unwrap(), pool.client().unwrap());
        let mut executor = Executor::new(pool.fabric());
        let builder = executor.spawn(0, async {
            assert!(dart.adjust_to(&mut slow, &[1, 3]).await.unwrap().entries > 0);
        });
        let has_ended = advance(&mut executor, builder, events, |_| true);
        alone(&pool, async {
            assert!(dart.delete(&mut quick, PAIRS[0]).await.unwrap());
            pass_graces(&pool, &dart, &mut quick).await;
        });
        finish(&mut executor, builder);
        alone(&pool, pass_graces(&pool, &dart, &mut quick));
        assert_eq!(verify(&pool, &dart, &PAIRS[1..]), 0, "after {events} events");
        if has_ended {
            return;
        }
    }
}

/// A scrub is stopped between its verbs, while the table that it has seen being built becomes
/// current.
#[test]
fn scrub_during_a_change_of_tables_clears_both() {
    for verbs in 0.. {
        let (pool, dart) = process::<Dart<Sim>>(options(), &PAIRS);
        let _at_the_end = Unscheduled(pool.fabric().clone());
        let (mut slow, mut quick) = (pool.client().unwrap(), pool.client().unwrap());
        let mut held = pool.client().unwrap();
        let mut executor = Executor::new(pool.fabric());
        let builder = executor.spawn(0, async {
            assert!(dart.adjust_to(&mut slow, &[1, 3]).await.unwrap().rebuilt);
        });
        let next = dart.shared.words.est_next;
        go_on(&mut executor, builder, |event| touches(event, next, true));
        // The first node has been entered.
        advance(&mut executor, builder, 1, writes);
        alone(&pool, async { assert!(dart.delete(&mut quick, PAIRS[0]).await.unwrap()) });
        // Its first grace ends before the builder commits, since the builder takes a pin for every
        // node.
        let mut is_committed = false;
        while !is_committed {
            go_on(&mut executor, builder, |event| {
                is_committed = touches(event, next, true);
                true
            });
            alone(&pool, pool.maintain(&mut quick)).unwrap();
        }
        assert_eq!(verify(&pool, &dart, &PAIRS[1..]), 2, "an entry of it in each table");
        let scrubber = executor.spawn(0, async { dart.maintain(&mut held).await.unwrap() });
        let has_ended = advance(&mut executor, scrubber, verbs, executes);
        finish(&mut executor, builder);
        finish(&mut executor, scrubber);
        alone(&pool, pass_graces(&pool, &dart, &mut quick));
        assert_eq!(verify(&pool, &dart, &PAIRS[1..]), 0, "after {verbs} verbs");
        if has_ended {
            assert!(verbs > 4, "the root words, and a bucket of each table");
            return;
        }
    }
}

/// The keys below a node are all in its second bucket, and another key diverges inside its prefix.
#[test]
fn a_key_below_a_node_is_found_in_whatever_bucket_it_lies() {
    let below = |end: u8| [&b"stem"[..], &[end]].concat();
    let all: Vec<Vec<u8>> = (b'A'..b'U').map(below).collect();
    let keys: Vec<&[u8]> = all.iter().map(|key| &key[..]).collect();
    let (pool, dart) = process::<Dart<Sim>>(options(), &keys);
    let mut client = pool.client().unwrap();
    let (odd, even): (Vec<&[u8]>, Vec<&[u8]>) = keys.iter().partition(|key| key[4] % 2 == 1);
    for key in even {
        assert!(block_on(dart.delete(&mut client, key)).unwrap());
    }
    block_on(put(&dart, &mut client, b"stX"));
    verify(&pool, &dart, &odd);
    verify(&pool, &dart, &[b"stX"]);
}

/// Two clients die after they have deleted the keys below a node's first child, before either
/// removes the child. Bounds that diverge from the node's prefix make a scan search for a key below
/// the node.
#[test]
fn a_scan_passes_over_a_child_that_deletes_have_left_empty() {
    let all: [&[u8]; 5] = [b"stem-a-1", b"stem-a-2", b"stem-b", b"stem-c", b"x"];
    let (pool, dart) = process::<Dart<Sim>>(options(), &all);
    let sim = pool.fabric().clone();
    let dying = block_on(Pool::open(sim.process(1))).unwrap();
    let _at_the_end = Unscheduled(sim.clone());
    let mut clients = [dying.client().unwrap(), dying.client().unwrap()];
    let other = &block_on(Dart::open(&mut clients[0], options())).unwrap();
    let mut executor = Executor::new(&sim);
    let deletes: Vec<_> = clients
        .iter_mut()
        .zip(&all)
        .map(|(client, key)| {
            executor.spawn(1, async move {
                other.delete(client, key).await.unwrap();
            })
        })
        .collect();
    for delete in deletes {
        advance(&mut executor, delete, 1, writes);
    }
    executor.kill(1);
    alone(&pool, async {
        let mut client = pool.client().unwrap();
        for reverse in [false, true] {
            let (from, to) = (Bound::Included(b"sta".to_vec()), Bound::Included(b"sto".to_vec()));
            let found = dart.scan(&mut client, &ScanRange { from, to, reverse }, 10).await.unwrap();
            let mut found: Vec<&[u8]> = found.iter().map(|(key, _)| &key[..]).collect();
            found.sort_unstable();
            assert_eq!(found, all[2..4], "reverse: {reverse}");
        }
        put(&dart, &mut client, b"steX").await;
    });
    verify(&pool, &dart, &all[2..]);
}

/// A client is stopped in a search that caches a node, while the process that replaced the node
/// dies and a sweep frees what that process had unlinked.
#[test]
fn what_is_remembered_of_a_node_ends_before_a_sweep_frees_it() {
    const KEYS: [&[u8]; 4] = [b"stem1234a", b"stem1234b", b"stem1234c", b"else"];
    for verbs in 0.. {
        let sim = Sim::new(1, 8 << 20);
        let (pool, dart) = process_on::<Dart<Sim>>(&sim, options(), &[b"x1", b"x2"]);
        let dying = block_on(Pool::open(sim.process(1))).unwrap();
        let _at_the_end = Unscheduled(sim.clone());
        let (mut client, mut slow) = (pool.client().unwrap(), pool.client().unwrap());
        let (mut sweeping, mut dies) = (pool.client().unwrap(), dying.client().unwrap());
        let reader = block_on(Dart::open(&mut client, options())).unwrap();
        let other = block_on(Dart::open(&mut dies, options())).unwrap();
        for key in KEYS {
            block_on(put(&other, &mut dies, key));
        }
        let mut executor = Executor::new(&sim);
        let held = executor.spawn(0, async {
            assert!(reader.get(&mut slow, KEYS[0]).await.unwrap().is_some());
        });
        let has_ended = advance(&mut executor, held, verbs, executes);
        // A fourth child: the node is replaced by a larger one.
        alone(&pool, put(&other, &mut dies, b"stem1234d"));
        executor.kill(1);
        alone(&pool, async {
            // Gives the pool something to free, so that the epoch advances.
            dart.put(&mut client, b"x1", b"true", Condition::Always).await.unwrap();
            for _ in 0..ROUNDS {
                sim.advance_ms(LEASE_MS / 4);
                pool.maintain(&mut client).await.unwrap();
            }
        });
        assert!(sim.process(1).is_fenced());
        let sweeper = executor.spawn(0, async {
            loop {
                let Swept::Done(report) = dart.sweep_dead(&mut sweeping).await.unwrap() else {
                    panic!("the index is sound");
                };
                if report.finished {
                    break;
                }
            }
        });
        // The entries that name the dead process's nodes are cleared, and the eras of all processes
        // have ended.
        let version = dart.shared.words.version;
        go_on(&mut executor, sweeper, |event| touches(event, version, true));
        advance(&mut executor, sweeper, 1, executes);
        alone(&pool, async { assert!(reader.get(&mut client, b"x2").await.unwrap().is_some()) });
        finish(&mut executor, held);
        finish(&mut executor, sweeper);
        verify(&pool, &reader, &KEYS);
        verify(&pool, &reader, &[b"stem1234d", b"x2"]);
        if has_ended {
            return;
        }
    }
}

/// Two clients stop for ever, one in the replacement of a node and one in that of its parent. A
/// third client can still write.
#[test]
fn a_put_gets_past_a_node_and_a_parent_that_others_left_half_replaced() {
    const KEYS: [&[u8]; 5] = [b"sa", b"sb", b"scxa", b"scxb", b"scxc"];
    each_pair_of_stops(|stops| {
        let (pool, dart) = process::<Dart<Sim>>(options(), &KEYS);
        let _at_the_end = Unscheduled(pool.fabric().clone());
        let (mut one, mut two) = (pool.client().unwrap(), pool.client().unwrap());
        let mut quick = pool.client().unwrap();
        // It has cached no nodes: an entry leads it to the lower node.
        let other = block_on(Dart::open(&mut quick, options())).unwrap();
        let mut executor = Executor::new(pool.fabric());
        let below = executor.spawn(0, put(&dart, &mut one, b"scxd"));
        let above = executor.spawn(0, put(&dart, &mut two, b"sd"));
        let has_ended = [
            advance(&mut executor, below, stops[0], writes),
            advance(&mut executor, above, stops[1], writes),
        ];
        alone(&pool, put(&other, &mut quick, b"scxe"));
        verify(&pool, &dart, &KEYS);
        finish(&mut executor, below);
        finish(&mut executor, above);
        verify(&pool, &dart, &KEYS);
        verify(&pool, &dart, &[b"scxd", b"scxe", b"sd"]);
        has_ended
    });
}

/// A node that is being replaced has a child without keys, and another client removes the subtree.
#[test]
fn an_empty_subtree_goes_only_once() {
    each_pair_of_stops(|stops| {
        let sim = Sim::new(1, 8 << 20);
        let (pool, dart) = process_on::<Dart<Sim>>(&sim, options(), &[b"else", b"stx", b"styem1", b"styem2"]);
        let others = [1, 2].map(|number| block_on(Pool::open(sim.process(number))).unwrap());
        let _at_the_end = Unscheduled(sim.clone());
        let (mut slow, mut quick) = (pool.client().unwrap(), pool.client().unwrap());
        // Two processes die after deleting a key, before tidying its node.
        for (number, key) in [(1, b"styem1"), (2, b"styem2")] {
            let mut dies = others[number as usize - 1].client().unwrap();
            let other = block_on(Dart::open(&mut dies, options())).unwrap();
            let mut executor = Executor::new(&sim);
            let delete = executor.spawn(number, async move {
                other.delete(&mut dies, key).await.unwrap();
            });
            assert!(!advance(&mut executor, delete, 1, writes));
            executor.kill(number);
            sim.schedule(false);
        }
        for _ in 0..ROUNDS {
            sim.advance_ms(LEASE_MS / 4);
            block_on(pool.maintain(&mut quick)).unwrap();
        }
        let mut executor = Executor::new(&sim);
        let tidying = executor.spawn(0, async {
            assert!(dart.delete(&mut slow, b"stx").await.unwrap());
        });
        let parting = executor.spawn(0, put(&dart, &mut quick, b"sa"));
        let has_ended = [
            advance(&mut executor, tidying, stops[0], writes),
            advance(&mut executor, parting, stops[1], writes),
        ];
        finish(&mut executor, tidying);
        finish(&mut executor, parting);
        drop(executor);
        sim.schedule(false);
        verify(&pool, &dart, &[b"else", b"sa"]);
        block_on(pass_graces(&pool, &dart, &mut quick));
        verify(&pool, &dart, &[b"else", b"sa"]);
        has_ended
    });
}

/// A node grows while its copy is written to another memory node than that of the slot that links
/// it, whose verbs execute first.
#[test]
fn a_copy_on_another_memory_node_is_there_before_its_link() {
    let mut is_met = false;
    for stem in b'a'..b'e' {
        let all: Vec<[u8; 2]> = (b'A'..b'A' + 15).map(|end| [stem, end]).collect();
        let keys: Vec<&[u8]> = std::iter::once(&b"else!"[..]).chain(all.iter().map(|key| &key[..])).collect();
        for verbs in 0.. {
            let (pool, dart) = process_on(&Sim::new(2, 8 << 20), options(), &keys);
            let _at_the_end = Unscheduled(pool.fabric().clone());
            let (mut slow, mut quick) = (pool.client().unwrap(), pool.client().unwrap());
            let other = block_on(Dart::open(&mut quick, options())).unwrap();
            let key = [stem, b'Z'];
            let mut executor = Executor::new(pool.fabric());
            let writer = executor.spawn(0, put(&dart, &mut slow, &key));
            let (mut left, mut nodes) = (verbs, [false; 2]);
            if verbs > 0 {
                go_on_by_the_last(&mut executor, writer, |event| {
                    left -= usize::from(executes(event));
                    if let EventKind::Execute { node, access, .. } = event.kind {
                        nodes[usize::from(node)] |= access.writes && access.is_long;
                    }
                    left == 0
                });
            }
            let has_ended = executor.has_ended(writer);
            is_met |= has_ended && nodes == [true; 2];
            verify(&pool, &other, &keys);
            go_on_by_the_last(&mut executor, writer, |_| false);
            verify(&pool, &other, &keys);
            if has_ended {
                break;
            }
        }
    }
    assert!(is_met, "no copy went to another memory node");
}

/// The root that the root word names, and whether a client has sealed all of it.
fn root_of(pool: &Pool<Sim>, dart: &Dart<Sim>) -> (NodeRef, bool) {
    alone(pool, async {
        let mut client = pool.client().unwrap();
        let mut operation = Operation::pin(&dart.shared, &mut client, OpKind::Maintain).await.unwrap();
        let root = operation.read_root().await.unwrap();
        let words = operation.read_node(root).await.unwrap();
        let is_sealed = slots(root.ty, &words).all(|(_, slot): (usize, Slot)| slot.is_sealed());
        (root, is_sealed)
    })
}

/// One client seals a full node to add a child. Each time, before it has linked its copy, another
/// client copies the node in order to replace a node below.
#[test]
fn writer_whose_node_was_copied_finds_room_in_the_copy() {
    const KEYS: [&[u8]; 5] = [b"a", b"b", b"c1", b"c2", b"c3"];
    let (pool, dart) = process::<Dart<Sim>>(options(), &KEYS);
    let _at_the_end = Unscheduled(pool.fabric().clone());
    let (mut one, mut two) = (pool.client().unwrap(), pool.client().unwrap());
    let mut executor = Executor::new(pool.fabric());
    let adding = executor.spawn(0, put(&dart, &mut one, b"d"));
    let helping = executor.spawn(0, put(&dart, &mut two, b"c4"));
    let mut copies = 0;
    while !executor.has_ended(adding) && copies < 10 {
        go_on(&mut executor, adding, |event| writes(event) && root_of(&pool, &dart).1);
        let before = root_of(&pool, &dart).0;
        go_on(&mut executor, helping, |event| writes(event) && root_of(&pool, &dart).0 != before);
        copies += 1;
    }
    assert!(executor.has_ended(adding), "copied {copies} times, and without room each time");
    finish(&mut executor, helping);
    verify(&pool, &dart, &KEYS);
    verify(&pool, &dart, &[b"d", b"c4"]);
}
