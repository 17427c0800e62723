//! Times of the basic operations on a pool in memory of this process, one thread.
//!
//! `cargo bench -p darter` measures; `cargo bench -p darter -- --test` runs everything once. `darter bench` measures
//! whole workloads, over memory nodes too.

#![allow(clippy::unwrap_used)] // a benchmark may panic

use darter::{Condition, KeyValue, PutOutcome, Session, Store};
use divan::Bencher;
use divan::counter::ItemsCount;

/// Records in a store before an operation is measured.
const RECORDS: u64 = 100_000;
/// Pairs that a scan returns.
const SCAN_PAIRS: usize = 100;
/// Bytes of a value.
const VALUE_BYTES: usize = 64;
/// Memory that is not touched costs nothing.
const POOL: &str = "mem:4G";

fn main() {
    divan::main();
}

/// Returns the key of a record; keys are spread over the whole key space.
fn key(record: u64) -> [u8; 8] {
    // The finalizer of SplitMix64, which is a bijection: no two records share a key.
    let mixed = (record ^ record >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    (mixed ^ mixed >> 31).to_be_bytes()
}

/// Returns record numbers below [`RECORDS`] in an order without a pattern.
fn records() -> impl Iterator<Item = u64> {
    (0..).map(|n: u64| u64::from_be_bytes(key(n ^ 0x5eed)) % RECORDS)
}

/// Returns the pairs of the first [`RECORDS`] records in the order of their keys.
fn sorted_pairs() -> Vec<KeyValue> {
    let mut pairs: Vec<KeyValue> =
        (0..RECORDS).map(|record| (key(record).to_vec(), vec![1; VALUE_BYTES])).collect();
    pairs.sort_unstable();
    pairs
}

/// Opens a store with [`RECORDS`] records.
fn loaded_session() -> Session {
    let session = Store::open(POOL).unwrap().session().unwrap();
    session.bulk_load(sorted_pairs()).unwrap();
    session
}

#[divan::bench]
fn get(bencher: Bencher<'_, '_>) {
    let (session, mut records) = (loaded_session(), records());
    bencher.counter(ItemsCount::new(1_u32)).bench_local(|| {
        let found = session.get(key(records.next().unwrap())).unwrap();
        assert!(found.is_some());
        found
    });
}

#[divan::bench(max_time = 2)]
fn insert(bencher: Bencher<'_, '_>) {
    let (session, mut fresh) = (loaded_session(), RECORDS..);
    bencher.counter(ItemsCount::new(1_u32)).bench_local(|| {
        assert!(session.try_insert(key(fresh.next().unwrap()), [2_u8; VALUE_BYTES]).unwrap());
    });
}

#[divan::bench(max_time = 2)]
fn update(bencher: Bencher<'_, '_>) {
    let (session, mut records) = (loaded_session(), records());
    bencher.counter(ItemsCount::new(1_u32)).bench_local(|| {
        assert!(
            session.put_if(key(records.next().unwrap()), [3_u8; VALUE_BYTES], Condition::Present).unwrap()
                == PutOutcome::Replaced
        );
    });
}

/// Time and items are of a whole scan and of the pairs that it returns.
#[divan::bench]
fn scan(bencher: Bencher<'_, '_>) {
    let (session, mut records) = (loaded_session(), records());
    bencher.counter(ItemsCount::new(SCAN_PAIRS)).bench_local(|| {
        let from = key(records.next().unwrap());
        session
            .range(&from[..]..)
            .limit(SCAN_PAIRS)
            .map(|pair| pair.unwrap().1[0])
            .map(u64::from)
            .sum::<u64>()
    });
}
