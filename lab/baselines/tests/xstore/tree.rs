//! Reads by the image of the server's inner nodes: costs of operations with all of it cached, or
//! only the upper levels; correct results after leaves split; and the image as one of the index's
//! objects.

use crate::common::Model;
use darter_baselines::{XStore, XStoreOptions, XStoreService};
use darter_fabric::{Counting, Endpoint, Local, OpCounters, OpKind, block_on};
use darter_index::{Condition, IndexError, OrderedIndex, ScanRange};
use darter_pool::{Client, Pool, PoolOptions};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

type Memory = Counting<Local>;

/// A pool with a server, an index whose leaves are found by its tree, and its content.
struct Bench {
    pool: Pool<Memory>,
    index: XStore<Memory>,
    client: Client<Memory>,
    model: Model,
}

fn options(value_words: u8, from: u8) -> XStoreOptions {
    XStoreOptions { value_words, cache_bytes: 0, tree_from: Some(from), ..XStoreOptions::default() }
}

impl Bench {
    /// Creates the index with this many keys, multiples of 10, bulk loaded.
    fn loaded(options: XStoreOptions, keys: u64) -> Self {
        let memory = Local::memory(64 << 20, 1).unwrap();
        let served = memory.with_procedures(0, XStoreService::new(&memory).procedures()).unwrap();
        let pool = block_on(Pool::create(Counting::new(served), &PoolOptions::default())).unwrap();
        let mut client = pool.client().unwrap();
        let index = block_on(XStore::create(&mut client, options)).unwrap();
        let model: Model =
            (0..keys).map(|key| ((10 * key).to_be_bytes().to_vec(), (!key).to_be_bytes().to_vec())).collect();
        block_on(index.bulk_load(&mut client, model.clone().into_iter())).unwrap();
        Self { pool, index, client, model }
    }

    fn put(&mut self, key: u64) {
        let (key, value) = (key.to_be_bytes(), [7; 8]);
        block_on(self.index.put(&mut self.client, &key, &value, Condition::Always)).unwrap();
        self.model.insert(key.to_vec(), value.to_vec());
    }

    fn counts(&self, kind: OpKind) -> OpCounters {
        self.client.endpoint().counters().unwrap()[kind]
    }

    /// Returns the cost per key of getting all keys, after a first pass: round trips, calls, bytes.
    fn cost(&mut self) -> (f64, f64, f64) {
        let mut before = self.counts(OpKind::Get);
        for turn in 0..2 {
            if turn == 1 {
                before = self.counts(OpKind::Get);
            }
            for (key, value) in &self.model {
                let found = block_on(self.index.get(&mut self.client, key)).unwrap();
                assert_eq!(found.as_ref(), Some(value), "{key:?}");
            }
        }
        let spent = self.counts(OpKind::Get) - before;
        let each = |count: u64| count as f64 / self.model.len() as f64;
        (each(spent.round_trips), each(spent.calls), each(spent.read_bytes))
    }

    /// Asserts that present keys, absent keys, and scans in both directions match the model.
    fn assert_holds(&mut self) {
        let (index, client) = (&self.index, &mut self.client);
        for key in self.model.keys() {
            let key = u64::from_be_bytes(key[..].try_into().unwrap());
            for near in [key, key + 1] {
                let near = near.to_be_bytes();
                assert_eq!(block_on(index.get(client, &near)).unwrap().as_ref(), self.model.get(&near[..]));
            }
        }
        for reverse in [false, true] {
            let range = if reverse { ScanRange::all().reversed() } else { ScanRange::all() };
            let found = block_on(index.scan(client, &range, usize::MAX)).unwrap();
            let mut all: Vec<_> = self.model.clone().into_iter().collect();
            if reverse {
                all.reverse();
            }
            assert!(found == all, "a scan, reverse {reverse}");
        }
    }

    fn assert_sound(&mut self) {
        for _ in 0..4 {
            block_on(self.index.maintain(&mut self.client)).unwrap();
            block_on(self.pool.settle(&mut self.client)).unwrap();
        }
        let report = block_on(self.index.check(&mut self.client)).unwrap();
        assert_eq!(report.violations, Vec::<String>::new());
        let audit = block_on(self.pool.audit(&mut self.client, &report.reachable)).unwrap();
        assert_eq!((audit.violations, audit.leaked_bytes), (vec![], 0));
    }
}

/// 4,000 keys are 334 leaves of 12, under 28 nodes, under 3, under the root.
#[test]
fn a_get_reads_the_levels_that_are_not_cached() {
    for (from, nodes, cached) in [(1, 0, 32), (2, 1, 4), (3, 2, 1), (4, 3, 0)] {
        let mut bench = Bench::loaded(options(1, from), 4000);
        let (round_trips, calls, bytes) = bench.cost();
        // The leaf up to its keys, the record, and occasionally the descriptor's word.
        let expected = f64::from(2 + nodes);
        assert!((expected..expected + 0.01).contains(&round_trips), "from {from}: {round_trips}");
        assert!(calls == 0.0, "from {from}: {calls}");
        let expected = f64::from(160 + 24 + 256 * nodes);
        assert!((expected..expected + 1.0).contains(&bytes), "from {from}: {bytes}");
        assert_eq!(bench.index.cache_used_bytes(), cached * 256);
        bench.assert_holds();
        bench.assert_sound();
    }
}

/// The image predicts the leaves under a lowest node, of which there are 28: one more round trip
/// for each, and no calls.
#[test]
fn scans_go_from_node_to_node() {
    let mut bench = Bench::loaded(options(1, 1), 4000);
    bench.cost();
    for range in [ScanRange::all(), ScanRange::all().reversed()] {
        let before = bench.counts(OpKind::Scan);
        let found = block_on(bench.index.scan(&mut bench.client, &range, usize::MAX)).unwrap();
        let spent = bench.counts(OpKind::Scan) - before;
        assert_eq!((found.len(), spent.calls), (4000, 0), "{range:?}");
        assert!((28..=32).contains(&spent.round_trips), "{range:?}: {spent:?}");
    }
}

#[test]
fn splits_after_the_image_cost_a_neighbour_or_a_call_but_no_result() {
    for value_words in [1, 0] {
        let mut bench = Bench::loaded(options(value_words, 1), 600);
        bench.cost();
        let mut dice = Pcg64Mcg::seed_from_u64(5);
        for _ in 0..600 {
            bench.put(dice.random_range(0..6000_u64));
        }
        let (round_trips, calls, _) = bench.cost();
        assert!(round_trips > 2.05 && calls < 0.5, "{value_words}: {round_trips} {calls}");
        bench.assert_holds();
        bench.assert_sound();
        // Growth has begun another generation, with an image of the current leaves.
        let keys = bench.model.len() as u64;
        for key in 0..4 * keys {
            bench.put(100_000 + key);
        }
        block_on(bench.index.maintain(&mut bench.client)).unwrap();
        let (round_trips, calls, _) = bench.cost();
        assert!(round_trips < 2.05 && calls < 0.01, "{value_words}: {round_trips} {calls}");
        bench.assert_holds();
        bench.assert_sound();
    }
}

#[test]
fn keys_that_models_cannot_tell_apart_are_found() {
    let memory = Local::memory(16 << 20, 1).unwrap();
    let served = memory.with_procedures(0, XStoreService::new(&memory).procedures()).unwrap();
    let pool = block_on(Pool::create(Counting::new(served), &PoolOptions::default())).unwrap();
    let mut client = pool.client().unwrap();
    let index = block_on(XStore::create(&mut client, options(0, 1))).unwrap();
    let keys = (0..400).map(|key| (format!("the same beginning {key:05}").into_bytes(), vec![1; key]));
    let model: Model = keys.collect();
    block_on(index.bulk_load(&mut client, model.clone().into_iter())).unwrap();
    let (mut bench, more) = (Bench { pool, index, client, model }, b"the same beginning 00007x");
    for (key, value) in &bench.model {
        assert_eq!(block_on(bench.index.get(&mut bench.client, key)).unwrap().as_ref(), Some(value));
    }
    assert_eq!(block_on(bench.index.get(&mut bench.client, more)).unwrap(), None);
    bench.assert_sound();
}

#[test]
fn an_index_without_an_image_is_not_opened_by_it() {
    let bench = Bench::loaded(XStoreOptions { tree_from: None, ..options(1, 1) }, 10);
    let mut client = bench.pool.client().unwrap();
    let error = block_on(XStore::open(&mut client, options(1, 1))).unwrap_err();
    assert!(matches!(error, IndexError::Options(_)) && error.to_string().contains("tree_from"), "{error}");
}
