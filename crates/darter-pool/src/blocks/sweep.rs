//! The sweep of one block whose owner is gone: what the index does not reach is free.
//!
//! When a block may be swept, and why that is safe, `adoption` says. A swept block is left closed
//! for whoever needs room first: the sweeping process may have no use for it, and kept all blocks of
//! a hundred dead ones, each with little in use, while others found the pool full.

use darter_fabric::{Endpoint, Fabric, ObjectState, mutant};
use std::collections::HashMap;

use super::bits::ones;
use super::block::{BlockState, BlockWord};
use super::close::Closing;
use super::heap::{Claim, OwnBlock, Page};
use super::layout::{BlockId, PAGE_BYTES, PageId, Spot, run_pages};
use super::reachable::ReachableSet;
use super::rebuild::{Rebuilt, rebuild};
use super::share::Blocks;
use super::size_class::class_bytes;
use crate::error::PoolError;
use crate::round_trip::submit;

/// Pages whose freed bits are read in one batch.
const PAGES_PER_BATCH: usize = 64;

/// A block whose sweep has found out what is in use in it.
pub(crate) struct Sweep {
    block: BlockId,
    closing: Closing,
    /// Bytes of reachable objects.
    pub kept_bytes: u64,
    /// Bytes that can be allocated once the block is closed.
    pub room: u64,
    /// Reachable objects that contradict each other.
    pub violations: Vec<String>,
}

impl<F: Fabric> Blocks<F> {
    /// Finds out what is in use in a block that this process is sweeping. Changes nothing but the
    /// block's word. Returns `None` if another sweep was faster.
    pub(crate) async fn begin_sweep(
        &self,
        endpoint: &mut F::Endpoint,
        block: BlockId,
        word: BlockWord,
        reachable: &ReachableSet,
    ) -> Result<Option<Sweep>, PoolError> {
        // A new word first: of two sweeps of this process one goes on, and the other cannot close
        // the block.
        let reserved = word.next(BlockState::Sweeping, word.kind, self.me());
        if !self.change_word(endpoint, block, word, reserved).await? {
            return Ok(None);
        }
        let Rebuilt { mut books, kept_bytes, violations } =
            rebuild(self.layout(), block, reserved, reachable);
        let pages: Vec<Claim> = (0u32..)
            .zip(&books.pages)
            .filter_map(|(page, held)| {
                let class = match held {
                    Page::Slab(slab) => slab.class,
                    Page::Run { class, .. } => *class,
                    _ => return None,
                };
                Some(Claim { page: PageId { block, page }, class })
            })
            .collect();
        // What members have freed so far. What they free of the others from now on sets bits that
        // are not set below.
        let (mut freed_bytes, mut set) = (0, HashMap::new());
        for pages in pages.chunks(PAGES_PER_BATCH) {
            let places: Vec<_> =
                pages.iter().map(|page| self.layout().bitmap_of(page.page, page.class)).collect();
            let mut batch = endpoint.batch();
            let reads: Vec<_> = places.iter().map(|&(addr, words)| batch.read(addr, words)).collect();
            let done = submit(endpoint, batch).await?;
            for ((page, &(addr, _)), &read) in pages.iter().zip(&places).zip(&reads) {
                for (word, &bits) in done.words(read).iter().enumerate().filter(|(_, bits)| **bits != 0) {
                    set.insert(addr.plus(word as u64 * 8), bits);
                    if !mutant!("sweep-ignores-freed-bits") {
                        freed_bytes += free_bits(&mut books, *page, word, bits);
                    }
                }
            }
        }
        self.note_free(block, &books);
        let mut closing = Closing::new(self.layout(), block, &books);
        if !mutant!("sweep-adds-bits-that-are-set") {
            closing.bits.retain_mut(|(addr, bits)| {
                *bits &= !set.get(addr).copied().unwrap_or(0);
                *bits != 0
            });
        }
        let room = if closing.is_empty() { self.layout().block_bytes } else { books.room() };
        Ok(Some(Sweep { block, closing, kept_bytes: kept_bytes - freed_bytes, room, violations }))
    }

    /// Leaves a swept block closed, or free if nothing is in use in it. The verbs must not be posted
    /// twice: no sweep of this process may begin anew when this one does not return. Returns
    /// whether the block was still this sweep's.
    pub(crate) async fn end_sweep(
        &self,
        endpoint: &mut F::Endpoint,
        Sweep { block, closing, .. }: Sweep,
    ) -> Result<bool, PoolError> {
        self.post_closing(endpoint, block, closing).await
    }

    /// Notes what is free in a block whose books were rebuilt.
    fn note_free(&self, block: BlockId, books: &OwnBlock) {
        for (page, held) in (0_u32..).zip(&books.pages) {
            let page = PageId { block, page };
            match held {
                Page::Free => {
                    // Page 0 begins with the block's own words.
                    let head = if page.page == 0 { u64::from(self.layout().pages) * 16 } else { 0 };
                    self.fabric().note_object(
                        self.layout().page_addr(page).plus(head),
                        PAGE_BYTES - head,
                        ObjectState::Reclaimed,
                    );
                }
                Page::Slab(slab) => {
                    for (word, &bits) in slab.free_bits().iter().enumerate() {
                        for bit in ones(bits) {
                            let spot = Spot { page, slot: (word as u64 * 64 + bit) as u32 };
                            if let Some(addr) = self.layout().object_addr(spot, slab.class) {
                                let bytes = class_bytes(slab.class);
                                self.fabric().note_object(addr, bytes, ObjectState::Reclaimed);
                            }
                        }
                    }
                }
                _ => {}
            }
        }
    }
}

/// Frees in a block's books what a word of a page's freed bits names; returns its bytes.
fn free_bits(books: &mut OwnBlock, page: Claim, word: usize, bits: u64) -> u64 {
    let first = page.page.page as usize;
    match &mut books.pages[first] {
        Page::Slab(slab) => u64::from(slab.give_word(word, bits)) * class_bytes(slab.class),
        Page::Run { class, .. } if word == 0 && bits & 1 != 0 => {
            let (bytes, pages) = (class_bytes(*class), run_pages(*class).unwrap_or(1));
            books.pages[first..first + pages as usize].fill_with(|| Page::Free);
            books.free_pages += pages;
            bytes
        }
        _ => 0,
    }
}
