//! Quiver under the tests that every index must pass: with pages of full size, with small ones,
//! which a few keys fill and split, and without any cache.

use crate::common::{Tested, damage_campaign, index_tests, memory};
use darter_fabric::{Endpoint, Fabric, block_on};
use darter_index::{Condition, IndexError, OrderedIndex, Quiver, QuiverOptions, ScanRange};
use darter_pool::{Client, Pool, PoolOptions};

struct Large;

impl Tested for Large {
    type Index<F: Fabric> = Quiver<F>;

    const CASES: u32 = 16;

    /// Adjusts the skip table.
    async fn adjust<F: Fabric>(index: &Quiver<F>, client: &mut Client<F>) -> Result<(), IndexError> {
        index.adjust_to(client, &[4, 10]).await.map(drop)
    }
}

struct Small;

impl Tested for Small {
    type Index<F: Fabric> = Quiver<F>;

    const CASES: u32 = 16;

    fn options<F: Fabric>() -> QuiverOptions {
        QuiverOptions { page_records: 3, page_delta: 2, ..QuiverOptions::default() }
    }
}

struct Forgetful;

impl Tested for Forgetful {
    type Index<F: Fabric> = Quiver<F>;

    const CASES: u32 = 16;

    fn options<F: Fabric>() -> QuiverOptions {
        QuiverOptions { page_records: 3, page_delta: 1, cache_bytes: 0, ..QuiverOptions::default() }
    }
}

/// Searches by loads.
struct Direct;

impl Tested for Direct {
    type Index<F: Fabric> = Quiver<F>;

    const CASES: u32 = 16;

    fn options<F: Fabric>() -> QuiverOptions {
        QuiverOptions { page_records: 3, page_delta: 2, direct: true, ..QuiverOptions::default() }
    }
}

mod large {
    use super::*;
    index_tests!(Large);
}

mod small {
    use super::*;
    index_tests!(Small);
}

mod forgetful {
    use super::*;
    index_tests!(Forgetful);
}

mod direct {
    use super::*;
    index_tests!(Direct);
}

#[test]
fn damage_is_an_error_or_makes_no_difference() {
    damage_campaign::damage_is_an_error_or_makes_no_difference::<Large>();
}

#[test]
fn damage_to_small_pages_is_an_error_or_makes_no_difference() {
    damage_campaign::damage_is_an_error_or_makes_no_difference::<Small>();
}

#[test]
fn damage_to_words_that_are_loaded_is_an_error_or_makes_no_difference() {
    damage_campaign::damage_is_an_error_or_makes_no_difference::<Direct>();
}

/// A search by loads posts no verb, unless it meets a leaf of another key with the same print.
#[test]
fn direct_searches_make_hardly_any_round_trips() {
    let fabric = memory(64 << 20, 1);
    let pool = block_on(Pool::create(fabric, &PoolOptions::default())).unwrap();
    let mut client = pool.client().unwrap();
    let options = QuiverOptions { direct: true, folds: false, ..QuiverOptions::default() };
    let quiver = block_on(Quiver::open_or_create(&mut client, options)).unwrap();
    let key = |at: u32| at.wrapping_mul(0x9e37_79b9).to_be_bytes();
    for at in 0..1000 {
        block_on(quiver.put(&mut client, &key(at), &at.to_be_bytes(), Condition::Always)).unwrap();
    }
    let before = client.endpoint().counters().unwrap().total();
    for at in 0..2000 {
        let found = block_on(quiver.get(&mut client, &key(at))).unwrap();
        assert_eq!(found.as_deref(), (at < 1000).then_some(&at.to_be_bytes()[..]));
    }
    let mut pairs = 0;
    for range in [ScanRange::all(), ScanRange::all().reversed()] {
        pairs += block_on(quiver.scan(&mut client, &range, usize::MAX)).unwrap().len();
    }
    assert_eq!(pairs, 2000);
    let after = client.endpoint().counters().unwrap().total();
    let round_trips = after.round_trips - before.round_trips;
    assert!(round_trips < 200, "{round_trips} for 2,000 gets and 2 scans");
}

/// Formerly everything that inserts created was placed on the memory node of the root until that
/// was full.
#[test]
fn an_index_that_grows_by_inserts_takes_all_memory_nodes_alike() {
    let secret = Some([1, 2, 3, 4]);
    let options = PoolOptions { block_bytes: Some(256 << 10), secret, ..PoolOptions::default() };
    let pool = block_on(Pool::create(memory(16 << 20, 4), &options)).unwrap();
    let mut client = pool.client().unwrap();
    let quiver = block_on(Quiver::open_or_create(&mut client, QuiverOptions::default())).unwrap();
    for number in 0..30_000_u64 {
        let key = number.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes();
        block_on(quiver.put(&mut client, &key, &[7; 64], Condition::Always)).unwrap();
    }
    let usage = block_on(pool.usage(&mut client)).unwrap();
    let taken: Vec<u64> = usage.nodes.iter().map(|node| node.blocks - node.free).collect();
    let all: u64 = taken.iter().sum();
    assert!(taken.iter().all(|&blocks| blocks * 8 >= all), "{taken:?}");
}
