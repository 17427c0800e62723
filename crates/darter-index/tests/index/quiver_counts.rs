//! Round trips of Quiver's puts and scans, counted: what a cached map saves, and that a failed CAS
//! costs no round trip.

use crate::common::{TestFabric, memory};
use darter_fabric::{Endpoint, GlobalAddr, OpCounters, OpKind, block_on};
use darter_index::{Condition, OrderedIndex, PutOutcome, Quiver, QuiverOptions, ScanRange};
use darter_pool::{Client, Pool, PoolOptions};
use std::collections::BTreeMap;
use std::ops::Bound;

type Counted = TestFabric;

const KEYS: u64 = 2_000;

/// The 64-bit keys of a sequence that does not ascend.
fn key(number: u64) -> [u8; 8] {
    (number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 1).to_be_bytes()
}

/// A client of an index with the even keys. It has read them all and does not rebuild pages.
fn client_of_loaded() -> (Quiver<Counted>, Client<Counted>) {
    client_of(QuiverOptions { folds: false, hot_words: false, ..QuiverOptions::default() })
}

/// The same, but it rebuilds pages for reads that take round trips for leaves.
fn client_that_folds() -> (Quiver<Counted>, Client<Counted>) {
    client_of(QuiverOptions { hot_words: false, ..QuiverOptions::default() })
}

/// A client that caches words that name leaves, and does not rebuild pages.
fn client_of_hot_words() -> (Quiver<Counted>, Client<Counted>) {
    client_of(QuiverOptions { folds: false, ..QuiverOptions::default() })
}

fn client_of(options: QuiverOptions) -> (Quiver<Counted>, Client<Counted>) {
    let fabric = memory(64 << 20, 1);
    let secret = PoolOptions { secret: Some([1, 2, 3, 4]), ..PoolOptions::default() };
    let pool = block_on(Pool::create(fabric, &secret)).unwrap();
    let mut client = pool.client().unwrap();
    let options = QuiverOptions { cache_bytes: 16 << 20, ..options };
    let quiver = block_on(Quiver::open_or_create(&mut client, options)).unwrap();
    let mut pairs: Vec<_> = (0..KEYS).map(|at| (key(at * 2).to_vec(), vec![7; 64])).collect();
    pairs.sort();
    assert_eq!(block_on(quiver.bulk_load(&mut client, pairs.into_iter())).unwrap(), KEYS);
    for at in 0..KEYS {
        assert!(block_on(quiver.get(&mut client, &key(at * 2))).unwrap().is_some());
    }
    (quiver, client)
}

/// The cost of puts of these keys.
fn puts(
    (quiver, client): &mut (Quiver<Counted>, Client<Counted>),
    numbers: impl Iterator<Item = u64>,
    condition: Condition<'_>,
    outcome: PutOutcome,
) -> OpCounters {
    let counted = |client: &Client<Counted>| client.endpoint().counters().unwrap()[condition.op_kind()];
    let before = counted(client);
    for number in numbers {
        let put = block_on(quiver.put(client, &key(number), &[9; 64], condition)).unwrap();
        assert_eq!(put, outcome, "key {number}");
    }
    let mut after = counted(client);
    after -= before;
    after
}

/// In addition to the round trips of the puts, the allocator makes a few.
#[track_caller]
fn assert_about(counted: u64, expected: u64) {
    assert!((expected..expected + KEYS / 50).contains(&counted), "{counted} instead of {expected}");
}

#[test]
fn update_takes_one_round_trip_in_a_new_page_and_two_in_a_changed_page() {
    for condition in [Condition::Always, Condition::Present] {
        let mut loaded = client_of_loaded();
        let mut update = |keys: u64| {
            puts(&mut loaded, (0..keys).map(|at| at * 2), condition, PutOutcome::Replaced).round_trips
        };
        assert_about(update(KEYS / 2), KEYS / 2);
        // Records that were changed, then as many that were not: by then a put does not try a CAS
        // before it reads the record, until some puts have shown that the CAS would succeed.
        assert_about(update(KEYS / 2), KEYS);
        assert_about(update(KEYS), KEYS + KEYS / 2);
    }
}

/// Every key is updated five times, so without rebuilt pages each search reads a leaf.
#[test]
fn most_updated_pairs_stand_in_their_pages_again() {
    let mut loaded = client_that_folds();
    let numbers = (0..KEYS * 5).map(|at| at * 7919 % KEYS * 2);
    let updates = puts(&mut loaded, numbers, Condition::Present, PutOutcome::Replaced).round_trips;
    assert!(updates < KEYS * 5 * 8 / 5, "{updates} for {} updates", KEYS * 5);
    let (quiver, mut client) = loaded;
    let before = client.endpoint().counters().unwrap()[OpKind::Get].round_trips;
    for at in 0..KEYS {
        let value = block_on(quiver.get(&mut client, &key(at * 2))).unwrap();
        assert_eq!(value, Some(vec![9; 64]));
    }
    let searches = client.endpoint().counters().unwrap()[OpKind::Get].round_trips - before;
    assert!(searches < KEYS * 3 / 2, "{searches} for {KEYS} searches");
    let report = block_on(quiver.check(&mut client)).unwrap();
    assert!(report.violations.is_empty() && report.stats.keys == KEYS, "{report:?}");
}

/// The cost of a search of each loaded key.
fn searches_of_all((quiver, client): &mut (Quiver<Counted>, Client<Counted>)) -> OpCounters {
    let before = client.endpoint().counters().unwrap()[OpKind::Get];
    for at in 0..KEYS {
        assert!(block_on(quiver.get(client, &key(at * 2))).unwrap().is_some());
    }
    let mut counted = client.endpoint().counters().unwrap()[OpKind::Get];
    counted -= before;
    counted
}

/// Covers updated pairs, which searches read, and inserted pairs, which a scan reads: each takes a
/// round trip for a leaf.
#[test]
fn reads_bring_pairs_back_to_unchanged_pages() {
    let mut loaded = client_that_folds();
    puts(&mut loaded, (0..KEYS / 20).map(|at| at * 38), Condition::Present, PutOutcome::Replaced);
    let before = searches_of_all(&mut loaded).round_trips;
    assert!(before > KEYS, "no leaf was read");
    for _ in 0..10 {
        searches_of_all(&mut loaded);
    }
    let after = searches_of_all(&mut loaded);
    assert_eq!((after.round_trips, after.write_bytes), (KEYS, 0));

    puts(&mut loaded, (0..KEYS / 20).map(|at| at * 38 + 1), Condition::Absent, PutOutcome::Inserted);
    let (quiver, client) = &mut loaded;
    let mut scans = || {
        let before = client.endpoint().counters().unwrap()[OpKind::Scan];
        let all = block_on(quiver.scan(client, &ScanRange::all(), usize::MAX)).unwrap();
        assert_eq!(all.len() as u64, KEYS + KEYS / 20);
        client.endpoint().counters().unwrap()[OpKind::Scan].write_bytes - before.write_bytes
    };
    assert!((0..200).map(|_| scans()).sum::<u64>() > 0);
    assert_eq!(scans(), 0);
    let report = block_on(quiver.check(client)).unwrap();
    assert!(report.violations.is_empty(), "{report:?}");
}

/// Most pairs of a page are so small that the long ones stay in leaves: rebuilding the page is
/// useless.
#[test]
fn reads_do_not_rebuild_pages_for_pairs_that_cannot_stand_in_them() {
    let mut loaded = client_that_folds();
    let (quiver, client) = &mut loaded;
    let long = (0..KEYS).step_by(16).map(|at| key(at * 2));
    for key in long {
        block_on(quiver.put(client, &key, &[9; 200], Condition::Present)).unwrap();
    }
    for _ in 0..20 {
        searches_of_all(&mut loaded);
    }
    let counted = searches_of_all(&mut loaded);
    assert_eq!(counted.write_bytes, 0);
    assert!(counted.round_trips < KEYS + KEYS / 8, "{} round trips", counted.round_trips);
}

/// A pair that was updated or inserted takes one more round trip for its leaf, once, unless this
/// process changed it itself.
#[test]
fn leaf_is_read_together_with_its_remembered_word() {
    let mut loaded = client_of_hot_words();
    puts(&mut loaded, (0..KEYS).map(|at| at * 2), Condition::Present, PutOutcome::Replaced);
    let counted = searches_of_all(&mut loaded);
    assert_about(counted.round_trips, KEYS);
    assert!(counted.read_bytes <= KEYS * 140, "{} bytes", counted.read_bytes);
    // Another process.
    let mut client = loaded.1.pool().client().unwrap();
    let options = QuiverOptions { folds: false, cache_bytes: 16 << 20, ..QuiverOptions::default() };
    let other = block_on(Quiver::open(&mut client, options)).unwrap();
    let mut other = (other, client);
    searches_of_all(&mut other);
    assert_about(searches_of_all(&mut other).round_trips, KEYS);
    // A cached record that has changed costs no more than an uncached one.
    puts(&mut loaded, (0..KEYS).map(|at| at * 2), Condition::Present, PutOutcome::Replaced);
    assert_about(searches_of_all(&mut other).round_trips, KEYS * 2);
    assert_about(searches_of_all(&mut other).round_trips, KEYS);
}

#[test]
fn inserted_pairs_are_read_and_replaced_with_their_remembered_word() {
    let mut loaded = client_of_hot_words();
    let scans = |(quiver, client): &mut (Quiver<Counted>, Client<Counted>)| {
        let before = client.endpoint().counters().unwrap()[OpKind::Scan].round_trips;
        let pairs = block_on(quiver.scan(client, &ScanRange::all(), usize::MAX)).unwrap().len() as u64;
        (pairs, client.endpoint().counters().unwrap()[OpKind::Scan].round_trips - before)
    };
    // The first scan caches pages.
    scans(&mut loaded);
    let (_, trips) = scans(&mut loaded);
    let new = || (0..KEYS / 20).map(|at| at * 38 + 1);
    puts(&mut loaded, new(), Condition::Absent, PutOutcome::Inserted);
    let replaced = puts(&mut loaded, new(), Condition::Always, PutOutcome::Replaced);
    assert_about(replaced.round_trips, KEYS / 20 * 2);
    assert_eq!(scans(&mut loaded), (KEYS + KEYS / 20, trips));
    let (quiver, client) = &mut loaded;
    let gets = |client: &Client<Counted>| client.endpoint().counters().unwrap()[OpKind::Get].round_trips;
    let before = gets(client);
    for number in new() {
        assert!(block_on(quiver.get(client, &key(number))).unwrap().is_some());
    }
    assert_eq!(gets(client) - before, KEYS / 20);
}

#[test]
fn reads_do_not_rebuild_a_page_that_is_being_changed() {
    let mut loaded = client_that_folds();
    let mut written = 0;
    for at in 0..KEYS {
        let hot = [at % 8 * 2];
        puts(&mut loaded, hot.into_iter(), Condition::Present, PutOutcome::Replaced);
        let (quiver, client) = &mut loaded;
        let before = client.endpoint().counters().unwrap()[OpKind::Get].write_bytes;
        block_on(quiver.get(client, &key(hot[0]))).unwrap();
        written += client.endpoint().counters().unwrap()[OpKind::Get].write_bytes - before;
    }
    assert!(written < 20_000, "{written} bytes written by reads");
}

/// Puts of keys not known to be new cost as much as inserts, except for a few CASes.
#[test]
fn an_upsert_of_a_new_key_costs_what_an_insert_costs() {
    let new = |condition| {
        let numbers = (0..KEYS).map(|at| at * 2 + 1);
        puts(&mut client_of_loaded(), numbers, condition, PutOutcome::Inserted)
    };
    let (insert, upsert) = (new(Condition::Absent), new(Condition::Always));
    assert_eq!(upsert.round_trips, insert.round_trips);
    let vain = upsert.verbs - insert.verbs;
    assert!(vain < 64, "{vain} verbs in vain");
    assert!(upsert.write_bytes - insert.write_bytes <= vain * 16);
}

/// The range that starts at a key, or that ends at it.
fn range_at(bound: u64, reverse: bool) -> ScanRange {
    let bound = Bound::Included(key(bound).to_vec());
    let all = ScanRange::all();
    if reverse { ScanRange { to: bound, reverse, ..all } } else { ScanRange { from: bound, ..all } }
}

#[test]
fn a_scan_of_remembered_pages_reads_the_records_it_wants_in_one_round_trip() {
    let (quiver, mut client) = client_of_loaded();
    for reverse in [false, true] {
        for limit in [1, 10, 100] {
            let counted = |client: &Client<Counted>| client.endpoint().counters().unwrap()[OpKind::Scan];
            let before = counted(&client);
            for bound in (0..KEYS).step_by(20) {
                let range = range_at(bound * 2, reverse);
                block_on(quiver.scan(&mut client, &range, limit)).unwrap();
            }
            let mut spent = counted(&client);
            spent -= before;
            // A pair takes 88 bytes in its page, and two or three pages have heads and more pairs than
            // are wanted.
            let (scans, most) = (KEYS / 20, limit as u64 * 96 + 1_000 + limit as u64 * 8);
            assert!(spent.round_trips <= scans + scans / 10, "{} for {limit}", spent.round_trips);
            assert!(spent.read_bytes / scans < most, "{} bytes for {limit}", spent.read_bytes / scans);
        }
    }
}

/// Records without values, others in leaves, and keys in deltas: more must be read than was
/// foreseen, and the items after the records that were read have to wait.
#[test]
fn scan_continues_after_the_last_record_that_it_has_read() {
    let (quiver, mut client) = client_of_loaded();
    let mut model: BTreeMap<_, _> = (0..KEYS).map(|at| (key(at * 2).to_vec(), vec![7; 64])).collect();
    for at in 0..KEYS {
        let (number, value) = (at * 2, at.to_le_bytes());
        if at % 5 < 2 {
            block_on(quiver.delete(&mut client, &key(number))).unwrap();
            model.remove(&key(number)[..]);
        } else if at % 7 == 0 {
            block_on(quiver.put(&mut client, &key(number), &value, Condition::Present)).unwrap();
            model.insert(key(number).to_vec(), value.to_vec());
        }
        if at % 11 == 0 {
            block_on(quiver.put(&mut client, &key(number + 1), &value, Condition::Absent)).unwrap();
            model.insert(key(number + 1).to_vec(), value.to_vec());
        }
        // Caches the new version of the page.
        block_on(quiver.get(&mut client, &key(number))).unwrap();
    }
    for reverse in [false, true] {
        for bound in 0..KEYS {
            let (range, limit) = (range_at(bound, reverse), 1 + bound as usize % 90);
            let found = block_on(quiver.scan(&mut client, &range, limit)).unwrap();
            let in_range = model.iter().filter(|(key, _)| range.contains(key));
            let pairs = in_range.map(|(key, value)| (key.clone(), value.clone()));
            let expected: Vec<_> =
                if reverse { pairs.rev().take(limit).collect() } else { pairs.take(limit).collect() };
            assert_eq!(found, expected, "{limit} from {bound}, reverse: {reverse}");
        }
    }
}

/// The map leads a bound that is not a key to any rank of its page, so that all records read may
/// lie on the wrong side of it. A scan that continued from there never ended.
#[test]
fn a_scan_whose_bound_is_led_astray_ends() {
    let (quiver, mut client, _) = loaded(Vec::new(), true, 1 << 20);
    let mut model = BTreeMap::new();
    // All words of up to three of five letters, except for some.
    for number in (0..216_u32).filter(|number| number % 7 != 3) {
        let letters = [number / 36, number / 6 % 6, number % 6].map(|letter| letter as u8 * 40);
        let word: Vec<u8> = letters.into_iter().take_while(|&letter| letter > 0).collect();
        block_on(quiver.put(&mut client, &word, &[7; 8], Condition::Always)).unwrap();
        model.insert(word, vec![7; 8]);
    }
    for key in model.keys() {
        block_on(quiver.get(&mut client, key)).unwrap();
    }
    for number in 0..4096_u32 {
        let bound =
            [number / 256, number / 16 % 16, number % 16].map(|letter| letter as u8 * 16 + 8).to_vec();
        for (reverse, limit) in [(false, 1), (true, 1), (false, 4), (true, 4)] {
            let bound = Bound::Excluded(bound.clone());
            let all = ScanRange::all();
            let range = if reverse {
                ScanRange { to: bound, reverse, ..all }
            } else {
                ScanRange { from: bound, ..all }
            };
            let found = block_on(quiver.scan(&mut client, &range, limit)).unwrap();
            let pairs = model.iter().filter(|(key, _)| range.contains(key));
            let pairs = pairs.map(|(key, value)| (key.clone(), value.clone()));
            let expected: Vec<_> =
                if reverse { pairs.rev().take(limit).collect() } else { pairs.take(limit).collect() };
            assert_eq!(found, expected, "{limit} of {range:?}");
        }
    }
}

/// Average round trips of a search for each of these keys, by a process with an empty cache.
fn searches(quiver: &Quiver<Counted>, client: &mut Client<Counted>, keys: &[Vec<u8>]) -> f64 {
    let counted = |client: &Client<Counted>| client.endpoint().counters().unwrap()[OpKind::Get].round_trips;
    let before = counted(client);
    for key in keys {
        assert!(block_on(quiver.get(client, key)).unwrap().is_some());
    }
    (counted(client) - before) as f64 / keys.len() as f64
}

/// An index of these keys, and a process with a cache of `cache_bytes` that does not rebuild pages.
fn loaded(
    mut keys: Vec<Vec<u8>>,
    is_bulk_loaded: bool,
    cache_bytes: u64,
) -> (Quiver<Counted>, Client<Counted>, Vec<Vec<u8>>) {
    let fabric = memory(256 << 20, 2);
    let options = PoolOptions { secret: Some([1, 2, 3, 4]), ..PoolOptions::default() };
    let pool = block_on(Pool::create(fabric, &options)).unwrap();
    let mut client = pool.client().unwrap();
    let options = QuiverOptions { cache_bytes, folds: false, ..QuiverOptions::default() };
    let quiver = block_on(Quiver::open_or_create(&mut client, options)).unwrap();
    if is_bulk_loaded {
        keys.sort();
        let pairs = keys.iter().map(|key| (key.clone(), vec![7; 16])).collect::<Vec<_>>();
        block_on(quiver.bulk_load(&mut client, pairs.into_iter())).unwrap();
    } else {
        for key in &keys {
            block_on(quiver.put(&mut client, key, &[7; 16], Condition::Always)).unwrap();
        }
    }
    (quiver, client, keys)
}

#[test]
fn a_search_with_nothing_remembered_reads_the_table_a_node_and_a_record() {
    let keys = || (0..60_000).map(|at| key(at).to_vec()).collect::<Vec<_>>();
    let (quiver, mut client, keys) = loaded(keys(), true, 0);
    let trips = searches(&quiver, &mut client, &keys);
    assert!((3.0..3.4).contains(&trips), "{trips} round trips");
}

/// Keys with long common parts, for which the tree is deep.
fn addresses() -> Vec<Vec<u8>> {
    let name = |at: u64| format!("com.example.{:03}@{:06}.mail", at % 40, at * 7919 % 1_000_003);
    (0..40_000).map(|at| name(at).into_bytes()).collect()
}

#[test]
fn an_adjustment_makes_searches_short_in_a_deep_tree() {
    let (quiver, mut client, keys) = loaded(addresses(), false, 0);
    let before = searches(&quiver, &mut client, &keys);
    assert!(quiver.wants_adjust() && before > 5.5, "{before} round trips");
    block_on(quiver.adapt(&mut client)).unwrap();
    let after = searches(&quiver, &mut client, &keys);
    assert!(after < 4.0 && after < before - 1.5, "{before} and then {after} round trips");
    assert!(!quiver.wants_adjust(), "a further adjustment would gain nothing");
    let stats = block_on(quiver.stats(&mut client)).unwrap();
    let est = stats.est.unwrap();
    assert!(!est.prefix_list.is_empty() && est.entries * 6 > est.slots, "{est:?}");
}

/// A table that was created for few nodes, or that has lost its entries, is filled by searches.
#[test]
fn searches_enter_what_they_do_not_find() {
    let (quiver, mut client, keys) = loaded(addresses(), false, 0);
    let list = [24, 28, 31, 34];
    assert!(block_on(quiver.adjust_to(&mut client, &list)).unwrap());
    let filled = searches(&quiver, &mut client, &keys);
    let table = block_on(client.read(client.pool().root_word(2), 1)).unwrap()[0];
    let descriptor = GlobalAddr::from_bits((table & ((1 << 44) - 1)) << 4);
    let words = block_on(client.read(descriptor, 64)).unwrap();
    for &segment in words[4..].iter().filter(|&&word| word != 0) {
        let zeros = vec![0; 8 << (words[3] & 0xff)];
        block_on(client.post(|batch| batch.write(GlobalAddr::from_bits(segment), &zeros))).unwrap();
    }
    let empty = searches(&quiver, &mut client, &keys);
    let again = searches(&quiver, &mut client, &keys);
    assert!(empty > filled, "{filled}, then {empty} round trips");
    assert!(again < filled + 0.005, "{filled}, then {again} round trips");
}

/// A round trip of a scan reads 4 MiB of records' leaves, plus one leaf. A page's pairs in records,
/// in leaves and in the delta are still returned in order.
#[test]
fn a_scan_reads_a_few_large_values_at_a_time() {
    const VALUE_BYTES: usize = 1 << 20;
    // For the leaf beyond the bound and its class, and for pages with the values in them.
    const MOST_BYTES: u64 = (4 << 20) + (2 << 20);
    let fabric = memory(256 << 20, 1);
    let pool = block_on(Pool::create(fabric, &PoolOptions::default())).unwrap();
    let mut client = pool.client().unwrap();
    for options in [QuiverOptions::default(), QuiverOptions { cache_bytes: 0, ..QuiverOptions::default() }] {
        let quiver = block_on(Quiver::open_or_create(&mut client, options)).unwrap();
        let value = |number: u64| vec![number as u8; [8, VALUE_BYTES, 100_000, 20][number as usize % 4]];
        let mut map: BTreeMap<Vec<u8>, Vec<u8>> =
            (0..90).map(|number| (key(number).to_vec(), value(number))).collect();
        if block_on(quiver.get(&mut client, &key(0))).unwrap().is_none() {
            block_on(quiver.bulk_load(&mut client, map.clone().into_iter())).unwrap();
        }
        for number in (0..130).filter(|number| number % 3 == 0) {
            let value = if number < 90 { value(number + 1) } else { vec![number as u8; 50_000] };
            block_on(quiver.put(&mut client, &key(number), &value, Condition::Always)).unwrap();
            map.insert(key(number).to_vec(), value);
        }
        for number in (0..90).filter(|number| number % 7 == 1) {
            block_on(quiver.delete(&mut client, &key(number))).unwrap();
            map.remove(&key(number)[..]);
        }
        let middle = map.keys().nth(40).cloned().unwrap();
        let mut scanned = |range: ScanRange, limit: usize| {
            let before = client.endpoint().counters().unwrap()[OpKind::Scan];
            let found = block_on(quiver.scan(&mut client, &range, limit)).unwrap();
            let after = client.endpoint().counters().unwrap()[OpKind::Scan];
            let within = map.range((range.from.clone(), range.to.clone()));
            let mut expected: Vec<_> = within.map(|(key, value)| (key.clone(), value.clone())).collect();
            if range.reverse {
                expected.reverse();
            }
            expected.truncate(limit);
            assert!(found == expected, "{range:?} {limit}");
            let (bytes, trips) =
                (after.read_bytes - before.read_bytes, after.round_trips - before.round_trips);
            assert!(bytes <= trips * MOST_BYTES, "{bytes} bytes in {trips} round trips");
            bytes
        };
        for reverse in [false, true] {
            for limit in [usize::MAX, 1, 10, 33] {
                for (from, to) in [
                    (Bound::Unbounded, Bound::Unbounded),
                    (Bound::Included(middle.clone()), Bound::Unbounded),
                    (Bound::Unbounded, Bound::Excluded(middle.clone())),
                ] {
                    let bytes = scanned(ScanRange { from, to, reverse }, limit);
                    assert!(limit > 1 || bytes < 3 * MOST_BYTES, "{bytes} for one pair");
                }
            }
        }
    }
}
