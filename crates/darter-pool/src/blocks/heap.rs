//! The process's books of its blocks: which pages are slabs of which class, and which objects are
//! free.
//!
//! One heap serves all clients of a process, under a mutex that magazines let them avoid.
//! Everything here is memory of this process, without verbs. Work that needs verbs (cutting a slab,
//! fetching objects that others freed, returning a block) is done in two steps with the lock
//! released between them: the first step takes the page or block out of circulation, the second
//! puts it back in its new role. If an operation is cancelled between the two, the page or block
//! stays out of circulation until the process ends, because verbs may still be in flight.
//!
//! Frees use the pool's own pointers, which may be damaged: a free that names no object in use
//! changes nothing and is counted.

use darter_fabric::GlobalAddr;
use std::collections::BTreeMap;

use super::block::BlockWord;
use super::layout::{BlockId, Layout, PageId, is_run};
use super::object::AllocKind;
use super::size_class::{CLASSES, class_bytes};
use super::slab::Slab;

/// The page word of a lost page. It parses as damage, so the page stays lost.
const LOST_PAGE_WORD: u64 = 0xff;

/// The role of a page of an owned block.
#[derive(Debug)]
pub(crate) enum Page {
    /// Unused.
    Free,
    /// Out of circulation: it is being cut.
    Taken,
    /// Out of circulation for good: its contents were contradictory when the block was taken over.
    Lost,
    /// The first page of a slab.
    Slab(Slab),
    /// A further page of a slab.
    Tail,
}

/// The owner's books of one block.
#[derive(Debug)]
pub(crate) struct OwnBlock {
    pub kind: AllocKind,
    pub word: BlockWord,
    pub pages: Box<[Page]>,
    pub free_pages: u32,
    /// Being returned to the pool.
    pub leaving: bool,
    /// About to be handed over: nothing is taken from it.
    pub handing: bool,
}

impl OwnBlock {
    /// An empty block.
    pub(crate) fn empty(layout: &Layout, word: BlockWord) -> Self {
        let pages = (0..layout.pages).map(|_| Page::Free).collect();
        Self { kind: word.kind, word, pages, free_pages: layout.pages, leaving: false, handing: false }
    }

    /// A block as its page words describe it, with every object in use. Pages with contradictory
    /// words are lost.
    pub(crate) fn from_page_words(layout: &Layout, word: BlockWord, words: &[u64]) -> Self {
        let mut block = Self::empty(layout, word);
        let mut page = 0;
        while let Some(&found) = words.get(page as usize).filter(|_| page < layout.pages) {
            let pages = match layout.parse_page(page, found) {
                Ok(None) => {
                    page += 1;
                    continue;
                }
                Ok(Some((class, shape))) => {
                    block.set_slab(page, Slab::new(class, &shape, false));
                    shape.pages
                }
                Err(()) => {
                    block.pages[page as usize] = Page::Lost;
                    1
                }
            };
            block.free_pages -= pages;
            page += pages;
        }
        block
    }

    /// Adds a slab that begins at `page`.
    pub(super) fn set_slab(&mut self, page: u32, slab: Slab) {
        let pages = &mut self.pages[page as usize..(page + slab.pages) as usize];
        pages.fill_with(|| Page::Tail);
        pages[0] = Page::Slab(slab);
    }

    /// Its slabs, each with its first page.
    pub(super) fn slabs(&self) -> impl Iterator<Item = (u32, &Slab)> {
        (0u32..).zip(&self.pages).filter_map(|(page, held)| match held {
            Page::Slab(slab) => Some((page, slab)),
            _ => None,
        })
    }

    /// Bytes of its free pages and free objects.
    pub(crate) fn room(&self, layout: &Layout) -> u64 {
        let page_room = |page: &Page| match page {
            Page::Free => layout.page_bytes,
            Page::Slab(slab) => u64::from(slab.free) * class_bytes(slab.class),
            _ => 0,
        };
        self.pages.iter().map(page_room).sum()
    }
}

/// Slabs of one node, kind and class that have free objects.
#[derive(Debug, Default)]
struct Queue {
    slabs: Vec<PageId>,
    free: u64,
}

/// Pages taken out of circulation to become a slab, named by the first of them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cut {
    pub page: PageId,
    pub class: u8,
}

/// A slab whose freed bits are being fetched, named by its first page.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Claim {
    pub page: PageId,
    pub class: u8,
}

/// The result of a free.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Freed {
    /// The object is free.
    Here,
    /// The block does not belong to this process.
    Elsewhere,
    /// There is no such object, or it was free: a pointer in the pool is damaged.
    Nowhere,
}

/// Which slabs to search for objects that others freed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ClaimFilter {
    pub node: Option<u8>,
    pub kind: Option<AllocKind>,
    pub class: Option<u8>,
    pub block: Option<BlockId>,
}

/// All blocks of this process.
#[derive(Debug)]
pub(crate) struct Heap {
    pub(super) layout: Layout,
    pub(super) blocks: BTreeMap<BlockId, OwnBlock>,
    queues: Vec<Queue>,
    /// Blocks with free pages, by node and kind, except those about to be handed over.
    pub(super) open: Vec<Vec<BlockId>>,
    pub(super) empty_blocks: usize,
    cursor: Option<PageId>,
    pub(super) object_bytes: u64,
    /// How often objects were taken.
    pub(super) taken: u64,
    bad_frees: u64,
}

impl Heap {
    /// A heap without blocks.
    pub(crate) fn new(layout: Layout) -> Self {
        let mut heap = Self {
            layout,
            blocks: BTreeMap::new(),
            queues: Vec::new(),
            open: Vec::new(),
            empty_blocks: 0,
            cursor: None,
            object_bytes: 0,
            taken: 0,
            bad_frees: 0,
        };
        heap.take_nodes_in();
        heap
    }

    /// Makes room for the blocks of nodes that were added. Does nothing if none were.
    pub(crate) fn take_nodes_in(&mut self) {
        let lists = usize::from(self.layout.node_count()) * AllocKind::COUNT;
        self.queues.resize_with(lists * CLASSES, Queue::default);
        self.open.resize_with(lists, Vec::new);
    }

    fn queue_index(node: u8, kind: AllocKind, class: u8) -> usize {
        (usize::from(node) * AllocKind::COUNT + kind as usize) * CLASSES + usize::from(class)
    }

    pub(super) fn open_index(node: u8, kind: AllocKind) -> usize {
        usize::from(node) * AllocKind::COUNT + kind as usize
    }

    /// Bytes of all objects in use, including those in magazines and limbo.
    pub(crate) fn object_bytes(&self) -> u64 {
        self.object_bytes
    }

    /// Frees that named no object in use.
    pub(crate) fn bad_frees(&self) -> u64 {
        self.bad_frees
    }

    /// Counts a free that named nothing.
    pub(crate) fn count_bad_free(&mut self) {
        self.bad_frees += 1;
    }

    /// The blocks.
    pub(crate) fn blocks(&self) -> impl Iterator<Item = (&BlockId, &OwnBlock)> {
        self.blocks.iter()
    }

    /// One block.
    pub(crate) fn block(&self, block: BlockId) -> Option<&OwnBlock> {
        self.blocks.get(&block)
    }

    /// Adds a block.
    pub(crate) fn add(&mut self, id: BlockId, block: OwnBlock) {
        // Another thread may have just laid out its node.
        self.take_nodes_in();
        let kind = block.kind;
        self.object_bytes += block.object_bytes();
        if block.free_pages > 0 {
            self.open[Self::open_index(id.node, kind)].push(id);
        }
        self.empty_blocks += usize::from(block.free_pages == self.layout.pages);
        self.blocks.insert(id, block);
        for page in 0..self.layout.pages {
            self.enqueue(PageId { block: id, page });
        }
    }

    fn slab_mut(&mut self, page: PageId) -> Option<(&mut Slab, AllocKind)> {
        let block = self.blocks.get_mut(&page.block)?;
        match &mut block.pages[page.page as usize] {
            Page::Slab(slab) => Some((slab, block.kind)),
            _ => None,
        }
    }

    /// Puts a slab with free objects in its queue and counts them there.
    pub(super) fn enqueue(&mut self, page: PageId) {
        let Some(block) = self.blocks.get_mut(&page.block) else { return };
        let kind = block.kind;
        let Page::Slab(slab) = &mut block.pages[page.page as usize] else { return };
        if slab.free == 0 || slab.place().is_some() || block.handing {
            return;
        }
        let queue = &mut self.queues[Self::queue_index(page.block.node, kind, slab.class)];
        slab.set_place(Some(queue.slabs.len()));
        queue.slabs.push(page);
        queue.free += u64::from(slab.free);
    }

    /// Takes a slab out of its queue, which no longer counts its free objects.
    pub(super) fn dequeue(&mut self, page: PageId, free_counted: u32) {
        let Some((slab, kind)) = self.slab_mut(page) else { return };
        let Some(place) = slab.place() else { return };
        slab.set_place(None);
        let index = Self::queue_index(page.block.node, kind, slab.class);
        let queue = &mut self.queues[index];
        queue.free -= u64::from(free_counted);
        queue.slabs.swap_remove(place);
        if let Some(&moved) = queue.slabs.get(place)
            && let Some((slab, _)) = self.slab_mut(moved)
        {
            slab.set_place(Some(place));
        }
    }

    /// Takes up to `want` free objects; returns whether there were any.
    pub(crate) fn take(
        &mut self,
        node: u8,
        kind: AllocKind,
        class: u8,
        want: usize,
        out: &mut Vec<GlobalAddr>,
    ) -> bool {
        let index = Self::queue_index(node, kind, class);
        self.taken += 1;
        let before = out.len();
        while out.len() - before < want {
            let Some(&page) = self.queues[index].slabs.last() else { break };
            let Some(shape) = self.layout.shape(page.page, class) else { break };
            let base = self.layout.page_addr(page).plus(u64::from(shape.first));
            let Some((slab, _)) = self.slab_mut(page) else { break };
            let mut from = 0;
            let mut taken = 0u32;
            while out.len() - before < want {
                let Some(slot) = slab.take(&mut from) else { break };
                out.push(base.plus(u64::from(slot) * class_bytes(class)));
                taken += 1;
            }
            let drained = slab.free == 0;
            self.queues[index].free -= u64::from(taken);
            self.object_bytes += u64::from(taken) * class_bytes(class);
            if drained {
                self.dequeue(page, 0);
            }
        }
        out.len() > before
    }

    /// Frees an object.
    pub(crate) fn free(&mut self, addr: GlobalAddr, class: u8) -> Freed {
        let freed = self.free_quietly(addr, class);
        self.bad_frees += u64::from(freed == Freed::Nowhere);
        freed
    }

    fn free_quietly(&mut self, addr: GlobalAddr, class: u8) -> Freed {
        let Some(spot) = self.layout.spot(addr, class) else { return Freed::Nowhere };
        match self.blocks.get(&spot.page.block) {
            Some(block) if !block.leaving => {}
            Some(_) => return Freed::Nowhere,
            None => return Freed::Elsewhere,
        }
        let bit = 1 << (spot.slot % 64);
        let given = self.free_slots(spot.page, class, [(spot.slot as usize / 64, bit)].into_iter());
        if given == 0 { Freed::Nowhere } else { Freed::Here }
    }

    /// Frees the objects that a slab's bitmap words name; returns how many of them were in use.
    fn free_slots(&mut self, page: PageId, class: u8, words: impl Iterator<Item = (usize, u64)>) -> u32 {
        let Some((slab, kind)) = self.slab_mut(page) else { return 0 };
        if slab.class != class {
            return 0;
        }
        let given: u32 = words.map(|(word, bits)| slab.give_word(word, bits)).sum();
        let (all_free, count, claiming) = (slab.free == slab.count, slab.count, slab.claiming);
        let is_queued = slab.place().is_some();
        let handing = self.block(page.block).is_some_and(|block| block.handing);
        self.object_bytes -= u64::from(given) * class_bytes(class);
        let index = Self::queue_index(page.block.node, kind, class);
        if is_queued {
            self.queues[index].free += u64::from(given);
        } else {
            self.enqueue(page);
        }
        // A slab is released only if another slab's worth of objects remains, so that a class does
        // not alternate between cutting and releasing. A run, which may be large, is released at
        // once.
        let enough = self.queues[index].free >= 2 * u64::from(count);
        if all_free && !claiming && (handing || enough || is_run(class)) {
            self.release(page);
        }
        given
    }

    /// Turns a wholly free slab into free pages.
    fn release(&mut self, page: PageId) {
        let Some((slab, _)) = self.slab_mut(page) else { return };
        if slab.free < slab.count || slab.claiming {
            return;
        }
        let (free, pages) = (slab.free, slab.pages);
        self.dequeue(page, free);
        self.set_pages_free(page, pages);
    }

    fn set_pages_free(&mut self, first: PageId, pages: u32) {
        let all = self.layout.pages;
        let Some(block) = self.blocks.get_mut(&first.block) else { return };
        for page in &mut block.pages[first.page as usize..(first.page + pages) as usize] {
            *page = Page::Free;
        }
        if block.free_pages == 0 && !block.handing {
            self.open[Self::open_index(first.block.node, block.kind)].push(first.block);
        }
        block.free_pages += pages;
        self.empty_blocks += usize::from(block.free_pages == all);
    }

    /// Takes pages for a slab of `class` out of circulation ([`Layout::room_for`]).
    pub(crate) fn begin_cut(&mut self, node: u8, kind: AllocKind, class: u8) -> Option<Cut> {
        let open = Self::open_index(node, kind);
        let pages = self.layout.slab_pages(class);
        for at in (0..self.open[open].len()).rev() {
            let id = self.open[open][at];
            let Some(block) = self.blocks.get_mut(&id) else { continue };
            let is_free = |page: u32| matches!(block.pages[page as usize], Page::Free);
            let Some(first) = self.layout.room_for(class, is_free) else { continue };
            self.empty_blocks -= usize::from(block.free_pages == self.layout.pages);
            for page in &mut block.pages[first as usize..(first + pages) as usize] {
                *page = Page::Taken;
            }
            block.free_pages -= pages;
            if block.free_pages == 0 {
                self.open[open].swap_remove(at);
            }
            return Some(Cut { page: PageId { block: id, page: first }, class });
        }
        None
    }

    /// Puts a slab into circulation after its words were written.
    pub(crate) fn finish_slab(&mut self, cut: Cut) {
        let Some(shape) = self.layout.shape(cut.page.page, cut.class) else { return };
        let Some(block) = self.blocks.get_mut(&cut.page.block) else { return };
        block.set_slab(cut.page.page, Slab::new(cut.class, &shape, true));
        self.enqueue(cut.page);
    }

    /// Adds a block that had another owner, and chooses all of its slabs to fetch their freed bits:
    /// any thread that frees an object from now on finds the block in the heap.
    pub(crate) fn add_and_claim(&mut self, id: BlockId, books: OwnBlock) -> Vec<Claim> {
        self.add(id, books);
        let filter = ClaimFilter { node: None, kind: None, class: None, block: Some(id) };
        self.begin_claims(filter, usize::MAX, usize::MAX)
    }

    /// Chooses slabs in use whose freed bits are worth fetching, at most `max` of them. Continues
    /// where the last choice ended and considers about `pages_max` pages at most, or all pages if `pages_max`
    /// is `usize::MAX`.
    pub(crate) fn begin_claims(&mut self, filter: ClaimFilter, max: usize, pages_max: usize) -> Vec<Claim> {
        let mut claims = Vec::new();
        let start = self.cursor.filter(|_| pages_max < usize::MAX);
        let from = start.map_or(BlockId { node: 0, index: 0 }, |page| page.block);
        let mut considered = 0;
        let mut reached = None;
        let (behind, ahead): (Vec<_>, Vec<_>) = self.blocks.keys().copied().partition(|&id| id < from);
        for id in ahead.into_iter().chain(behind) {
            let Some(block) = self.blocks.get_mut(&id) else { continue };
            let wanted = filter.block.is_none_or(|block| block == id)
                && filter.node.is_none_or(|node| node == id.node)
                && filter.kind.is_none_or(|kind| kind == block.kind)
                && !block.leaving
                && !block.handing
                && !self.layout.is_removed(id.node);
            if !wanted {
                continue;
            }
            let first = start.filter(|page| page.block == id).map_or(0, |page| page.page);
            for page in first..block.pages.len() as u32 {
                considered += 1;
                let Page::Slab(slab) = &mut block.pages[page as usize] else { continue };
                let is_wanted =
                    slab.free < slab.count && filter.class.is_none_or(|class| class == slab.class);
                if slab.claiming || !is_wanted {
                    continue;
                }
                slab.claiming = true;
                let page = PageId { block: id, page };
                claims.push(Claim { page, class: slab.class });
                if claims.len() >= max {
                    self.cursor = Some(page);
                    return claims;
                }
            }
            if considered >= pages_max {
                reached = Some(PageId { block: id, page: u32::MAX });
                break;
            }
        }
        self.cursor = reached;
        claims
    }

    /// Ends a claim with the bits that were won, as pairs of bitmap word and bits; returns how many
    /// objects became free.
    pub(crate) fn finish_claim(&mut self, claim: Claim, won: &[(usize, u64)]) -> usize {
        match self.slab_mut(claim.page) {
            Some((slab, _)) if slab.class == claim.class => slab.claiming = false,
            _ => return 0,
        }
        let bits: u32 = won.iter().map(|(_, bits)| bits.count_ones()).sum();
        let freed = self.free_slots(claim.page, claim.class, won.iter().copied());
        self.bad_frees += u64::from(bits - freed);
        freed as usize
    }

    /// Turns all wholly free slabs into free pages.
    pub(crate) fn trim(&mut self) {
        let mut whole = Vec::new();
        for queue in &self.queues {
            whole.extend_from_slice(&queue.slabs);
        }
        for page in whole {
            self.release(page);
        }
    }

    /// The page words to leave in a block: they describe exactly what it holds.
    pub(crate) fn page_words(layout: &Layout, block: &OwnBlock) -> Vec<u64> {
        block
            .pages
            .iter()
            .map(|page| match page {
                Page::Slab(slab) if slab.free < slab.count => layout.page_word(slab.class),
                Page::Lost => LOST_PAGE_WORD,
                _ => 0,
            })
            .collect()
    }
}
