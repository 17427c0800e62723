//! A pool is rebalanced: objects are moved from memory nodes that hold more than their share to those
//! that hold less, until the fullest has at most 1.15 times the mean fill (`docs/pool.md`, "Growing").
//!
//! Passes follow each other. A pass measures how much the index reaches on each memory node, and then
//! walks the index and moves what is over. Nothing about it is stored but which process does so, and each
//! move is complete in itself. So [`rebalance`] goes on after any interruption when it is called again,
//! in this process or another: it measures again.

use crate::drain::reachable;
use crate::ordered::{Balance, CANNOT_EVACUATE as CANNOT, NodeFill, fullest, is_even};
use crate::{IndexError, OrderedIndex, Result};
use darter_fabric::{Fabric, FabricError};
use darter_pool::{Client, PoolError};
use std::ops::ControlFlow;

/// Most passes of one call. Two are enough unless programs write a lot during them.
const PASSES_MAX: usize = 8;

const LEAVING: &str = "a memory node has begun to leave while the pool was rebalanced; run the command again when that has \
     ended";

/// What a rebalance is doing.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RebalanceStage {
    /// Waits until these members, by their slots, can reach all memory nodes.
    Members(Vec<u32>),
    /// Moves objects. Continues at this key.
    Moving(Vec<u8>),
}

/// How far a rebalance has got.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RebalanceProgress {
    /// What it is doing.
    pub stage: RebalanceStage,
    /// Objects that this call has moved.
    pub objects: u64,
    /// Their bytes.
    pub bytes: u64,
    /// About how many bytes this call will move in total.
    pub total_bytes: u64,
}

/// Why a rebalance has ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum RebalanceEnd {
    /// The fullest memory node has at most 1.15 times the mean fill.
    Even,
    /// It has more, but no object can be moved: each is so large that another node would then have more,
    /// or the blocks of the emptier nodes are in use.
    Stuck,
    /// It has more after several passes, because of writes of programs during them.
    Outrun,
    /// `watch` has ended the call.
    #[default]
    Interrupted,
}

/// The result of a rebalance.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Rebalanced {
    /// Why it has ended.
    pub end: RebalanceEnd,
    /// Objects that this call has moved.
    pub objects: u64,
    /// Their bytes.
    pub bytes: u64,
    /// How much the index had on each memory node when this call began.
    pub before: Vec<NodeFill>,
    /// How much it had when that was last measured: at the end, or before the pass that was interrupted.
    pub after: Vec<NodeFill>,
}

impl Rebalanced {
    /// The fill of the fullest memory node before and after, as multiples of the mean fill. Fill is the
    /// part of a node's blocks that objects take up, so that nodes may differ in size.
    pub fn fullest(&self) -> (f64, f64) {
        (fullest(&self.before), fullest(&self.after))
    }
}

/// Moves objects from memory nodes that hold more than their share to those that hold less, while clients
/// work, until the fullest has at most 1.15 times the mean fill. Calls `watch` again and again, between
/// two steps; if it breaks, what was moved stays moved, and another call goes on.
///
/// # Errors
/// [`IndexError::Options`] if the index cannot move its objects, or is damaged; those of
/// [`darter_pool::Pool::begin_balancing`]: nothing has changed then. [`PoolError::Options`] if a memory
/// node begins to leave; those of the pool and the fabric; out of space. The pool works in any case.
pub async fn rebalance<F: Fabric, I: OrderedIndex<F>>(
    index: &I,
    client: &mut Client<F>,
    watch: &mut (dyn FnMut(&RebalanceProgress) -> ControlFlow<()> + Send),
) -> Result<Rebalanced> {
    if !index.evacuates() {
        return Err(IndexError::Options(CANNOT));
    }
    let pool = client.pool().clone();
    let balancing = pool.begin_balancing(client).await?;
    let progress = RebalanceProgress {
        stage: RebalanceStage::Members(Vec::new()),
        objects: 0,
        bytes: 0,
        total_bytes: 0,
    };
    let mut run = Rebalance { index, watch, progress };
    let rebalanced = run.run(client).await;
    // Also after an error. If that fails too, the claim ends with this process, or with its next call.
    let ended = pool.end_balancing(client, balancing).await;
    let rebalanced = rebalanced?;
    ended?;
    Ok(rebalanced)
}

struct Rebalance<'a, I> {
    index: &'a I,
    watch: &'a mut (dyn FnMut(&RebalanceProgress) -> ControlFlow<()> + Send),
    progress: RebalanceProgress,
}

impl<I> Rebalance<'_, I> {
    fn report(&mut self, stage: RebalanceStage) -> ControlFlow<()> {
        self.progress.stage = stage;
        (self.watch)(&self.progress)
    }

    async fn run<F: Fabric>(&mut self, client: &mut Client<F>) -> Result<Rebalanced>
    where
        I: OrderedIndex<F>,
    {
        let mut rebalanced = Rebalanced::default();
        if self.await_members(client).await?.is_break() {
            return Ok(rebalanced);
        }
        let mut moved_before = None;
        for pass in 0.. {
            rebalanced.after = self.measure(client).await?;
            if pass == 0 {
                rebalanced.before.clone_from(&rebalanced.after);
            }
            (rebalanced.objects, rebalanced.bytes) = (self.progress.objects, self.progress.bytes);
            rebalanced.end = if is_even(&rebalanced.after) {
                RebalanceEnd::Even
            } else if moved_before == Some(self.progress.objects) {
                RebalanceEnd::Stuck
            } else if pass == PASSES_MAX {
                RebalanceEnd::Outrun
            } else {
                RebalanceEnd::Interrupted
            };
            if rebalanced.end != RebalanceEnd::Interrupted {
                break;
            }
            moved_before = Some(self.progress.objects);
            let has_ended = self.walk(client, &rebalanced.after).await?.is_break();
            (rebalanced.objects, rebalanced.bytes) = (self.progress.objects, self.progress.bytes);
            if has_ended {
                break;
            }
        }
        Ok(rebalanced)
    }

    /// Waits until every member can reach all memory nodes: until then, none is used that was just added.
    async fn await_members<F: Fabric>(&mut self, client: &mut Client<F>) -> Result<ControlFlow<()>> {
        let pool = client.pool().clone();
        let patience_ms = pool.lease().as_millis() as u64 + 1000;
        loop {
            let behind = pool.await_nodes(client, patience_ms).await?;
            if behind.is_empty() {
                return Ok(ControlFlow::Continue(()));
            }
            if self.report(RebalanceStage::Members(behind)).is_break() {
                return Ok(ControlFlow::Break(()));
            }
            pool.evict(client).await?;
        }
    }

    /// How much the index has on each memory node in use.
    async fn measure<F: Fabric>(&mut self, client: &mut Client<F>) -> Result<Vec<NodeFill>>
    where
        I: OrderedIndex<F>,
    {
        let pool = client.pool().clone();
        let usage = pool.usage(client).await?;
        if let Some(away) = usage.nodes.iter().find(|node| node.is_absent && !node.is_removed()) {
            return Err(PoolError::from(FabricError::Unreachable { node: away.node }).into());
        }
        let mut bytes = [0_u64; 256];
        for (addr, object_bytes) in reachable(self.index, client).await?.iter() {
            bytes[usize::from(addr.node())] += object_bytes;
        }
        let homes = pool.homes();
        let in_use = usage.nodes.iter().filter(|usage| homes.contains(&usage.node));
        let fill = in_use.map(|usage| NodeFill {
            node: usage.node,
            bytes: bytes[usize::from(usage.node)],
            capacity: usage.blocks * pool.block_bytes(),
            free: usage.free * pool.block_bytes(),
        });
        Ok(fill.collect())
    }

    /// Walks the index once, and moves what is over.
    async fn walk<F: Fabric>(&mut self, client: &mut Client<F>, fills: &[NodeFill]) -> Result<ControlFlow<()>>
    where
        I: OrderedIndex<F>,
    {
        let pool = client.pool().clone();
        let mut balance = Balance::new(fills);
        self.progress.total_bytes = self.progress.bytes + balance.bytes();
        let mut next = Some(Vec::new());
        while let Some(from) = next {
            let moved = self.index.level(client, &mut balance, &from).await?;
            self.progress.objects += moved.objects;
            self.progress.bytes += moved.bytes;
            next = moved.next;
            if fills.iter().any(|fill| !pool.accepts(fill.node)) {
                return Err(PoolError::Options(LEAVING).into());
            }
            if self.report(RebalanceStage::Moving(next.clone().unwrap_or_default())).is_break() {
                return Ok(ControlFlow::Break(()));
            }
        }
        Ok(ControlFlow::Continue(()))
    }
}
