//! A memory node that is lost for good is given up: everything that an index can reach without it
//! stays, and the rest is cut off (`docs/pool.md`, "Lost nodes").
//!
//! Nothing about it is stored but that the node has left the pool, so [`give_up`] goes on after any
//! interruption when it is called again, in this process or another.

use crate::ordered::{CANNOT_SALVAGE, CutOff, LostNodes, Swept};
use crate::{IndexError, OrderedIndex, Result};
use darter_fabric::Fabric;
use darter_pool::Client;
use std::ops::ControlFlow;

const DAMAGED: &str =
    "the lost memory nodes are given up, but the index is damaged elsewhere; see `darter check`";

/// What was lost with memory nodes, as far as one call of [`give_up`] has found it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct GivenUp {
    /// Keys that are gone and whose names are known.
    pub keys: u64,
    /// Keys that are gone and of which only ranges are known that contain them.
    pub unnamed: u64,
    /// Ranges of which all keys are gone; how many there were is unknown.
    pub ranges: u64,
    /// Keys that have their values from before a transaction, of which it is unknown whether it was
    /// decided.
    pub reverted: u64,
    /// Objects on the lost nodes that the index referred to.
    pub objects: u64,
    /// Their bytes. What they referred to in turn is not counted.
    pub bytes: u64,
    /// Bytes that were in use for what cannot be reached any longer, and can be used again.
    pub freed_bytes: u64,
    /// Whether the index refers to no lost node any longer; if not, `watch` has ended the call before.
    pub is_complete: bool,
}

/// Declares that memory nodes that do not respond are lost, and removes all references of the index to
/// them. No other process may have the pool open. Calls `watch` with what each step has cut off; if it
/// breaks, the nodes have left the pool, and another call goes on.
///
/// # Errors
/// Those of [`darter_pool::Pool::give_up_nodes`], and [`IndexError::Options`] if the index cannot be read
/// around lost nodes: then nothing has changed. Those of the pool and the fabric, and out of space:
/// another call goes on.
pub async fn give_up<F: Fabric, I: OrderedIndex<F>>(
    index: &I,
    client: &mut Client<F>,
    nodes: &[u8],
    watch: &mut (dyn FnMut(&CutOff) -> ControlFlow<()> + Send),
) -> Result<GivenUp> {
    if !index.salvages() {
        return Err(IndexError::Options(CANNOT_SALVAGE));
    }
    let pool = client.pool().clone();
    pool.give_up_nodes(client, nodes).await?;
    // Also the nodes that were given up before: references to them may be left. A node that is away for a
    // moment has not left the pool.
    let lost: LostNodes = pool.removed_nodes().into_iter().collect();
    // An operation under way may remember again what it has found by a hint.
    index.drop_hints(client, lost).await?;
    pool.await_solitude(client).await?;
    index.drop_hints(client, lost).await?;
    let mut given_up = GivenUp::default();
    let mut next = Some(Vec::new());
    while let Some(from) = next {
        let cut = index.cut_off(client, lost, &from).await?;
        given_up.add(&cut);
        if watch(&cut).is_break() {
            return Ok(given_up);
        }
        next = cut.next;
    }
    given_up.is_complete = true;
    match index.sweep_dead(client).await? {
        Swept::Done(report) => given_up.freed_bytes = report.reclaimed_bytes,
        Swept::Refused(_) => return Err(IndexError::Options(DAMAGED)),
    }
    Ok(given_up)
}

impl GivenUp {
    fn add(&mut self, cut: &CutOff) {
        for gap in &cut.gaps {
            match gap.keys {
                Some(_) if gap.key().is_some() => self.keys += 1,
                Some(keys) => self.unnamed += keys,
                None => self.ranges += 1,
            }
        }
        self.reverted += cut.reverted.len() as u64;
        self.objects += cut.objects;
        self.bytes += cut.bytes;
    }
}
