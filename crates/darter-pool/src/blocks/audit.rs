//! Audit: compares the pool's books with the objects that the index reaches.
//!
//! | block | its books | leaked |
//! |---|---|---|
//! | of this process | heap, less magazines and limbo | in use and not reachable |
//! | closed | page words and freed bitmaps, less limbo | in use and not reachable |
//! | of a dead member, or being swept | lost | everything not reachable |
//! | of another live member | in its memory | unknown: unverified |
//! | free | | nothing; a reachable object there is a violation |
//!
//! A reachable object must be at a position for objects of its size, in a slab of its size, in use,
//! and in a block that has an owner. Overlaps show when the index collects the objects
//! ([`ReachableSet::insert`]).

use darter_fabric::{Fabric, GlobalAddr};
use std::collections::HashSet;

use super::block::{BlockState, BlockWord, MemberId};
use super::close::BooksLeft;
use super::heap::{OwnBlock, Page};
use super::layout::{BlockId, Layout, PageId, SlotId};
use super::reachable::ReachableSet;
use super::rebuild::{Rebuilt, VIOLATIONS_MAX, rebuild};
use super::share::Blocks;
use super::size_class::{class_bytes, class_of};
use crate::error::PoolError;
use crate::round_trip::read_words;

/// The result of an audit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AuditReport {
    /// Broken invariants, as text. At most 1,000 are kept.
    pub violations: Vec<String>,
    /// Bytes that are neither reachable nor free, in all blocks whose state can be determined. A
    /// sweep recovers those in closed and dead blocks; those in this process's own blocks can be
    /// swept after it has closed.
    pub leaked_bytes: u64,
    /// The part of it in blocks of this process.
    pub own_leaked_bytes: u64,
    /// The part of it in closed blocks.
    pub closed_leaked_bytes: u64,
    /// The part of it in blocks of dead members: all their bytes that are not reachable.
    pub dead_leaked_bytes: u64,
    /// Blocks of dead members, or adopted and not swept yet.
    pub dead_blocks: u64,
    /// Blocks of other live members, which only their owners can verify.
    pub unverified_blocks: u64,
    /// Bytes of reachable objects in those blocks.
    pub unverified_bytes: u64,
    /// Bytes of objects of this process that wait to be freed.
    pub garbage_bytes: u64,
    /// Bytes of reachable objects.
    pub reachable_bytes: u64,
}

impl AuditReport {
    fn violation(&mut self, what: String) {
        if self.violations.len() < VIOLATIONS_MAX {
            self.violations.push(what);
        }
    }
}

/// Objects that this process's books count as in use although no operation uses them.
pub(crate) struct Idle {
    in_magazines: HashSet<GlobalAddr>,
    in_limbo: HashSet<GlobalAddr>,
}

impl<F: Fabric> Blocks<F> {
    /// Returns the objects in magazines, together with those that wait to be freed.
    pub(crate) fn idle(&self, in_limbo: HashSet<GlobalAddr>) -> Idle {
        Idle { in_magazines: self.in_magazines(), in_limbo }
    }

    /// Compares the books of all blocks with the objects that the index reaches. `tables` holds the
    /// words of the nodes' block tables; `is_live` says whether an owner that they name is live.
    pub(crate) async fn audit(
        &self,
        endpoint: &mut F::Endpoint,
        reachable: &ReachableSet,
        idle: &Idle,
        tables: Vec<Vec<u64>>,
        is_live: impl Fn(MemberId) -> bool,
    ) -> Result<AuditReport, PoolError> {
        let mut report = AuditReport { reachable_bytes: reachable.bytes(), ..AuditReport::default() };
        for (addr, bytes) in reachable.iter() {
            if self.layout().page_of(addr).is_none() {
                report.violation(format!("{addr}: object of {bytes} bytes lies in no block"));
            }
        }
        for (node, table) in (0u8..).zip(tables) {
            for (index, word) in (0u32..).zip(table) {
                let block = BlockId { node, index };
                let Some(word) = BlockWord::decode(word) else {
                    report.violation(format!("block {index} of node {node}: its word {word:#x} is damaged"));
                    continue;
                };
                match (word.state, word.owner()) {
                    (BlockState::Free, _) => self.audit_free(block, reachable, &mut report),
                    (BlockState::Closed, _) => {
                        let against = (reachable, idle);
                        self.audit_closed(endpoint, block, word, against, &mut report).await?;
                    }
                    (BlockState::Owned, Some(owner)) if owner == self.me() => {
                        self.audit_own(block, reachable, idle, &mut report);
                    }
                    (BlockState::Owned, Some(owner)) if is_live(owner) => {
                        report.unverified_blocks += 1;
                        report.unverified_bytes += self.audit_lost(block, word, reachable, &mut report);
                    }
                    _ => {
                        report.dead_blocks += 1;
                        let kept = self.audit_lost(block, word, reachable, &mut report);
                        let books_bytes = u64::from(self.layout().pages) * 16;
                        report.dead_leaked_bytes += self.layout().block_bytes - books_bytes - kept;
                    }
                }
            }
        }
        report.leaked_bytes = report.own_leaked_bytes + report.closed_leaked_bytes + report.dead_leaked_bytes;
        Ok(report)
    }

    fn audit_free(&self, block: BlockId, reachable: &ReachableSet, report: &mut AuditReport) {
        for (addr, bytes) in reachable.objects_in(self.layout().block_addr(block), self.layout().block_bytes)
        {
            report.violation(format!("{addr}: object of {bytes} bytes lies in a free block"));
        }
    }

    /// Checks a block whose books are lost: the reachable objects must not contradict each other.
    /// Returns their bytes.
    fn audit_lost(
        &self,
        block: BlockId,
        word: BlockWord,
        reachable: &ReachableSet,
        report: &mut AuditReport,
    ) -> u64 {
        let Rebuilt { kept_bytes, violations, .. } = rebuild(self.layout(), block, word, reachable);
        for what in violations {
            report.violation(what);
        }
        kept_bytes
    }

    fn audit_own(&self, block: BlockId, reachable: &ReachableSet, idle: &Idle, report: &mut AuditReport) {
        let heap = self.heap();
        match heap.block(block) {
            Some(books) if !books.leaving => {
                let leaked = self.audit_books(block, books, reachable, idle, report);
                report.own_leaked_bytes += leaked;
            }
            // Taken out of circulation by a cancelled operation: unused until this process ends.
            _ => {
                self.audit_free(block, reachable, report);
                report.own_leaked_bytes += self.layout().block_bytes;
            }
        }
    }

    /// Compares the books that a clean close left with the reachable objects. A block that another
    /// member has taken over since `word` was read has no such books.
    async fn audit_closed(
        &self,
        endpoint: &mut F::Endpoint,
        block: BlockId,
        word: BlockWord,
        (reachable, idle): (&ReachableSet, &Idle),
        report: &mut AuditReport,
    ) -> Result<(), PoolError> {
        let BooksLeft { books, damage, .. } = self.books_left(endpoint, block, word).await?;
        let [now] = read_words(endpoint, Layout::block_word(block)).await?;
        if now != word.encode() {
            report.unverified_blocks += 1;
            let kept = self.audit_lost(block, word, reachable, report);
            report.unverified_bytes += kept;
            return Ok(());
        }
        for what in damage {
            report.violation(what);
        }
        for (page, _) in (0u32..).zip(&books.pages).filter(|(_, held)| matches!(held, Page::Lost)) {
            let addr = self.layout().page_addr(PageId { block, page });
            report.violation(format!("{addr}: the page word is damaged, or a sweep lost the page"));
        }
        let leaked = self.audit_books(block, &books, reachable, idle, report);
        report.closed_leaked_bytes += leaked;
        Ok(())
    }

    /// Compares exact books, of a block of this process or of a closed one, with the reachable
    /// objects. Returns the bytes that are in use and not reachable.
    fn audit_books(
        &self,
        block: BlockId,
        books: &OwnBlock,
        reachable: &ReachableSet,
        idle: &Idle,
        report: &mut AuditReport,
    ) -> u64 {
        let layout = self.layout();
        for (addr, bytes) in reachable.objects_in(layout.block_addr(block), layout.block_bytes) {
            let what = match check_reachable(layout, books, addr, bytes) {
                Err(what) => what,
                Ok(()) if idle.in_magazines.contains(&addr) => "is free (in a magazine)",
                Ok(()) if idle.in_limbo.contains(&addr) => "was retired",
                Ok(()) => continue,
            };
            let kind = books.kind.name();
            report.violation(format!(
                "{addr}: reachable object of {bytes} bytes in a block of kind {kind} {what}"
            ));
        }
        let mut leaked = 0;
        let mut count = |addr: GlobalAddr, bytes: u64| {
            if idle.in_limbo.contains(&addr) {
                report.garbage_bytes += bytes;
            } else if !reachable.contains(addr) && !idle.in_magazines.contains(&addr) {
                leaked += bytes;
            }
        };
        for (page, slab) in books.slabs() {
            let page = PageId { block, page };
            let used = slab.used().filter_map(|slot| layout.object_addr(SlotId { page, slot }, slab.class));
            used.for_each(|addr| count(addr, class_bytes(slab.class)));
        }
        // Taken out of circulation by a cancelled operation.
        let taken = books.pages.iter().filter(|page| matches!(page, Page::Taken)).count();
        leaked + taken as u64 * layout.page_bytes
    }
}

fn check_reachable(
    layout: &Layout,
    books: &OwnBlock,
    addr: GlobalAddr,
    bytes: u64,
) -> Result<(), &'static str> {
    let class = class_of(bytes).ok_or("is larger than any class")?;
    let spot = layout.spot(addr, class).ok_or("is not at a position for objects of its size")?;
    match &books.pages[spot.page.page as usize] {
        Page::Slab(slab) if slab.class != class => Err("lies in a slab of another size"),
        Page::Slab(slab) if slab.is_free(spot.slot) => Err("is free"),
        Page::Slab(_) => Ok(()),
        Page::Lost => Err("lies in a lost page"),
        _ => Err("does not lie in a slab of its size"),
    }
}
