//! How blocks leave the heap of a process that continues: wholly free ones return to the pool, and
//! others are handed over, closed, to members that need room.
//!
//! Blocks fill up and empty as the pool is written to, and a single object in use keeps a block
//! with its owner. So when another member finds no room, this one hands over blocks of which an
//! eighth or more is free. Objects in such a block that this process holds and the index does not
//! must be gone when the block is closed, since a sweep by the next owner would treat them as free:
//!
//! 1. [`Blocks::begin_hand_over`]: from now on nothing is taken from the blocks, and clients empty
//!    their magazines when they begin an operation ([`Blocks::is_handing_over`]).
//! 2. When the operations that had begun before are over, the magazines of idle clients are
//!    emptied. Now no client has an object of the blocks in a magazine or in use, and
//!    [`Blocks::finish_hand_over`] closes them (`close`).
//!
//! Unlinked objects that wait to be freed may lie in the blocks. They are freed like objects in
//! other members' blocks, and sweeps wait for them.

use darter_fabric::Fabric;
use std::sync::atomic::Ordering;

use super::block::BlockWord;
use super::close::Closing;
use super::heap::{Heap, OwnBlock, Page};
use super::layout::{BlockId, PageId};
use super::share::Blocks;
use crate::error::PoolError;

/// Most blocks of one node and kind that are handed over at once.
const BLOCKS_AT_ONCE: usize = 4;
/// A block is handed over if at least one part in this many is free.
const ROOM_PART_MIN: u64 = 8;

impl OwnBlock {
    /// Whether no verb of this process can change its pages.
    fn is_at_rest(&self) -> bool {
        self.pages.iter().all(|page| match page {
            Page::Taken => false,
            Page::Slab(slab) => !slab.claiming,
            _ => true,
        })
    }

    /// Bytes of its objects in use.
    pub(super) fn object_bytes(&self) -> u64 {
        self.slabs().map(|(_, slab)| slab.object_bytes()).sum()
    }
}

impl Heap {
    /// Takes wholly free blocks out of circulation, except `keep` of them on nodes that stay.
    pub(crate) fn begin_return(&mut self, keep: usize) -> Vec<(BlockId, BlockWord)> {
        let all = self.layout.pages;
        let is_empty = |block: &OwnBlock| block.free_pages == all && !block.leaving;
        let is_kept = |id: BlockId| self.layout.accepts(id.node);
        // Blocks on a node that is leaving go first, and all of them.
        let must_go = self.blocks.iter().filter(|(id, block)| is_empty(block) && !is_kept(**id)).count();
        let surplus = self.empty_blocks.saturating_sub(keep).max(must_go);
        if surplus == 0 {
            return Vec::new();
        }
        let mut empty: Vec<_> = self.blocks.iter_mut().filter(|(_, block)| is_empty(block)).collect();
        if must_go > 0 {
            empty.sort_by_key(|(id, _)| self.layout.accepts(id.node));
        }
        let mut leaving = Vec::with_capacity(surplus);
        for (&id, block) in empty.into_iter().take(surplus) {
            block.leaving = true;
            leaving.push((id, block.word));
        }
        self.empty_blocks -= leaving.len();
        for &(id, _) in &leaving {
            if let Some(block) = self.blocks.get(&id) {
                self.open[Self::open_index(id.node, block.kind)].retain(|&other| other != id);
            }
        }
        leaving
    }

    /// Returns the blocks that are being returned, for a caller that repeats the return.
    pub(crate) fn leaving(&self) -> Vec<(BlockId, BlockWord)> {
        self.blocks.iter().filter(|(_, block)| block.leaving).map(|(&id, block)| (id, block.word)).collect()
    }

    /// Forgets a block that no longer belongs to this process.
    pub(crate) fn finish_return(&mut self, id: BlockId, word: BlockWord) {
        if self.blocks.get(&id).is_some_and(|block| block.leaving && block.word == word) {
            self.blocks.remove(&id);
        }
    }

    /// Chooses the blocks with the most room of each node and kind to hand over, if a member `is_asking`
    /// for room, and takes nothing more from them. Keeps the one with the most room of each, unless
    /// this process `is_idle`. Also chooses all blocks on nodes that are leaving. Returns whether
    /// there are any.
    pub(crate) fn begin_hand_over(&mut self, is_idle: bool, is_asking: bool) -> bool {
        let least = self.layout.block_bytes / ROOM_PART_MIN;
        let mut roomy: Vec<_> = self
            .blocks
            .iter()
            .filter(|(_, block)| !block.leaving && block.is_at_rest())
            .map(|(&id, block)| (Self::open_index(id.node, block.kind), block.room(&self.layout), id))
            .filter(|&(_, room, id)| is_asking && room >= least && self.layout.accepts(id.node))
            .collect();
        roomy.sort_unstable_by_key(|&(list, room, id)| (list, std::cmp::Reverse(room), id));
        let kept = usize::from(!is_idle);
        let chosen = roomy
            .chunk_by(|one, other| one.0 == other.0)
            .flat_map(|same| same.iter().skip(kept).take(BLOCKS_AT_ONCE))
            .map(|&(_, _, id)| id);
        let is_leaving = |id: BlockId, block: &OwnBlock| {
            !self.layout.accepts(id.node) && !block.leaving && block.is_at_rest()
        };
        let leaving = self.blocks.iter().filter(|(id, block)| is_leaving(**id, block)).map(|(&id, _)| id);
        let chosen: Vec<_> = chosen.chain(leaving).collect();
        for &id in &chosen {
            let Some(block) = self.blocks.get_mut(&id) else { continue };
            block.handing = true;
            let list = Self::open_index(id.node, block.kind);
            self.open[list].retain(|&other| other != id);
            for page in 0..self.layout.pages {
                let page = PageId { block: id, page };
                let free = match self.block(id).map(|block| &block.pages[page.page as usize]) {
                    Some(Page::Slab(slab)) => slab.free,
                    _ => continue,
                };
                self.dequeue(page, free);
            }
        }
        !chosen.is_empty()
    }

    /// Resumes taking objects from blocks that were about to be handed over.
    pub(crate) fn end_hand_over(&mut self) {
        let handing: Vec<_> =
            self.blocks.iter().filter(|(_, block)| block.handing).map(|(&id, _)| id).collect();
        for id in handing {
            let Some(block) = self.blocks.get_mut(&id) else { continue };
            block.handing = false;
            if block.leaving {
                continue;
            }
            if block.free_pages > 0 {
                let list = Self::open_index(id.node, block.kind);
                self.open[list].push(id);
            }
            for page in 0..self.layout.pages {
                self.enqueue(PageId { block: id, page });
            }
        }
    }

    /// Removes a block that is handed over from the heap. Skips blocks whose pages verbs of this
    /// process may change, and those on nodes that are away.
    pub(crate) fn take_handed(&mut self, is_away: impl Fn(u8) -> bool) -> Option<(BlockId, OwnBlock)> {
        let is_ready = |(id, block): &(&BlockId, &OwnBlock)| {
            block.handing && !block.leaving && block.is_at_rest() && !is_away(id.node)
        };
        let id = self.blocks.iter().find(is_ready).map(|(&id, _)| id)?;
        let taken = self.blocks.remove_entry(&id)?;
        self.object_bytes -= taken.1.object_bytes();
        self.empty_blocks -= usize::from(taken.1.free_pages == self.layout.pages);
        Some(taken)
    }
}

impl<F: Fabric> Blocks<F> {
    /// Returns how often objects were taken from the heap.
    pub(crate) fn taken(&self) -> u64 {
        self.heap().taken
    }

    /// Whether clients empty their magazines because blocks are about to be handed over. A client
    /// checks this once it is pinned: either it finds this set, or step 2 finds it pinned.
    #[inline]
    pub(crate) fn is_handing_over(&self) -> bool {
        self.handing_over.load(Ordering::SeqCst)
    }

    /// From now on, this process hands over no blocks.
    #[cold]
    pub(crate) fn keep_blocks(&self) {
        self.never_hands_over.store(true, Ordering::SeqCst);
    }

    /// Whether this process has blocks on nodes that are leaving.
    pub(crate) fn has_blocks_to_clear(&self) -> bool {
        self.heap().blocks().any(|(id, _)| !self.layout().accepts(id.node))
    }

    /// Step 1. Returns whether there are blocks to hand over.
    pub(crate) fn begin_hand_over(&self, is_idle: bool, is_asking: bool) -> bool {
        if self.never_hands_over.load(Ordering::SeqCst) || !self.heap().begin_hand_over(is_idle, is_asking) {
            return false;
        }
        self.handing_over.store(true, Ordering::SeqCst);
        true
    }

    /// Ends a hand-over; blocks that were not handed over stay with this process.
    pub(crate) fn end_hand_over(&self) {
        self.heap().end_hand_over();
        self.handing_over.store(false, Ordering::SeqCst);
    }

    /// The end of step 2.
    pub(crate) async fn finish_hand_over(&self, endpoint: &mut F::Endpoint) -> Result<(), PoolError> {
        // An operation that was under way in step 1 may have kept an object.
        while !self.never_hands_over.load(Ordering::SeqCst) {
            let Some((block, books)) = self.heap().take_handed(|node| self.is_away(node)) else { break };
            let closing = Closing::new(self.layout(), block, &books);
            self.post_closing(endpoint, block, closing).await?;
        }
        self.end_hand_over();
        Ok(())
    }
}
