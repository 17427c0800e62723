//! Costs of operations in round trips with each index, on a pool in memory of this process, with
//! one thread: `cargo bench -p darter-baselines`.

#![allow(clippy::unwrap_used)] // a benchmark may panic

use darter::engine::{Dart, DartOptions, OrderedIndex, Pool};
use darter::{Condition, Counters, KeyValue, OpKind, ScanRange, block_on};
use darter_baselines::{Art, ArtOptions, Sherman, ShermanOptions, Smart, SmartOptions};
use darter_fabric::{Counting, Endpoint, Local};
use darter_pool::{Client, PoolOptions};
use std::ops::Bound;

/// Records in an index before its operations are counted.
const RECORDS: u64 = 100_000;
/// Operations of each kind whose round trips are counted.
const COUNTED_OPS: u64 = 10_000;
/// Pairs that a scan returns.
const SCAN_PAIRS: usize = 100;
/// Bytes of a value.
const VALUE_BYTES: usize = 64;
/// Untouched memory costs nothing.
const POOL_BYTES: u64 = 1 << 30;

fn main() {
    print_round_trips();
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

/// The fabric of the counts: local memory, and a counter for each endpoint.
type Counted = Counting<Local>;

/// Prints the round trips per operation of each kind with each index.
fn print_round_trips() {
    let adjust = |dart: &Dart<Counted>, client: &mut Client<Counted>| {
        block_on(dart.adjust(client)).unwrap();
    };
    println!("round trips per operation, {RECORDS} records, default options, warm caches\n");
    println!("{:<10}{:>8}{:>8}{:>8}{:>12}", "index", "get", "insert", "update", "scan of 100");
    print_row("DART", &count::<Dart<Counted>>(DartOptions::default(), adjust));
    print_row("ART", &count::<Art<Counted>>(ArtOptions::default(), |_, _| ()));
    print_row("SMART", &count::<Smart<Counted>>(SmartOptions::default(), |_, _| ()));
    print_row("Sherman", &count::<Sherman<Counted>>(ShermanOptions::default(), |_, _| ()));
    println!();
}

fn print_row(name: &str, counters: &Counters) {
    let [get, insert, update, scan] = [OpKind::Get, OpKind::Insert, OpKind::Update, OpKind::Scan]
        .map(|kind| counters[kind].round_trips_per_op());
    println!("{name:<10}{get:>8.2}{insert:>8.2}{update:>8.2}{scan:>12.2}");
}

/// Runs operations of every kind on an index in its own pool, and returns their costs. `adjust`
/// runs after the searches that fill the caches.
fn count<I: OrderedIndex<Counted>>(options: I::Options, adjust: fn(&I, &mut Client<Counted>)) -> Counters {
    let fabric = Counting::new(Local::memory(POOL_BYTES, 1).unwrap());
    // A fixed secret makes the counts repeatable.
    let pool_options = PoolOptions { secret: Some([1, 2, 3, 4]), ..PoolOptions::default() };
    let pool = block_on(Pool::create(fabric, &pool_options)).unwrap();
    let mut client = pool.client().unwrap();
    let index = block_on(I::open_or_create(&mut client, options)).unwrap();
    block_on(index.bulk_load(&mut client, sorted_pairs().into_iter())).unwrap();
    for record in records().take(RECORDS as usize) {
        block_on(index.get(&mut client, &key(record))).unwrap();
    }
    adjust(&index, &mut client);

    // A client whose counters are zero.
    let mut client = pool.client().unwrap();
    let value = [4_u8; VALUE_BYTES];
    for (number, record) in (0..COUNTED_OPS).zip(records()) {
        block_on(index.get(&mut client, &key(record))).unwrap();
        block_on(index.put(&mut client, &key(record), &value, Condition::Present)).unwrap();
        block_on(index.put(&mut client, &key(RECORDS + number), &value, Condition::Absent)).unwrap();
        if number % 10 == 0 {
            let from = Bound::Included(key(record).to_vec());
            let range = ScanRange { from, ..ScanRange::all() };
            block_on(index.scan(&mut client, &range, SCAN_PAIRS)).unwrap();
        }
    }
    *client.endpoint().counters().unwrap()
}
