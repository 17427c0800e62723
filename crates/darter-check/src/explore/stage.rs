//! A scenario built once and kept as a snapshot, from which every run begins.

use super::scenario::Scenario;
use darter_fabric::sim::{Sim, Snapshot};
use darter_fabric::block_on;
use darter_index::{Condition, Dart, DartOptions, OrderedIndex};
use darter_pool::{Pool, PoolOptions};

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

impl Stage {
    /// Builds a scenario on so many memory nodes.
    ///
    /// # Panics
    /// When the index fails without anybody to disturb it.
    pub fn build(scenario: Scenario, nodes: u8) -> Self {
        let sim = Sim::new(usize::from(nodes), NODE_BYTES);
        let (hot, filler) = (scenario.hot_keys(), scenario.filler());
        block_on(async {
            let options = PoolOptions {
                block_bytes: Some(BLOCK_BYTES),
                lease_ms: LEASE_MS,
                secret: Some([1, 2, 3, 4]),
            };
            let pool = Pool::create(sim.clone(), &options).await?;
            let mut client = pool.client()?;
            let dart = Dart::open_or_create(&mut client, DartOptions::default()).await?;
            let former = scenario.former();
            for key in former.iter().chain(&filler) {
                dart.put(&mut client, key, &value_bytes(0), Condition::Always).await?;
            }
            for (at, key) in hot.iter().enumerate() {
                if let Some(value) = initial_value(scenario, at) {
                    dart.put(&mut client, key, &value_bytes(value), Condition::Always).await?;
                }
            }
            for key in &former {
                if filler.binary_search(key).is_err() {
                    dart.delete(&mut client, key).await?;
                }
            }
            for _ in 0..4 {
                pool.settle(&mut client).await?;
                dart.maintain(&mut client).await?;
            }
            drop((client, dart));
            pool.close().await?;
            Ok::<_, darter_index::IndexError>(())
        })
        .unwrap_or_else(|error| panic!("{scenario} cannot be built: {error}"));
        let snapshot = sim.snapshot();
        Self { sim, snapshot, scenario, hot, filler }
    }
}
