//! Scheduled tests of races in the replacement of a page, and with a blind CAS.

use super::word::twins;
use super::{Quiver, QuiverOptions};
use crate::fixtures::{
    LEASE_MS, ROUNDS, Unscheduled, advance, alone, each_pair_of_stops, finish, process_on, verify, writes,
};
use crate::{Condition, OrderedIndex, PutOutcome, ScanRange};
use darter_fabric::{OpKind, block_on};
use darter_pool::{AllocKind, Client, Pool};
use darter_sim::{Executor, Sim};

/// Small pages: the sixth key splits one.
const OPTIONS: fn() -> QuiverOptions =
    || QuiverOptions { page_records: 3, page_delta: 2, cache_bytes: 0, ..QuiverOptions::default() };

/// A value that is too large for a page.
const LARGE: [u8; 300] = [7; 300];

async fn put_large(quiver: &Quiver<Sim>, client: &mut Client<Sim>, key: &[u8]) {
    quiver.put(client, key, &LARGE, Condition::Always).await.unwrap();
}

/// A client dies at each of its writes in turn while it splits a page. Others change the linked
/// part, which frees leaves that the page still names. Then `finish` visits the page.
fn after_a_half_done_parting(finish: &impl AsyncFn(&Quiver<Sim>, &mut Client<Sim>)) {
    for writes_done in 0.. {
        let sim = Sim::new(1, 8 << 20);
        let (pool, quiver) = process_on::<Quiver<Sim>>(&sim, OPTIONS(), &[&[0x10]]);
        let dying = block_on(Pool::open(sim.process(1))).unwrap();
        let _at_the_end = Unscheduled(sim.clone());
        let (mut client, mut dies) = (pool.client().unwrap(), dying.client().unwrap());
        let other = block_on(Quiver::open(&mut dies, OPTIONS())).unwrap();
        for key in [0x20, 0x30, 0x40, 0x50_u8] {
            block_on(put_large(&quiver, &mut client, &[key]));
        }
        let mut executor = Executor::new(&sim);
        let parting = executor.spawn(1, put_large(&other, &mut dies, &[0x60]));
        let has_ended = advance(&mut executor, parting, writes_done, writes);
        executor.kill(1);
        alone(&pool, async {
            for key in [0x40, 0x50_u8] {
                put_large(&quiver, &mut client, &[key]).await;
            }
            for _ in 0..ROUNDS {
                sim.advance_ms(LEASE_MS / 4);
                pool.maintain(&mut client).await.unwrap();
            }
            finish(&quiver, &mut client).await;
        });
        assert_eq!(pool.fabric().misuse(), None, "after {writes_done} writes");
        verify(&pool, &quiver, &[&[0x10]]);
        drop(executor);
        if has_ended {
            assert!(writes_done > 10, "seals, two parts and their CASes");
            return;
        }
    }
}

#[test]
fn who_finishes_a_parting_reads_no_leaf_of_a_linked_part() {
    after_a_half_done_parting(&async |quiver, client| put_large(quiver, client, &[0x21]).await);
    after_a_half_done_parting(&async |quiver, client| {
        quiver.finish_replacements(client).await.unwrap();
    });
}

/// A sweep makes room, so it must not need any.
#[test]
fn a_sweep_passes_over_what_a_full_pool_has_no_room_to_finish() {
    after_a_half_done_parting(&async |quiver, client| {
        for kind in [AllocKind::Inner, AllocKind::Leaf] {
            for bytes in (4..=16).rev().map(|bits| 1 << bits) {
                let mut client = client.pin(OpKind::Maintain).await.unwrap();
                while client.alloc(0, bytes, kind).await.is_ok() {}
            }
        }
        quiver.finish_replacements(client).await.unwrap();
    });
}

#[test]
fn readers_read_no_leaf_of_a_linked_part_by_the_page() {
    after_a_half_done_parting(&async |quiver, client| {
        let rows = quiver.scan(client, &ScanRange::all(), 10).await.unwrap();
        assert!(rows.len() == 5 || rows.len() == 6, "{} pairs", rows.len());
        for (key, value) in &rows[1..] {
            assert_eq!(
                (&value[..], quiver.get(client, key).await.unwrap().as_deref()),
                (&LARGE[..], Some(&LARGE[..]))
            );
        }
        let stats = quiver.stats(client).await.unwrap();
        assert_eq!(stats.keys as usize, rows.len());
    });
}

/// An update of an absent key hits the record of another key with the same hash, and restores
/// INLINE, while a search for that other key is about to read the leaf that was there.
#[test]
fn the_leaf_of_an_undone_cas_stays_while_others_may_read_it() {
    for writes_done in 0.. {
        if search_beside_an_undone_cas(writes_done) {
            return;
        }
    }
}

/// Returns whether the update had ended after `writes_done` writes, when the search begins.
fn search_beside_an_undone_cas(writes_done: usize) -> bool {
    let options = QuiverOptions { cache_bytes: 1 << 16, ..OPTIONS() };
    let mut has_ended = false;
    each_pair_of_stops(|stops| {
        let sim = Sim::new(1, 8 << 20);
        let (pool, quiver) = process_on::<Quiver<Sim>>(&sim, options, &[]);
        let _at_the_end = Unscheduled(sim.clone());
        let [one, other] = twins(pool.secret());
        let (mut slow, mut quick) = (pool.client().unwrap(), pool.client().unwrap());
        block_on(quiver.put(&mut quick, &one, b"true", Condition::Always)).unwrap();
        assert!(block_on(quiver.get(&mut quick, &one)).unwrap().is_some(), "and remembers the page");
        let mut executor = Executor::new(&sim);
        let hitting = executor.spawn(0, async {
            let outcome = quiver.put(&mut quick, &other, b"false", Condition::Present).await.unwrap();
            assert_eq!(outcome, PutOutcome::Refused);
        });
        has_ended = advance(&mut executor, hitting, writes_done, writes);
        let reading = executor.spawn(0, async {
            assert_eq!(quiver.get(&mut slow, &one).await.unwrap().as_deref(), Some(&b"true"[..]));
        });
        let has_ended = [
            advance(&mut executor, reading, stops[0], |_| true),
            advance(&mut executor, hitting, stops[1], |_| true),
        ];
        finish(&mut executor, reading);
        finish(&mut executor, hitting);
        verify(&pool, &quiver, &[&one]);
        has_ended
    });
    has_ended
}

/// A process remembers a page whose memory now belongs to another page with the same record. It
/// updates the record's key at each step of the replacement that writes that page.
#[test]
fn a_blind_cas_changes_no_page_of_another_life() {
    let options = QuiverOptions { cache_bytes: 1 << 16, ..OPTIONS() };
    for writes_done in 0.. {
        let sim = Sim::new(1, 8 << 20);
        let (pool, quiver) = process_on::<Quiver<Sim>>(&sim, options, &[]);
        let late_pool = block_on(Pool::open(sim.process(1))).unwrap();
        let _at_the_end = Unscheduled(sim.clone());
        let (mut client, mut late) = (pool.client().unwrap(), late_pool.client().unwrap());
        let other = block_on(Quiver::open(&mut late, options)).unwrap();
        // Keys that are put and deleted fill the delta with erased words.
        let passing = async |client: &mut Client<Sim>, keys: &[&[u8]]| {
            for key in keys {
                quiver.put(client, key, b"", Condition::Always).await.unwrap();
                quiver.delete(client, key).await.unwrap();
            }
        };
        block_on(async {
            quiver.put(&mut client, b"a", b"false", Condition::Always).await.unwrap();
            assert!(other.get(&mut late, b"a").await.unwrap().is_some(), "and remembers the page");
            passing(&mut client, &[b"b", b"c", b"d"]).await;
            for _ in 0..ROUNDS {
                pool.maintain(&mut client).await.unwrap();
                late_pool.maintain(&mut late).await.unwrap();
            }
            passing(&mut client, &[b"e"]).await;
        });
        let mut executor = Executor::new(&sim);
        let replacing = executor.spawn(0, passing(&mut client, &[b"f"]));
        let has_ended = advance(&mut executor, replacing, writes_done, writes);
        alone(&pool, async {
            other.put(&mut late, b"a", b"true", Condition::Always).await.unwrap();
            let value = quiver.get(&mut pool.client().unwrap(), b"a").await.unwrap();
            assert_eq!(value.as_deref(), Some(&b"true"[..]), "after {writes_done} writes");
        });
        finish(&mut executor, replacing);
        let report = alone(&pool, async { quiver.check(&mut pool.client().unwrap()).await.unwrap() });
        assert_eq!(report.violations, Vec::<String>::new());
        if has_ended {
            return;
        }
    }
}
