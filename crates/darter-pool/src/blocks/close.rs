//! How blocks are left at the end of a membership, or after a sweep: closed, with exact books for
//! the next owner.
//!
//! For each block, one batch does the following in this order: FAA the bits of its free objects
//! onto the freed bitmaps, WRITE the page words, CAS the block's word to CLOSED. The added bits are
//! the objects that are free in the heap; the bits already there are the objects that others freed
//! and this process has not fetched. The two never overlap, so adding forms their union, even while
//! others free objects. If the process dies in between, the block's word still names it, and a
//! sweep does not trust the bits.
//!
//! A medium may damage the books, and objects would then be allocated where others are in use. So
//! the next owner verifies what it can ([`Blocks::books_left`]).

use darter_fabric::{Endpoint, Fabric, GlobalAddr};

use super::block::{BlockState, BlockWord};
use super::claims::SLABS_PER_BATCH;
use super::heap::{Heap, OwnBlock, Page};
use super::layout::{BlockId, Layout, PageId};
use super::share::Blocks;
use crate::error::PoolError;
use crate::round_trip::submit;

/// Freed words set in one batch.
const WORDS_PER_BATCH: usize = 4096;

impl<F: Fabric> Blocks<F> {
    /// Closes all blocks of this process, except blocks on a node that was given up.
    pub(crate) async fn close_all(&self, endpoint: &mut F::Endpoint) -> Result<(), PoolError> {
        let is_there = |block: &BlockId| !self.layout().is_removed(block.node);
        let blocks: Vec<BlockId> = self.heap().blocks().map(|(&block, _)| block).filter(is_there).collect();
        for block in blocks {
            self.close_block(endpoint, block).await?;
        }
        Ok(())
    }

    /// Leaves one block of this process closed, with exact books.
    pub(super) async fn close_block(
        &self,
        endpoint: &mut F::Endpoint,
        block: BlockId,
    ) -> Result<(), PoolError> {
        let closing = {
            let heap = self.heap();
            let Some(books) = heap.block(block).filter(|books| !books.leaving) else { return Ok(()) };
            Closing::new(self.layout(), block, books)
        };
        self.post_closing(endpoint, block, closing).await.map(drop)
    }

    /// Closes a block. Returns whether its word was still the one that the books name. Bits must
    /// not be added twice: if this does not return, this process must not try again.
    pub(crate) async fn post_closing(
        &self,
        endpoint: &mut F::Endpoint,
        block: BlockId,
        closing: Closing,
    ) -> Result<bool, PoolError> {
        let Closing { bits, page_words, word, next } = closing;
        let mut batch = endpoint.batch();
        for (at, (addr, bits)) in bits.into_iter().enumerate() {
            if at % WORDS_PER_BATCH == WORDS_PER_BATCH - 1 {
                submit(endpoint, batch).await?;
                batch = endpoint.batch();
            }
            batch.faa(addr, bits);
        }
        batch.write(self.layout().block_addr(block), &page_words);
        let cas = batch.cas(Layout::block_word(block), word.encode(), next.encode());
        Ok(submit(endpoint, batch).await?.swapped(cas))
    }

    /// Reads the books of a block that had this word when it was closed, and verifies them: the page
    /// words match the word's checksum; the freed bits name only objects that exist, and have at least the
    /// room that was left.
    pub(super) async fn books_left(
        &self,
        endpoint: &mut F::Endpoint,
        block: BlockId,
        word: BlockWord,
    ) -> Result<BooksLeft, PoolError> {
        let mut batch = endpoint.batch();
        let read = batch.read(self.layout().block_addr(block), self.layout().pages as usize);
        let page_words = submit(endpoint, batch).await?.words(read).to_vec();
        let mut books = OwnBlock::from_page_words(self.layout(), word, &page_words);
        let (BlockId { node, index }, mut damage) = (block, Vec::new());
        if !word.has_left(&page_words) {
            damage.push(format!("block {index} of node {node}: its page words are damaged"));
        }
        for slabs in books.claimable(block).chunks(SLABS_PER_BATCH) {
            for (slab, words) in slabs.iter().zip(self.read_bits(endpoint, slabs).await?) {
                for (at, bits) in words.into_iter().enumerate() {
                    if books.give(slab.page.page, at, bits) < bits.count_ones() {
                        let addr = self.layout().page_addr(slab.page);
                        damage.push(format!(
                            "{addr}: word {at} of the freed bits, {bits:#x}, names objects that the page does not have"
                        ));
                    }
                }
            }
        }
        let (room, least) = (books.room(self.layout()), word.closed_room());
        if room < least {
            damage.push(format!(
                "block {index} of node {node}: it has {room} bytes of room, and {least} were left"
            ));
        }
        Ok(BooksLeft { page_words, books, damage })
    }
}

/// The books that the last owner left in a closed block, with the objects that others have freed
/// since then.
pub(super) struct BooksLeft {
    pub page_words: Vec<u64>,
    pub books: OwnBlock,
    /// What shows that the books are damaged.
    pub damage: Vec<String>,
}

/// The changes that close a block.
pub(crate) struct Closing {
    /// The words of freed bitmaps, with the bits to add.
    pub(super) bits: Vec<(GlobalAddr, u64)>,
    page_words: Vec<u64>,
    word: BlockWord,
    next: BlockWord,
}

impl Closing {
    /// Prepares to close a block with these books, or to free it if nothing is in use.
    pub(super) fn new(layout: &Layout, block: BlockId, books: &OwnBlock) -> Self {
        let mut bits = Vec::new();
        let mut is_empty = true;
        for (page, held) in (0u32..).zip(&books.pages) {
            let Page::Slab(slab) = held else {
                // A further page does not matter: its slab may be free.
                is_empty &= matches!(held, Page::Free | Page::Tail);
                continue;
            };
            if slab.free == slab.count {
                continue; // its page word will say that its pages are free
            }
            is_empty = false;
            let (addr, _) = layout.bitmap_of(PageId { block, page }, slab.class);
            let words = slab.free_bits().iter().enumerate().filter(|(_, bits)| **bits != 0);
            bits.extend(words.map(|(at, &bits)| (addr.plus(at as u64 * 8), bits)));
        }
        let room = books.room(layout);
        debug_assert!(room <= layout.block_bytes);
        let page_words = Heap::page_words(layout, books);
        let next = if is_empty { books.word.freed() } else { books.word.closed(room, &page_words) };
        Self { bits, page_words, word: books.word, next }
    }

    /// Whether the block has nothing in use.
    pub(super) fn is_empty(&self) -> bool {
        self.next.state == BlockState::Free
    }
}
