//! Tests over simulated memory with a server in a separate process.

mod limits;
mod models;
mod service;
mod strangers;

use super::leaf::Header;
use super::{XStore, XStoreOptions, XStoreService};
use darter_fabric::block_on;
use darter_index::{Condition, IndexError, OrderedIndex, ScanRange, Swept};
use darter_pool::{Client, Pool, PoolOptions};
use darter_sim::{Executor, Sim, SimServer, WordOrder};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use std::cell::Cell;
use std::collections::BTreeMap;

const INLINE: XStoreOptions = XStoreOptions {
    value_words: 2,
    node: 0,
    nodes: 1,
    server: None,
    fill_percent: 75,
    cache_bytes: 0,
    tree_from: None,
};
const FAT: XStoreOptions = XStoreOptions { value_words: 0, ..INLINE };
const BY_MODELS: XStoreOptions = XStoreOptions { cache_bytes: u64::MAX, ..INLINE };
const BY_MODELS_FAT: XStoreOptions = XStoreOptions { cache_bytes: u64::MAX, ..FAT };

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

/// A pool with an index, and a server in a separate process.
struct World {
    sim: Sim,
    pool: Pool<Sim>,
    index: XStore<Sim>,
    client: Client<Sim>,
    server: Option<SimServer>,
    process: u32,
}

impl Drop for World {
    /// A failing test must not wait for verbs that wait for its executor.
    fn drop(&mut self) {
        self.sim.schedule(false);
    }
}

impl World {
    fn new(options: XStoreOptions) -> Self {
        let sim = Sim::new(1, 8 << 20);
        let pool_options = PoolOptions { block_bytes: Some(256 << 10), ..PoolOptions::default() };
        let pool = block_on(Pool::create(sim.clone(), &pool_options)).unwrap();
        pool.set_magazine_objects_max(1);
        let mut client = pool.client().unwrap();
        let index = block_on(XStore::open_or_create(&mut client, options)).unwrap();
        let mut world = Self { sim, pool, index, client, server: None, process: 0 };
        world.serve();
        world
    }

    /// Makes another process the server.
    fn serve(&mut self) {
        self.process += 1;
        let fabric = self.sim.process(self.process);
        self.server = Some(fabric.serve(0, XStoreService::new(&fabric).procedures()));
    }

    fn put(&mut self, model: &mut Model, key: u64, value: &[u8]) {
        let key = key.to_be_bytes();
        block_on(self.index.put(&mut self.client, &key, value, Condition::Always)).unwrap();
        model.insert(key.to_vec(), value.to_vec());
    }

    /// Runs a future to completion, alternating its waits with the server's.
    fn run<T>(sim: &Sim, future: impl Future<Output = T>) -> T {
        let output = Cell::new(None);
        let mut executor = Executor::new(sim);
        executor.spawn(0, async { output.set(Some(future.await)) });
        let (mut events, mut dice) = (Vec::new(), Pcg64Mcg::seed_from_u64(1));
        while !executor.all_ended() {
            executor.events(&mut events);
            let event = events[dice.random_range(0..events.len())];
            executor.perform(event, u32::MAX, WordOrder::Ascending);
        }
        drop(executor);
        sim.schedule(false);
        output.into_inner().unwrap()
    }

    /// Makes the server train.
    fn train(&mut self) {
        block_on(self.index.maintain(&mut self.client)).unwrap();
    }

    /// Opens the index in a new process.
    fn reader(&self, cache_bytes: u64) -> (XStore<Sim>, Client<Sim>) {
        let mut client = self.pool.client().unwrap();
        let options = XStoreOptions { cache_bytes, ..self.index.shared.options };
        (block_on(XStore::open(&mut client, options)).unwrap(), client)
    }

    /// Asserts that a reader finds the model's content in all ways of reading.
    fn assert_read((index, client): &mut (XStore<Sim>, Client<Sim>), model: &Model, what: &str) {
        for key in 0..model.len() as u64 * 16 + 40 {
            let key = key.to_be_bytes();
            let found = block_on(index.get(client, &key)).unwrap();
            assert_eq!(found.as_ref(), model.get(&key[..]), "{what}: {key:?}");
        }
        for range in [ScanRange::all(), ScanRange::all().reversed()] {
            let mut found = block_on(index.scan(client, &range, usize::MAX)).unwrap();
            if range.reverse {
                found.reverse();
            }
            assert!(found.into_iter().eq(model.clone()), "{what}");
        }
    }

    /// Asserts that the index is sound, and that a sweep leaves no lost memory.
    fn assert_sound(&mut self, model: &Model, what: &str) {
        let (index, client) = (&self.index, &mut self.client);
        Self::run(&self.sim, async {
            let expected: Vec<_> = model.clone().into_iter().collect();
            assert_eq!(index.scan(client, &ScanRange::all(), usize::MAX).await.unwrap(), expected, "{what}");
            for (key, value) in model {
                assert_eq!(index.get(client, key).await.unwrap().as_ref(), Some(value), "{what}");
            }
            let report = index.check(client).await.unwrap();
            assert_eq!(report.violations, Vec::<String>::new(), "{what}");
            assert_eq!(report.stats.keys, model.len() as u64, "{what}");
            match index.sweep_dead(client).await.unwrap() {
                Swept::Done(report) => assert!(report.finished && report.violations.is_empty(), "{what}"),
                Swept::Refused(violations) => panic!("{what}: {violations:?}"),
            }
            let report = index.check(client).await.unwrap();
            let audit = self.pool.audit(client, &report.reachable).await.unwrap();
            assert_eq!(audit.violations, Vec::<String>::new(), "{what}");
            assert_eq!(audit.leaked_bytes, 0, "{what}");
        });
        assert_eq!(self.sim.misuse(), None, "{what}");
    }
}

/// A world whose first leaf has this many keys, unordered.
fn loaded(options: XStoreOptions, keys: u64) -> (World, Model) {
    let (mut world, mut model) = (World::new(options), Model::new());
    for number in 0..keys {
        world.put(&mut model, (number * 7 % keys) * 16, &number.to_le_bytes());
    }
    (world, model)
}
