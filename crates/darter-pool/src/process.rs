//! State that all handles and clients of one membership share, and operations that span modules.
//!
//! Operations that need verbs take an endpoint, so that closing, which no longer has a client, runs
//! the same code.

use darter_fabric::{Fabric, FabricError, GlobalAddr, block_on};
use std::sync::atomic::{AtomicBool, Ordering};

use crate::blocks::{AuditReport, Blocks, MagazineList, NewBlocks, ReachableSet, Shortage, class_bytes};
use crate::error::PoolError;
use crate::members::{Adoption, MemberTable, Members, SweepReport};
use crate::reclaim::Reclamation;

/// One process's membership in a pool.
pub(crate) struct Process<F: Fabric> {
    pub(crate) blocks: Blocks<F>,
    pub(crate) members: Members,
    pub(crate) reclamation: Reclamation,
    /// Closing has begun or must be skipped.
    closing: AtomicBool,
}

impl<F: Fabric> Process<F> {
    /// A membership that has just begun.
    pub(crate) fn new(blocks: Blocks<F>, members: Members, reclamation: Reclamation) -> Self {
        Self { blocks, members, reclamation, closing: AtomicBool::new(false) }
    }

    /// Leaves everything as after a crash.
    pub(crate) fn abandon(&self) {
        self.closing.store(true, Ordering::SeqCst);
        self.members.drop_identity();
    }

    /// Reads the epoch and the members, and fails if this process is no longer one of them.
    pub(crate) async fn read_members(&self, endpoint: &mut F::Endpoint) -> Result<MemberTable, PoolError> {
        // Loaded before the read, during which another thread may see a later epoch.
        self.members.read(endpoint, &self.blocks, self.reclamation.epoch()).await
    }

    /// Runs one round of upkeep, unless one is under way.
    pub(crate) async fn upkeep(&self, endpoint: &mut F::Endpoint) -> Result<(), PoolError> {
        self.reclamation.round(endpoint, &self.blocks, &self.members).await.map(drop)
    }

    /// Runs rounds of upkeep until limbo is empty or they make no progress, then gives empty blocks
    /// back.
    pub(crate) async fn settle(&self, endpoint: &mut F::Endpoint) -> Result<(), PoolError> {
        self.reclamation.settle(endpoint, &self.blocks, &self.members).await?;
        self.blocks.reopen_touched(endpoint).await?;
        self.blocks.claim_and_trim(endpoint).await?;
        self.blocks.return_blocks(endpoint, 0).await?;
        match self.reclamation.awaits(&self.blocks) {
            Some(node) => Err(FabricError::Unreachable { node }.into()),
            None => Ok(()),
        }
    }

    /// Takes at least one and at most the wanted number of free objects, all on one node. Empties
    /// the caller's `magazines` before the last try: one object of a slab in them keeps its pages
    /// from other sizes. Leaves the pool's blocks to members that wait for room, unless it is this
    /// process's turn.
    pub(crate) async fn obtain(
        &self,
        endpoint: &mut F::Endpoint,
        magazines: &MagazineList,
        shortage: Shortage,
        out: &mut Vec<GlobalAddr>,
    ) -> Result<(), PoolError> {
        let nodes = self.members.usable_nodes();
        for is_last in [false, true] {
            let new_blocks = match self.reclamation.defers_to_others() {
                true => NewBlocks::Surplus,
                false if is_last => NewBlocks::Any,
                false => NewBlocks::Roomy,
            };
            if self.blocks.obtain(endpoint, nodes, shortage, new_blocks, out).await? {
                if new_blocks != NewBlocks::Surplus {
                    self.reclamation.note_turn(false);
                }
                return Ok(());
            }
            if !is_last {
                // Members that joined since the last upkeep may have freed objects of this process.
                self.read_members(endpoint).await?;
                // Blocks of the other kind, or pages of other classes, may turn out empty.
                self.blocks.empty_magazines(magazines);
                self.blocks.claim_and_trim(endpoint).await?;
                self.blocks.return_blocks(endpoint, 0).await?;
            }
        }
        Err(PoolError::OutOfSpace { needed: class_bytes(shortage.class), node: shortage.node })
    }

    /// The words of all nodes' block tables.
    pub(crate) async fn read_block_tables(
        &self,
        endpoint: &mut F::Endpoint,
    ) -> Result<Vec<Vec<u64>>, PoolError> {
        let mut tables = Vec::new();
        for node in 0..self.blocks.layout().node_count() {
            tables.push(self.blocks.read_block_table(endpoint, node).await?);
        }
        Ok(tables)
    }

    /// The first step of a sweep.
    pub(crate) async fn adopt(&self, endpoint: &mut F::Endpoint) -> Result<Adoption, PoolError> {
        self.reclamation.evict_gone(endpoint, &self.blocks, &self.members).await?;
        let tables = self.read_block_tables(endpoint).await?;
        // Members are read after blocks: an owner that is missing now has gone for good.
        let members = self.read_members(endpoint).await?;
        self.members.adopt(endpoint, &self.blocks, tables, &members).await
    }

    /// The second step of a sweep.
    pub(crate) async fn finish_adoption(
        &self,
        endpoint: &mut F::Endpoint,
        adoption: Adoption,
        reachable: &ReachableSet,
    ) -> Result<SweepReport, PoolError> {
        if adoption.is_empty() {
            return Ok(SweepReport { finished: true, ..SweepReport::default() });
        }
        let waiting_for = self.reclamation.wait_until_flushed(endpoint, &self.blocks, &self.members).await?;
        if !waiting_for.is_empty() {
            return Ok(SweepReport { waiting_for, ..SweepReport::default() });
        }
        self.members.sweep(endpoint, &self.blocks, adoption, reachable).await
    }

    /// Compares the pool's books with the objects that the index reaches.
    pub(crate) async fn audit(
        &self,
        endpoint: &mut F::Endpoint,
        reachable: &ReachableSet,
    ) -> Result<AuditReport, PoolError> {
        let idle = self.blocks.idle(self.reclamation.in_limbo());
        let tables = self.read_block_tables(endpoint).await?;
        let members = self.read_members(endpoint).await?;
        self.blocks.audit(endpoint, reachable, &idle, tables, |owner| members.is_live(owner)).await
    }

    /// Ends the membership: frees what can be freed and leaves exact books for the next owner.
    /// Objects that stay in limbo because other members hold the epoch back remain in use until a
    /// sweep finds them. Later calls do nothing.
    pub(crate) async fn close(&mut self) -> Result<(), PoolError> {
        if self.closing.swap(true, Ordering::SeqCst) {
            return Ok(());
        }
        let mut endpoint = self.blocks.fabric().endpoint()?;
        self.settle(&mut endpoint).await?;
        if self.reclamation.has_lingering_pins() {
            // Verbs of cancelled operations are still in flight to our blocks: leave as a dead
            // process would.
            return Ok(());
        }
        self.blocks.close_all(&mut endpoint).await?;
        self.members.end(&mut endpoint).await
    }
}

impl<F: Fabric> Drop for Process<F> {
    fn drop(&mut self) {
        if !*self.closing.get_mut() {
            // No caller is left to receive an error; the blocks are then swept like a dead
            // member's.
            let _ = block_on(self.close());
        }
    }
}
