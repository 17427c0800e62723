//! Operations that keep a pool in order and need a client: upkeep, growth, sweeps, reports.

use darter_fabric::{Fabric, FabricError};

use crate::blocks::{AuditReport, ReachableSet};
use crate::client::Client;
use crate::error::PoolError;
use crate::members::{Adoption, Roster, Stage, SweepReport};
use crate::pool::Pool;
use crate::process::Process;
use crate::reclaim::{SnapshotId, read_open_snapshot};
use crate::usage::{PoolUsage, usage};

/// The removal of a memory node ([`Pool::begin_removal`]), as far as it has got.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "pass it to the next step"]
pub struct Removal {
    node: u8,
    roster: Roster,
}

impl Removal {
    /// Returns the node.
    pub fn node(&self) -> u8 {
        self.node
    }

    /// Whether all members are to use nothing that they remember of the node: its objects have been
    /// moved.
    pub fn is_forgotten(&self) -> bool {
        self.roster.leaving.is_some_and(|(_, stage)| stage >= Stage::Empty)
    }

    /// Whether the removal can no longer be cancelled.
    pub fn is_final(&self) -> bool {
        self.roster.leaving.is_some_and(|(_, stage)| stage == Stage::Gone)
    }
}

/// The right of this process to move objects between memory nodes ([`Pool::begin_balancing`]).
#[must_use = "end it with `Pool::end_balancing`"]
pub struct Balancing<F: Fabric>(Pool<F>);

impl<F: Fabric> Drop for Balancing<F> {
    fn drop(&mut self) {
        self.0.process.members.set_balancing(false);
    }
}

impl<F: Fabric> Pool<F> {
    /// Runs one round of upkeep: renews the lease, follows the global epoch and helps advance it,
    /// frees objects that are ripe, gives surplus blocks back, and ends members that are proved
    /// dead. One thread of each process should call it every 50 ms or so; clients with garbage call
    /// it themselves now and then. Does nothing while another round is under way.
    ///
    /// # Errors
    /// [`PoolError::Damaged`]; fabric errors.
    pub async fn maintain(&self, client: &mut Client<F>) -> Result<(), PoolError> {
        client.maintain().await
    }

    /// Renews the lease if half of it is over. Rounds of upkeep do that in time unless one has to
    /// wait for a memory node, so another thread should call this several times per lease.
    ///
    /// # Errors
    /// Fabric errors.
    pub async fn renew(&self, client: &mut Client<F>) -> Result<(), PoolError> {
        let (process, endpoint) = client.parts();
        process.members.renew(endpoint).await
    }

    /// Runs rounds of upkeep until nothing waits to be freed or other members have held it back for
    /// about a quarter of a second, then gives back what is empty, including the client's
    /// magazines. Blocks the thread for a millisecond at a time while it waits for others. Does not
    /// wait for objects that are due for [`Client::take_graced`].
    ///
    /// # Errors
    /// As [`Pool::maintain`].
    pub async fn settle(&self, client: &mut Client<F>) -> Result<(), PoolError> {
        client.settle().await
    }

    /// Returns how much of the pool each member holds.
    ///
    /// # Errors
    /// [`PoolError::Damaged`]; fabric errors.
    pub async fn usage(&self, client: &mut Client<F>) -> Result<PoolUsage, PoolError> {
        let (process, endpoint) = client.parts();
        usage(process, endpoint).await
    }

    /// Adds the memory node at `address` to the pool. All members use it as soon as each of them
    /// can reach it. Returns its number.
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

    /// Waits until all live members can reach all nodes, which takes a few of their rounds of
    /// upkeep. Returns the slots of the members that could not within `patience_ms` milliseconds.
    ///
    /// # Errors
    /// As [`Pool::maintain`].
    pub async fn await_nodes(&self, client: &mut Client<F>, patience_ms: u64) -> Result<Vec<u32>, PoolError> {
        let (process, endpoint) = client.parts();
        let Process { blocks, members, reclamation, .. } = process;
        reclamation.await_nodes(endpoint, blocks, members, patience_ms).await
    }

    /// Begins to remove a memory node from the pool, or goes on after an interruption: from now on
    /// no new objects are placed on it. Returns how far the removal has got.
    ///
    /// # Errors
    /// [`PoolError::Options`] if the node cannot leave, or another one is leaving; fabric errors.
    /// The pool is then as it was.
    pub async fn begin_removal(&self, client: &mut Client<F>, node: u8) -> Result<Removal, PoolError> {
        let (process, endpoint) = client.parts();
        let roster = process.members.begin_removal(endpoint, &process.blocks, node).await?;
        Ok(Removal { node, roster })
    }

    /// Returns how far the removal of a node has got, if it is leaving. Changes nothing.
    ///
    /// # Errors
    /// As [`Pool::begin_removal`].
    pub async fn removal_of(&self, client: &mut Client<F>, node: u8) -> Result<Option<Removal>, PoolError> {
        let (process, endpoint) = client.parts();
        let roster = process.members.removal_of(endpoint, &process.blocks, node).await?;
        Ok(roster.leaving.map(|_| Removal { node, roster }))
    }

    /// Lets this process move objects between memory nodes, to balance how much they hold, until
    /// [`Pool::end_balancing`] or the end of the process. No other process does so at the same time.
    /// The client must not be pinned.
    ///
    /// # Errors
    /// [`PoolError::Options`] if the pool is not one of several memory nodes, if one of them is leaving,
    /// or while a process, this or another, balances the pool; [`FabricError::Unreachable`] if one of
    /// them is away; [`PoolError::ReadOnly`]; fabric errors. The pool is then as it was.
    pub async fn begin_balancing(&self, client: &mut Client<F>) -> Result<Balancing<F>, PoolError> {
        let (process, endpoint) = client.parts();
        let Process { blocks, members, reclamation, .. } = process;
        members.verify_may_write()?;
        members.may_balance(endpoint, blocks).await?;
        if members.set_balancing(true) {
            return Err(PoolError::Options("this process is rebalancing the pool already"));
        }
        let balancing = Balancing(self.clone());
        if !members.claim_balancing(endpoint).await? {
            // The member may have died a moment ago.
            reclamation.evict_gone(endpoint, blocks, members).await?;
            if !members.claim_balancing(endpoint).await? {
                return Err(PoolError::Options(
                    "another process is rebalancing the pool; let it end, or end it, and try again",
                ));
            }
        }
        Ok(balancing)
    }

    /// Lets other processes balance the pool again.
    ///
    /// # Errors
    /// Fabric errors.
    pub async fn end_balancing(
        &self,
        client: &mut Client<F>,
        balancing: Balancing<F>,
    ) -> Result<(), PoolError> {
        let (process, endpoint) = client.parts();
        process.members.end_balancing(endpoint).await?;
        drop(balancing);
        Ok(())
    }

    /// Whether this process has seen that the removal has got this far, and no further change of it.
    pub fn follows(&self, removal: Removal) -> bool {
        let followed = self.process.members.roster();
        (followed.leaving, followed.changes) == (removal.roster.leaving, removal.roster.changes)
    }

    /// Puts a node that is leaving back in use. Returns false if it is not leaving.
    ///
    /// # Errors
    /// [`PoolError::Options`] if it is too late; fabric errors.
    pub async fn cancel_removal(&self, client: &mut Client<F>, node: u8) -> Result<bool, PoolError> {
        let (process, endpoint) = client.parts();
        process.members.cancel_removal(endpoint, node).await
    }

    /// Waits until every live member knows how far the removal has got, and has ended the operations
    /// that it had begun before. Returns the slots of the members that have not within a lease and
    /// a second. The client must not be pinned.
    ///
    /// # Errors
    /// As [`Pool::maintain`].
    pub async fn await_removal(&self, client: &mut Client<F>) -> Result<Vec<u32>, PoolError> {
        let (process, endpoint) = client.parts();
        let Process { blocks, members, reclamation, .. } = process;
        let patience_ms = members.lease_ms() + 1000;
        let behind = reclamation.await_roster(endpoint, blocks, members, patience_ms).await?;
        if !behind.is_empty() {
            return Ok(behind);
        }
        reclamation.wait_until_flushed(endpoint, blocks, members).await
    }

    /// From now on no process uses what it remembers of the node's objects, once it follows
    /// ([`Pool::await_removal`]). Call this when the index reaches no object on the node.
    ///
    /// # Errors
    /// [`PoolError::Options`] if the removal has been cancelled; fabric errors.
    pub async fn forget_removed(
        &self,
        client: &mut Client<F>,
        removal: Removal,
    ) -> Result<Removal, PoolError> {
        let (process, endpoint) = client.parts();
        let roster = process.members.advance_removal(endpoint, removal.roster, Stage::Empty).await?;
        Ok(Removal { roster, ..removal })
    }

    /// Returns the number of blocks of the node that are not free yet.
    ///
    /// # Errors
    /// Fabric errors.
    pub async fn blocks_left(&self, client: &mut Client<F>, removal: Removal) -> Result<u64, PoolError> {
        let (process, endpoint) = client.parts();
        process.members.blocks_left(endpoint, &process.blocks, removal.node).await
    }

    /// Removes the node, if all its blocks are free and all members have forgotten its objects
    /// ([`Pool::forget_removed`], then [`Pool::await_removal`]). Returns false if a block is not
    /// free. Afterwards, [`Pool::await_removal`] waits until no process uses the node.
    ///
    /// # Errors
    /// [`PoolError::Options`] if the removal has been cancelled; fabric errors.
    pub async fn finish_removal(&self, client: &mut Client<F>, removal: Removal) -> Result<bool, PoolError> {
        let (process, endpoint) = client.parts();
        let Process { blocks, members, .. } = process;
        let roster = match removal.roster.leaving {
            Some((_, Stage::Gone)) => removal.roster,
            Some((_, Stage::Empty)) => {
                if members.blocks_left(endpoint, blocks, removal.node).await? > 0 {
                    return Ok(false);
                }
                members.advance_removal(endpoint, removal.roster, Stage::Gone).await?
            }
            _ => return Ok(false),
        };
        members.finish_removal(endpoint, blocks, roster).await?;
        Ok(true)
    }

    /// Declares that memory nodes that do not respond are lost for good: they have left the pool, and
    /// are never used again. The index may still refer to them; the caller cuts these references off.
    /// Does nothing with nodes that have left already. Then ends all members that are gone.
    ///
    /// # Errors
    /// [`PoolError::Options`] if a node responds or cannot leave, or another one is leaving or absent;
    /// [`PoolError::OthersAtWork`]: nothing has changed then. Fabric errors: this can be called again.
    pub async fn give_up_nodes(&self, client: &mut Client<F>, nodes: &[u8]) -> Result<(), PoolError> {
        let (process, endpoint) = client.parts();
        let Process { blocks, members, reclamation, .. } = process;
        members.finish_gone(endpoint, blocks).await?;
        for &node in nodes {
            members.may_give_up(endpoint, blocks, node).await?;
        }
        let is_away = |node: &u8| !nodes.contains(node) && !blocks.layout().is_removed(*node);
        if let Some(node) = self.absent_nodes().into_iter().find(is_away) {
            return Err(FabricError::Unreachable { node }.into());
        }
        let at_work = reclamation.await_leave(endpoint, blocks, members).await?;
        if !at_work.is_empty() {
            return Err(PoolError::OthersAtWork(at_work));
        }
        for &node in nodes {
            members.give_up(endpoint, blocks, node).await?;
        }
        if !reclamation.follow_departure(endpoint, blocks, members, nodes).await? {
            return Err(PoolError::Options("upkeep of this process makes no progress; try again"));
        }
        reclamation.evict_gone(endpoint, blocks, members).await
    }

    /// Waits until no other member is at work, and the operations of this process that had begun before are
    /// over. Members that join later use nothing that was removed from the pool before this call. The client
    /// must not be pinned.
    ///
    /// # Errors
    /// [`PoolError::OthersAtWork`]; [`PoolError::Options`] if an operation of this process does not end
    /// within a lease. Those of [`Pool::maintain`].
    pub async fn await_solitude(&self, client: &mut Client<F>) -> Result<(), PoolError> {
        let (process, endpoint) = client.parts();
        let Process { blocks, members, reclamation, .. } = process;
        let at_work = reclamation.await_leave(endpoint, blocks, members).await?;
        if !at_work.is_empty() {
            return Err(PoolError::OthersAtWork(at_work));
        }
        if reclamation.wait_until_flushed(endpoint, blocks, members).await?.is_empty() {
            return Ok(());
        }
        Err(PoolError::Options("operations of this process are under way; end them, and try again"))
    }

    /// Ends all members that are gone, however short their silence. If the provider cannot tell
    /// whether a member is alive, waits until the member gives a sign of life or has lapsed.
    ///
    /// # Errors
    /// [`PoolError::ReadOnly`]; those of [`Pool::maintain`].
    pub async fn evict(&self, client: &mut Client<F>) -> Result<(), PoolError> {
        let (process, endpoint) = client.parts();
        process.members.verify_may_write()?;
        let Process { blocks, members, reclamation, .. } = process;
        reclamation.evict_gone(endpoint, blocks, members).await
    }

    /// First step of a sweep: takes the blocks of dead members and those that members left when
    /// they ended cleanly. Then walk the index, clear hints that name unreachable objects, and call
    /// [`Pool::finish_adoption`].
    ///
    /// # Errors
    /// [`PoolError::Damaged`]; [`PoolError::ReadOnly`]; fabric errors.
    pub async fn adopt(&self, client: &mut Client<F>) -> Result<Adoption, PoolError> {
        let (process, endpoint) = client.parts();
        process.members.verify_may_write()?;
        process.adopt(endpoint).await
    }

    /// Second step of a sweep: frees all objects of the adopted blocks that were not reachable in a
    /// walk that began after [`Pool::adopt`]. The client must not be pinned. Waits for every member
    /// to pass the epoch of this call, which takes a few of their rounds of upkeep. If one does not
    /// within a lease, nothing is freed and the report names it: the blocks stay with this process
    /// for the next [`Pool::adopt`].
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

    /// Compares the pool's books with the objects that the index can reach. Exact while no
    /// operation is under way; an operation under way can show as a leak.
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

    /// Begins a snapshot of all keys, as of the moment at which this returns. Until
    /// [`Pool::end_snapshot`], operations that change keys preserve old values. For some
    /// milliseconds before, they wait. The client must not be pinned.
    ///
    /// # Errors
    /// [`PoolError::SnapshotTaken`]; [`PoolError::SnapshotHeldBack`];
    /// [`PoolError::SnapshotUnknown`]; [`PoolError::ReadOnly`]; those of [`Pool::maintain`].
    pub async fn begin_snapshot(&self, client: &mut Client<F>) -> Result<SnapshotId, PoolError> {
        let (process, endpoint) = client.parts();
        process.members.verify_may_write()?;
        let Process { blocks, members, reclamation, .. } = process;
        reclamation.begin_snapshot(endpoint, blocks, members).await
    }

    /// Ends a snapshot. Returns false if it had been ended before.
    ///
    /// # Errors
    /// Fabric errors.
    pub async fn end_snapshot(
        &self,
        client: &mut Client<F>,
        snapshot: SnapshotId,
    ) -> Result<bool, PoolError> {
        let (process, endpoint) = client.parts();
        process.reclamation.end_snapshot(endpoint, snapshot).await
    }

    /// Reads from the pool which snapshot is open: one round trip.
    ///
    /// # Errors
    /// Fabric errors.
    pub async fn read_open_snapshot(&self, client: &mut Client<F>) -> Result<Option<SnapshotId>, PoolError> {
        let (_, endpoint) = client.parts();
        read_open_snapshot(endpoint).await
    }

    /// Runs rounds of upkeep until no operation can still preserve a value for a snapshot that has
    /// ended before this call. Returns false if another member does not end such an operation within
    /// a lease. The client must not be pinned.
    ///
    /// # Errors
    /// As [`Pool::maintain`].
    pub async fn outlive_snapshot(&self, client: &mut Client<F>) -> Result<bool, PoolError> {
        let (process, endpoint) = client.parts();
        let Process { blocks, members, reclamation, .. } = process;
        reclamation.outlive_snapshot(endpoint, blocks, members).await
    }
}
