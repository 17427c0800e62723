//! Books of a block made from what the index reaches, for sweeps and audits of blocks whose books
//! are lost.

use darter_fabric::GlobalAddr;

use super::block::BlockWord;
use super::heap::{OwnBlock, Page};
use super::layout::{BlockId, Layout, PAGE_BYTES, run_pages};
use super::reachable::ReachableSet;
use super::size_class::class_of;
use super::slab::Slab;

/// Violations kept in a report.
pub(crate) const VIOLATIONS_MAX: usize = 1000;

/// Books made from what the index reaches.
pub(super) struct Rebuilt {
    pub books: OwnBlock,
    pub kept_bytes: u64,
    pub violations: Vec<String>,
}

/// Makes a block's books from reachable objects alone.
pub(super) fn rebuild(layout: &Layout, block: BlockId, word: BlockWord, reachable: &ReachableSet) -> Rebuilt {
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

#[cfg(test)]
mod tests {
    use super::super::block::{BlockState, MemberId};
    use super::super::layout::PageId;
    use super::super::object::AllocKind;
    use super::*;

    #[test]
    fn an_object_at_the_end_of_a_block_takes_its_run_with_it_and_no_more() {
        let layout = Layout::new(&[4 << 20], 512 << 10).unwrap();
        let owner = MemberId { member: 1, incarnation: 1 };
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
