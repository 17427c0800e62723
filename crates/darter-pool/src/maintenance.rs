//! What keeps a pool in order, through a client: upkeep, growth, sweeps, reports.

use darter_fabric::Fabric;

use crate::blocks::{AuditReport, ReachableSet};
use crate::client::Client;
use crate::error::PoolError;
use crate::members::{Adoption, SweepReport};
use crate::pool::Pool;
use crate::process::Process;
use crate::usage::{PoolUsage, usage};

impl<F: Fabric> Pool<F> {
    /// One round of upkeep: renews the lease, takes over and helps along the global epoch, frees
    /// what is ripe, gives surplus blocks back, and ends members that are proved dead. To be called
    /// every 50 ms or so by one thread of each process; clients with garbage call it themselves now
    /// and then. Does nothing when a round is under way.
    ///
    /// # Errors
    /// [`PoolError::Damaged`]; fabric errors.
    pub async fn maintain(&self, client: &mut Client<F>) -> Result<(), PoolError> {
        client.maintain().await
    }

    /// Renews the lease if half of it is over. Rounds of upkeep do that in time, unless one has to
    /// wait for a memory node; so this is for another thread, to be called several times a lease.
    ///
    /// # Errors
    /// Fabric errors.
    pub async fn renew(&self, client: &mut Client<F>) -> Result<(), PoolError> {
        let (process, endpoint) = client.parts();
        process.members.renew(endpoint).await
    }

    /// Rounds of upkeep until nothing waits to be freed or other members hold it back for about a
    /// quarter of a second, then gives back what is empty, the client's magazines included. Blocks
    /// the thread for a millisecond at a time when it waits for others. Objects that wait for
    /// [`Client::take_graced`] are not waited for.
    ///
    /// # Errors
    /// As [`Pool::maintain`].
    pub async fn settle(&self, client: &mut Client<F>) -> Result<(), PoolError> {
        client.settle().await
    }

    /// Who holds how much.
    ///
    /// # Errors
    /// [`PoolError::Damaged`]; fabric errors.
    pub async fn usage(&self, client: &mut Client<F>) -> Result<PoolUsage, PoolError> {
        let (process, endpoint) = client.parts();
        usage(process, endpoint).await
    }

    /// Adds the memory node at an address to the pool, for all members to use as soon as each of
    /// them can reach it. Returns its number.
    ///
    /// # Errors
    /// [`PoolError::AlreadyAPool`], [`PoolError::TooSmall`]; fabric errors, among them that pools
    /// of this kind cannot grow; [`PoolError::Options`] while another addition is under way. The
    /// pool is then as it was.
    pub async fn add_node(&self, client: &mut Client<F>, address: &str) -> Result<u8, PoolError> {
        let (process, endpoint) = client.parts();
        let Process { blocks, members, reclamation, .. } = process;
        members.add_node(endpoint, blocks, || reclamation.epoch(), address).await
    }

    /// Waits until all live members can reach all nodes, a few of their rounds of upkeep. Returns
    /// the slots of those that could not in `patience_ms` milliseconds.
    ///
    /// # Errors
    /// As [`Pool::maintain`].
    pub async fn await_nodes(&self, client: &mut Client<F>, patience_ms: u64) -> Result<Vec<u32>, PoolError> {
        let (process, endpoint) = client.parts();
        let Process { blocks, members, reclamation, .. } = process;
        reclamation.await_nodes(endpoint, blocks, members, patience_ms).await
    }

    /// Ends all members that are gone, however short their silence. If the provider does not know
    /// of one whether it lives, waits until it gives a sign of life, or has lapsed.
    ///
    /// # Errors
    /// As [`Pool::maintain`].
    pub async fn evict(&self, client: &mut Client<F>) -> Result<(), PoolError> {
        let (process, endpoint) = client.parts();
        let Process { blocks, members, reclamation, .. } = process;
        reclamation.evict_gone(endpoint, blocks, members).await
    }

    /// First step of a sweep: takes the blocks of dead members, and those that members left behind
    /// at their clean end. Then walk the index, clear hints that name unreachable objects, and call
    /// [`Pool::finish_adoption`].
    ///
    /// # Errors
    /// [`PoolError::Damaged`]; fabric errors.
    pub async fn adopt(&self, client: &mut Client<F>) -> Result<Adoption, PoolError> {
        let (process, endpoint) = client.parts();
        process.adopt(endpoint).await
    }

    /// Second step of a sweep: frees all objects of the adopted blocks that were not reachable in a
    /// walk that began after [`Pool::adopt`]. The client must not be pinned. Waits for every member
    /// to pass the epoch of this call, a few of their rounds of upkeep; when one does not in a
    /// lease's time, nothing is freed and the report says so: the blocks stay with this process for
    /// the next [`Pool::adopt`].
    ///
    /// # Errors
    /// [`PoolError::Damaged`]; fabric errors.
    pub async fn finish_adoption(
        &self,
        client: &mut Client<F>,
        adoption: Adoption,
        reachable: &ReachableSet,
    ) -> Result<SweepReport, PoolError> {
        let (process, endpoint) = client.parts();
        process.finish_adoption(endpoint, adoption, reachable).await
    }

    /// Compares the pool's books with what the index can reach. Exact while no operation is under
    /// way; one that is can show as a leak.
    ///
    /// # Errors
    /// [`PoolError::Damaged`]; fabric errors.
    pub async fn audit(
        &self,
        client: &mut Client<F>,
        reachable: &ReachableSet,
    ) -> Result<AuditReport, PoolError> {
        client.flush_magazines();
        let (process, endpoint) = client.parts();
        process.audit(endpoint, reachable).await
    }
}
