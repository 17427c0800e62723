//! Scheduled tests of the skip table with damage, clients that die and slow searches.

use super::entry::{self, BUCKET_ENTRIES, ENTRY_WORDS};
use super::table::{DESCRIPTOR_WORDS, Table};
use crate::fixtures::{
    LEASE_MS, ROUNDS, Unscheduled, advance, alone, each_pair_of_stops, finish, pass_graces, process_on,
    verify, writes,
};
use crate::quiver::hint::NodeHint;
use crate::quiver::nibble::{EDGES, LAST, NibbleKey};
use crate::quiver::node::{self, NODE_BYTES, Slot};
use crate::quiver::operation::Operation;
use crate::quiver::{Quiver, QuiverOptions};
use crate::{Condition, IndexError, OrderedIndex};
use darter_fabric::{Batch, GlobalAddr, OpKind, Reading, block_on};
use darter_pool::{AllocKind, Client, Pool};
use darter_sim::{Executor, Sim};
use std::collections::BTreeMap;

/// Small pages, so that few keys make many nodes, and no cache.
const OPTIONS: fn() -> QuiverOptions =
    || QuiverOptions { page_records: 3, page_delta: 2, cache_bytes: 0, ..QuiverOptions::default() };
/// Lengths, each of which covers nodes.
const LENGTHS: [u8; 4] = [1, 3, 6, 9];

fn key_of(number: u64) -> Vec<u8> {
    let mixed = (number as u16).wrapping_mul(0x5bd1).to_be_bytes();
    let stem: &[u8] = if number.is_multiple_of(3) { b"stem" } else { b"" };
    [stem, &mixed].concat()
}

async fn fill(quiver: &Quiver<Sim>, client: &mut Client<Sim>, keys: u64) {
    for number in 0..keys {
        quiver.put(client, &key_of(number), b"true", Condition::Always).await.unwrap();
    }
}

/// The current table and the address of its descriptor.
async fn table_of(quiver: &Quiver<Sim>, client: &mut Client<Sim>) -> (GlobalAddr, Table) {
    let mut operation = Operation::begin(&quiver.shared, client, OpKind::Maintain).await.unwrap();
    operation.current_table().await.unwrap().1.unwrap()
}

/// Overwrites some words of a table.
async fn scramble(quiver: &Quiver<Sim>, client: &mut Client<Sim>, noise: u64) {
    let (_, table) = table_of(quiver, client).await;
    let segment = table.segments[0];
    let words = client.read(segment, table.size.segment_words()).await.unwrap();
    let places = words.len() / ENTRY_WORDS;
    let [from, to] = [noise, noise >> 20].map(|at| at as usize % places * ENTRY_WORDS);
    // An entry in another's place, half of one, one with a flipped bit, or arbitrary words.
    let moved = match noise >> 40 & 3 {
        0 => [words[from], words[from + 1]],
        1 => [words[from], words[to + 1]],
        2 => [words[to] ^ 1 << (noise & 63), words[to + 1]],
        _ => [noise, noise.rotate_left(32)],
    };
    client.post(|batch| batch.write(segment.plus(to as u64 * 8), &moved)).await.unwrap();
}

#[test]
fn whatever_stands_in_the_table_answers_are_right() {
    let sim = Sim::new(1, 8 << 20);
    let (pool, quiver) = process_on::<Quiver<Sim>>(&sim, OPTIONS(), &[]);
    let mut client = pool.client().unwrap();
    let (mut noise, mut model) = (7_u64, BTreeMap::new());
    alone(&pool, async {
        fill(&quiver, &mut client, 300).await;
        model.extend((0..300).map(|number| (key_of(number), b"true".to_vec())));
        assert!(quiver.adjust_to(&mut client, &LENGTHS).await.unwrap());
        for step in 0..3_000_u64 {
            noise = noise.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
            let mixed = noise ^ noise >> 29;
            scramble(&quiver, &mut client, mixed).await;
            let key = key_of(mixed % 400);
            match mixed >> 32 & 7 {
                0 => {
                    let value = step.to_le_bytes();
                    quiver.put(&mut client, &key, &value, Condition::Always).await.unwrap();
                    model.insert(key, value.to_vec());
                }
                1 => {
                    let was_there = quiver.delete(&mut client, &key).await.unwrap();
                    assert_eq!(was_there, model.remove(&key).is_some(), "step {step}");
                }
                _ => {
                    let found = quiver.get(&mut client, &key).await.unwrap();
                    assert_eq!(found.as_ref(), model.get(&key), "step {step}");
                }
            }
        }
    });
    verify(&pool, &quiver, &[]);
}

#[test]
fn a_damaged_descriptor_is_an_error() {
    for damaged in 0..DESCRIPTOR_WORDS {
        let sim = Sim::new(1, 8 << 20);
        let (pool, quiver) = process_on::<Quiver<Sim>>(&sim, OPTIONS(), &[]);
        let mut client = pool.client().unwrap();
        alone(&pool, async {
            fill(&quiver, &mut client, 60).await;
            assert!(quiver.adjust_to(&mut client, &LENGTHS).await.unwrap());
            let (descriptor, _) = table_of(&quiver, &mut client).await;
            let at = descriptor.plus(damaged as u64 * 8);
            client.post(|batch| batch.write(at, &[u64::MAX >> 1])).await.unwrap();
            let other = Quiver::open(&mut client, OPTIONS()).await.unwrap();
            pass_graces(&pool, &quiver, &mut client).await;
            // The first search reads the descriptor together with the root node.
            let found = other.get(&mut client, &key_of(1)).await;
            assert!(matches!(found, Err(IndexError::Corrupt { .. })), "word {damaged}: {found:?}");
            let report = other.check(&mut client).await.unwrap();
            assert!(report.violations.iter().any(|text| text.contains("skip table")), "word {damaged}");
        });
    }
}

/// A client that builds a table may die at any of its writes: the sweep finds what it leaves.
#[test]
fn who_dies_while_building_leaves_no_memory() {
    for writes_done in 0.. {
        let sim = Sim::new(1, 8 << 20);
        let (pool, quiver) = process_on::<Quiver<Sim>>(&sim, OPTIONS(), &[]);
        let dying = block_on(Pool::open(sim.process(1))).unwrap();
        let _at_the_end = Unscheduled(sim.clone());
        let (mut client, mut dies) = (pool.client().unwrap(), dying.client().unwrap());
        block_on(fill(&quiver, &mut client, 60));
        let other = block_on(Quiver::open(&mut dies, OPTIONS())).unwrap();
        assert!(block_on(quiver.adjust_to(&mut client, &[3])).unwrap());
        let mut executor = Executor::new(&sim);
        let building = executor.spawn(1, async {
            other.adjust_to(&mut dies, &LENGTHS).await.unwrap();
        });
        let has_ended = advance(&mut executor, building, writes_done, writes);
        executor.kill(1);
        alone(&pool, async {
            for _ in 0..ROUNDS {
                sim.advance_ms(LEASE_MS / 4);
                pool.maintain(&mut client).await.unwrap();
            }
            quiver.sweep_dead(&mut client).await.unwrap();
            pass_graces(&pool, &quiver, &mut client).await;
            let report = quiver.check(&mut client).await.unwrap();
            let audit = pool.audit(&mut client, &report.reachable).await.unwrap();
            assert_eq!(audit.violations, Vec::<String>::new());
            // The old table is in this process's own blocks, which are swept after it has closed.
            let leaked = (audit.leaked_bytes - audit.own_leaked_bytes, audit.dead_leaked_bytes);
            assert_eq!(leaked, (0, 0), "after {writes_done} writes");
            let (_, table) = table_of(&quiver, &mut client).await;
            assert!([&LENGTHS[..], &[3]].contains(&&table.list.bytes()[..]));
        });
        verify(&pool, &quiver, &[&key_of(1), &key_of(3)]);
        drop(executor);
        if has_ended {
            assert!(writes_done > 2, "segment, descriptor and CAS");
            return;
        }
    }
}

/// Puts keys with a long common prefix, and builds a table that leads to their node from a part of
/// it.
async fn fill_stem(quiver: &Quiver<Sim>, client: &mut Client<Sim>) {
    for end in 0..20 {
        quiver.put(client, &[b's', b't', b'e', b'm', end * 8], b"true", Condition::Always).await.unwrap();
    }
    assert!(quiver.adjust_to(client, &[3]).await.unwrap());
}

#[test]
fn a_node_of_another_prefix_is_not_believed() {
    let sim = Sim::new(1, 8 << 20);
    let (pool, quiver) = process_on::<Quiver<Sim>>(&sim, OPTIONS(), &[]);
    let mut client = pool.client().unwrap();
    alone(&pool, async {
        fill_stem(&quiver, &mut client).await;
        pass_graces(&pool, &quiver, &mut client).await;
        for absent in [&b"st"[..], b"ste", b"stem", b"sten", b"stale-and-long"] {
            // The first search may only read the table's address.
            for _ in 0..3 {
                assert_eq!(quiver.get(&mut client, absent).await.unwrap(), None, "{absent:?}");
            }
        }
    });
    verify(&pool, &quiver, &[b"stem\x08"]);
}

#[test]
fn a_node_of_another_life_is_not_believed() {
    let sim = Sim::new(1, 8 << 20);
    let (pool, quiver) = process_on::<Quiver<Sim>>(&sim, OPTIONS(), &[]);
    let mut client = pool.client().unwrap();
    alone(&pool, async {
        fill_stem(&quiver, &mut client).await;
        pass_graces(&pool, &quiver, &mut client).await;
        let key: &[u8] = b"stem\x08";
        assert!(quiver.get(&mut client, key).await.unwrap().is_some());
        let keys = quiver.shared.keys;
        let mut hashed = NibbleKey::new(keys, key);
        let (identity, hash) = (hashed.identity(8), keys.express_of(hashed.identity(3)));
        let (_, table) = table_of(&quiver, &mut client).await;
        // A node of the prefix without keys, as if it was never linked, and with another born.
        let mut slots = [Slot::EMPTY; EDGES];
        slots[0] = Slot::none(LAST);
        let (entry, draft) = {
            let mut pinned = client.pin(OpKind::Maintain).await.unwrap();
            let draft = pinned.alloc(0, NODE_BYTES, AllocKind::Inner).await.unwrap();
            let hint = NodeHint { addr: draft, born: 70_001, depth: 8 };
            (entry::encode(&keys, hash, 3, hint), draft)
        };
        let image = node::image(draft, identity, 70_000, 8, &slots, &[]);
        let places = [entry; BUCKET_ENTRIES].concat();
        let write = |batch: &mut Batch| {
            batch.write(draft, &image);
            batch.write(table.bucket(hash), &places);
        };
        client.post(write).await.unwrap();
        assert!(quiver.get(&mut client, key).await.unwrap().is_some(), "not by the draft");
    });
}

/// A search is stopped at each of its steps while another client replaces the table twice, and lets
/// as many grace periods pass as the search's pin allows.
#[test]
fn a_late_search_goes_by_no_table_that_is_free() {
    each_pair_of_stops(|stops| {
        let sim = Sim::new(1, 8 << 20);
        let (pool, quiver) = process_on::<Quiver<Sim>>(&sim, OPTIONS(), &[]);
        let _at_the_end = Unscheduled(sim.clone());
        let (mut slow, mut quick) = (pool.client().unwrap(), pool.client().unwrap());
        block_on(fill(&quiver, &mut quick, 30));
        block_on(async {
            assert!(quiver.adjust_to(&mut quick, &LENGTHS).await.unwrap());
            assert!(quiver.get(&mut slow, &key_of(1)).await.unwrap().is_some(), "knows the table");
        });
        let mut executor = Executor::new(&sim);
        let changing = executor.spawn(0, async {
            for lengths in [&[3, 5][..], &[2, 4]] {
                assert!(quiver.adjust_to(&mut quick, lengths).await.unwrap());
                for _ in 0..4 {
                    pool.maintain(&mut quick).await.unwrap();
                }
            }
        });
        let searching = executor.spawn(0, async {
            for number in [1, 3, 4] {
                let found = quiver.get(&mut slow, &key_of(number)).await.unwrap();
                assert_eq!(found.as_deref(), Some(&b"true"[..]));
            }
        });
        let has_ended = [
            advance(&mut executor, searching, stops[0], |_| true),
            advance(&mut executor, changing, stops[1] * 4, |_| true),
        ];
        finish(&mut executor, searching);
        finish(&mut executor, changing);
        verify(&pool, &quiver, &[&key_of(1)]);
        has_ended
    });
}

/// A process that may only read finds an empty table, and searches as if there was none.
#[test]
fn a_process_that_only_reads_enters_no_nodes() {
    let sim = Sim::new(1, 8 << 20);
    let (pool, quiver) = process_on::<Quiver<Sim>>(&sim, OPTIONS(), &[]);
    let mut client = pool.client().unwrap();
    block_on(async {
        fill(&quiver, &mut client, 60).await;
        assert!(quiver.adjust_to(&mut client, &LENGTHS).await.unwrap());
        let (_, table) = table_of(&quiver, &mut client).await;
        let words = table.size.segment_words();
        for segment in &table.segments {
            client.post(|batch| batch.write(*segment, &vec![0; words])).await.unwrap();
        }
        let fabric = Reading::new(sim.process(1));
        let other = Pool::open(fabric.clone()).await.unwrap();
        let mut theirs = other.client().unwrap();
        let reader = Quiver::open(&mut theirs, OPTIONS()).await.unwrap();
        for number in (0..60).cycle().take(300) {
            let found = reader.get(&mut theirs, &key_of(number)).await.unwrap();
            assert_eq!(found.as_deref(), Some(&b"true"[..]));
        }
        assert_eq!(fabric.refused(), 0);
        for segment in &table.segments {
            assert_eq!(client.read(*segment, words).await.unwrap(), vec![0; words]);
        }
        // Searches use this table: those of a process that may write fill it.
        for number in 0..60 {
            quiver.get(&mut client, &key_of(number)).await.unwrap();
        }
        assert_ne!(client.read(table.segments[0], words).await.unwrap(), vec![0; words]);
    });
}
