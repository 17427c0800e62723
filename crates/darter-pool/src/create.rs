//! How a pool is created, opened and joined.

use darter_fabric::{Endpoint, Fabric, FabricError};
use std::sync::Arc;

use crate::blocks::{Blocks, Layout};
use crate::error::PoolError;
use crate::members::{self, Absent, Bootstrap, LEASE_MS_MAX, Members, Superblock};
use crate::pool::Pool;
use crate::process::Process;
use crate::reclaim::Reclamation;

/// How to create a pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolOptions {
    /// Bytes of a block, the unit in which processes get memory: a power of two from 256 KiB to 64
    /// MiB. By default a 64th of the smallest node, from 2 to 16 MiB.
    pub block_bytes: Option<u64>,
    /// How long a process may go without upkeep, in milliseconds, before other members check with
    /// the fabric whether it is alive.
    pub lease_ms: u64,
    /// Seed of the secret that keys the index's hashes; random by default. A fixed seed makes counts
    /// repeatable but lets anyone who knows it construct keys that collide: for measurements only.
    pub secret: Option<[u64; 4]>,
}

impl Default for PoolOptions {
    fn default() -> Self {
        Self { block_bytes: None, lease_ms: 5000, secret: None }
    }
}

/// Fails if members could be taken for dead while a memory group changes its primary: a lease must
/// last for two and a half failovers.
fn outlasts_failovers<F: Fabric>(fabric: &F, lease_ms: u64) -> Result<(), PoolError> {
    let needed = fabric.capabilities().failover.as_millis() * 5 / 2;
    if u128::from(lease_ms) < needed {
        return Err(PoolError::Options(
            "the pool's lease is shorter than two and a half failovers of a memory group; start the group's replicas \
             with a shorter `--suspect-after`, or create the pool with a longer lease",
        ));
    }
    Ok(())
}

impl<F: Fabric> Pool<F> {
    /// Creates a pool in the fabric's memory and joins it.
    ///
    /// # Errors
    /// [`PoolError::AlreadyAPool`], [`PoolError::BeingCreated`], [`PoolError::TooSmall`],
    /// [`PoolError::Options`], [`PoolError::ReadOnly`]; fabric errors.
    pub async fn create(fabric: F, options: &PoolOptions) -> Result<Self, PoolError> {
        if fabric.capabilities().reads_only {
            return Err(PoolError::ReadOnly);
        }
        let sizes = members::node_sizes(&fabric)?;
        if let Some(node) = (0..sizes.len() as u8).find(|&node| fabric.remote_nodes().is_absent(node)) {
            return Err(FabricError::Unreachable { node }.into());
        }
        let smallest = sizes.iter().copied().min().unwrap_or(0);
        let block_bytes = options.block_bytes.unwrap_or_else(|| Layout::default_block_bytes(smallest));
        if !(1..=LEASE_MS_MAX).contains(&options.lease_ms) {
            return Err(PoolError::Options("lease_ms must be from one millisecond to a day"));
        }
        outlasts_failovers(&fabric, options.lease_ms)?;
        let layout = Layout::new(&sizes, block_bytes)?;
        let superblock = Superblock::new(sizes.len() as u32, block_bytes, options.lease_ms, options.secret);
        let mut endpoint = fabric.endpoint()?;
        let nodes = layout.node_count();
        let bootstrap = Bootstrap::begin(&fabric, &mut endpoint, nodes, superblock.lease_ms).await?;
        members::begin_superblocks(&fabric, &mut endpoint, &superblock, &layout).await?;
        members::write_directory(&fabric, &mut endpoint, &layout).await?;
        members::finish_superblocks(&fabric, &mut endpoint, &superblock, &layout).await?;
        bootstrap.end(&mut endpoint).await?;
        Self::join(fabric, endpoint, superblock, layout).await
    }

    /// Joins the pool in the fabric's memory. Memory nodes other than the first may be absent:
    /// operations that need one fail until it is back.
    ///
    /// # Errors
    /// [`PoolError::NotAPool`], [`PoolError::WrongVersion`], [`PoolError::Damaged`],
    /// [`PoolError::NodeMismatch`] and [`PoolError::MembersFull`], all without a change to the
    /// pool; fabric errors.
    pub async fn open(fabric: F) -> Result<Self, PoolError> {
        Self::open_verified(fabric, || Ok(())).await
    }

    /// Like [`Pool::open`], with a step between the verification of the pool and the first change
    /// to it.
    ///
    /// # Errors
    /// Fails as [`Pool::open`] does, and if the step fails.
    pub async fn open_verified(
        fabric: F,
        before_joining: impl FnOnce() -> Result<(), FabricError>,
    ) -> Result<Self, PoolError> {
        let mut sizes = members::node_sizes(&fabric)?;
        let mut endpoint = fabric.endpoint()?;
        let (superblock, count) = members::read_superblocks(&fabric, &mut endpoint, &mut sizes).await?;
        members::expect_absent(&fabric, &mut endpoint, &mut sizes).await?;
        let damaged = PoolError::Damaged { node: 0, what: "its superblock holds invalid numbers" };
        if !(1..=LEASE_MS_MAX).contains(&superblock.lease_ms) {
            return Err(damaged);
        }
        outlasts_failovers(&fabric, superblock.lease_ms)?;
        let layout = Layout::new(&sizes, superblock.block_bytes).map_err(|_| damaged)?;
        members::learn(&fabric, &mut endpoint, &superblock, &layout, count, Absent::Expected).await?;
        before_joining()?;
        Self::join(fabric, endpoint, superblock, layout).await
    }

    /// Confirms that the opened pool still exists, before it is used for the first time: on memory
    /// nodes, a pool can be erased and another one created while a process opens it
    /// ([`crate::erase_if_lost`]). Leaves the pool if it is gone.
    ///
    /// # Errors
    /// Fails as [`Pool::open`] does if the first node's superblock is no longer that of this pool.
    pub async fn confirm(&self) -> Result<(), PoolError> {
        let fabric = self.fabric();
        let found = members::read_superblock(&mut fabric.endpoint()?, 0, fabric.node_bytes(0)).await;
        let another = PoolError::NodeMismatch { node: 0, what: "another pool was just created in its place" };
        let confirmed = match found {
            Ok(found) if found == *self.process.members.superblock() => Ok(()),
            found => Err(found.err().unwrap_or(another)),
        };
        if confirmed.is_err() {
            self.abandon();
        }
        confirmed
    }

    async fn join(
        fabric: F,
        mut endpoint: F::Endpoint,
        superblock: Superblock,
        layout: Layout,
    ) -> Result<Self, PoolError> {
        let nodes = layout.node_count();
        let registration = members::register(&fabric, &mut endpoint, nodes).await?;
        // A member that did not see our line uses no nodes beyond these; the next upkeep reports to
        // the others that we reach them.
        let known = registration.nodes;
        members::learn(&fabric, &mut endpoint, &superblock, &layout, known, Absent::Expected).await?;
        members::uses_of(&mut endpoint, &layout, registration.roster).await?.apply(&fabric, &layout)?;
        let reclamation = Reclamation::new(registration.epoch, registration.snapshot);
        let blocks = Blocks::new(fabric, layout, registration.me);
        let members = Members::new(superblock, registration, nodes, endpoint.now_ms());
        Ok(Self { process: Arc::new(Process::new(blocks, members, reclamation)) })
    }
}
