//! DART's parts one at a time (its section 5.3, figure 8): ART; its hashed layout; that without
//! locks, with metadata in the pointers; the express skip table. Counts of one client without a
//! cache, with uniform access, uniform 63-bit keys and values of 64 bytes.
//!
//! The papers count leaves of 128 bytes for such pairs; ours take 80.

use darter_baselines::{Art, ArtOptions};
use darter_fabric::{Counting, Endpoint, Local, OpCounters, OpKind, block_on};
use darter_index::{Condition, Dart, DartOptions, IndexStats, OrderedIndex, PutOutcome};
use darter_pool::{Client, Pool, PoolOptions};
use std::collections::BTreeSet;

type Locals = Counting<Local>;

const VALUE: [u8; 64] = [7; 64];
/// The difference between the papers' leaves and ours, in bytes.
const LEAF_SLACK: f64 = 128.0 - 80.0;

/// The costs of an index.
struct Figures {
    get: OpCounters,
    update: OpCounters,
    insert: OpCounters,
    stats: IndexStats,
}

impl Figures {
    fn round_trips(&self) -> f64 {
        self.get.round_trips_per_op()
    }

    /// Returns the bytes that a search reads.
    fn bytes(&self) -> f64 {
        self.get.read_bytes as f64 / self.get.ops as f64
    }

    fn inner_nodes(&self) -> u64 {
        self.stats.nodes.iter().map(|node| node.count).sum()
    }

    fn inner_bytes(&self) -> u64 {
        self.stats.nodes.iter().map(|node| node.bytes).sum()
    }
}

/// Returns this many distinct keys, uniform on 0..2^63: splitmix64 without its last bit.
fn keys(count: u64) -> Vec<[u8; 8]> {
    let mixed = |n: u64| {
        let z = n.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) >> 1
    };
    let mut seen = BTreeSet::new();
    let fresh = (0..).map(mixed).filter(|&key| seen.insert(key));
    fresh.take(count as usize).map(u64::to_be_bytes).collect()
}

/// Loads `records` keys, then reads, updates and inserts `operations` keys each.
fn measure<I: OrderedIndex<Locals>>(
    records: u64,
    operations: u64,
    options: I::Options,
    adjust: impl Fn(&I, &mut Client<Locals>),
) -> Figures {
    let bytes = ((64 << 20) + records * 350).next_multiple_of(4096);
    let fabric = Counting::new(Local::memory(bytes, 1).unwrap());
    let options_of_pool = PoolOptions { secret: Some([1, 2, 3, 4]), ..PoolOptions::default() };
    let pool = block_on(Pool::create(fabric, &options_of_pool)).unwrap();
    let mut client = pool.client().unwrap();
    let index = block_on(I::open_or_create(&mut client, options)).unwrap();
    let keys = keys(records + operations);
    let (loaded, others) = keys.split_at(records as usize);
    let mut sorted = loaded.to_vec();
    sorted.sort_unstable();
    let pairs = sorted.into_iter().map(|key| (key.to_vec(), VALUE.to_vec()));
    assert_eq!(block_on(index.bulk_load(&mut client, pairs)).unwrap(), records);
    adjust(&index, &mut client);
    let stats = block_on(index.stats(&mut client)).unwrap();
    let before = *client.endpoint().counters().unwrap();
    for key in &loaded[..operations as usize] {
        let value = block_on(index.get(&mut client, key)).unwrap();
        assert_eq!(value.as_deref(), Some(&VALUE[..]));
        let updated = block_on(index.put(&mut client, key, &VALUE, Condition::Present)).unwrap();
        assert_eq!(updated, PutOutcome::Replaced);
    }
    for key in others {
        let inserted = block_on(index.put(&mut client, key, &VALUE, Condition::Always)).unwrap();
        assert_eq!(inserted, PutOutcome::Inserted);
    }
    let counters = *client.endpoint().counters().unwrap();
    let of = |kind| counters[kind] - before[kind];
    Figures { get: of(OpKind::Get), update: of(OpKind::Update), insert: of(OpKind::Insert), stats }
}

fn art(records: u64, operations: u64, options: ArtOptions) -> Figures {
    measure::<Art<Locals>>(records, operations, options, |_, _| ())
}

fn hashed(records: u64, operations: u64) -> Figures {
    art(records, operations, ArtOptions { hashed: true, ..ArtOptions::default() })
}

fn without_locks(records: u64, operations: u64) -> Figures {
    art(records, operations, ArtOptions { without_locks: true, ..ArtOptions::default() })
}

fn dart(records: u64, operations: u64, express: bool) -> Figures {
    let options = DartOptions { express, ..DartOptions::default() };
    measure::<Dart<Locals>>(records, operations, options, |index, client| {
        block_on(index.adjust(client)).unwrap();
    })
}

fn assert_near(found: f64, expected: f64, percent: f64, what: &str) {
    let off = (found / expected - 1.0).abs() * 100.0;
    assert!(off <= percent, "{what}: {found} for {expected}");
}

/// ART over uniform 63-bit keys, recomputed from the definition of its nodes: round trips and bytes
/// of a search with leaves of 128 bytes and a cached root pointer, and the number of inner nodes.
fn assert_art_is_the_published(figures: &Figures, round_trips: f64, bytes: f64, nodes: u64) {
    assert_near(figures.round_trips(), round_trips, 0.4, "round trips of a search");
    assert_near(figures.bytes() + LEAF_SLACK, bytes, 1.0, "bytes of a search");
    assert_near(figures.inner_nodes() as f64, nodes as f64, 1.0, "inner nodes");
}

#[test]
fn art_costs_what_its_definition_says() {
    let figures = art(100_000, 20_000, ArtOptions::default());
    assert_art_is_the_published(&figures, 3.96, 4_348.0, 27_211);
    // An update writes the leaf and swings the pointer in one more round trip than a search.
    let update = figures.update.round_trips_per_op() - figures.round_trips();
    assert_near(update, 1.0, 1.0, "round trips of an update beyond a search");
}

#[test]
fn locks_cost_inserts_two_round_trips_and_updates_none() {
    let (locked, free) = (art(100_000, 2_000, ArtOptions::default()), without_locks(100_000, 2_000));
    // Lock tables take memory too, so that some operations reach a block's end or an epoch's end at
    // other times.
    let near = |locked: &OpCounters, free: &OpCounters, what| {
        assert_near(locked.round_trips_per_op(), free.round_trips_per_op(), 0.5, what);
        assert_near(locked.verbs as f64, free.verbs as f64, 0.5, what);
    };
    near(&locked.get, &free.get, "a search with locks");
    near(&locked.update, &free.update, "an update with locks");
    let more = locked.insert.round_trips_per_op() - free.insert.round_trips_per_op();
    assert!((1.5..=2.0).contains(&more), "{more}");
}

#[test]
fn each_part_of_dart_saves_what_it_is_for() {
    let (plain, hashed) = (art(100_000, 20_000, ArtOptions::default()), hashed(100_000, 20_000));
    let (base, whole) = (dart(100_000, 20_000, false), dart(100_000, 20_000, true));
    assert!(plain.bytes() > 6.4 * hashed.bytes(), "{} {}", plain.bytes(), hashed.bytes());
    assert_near(hashed.round_trips(), plain.round_trips(), 0.5, "round trips of the hashed layout");
    assert!(base.insert.round_trips_per_op() < hashed.insert.round_trips_per_op() - 1.5);
    assert_near(base.round_trips(), plain.round_trips(), 0.5, "round trips of only the base layer");
    assert!(whole.round_trips() < base.round_trips() - 0.9);
}

fn report(name: &str, figures: &Figures) {
    println!(
        "{name:20} get {:.3} RT {:7.1} B | update {:.3} RT | insert {:.3} RT | {} inner nodes, {} bytes | leaves {} bytes",
        figures.round_trips(),
        figures.bytes(),
        figures.update.round_trips_per_op(),
        figures.insert.round_trips_per_op(),
        figures.inner_nodes(),
        figures.inner_bytes(),
        figures.stats.kv_bytes,
    );
}

/// The table of lab/docs/art.md: `RECORDS=1000000 cargo test -p darter-baselines --test baselines
/// ladder -- --ignored --nocapture`.
#[test]
#[ignore = "takes half a minute at a million records, and gigabytes at ten million"]
fn the_ladder() {
    let records = std::env::var("RECORDS").map_or(1_000_000, |text| text.parse().unwrap());
    let plain = art(records, 100_000, ArtOptions::default());
    report("art", &plain);
    report("art without locks", &without_locks(records, 100_000));
    let hashed = hashed(records, 100_000);
    report("art+hashed", &hashed);
    report("art+hashed+decoupled", &dart(records, 100_000, false));
    report("dart", &dart(records, 100_000, true));
    println!("bytes of art's searches, by hashed's: {:.2}", plain.bytes() / hashed.bytes());
    match records {
        1_000_000 => assert_art_is_the_published(&plain, 4.11, 4_918.0, 88_051),
        10_000_000 => assert_art_is_the_published(&plain, 4.70, 6_363.0, 2_854_792),
        _ => {}
    }
}
