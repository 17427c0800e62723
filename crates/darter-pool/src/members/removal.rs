//! How a memory node leaves a pool that is in use (`docs/pool.md`, "Shrinking").
//!
//! 1. The [`Roster`] says that the node is leaving: *Moving*. Members that follow it place nothing
//!    new there and hand over their blocks on it. Once every live member follows, and the operations
//!    that had begun before are over, blocks of the node are no longer granted. A member that joins
//!    reads the roster after it went live.
//! 2. The caller moves what the index reaches, and sweeps. What others hold there is freed by its
//!    owners: unlinked objects by their limbo, blocks of dead members by the sweep.
//! 3. *Empty*: members no longer use what they remember of the node's objects. Once every live
//!    member follows, and the operations that had begun before are over, no verb goes to the node
//!    but those of upkeep.
//! 4. All words of the node's block table are free. This is stable, since no block is granted.
//!    *Gone*: the node has left the pool. Its magic word is cleared, its line becomes
//!    REMOVED, and the roster says that no node is leaving.
//!
//! All steps are single CASes, or can be repeated. So a process that dies leaves a pool that works,
//! and any other goes on from the roster. Until *Gone*, the removal can be cancelled by one CAS; the
//! CAS to *Gone* fails then.
//!
//! *Giving a node up.* A node that is lost for good is *Gone* at once: it will never be reached again, so
//! nothing has to be moved off it, and its block table is not read. The index may still refer to it,
//! until the process that gives it up, or any other, has cut these references off. An operation that
//! follows such a reference fails as if the node were away.

use darter_fabric::{Endpoint, Fabric, FabricError, GlobalAddr};

use super::lines::{has_left, mark_removed};
use super::membership::Members;
use super::roster::{Roster, Stage};
use crate::blocks::{BlockState, BlockWord, Blocks};
use crate::error::PoolError;
use crate::round_trip::{post, read_words};

/// Attempts to read from a node before it counts as absent: the first may only notice that the
/// connection has ended.
const ATTEMPTS: usize = 3;

impl Members {
    /// Begins to remove a node, or goes on. Returns the roster.
    pub(crate) async fn begin_removal<F: Fabric>(
        &self,
        endpoint: &mut F::Endpoint,
        blocks: &Blocks<F>,
        node: u8,
    ) -> Result<Roster, PoolError> {
        loop {
            let roster = self.removal_of(endpoint, blocks, node).await?;
            if roster.leaving.is_some() {
                return Ok(roster);
            }
            let next = roster.changed(Some((node, Stage::Moving)));
            if roster.replace(endpoint, next).await? == next {
                return Ok(next);
            }
        }
    }

    /// Returns the roster, in which the node is leaving, or may leave.
    pub(crate) async fn removal_of<F: Fabric>(
        &self,
        endpoint: &mut F::Endpoint,
        blocks: &Blocks<F>,
        node: u8,
    ) -> Result<Roster, PoolError> {
        let roster = self.roster_without(endpoint, blocks, node).await?;
        if roster.leaving.is_some() {
            return Ok(roster);
        }
        if has_left(endpoint, node).await? {
            return Err(PoolError::Options("this memory node has left the pool already"));
        }
        if blocks.fabric().remote_nodes().is_absent(node) {
            return Err(FabricError::Unreachable { node }.into());
        }
        Ok(roster)
    }

    /// Returns the roster, in which no other node is leaving. Fails if the pool needs the node.
    async fn roster_without<F: Fabric>(
        &self,
        endpoint: &mut F::Endpoint,
        blocks: &Blocks<F>,
        node: u8,
    ) -> Result<Roster, PoolError> {
        let remote = blocks.fabric().remote_nodes();
        if remote.node_address(0).is_none() {
            return Err(PoolError::Options(
                "only a pool of memory nodes can give one up; copy this pool to a smaller one with `darter backup`",
            ));
        }
        let roster = Roster::read(endpoint).await?;
        if node >= roster.count {
            return Err(PoolError::Options(
                "the pool has no memory node of this number; see `darter pool status`",
            ));
        }
        if node == 0 {
            return Err(PoolError::Options(
                "memory node 0 cannot leave: it has the pool's members, epoch and root words; hand it to another \
                 machine with `darter pool handoff`, or restore a backup into another pool",
            ));
        }
        match roster.leaving {
            Some((leaving, _)) if leaving != node => Err(PoolError::Options(
                "another memory node is leaving; let that end, or end it with `darter pool drain --cancel`",
            )),
            _ => Ok(roster),
        }
    }

    /// Completes the removal of a node that is *Gone*, if there is one: a process that gave up several
    /// nodes may have died between two of them.
    pub(crate) async fn finish_gone<F: Fabric>(
        &self,
        endpoint: &mut F::Endpoint,
        blocks: &Blocks<F>,
    ) -> Result<(), PoolError> {
        let roster = Roster::read(endpoint).await?;
        self.finish_removal(endpoint, blocks, roster).await
    }

    /// Fails unless a node can be given up: it does not respond, or has left already.
    pub(crate) async fn may_give_up<F: Fabric>(
        &self,
        endpoint: &mut F::Endpoint,
        blocks: &Blocks<F>,
        node: u8,
    ) -> Result<(), PoolError> {
        self.roster_without(endpoint, blocks, node).await?;
        if has_left(endpoint, node).await? {
            return Ok(());
        }
        for _ in 0..ATTEMPTS {
            match read_words::<1, _>(endpoint, GlobalAddr::new(node, 0)).await {
                Ok(_) => {
                    return Err(PoolError::Options(
                        "this memory node responds, so that nothing of it is lost; move its objects to the other nodes with \
                         `darter pool drain`",
                    ));
                }
                Err(FabricError::Fenced) => return Err(FabricError::Fenced.into()),
                Err(_) if blocks.fabric().remote_nodes().is_absent(node) => return Ok(()),
                Err(_) => endpoint.pause().await,
            }
        }
        Err(FabricError::Disconnected { node }.into())
    }

    /// Declares that a node is lost for good: it has left the pool.
    pub(crate) async fn give_up<F: Fabric>(
        &self,
        endpoint: &mut F::Endpoint,
        blocks: &Blocks<F>,
        node: u8,
    ) -> Result<(), PoolError> {
        loop {
            let roster = self.roster_without(endpoint, blocks, node).await?;
            let gone = match roster.leaving {
                None if has_left(endpoint, node).await? => return Ok(()),
                Some((_, Stage::Gone)) => roster,
                _ => roster.changed(Some((node, Stage::Gone))),
            };
            if gone == roster || roster.replace(endpoint, gone).await? == gone {
                return self.finish_removal(endpoint, blocks, gone).await;
            }
        }
    }

    /// Puts a node that is leaving back in use. Returns false if it is not leaving.
    pub(crate) async fn cancel_removal<E: Endpoint>(
        &self,
        endpoint: &mut E,
        node: u8,
    ) -> Result<bool, PoolError> {
        let mut roster = Roster::read(endpoint).await?;
        loop {
            match roster.leaving {
                Some((leaving, Stage::Gone)) if leaving == node => {
                    return Err(PoolError::Options(
                        "the memory node holds nothing any more and is being removed; run `darter pool drain` to \
                         complete that, and then add the node again",
                    ));
                }
                Some((leaving, _)) if leaving == node => {}
                _ => return Ok(false),
            }
            let next = roster.changed(None);
            let found = roster.replace(endpoint, next).await?;
            if found == next {
                return Ok(true);
            }
            roster = found;
        }
    }

    /// Brings a removal to a later stage. Returns the roster after that; fails if it has changed,
    /// since another process has cancelled or completed the removal.
    pub(crate) async fn advance_removal<E: Endpoint>(
        &self,
        endpoint: &mut E,
        roster: Roster,
        stage: Stage,
    ) -> Result<Roster, PoolError> {
        let Some((node, _)) = roster.leaving else { return Ok(roster) };
        let next = roster.changed(Some((node, stage)));
        if roster.replace(endpoint, next).await? == next {
            return Ok(next);
        }
        Err(PoolError::Options(
            "another process has cancelled the removal of the memory node, or completed it",
        ))
    }

    /// Returns the number of a node's blocks that are not free.
    pub(crate) async fn blocks_left<F: Fabric>(
        &self,
        endpoint: &mut F::Endpoint,
        blocks: &Blocks<F>,
        node: u8,
    ) -> Result<u64, PoolError> {
        let words = blocks.read_block_table(endpoint, node).await?;
        let is_free =
            |word: &u64| BlockWord::decode(*word).is_some_and(|word| word.state == BlockState::Free);
        Ok(words.iter().filter(|word| !is_free(word)).count() as u64)
    }

    /// Completes the removal of a node that is *Gone*. Any process may do so.
    pub(crate) async fn finish_removal<F: Fabric>(
        &self,
        endpoint: &mut F::Endpoint,
        blocks: &Blocks<F>,
        roster: Roster,
    ) -> Result<(), PoolError> {
        let Some((node, Stage::Gone)) = roster.leaving else { return Ok(()) };
        if !blocks.layout().is_removed(node) {
            // So that the memory node can be used for another pool, or for this one again.
            match post(endpoint, |batch| batch.write(GlobalAddr::new(node, 0), &[0])).await {
                Err(_) if blocks.fabric().remote_nodes().is_absent(node) => {}
                written => written?,
            }
        }
        mark_removed(endpoint, node).await?;
        // Another process may have completed it.
        roster.replace(endpoint, roster.changed(None)).await?;
        Ok(())
    }
}
