//! The sweep of one block whose owner is gone: what the index does not reach is free.
//!
//! When a block may be swept, and why that is safe, `adoption` says.

use darter_fabric::{Endpoint, Fabric, ObjectState, mutant};

use super::bits::ones;
use super::block::{BlockState, BlockWord};
use super::heap::{Claim, Heap, OwnBlock, Page};
use super::layout::{BlockId, Layout, PAGE_BYTES, PageId, Spot, run_pages};
use super::reachable::ReachableSet;
use super::rebuild::{Rebuilt, rebuild};
use super::share::Blocks;
use super::size_class::class_bytes;
use crate::error::PoolError;
use crate::round_trip::submit;

/// What came of the sweep of one block.
pub(crate) struct Swept {
    /// Bytes of reachable objects.
    pub kept_bytes: u64,
    /// Bytes that can be allocated now.
    pub reclaimed_bytes: u64,
    /// Reachable objects that contradict each other.
    pub violations: Vec<String>,
}

impl<F: Fabric> Blocks<F> {
    /// Takes one block that this process is sweeping into the heap, with exact books. Returns
    /// `None` if another sweep was faster.
    pub(crate) async fn sweep(
        &self,
        endpoint: &mut F::Endpoint,
        block: BlockId,
        word: BlockWord,
        reachable: &ReachableSet,
    ) -> Result<Option<Swept>, PoolError> {
        // A new word first: of two sweeps of this process one goes on, and the other cannot touch
        // what it made.
        let reserved = word.next(BlockState::Sweeping, word.kind, self.me());
        if !self.change_word(endpoint, block, word, reserved).await? {
            return Ok(None);
        }
        let word = reserved;
        let Rebuilt { mut books, kept_bytes, violations } = rebuild(self.layout(), block, word, reachable);
        let claims: Vec<Claim> = (0u32..)
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
        // What members freed since the walk. Before the block is in the heap: a slot could be
        // allocated again meanwhile.
        let mut freed_bytes = 0;
        for claims in claims.chunks(64) {
            for (claim, won) in claims.iter().zip(self.fetch_bits(endpoint, claims).await?) {
                if !mutant!("sweep-drops-the-bits-it-fetched") {
                    freed_bytes += free_won(&mut books, *claim, &won);
                }
            }
        }
        let owned = word.next(BlockState::Owned, word.kind, self.me());
        let mut batch = endpoint.batch();
        batch.write(self.layout().block_addr(block), &Heap::page_words(&books));
        let cas = batch.cas(Layout::block_word(block), word.encode(), owned.encode());
        let is_ours = submit(endpoint, batch).await?.swapped(cas);
        if !is_ours {
            // Another sweep is at it, and what that makes of the block holds.
            return Ok(None);
        }
        if !mutant!("sweep-keeps-the-old-block-word") {
            books.word = owned;
        }
        self.note_free(block, &books);
        let swept = Swept { kept_bytes: kept_bytes - freed_bytes, reclaimed_bytes: books.room(), violations };
        let claims = self.heap().add_and_claim(block, books);
        // What was freed since the bits were fetched.
        if !mutant!("sweep-fetches-freed-bits-once") {
            self.fetch_claims(endpoint, &claims).await?;
        }
        Ok(Some(swept))
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

/// Frees in a block's books what members have freed; returns its bytes.
fn free_won(books: &mut OwnBlock, claim: Claim, won: &[(usize, u64)]) -> u64 {
    let first = claim.page.page as usize;
    match &mut books.pages[first] {
        Page::Slab(slab) => {
            let bytes = class_bytes(slab.class);
            won.iter().map(|&(word, bits)| u64::from(slab.give_word(word, bits)) * bytes).sum()
        }
        Page::Run { class, .. } if won.iter().any(|&(word, bits)| word == 0 && bits & 1 != 0) => {
            let (bytes, pages) = (class_bytes(*class), run_pages(*class).unwrap_or(1));
            books.pages[first..first + pages as usize].fill_with(|| Page::Free);
            books.free_pages += pages;
            bytes
        }
        _ => 0,
    }
}
