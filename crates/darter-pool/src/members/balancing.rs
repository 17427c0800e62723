//! The claim of the member that moves objects between nodes, to balance how much they hold
//! (`docs/pool.md`, "Growing").
//!
//! A word on node 0 names the member, as the line of a node names the member that adds it; 0 means none.
//! The claim of a member that has ended is taken over.
//!
//! Correctness does not depend on it: any number of members could move objects, since each move is complete in
//! itself. But two members that have measured different things could undo each other's moves for ever.

use darter_fabric::{Endpoint, Fabric, FabricError, GlobalAddr};
use std::sync::atomic::Ordering;

use super::lines::removed;
use super::membership::Members;
use super::nodes::{claimed_by, is_claimed};
use super::roster::Roster;
use crate::blocks::Blocks;
use crate::error::PoolError;
use crate::region::BALANCING_AT;
use crate::round_trip::{cas, read_words};

fn word_addr() -> GlobalAddr {
    GlobalAddr::new(0, BALANCING_AT)
}

impl Members {
    /// Fails unless objects can be moved between the nodes of the pool: there are several, they can be
    /// reached, and none is leaving.
    pub(crate) async fn may_balance<F: Fabric>(
        &self,
        endpoint: &mut F::Endpoint,
        blocks: &Blocks<F>,
    ) -> Result<(), PoolError> {
        if blocks.fabric().remote_nodes().node_address(0).is_none() {
            return Err(PoolError::Options(
                "only a pool of memory nodes can be rebalanced: a pool in one place has nothing to gain by it",
            ));
        }
        let roster = Roster::read(endpoint).await?;
        if roster.leaving.is_some() {
            return Err(PoolError::Options(
                "a memory node is leaving, so that the pool cannot be rebalanced; let that end, or end it with \
                 `darter pool drain --cancel`",
            ));
        }
        let in_use = |(node, has_left): (u8, bool)| (!has_left).then_some(node);
        let nodes: Vec<u8> = (0..).zip(removed(endpoint, roster).await?).filter_map(in_use).collect();
        if nodes.len() < 2 {
            return Err(PoolError::Options(
                "the pool has a single memory node; add another one with `darter pool add-node`",
            ));
        }
        let remote = blocks.fabric().remote_nodes();
        match nodes.into_iter().find(|&node| remote.is_absent(node)) {
            Some(node) => Err(FabricError::Unreachable { node }.into()),
            None => Ok(()),
        }
    }

    /// Notes whether this process balances the pool. Returns what was noted before.
    pub(crate) fn set_balancing(&self, is_balancing: bool) -> bool {
        self.is_balancing.swap(is_balancing, Ordering::AcqRel)
    }

    /// Claims the word for this member. Returns false if it names another live member.
    pub(crate) async fn claim_balancing<E: Endpoint>(&self, endpoint: &mut E) -> Result<bool, PoolError> {
        let claim = claimed_by(self.me());
        loop {
            let [word] = read_words(endpoint, word_addr()).await?;
            // An earlier call of this process may have left its claim.
            if word == claim {
                return Ok(true);
            }
            if word != 0 && is_claimed(endpoint, word).await? {
                return Ok(false);
            }
            if cas(endpoint, word_addr(), word, claim).await?.swapped {
                return Ok(true);
            }
        }
    }

    /// Gives the claim up.
    pub(crate) async fn end_balancing<E: Endpoint>(&self, endpoint: &mut E) -> Result<(), PoolError> {
        cas(endpoint, word_addr(), claimed_by(self.me()), 0).await.map(drop).map_err(PoolError::from)
    }
}
