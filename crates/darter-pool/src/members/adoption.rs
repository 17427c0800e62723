//! Adoption and sweep: how memory that dead members held is recovered (DART, section 4.5, "Client
//! Crashes").
//!
//! A dead member's books are gone; the objects in use in its blocks are those that the index
//! reaches. One sweep:
//!
//! 1. [`crate::Pool::adopt`]: CAS each block whose owner is dead to SWEEPING(me). From then on no
//!    member allocates in it, so any object that becomes reachable later lies elsewhere. Closed
//!    blocks are taken too: they may hold objects that were in a member's limbo when it closed.
//! 2. The index walks, collects the objects that it reaches, and clears hints that name any other.
//! 3. [`crate::Pool::finish_adoption`] reads the global epoch `w`, then waits until every live
//!    member's *flushed* epoch is above `w`: every operation that was under way is over, and every
//!    object that any member had unlinked has been freed for good, which for these blocks means
//!    that its freed bit has landed. Every slot that the walk did not reach is free, whatever its
//!    bit says; of the reached slots, those whose bit is set are free. The missing bits are added,
//!    and the block is closed: the next process that needs room takes it, this one or another.
//!
//! *No double free.* A slot that the walk did not reach was unlinked before the walk ended, and so
//! before `w` was read: by an operation born at `w` or earlier, whose freed bit landed before step
//! 3 read the bits; or by a member that is dead and was fenced. So no bit for it can land later. A
//! slot that the walk did reach is freed only by its bit. *No reader.* Readers pinned at `w` or
//! earlier are gone, and hints to unreached objects were cleared before `w`.
//!
//! *No bit is added twice.* A sweep that is cut short while it adds bits may have some in flight.
//! So no other sweep of this process takes that block: it stays SWEEPING until the process ends and
//! is fenced.
//!
//! If a member makes no progress, nothing is freed; the blocks stay SWEEPING and a later adoption
//! takes them again. If the sweeping process dies in between, its blocks are a dead member's:
//! sweeping them again loses nothing.

use darter_fabric::Fabric;
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use super::member::MemberTable;
use super::membership::Members;
use crate::blocks::{BlockId, BlockState, BlockWord, Blocks, ReachableSet, VIOLATIONS_MAX};
use crate::error::PoolError;
use crate::sync::lock;

/// A block taken for a sweep.
#[derive(Clone, Copy, Debug)]
struct Adopted {
    block: BlockId,
    word: BlockWord,
    /// Bytes that could be allocated in it before the sweep.
    room: u64,
}

/// Blocks taken for a sweep.
#[derive(Debug)]
#[must_use = "walk the index, then pass it to finish_adoption"]
pub struct Adoption {
    blocks: Vec<Adopted>,
    /// All blocks that this process is sweeping, including these until this is dropped.
    in_sweep: Arc<Mutex<BTreeSet<BlockId>>>,
    dead_blocks: u64,
    block_bytes: u64,
}

impl Drop for Adoption {
    fn drop(&mut self) {
        let mut in_sweep = lock(&self.in_sweep);
        for adopted in &self.blocks {
            in_sweep.remove(&adopted.block);
        }
    }
}

impl Adoption {
    /// Number of blocks taken.
    pub fn blocks(&self) -> u64 {
        self.blocks.len() as u64
    }

    /// Number of these blocks whose owner has died; the others were left by a clean close.
    pub fn dead_blocks(&self) -> u64 {
        self.dead_blocks
    }

    /// Bytes of these blocks.
    pub fn bytes(&self) -> u64 {
        self.blocks() * self.block_bytes
    }

    /// Whether there is nothing to sweep.
    pub fn is_empty(&self) -> bool {
        self.blocks.is_empty()
    }
}

/// The result of a sweep.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SweepReport {
    /// Whether the blocks were swept; if not, [`SweepReport::waiting_for`] names the members that
    /// prevented it.
    pub finished: bool,
    /// Blocks swept.
    pub blocks: u64,
    /// Bytes of reachable objects in them.
    pub kept_bytes: u64,
    /// Bytes that can be allocated in them now and could not before.
    pub reclaimed_bytes: u64,
    /// Slots of live members that made no progress. If this process is among them, one of its
    /// operations is under way, or objects wait for `take_graced`.
    pub waiting_for: Vec<u32>,
    /// Reachable objects that contradict each other; their pages are kept out of use. At most
    /// 1,000.
    pub violations: Vec<String>,
}

impl Members {
    /// Takes the blocks whose owners are dead, closed blocks, and the blocks of this process's
    /// sweeps that were cut short. `tables` are the words of the nodes' block tables, read before
    /// the members.
    pub(crate) async fn adopt<F: Fabric>(
        &self,
        endpoint: &mut F::Endpoint,
        blocks: &Blocks<F>,
        tables: Vec<Vec<u64>>,
        members: &MemberTable,
    ) -> Result<Adoption, PoolError> {
        let in_sweep = self.in_sweep();
        let mut adoption = Adoption {
            blocks: Vec::new(),
            in_sweep: Arc::clone(in_sweep),
            dead_blocks: 0,
            block_bytes: blocks.layout().block_bytes,
        };
        for (node, table) in (0u8..).zip(tables) {
            for (index, word) in (0u32..).zip(table) {
                let (Some(word), block) = (BlockWord::decode(word), BlockId { node, index }) else {
                    continue;
                };
                let is_dead = word.owner().is_some_and(|owner| !members.is_live(owner));
                let is_mine = word.state == BlockState::Sweeping && word.owner() == Some(self.me());
                if is_mine {
                    // A sweep that was cut short left it, or another thread is sweeping it.
                    if lock(in_sweep).insert(block) {
                        adoption.blocks.push(Adopted { block, word, room: 0 });
                    }
                } else if is_dead || word.state == BlockState::Closed {
                    let taken = word.next(BlockState::Sweeping, word.kind, self.me());
                    if blocks.change_word(endpoint, block, word, taken).await? {
                        lock(in_sweep).insert(block);
                        adoption.blocks.push(Adopted { block, word: taken, room: word.closed_room() });
                        adoption.dead_blocks += u64::from(is_dead);
                    }
                }
            }
        }
        Ok(adoption)
    }

    /// Sweeps adopted blocks, after every member has flushed the objects that it had unlinked.
    pub(crate) async fn sweep<F: Fabric>(
        &self,
        endpoint: &mut F::Endpoint,
        blocks: &Blocks<F>,
        mut adoption: Adoption,
        reachable: &ReachableSet,
    ) -> Result<SweepReport, PoolError> {
        let mut report = SweepReport { finished: true, ..SweepReport::default() };
        while let Some(&Adopted { block, word, room }) = adoption.blocks.last() {
            let swept = blocks.sweep(endpoint, block, word, reachable).await?;
            // Taken out here and not when the adoption is dropped: see "no bit is added twice".
            adoption.blocks.pop();
            if let Some((closing, swept)) = swept {
                if blocks.post_closing(endpoint, block, closing).await? {
                    report.blocks += 1;
                    report.kept_bytes += swept.kept_bytes;
                    report.reclaimed_bytes += swept.room.saturating_sub(room);
                }
                let left = VIOLATIONS_MAX.saturating_sub(report.violations.len());
                report.violations.extend(swept.violations.into_iter().take(left));
            }
            lock(self.in_sweep()).remove(&block);
        }
        Ok(report)
    }
}
