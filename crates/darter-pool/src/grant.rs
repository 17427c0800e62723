//! Where objects come from when a magazine is empty, cheapest source first: free objects in the heap, objects that
//! others freed in our slabs, a fresh slab in one of our blocks, a block that a clean close left room in, a free block.
//!
//! A block is granted by one CAS on its word in the block table; nobody at the memory node is asked. What a grant,
//! a cut or a claim has begun and a cancelled operation did not end stays out of circulation (`heap`).

use darter_fabric::{Endpoint, Fabric, GlobalAddr, ObjectState, mutant};
use std::sync::atomic::Ordering;

use crate::block::{BlockState, BlockWord};
use crate::epoch::lock;
use crate::heap::{Claim, ClaimFilter, Cut, OwnBlock};
use crate::layout::{BlockId, Layout, PageId, TABLE_AT, page_word, run_pages};
use crate::pool::Shared;
use crate::size_class::class_bytes;
use crate::{AllocKind, PoolError};

/// Slabs looked at for freed objects in one go, and pages considered for it.
const CLAIMS_PER_SHORTAGE: usize = 64;
const PAGES_PER_SHORTAGE: usize = 2048;
/// Words read in one verb, and bitmap words fetched in one batch.
const TABLE_WORDS_PER_READ: usize = 4096;
const BITMAP_WORDS_PER_BATCH: usize = 4096;
/// A closed block is taken before a free one when at least this part of it is free.
const ROOM_PART_MIN: u64 = 32;

/// What an allocation asks for.
#[derive(Clone, Copy, Debug)]
struct Need {
    kind: AllocKind,
    class: u8,
    want: usize,
    /// Whether every closed block is worth a try.
    is_last: bool,
}

impl<F: Fabric> Shared<F> {
    /// Takes at least one and at most `want` free objects, all on one node.
    pub(crate) async fn obtain(
        &self,
        endpoint: &mut F::Endpoint,
        node: u8,
        kind: AllocKind,
        class: u8,
        want: usize,
        out: &mut Vec<GlobalAddr>,
    ) -> Result<(), PoolError> {
        let nodes = usize::from(self.usable_nodes());
        for is_last in [false, true] {
            for step in 0..nodes {
                let node = ((usize::from(node) + step) % nodes) as u8;
                if self.obtain_on(endpoint, node, Need { kind, class, want, is_last }, out).await? {
                    return Ok(());
                }
            }
            if !is_last {
                // Have others joined since the last upkeep, who may have freed something of ours?
                self.read_members(endpoint).await?;
                // Blocks of the other kind, or pages of other classes, may turn out empty.
                self.claim_and_trim(endpoint).await?;
                self.return_blocks(endpoint, 0).await?;
            }
        }
        Err(PoolError::OutOfSpace { needed: class_bytes(class), node })
    }

    async fn obtain_on(
        &self,
        endpoint: &mut F::Endpoint,
        node: u8,
        need: Need,
        out: &mut Vec<GlobalAddr>,
    ) -> Result<bool, PoolError> {
        let Need { kind, class, want, is_last } = need;
        let mut may_claim = self.had_company.load(Ordering::Relaxed) && run_pages(class).is_none();
        // Other clients may take what we cut, and closed blocks may have no room for us; each turn uses up a block.
        for _ in 0..=self.layout.blocks(node) {
            let cut = {
                let mut heap = lock(&self.heap);
                if heap.take(node, kind, class, want, out) {
                    return Ok(true);
                }
                if may_claim { None } else { heap.begin_cut(node, kind, class) }
            };
            if std::mem::take(&mut may_claim) {
                let filter =
                    ClaimFilter { node: Some(node), kind: Some(kind), class: Some(class), block: None };
                let claims = lock(&self.heap).begin_claims(filter, CLAIMS_PER_SHORTAGE, PAGES_PER_SHORTAGE);
                self.fetch_claims(endpoint, &claims).await?;
                continue;
            }
            if let Some(cut) = cut {
                if let Some(run) = self.cut(endpoint, cut).await? {
                    out.push(run);
                    return Ok(true);
                }
                continue;
            }
            if !self.acquire_block(endpoint, node, kind, is_last).await? {
                return Ok(false);
            }
        }
        Ok(false)
    }

    /// Writes a new slab's or run's words, then puts it in circulation. Answers a run's object.
    async fn cut(&self, endpoint: &mut F::Endpoint, cut: Cut) -> Result<Option<GlobalAddr>, PoolError> {
        let PageId { block, page } = cut.page;
        let mut batch = endpoint.batch();
        batch.write(self.layout.freed_words(block).plus(u64::from(page) * 8), &[0]);
        let shape = self.layout.shape(page, cut.class);
        // The slab's bitmap may lie where objects have been.
        let head = shape.as_ref().map_or(0, |shape| u64::from(shape.first));
        self.fabric.note_object(self.layout.page_addr(cut.page), head, ObjectState::Unmanaged);
        if let Some(shape) =
            shape.filter(|shape| shape.bitmap.is_some() && !mutant!("slab-cut-over-an-old-bitmap"))
        {
            batch.write(self.layout.bitmap_addr(cut.page, &shape), &vec![0; shape.bitmap_words()]);
        }
        batch.write(self.layout.block_addr(block).plus(u64::from(page) * 8), &[page_word(cut.class)]);
        let batch = endpoint.submit(batch).await?;
        endpoint.recycle(batch);
        let mut heap = lock(&self.heap);
        if shape.is_some() {
            heap.finish_slab(cut);
            return Ok(None);
        }
        Ok(heap.finish_run(cut))
    }

    /// The words of a node's block table.
    pub(crate) async fn read_block_table(
        &self,
        endpoint: &mut F::Endpoint,
        node: u8,
    ) -> Result<Vec<u64>, PoolError> {
        let blocks = self.layout.blocks(node) as usize;
        let mut batch = endpoint.batch();
        let reads: Vec<_> = (0..blocks)
            .step_by(TABLE_WORDS_PER_READ)
            .map(|at| {
                let words = (blocks - at).min(TABLE_WORDS_PER_READ);
                batch.read(GlobalAddr::new(node, TABLE_AT + at as u64 * 8), words)
            })
            .collect();
        let batch = endpoint.submit(batch).await?;
        let words = reads.iter().flat_map(|&read| batch.words(read)).copied().collect();
        endpoint.recycle(batch);
        Ok(words)
    }

    /// Gets one more block of `kind` on `node`; `false` when there is none.
    async fn acquire_block(
        &self,
        endpoint: &mut F::Endpoint,
        node: u8,
        kind: AllocKind,
        is_last: bool,
    ) -> Result<bool, PoolError> {
        let words = self.read_block_table(endpoint, node).await?;
        let table: Vec<_> = (0u32..)
            .zip(words)
            .filter_map(|(index, word)| Some((BlockId { node, index }, BlockWord::decode(word)?)))
            .collect();
        let room_min = self.layout.block_bytes / 16 / ROOM_PART_MIN;
        for &(block, word) in &table {
            let is_closed = word.state == BlockState::Closed && word.kind == kind;
            if is_closed
                && (is_last || u64::from(word.low) >= room_min)
                && self.reopen(endpoint, block, word).await?
            {
                return Ok(true);
            }
        }
        for &(block, word) in &table {
            if word.state == BlockState::Free && self.grant(endpoint, block, word, kind).await? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Moves a block's word on; `false` when it was another meanwhile.
    pub(crate) async fn change_word(
        &self,
        endpoint: &mut F::Endpoint,
        block: BlockId,
        from: BlockWord,
        to: BlockWord,
    ) -> Result<bool, PoolError> {
        let mut batch = endpoint.batch();
        let cas = batch.cas(Layout::block_word(block), from.encode(), to.encode());
        let batch = endpoint.submit(batch).await?;
        let swapped = batch.swapped(cas);
        endpoint.recycle(batch);
        Ok(swapped)
    }

    async fn grant(
        &self,
        endpoint: &mut F::Endpoint,
        block: BlockId,
        word: BlockWord,
        kind: AllocKind,
    ) -> Result<bool, PoolError> {
        let owned = word.next(BlockState::Owned, kind, self.me);
        if !self.change_word(endpoint, block, word, owned).await? && !mutant!("grant-after-a-lost-race") {
            return Ok(false);
        }
        let mut batch = endpoint.batch();
        batch.write(self.layout.block_addr(block), &vec![0; self.layout.pages as usize * 2]);
        let batch = endpoint.submit(batch).await?;
        endpoint.recycle(batch);
        lock(&self.heap).add(block, OwnBlock::empty(&self.layout, owned));
        Ok(true)
    }

    /// Takes over a block that a clean close left, and fetches what is free in it.
    pub(crate) async fn reopen(
        &self,
        endpoint: &mut F::Endpoint,
        block: BlockId,
        word: BlockWord,
    ) -> Result<bool, PoolError> {
        let owned = word.next(BlockState::Owned, word.kind, self.me);
        if !self.change_word(endpoint, block, word, owned).await? && !mutant!("reopen-after-a-lost-race") {
            return Ok(false);
        }
        let mut batch = endpoint.batch();
        let read = batch.read(self.layout.block_addr(block), self.layout.pages as usize);
        let batch = endpoint.submit(batch).await?;
        let books = OwnBlock::from_page_words(&self.layout, owned, batch.words(read));
        endpoint.recycle(batch);
        let claims = {
            let mut heap = lock(&self.heap);
            heap.add(block, books);
            let filter = ClaimFilter { node: None, kind: None, class: None, block: Some(block) };
            heap.begin_claims(filter, usize::MAX, usize::MAX)
        };
        if !mutant!("reopen-leaves-freed-bits") {
            self.fetch_claims(endpoint, &claims).await?;
        }
        Ok(true)
    }

    /// Fetches the freed bits of slabs and runs and frees what they name.
    pub(crate) async fn fetch_claims(
        &self,
        endpoint: &mut F::Endpoint,
        claims: &[Claim],
    ) -> Result<(), PoolError> {
        let mut rest = claims;
        while !rest.is_empty() {
            let mut words = 0;
            let fits = rest.iter().take_while(|claim| {
                words += self.bitmap_of(claim.page, claim.class).1;
                words <= BITMAP_WORDS_PER_BATCH
            });
            let (now, later) = rest.split_at(fits.count().max(1));
            let won = self.fetch_bits(endpoint, now).await?;
            let mut heap = lock(&self.heap);
            for (&claim, won) in now.iter().zip(&won) {
                heap.finish_claim(claim, won);
            }
            rest = later;
        }
        Ok(())
    }

    /// Where the freed bitmap of a page lies, and its words.
    pub(crate) fn bitmap_of(&self, page: PageId, class: u8) -> (GlobalAddr, usize) {
        match self.layout.shape(page.page, class) {
            Some(shape) => (self.layout.bitmap_addr(page, &shape), shape.bitmap_words()),
            None => (self.layout.freed_words(page.block).plus(u64::from(page.page) * 8), 1),
        }
    }

    /// Reads the freed bitmaps of pages and clears what it finds by CAS, so that each bit is won once: for each page
    /// the words with the bits won.
    pub(crate) async fn fetch_bits(
        &self,
        endpoint: &mut F::Endpoint,
        pages: &[Claim],
    ) -> Result<Vec<Vec<(usize, u64)>>, PoolError> {
        let mut won = vec![Vec::new(); pages.len()];
        let mut batch = endpoint.batch();
        let places: Vec<_> = pages.iter().map(|claim| self.bitmap_of(claim.page, claim.class)).collect();
        let reads: Vec<_> = places.iter().map(|&(addr, words)| batch.read(addr, words)).collect();
        let batch = endpoint.submit(batch).await?;
        let mut wanted = Vec::new();
        for (page, &read) in reads.iter().enumerate() {
            let words = batch.words(read).iter().copied().enumerate();
            wanted.extend(words.filter(|(_, bits)| *bits != 0).map(|(word, bits)| (page, word, bits)));
        }
        endpoint.recycle(batch);
        // Whoever beats a CAS has set at least one more of a word's 64 bits.
        for _ in 0..=64 {
            if wanted.is_empty() {
                break;
            }
            let mut batch = endpoint.batch();
            let tries: Vec<_> = wanted
                .iter()
                .map(|&(page, word, bits)| batch.cas(places[page].0.plus(word as u64 * 8), bits, 0))
                .collect();
            let batch = endpoint.submit(batch).await?;
            let mut lost = Vec::new();
            for (&(page, word, bits), &cas) in wanted.iter().zip(&tries) {
                if batch.swapped(cas) || mutant!("claim-wins-bits-by-a-lost-cas") {
                    won[page].push((word, bits));
                } else if batch.found(cas) != 0 {
                    lost.push((page, word, batch.found(cas)));
                }
            }
            endpoint.recycle(batch);
            wanted = lost;
        }
        Ok(won)
    }
}
