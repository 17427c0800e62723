//! The sweep of one block whose owner is gone: objects that the index does not reach are free.
//!
//! `adoption` describes when a block may be swept, and why that is safe. A swept block is left
//! closed for the first member that needs room. A sweeping process that kept the blocks might not
//! use them: it would hold all blocks of a hundred dead members, each with little in use, while
//! others found the pool full.

use darter_fabric::{Fabric, ObjectState};
use std::collections::HashMap;

use super::bits::ones;
use super::block::{BlockState, BlockWord};
use super::claims::SLABS_PER_BATCH;
use super::close::Closing;
use super::heap::{Claim, OwnBlock, Page};
use super::layout::{BlockId, PageId, SlotId};
use super::reachable::ReachableSet;
use super::rebuild::{Rebuilt, rebuild};
use super::share::Blocks;
use super::size_class::class_bytes;
use crate::error::PoolError;

/// The result of the sweep of one block.
pub(crate) struct Swept {
    /// Bytes of reachable objects.
    pub kept_bytes: u64,
    /// Bytes that can be allocated once the block is closed.
    pub room: u64,
    /// Reachable objects that contradict each other.
    pub violations: Vec<String>,
}

impl<F: Fabric> Blocks<F> {
    /// Finds the objects in use in a block that this process is sweeping. Returns the changes with
    /// which [`Blocks::post_closing`] then leaves the block closed, or free if nothing is in use.
    /// Changes nothing but the block's word. Returns `None` if another sweep was faster.
    pub(crate) async fn sweep(
        &self,
        endpoint: &mut F::Endpoint,
        block: BlockId,
        word: BlockWord,
        reachable: &ReachableSet,
    ) -> Result<Option<(Closing, Swept)>, PoolError> {
        // Change the word first: of two sweeps of this process, one continues and the other cannot
        // close the block.
        let reserved = word.next(BlockState::Sweeping, word.kind, self.me());
        if !self.change_word(endpoint, block, word, reserved).await? {
            return Ok(None);
        }
        let Rebuilt { mut books, kept_bytes, violations } =
            rebuild(self.layout(), block, reserved, reachable);
        // Read the objects that members have freed so far. Later frees of the other objects set
        // bits that are not set below.
        let (mut freed_bytes, mut set) = (0, HashMap::new());
        for slabs in books.claimable(block).chunks(SLABS_PER_BATCH) {
            for (slab, words) in slabs.iter().zip(self.read_bits(endpoint, slabs).await?) {
                let (addr, _) = self.layout().bitmap_of(slab.page, slab.class);
                for (word, bits) in words.into_iter().enumerate().filter(|(_, bits)| *bits != 0) {
                    set.insert(addr.plus(word as u64 * 8), bits);
                    books.give(slab.page.page, word, bits);
                    freed_bytes += self.met_bytes(*slab, (word, bits), reachable);
                }
            }
        }
        self.note_free(block, &books);
        let mut closing = Closing::new(self.layout(), block, &books);
        closing.bits.retain_mut(|(addr, bits)| {
            *bits &= !set.get(addr).copied().unwrap_or(0);
            *bits != 0
        });
        let room = if closing.is_empty() { self.layout().block_bytes } else { books.room(self.layout()) };
        Ok(Some((closing, Swept { kept_bytes: kept_bytes - freed_bytes, room, violations })))
    }

    /// Returns the bytes of those objects named by a word of a slab's freed bits that the walk has
    /// met: their sizes in the index, not those of their slots.
    fn met_bytes(&self, claim: Claim, (word, bits): (usize, u64), reachable: &ReachableSet) -> u64 {
        let met = |bit: u64| {
            let spot = SlotId { page: claim.page, slot: (word as u64 * 64 + bit) as u32 };
            reachable.extent(self.layout().object_addr(spot, claim.class)?)
        };
        ones(bits).filter_map(met).sum()
    }

    /// Reports the free memory of a block whose books were rebuilt to the observer.
    fn note_free(&self, block: BlockId, books: &OwnBlock) {
        for (page, held) in (0_u32..).zip(&books.pages) {
            let page = PageId { block, page };
            match held {
                Page::Free => {
                    // Page 0 begins with the block's own words.
                    let head = if page.page == 0 { u64::from(self.layout().pages) * 16 } else { 0 };
                    self.fabric().memory_observer().note_object(
                        self.layout().page_addr(page).plus(head),
                        self.layout().page_bytes - head,
                        ObjectState::Reclaimed,
                    );
                }
                Page::Slab(slab) => {
                    for (word, &bits) in slab.free_bits().iter().enumerate() {
                        for bit in ones(bits) {
                            let spot = SlotId { page, slot: (word as u64 * 64 + bit) as u32 };
                            if let Some(addr) = self.layout().object_addr(spot, slab.class) {
                                let bytes = class_bytes(slab.class);
                                self.fabric().memory_observer().note_object(
                                    addr,
                                    bytes,
                                    ObjectState::Reclaimed,
                                );
                            }
                        }
                    }
                }
                _ => {}
            }
        }
    }
}
