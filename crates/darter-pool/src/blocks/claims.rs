//! Claims: how an owner gets back the objects that others freed in its slabs.
//!
//! A member that frees an object in another's block sets the object's bit in the slab's freed
//! bitmap. The owner reads the bitmaps and clears the bits that it finds by CAS, so that each bit
//! is won once. Until then, the slab remains a slab of its class (`heap`).

use darter_fabric::{Endpoint, Fabric};

use super::heap::{Claim, ClaimFilter, OwnBlock, Page};
use super::layout::{BlockId, PageId};
use super::share::Blocks;
use crate::error::PoolError;
use crate::round_trip::submit;

/// Slabs whose freed bits sweeps and checks read in one batch.
pub(super) const SLABS_PER_BATCH: usize = 64;
/// Bitmap words fetched in one batch.
const BITMAP_WORDS_PER_BATCH: usize = 4096;

impl OwnBlock {
    /// Returns the slabs of a block, whose freed bits name objects.
    pub(super) fn claimable(&self, block: BlockId) -> Vec<Claim> {
        self.slabs().map(|(page, slab)| Claim { page: PageId { block, page }, class: slab.class }).collect()
    }

    /// Marks as free the objects that a word of a slab's freed bits names; returns how many of them
    /// were in use. For books that are not in a heap.
    pub(super) fn give(&mut self, page: u32, word: usize, bits: u64) -> u32 {
        match &mut self.pages[page as usize] {
            Page::Slab(slab) => slab.give_word(word, bits),
            _ => 0,
        }
    }
}

impl<F: Fabric> Blocks<F> {
    /// Reads the freed bitmaps of slabs, all in one batch.
    pub(super) async fn read_bits(
        &self,
        endpoint: &mut F::Endpoint,
        pages: &[Claim],
    ) -> Result<Vec<Vec<u64>>, PoolError> {
        let mut batch = endpoint.batch();
        let read = |claim: &Claim| {
            let (addr, words) = self.layout().bitmap_of(claim.page, claim.class);
            batch.read(addr, words)
        };
        let reads: Vec<_> = pages.iter().map(read).collect();
        let done = submit(endpoint, batch).await?;
        Ok(reads.iter().map(|&read| done.words(read).to_vec()).collect())
    }

    /// Fetches all objects that others freed, except on nodes that are away, and turns wholly free slabs
    /// into free pages.
    pub(crate) async fn claim_and_trim(&self, endpoint: &mut F::Endpoint) -> Result<(), PoolError> {
        if self.has_met_others() {
            let mut claims = Vec::new();
            for node in (0..self.layout().node_count()).filter(|&node| !self.is_away(node)) {
                let here = ClaimFilter { node: Some(node), kind: None, class: None, block: None };
                claims.extend(self.heap().begin_claims(here, usize::MAX, usize::MAX));
            }
            self.fetch_claims(endpoint, &claims).await?;
        }
        self.heap().trim();
        Ok(())
    }

    /// Fetches the freed bits of slabs and frees the objects that they name.
    pub(crate) async fn fetch_claims(
        &self,
        endpoint: &mut F::Endpoint,
        claims: &[Claim],
    ) -> Result<(), PoolError> {
        let mut rest = claims;
        while !rest.is_empty() {
            let mut words = 0;
            let fits = rest.iter().take_while(|claim| {
                words += self.layout().bitmap_of(claim.page, claim.class).1;
                words <= BITMAP_WORDS_PER_BATCH
            });
            let (now, later) = rest.split_at(fits.count().max(1));
            let won = self.fetch_bits(endpoint, now).await?;
            let mut heap = self.heap();
            for (&claim, won) in now.iter().zip(&won) {
                heap.finish_claim(claim, won);
            }
            rest = later;
        }
        Ok(())
    }

    /// Reads the freed bitmaps of slabs and clears the bits that it finds by CAS, so that each bit
    /// is won once. Returns the words with the bits won, for each slab.
    pub(crate) async fn fetch_bits(
        &self,
        endpoint: &mut F::Endpoint,
        pages: &[Claim],
    ) -> Result<Vec<Vec<(usize, u64)>>, PoolError> {
        let mut won = vec![Vec::new(); pages.len()];
        let mut wanted = Vec::new();
        for (page, words) in self.read_bits(endpoint, pages).await?.into_iter().enumerate() {
            let words = words.into_iter().enumerate();
            wanted.extend(words.filter(|(_, bits)| *bits != 0).map(|(word, bits)| (page, word, bits)));
        }
        let places: Vec<_> =
            pages.iter().map(|claim| self.layout().bitmap_of(claim.page, claim.class).0).collect();
        // A CAS that fails has lost to a member that set at least one more of the word's 64 bits.
        for _ in 0..=64 {
            if wanted.is_empty() {
                break;
            }
            let mut batch = endpoint.batch();
            let tries: Vec<_> = wanted
                .iter()
                .map(|&(page, word, bits)| batch.cas(places[page].plus(word as u64 * 8), bits, 0))
                .collect();
            let done = submit(endpoint, batch).await?;
            let mut lost = Vec::new();
            for (&(page, word, bits), &cas) in wanted.iter().zip(&tries) {
                if done.swapped(cas) {
                    won[page].push((word, bits));
                } else if done.found(cas) != 0 {
                    lost.push((page, word, done.found(cas)));
                }
            }
            wanted = lost;
        }
        Ok(won)
    }
}
