//! Adoption and sweep: what dead members held comes back (DART, section 4.5, "Client Crashes").
//!
//! A dead member's books are gone; what is in use in its blocks is what the index reaches. One sweep:
//!
//! 1. [`crate::Pool::adopt`]: CAS each block whose owner is dead to SWEEPING(me). From here on nobody allocates in it,
//!    so whatever becomes reachable later lies elsewhere. Closed blocks are taken too: they may hold objects that
//!    were in some member's limbo when it closed.
//! 2. The index walks and collects what it reaches, and clears hints that name anything else.
//! 3. [`crate::Pool::finish_adoption`] reads the global epoch `w`, then waits until every live member's *flushed* epoch
//!    is above `w`: every operation that was under way is over, and whatever any member unlinked up to now has been
//!    freed for good, which for these blocks means that its freed bit has landed. Every slot that the walk did not
//!    reach is free, whatever its bit says; of the reached ones those whose bit is set are. The bits are cleared,
//!    and the block is this process's.
//!
//! *No double free.* A slot the walk did not reach was unlinked before the walk ended, so before `w` was read: by an
//! operation born at `w` or earlier, whose freed bit landed before step 3 looked; or its unlinker is dead and was
//! fenced. So no bit for it can come later. A slot the walk did reach is freed only by its bit.
//! *No reader.* Readers pinned at `w` or earlier are gone, and hints to unreached objects were cleared before `w`.
//!
//! When a member does not move on, nothing is freed; the blocks stay SWEEPING and a later adoption takes them again.
//! When the sweeping process dies in between, its blocks are a dead member's: sweeping them anew loses nothing.

use darter_fabric::{Endpoint, Fabric, GlobalAddr, ObjectState, mutant};
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use crate::block::{BlockState, BlockWord};
use crate::epoch::lock;
use crate::heap::{Claim, Heap, OwnBlock, Page};
use crate::layout::{BlockId, EPOCH_AT, Layout, PAGE_BYTES, PageId, Spot, run_pages};
use crate::member::MemberTable;
use crate::pool::Shared;
use crate::size_class::{class_bytes, class_of};
use crate::slab::Slab;
use crate::{AllocKind, PoolError, ReachableSet};

/// Violations kept in a report.
pub(crate) const VIOLATIONS_MAX: usize = 1000;
/// Milliseconds that a sweep waits for the others, beyond their lease.
const PATIENCE_MS: u64 = 1000;

/// Blocks taken for a sweep.
#[derive(Debug)]
#[must_use = "walk the index, then pass it to finish_adoption"]
pub struct Adoption {
    blocks: Vec<(BlockId, BlockWord)>,
    /// All blocks that sweeps of this process are at, these among them until this is dropped.
    in_sweep: Arc<Mutex<BTreeSet<BlockId>>>,
    dead_blocks: u64,
    block_bytes: u64,
}

impl Drop for Adoption {
    fn drop(&mut self) {
        let mut in_sweep = lock(&self.in_sweep);
        for (block, _) in &self.blocks {
            in_sweep.remove(block);
        }
    }
}

impl Adoption {
    /// Blocks taken.
    pub fn blocks(&self) -> u64 {
        self.blocks.len() as u64
    }

    /// Blocks among them whose owner has died; the others were left by a clean close.
    pub fn dead_blocks(&self) -> u64 {
        self.dead_blocks
    }

    /// Their bytes.
    pub fn bytes(&self) -> u64 {
        self.blocks() * self.block_bytes
    }

    /// Whether there is nothing to sweep.
    pub fn is_empty(&self) -> bool {
        self.blocks.is_empty()
    }
}

/// What a sweep did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SweepReport {
    /// Whether the blocks were swept; if not, [`SweepReport::waiting_for`] says who held it back.
    pub finished: bool,
    /// Blocks swept.
    pub blocks: u64,
    /// Bytes of reachable objects in them.
    pub kept_bytes: u64,
    /// Bytes that can be allocated now and could not before.
    pub reclaimed_bytes: u64,
    /// Slots of live members that did not move on. When this process is among them, an operation of its own is
    /// under way, or objects wait for `take_graced`.
    pub waiting_for: Vec<u32>,
    /// Reachable objects that contradict each other; their pages are kept out of use. At most 1,000.
    pub violations: Vec<String>,
}

/// Books made from what the index reaches.
pub(crate) struct Rebuilt {
    pub books: OwnBlock,
    pub kept_bytes: u64,
    pub violations: Vec<String>,
}

/// Makes a block's books from reachable objects alone.
pub(crate) fn rebuild(layout: &Layout, block: BlockId, word: BlockWord, reachable: &ReachableSet) -> Rebuilt {
    let mut made = Rebuilt { books: OwnBlock::empty(layout, word), kept_bytes: 0, violations: Vec::new() };
    for (addr, bytes) in reachable.objects_in(layout.block_addr(block), layout.block_bytes) {
        made.kept_bytes += bytes;
        if let Err(what) = place(layout, &mut made.books, addr, bytes) {
            if made.violations.len() < VIOLATIONS_MAX {
                made.violations.push(format!("{addr}: object of {bytes} bytes {what}"));
            }
            lose_pages(layout, &mut made.books, addr, bytes);
        }
    }
    made.books.free_pages = made.books.pages.iter().filter(|page| matches!(page, Page::Free)).count() as u32;
    made
}

fn place(layout: &Layout, books: &mut OwnBlock, addr: GlobalAddr, bytes: u64) -> Result<(), &'static str> {
    let class = class_of(bytes).ok_or("is larger than any class")?;
    let spot = layout.spot(addr, class).ok_or("does not lie where objects of its size do")?;
    let first = spot.page.page as usize;
    if let Some(pages) = run_pages(class) {
        let run = &mut books.pages[first..first + pages as usize];
        if !run.iter().all(|page| matches!(page, Page::Free)) {
            return Err("shares a page with another object");
        }
        run.fill_with(|| Page::Tail);
        run[0] = Page::Run { class, claiming: false };
        return Ok(());
    }
    let shape = layout.shape(spot.page.page, class).ok_or("has no room in its page")?;
    if matches!(books.pages[first], Page::Free) {
        books.pages[first] = Page::Slab(Slab::new(class, &shape, true));
    }
    match &mut books.pages[first] {
        Page::Slab(slab) if slab.class == class => {
            if slab.occupy(spot.slot) {
                Ok(())
            } else {
                Err("lies where another does")
            }
        }
        _ => Err("lies in a page of objects of another size"),
    }
}

/// Takes all pages that an object touches out of use, and the whole of any run among them.
fn lose_pages(layout: &Layout, books: &mut OwnBlock, addr: GlobalAddr, bytes: u64) {
    let Some(page) = layout.page_of(addr) else { return };
    let within = addr.offset() - layout.page_addr(page).offset();
    let mut first = page.page as usize;
    let mut end =
        (first as u64 + (within + bytes.max(1)).div_ceil(PAGE_BYTES)).min(books.pages.len() as u64) as usize;
    while first > 0 && matches!(books.pages[first], Page::Tail) {
        first -= 1;
    }
    while end < books.pages.len() && matches!(books.pages[end], Page::Tail) {
        end += 1;
    }
    books.pages[first..end].fill_with(|| Page::Lost);
}

impl<F: Fabric> Shared<F> {
    pub(crate) async fn adopt(&self, endpoint: &mut F::Endpoint) -> Result<Adoption, PoolError> {
        self.bury_dead(endpoint).await?;
        let early = if mutant!("adopt-reads-members-before-blocks") {
            Some(self.read_members(endpoint).await?)
        } else {
            None
        };
        let mut tables = Vec::new();
        for node in 0..self.layout.node_count() {
            tables.push(self.read_block_table(endpoint, node).await?);
        }
        // Members after blocks: an owner that is not there now has gone for good.
        let members = match early {
            Some(members) => members,
            None => self.read_members(endpoint).await?,
        };
        let mut adoption = Adoption {
            blocks: Vec::new(),
            in_sweep: Arc::clone(&self.in_sweep),
            dead_blocks: 0,
            block_bytes: self.layout.block_bytes,
        };
        for (node, table) in (0u8..).zip(tables) {
            for (index, word) in (0u32..).zip(table) {
                let (Some(word), block) = (BlockWord::decode(word), BlockId { node, index }) else {
                    continue;
                };
                let is_dead = word.owner().is_some_and(|owner| !members.is_live(owner));
                let is_mine = word.state == BlockState::Sweeping && word.owner() == Some(self.me);
                if is_mine {
                    // Left by a sweep that was cut short; not one that another thread is at.
                    if lock(&self.in_sweep).insert(block) {
                        adoption.blocks.push((block, word));
                    }
                } else if is_dead
                    || word.state == BlockState::Closed && !mutant!("adopt-leaves-closed-blocks")
                {
                    let taken = word.next(BlockState::Sweeping, word.kind, self.me);
                    if self.change_word(endpoint, block, word, taken).await? {
                        lock(&self.in_sweep).insert(block);
                        adoption.blocks.push((block, taken));
                        adoption.dead_blocks += u64::from(is_dead);
                    }
                }
            }
        }
        Ok(adoption)
    }

    pub(crate) async fn finish_adoption(
        &self,
        endpoint: &mut F::Endpoint,
        adoption: Adoption,
        reachable: &ReachableSet,
    ) -> Result<SweepReport, PoolError> {
        let mut report = SweepReport { finished: true, ..SweepReport::default() };
        if adoption.is_empty() {
            return Ok(report);
        }
        report.waiting_for = self.wait_for_all(endpoint).await?;
        if !report.waiting_for.is_empty() {
            report.finished = false;
            return Ok(report);
        }
        for &(block, word) in &adoption.blocks {
            self.sweep(endpoint, block, word, reachable, &mut report).await?;
        }
        self.return_blocks(endpoint, 0).await?;
        Ok(report)
    }

    /// Waits until every live member is done with what it unlinked before now; answers those that are not in time.
    async fn wait_for_all(&self, endpoint: &mut F::Endpoint) -> Result<Vec<u32>, PoolError> {
        let _moving = self.upkeep.wait_for_epochs();
        let mut batch = endpoint.batch();
        let read = batch.read(GlobalAddr::new(0, EPOCH_AT), 1);
        let batch = endpoint.submit(batch).await?;
        let now = batch.words(read)[0];
        endpoint.recycle(batch);
        let patience_ends = endpoint.now_ms() + PATIENCE_MS + self.superblock.lease_ms;
        let mut late = vec![u32::from(self.me.member)];
        while !late.is_empty() && endpoint.now_ms() < patience_ends {
            let table = self.round(endpoint).await?;
            let seen = self.clients.epoch();
            if let Some(table) = &table {
                late = self.late(table, now);
            }
            // Alone, each round moves the epoch; with others, they need time for theirs.
            if !late.is_empty() && table.is_none_or(|table| table.live().count() > 1 || table.epoch == seen) {
                endpoint.pause().await;
            }
        }
        Ok(late)
    }

    pub(crate) fn late(&self, table: &MemberTable, epoch: u64) -> Vec<u32> {
        let flushed = |slot: u32, flushed: u64| {
            if slot == u32::from(self.me.member) { self.upkeep.flushed() } else { flushed }
        };
        let epoch = if mutant!("sweep-waits-one-epoch-less") { epoch - 1 } else { epoch };
        let others_alone = mutant!("sweep-does-not-wait-for-its-own-process");
        let late = table
            .live()
            .filter(|(slot, _)| !(others_alone && *slot == u32::from(self.me.member)))
            .filter(|(slot, line)| {
                let done =
                    if mutant!("sweep-waits-for-published-epochs") { line.published } else { line.flushed };
                flushed(*slot, done) <= epoch
            });
        late.map(|(slot, _)| slot).collect()
    }

    /// Takes one block into the heap with exact books.
    async fn sweep(
        &self,
        endpoint: &mut F::Endpoint,
        block: BlockId,
        word: BlockWord,
        reachable: &ReachableSet,
        report: &mut SweepReport,
    ) -> Result<(), PoolError> {
        // A new word first: of two sweeps of this process one goes on, and the other cannot touch what it made.
        let reserved = word.next(BlockState::Sweeping, word.kind, self.me);
        if !self.change_word(endpoint, block, word, reserved).await? {
            return Ok(());
        }
        let word = reserved;
        let Rebuilt { mut books, kept_bytes, violations } = rebuild(&self.layout, block, word, reachable);
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
        // What members freed since the walk. Before the block is in the heap: a slot could be allocated again meanwhile.
        let mut freed_bytes = 0;
        for claims in claims.chunks(64) {
            for (claim, won) in claims.iter().zip(self.fetch_bits(endpoint, claims).await?) {
                if !mutant!("sweep-drops-the-bits-it-fetched") {
                    freed_bytes += free_won(&mut books, *claim, &won);
                }
            }
        }
        let owned = word.next(BlockState::Owned, word.kind, self.me);
        let mut batch = endpoint.batch();
        batch.write(self.layout.block_addr(block), &Heap::page_words(&books));
        let cas = batch.cas(Layout::block_word(block), word.encode(), owned.encode());
        let batch = endpoint.submit(batch).await?;
        let is_ours = batch.swapped(cas);
        endpoint.recycle(batch);
        if !is_ours {
            // Somebody else is at it: what he makes of it holds.
            return Ok(());
        }
        if !mutant!("sweep-keeps-the-old-block-word") {
            books.word = owned;
        }
        self.note_free(block, &books);
        report.blocks += 1;
        report.kept_bytes += kept_bytes - freed_bytes;
        report.reclaimed_bytes += books.room();
        let room = VIOLATIONS_MAX.saturating_sub(report.violations.len());
        report.violations.extend(violations.into_iter().take(room));
        lock(&self.heap).add(block, books);
        Ok(())
    }
}

impl<F: Fabric> Shared<F> {
    /// Notes what is free in a block whose books were made anew.
    fn note_free(&self, block: BlockId, books: &OwnBlock) {
        for (page, held) in (0_u32..).zip(&books.pages) {
            let page = PageId { block, page };
            match held {
                Page::Free => {
                    // Page 0 begins with the block's own words.
                    let head = if page.page == 0 { u64::from(self.layout.pages) * 16 } else { 0 };
                    self.fabric.note_object(
                        self.layout.page_addr(page).plus(head),
                        PAGE_BYTES - head,
                        ObjectState::Reclaimed,
                    );
                }
                Page::Slab(slab) => {
                    for (word, &bits) in slab.free_bits().iter().enumerate() {
                        for bit in crate::reachable::ones(bits) {
                            let spot = Spot { page, slot: (word as u64 * 64 + bit) as u32 };
                            if let Some(addr) = self.layout.object_addr(spot, slab.class) {
                                let bytes = class_bytes(slab.class);
                                self.fabric.note_object(addr, bytes, ObjectState::Reclaimed);
                            }
                        }
                    }
                }
                _ => {}
            }
        }
    }
}

/// Frees in a block's books what members have freed; answers its bytes.
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

/// The kinds a report names.
pub(crate) fn kind_name(kind: AllocKind) -> &'static str {
    match kind {
        AllocKind::Inner => "inner",
        AllocKind::Leaf => "leaf",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::block::{BlockState, BlockWord, Owner};

    #[test]
    fn an_object_at_the_end_of_a_block_takes_its_run_with_it_and_no_more() {
        let layout = Layout::new(&[4 << 20], 512 << 10).unwrap();
        let owner = Owner { member: 1, incarnation: 1 };
        let word = BlockWord::decode(0).unwrap().next(BlockState::Owned, AllocKind::Leaf, owner);
        let mut books = OwnBlock::empty(&layout, word);
        let pages = books.pages.len();
        books.pages[pages - 3..].fill_with(|| Page::Tail);
        let page = PageId { block: BlockId { node: 0, index: 0 }, page: pages as u32 - 2 };
        lose_pages(&layout, &mut books, layout.page_addr(page), 64);
        let lost = books.pages.iter().filter(|page| matches!(page, Page::Lost)).count();
        // The run's first page is the one before its tails.
        assert_eq!(lost, 4);
        assert!(books.pages[pages - 4..].iter().all(|page| matches!(page, Page::Lost)));
    }
}
