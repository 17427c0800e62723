//! The end of a membership: exact books for whoever comes next.
//!
//! For each block: FAA the bits of its free objects onto the freed bitmaps, WRITE the page words, CAS the block's word
//! to CLOSED, in this order in one batch. The bits that are added are those the heap has free; the bits already there
//! are what others freed and we have not fetched: they never overlap, so adding is joining, also while others go on.
//! If the process dies in between, the block's word still names it, and a sweep does not trust the bits.
//!
//! What is still in limbo when other members hold the epoch back stays in use; a sweep finds it.

use darter_fabric::{Endpoint, Fabric, block_on, mutant};
use std::sync::atomic::Ordering;

use crate::block::{BlockState, BlockWord};
use crate::epoch::lock;
use crate::heap::{Heap, OwnBlock, Page};
use crate::layout::{BlockId, Layout, PageId};
use crate::pool::Shared;
use crate::size_class::class_bytes;
use crate::{PoolError, member};

/// Freed words set in one batch.
const WORDS_PER_BATCH: usize = 4096;

impl<F: Fabric> Shared<F> {
    /// Closes once; later calls do nothing.
    pub(crate) async fn close(&mut self) -> Result<(), PoolError> {
        if self.closing.swap(true, Ordering::SeqCst) {
            return Ok(());
        }
        let mut endpoint = self.fabric.endpoint()?;
        self.settle(&mut endpoint).await?;
        let lingering = self.clients.all().iter().any(|client| *lock(&client.lingering));
        if lingering && !mutant!("close-over-lingering-pins") {
            // Verbs of cancelled operations are still on their way into our blocks: leave as a dead process would.
            return Ok(());
        }
        let blocks: Vec<BlockId> = lock(&self.heap).blocks().map(|(&block, _)| block).collect();
        for block in blocks {
            self.close_block(&mut endpoint, block).await?;
        }
        member::end(&mut endpoint, self.me).await
    }

    /// Takes over closed blocks in which this process has freed objects, so that those with nothing left in them go
    /// back to the pool.
    pub(crate) async fn reopen_touched(&self, endpoint: &mut F::Endpoint) -> Result<(), PoolError> {
        let touched = std::mem::take(&mut *lock(&self.touched));
        for block in touched {
            let mut batch = endpoint.batch();
            let read = batch.read(Layout::block_word(block), 1);
            let batch = endpoint.submit(batch).await?;
            let word = BlockWord::decode(batch.words(read)[0]);
            endpoint.recycle(batch);
            if let Some(word) = word.filter(|word| word.state == BlockState::Closed) {
                self.reopen(endpoint, block, word).await?;
            }
        }
        Ok(())
    }

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
                let done = endpoint.submit(batch).await?;
                endpoint.recycle(done);
                batch = endpoint.batch();
            }
            if mutant!("close-writes-over-freed-bits") {
                batch.write(addr, &[bits]);
            } else {
                batch.faa(addr, bits);
            }
        }
        batch.write(self.layout.block_addr(block), &page_words);
        batch.cas(Layout::block_word(block), word.encode(), closed.encode());
        let done = endpoint.submit(batch).await?;
        endpoint.recycle(done);
        Ok(())
    }

    /// The bits of a block's free objects, its page words, its word and the next.
    #[allow(clippy::type_complexity)] // a private tuple, taken apart at once
    fn books(
        &self,
        block: BlockId,
    ) -> Option<(Vec<(darter_fabric::GlobalAddr, u64)>, Vec<u64>, BlockWord, BlockWord)> {
        let heap = lock(&self.heap);
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
            let (addr, _) = self.bitmap_of(PageId { block, page }, slab.class);
            let words = slab.free_bits().iter().enumerate().filter(|(_, bits)| **bits != 0);
            bits.extend(words.map(|(at, &bits)| (addr.plus(at as u64 * 8), bits)));
        }
        debug_assert!(books.room() <= self.layout.block_bytes + class_bytes(127));
        Some((bits, Heap::page_words(books), books.word, books.word.closed(books.room())))
    }
}

impl<F: Fabric> Drop for Shared<F> {
    fn drop(&mut self) {
        if !*self.closing.get_mut() {
            // There is nobody left to tell about an error; the blocks are then swept like a dead member's.
            let _ = block_on(self.close());
        }
    }
}
