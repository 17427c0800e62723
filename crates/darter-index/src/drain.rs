//! A memory node is drained: everything that an index has on it is moved to the other nodes, and the
//! node leaves the pool (`docs/pool.md`, "Shrinking").
//!
//! Nothing about a drain is stored but the pool's own word for it, so [`drain`] goes on after any
//! interruption when it is called again, in this process or another.

use crate::ordered::{CANNOT_EVACUATE as CANNOT, Swept};
use crate::{IndexError, OrderedIndex, Result};
use darter_fabric::{Fabric, FabricError};
use darter_pool::{Client, PoolError, ReachableSet, Removal};
use std::ops::ControlFlow;

/// Walks that find violations before a drain fails: a walk may meet a change halfway.
const WALKS_MAX: usize = 20;
const DAMAGED: &str = "the index is damaged, so that not all its objects may be found; see `darter check`";

const OTHER: &str = "another process has cancelled the drain of the memory node, or completed it";

/// What a drain is doing.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum DrainStage {
    /// Waits until these members, by their slots, have seen how far the drain has got, and have ended
    /// their operations.
    Members(Vec<u32>),
    /// Moves objects. Continues at this key.
    Moving(Vec<u8>),
    /// Has walked the whole index. This number of the node's blocks still hold something: objects
    /// that other processes are about to free, or that were written during the walk.
    Blocks(u64),
}

/// How far a drain has got.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct DrainProgress {
    /// What it is doing.
    pub stage: DrainStage,
    /// Objects that this call has moved.
    pub objects: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Bytes that the index had on the node when this call began.
    pub total_bytes: u64,
}

/// The result of a drain.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Drained {
    /// Objects that this call has moved.
    pub objects: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Whether the node has left the pool; if not, `watch` has ended the call before.
    pub is_removed: bool,
    /// Slots of members that may still use the node, because they have not responded for a lease and
    /// `watch` has ended the call.
    pub behind: Vec<u32>,
}

/// Moves everything off a memory node and removes it from the pool, while clients work. Calls
/// `watch` again and again, between two steps; if it breaks, the drain stays as far as it has got,
/// and another call goes on.
///
/// # Errors
/// [`PoolError::Options`] if the node cannot leave, another one is leaving, or the drain was
/// cancelled; [`PoolError::NoRoomToDrain`]; [`IndexError::Options`] if the index cannot move its
/// objects; [`IndexError::Corrupt`] if it is damaged; those of the pool and the fabric. The pool
/// works in any case, and the node is as it was or stays leaving.
pub async fn drain<F: Fabric, I: OrderedIndex<F>>(
    index: &I,
    client: &mut Client<F>,
    node: u8,
    watch: &mut (dyn FnMut(&DrainProgress) -> ControlFlow<()> + Send),
) -> Result<Drained> {
    let pool = client.pool().clone();
    let total_bytes = match pool.removal_of(client, node).await? {
        Some(removal) if removal.is_final() => 0,
        leaving => {
            if !index.evacuates() {
                return Err(IndexError::Options(CANNOT));
            }
            let bytes = bytes_on(index, client, node).await?;
            if leaving.is_none() {
                let room = room_besides(client, node).await?;
                // Pages and blocks are never filled completely.
                if bytes + bytes / 4 > room {
                    return Err(PoolError::NoRoomToDrain { node, bytes, room }.into());
                }
            }
            bytes
        }
    };
    let removal = pool.begin_removal(client, node).await?;
    let progress =
        DrainProgress { stage: DrainStage::Members(Vec::new()), objects: 0, bytes: 0, total_bytes };
    let mut drain = Drain { index, watch, progress, refusals: 0 };
    let mut drained = Drained::default();
    let outcome = match drain.run(client, removal).await {
        // A request to the node may have been under way when another process completed the drain.
        Err(error) if has_failed_to_reach(&error) => {
            pool.maintain(client).await?;
            if pool.follows(removal) { Err(error) } else { Err(PoolError::Options(OTHER).into()) }
        }
        outcome => outcome,
    };
    if outcome?.is_continue() {
        drained.is_removed = true;
        drained.behind = drain.await_departure(client).await?;
    }
    (drained.objects, drained.bytes) = (drain.progress.objects, drain.progress.bytes);
    Ok(drained)
}

fn has_failed_to_reach(error: &IndexError) -> bool {
    matches!(
        error,
        IndexError::Fabric(FabricError::Unreachable { .. })
            | IndexError::Pool(PoolError::Fabric(FabricError::Unreachable { .. }))
    )
}

/// Bytes of the objects that the index reaches on a node.
async fn bytes_on<F: Fabric, I: OrderedIndex<F>>(index: &I, client: &mut Client<F>, node: u8) -> Result<u64> {
    let reachable = reachable(index, client).await?;
    let on_node = reachable.iter().filter(|(addr, _)| addr.node() == node);
    Ok(on_node.map(|(_, bytes)| bytes).sum())
}

/// The objects that the index reaches.
///
/// # Errors
/// [`IndexError::Options`] if the index is damaged; those of the fabric.
pub(crate) async fn reachable<F: Fabric, I: OrderedIndex<F>>(
    index: &I,
    client: &mut Client<F>,
) -> Result<ReachableSet> {
    let mut walked = index.check(client).await?;
    for _ in 0..WALKS_MAX {
        if walked.violations.is_empty() {
            break;
        }
        client.pause().await;
        walked = index.check(client).await?;
    }
    if walked.violations.is_empty() { Ok(walked.reachable) } else { Err(IndexError::Options(DAMAGED)) }
}

/// Bytes that any process can allocate on the nodes that stay.
async fn room_besides<F: Fabric>(client: &mut Client<F>, node: u8) -> Result<u64> {
    let pool = client.pool().clone();
    let usage = pool.usage(client).await?;
    let others = usage.nodes.iter().filter(|other| other.node != node && !other.is_absent);
    let room = others.map(|other| other.free * usage.block_bytes + other.closed_room_bytes).sum();
    Ok(room)
}

struct Drain<'a, I> {
    index: &'a I,
    watch: &'a mut (dyn FnMut(&DrainProgress) -> ControlFlow<()> + Send),
    progress: DrainProgress,
    /// Sweeps that were refused since the last other one.
    refusals: usize,
}

impl<I> Drain<'_, I> {
    fn report(&mut self, stage: DrainStage) -> ControlFlow<()> {
        self.progress.stage = stage;
        (self.watch)(&self.progress)
    }

    async fn run<F: Fabric>(
        &mut self,
        client: &mut Client<F>,
        mut removal: Removal,
    ) -> Result<ControlFlow<()>>
    where
        I: OrderedIndex<F>,
    {
        let pool = client.pool().clone();
        loop {
            if removal.is_final() {
                pool.finish_removal(client, removal).await?;
                return Ok(ControlFlow::Continue(()));
            }
            if self.await_members(client, removal).await?.is_break() {
                return Ok(ControlFlow::Break(()));
            }
            let left = pool.blocks_left(client, removal).await?;
            if left == 0 && !removal.is_forgotten() {
                removal = pool.forget_removed(client, removal).await?;
                continue;
            }
            if left == 0 && pool.finish_removal(client, removal).await? {
                return Ok(ControlFlow::Continue(()));
            }
            if self.empty(client, removal).await?.is_break() {
                return Ok(ControlFlow::Break(()));
            }
        }
    }

    /// Waits until all members follow, and nothing from before is under way.
    async fn await_members<F: Fabric>(
        &mut self,
        client: &mut Client<F>,
        removal: Removal,
    ) -> Result<ControlFlow<()>> {
        let pool = client.pool().clone();
        loop {
            let behind = pool.await_removal(client).await?;
            if !pool.follows(removal) {
                return Err(PoolError::Options(OTHER).into());
            }
            if behind.is_empty() {
                return Ok(ControlFlow::Continue(()));
            }
            if self.report(DrainStage::Members(behind)).is_break() {
                return Ok(ControlFlow::Break(()));
            }
            pool.evict(client).await?;
        }
    }

    /// Waits until no member uses the node that has left. Returns the slots of the members that may
    /// still use it, if `watch` has ended that.
    async fn await_departure<F: Fabric>(&mut self, client: &mut Client<F>) -> Result<Vec<u32>> {
        let pool = client.pool().clone();
        loop {
            let behind = pool.await_removal(client).await?;
            if behind.is_empty() || self.report(DrainStage::Members(behind.clone())).is_break() {
                return Ok(behind);
            }
            pool.evict(client).await?;
        }
    }

    /// Moves what the index reaches on the node, and frees what it does not reach.
    async fn empty<F: Fabric>(&mut self, client: &mut Client<F>, removal: Removal) -> Result<ControlFlow<()>>
    where
        I: OrderedIndex<F>,
    {
        let pool = client.pool().clone();
        let mut next = Some(Vec::new());
        while let Some(from) = next {
            let moved = self.index.evacuate(client, removal.node(), &from).await?;
            self.progress.objects += moved.objects;
            self.progress.bytes += moved.bytes;
            next = moved.next;
            // If the drain has been cancelled, `await_members` says so.
            if pool.accepts(removal.node()) {
                return Ok(ControlFlow::Continue(()));
            }
            if self.report(DrainStage::Moving(next.clone().unwrap_or_default())).is_break() {
                return Ok(ControlFlow::Break(()));
            }
        }
        if self.await_members(client, removal).await?.is_break() {
            return Ok(ControlFlow::Break(()));
        }
        match self.index.sweep_dead(client).await? {
            Swept::Refused(_) if self.refusals >= WALKS_MAX => return Err(IndexError::Options(DAMAGED)),
            Swept::Refused(_) => self.refusals += 1,
            Swept::Done(_) => self.refusals = 0,
        }
        let left = pool.blocks_left(client, removal).await?;
        if left > 0 {
            if self.report(DrainStage::Blocks(left)).is_break() {
                return Ok(ControlFlow::Break(()));
            }
            client.pause().await;
        }
        Ok(ControlFlow::Continue(()))
    }
}
