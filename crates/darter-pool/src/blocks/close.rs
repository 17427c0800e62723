//! How blocks stay behind at the end of a membership: closed, with exact books for the next owner.
//!
//! For each block: FAA the bits of its free objects onto the freed bitmaps, WRITE the page words,
//! CAS the block's word to CLOSED, in this order in one batch. The bits that are added are those
//! the heap has free; the bits already there are what others freed and this process has not
//! fetched. The two never overlap, so adding is joining, also while others go on. If the process
//! dies in between, the block's word still names it, and a sweep does not trust the bits.

use darter_fabric::{Endpoint, Fabric, GlobalAddr, mutant};

use super::block::BlockWord;
use super::heap::{Heap, OwnBlock, Page};
use super::layout::{BlockId, Layout, PageId};
use super::share::Blocks;
use super::size_class::class_bytes;
use crate::error::PoolError;
use crate::round_trip::submit;

/// Freed words set in one batch.
const WORDS_PER_BATCH: usize = 4096;

impl<F: Fabric> Blocks<F> {
    /// Closes all blocks of this process.
    pub(crate) async fn close_all(&self, endpoint: &mut F::Endpoint) -> Result<(), PoolError> {
        let blocks: Vec<BlockId> = self.heap().blocks().map(|(&block, _)| block).collect();
        for block in blocks {
            self.close_block(endpoint, block).await?;
        }
        Ok(())
    }

    /// Leaves one block closed, with exact books.
    pub(crate) async fn close_block(
        &self,
        endpoint: &mut F::Endpoint,
        block: BlockId,
    ) -> Result<(), PoolError> {
        let Some((bits, page_words, word, closed)) = self.books(block) else { return Ok(()) };
        let mut batch = endpoint.batch();
        if mutant!("close-says-closed-before-its-books") {
            batch.cas(Layout::block_word(block), word.encode(), closed.encode());
        }
        for (at, (addr, bits)) in bits.into_iter().enumerate() {
            if at % WORDS_PER_BATCH == WORDS_PER_BATCH - 1 {
                submit(endpoint, batch).await?;
                batch = endpoint.batch();
            }
            if mutant!("close-writes-over-freed-bits") {
                batch.write(addr, &[bits]);
            } else {
                batch.faa(addr, bits);
            }
        }
        batch.write(self.layout().block_addr(block), &page_words);
        batch.cas(Layout::block_word(block), word.encode(), closed.encode());
        submit(endpoint, batch).await?;
        Ok(())
    }

    /// The bits of a block's free objects, its page words, its word and the next.
    #[allow(clippy::type_complexity)] // a private tuple, taken apart at once
    fn books(&self, block: BlockId) -> Option<(Vec<(GlobalAddr, u64)>, Vec<u64>, BlockWord, BlockWord)> {
        let heap = self.heap();
        let books: &OwnBlock = heap.block(block)?;
        if books.leaving {
            return None;
        }
        let mut bits = Vec::new();
        for (page, held) in (0u32..).zip(&books.pages) {
            let Page::Slab(slab) = held else { continue };
            if slab.free == slab.count {
                continue; // its page word will say that the page is free
            }
            let (addr, _) = self.layout().bitmap_of(PageId { block, page }, slab.class);
            let words = slab.free_bits().iter().enumerate().filter(|(_, bits)| **bits != 0);
            bits.extend(words.map(|(at, &bits)| (addr.plus(at as u64 * 8), bits)));
        }
        debug_assert!(books.room() <= self.layout().block_bytes + class_bytes(127));
        Some((bits, Heap::page_words(books), books.word, books.word.closed(books.room())))
    }
}
