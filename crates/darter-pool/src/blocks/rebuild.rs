//! Books of a block rebuilt from the objects that the index reaches, for sweeps and audits of
//! blocks whose books are lost.

use darter_fabric::GlobalAddr;

use super::block::BlockWord;
use super::heap::{OwnBlock, Page};
use super::layout::{BlockId, Layout};
use super::reachable::ReachableSet;
use super::size_class::class_of;
use super::slab::Slab;

/// Most violations in a report.
pub(crate) const VIOLATIONS_MAX: usize = 1000;

/// Books rebuilt from the objects that the index reaches.
pub(super) struct Rebuilt {
    pub books: OwnBlock,
    pub kept_bytes: u64,
    pub violations: Vec<String>,
}

/// Rebuilds a block's books from reachable objects alone.
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
    let spot = layout.spot(addr, class).ok_or("is not at a position for objects of its size")?;
    let first = spot.page.page;
    let shape = layout.shape(first, class).ok_or("is not at a position for objects of its size")?;
    let pages = &books.pages[first as usize..(first + shape.pages) as usize];
    if pages.iter().all(|page| matches!(page, Page::Free)) {
        books.set_slab(first, Slab::new(class, &shape, true));
    }
    match &mut books.pages[first as usize] {
        Page::Slab(slab) if slab.class == class => {
            if slab.occupy(spot.slot) {
                Ok(())
            } else {
                Err("is in the slot of another object")
            }
        }
        _ => Err("shares a page with an object of another size"),
    }
}

/// Marks all pages that an object touches as lost, including the whole of any slab among them.
fn lose_pages(layout: &Layout, books: &mut OwnBlock, addr: GlobalAddr, bytes: u64) {
    let Some(page) = layout.page_of(addr) else { return };
    let within = addr.offset() - layout.page_addr(page).offset();
    let mut first = page.page as usize;
    let touched = (within + bytes.max(1)).div_ceil(layout.page_bytes) as usize;
    let mut end = (first + touched).min(books.pages.len());
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
    use super::super::layout::{PageId, SlotId};
    use super::super::object::AllocKind;
    use super::super::size_class::class_bytes;
    use super::*;

    fn owned() -> BlockWord {
        let owner = MemberId { member: 1, incarnation: 1 };
        BlockWord::decode(0).unwrap().next(BlockState::Owned, AllocKind::Leaf, owner)
    }

    /// A slab of four pages and a run of five; then an object of another size lies in a further
    /// page of the slab, between two objects.
    #[test]
    fn further_pages_of_a_slab_hold_nothing_else() {
        let layout = Layout::new(&[4 << 20], 512 << 10).unwrap();
        let [slab, run, other] = [10_000, 40_000, 1000].map(|bytes| class_of(bytes).unwrap());
        let block = BlockId { node: 0, index: 1 };
        let mut reachable = ReachableSet::new();
        let mut insert = |class, page, slot| {
            let spot = SlotId { page: PageId { block, page }, slot };
            let addr = layout.object_addr(spot, class).unwrap();
            assert!(reachable.insert(addr, class_bytes(class)));
            rebuild(&layout, block, owned(), &reachable)
        };
        insert(slab, 8, 0);
        insert(slab, 8, 2);
        let made = insert(run, 21, 0);
        assert_eq!((made.violations.len(), made.books.free_pages), (0, 64 - 9));
        assert_eq!(made.books.room(&layout), (64 - 9) * layout.page_bytes + class_bytes(slab));
        let made = insert(other, 9, 4);
        assert_eq!(made.violations.len(), 2, "{:?}", made.violations);
        assert!(made.violations[0].ends_with("shares a page with an object of another size"));
        let lost = |page: &Page| matches!(page, Page::Lost);
        assert!(made.books.pages[8..12].iter().all(lost) && !made.books.pages[..8].iter().any(lost));
        assert_eq!((made.books.free_pages, made.kept_bytes), (64 - 9, 2 * 10_240 + 40_960 + 1008));
    }

    #[test]
    fn an_object_at_the_end_of_a_block_takes_its_slab_with_it_and_no_more() {
        let layout = Layout::new(&[4 << 20], 512 << 10).unwrap();
        let mut books = OwnBlock::empty(&layout, owned());
        let pages = books.pages.len();
        books.pages[pages - 3..].fill_with(|| Page::Tail);
        let page = PageId { block: BlockId { node: 0, index: 0 }, page: pages as u32 - 2 };
        lose_pages(&layout, &mut books, layout.page_addr(page), 64);
        let lost = books.pages.iter().filter(|page| matches!(page, Page::Lost)).count();
        // The slab's first page is the one before its tails.
        assert_eq!(lost, 4);
        assert!(books.pages[pages - 4..].iter().all(|page| matches!(page, Page::Lost)));
    }
}
