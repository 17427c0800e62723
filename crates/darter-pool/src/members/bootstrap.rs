//! Bootstrap: how one process at a time creates a pool on some memory nodes.
//!
//! A process that creates a pool first takes every node, by CAS on its *founder word* from free to
//! the name of its [`darter_fabric::Identity`]. After that it checks whether a node holds a pool,
//! and writes. The words are freed after node 0's magic word is there. So of several processes that
//! begin at once, one continues, whatever the order in which they name the nodes; the others are
//! refused before they have written anything.
//!
//! A founder may die on the way. Its word then names it, and the node can be taken over after
//! [`darter_fabric::Fabric::fence`] has proved that the founder can write no more; if the provider
//! does not know it (the node was restarted), after the word has not changed for a lease. To be
//! found, a founder holds the slot after those of the members.
//!
//! A half-made pool is not a pool: a magic word does not count on a node if the founder that took
//! the node has also taken one *without* a magic word, since the words of all nodes are freed after
//! the last magic word.

use darter_fabric::{
    Endpoint, Fabric, FabricError, FenceOutcome, GlobalAddr, Identity, SUPERBLOCK_MAGIC, Suspect,
};

use super::silence::Silence;
use crate::error::PoolError;
use crate::region::{FOUNDER_AT, MEMBERS};
use crate::round_trip::{cas, submit};

/// The client slot of a process that creates a pool.
const FOUNDER_SLOT: u32 = MEMBERS;

/// The nodes that this process has taken to create a pool on.
pub(crate) struct Bootstrap {
    /// Proof of life until all is done.
    _identity: Box<dyn Identity>,
    /// This process's name in the founder words.
    name: u64,
    /// The former founder word of each node.
    before: Vec<u64>,
}

/// The state of a node before a pool is created on it.
struct Observation {
    is_pool: bool,
    founder: u64,
}

impl Bootstrap {
    /// Takes all nodes.
    ///
    /// # Errors
    /// [`PoolError::AlreadyAPool`] if one of them belongs to a pool, [`PoolError::BeingCreated`] if
    /// another process is creating a pool on one: nothing is changed then.
    pub(crate) async fn begin<F: Fabric>(
        fabric: &F,
        endpoint: &mut F::Endpoint,
        nodes: u8,
        lease_ms: u64,
    ) -> Result<Self, PoolError> {
        refuse_pools(&observe_nodes(endpoint, nodes).await?)?;
        let identity = match fabric.claim(FOUNDER_SLOT) {
            Ok(identity) => identity,
            Err(FabricError::IdentityTaken { .. }) => return Err(PoolError::BeingCreated { node: 0 }),
            Err(error) => return Err(error.into()),
        };
        // Providers whose nodes no other process can reach have no names.
        let name = identity.holder().max(1);
        let mut bootstrap = Self { _identity: identity, name, before: Vec::new() };
        let taken = bootstrap.take_all(fabric, endpoint, nodes, lease_ms).await;
        if taken.is_err() {
            bootstrap.give_back(endpoint).await?;
        }
        taken.map(|()| bootstrap)
    }

    async fn take_all<F: Fabric>(
        &mut self,
        fabric: &F,
        endpoint: &mut F::Endpoint,
        nodes: u8,
        lease_ms: u64,
    ) -> Result<(), PoolError> {
        for node in 0..nodes {
            let before = take(fabric, endpoint, node, self.name, lease_ms).await?;
            self.before.push(before);
        }
        // Others may have created a pool since the first check.
        let mut observations = observe_nodes(endpoint, nodes).await?;
        for (observation, &before) in observations.iter_mut().zip(&self.before) {
            observation.founder = before;
        }
        refuse_pools(&observations)
    }

    /// Restores the nodes' founder words.
    async fn give_back<E: Endpoint>(&self, endpoint: &mut E) -> Result<(), PoolError> {
        for (node, &before) in (0..).zip(&self.before) {
            cas(endpoint, GlobalAddr::new(node, FOUNDER_AT), self.name, before).await?;
        }
        Ok(())
    }

    /// Frees the nodes, which are now a pool.
    pub(crate) async fn end<E: Endpoint>(self, endpoint: &mut E) -> Result<(), PoolError> {
        for node in 0..self.before.len() as u8 {
            cas(endpoint, GlobalAddr::new(node, FOUNDER_AT), self.name, 0).await?;
        }
        Ok(())
    }
}

async fn observe_nodes<E: Endpoint>(endpoint: &mut E, nodes: u8) -> Result<Vec<Observation>, PoolError> {
    let mut batch = endpoint.batch();
    let mut reads = Vec::new();
    for node in 0..nodes {
        let magic = batch.read(GlobalAddr::new(node, 0), 1);
        reads.push((magic, batch.read(GlobalAddr::new(node, FOUNDER_AT), 1)));
    }
    let done = submit(endpoint, batch).await?;
    let observation = |(magic, founder)| Observation {
        is_pool: done.words(magic)[0] == SUPERBLOCK_MAGIC,
        founder: done.words(founder)[0],
    };
    Ok(reads.into_iter().map(observation).collect())
}

/// Fails if one of the nodes belongs to a pool.
fn refuse_pools(observations: &[Observation]) -> Result<(), PoolError> {
    let is_unfinished = |founder: u64| {
        founder != 0
            && observations.iter().any(|observation| !observation.is_pool && observation.founder == founder)
    };
    match (0..)
        .zip(observations)
        .find(|(_, observation)| observation.is_pool && !is_unfinished(observation.founder))
    {
        Some((node, _)) => Err(PoolError::AlreadyAPool { node }),
        None => Ok(()),
    }
}

/// Takes one node. Returns its former founder word.
async fn take<F: Fabric>(
    fabric: &F,
    endpoint: &mut F::Endpoint,
    node: u8,
    name: u64,
    lease_ms: u64,
) -> Result<u64, PoolError> {
    let mut expected = 0;
    // How long the word of a founder unknown to the provider has not changed.
    let mut stranger = Silence::new(0, 0);
    loop {
        let swap = cas(endpoint, GlobalAddr::new(node, FOUNDER_AT), expected, name).await?;
        if swap.swapped {
            return Ok(expected);
        }
        stranger.observe(swap.found, endpoint.now_ms(), lease_ms);
        let lapsed = stranger.of(swap.found) > lease_ms;
        let other = Suspect { slot: FOUNDER_SLOT, holder: swap.found, lapsed };
        expected = match swap.found {
            0 => 0,
            found => match fabric.fence(other)? {
                FenceOutcome::Alive => return Err(PoolError::BeingCreated { node }),
                FenceOutcome::Fenced => found,
                FenceOutcome::Unknown => {
                    endpoint.pause().await;
                    0
                }
            },
        };
    }
}
