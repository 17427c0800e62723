//! A scenario built once and kept as a snapshot, from which every run begins.

use super::scenario::Scenario;
use super::servers::Servers;
use super::subject::{OptionsOf, Promises, Subject};
use darter_fabric::block_on;
use darter_index::{Condition, IndexError, OrderedIndex};
use darter_pool::{Client, Pool, PoolOptions};
use darter_sim::{Sim, Snapshot};

/// Milliseconds of a pause. A process that leaves gives up waiting for others within 25 pauses.
const PAUSE_MS: u64 = 10;

/// Milliseconds of the lease in simulated pools. If clients wait for dead ones, it expires soon;
/// otherwise it is long enough for several processes to leave one after another while a live one
/// does no upkeep.
pub(super) fn lease_ms(promises: &Promises) -> u64 {
    PAUSE_MS * if promises.trips_while_stopped.is_some() { 4_000 } else { 100 }
}

const BLOCK_BYTES: u64 = 256 << 10;
const NODE_BYTES: u64 = 8 << 20;
/// The same for a node that is a group, each of whose replicas holds all of it.
const REPLICA_BYTES: u64 = 4 << 20;

/// The size of the memory nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NodeSize {
    /// The usual size.
    Usual,
    /// The smaller size for simulated groups.
    OfReplicas,
}

/// A snapshot from which runs begin.
pub struct Fixture {
    pub(super) sim: Sim,
    pub(super) snapshot: Snapshot,
    /// Its filler is sorted.
    pub(super) scenario: Scenario,
}

impl Fixture {
    /// Builds a scenario on `nodes` memory nodes.
    pub(super) fn build<S: Subject>(scenario: &Scenario, nodes: u8, size: NodeSize) -> Self {
        let node_bytes = if size == NodeSize::Usual { NODE_BYTES } else { REPLICA_BYTES };
        let mut scenario = scenario.clone();
        S::refine(&mut scenario, nodes);
        let built = block_on(build::<S>(&scenario, nodes, node_bytes));
        let sim = built.unwrap_or_else(|error| panic!("{}: failed to build: {error}", scenario.name));
        scenario.filler.sort();
        Self { snapshot: sim.snapshot(), sim, scenario }
    }
}

/// Creates a pool in a new simulation, with an empty index.
pub(super) async fn open_new<S: Subject>(
    nodes: u8,
) -> Result<(Pool<Sim>, Client<Sim>, S::Index), IndexError> {
    open_new_of::<S>(nodes, NODE_BYTES, S::options()).await
}

async fn open_new_of<S: Subject>(
    nodes: u8,
    node_bytes: u64,
    of_index: OptionsOf<S>,
) -> Result<(Pool<Sim>, Client<Sim>, S::Index), IndexError> {
    let options = PoolOptions {
        block_bytes: Some(BLOCK_BYTES),
        lease_ms: lease_ms(&S::PROMISES),
        secret: Some([1, 2, 3, 4]),
    };
    let sim = Sim::new(usize::from(nodes), node_bytes);
    sim.set_pause_ms(PAUSE_MS);
    sim.let_clocks_drift();
    let pool = Pool::create(sim, &options).await?;
    let mut client = pool.client()?;
    let index = S::Index::open_or_create(&mut client, of_index).await?;
    Ok((pool, client, index))
}

async fn build<S: Subject>(scenario: &Scenario, nodes: u8, node_bytes: u64) -> Result<Sim, IndexError> {
    let (pool, mut client, index) = open_new_of::<S>(nodes, node_bytes, S::options_for(scenario)).await?;
    let servers = Servers::begin::<S>(pool.fabric());
    for key in scenario.former.iter().chain(&scenario.filler) {
        index.put(&mut client, key, &scenario.value(0), Condition::Always).await?;
    }
    for (at, key) in scenario.hot.iter().enumerate() {
        if let Some(value) = scenario.initial(at) {
            index.put(&mut client, key, &scenario.value(value), Condition::Always).await?;
        }
    }
    for key in scenario.former.iter().filter(|key| !scenario.filler.contains(key)) {
        index.delete(&mut client, key).await?;
    }
    for _ in 0..4 {
        pool.settle(&mut client).await?;
        if !S::HAS_SERVER || S::IN_ONE_PROCESS {
            // XStore would train models, which the next server would not own.
            index.maintain(&mut client).await?;
        }
    }
    let sim = pool.fabric().clone();
    drop((client, index));
    pool.close().await?;
    servers.end();
    Ok(sim)
}
