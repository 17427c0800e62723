//! Ranges on several memory nodes, created by a bulk load that splits by node.

use crate::common::Model;
use crate::ground::{Ground, ground};
use darter_baselines::{XStore, XStoreOptions};
use darter_fabric::block_on;
use darter_index::{Condition, IndexError, OrderedIndex, ScanRange};
use darter_pool::{Client, Pool, PoolOptions};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use std::ops::Bound;

/// A pool of some nodes with a server each, and an index.
struct Bench {
    pool: Pool<Ground>,
    index: XStore<Ground>,
    client: Client<Ground>,
}

impl Bench {
    fn new((nodes, node_bytes): (usize, u64), options: XStoreOptions) -> Self {
        let block_bytes = Some(256 << 10);
        let pool_options = PoolOptions { block_bytes, ..PoolOptions::default() };
        let pool = block_on(Pool::create(ground(node_bytes, nodes), &pool_options)).unwrap();
        let mut client = pool.client().unwrap();
        let index = block_on(XStore::create(&mut client, options)).unwrap();
        Self { pool, index, client }
    }

    fn put(&mut self, key: u64, value: &[u8]) -> Result<(), IndexError> {
        block_on(self.index.put(&mut self.client, &key.to_be_bytes(), value, Condition::Always)).map(drop)
    }

    /// Asserts that the index has the model's content: keys, ranges from any key, both directions.
    fn assert_holds(&mut self, model: &Model) {
        let (index, client) = (&self.index, &mut self.client);
        for range in [ScanRange::all(), ScanRange::all().reversed()] {
            let mut found = block_on(index.scan(client, &range, usize::MAX)).unwrap();
            if range.reverse {
                found.reverse();
            }
            assert!(found.into_iter().eq(model.clone()));
        }
        let keys: Vec<&[u8]> = model.keys().map(|key| &key[..]).collect();
        let mut dice = Pcg64Mcg::seed_from_u64(5);
        for _ in 0..40 {
            let asked: Vec<&[u8]> =
                (0..20).map(|_| keys[dice.random_range(0..keys.len())]).chain([&b"nowhere!"[..]]).collect();
            let expected: Vec<_> = asked.iter().map(|key| model.get(*key).cloned()).collect();
            assert_eq!(block_on(index.multi_get(client, &asked)).unwrap(), expected);
            let from = keys[dice.random_range(0..keys.len())].to_vec();
            let (limit, reverse) = (dice.random_range(0..200_usize), dice.random_bool(0.5));
            let (from, to) = (Bound::Excluded(from), Bound::Unbounded);
            let found = if reverse {
                let range = ScanRange { from: to, to: from.clone(), reverse };
                block_on(index.scan(client, &range, limit)).unwrap()
            } else {
                let range = ScanRange { from: from.clone(), to, reverse };
                block_on(index.scan(client, &range, limit)).unwrap()
            };
            let expected: Vec<_> = if reverse {
                model.range((Bound::Unbounded, from)).rev().take(limit).collect()
            } else {
                model.range((from, Bound::Unbounded)).take(limit).collect()
            };
            assert!(found.iter().map(|(key, value)| (key, value)).eq(expected));
        }
    }

    /// Asserts that the index is sound and no memory is lost.
    fn assert_sound(&mut self, keys: usize) {
        for _ in 0..32 {
            block_on(self.pool.maintain(&mut self.client)).unwrap();
            block_on(self.index.maintain(&mut self.client)).unwrap();
        }
        block_on(self.pool.settle(&mut self.client)).unwrap();
        let report = block_on(self.index.check(&mut self.client)).unwrap();
        assert_eq!(report.violations, Vec::<String>::new());
        assert_eq!(report.stats.keys, keys as u64);
        let audit = block_on(self.pool.audit(&mut self.client, &report.reachable)).unwrap();
        assert_eq!(audit.violations, Vec::<String>::new());
        assert_eq!(audit.leaked_bytes, 0);
    }
}

fn pairs(keys: u64) -> Model {
    (0..keys).map(|key| ((key * 5).to_be_bytes().to_vec(), key.to_le_bytes().to_vec())).collect()
}

/// Each node gets its share, and keys that do not fit on a node go to the next.
#[test]
fn a_bulk_load_splits_by_node() {
    for (value_words, cache_bytes) in [(1, u64::MAX), (0, u64::MAX), (1, 0), (0, 0)] {
        let options = XStoreOptions { value_words, cache_bytes, nodes: 0, ..XStoreOptions::default() };
        let mut bench = Bench::new((3, 8 << 20), options);
        let mut model = pairs(6000);
        let loaded = block_on(bench.index.bulk_load(&mut bench.client, model.clone().into_iter())).unwrap();
        assert_eq!(loaded, 6000);
        assert_eq!(bench.index.range_nodes(), [0, 1, 2]);
        bench.assert_holds(&model);
        bench.assert_sound(6000);
        for key in (0..30_000).step_by(7) {
            bench.put(key, b"new").unwrap();
            model.insert(key.to_be_bytes().to_vec(), b"new".to_vec());
            let gone = (key / 5 * 5).to_be_bytes();
            let was_there = block_on(bench.index.delete(&mut bench.client, &gone)).unwrap();
            assert_eq!(was_there, model.remove(&gone[..]).is_some());
        }
        bench.assert_holds(&model);
        bench.assert_sound(model.len());
        let error = block_on(bench.index.bulk_load(&mut bench.client, pairs(3).into_iter())).unwrap_err();
        assert!(matches!(error, IndexError::NotEmpty), "{error}");
        for key in model.keys() {
            assert!(block_on(bench.index.delete(&mut bench.client, key)).unwrap());
        }
        bench.assert_sound(0);
        let model = pairs(500);
        let loaded = block_on(bench.index.bulk_load(&mut bench.client, model.clone().into_iter())).unwrap();
        assert_eq!(loaded, 500);
        bench.assert_holds(&model);
        bench.assert_sound(500);
    }
}

/// During a load, another load moves the index's keys to other nodes.
#[test]
fn a_load_that_another_overtakes_finds_keys() {
    for value_words in [1, 0] {
        let options = XStoreOptions { value_words, nodes: 0, ..XStoreOptions::default() };
        let mut bench = Bench::new((3, 8 << 20), options);
        let model = pairs(600);
        let mut other = bench.pool.client().unwrap();
        let index = block_on(XStore::open(&mut other, options)).unwrap();
        let mut faster = Some(model.clone());
        let late = pairs(60).into_iter().inspect(move |_| {
            if let Some(faster) = faster.take() {
                assert_eq!(block_on(index.bulk_load(&mut other, faster.into_iter())).unwrap(), 600);
            }
        });
        let error = block_on(bench.index.bulk_load(&mut bench.client, late)).unwrap_err();
        assert!(matches!(error, IndexError::NotEmpty), "{error}");
        assert_eq!(bench.index.range_nodes(), [0, 1, 2]);
        bench.assert_holds(&model);
        bench.assert_sound(600);
    }
}

/// An iterator without a length fills a node, then the next.
#[test]
fn a_bulk_load_of_unknown_length_fills_node_after_node() {
    let options = XStoreOptions { value_words: 31, nodes: 0, ..XStoreOptions::default() };
    let mut bench = Bench::new((3, 4 << 20), options);
    let pairs = (0_u64..)
        .map(|key| (key.to_be_bytes().to_vec(), vec![7; 248]))
        .take_while(|(key, _)| key[..] < 20_000_u64.to_be_bytes()[..]);
    let model: Model = pairs.clone().collect();
    block_on(bench.index.bulk_load(&mut bench.client, pairs)).unwrap();
    assert_eq!(bench.index.range_nodes(), [0, 1, 2]);
    bench.assert_holds(&model);
    bench.assert_sound(20_000);
}

/// Threads put, get, delete and scan in ranges on three nodes.
#[test]
fn threads_work_on_several_nodes() {
    let options = XStoreOptions { value_words: 1, nodes: 0, ..XStoreOptions::default() };
    let mut bench = Bench::new((3, 16 << 20), options);
    let model = pairs(4000);
    block_on(bench.index.bulk_load(&mut bench.client, model.clone().into_iter())).unwrap();
    std::thread::scope(|scope| {
        for thread in 0..3_u64 {
            let (index, mut client, model) = (bench.index.clone(), bench.pool.client().unwrap(), &model);
            scope.spawn(move || {
                let mut dice = Pcg64Mcg::seed_from_u64(thread);
                for turn in 0..1500_u64 {
                    let own = (dice.random_range(0..4000_u64) * 5 + 1 + thread).to_be_bytes();
                    let value = turn.to_le_bytes();
                    block_on(index.put(&mut client, &own, &value, Condition::Always)).unwrap();
                    assert_eq!(block_on(index.get(&mut client, &own)).unwrap(), Some(value.to_vec()));
                    assert!(block_on(index.delete(&mut client, &own)).unwrap());
                    assert_eq!(block_on(index.get(&mut client, &own)).unwrap(), None);
                    let old = (dice.random_range(0..4000_u64) * 5).to_be_bytes();
                    assert_eq!(block_on(index.get(&mut client, &old)).unwrap().as_ref(), model.get(&old[..]));
                    if turn % 100 == 0 {
                        let range = ScanRange { reverse: turn % 200 == 0, ..ScanRange::all() };
                        let found = block_on(index.scan(&mut client, &range, usize::MAX)).unwrap();
                        let is_old = |key: &[u8]| model.contains_key(key);
                        assert_eq!(found.iter().filter(|(key, _)| is_old(key)).count(), 4000, "{range:?}");
                    }
                }
            });
        }
    });
    assert_eq!(bench.index.range_nodes(), [0, 1, 2]);
    bench.assert_holds(&model);
    bench.assert_sound(4000);
}
