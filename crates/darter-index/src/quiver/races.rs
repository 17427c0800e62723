//! Races in the replacement of a page, driven by hand.

use super::{Quiver, QuiverOptions};
use crate::fixtures::{LEASE_MS, ROUNDS, Unscheduled, advance, alone, process_on, verify, writes};
use crate::{Condition, OrderedIndex, ScanRange};
use darter_fabric::block_on;
use darter_fabric::sim::{Executor, Sim};
use darter_pool::{Client, Pool};

/// Pages so small that the sixth key parts one.
const OPTIONS: fn() -> QuiverOptions =
    || QuiverOptions { page_records: 3, page_delta: 2, cache_bytes: 0, ..QuiverOptions::default() };

/// A value that does not stand in a page.
const LARGE: [u8; 300] = [7; 300];

async fn put_large(quiver: &Quiver<Sim>, client: &mut Client<Sim>, key: &[u8]) {
    quiver.put(client, key, &LARGE, Condition::Always).await.unwrap();
}

/// A client dies at each of its writes in turn while it parts a page. Others change the part that is
/// linked, which frees leaves that the page still names. Then `finish` meets the page.
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
        let is_over = advance(&mut executor, parting, writes_done, writes);
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
        if is_over {
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
