//! A scenario built once and kept as a snapshot, from which every run begins.

use super::scenario::Scenario;
use darter_fabric::block_on;
use darter_fabric::sim::{Sim, Snapshot};
use darter_index::{Condition, Dart, DartOptions, IndexError, OrderedIndex};
use darter_pool::{Client, Pool, PoolOptions};

/// Milliseconds of the lease in simulated pools.
pub(super) const LEASE_MS: u64 = 100;
const BLOCK_BYTES: u64 = 256 << 10;
const NODE_BYTES: u64 = 8 << 20;

/// A beginning that runs can be started from.
pub struct Stage {
    pub(super) sim: Sim,
    pub(super) snapshot: Snapshot,
    pub(super) scenario: Scenario,
    pub(super) hot: Vec<Vec<u8>>,
    pub(super) filler: Vec<Vec<u8>>,
}

/// The value a hot key begins with.
pub(super) fn initial_value(scenario: Scenario, key: usize) -> Option<u64> {
    scenario.present().contains(&key).then_some(1 + key as u64)
}

/// The bytes that stand for a value: some longer, so that leaves differ in size class.
pub(super) fn value_bytes(value: u64) -> Vec<u8> {
    let mut bytes = value.to_le_bytes().to_vec();
    bytes.resize(8 + (value % 3) as usize * 40, value as u8);
    bytes
}

/// The value that bytes stand for; a number nobody wrote when they are not such bytes.
pub(super) fn value_of(bytes: &[u8]) -> u64 {
    match bytes.first_chunk() {
        Some(first) if value_bytes(u64::from_le_bytes(*first)) == bytes => u64::from_le_bytes(*first),
        _ => u64::MAX,
    }
}

/// Nodes with express entries before which no segment can be full enough to split.
const SPLIT_NODES_MIN: usize = 500;

impl Stage {
    /// Builds a scenario on so many memory nodes.
    ///
    /// # Panics
    /// When the index fails without anybody to disturb it.
    pub fn build(scenario: Scenario, nodes: u8) -> Self {
        let (mut hot, mut filler) = (scenario.hot_keys(), scenario.filler());
        if scenario == Scenario::Segment {
            let sim = Sim::new(usize::from(nodes), NODE_BYTES);
            let before = block_on(keys_before_split(&sim, &filler));
            let before = before.unwrap_or_else(|error| panic!("{scenario} cannot be built: {error}"));
            // The key that splits the segment is hot, and two that enter others of its nodes.
            hot = (0..3).map(|at| filler[before + 2 * at].clone()).collect();
            filler.truncate(before + 5);
            filler.retain(|key| !hot.contains(key));
        }
        let sim = Sim::new(usize::from(nodes), NODE_BYTES);
        let built = block_on(build(&sim, scenario, &hot, &filler));
        built.unwrap_or_else(|error| panic!("{scenario} cannot be built: {error}"));
        let snapshot = sim.snapshot();
        filler.sort();
        Self { sim, snapshot, scenario, hot, filler }
    }
}

async fn open_new(sim: &Sim) -> Result<(Pool<Sim>, Client<Sim>, Dart<Sim>), IndexError> {
    let options =
        PoolOptions { block_bytes: Some(BLOCK_BYTES), lease_ms: LEASE_MS, secret: Some([1, 2, 3, 4]) };
    let pool = Pool::create(sim.clone(), &options).await?;
    let mut client = pool.client()?;
    let dart = Dart::open_or_create(&mut client, DartOptions::default()).await?;
    Ok((pool, client, dart))
}

/// How many of the keys can be put before one splits a segment of the express skip table.
async fn keys_before_split(sim: &Sim, keys: &[Vec<u8>]) -> Result<usize, IndexError> {
    let (_pool, mut client, dart) = open_new(sim).await?;
    let mut segments = None;
    for (at, key) in keys.iter().enumerate() {
        dart.put(&mut client, key, &value_bytes(0), Condition::Always).await?;
        if at >= 2 * SPLIT_NODES_MIN {
            let now = dart.stats(&mut client).await?.est.map_or(0, |est| est.segments);
            if *segments.get_or_insert(now) != now {
                return Ok(at);
            }
        }
    }
    Ok(keys.len() - 6)
}

async fn build(sim: &Sim, scenario: Scenario, hot: &[Vec<u8>], filler: &[Vec<u8>]) -> Result<(), IndexError> {
    let (pool, mut client, dart) = open_new(sim).await?;
    let former = scenario.former();
    for key in former.iter().chain(filler) {
        dart.put(&mut client, key, &value_bytes(0), Condition::Always).await?;
    }
    for (at, key) in hot.iter().enumerate() {
        if let Some(value) = initial_value(scenario, at) {
            dart.put(&mut client, key, &value_bytes(value), Condition::Always).await?;
        }
    }
    for key in former.iter().filter(|key| !filler.contains(key)) {
        dart.delete(&mut client, key).await?;
    }
    for _ in 0..4 {
        pool.settle(&mut client).await?;
        dart.maintain(&mut client).await?;
    }
    drop((client, dart));
    pool.close().await?;
    Ok(())
}
