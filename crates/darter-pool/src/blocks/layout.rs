//! How blocks lie in a memory node's region, and objects in a block.
//!
//! ```text
//! block             0 +--------------------------------------------+
//!                     | page words: class + 1, pages in the run    |  8 bytes a page, written by the owner
//!                     | freed words: objects freed, not reclaimed  |  8 bytes a page, FAA by anyone
//!                     | rest of page 0: objects                    |
//!               64 Ki | page 1 | page 2 | …                        |
//!                     +--------------------------------------------+
//! ```
//!
//! A page is a slab of objects of one class, or part of a run of pages that one object fills. The
//! freed bitmap of a slab of up to 64 objects, and of a run, is the page's freed word; a slab of
//! more objects begins with its bitmap. What lies before the blocks is described in `region`.

use darter_fabric::GlobalAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use super::size_class::{CLASSES, class_align, class_bytes, class_of};
use crate::error::PoolError;
use crate::region::TABLE_AT;

/// Most memory nodes of a pool: a node's number takes 8 bits, and 255 stands for none.
const NODES_MAX: usize = 255;
/// Bytes of a page.
pub(crate) const PAGE_BYTES: u64 = 64 << 10;
/// Smallest and largest block.
const BLOCK_BYTES_MIN: u64 = 256 << 10;
const BLOCK_BYTES_MAX: u64 = 64 << 20;
/// The largest class that shares a page with others of its kind; larger objects fill runs of pages.
const SLAB_CLASS_BYTES_MAX: u64 = 32 << 10;

// Page words and freed words of the largest block leave room for objects in page 0.
const _: () = assert!(BLOCK_BYTES_MAX / PAGE_BYTES * 16 < PAGE_BYTES / 2);

/// Where the objects of a class lie in a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shape {
    /// Offset of the first object in its page.
    pub first: u32,
    /// Objects in the page.
    pub count: u32,
    /// Offset of the freed bitmap in the page; `None` when it is the page's freed word.
    pub bitmap: Option<u32>,
}

impl Shape {
    /// The shape of a slab of `class` in a page whose first `base` bytes are taken; `None` when
    /// nothing fits or the class fills runs.
    fn slab(class: u8, base: u64) -> Option<Self> {
        let bytes = class_bytes(class);
        if bytes > SLAB_CLASS_BYTES_MAX {
            return None;
        }
        let up = |offset: u64| offset.next_multiple_of(class_align(class));
        if bytes >= PAGE_BYTES / 64 {
            let count = (PAGE_BYTES - up(base)) / bytes;
            return (count > 0).then_some(Self { first: up(base) as u32, count: count as u32, bitmap: None });
        }
        let mut count = (PAGE_BYTES - base) / bytes;
        while up(base + count.div_ceil(64) * 8) + count * bytes > PAGE_BYTES {
            count -= 1;
        }
        let first = up(base + count.div_ceil(64) * 8) as u32;
        Some(Self { first, count: count as u32, bitmap: Some(base as u32) })
    }

    /// Words of the freed bitmap.
    pub(crate) fn bitmap_words(&self) -> usize {
        self.count.div_ceil(64) as usize
    }
}

/// Pages that an object of `class` fills, when it is too large for a slab.
pub(crate) fn run_pages(class: u8) -> Option<u32> {
    let bytes = class_bytes(class);
    (bytes > SLAB_CLASS_BYTES_MAX).then(|| bytes.div_ceil(PAGE_BYTES) as u32)
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

/// An object's place: its page, and its position among the page's objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Spot {
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

/// The nodes' layouts. Nodes come while others look, and never go.
#[derive(Debug)]
struct Nodes {
    layouts: Box<[OnceLock<NodeLayout>]>,
    known: AtomicUsize,
}

/// The geometry of a pool. Clones share their nodes.
#[derive(Clone, Debug)]
pub(crate) struct Layout {
    nodes: Arc<Nodes>,
    pub block_bytes: u64,
    pub pages: u32,
    shapes: Box<[Option<Shape>; CLASSES]>,
    first_shapes: Box<[Option<Shape>; CLASSES]>,
}

impl Layout {
    /// Lays out nodes of the given sizes. Sizes below 4 KiB times anything sensible are errors, not
    /// panics.
    pub(crate) fn new(node_bytes: &[u64], block_bytes: u64) -> Result<Self, PoolError> {
        if !block_bytes.is_power_of_two() || !(BLOCK_BYTES_MIN..=BLOCK_BYTES_MAX).contains(&block_bytes) {
            return Err(PoolError::Options("block_bytes must be a power of two from 256 KiB to 64 MiB"));
        }
        let pages = (block_bytes / PAGE_BYTES) as u32;
        let shapes = |base| Box::new(std::array::from_fn(|class| Shape::slab(class as u8, base)));
        let layouts = (0..NODES_MAX).map(|_| OnceLock::new()).collect();
        let nodes = Arc::new(Nodes { layouts, known: AtomicUsize::new(0) });
        let layout = Self {
            nodes,
            block_bytes,
            pages,
            shapes: shapes(0),
            first_shapes: shapes(u64::from(pages) * 16),
        };
        for (node, &bytes) in node_bytes.iter().enumerate() {
            layout.add_node(node, bytes)?;
        }
        Ok(layout)
    }

    /// How a node of so many bytes is laid out.
    pub(crate) fn lay_out(&self, node: u8, bytes: u64) -> Result<NodeLayout, PoolError> {
        let mut blocks = bytes / self.block_bytes;
        let start = |blocks: u64| (TABLE_AT + blocks * 8).next_multiple_of(PAGE_BYTES);
        while blocks > 0 && start(blocks) + blocks * self.block_bytes > bytes {
            blocks -= 1;
        }
        if blocks == 0 {
            let needed = start(1) + self.block_bytes;
            return Err(PoolError::TooSmall { node, node_bytes: bytes, needed });
        }
        Ok(NodeLayout { bytes, blocks: blocks as u32, blocks_at: start(blocks) })
    }

    /// Takes a node in, after those before it. Several threads may take in the same one.
    pub(crate) fn add_node(&self, node: usize, bytes: u64) -> Result<(), PoolError> {
        debug_assert!(node <= self.nodes.known.load(Ordering::Acquire), "its predecessors are laid out");
        let Some(place) = self.nodes.layouts.get(node) else {
            return Err(PoolError::Options("a pool has at most 255 memory nodes"));
        };
        let laid_out = self.lay_out(node as u8, bytes)?;
        if *place.get_or_init(|| laid_out) != laid_out {
            return Err(PoolError::NodeMismatch { node: node as u8, what: "its bytes have changed" });
        }
        self.nodes.known.fetch_max(node + 1, Ordering::AcqRel);
        Ok(())
    }

    /// Nodes that are laid out: those that this process can reach.
    pub(crate) fn node_count(&self) -> u8 {
        self.nodes.known.load(Ordering::Acquire) as u8
    }

    /// One node's share.
    #[inline]
    pub(crate) fn node(&self, node: u8) -> Option<&NodeLayout> {
        self.nodes.layouts.get(usize::from(node))?.get()
    }

    /// Blocks of a node, 0 where there is none.
    pub(crate) fn blocks(&self, node: u8) -> u32 {
        self.node(node).map_or(0, |node| node.blocks)
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

    /// The largest object's bytes: the largest class that fits in a block beside its first page.
    pub(crate) fn object_bytes_max(&self) -> u64 {
        let room = self.block_bytes - PAGE_BYTES;
        (0..CLASSES as u8).rev().map(class_bytes).find(|&bytes| bytes <= room).unwrap_or(0)
    }

    /// The shape of a slab of `class` in page `page` of a block.
    #[inline]
    pub(crate) fn shape(&self, page: u32, class: u8) -> Option<Shape> {
        let shapes = if page == 0 { &self.first_shapes } else { &self.shapes };
        shapes[usize::from(class & 127)]
    }

    /// The block table's word of a block.
    pub(crate) fn block_word(block: BlockId) -> GlobalAddr {
        GlobalAddr::new(block.node, TABLE_AT + u64::from(block.index) * 8)
    }

    /// The first byte of a block, where its page words lie.
    #[inline]
    pub(crate) fn block_addr(&self, block: BlockId) -> GlobalAddr {
        let blocks_at = self.node(block.node).map_or(0, |node| node.blocks_at);
        GlobalAddr::new(block.node, blocks_at + u64::from(block.index) * self.block_bytes)
    }

    /// The freed words of a block.
    pub(crate) fn freed_words(&self, block: BlockId) -> GlobalAddr {
        self.block_addr(block).plus(u64::from(self.pages) * 8)
    }

    /// The first byte of a page.
    #[inline]
    pub(crate) fn page_addr(&self, page: PageId) -> GlobalAddr {
        self.block_addr(page.block).plus(u64::from(page.page) * PAGE_BYTES)
    }

    /// Where the freed bitmap of a slab begins.
    pub(crate) fn bitmap_addr(&self, page: PageId, shape: &Shape) -> GlobalAddr {
        match shape.bitmap {
            Some(at) => self.page_addr(page).plus(u64::from(at)),
            None => self.freed_words(page.block).plus(u64::from(page.page) * 8),
        }
    }

    /// Where the freed bitmap of a page lies, and its words.
    pub(crate) fn bitmap_of(&self, page: PageId, class: u8) -> (GlobalAddr, usize) {
        match self.shape(page.page, class) {
            Some(shape) => (self.bitmap_addr(page, &shape), shape.bitmap_words()),
            None => (self.freed_words(page.block).plus(u64::from(page.page) * 8), 1),
        }
    }

    /// The page an address lies in.
    #[inline]
    pub(crate) fn page_of(&self, addr: GlobalAddr) -> Option<PageId> {
        let node = self.node(addr.node())?;
        let within = addr.offset().checked_sub(node.blocks_at)?;
        let index = within / self.block_bytes;
        if index >= u64::from(node.blocks) {
            return None;
        }
        let page = (within % self.block_bytes / PAGE_BYTES) as u32;
        Some(PageId { block: BlockId { node: addr.node(), index: index as u32 }, page })
    }

    /// Where an object of `class` at `addr` would lie; `None` when none can.
    pub(crate) fn spot(&self, addr: GlobalAddr, class: u8) -> Option<Spot> {
        let page = self.page_of(addr)?;
        let within = (addr.offset() - self.page_addr(page).offset()) as u32;
        if let Some(pages) = run_pages(class) {
            let fits = within == 0 && page.page > 0 && page.page + pages <= self.pages;
            return fits.then_some(Spot { page, slot: 0 });
        }
        let shape = self.shape(page.page, class)?;
        let from_first = within.checked_sub(shape.first)?;
        let bytes = class_bytes(class) as u32;
        let slot = from_first / bytes;
        (from_first % bytes == 0 && slot < shape.count).then_some(Spot { page, slot })
    }

    /// The address of an object of `class`.
    pub(crate) fn object_addr(&self, spot: Spot, class: u8) -> Option<GlobalAddr> {
        if run_pages(class).is_some() {
            return Some(self.page_addr(spot.page));
        }
        let shape = self.shape(spot.page.page, class)?;
        Some(
            self.page_addr(spot.page)
                .plus(u64::from(shape.first) + u64::from(spot.slot) * class_bytes(class)),
        )
    }

    /// The word and bit by which anyone frees the object of `class` at `addr`.
    pub(crate) fn freed_bit(&self, addr: GlobalAddr, class: u8) -> Option<(GlobalAddr, u64)> {
        let spot = self.spot(addr, class)?;
        let bitmap = match self.shape(spot.page.page, class) {
            Some(shape) => self.bitmap_addr(spot.page, &shape),
            None => self.freed_words(spot.page.block).plus(u64::from(spot.page.page) * 8),
        };
        Some((bitmap.plus(u64::from(spot.slot / 64) * 8), 1 << (spot.slot % 64)))
    }

    /// The class and run length that a page word names, when it can be: `Ok(None)` for a page that
    /// is free.
    pub(crate) fn parse_page(&self, page: u32, word: u64) -> Result<Option<(u8, u32)>, ()> {
        if word == 0 {
            return Ok(None);
        }
        let class = (word & 0xff).checked_sub(1).filter(|&class| class < CLASSES as u64).ok_or(())? as u8;
        let expected = run_pages(class).unwrap_or(1);
        let fits = match run_pages(class) {
            Some(pages) => page > 0 && page + pages <= self.pages,
            None => self.shape(page, class).is_some(),
        };
        (fits && word >> 8 == u64::from(expected)).then_some(Some((class, expected))).ok_or(())
    }
}

/// The page word of a slab, or of the first page of a run.
pub(crate) fn page_word(class: u8) -> u64 {
    (u64::from(class) + 1) | (u64::from(run_pages(class).unwrap_or(1)) << 8)
}

/// The size class of an object of `bytes` bytes in this pool.
pub(crate) fn class_in(layout: &Layout, bytes: u64) -> Result<u8, PoolError> {
    let max = layout.object_bytes_max();
    class_of(bytes).filter(|_| bytes <= max).ok_or(PoolError::TooLarge { bytes, max })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slabs_fit_their_pages_and_objects_find_back() {
        let layout = Layout::new(&[8 << 20, 3 << 20], 1 << 20).unwrap();
        assert_eq!(layout.blocks(0), 7);
        for class in 0..CLASSES as u8 {
            for page in [0, 1, layout.pages - 1] {
                let Some(shape) = layout.shape(page, class) else { continue };
                let end = u64::from(shape.first) + u64::from(shape.count) * class_bytes(class);
                assert!(end <= PAGE_BYTES && shape.count > 0);
                let taken = if page == 0 { u64::from(layout.pages) * 16 } else { 0 };
                assert!(u64::from(shape.first) >= taken);
                assert!(shape.bitmap.is_some() || shape.count <= 64);
                if let Some(at) = shape.bitmap {
                    assert!(u64::from(at) >= taken && at + shape.bitmap_words() as u32 * 8 <= shape.first);
                }
                let page = PageId { block: BlockId { node: 1, index: 1 }, page };
                for slot in [0, shape.count / 2, shape.count - 1] {
                    let addr = layout.object_addr(Spot { page, slot }, class).unwrap();
                    assert_eq!(layout.spot(addr, class), Some(Spot { page, slot }));
                    assert_eq!(addr.offset() % class_align(class), 0);
                    assert_eq!(layout.spot(addr.plus(8), class), None);
                }
            }
        }
    }

    #[test]
    fn nonsense_has_no_place() {
        let layout = Layout::new(&[4 << 20], 1 << 20).unwrap();
        assert!(layout.spot(GlobalAddr::new(1, 1 << 20), 3).is_none());
        assert!(layout.spot(GlobalAddr::new(0, 64), 3).is_none());
        assert!(layout.spot(GlobalAddr::new(0, (1 << 40) - 8), 3).is_none());
        assert!(layout.parse_page(3, 0xff).is_err());
        assert!(layout.parse_page(3, u64::MAX).is_err());
        assert!(layout.parse_page(15, page_word(class_of(100 << 10).unwrap())).is_err());
        assert!(Layout::new(&[100], 1 << 20).is_err());
        assert!(Layout::new(&[1 << 30], 3 << 20).is_err());
    }
}
