//! Layout of blocks in a memory node's region, and of objects in a block.
//!
//! ```text
//! block             0 +--------------------------------------------+
//!                     | page words: class + 1, pages in the slab   |  8 bytes a page, written by the owner
//!                     | freed words: objects freed, not reclaimed  |  8 bytes a page, FAA by anyone
//!                     | rest of page 0: objects                    |
//!          page_bytes | page 1 | page 2 | …                        |
//!                     +--------------------------------------------+
//! ```
//!
//! A page is a 64th of a block, but at least 8 and at most 64 KiB, since each process has its own
//! pages for each class: larger pages would fill a small pool with a few objects of each class.
//!
//! A slab is one or more pages with objects of one class. Its words are those of its first page;
//! the words of its other pages have no meaning. An object's address and class alone determine its
//! slab, its position in the slab, and the bit that frees it:
//!
//! - A slab of a class of up to 32 KiB has 1, 2, 4 or 8 pages, at most 64 KiB, and its first page
//!   is a multiple of their number. A class has the fewest pages that waste less than an eighth, or
//!   else the number that wastes least. A slab that begins with page 0 has less room.
//! - A larger object fills a *run*: a slab of one object, which begins at any page but page 0.
//!
//! The freed bitmap of a slab of up to 64 objects is its freed word; a slab of more objects begins
//! with its bitmap. `region` describes the memory before the blocks.

use darter_fabric::GlobalAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use super::node_use::{ForgottenNodes, NodeUse, NodeUses};
use super::size_class::{CLASSES, class_align, class_bytes, class_of};
use crate::error::PoolError;
use crate::region::TABLE_AT;

/// Most memory nodes of a pool: a node's number has 8 bits, and 255 means no node.
const NODES_MAX: usize = 255;
/// Smallest and largest page.
const PAGE_BYTES_MIN: u64 = 8 << 10;
const PAGE_BYTES_MAX: u64 = 64 << 10;
/// Pages of a block, unless they would be too small or too large.
const PAGES_PER_BLOCK: u64 = 64;
/// Smallest and largest block.
const BLOCK_BYTES_MIN: u64 = 256 << 10;
const BLOCK_BYTES_MAX: u64 = 64 << 20;
/// Most bytes of a slab, except runs.
const SLAB_BYTES_MAX: u64 = PAGE_BYTES_MAX;
/// A slab has the fewest pages of which less than one part in this many is wasted.
const WASTED_PART: u64 = 8;
/// The largest class that shares a slab with others of its kind; larger objects fill runs.
const SLAB_CLASS_BYTES_MAX: u64 = 32 << 10;

// Page words and freed words leave room for objects in page 0.
const _: () = assert!(BLOCK_BYTES_MAX / PAGE_BYTES_MAX * 16 < PAGE_BYTES_MAX / 2);
const _: () = assert!(PAGES_PER_BLOCK * 16 < PAGE_BYTES_MIN / 2);

/// Where the objects of a class lie in a slab.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shape {
    /// Pages of the slab.
    pub pages: u32,
    /// Offset of the first object in the slab.
    pub first: u32,
    /// Objects in the slab.
    pub count: u32,
    /// Offset of the freed bitmap in the slab; `None` if it is the freed word of its first page.
    pub bitmap: Option<u32>,
}

impl Shape {
    /// The shape of the slabs of `class` outside page 0.
    fn new(class: u8, page_bytes: u64) -> Self {
        let bytes = class_bytes(class);
        let run = Self { pages: bytes.div_ceil(page_bytes) as u32, first: 0, count: 1, bitmap: None };
        if is_run(class) {
            return run;
        }
        // Scaled to the largest slab, so that shapes are comparable.
        let wasted = |shape: &Self| {
            let whole = u64::from(shape.pages) * page_bytes;
            let wasted = (whole - u64::from(shape.count) * bytes) * (SLAB_BYTES_MAX / whole);
            if wasted < SLAB_BYTES_MAX / WASTED_PART { 0 } else { wasted }
        };
        let pages = (0..).map(|power| 1 << power).take_while(|pages| pages * page_bytes <= SLAB_BYTES_MAX);
        let shapes = pages.filter_map(|pages| Self::slab(class, pages as u32, page_bytes, 0));
        shapes.min_by_key(wasted).unwrap_or(run)
    }

    /// The shape of a slab of `class` with `pages` pages, whose first `base` bytes are taken;
    /// `None` if nothing fits.
    fn slab(class: u8, pages: u32, page_bytes: u64, base: u64) -> Option<Self> {
        let (bytes, whole) = (class_bytes(class), u64::from(pages) * page_bytes);
        let up = |offset: u64| offset.next_multiple_of(class_align(class));
        if bytes >= whole / 64 {
            let count = (whole - up(base)) / bytes;
            let shape = Self { pages, first: up(base) as u32, count: count as u32, bitmap: None };
            return (count > 0).then_some(shape);
        }
        let mut count = (whole - base) / bytes;
        while up(base + count.div_ceil(64) * 8) + count * bytes > whole {
            count -= 1;
        }
        let first = up(base + count.div_ceil(64) * 8) as u32;
        Some(Self { pages, first, count: count as u32, bitmap: Some(base as u32) })
    }

    /// Words of the freed bitmap.
    pub(crate) fn bitmap_words(&self) -> usize {
        self.count.div_ceil(64) as usize
    }
}

/// Whether each object of `class` fills a run.
#[inline]
pub(crate) fn is_run(class: u8) -> bool {
    class_bytes(class) > SLAB_CLASS_BYTES_MAX
}

/// A block of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct BlockId {
    pub node: u8,
    pub index: u32,
}

/// A page of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct PageId {
    pub block: BlockId,
    pub page: u32,
}

/// An object's place: the first page of its slab, and its position among the slab's objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SlotId {
    pub page: PageId,
    pub slot: u32,
}

/// One node's share of the pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NodeLayout {
    pub bytes: u64,
    pub blocks: u32,
    pub blocks_at: u64,
}

/// The nodes' layouts. Nodes may be added while other threads read. Numbers are never used again.
#[derive(Debug)]
struct Nodes {
    layouts: Box<[OnceLock<NodeLayout>]>,
    known: AtomicUsize,
}

/// The geometry of a pool. Clones share their nodes.
#[derive(Clone, Debug)]
pub(crate) struct Layout {
    nodes: Arc<Nodes>,
    uses: Arc<NodeUses>,
    pub block_bytes: u64,
    pub page_bytes: u64,
    /// Pages of a block.
    pub pages: u32,
    shapes: Box<[Shape; CLASSES]>,
    /// The shapes of slabs that begin at page 0.
    first_shapes: Box<[Option<Shape>; CLASSES]>,
}

impl Layout {
    /// Lays out nodes of the given sizes. Sizes that are too small are errors, not panics.
    pub(crate) fn new(node_bytes: &[u64], block_bytes: u64) -> Result<Self, PoolError> {
        if !block_bytes.is_power_of_two() || !(BLOCK_BYTES_MIN..=BLOCK_BYTES_MAX).contains(&block_bytes) {
            return Err(PoolError::Options("block_bytes must be a power of two from 256 KiB to 64 MiB"));
        }
        let page_bytes = (block_bytes / PAGES_PER_BLOCK).clamp(PAGE_BYTES_MIN, PAGE_BYTES_MAX);
        let pages = (block_bytes / page_bytes) as u32;
        let shapes: [Shape; CLASSES] = std::array::from_fn(|class| Shape::new(class as u8, page_bytes));
        let first_shape = |class: usize| {
            let shape = Shape::slab(class as u8, shapes[class].pages, page_bytes, u64::from(pages) * 16);
            shape.filter(|_| !is_run(class as u8))
        };
        let layouts = (0..NODES_MAX).map(|_| OnceLock::new()).collect();
        let nodes = Arc::new(Nodes { layouts, known: AtomicUsize::new(0) });
        let layout = Self {
            nodes,
            uses: Arc::new(NodeUses::new(NODES_MAX)),
            block_bytes,
            page_bytes,
            pages,
            first_shapes: Box::new(std::array::from_fn(first_shape)),
            shapes: Box::new(shapes),
        };
        for (node, &bytes) in node_bytes.iter().enumerate() {
            layout.add_node(node, bytes)?;
        }
        Ok(layout)
    }

    /// Returns the layout of a node of `bytes` bytes.
    pub(crate) fn lay_out(&self, node: u8, bytes: u64) -> Result<NodeLayout, PoolError> {
        let mut blocks = bytes / self.block_bytes;
        let start = |blocks: u64| (TABLE_AT + blocks * 8).next_multiple_of(PAGE_BYTES_MAX);
        while blocks > 0 && start(blocks) + blocks * self.block_bytes > bytes {
            blocks -= 1;
        }
        if blocks == 0 {
            let needed = start(1) + self.block_bytes;
            return Err(PoolError::TooSmall { node, node_bytes: bytes, needed });
        }
        Ok(NodeLayout { bytes, blocks: blocks as u32, blocks_at: start(blocks) })
    }

    /// Adds a node, after those before it. Several threads may add the same one.
    pub(crate) fn add_node(&self, node: usize, bytes: u64) -> Result<(), PoolError> {
        debug_assert!(node <= self.nodes.known.load(Ordering::Acquire), "nodes must be laid out in order");
        let Some(place) = self.nodes.layouts.get(node) else {
            return Err(PoolError::Options("a pool has at most 255 memory nodes"));
        };
        let laid_out = self.lay_out(node as u8, bytes)?;
        if *place.get_or_init(|| laid_out) != laid_out {
            return Err(PoolError::NodeMismatch { node: node as u8, what: "its size has changed" });
        }
        self.nodes.known.fetch_max(node + 1, Ordering::AcqRel);
        Ok(())
    }

    /// Number of nodes that are laid out: those that this process can reach.
    pub(crate) fn node_count(&self) -> u8 {
        self.nodes.known.load(Ordering::Acquire) as u8
    }

    /// One node's share.
    #[inline]
    pub(crate) fn node(&self, node: u8) -> Option<&NodeLayout> {
        self.nodes.layouts.get(usize::from(node))?.get()
    }

    /// Blocks of a node; 0 if the node is not laid out, or has left.
    pub(crate) fn blocks(&self, node: u8) -> u32 {
        self.node(node).filter(|_| !self.is_removed(node)).map_or(0, |node| node.blocks)
    }

    /// Changes how this process uses a node.
    pub(crate) fn set_use(&self, node: u8, used: NodeUse) {
        self.uses.set(node, used);
    }

    /// Whether new objects may be placed on a node.
    #[inline]
    pub(crate) fn accepts(&self, node: u8) -> bool {
        self.uses.accepts(node)
    }

    /// Whether a node has left the pool.
    pub(crate) fn is_removed(&self, node: u8) -> bool {
        self.uses.is_removed(node)
    }

    /// The nodes of which nothing that is remembered may be used.
    pub(crate) fn forgotten_nodes(&self) -> ForgottenNodes {
        ForgottenNodes(Some(Arc::clone(&self.uses)))
    }

    /// The block size for a pool whose smallest node has `node_bytes` bytes: a 64th of it, from 2
    /// to 16 MiB; pools below 16 MiB get an eighth.
    pub(crate) fn default_block_bytes(node_bytes: u64) -> u64 {
        let power = |bytes: u64| 1 << bytes.max(1).ilog2();
        if node_bytes < 16 << 20 {
            power(node_bytes / 8).clamp(BLOCK_BYTES_MIN, 2 << 20)
        } else {
            power(node_bytes / 64).clamp(2 << 20, 16 << 20)
        }
    }

    /// The size of the largest object: the largest class that fits in a block next to its first
    /// page.
    pub(crate) fn object_bytes_max(&self) -> u64 {
        let room = self.block_bytes - self.page_bytes;
        (0..CLASSES as u8).rev().map(class_bytes).find(|&bytes| bytes <= room).unwrap_or(0)
    }

    /// Pages of a slab of `class`.
    #[inline]
    pub(crate) fn slab_pages(&self, class: u8) -> u32 {
        self.shapes[usize::from(class & 127)].pages
    }

    /// The first page of a slab of `class` that `page` belongs to, or would belong to.
    #[inline]
    fn first_page(&self, page: u32, class: u8) -> u32 {
        if is_run(class) { page } else { page & !(self.slab_pages(class) - 1) }
    }

    /// The shape of a slab of `class` that begins at page `page` of a block; `None` if none can.
    #[inline]
    pub(crate) fn shape(&self, page: u32, class: u8) -> Option<Shape> {
        if page == 0 {
            return self.first_shapes[usize::from(class & 127)];
        }
        let shape = self.shapes[usize::from(class & 127)];
        let fits = page == self.first_page(page, class) && page + shape.pages <= self.pages;
        fits.then_some(shape)
    }

    /// The first of the free pages of a block from which a slab of `class` is best cut; `None` if
    /// there are none. A run takes the last ones, any other slab the first ones in the smallest
    /// hole, so that holes for larger slabs remain. `is_free` says which pages are free.
    pub(crate) fn room_for(&self, class: u8, is_free: impl Fn(u32) -> bool) -> Option<u32> {
        let pages = self.slab_pages(class);
        if is_run(class) {
            let mut run = 0;
            return (1..self.pages).rev().find(|&page| {
                run = if is_free(page) { run + 1 } else { 0 };
                run == pages
            });
        }
        let are_free = |first: u32, pages: u32| (first..first + pages).all(&is_free);
        let most = (SLAB_BYTES_MAX / self.page_bytes) as u32;
        let hole = |first: u32| {
            let sizes = std::iter::successors(Some(pages), |pages| Some(pages * 2));
            sizes.take_while(|&size| size <= most && are_free(first & !(size - 1), size)).last()
        };
        let firsts = (0..self.pages).step_by(pages as usize);
        firsts
            .filter(|&first| self.shape(first, class).is_some() && are_free(first, pages))
            .min_by_key(|&first| hole(first))
    }

    /// The address of a block's word in the block table.
    pub(crate) fn block_word(block: BlockId) -> GlobalAddr {
        GlobalAddr::new(block.node, TABLE_AT + u64::from(block.index) * 8)
    }

    /// The address of a block, where its page words lie.
    #[inline]
    pub(crate) fn block_addr(&self, block: BlockId) -> GlobalAddr {
        let blocks_at = self.node(block.node).map_or(0, |node| node.blocks_at);
        GlobalAddr::new(block.node, blocks_at + u64::from(block.index) * self.block_bytes)
    }

    /// The address of a block's freed words.
    pub(crate) fn freed_words(&self, block: BlockId) -> GlobalAddr {
        self.block_addr(block).plus(u64::from(self.pages) * 8)
    }

    /// The address of a page.
    #[inline]
    pub(crate) fn page_addr(&self, page: PageId) -> GlobalAddr {
        self.block_addr(page.block).plus(u64::from(page.page) * self.page_bytes)
    }

    /// The address of the freed bitmap of the slab of `class` at `page`, and its number of words.
    pub(crate) fn bitmap_of(&self, page: PageId, class: u8) -> (GlobalAddr, usize) {
        match self.shape(page.page, class) {
            Some(shape @ Shape { bitmap: Some(at), .. }) => {
                (self.page_addr(page).plus(u64::from(at)), shape.bitmap_words())
            }
            _ => (self.freed_words(page.block).plus(u64::from(page.page) * 8), 1),
        }
    }

    /// The page that an address lies in.
    #[inline]
    pub(crate) fn page_of(&self, addr: GlobalAddr) -> Option<PageId> {
        let node = self.node(addr.node())?;
        let within = addr.offset().checked_sub(node.blocks_at)?;
        let index = within / self.block_bytes;
        if index >= u64::from(node.blocks) {
            return None;
        }
        let page = (within % self.block_bytes / self.page_bytes) as u32;
        Some(PageId { block: BlockId { node: addr.node(), index: index as u32 }, page })
    }

    /// The position of an object of `class` at `addr`; `None` if there can be none.
    pub(crate) fn spot(&self, addr: GlobalAddr, class: u8) -> Option<SlotId> {
        let mut page = self.page_of(addr)?;
        page.page = self.first_page(page.page, class);
        let shape = self.shape(page.page, class)?;
        let within = (addr.offset() - self.page_addr(page).offset()) as u32;
        let from_first = within.checked_sub(shape.first)?;
        let bytes = class_bytes(class) as u32;
        let slot = from_first / bytes;
        (from_first % bytes == 0 && slot < shape.count).then_some(SlotId { page, slot })
    }

    /// The address of an object of `class`.
    pub(crate) fn object_addr(&self, spot: SlotId, class: u8) -> Option<GlobalAddr> {
        let first = u64::from(self.shape(spot.page.page, class)?.first);
        Some(self.page_addr(spot.page).plus(first + u64::from(spot.slot) * class_bytes(class)))
    }

    /// The word and bit with which any member frees the object of `class` at `addr`.
    pub(crate) fn freed_bit(&self, addr: GlobalAddr, class: u8) -> Option<(GlobalAddr, u64)> {
        let spot = self.spot(addr, class)?;
        let (bitmap, _) = self.bitmap_of(spot.page, class);
        Some((bitmap.plus(u64::from(spot.slot / 64) * 8), 1 << (spot.slot % 64)))
    }

    /// The page word of a slab's first page.
    pub(crate) fn page_word(&self, class: u8) -> u64 {
        (u64::from(class) + 1) | (u64::from(self.slab_pages(class)) << 8)
    }

    /// The class and shape of the slab that a page word names; `Ok(None)` for a free page. Fails if
    /// no slab has this word.
    pub(crate) fn parse_page(&self, page: u32, word: u64) -> Result<Option<(u8, Shape)>, ()> {
        if word == 0 {
            return Ok(None);
        }
        let class = (word & 0xff).checked_sub(1).filter(|&class| class < CLASSES as u64).ok_or(())? as u8;
        let shape = self.shape(page, class).ok_or(())?;
        (word == self.page_word(class)).then_some(Some((class, shape))).ok_or(())
    }
}

/// The size class of an object of `bytes` bytes in this pool.
pub(crate) fn class_in(layout: &Layout, bytes: u64) -> Result<u8, PoolError> {
    let max = layout.object_bytes_max();
    class_of(bytes).filter(|_| bytes <= max).ok_or(PoolError::TooLarge { bytes, max })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    /// Block sizes with their page sizes, in KiB.
    const SIZES: [(u64, u64); 7] =
        [(256, 8), (512, 8), (1024, 16), (2048, 32), (4096, 64), (16 << 10, 64), (64 << 10, 64)];

    fn layouts() -> impl Iterator<Item = Layout> {
        SIZES.into_iter().map(|(block, page)| {
            let layout = Layout::new(&[(block << 10) * 3], block << 10).unwrap();
            assert_eq!((layout.page_bytes, layout.blocks(0)), (page << 10, 2));
            layout
        })
    }

    fn page(page: u32) -> PageId {
        PageId { block: BlockId { node: 0, index: 1 }, page }
    }

    #[test]
    fn slabs_waste_less_than_an_eighth() {
        for layout in layouts() {
            for class in 0..CLASSES as u8 {
                let (shape, bytes) = (layout.shapes[usize::from(class)], class_bytes(class));
                let whole = u64::from(shape.pages) * layout.page_bytes;
                let wasted = whole - u64::from(shape.count) * bytes;
                if is_run(class) {
                    assert!(shape.count == 1 && wasted < layout.page_bytes);
                    continue;
                }
                assert!(whole <= SLAB_BYTES_MAX && shape.pages.is_power_of_two());
                // No power of two up to 64 KiB holds these sizes better.
                let part = match bytes >> 10 {
                    24 => 4,
                    14 | 28 => 8,
                    _ => 9,
                };
                assert!(wasted * part <= whole, "{bytes} {shape:?}");
                let half = Shape::slab(class, shape.pages / 2, layout.page_bytes, 0);
                if let Some(half) = half.filter(|_| shape.pages > 1) {
                    let half_wasted = whole / 2 - u64::from(half.count) * bytes;
                    assert!(half_wasted * 8 >= whole / 2, "{bytes} {half:?}");
                }
            }
        }
    }

    #[test]
    fn slabs_fit_their_pages_and_objects_find_back() {
        for layout in layouts() {
            for class in 0..CLASSES as u8 {
                let pages = layout.slab_pages(class);
                for first in [0, 1, 2, 3, 4, 6, 8, layout.pages - 8, layout.pages - 2, layout.pages - 1] {
                    let taken = if first == 0 { u64::from(layout.pages) * 16 } else { 0 };
                    let (whole, bytes) = (u64::from(pages) * layout.page_bytes, class_bytes(class));
                    let is_place = if is_run(class) { first > 0 } else { first.is_multiple_of(pages) };
                    let has_room = taken + bytes <= whole && first + pages <= layout.pages;
                    let shape = layout.shape(first, class);
                    assert_eq!(shape.is_some(), is_place && has_room, "{bytes} at {first}");
                    let Some(shape) = shape else { continue };
                    assert!(shape.pages == pages && shape.count > 0);
                    assert!(u64::from(shape.first) + u64::from(shape.count) * bytes <= whole);
                    assert!(u64::from(shape.first) >= taken);
                    assert!(shape.bitmap.is_some() || shape.count <= 64);
                    if let Some(at) = shape.bitmap {
                        assert!(
                            u64::from(at) >= taken && at + shape.bitmap_words() as u32 * 8 <= shape.first
                        );
                    }
                    for slot in [0, shape.count / 3, shape.count / 2, shape.count - 1] {
                        let spot = SlotId { page: page(first), slot };
                        let addr = layout.object_addr(spot, class).unwrap();
                        assert_eq!(layout.spot(addr, class), Some(spot));
                        assert_eq!(addr.offset() % class_align(class), 0);
                        assert_eq!(layout.spot(addr.plus(8), class), None);
                    }
                    let word = layout.page_word(class);
                    assert_eq!(layout.parse_page(first, word), Ok(Some((class, shape))));
                    assert!(layout.parse_page(first, word + 0x100).is_err());
                }
            }
        }
    }

    /// Slabs of all classes, one after the other in one block.
    #[test]
    fn no_two_objects_have_the_same_freed_bit() {
        for layout in layouts() {
            for from in 0..CLASSES as u8 {
                let (mut bits, mut first) = (HashSet::new(), 0);
                let (mut end, mut objects) =
                    (layout.block_addr(page(0).block).plus(u64::from(layout.pages) * 16), 0);
                for class in (from..CLASSES as u8).chain(0..from).step_by(3) {
                    let Some(at) = (first..layout.pages).find(|&at| layout.shape(at, class).is_some()) else {
                        continue;
                    };
                    let shape = layout.shape(at, class).unwrap();
                    let (bitmap, words) = layout.bitmap_of(page(at), class);
                    assert!(shape.bitmap.is_none() || bitmap >= end);
                    for slot in 0..shape.count {
                        let addr = layout.object_addr(SlotId { page: page(at), slot }, class).unwrap();
                        let (word, bit) = layout.freed_bit(addr, class).unwrap();
                        assert!(
                            (bitmap..bitmap.plus(words as u64 * 8)).contains(&word) && bit.is_power_of_two()
                        );
                        assert!(bits.insert((word, bit)), "{addr} {class}");
                        assert!(addr >= end && (word < addr || word >= addr.plus(class_bytes(class))));
                        end = addr.plus(class_bytes(class));
                        objects += 1;
                    }
                    first = at + shape.pages;
                }
                assert_eq!(bits.len(), objects);
            }
        }
    }

    /// Single pages do not break up the last place for a large slab or a run.
    #[test]
    fn a_slab_takes_the_smallest_hole() {
        let layout = Layout::new(&[4 << 20], 512 << 10).unwrap();
        let [one, two, eight, run] = [1000, 5000, 20_000, 40_000].map(|bytes| class_of(bytes).unwrap());
        assert_eq!([one, two, eight, run].map(|class| layout.slab_pages(class)), [1, 2, 8, 5]);
        let all = |_| true;
        let place = |class, is_free: &dyn Fn(u32) -> bool| layout.room_for(class, is_free);
        assert_eq!(
            [one, two, eight, run].map(|class| place(class, &all)),
            [Some(0), Some(0), Some(0), Some(59)]
        );
        // Holes of 16 pages, of 5 that are not aligned, and of 2.
        let is_free = |page: u32| matches!(page, 8..24 | 27..32 | 38..40);
        assert_eq!(
            [one, two, eight, run].map(|class| place(class, &is_free)),
            [Some(27), Some(38), Some(8), Some(27)]
        );
        // Nine pages, of which no eight are aligned.
        let is_free = |page: u32| matches!(page, 12..21);
        assert_eq!(
            [one, two, eight, run].map(|class| place(class, &is_free)),
            [Some(20), Some(12), None, Some(16)]
        );
        assert_eq!(place(one, &|_| false), None);
    }

    #[test]
    fn nonsense_has_no_place() {
        let layout = Layout::new(&[4 << 20], 1 << 20).unwrap();
        assert!(layout.spot(GlobalAddr::new(1, 1 << 20), 3).is_none());
        assert!(layout.spot(GlobalAddr::new(0, 64), 3).is_none());
        assert!(layout.spot(GlobalAddr::new(0, (1 << 40) - 8), 3).is_none());
        assert!(layout.parse_page(3, 0xff).is_err());
        assert!(layout.parse_page(3, u64::MAX).is_err());
        let [slab, run] = [10_000, 100 << 10].map(|bytes| class_of(bytes).unwrap());
        assert!(layout.parse_page(layout.pages - 1, layout.page_word(run)).is_err());
        assert!(layout.parse_page(0, layout.page_word(run)).is_err());
        assert!(layout.parse_page(3, layout.page_word(slab)).is_err(), "not aligned");
        assert!(Layout::new(&[100], 1 << 20).is_err());
        assert!(Layout::new(&[1 << 30], 3 << 20).is_err());
    }
}
