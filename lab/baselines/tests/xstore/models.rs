//! Models: costs of operations with caches of all sizes, correct results with any models, and no
//! lost memory.

use crate::common::Model;
use darter_baselines::{XStore, XStoreOptions, XStoreService};
use darter_fabric::{Counting, Endpoint, Local, OpCounters, OpKind, block_on};
use darter_index::{Condition, OrderedIndex, ScanRange};
use darter_pool::{Client, Pool, PoolOptions};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use std::ops::Bound;

type Memory = Counting<Local>;

/// A pool with a server, and an index whose clients count.
struct Bench {
    pool: Pool<Memory>,
    index: XStore<Memory>,
    client: Client<Memory>,
    options: XStoreOptions,
    model: Model,
}

fn spread(number: u64) -> u64 {
    let word = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let word = (word ^ word >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    word ^ word >> 27
}

impl Bench {
    fn new(value_words: u8, cache_bytes: u64) -> Self {
        let memory = Local::memory(64 << 20, 1).unwrap();
        let served = memory.with_procedures(0, XStoreService::new(&memory).procedures()).unwrap();
        let pool = block_on(Pool::create(Counting::new(served), &PoolOptions::default())).unwrap();
        let options = XStoreOptions { value_words, cache_bytes, ..XStoreOptions::default() };
        let mut client = pool.client().unwrap();
        let index = block_on(XStore::create(&mut client, options)).unwrap();
        Self { pool, index, client, options, model: Model::new() }
    }

    /// Creates the index with these keys, bulk loaded.
    fn loaded(value_words: u8, cache_bytes: u64, keys: impl Iterator<Item = u64>) -> Self {
        let mut bench = Self::new(value_words, cache_bytes);
        bench.model =
            keys.map(|key| (key.to_be_bytes().to_vec(), spread(key).to_be_bytes().to_vec())).collect();
        let pairs = bench.model.clone().into_iter();
        block_on(bench.index.bulk_load(&mut bench.client, pairs)).unwrap();
        bench
    }

    /// Opens the index as another process, with an empty cache.
    fn with_cache(&self, cache_bytes: u64) -> (XStore<Memory>, Client<Memory>) {
        let mut client = self.pool.client().unwrap();
        let options = XStoreOptions { cache_bytes, ..self.options };
        (block_on(XStore::open(&mut client, options)).unwrap(), client)
    }

    fn put(&mut self, key: u64, value: &[u8]) {
        let key = key.to_be_bytes();
        block_on(self.index.put(&mut self.client, &key, value, Condition::Always)).unwrap();
        self.model.insert(key.to_vec(), value.to_vec());
    }

    fn delete(&mut self, key: &[u8]) {
        let was_there = block_on(self.index.delete(&mut self.client, key)).unwrap();
        assert_eq!(was_there, self.model.remove(key).is_some());
    }

    fn maintain(&mut self) {
        block_on(self.pool.maintain(&mut self.client)).unwrap();
        block_on(self.index.maintain(&mut self.client)).unwrap();
    }

    /// Asserts that all keys, and keys between them, are read as in the model, in all ways.
    fn assert_holds(&mut self) {
        let (index, client) = (&self.index, &mut self.client);
        for (key, value) in &self.model {
            assert_eq!(block_on(index.get(client, key)).unwrap().as_ref(), Some(value), "{key:?}");
            let other = (u64::from_be_bytes(key[..].try_into().unwrap()) ^ 1).to_be_bytes();
            let found = block_on(index.get(client, &other)).unwrap();
            assert_eq!(found.as_ref(), self.model.get(&other[..]), "{other:?}");
        }
        for range in [ScanRange::all(), ScanRange::all().reversed()] {
            let found = block_on(index.scan(client, &range, usize::MAX)).unwrap();
            assert!(found.into_iter().eq(expected(&self.model, &range, usize::MAX)), "{range:?}");
        }
    }

    fn assert_sound(&mut self) {
        for _ in 0..32 {
            self.maintain();
        }
        let report = block_on(self.index.check(&mut self.client)).unwrap();
        assert_eq!(report.violations, Vec::<String>::new());
        assert_eq!(report.stats.keys, self.model.len() as u64);
        let audit = block_on(self.pool.audit(&mut self.client, &report.reachable)).unwrap();
        assert_eq!((audit.violations, audit.leaked_bytes), (Vec::new(), 0));
    }
}

fn expected(model: &Model, range: &ScanRange, limit: usize) -> Vec<(Vec<u8>, Vec<u8>)> {
    let pairs = model.iter().filter(|(key, _)| range.contains(key));
    let pairs = pairs.map(|(key, value)| (key.clone(), value.clone()));
    if range.reverse { pairs.rev().take(limit).collect() } else { pairs.take(limit).collect() }
}

/// Returns the cost of operations of a kind.
fn cost(client: &mut Client<Memory>, kind: OpKind, work: impl FnOnce(&mut Client<Memory>)) -> OpCounters {
    let before = client.endpoint().counters().unwrap()[kind];
    work(client);
    client.endpoint().counters().unwrap()[kind] - before
}

const KEYS: u64 = 20_000;
/// Number of sub-models for these keys.
const SUBMODELS: u64 = KEYS / 200;

#[test]
fn gets_take_two_three_or_four_round_trips() {
    for value_words in [1, 0] {
        let bench = Bench::loaded(value_words, 0, (0..KEYS).map(|key| key * 10));
        let all = [(u64::MAX, 2), (16 + 14 * SUBMODELS, 3), (16, 4), (1, 5), (0, 1)];
        for (budget, round_trips) in all {
            let (index, mut client) = bench.with_cache(budget);
            let keys: Vec<_> = (0..KEYS).map(|key| (key * 10).to_be_bytes()).collect();
            let gets = |client: &mut Client<Memory>, keys: &[[u8; 8]]| {
                for key in keys {
                    let value = block_on(index.get(client, key)).unwrap();
                    assert_eq!(value.as_ref(), bench.model.get(&key[..]), "of {budget}");
                }
            };
            let absent: Vec<_> = (0..KEYS).map(|key| (key * 10 + 5).to_be_bytes()).collect();
            gets(&mut client, &keys);
            gets(&mut client, &absent);
            let found = cost(&mut client, OpKind::Get, |client| gets(client, &keys));
            let what = format!("{value_words} words, a cache of {budget} bytes");
            assert_eq!((found.ops, found.round_trips), (KEYS, round_trips * KEYS), "{what}");
            assert_eq!(found.calls, if budget == 0 { KEYS } else { 0 }, "{what}");
            assert!(OrderedIndex::<Memory>::cache_used_bytes(&index) <= budget, "{what}");
            // An absent key costs the same round trips, and 8 bytes for its value.
            let missed = cost(&mut client, OpKind::Get, |client| gets(client, &absent));
            if value_words == 0 && budget > 0 {
                // One pointer in 512 has the key's hash.
                let more = missed.round_trips - found.round_trips;
                assert!(missed.calls == 0 && more < KEYS * 4 / 100, "{what}: {more} more");
                continue;
            }
            assert_eq!((missed.round_trips, missed.calls), (found.round_trips, found.calls), "{what}");
            if budget == u64::MAX {
                let leaves = (missed.read_bytes - 8 * KEYS) / 160;
                assert_eq!(missed.read_bytes, 160 * leaves + 8 * KEYS, "{what}");
                assert!((KEYS..KEYS * 6 / 5).contains(&leaves), "{what}: {leaves} leaves");
            }
        }
    }
}

#[test]
fn multi_gets_share_their_round_trips() {
    let bench = Bench::loaded(2, u64::MAX, (0..KEYS).map(spread));
    let (index, mut client) = bench.with_cache(u64::MAX);
    let keys: Vec<_> = (0..KEYS + 500).map(|key| spread(key).to_be_bytes()).collect();
    let keys: Vec<&[u8]> = keys.iter().map(|key| &key[..]).collect();
    for round in 0..2 {
        for chunk in keys.chunks(60) {
            let found = cost(&mut client, OpKind::MultiGet, |client| {
                let values = block_on(index.multi_get(client, chunk)).unwrap();
                let expected = chunk.iter().map(|key| bench.model.get(*key).cloned());
                assert!(values.into_iter().eq(expected));
            });
            assert!(round == 0 || found.calls == 0 && found.round_trips == 2, "{found:?}");
        }
    }
}

#[test]
fn scans_take_two_round_trips_and_one_for_each_leaf_not_foreseen() {
    for value_words in [1, 0] {
        let mut bench = Bench::loaded(value_words, u64::MAX, (0..150).map(|key| key * 100));
        let ranges: Vec<ScanRange> = (0..150)
            .flat_map(|number: u64| {
                let from = Bound::Included((number * 100).to_be_bytes().to_vec());
                let to = Bound::Excluded((number * 101).to_be_bytes().to_vec());
                let forward = ScanRange { from, to: Bound::Unbounded, reverse: false };
                [forward, ScanRange { from: Bound::Unbounded, to, reverse: true }]
            })
            .chain([ScanRange::all(), ScanRange::all().reversed()])
            .collect();
        bench.assert_holds();
        let costs = |bench: &mut Bench, limit: usize, most: u64| {
            let mut total = 0;
            for range in &ranges {
                let (index, model) = (&bench.index, &bench.model);
                let found = cost(&mut bench.client, OpKind::Scan, |client| {
                    let pairs = block_on(index.scan(client, range, limit)).unwrap();
                    assert_eq!(pairs, expected(model, range, limit), "{range:?}");
                });
                assert_eq!(found.calls, 0, "{range:?}");
                assert!((2..=most).contains(&found.round_trips), "{range:?}, {limit}: {found:?}");
                total += found.round_trips;
            }
            total - 2 * ranges.len() as u64
        };
        for limit in [1, 7, 50, usize::MAX] {
            assert_eq!(costs(&mut bench, limit, 2), 0, "{value_words} words, {limit} pairs");
        }
        // One leaf splits, then another.
        for (nth, at) in [5000_u64, 9000].into_iter().enumerate() {
            for number in 0..8 {
                bench.put(at + 1 + number, b"new");
            }
            let more = costs(&mut bench, usize::MAX, 3 + nth as u64);
            assert!(more > 50, "{value_words} words: {more}");
        }
        bench.maintain();
        bench.assert_holds();
        assert_eq!(costs(&mut bench, 7, 2), 0);
    }
}

/// Random operations compared with a map, while sub-models are retrained and their number doubles
/// and halves.
#[test]
fn any_cache_answers_like_a_map() {
    for value_words in [2, 0] {
        for cache_bytes in [1, 16, 300, 2000, u64::MAX] {
            let mut bench = Bench::new(value_words, cache_bytes);
            let mut dice = Pcg64Mcg::seed_from_u64(cache_bytes);
            for (phase, inserts) in [9, 8, 2, 0].into_iter().enumerate() {
                for turn in 0..1500_u64 {
                    let key = spread(dice.random_range(0..3000_u64)) >> 20;
                    if dice.random_range(0..10) < inserts {
                        bench.put(key, &turn.to_be_bytes());
                    } else {
                        bench.delete(&key.to_be_bytes());
                    }
                    let key = (spread(dice.random_range(0..3000_u64)) >> 20).to_be_bytes();
                    let found = block_on(bench.index.get(&mut bench.client, &key)).unwrap();
                    assert_eq!(found.as_ref(), bench.model.get(&key[..]));
                    if turn % 150 == 0 {
                        let reverse = dice.random_bool(0.5);
                        let from = Bound::Included(key.to_vec());
                        let range = ScanRange { from, to: Bound::Unbounded, reverse };
                        let limit = dice.random_range(0..200_usize);
                        let found = block_on(bench.index.scan(&mut bench.client, &range, limit)).unwrap();
                        assert_eq!(found, expected(&bench.model, &range, limit));
                    }
                    if turn % 500 == 0 {
                        bench.maintain();
                    }
                }
                bench.assert_holds();
                bench.assert_sound();
                assert!(
                    OrderedIndex::<Memory>::cache_used_bytes(&bench.index) <= cache_bytes,
                    "phase {phase}"
                );
            }
        }
    }
}

/// More sub-models than a segment of the root holds: those after it are found, retrained and taken
/// over.
#[test]
fn a_root_of_several_segments_leads_to_all_keys() {
    const MANY: u64 = 215_000;
    let mut bench = Bench::loaded(1, 16, (0..MANY).map(|key| key * 10));
    let submodels = MANY / 200;
    assert!(submodels > 1024);
    for (cache_bytes, trips) in [(16, 4), (u64::MAX, 2)] {
        let (index, mut client) = bench.with_cache(cache_bytes);
        let keys = (0..MANY).step_by(331).chain(MANY - 50..MANY).map(|key| key * 10);
        for round in 0..2 {
            let found = cost(&mut client, OpKind::Get, |client| {
                for key in keys.clone() {
                    let key = key.to_be_bytes();
                    assert_eq!(
                        block_on(index.get(client, &key)).unwrap().as_ref(),
                        bench.model.get(&key[..])
                    );
                }
            });
            assert_eq!(found.calls, 0);
            let each = found.round_trips / keys.clone().count() as u64;
            assert!(round == 0 || each == trips, "{cache_bytes} bytes: {each} round trips");
        }
    }
    // Leaves of the second segment split.
    for key in 0..300 {
        bench.put((MANY - 300 + key) * 10 + 1, b"new");
    }
    bench.maintain();
    let (index, mut client) = bench.with_cache(u64::MAX);
    for key in 0..300 {
        let key = ((MANY - 300 + key) * 10 + 1).to_be_bytes();
        assert_eq!(block_on(index.get(&mut client, &key)).unwrap().as_deref(), Some(&b"new"[..]));
    }
    let report = block_on(bench.index.check(&mut bench.client)).unwrap();
    assert_eq!((report.violations, report.stats.keys), (Vec::new(), MANY + 300));
}
