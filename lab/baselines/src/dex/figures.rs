//! Costs in the steady state, compared with those that the published layout and policies imply: a
//! million uniform keys of 8 bytes with values of 8 bytes, loaded in order.
//!
//! `cargo test --release -p darter-baselines --lib dex::figures -- --ignored --nocapture`

use super::{Dex, DexOptions, DexService, Offload};
use darter_fabric::{Counting, Endpoint, Local, OpCounters, OpKind, block_on};
use darter_index::{Condition, OrderedIndex};
use darter_pool::{Client, Pool, PoolOptions};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

type Memory = Counting<Local>;

const KEYS: u64 = 1_000_000;
/// Operations of each kind that are counted, after as many that are not.
const OPERATIONS: usize = 500_000;
const CALLS: Offload = Offload::Fixed { call_ns: 3000, read_ns: 2000 };

/// A loaded index with some owners.
struct Loaded {
    owners: Vec<(Dex<Memory>, Client<Memory>)>,
    keys: Vec<u64>,
    dice: Pcg64Mcg,
}

impl Loaded {
    fn new(options: &DexOptions, owners: u16) -> Self {
        let memory = Local::memory(256 << 20, 1).unwrap();
        let served = memory.with_procedures(0, DexService::new(&memory).procedures()).unwrap();
        let pool = block_on(Pool::create(Counting::new(served), &PoolOptions::default())).unwrap();
        let bounds = (1..owners).map(|owner| u64::MAX / u64::from(owners) * u64::from(owner)).collect();
        let options = DexOptions { bounds, ..options.clone() };
        let mut client = pool.client().unwrap();
        let loader = block_on(Dex::create(&mut client, options.clone())).unwrap();
        let mut dice = Pcg64Mcg::seed_from_u64(1);
        let mut keys: Vec<u64> = (0..KEYS).map(|_| dice.random()).collect();
        keys.sort_unstable();
        keys.dedup();
        let pairs = keys.iter().map(|key| (key.to_be_bytes().to_vec(), vec![7; 8]));
        block_on(loader.bulk_load(&mut client, pairs)).unwrap();
        let stats = block_on(loader.stats(&mut client)).unwrap();
        println!("{owners} owners: {:?}", stats.nodes);
        let owners = (0..owners).map(|owner| {
            let mut client = pool.client().unwrap();
            let options = DexOptions { owner, seed: u64::from(owner) + 5, ..options.clone() };
            (block_on(Dex::open(&mut client, options)).unwrap(), client)
        });
        Self { owners: owners.collect(), keys, dice }
    }

    fn run(&mut self, kind: OpKind, operations: usize) {
        for _ in 0..operations {
            let key = self.keys[self.dice.random_range(0..self.keys.len())].to_be_bytes();
            let owner = self.owners[0].0.owner_of(&key).unwrap();
            let (index, client) = &mut self.owners[owner];
            if kind == OpKind::Get {
                assert!(block_on(index.get(client, &key)).unwrap().is_some());
            } else {
                block_on(index.put(client, &key, &[8; 8], Condition::Present)).unwrap();
            }
        }
    }

    fn counted(&self, kind: OpKind) -> OpCounters {
        let counters = self.owners.iter().map(|(_, client)| client.endpoint().counters().unwrap()[kind]);
        counters.fold(OpCounters::default(), |sum, counters| sum + counters)
    }

    /// Returns the round trips, bytes of verbs and calls of an operation in the steady state.
    fn costs(&mut self, kind: OpKind) -> (f64, f64, f64) {
        self.run(kind, OPERATIONS);
        let before = self.counted(kind);
        self.run(kind, OPERATIONS);
        let counted = self.counted(kind) - before;
        let each = |count: u64| count as f64 / counted.ops as f64;
        let costs = (
            counted.round_trips_per_op(),
            each(counted.read_bytes + counted.write_bytes),
            each(counted.calls),
        );
        println!("  {}: {:.3} RT, {:.0} B, {:.3} calls", kind.name(), costs.0, costs.1, costs.2);
        costs
    }
}

fn assert_near(found: f64, expected: f64, by: f64, what: &str) {
    assert!((found - expected).abs() <= by, "{what}: {found:.3} for {expected}");
}

#[test]
#[ignore = "takes a minute with optimization"]
fn costs_are_those_of_the_published_policies() {
    let cases = [
        (1_u16, 1_u64, Offload::Off, 1.28, Some(2.28)),
        (1, 16, Offload::Off, 0.56, Some(1.16)),
        (1, 256, Offload::Off, 0.0, Some(0.0)),
        (4, 1, Offload::Off, 0.92, Some(1.85)),
        (1, 1, CALLS, 0.99, None),
        (1, 16, CALLS, 0.56, None),
    ];
    let mut found = Vec::new();
    for (owners, mib, offload, ..) in cases {
        let options = DexOptions { cache_bytes: mib << 20, offload, ..DexOptions::default() };
        let mut loaded = Loaded::new(&options, owners);
        println!("  {mib} MiB each, {offload:?}");
        if mib == 256 {
            loaded.run(OpKind::Get, 2 * OPERATIONS);
        }
        found.push((loaded.costs(OpKind::Get), loaded.costs(OpKind::Update)));
    }
    for ((owners, mib, offload, lookup, update), (get, put)) in cases.into_iter().zip(found) {
        let what = format!("{owners} owners, {mib} MiB, {offload:?}");
        assert_near(get.0, lookup, 0.03, &format!("lookup, {what}"));
        if let Some(update) = update {
            assert_near(put.0, update, 0.03, &format!("update, {what}"));
        }
        if (mib, owners, offload) == (1, 1, Offload::Off) {
            assert_near(get.1, 1313.0, 31.0, "bytes of a lookup");
        }
        if (mib, offload) == (1, CALLS) {
            assert_near(get.2, 0.55, 0.03, "calls of a lookup");
        }
    }
}
