//! Erasure: how a pool that has lost a memory node makes way for a new pool on the same nodes.
//!
//! A process can only go live with a claim on a member slot ([`darter_fabric::Fabric::claim`]). So
//! the process that erases the pool claims all slots, and shuts out the members that hold one
//! ([`darter_fabric::Fabric::fence`]). When it holds all of them, no member can write any longer,
//! and no process can become a member. Then it erases the magic words, node 0's last: until then
//! the pool has lost nodes, and can be erased again.
//!
//! A process that has read the superblock before the erasure, and claims a slot after it, goes live
//! in a pool other than the one whose superblock it has read. It reads node 0's superblock again
//! before it does anything else ([`crate::Pool::confirm`]).

use darter_fabric::{
    Endpoint, ExpectedNode, Fabric, FabricError, FenceOutcome, GlobalAddr, Identity, Suspect,
};

use super::lines::{self, look_up};
use super::member::read_table;
use super::roster::Roster;
use super::superblock::{node_sizes, read_node};
use crate::error::PoolError;
use crate::region::MEMBERS;
use crate::round_trip::post;

/// Ends the pool on a fabric's memory nodes if a node other than the first has lost its part, and
/// shuts out the pool's members. Does nothing if the pool is whole, or if the first node holds
/// none. `is_present` returns whether a node that the pool's directory names still exists: an empty
/// node that was named in its place is a mistake.
///
/// # Errors
/// Fails if the nodes are not all those of the pool, a superblock is damaged, a process has claimed
/// a slot for a lease without going live, this process may only read, or the fabric fails. The pool
/// then remains as it was, with its lost nodes.
pub async fn erase_if_lost<F: Fabric>(
    fabric: &F,
    is_present: impl Fn(&ExpectedNode) -> bool,
) -> Result<(), PoolError> {
    if fabric.capabilities().reads_only {
        return Err(PoolError::ReadOnly);
    }
    let mut endpoint = fabric.endpoint()?;
    let sizes = node_sizes(fabric)?;
    let first = match read_node(&mut endpoint, 0, sizes[0]).await {
        Err(PoolError::NotAPool { .. }) => return Ok(()),
        first => first?,
    };
    let mut lost = Vec::new();
    let roster = Roster::read(&mut endpoint).await?;
    let removed = lines::removed(&mut endpoint, roster).await?;
    let has_left = |node: u8| removed.get(usize::from(node)) == Some(&true);
    for (node, &bytes) in (0..).zip(&sizes).skip(1).filter(|(node, _)| !has_left(*node)) {
        match read_node(&mut endpoint, node, bytes).await {
            Err(PoolError::NotAPool { .. } | PoolError::TooSmall { .. }) => {
                // It may have left at this moment.
                if !lines::has_left(&mut endpoint, node).await? {
                    lost.push(node);
                }
            }
            Err(error) => return Err(error),
            Ok(found) if found == first => {}
            Ok(_) => return Err(PoolError::NodeMismatch { node, what: "it belongs to another pool" }),
        }
    }
    if lost.is_empty() {
        return Ok(());
    }
    let count = sizes.len() as u8;
    if read_table(&mut endpoint, 0).await?.nodes != count {
        let what = "the pool has another number of memory nodes than were named";
        return Err(PoolError::NodeMismatch { node: count - 1, what });
    }
    for node in lost {
        let expected = look_up(&mut endpoint, node).await?;
        if is_present(&expected) {
            let what = "it is empty, but the pool's memory node of this number exists at another address";
            return Err(PoolError::NodeMismatch { node, what });
        }
    }
    let claims = claim_all(fabric, &mut endpoint, first.lease_ms).await?;
    for node in (0..count).rev().filter(|&node| !has_left(node)) {
        post(&mut endpoint, |batch| batch.write(GlobalAddr::new(node, 0), &[0])).await?;
    }
    drop(claims);
    Ok(())
}

/// Claims all member slots, and shuts out the members.
async fn claim_all<F: Fabric>(
    fabric: &F,
    endpoint: &mut F::Endpoint,
    lease_ms: u64,
) -> Result<Vec<Box<dyn Identity>>, PoolError> {
    let mut claims = Vec::new();
    let begin = endpoint.now_ms();
    loop {
        shut_members_out(fabric, endpoint).await?;
        while let slot @ ..MEMBERS = claims.len() as u32 {
            match fabric.claim(slot) {
                Ok(claim) => claims.push(claim),
                Err(FabricError::IdentityTaken { .. }) if endpoint.now_ms() - begin <= lease_ms => break,
                Err(error) => return Err(error.into()),
            }
        }
        if claims.len() as u32 == MEMBERS {
            break;
        }
        // The holder will soon go live, or end.
        endpoint.pause().await;
    }
    // This includes members that went live and died since the last read.
    shut_members_out(fabric, endpoint).await?;
    Ok(claims)
}

async fn shut_members_out<F: Fabric>(fabric: &F, endpoint: &mut F::Endpoint) -> Result<(), PoolError> {
    for (slot, line) in read_table(endpoint, MEMBERS).await?.live() {
        let suspect = Suspect { slot, holder: line.holder, lapsed: true };
        if fabric.fence(suspect)? != FenceOutcome::Fenced {
            return Err(FabricError::IdentityTaken { slot }.into());
        }
    }
    Ok(())
}
