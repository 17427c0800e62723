//! Everything remembered of a node, packed: the node, and items for its pages and child nodes.
//!
//! ```text
//! block   identity, 2 units | node word, 2 units | born | items | nothing, to an even number of units
//! node    63        58  57    56   55       44 43            0
//!        |     0      | dead | used | units 12 | address / 16 |
//!
//! item    63    62     61   57 56                 44 43            0
//! page   |  1  | used |  lo 5 | record words 7 | records - 1, 6 | address / 16 |
//!         delta 5 | hi 5 | width 5 | own born 1 | filtered 1 | base 15; own born; filter; the map
//! child  |  0  | used | edge 5 | tagged 1 | own born 1 | skip 11 | address / 16 |
//!         own born; tag
//! ```
//!
//! The *filter* is for the keys in the page's delta; it is present if it has any. *Born* of an item
//! is the node's unless it has its own. *Base* is reduced by the position where the node's prefix
//! ends. The *tag* is from the child's identity; it is present if nibbles are skipped, since a key
//! on the path may not have them.

use super::log::Log;
use crate::quiver::hint::{DeltaFilter, NodeHint, PageHint};
use crate::quiver::map;
use crate::quiver::nibble::{EdgeRange, identity_depth};
use crate::quiver::node::SKIP_MAX;
use crate::quiver::page::{PageRef, RECORDS_MAX, Shape};
use darter_fabric::GlobalAddr;
use darter_pool::size_class::class_of;
use smallvec::SmallVec;

/// Units of a block before its items.
const HEAD_UNITS: usize = 5;
/// Most units of a block.
const UNITS_MAX: usize = (1 << 12) - 2;

const ADDR: u64 = (1 << 44) - 1;
const UNITS_AT: u32 = 44;
const BLOCK_USED: u32 = 1 << 24;
const DEAD: u32 = 1 << 25;

const RECORDS_AT: u32 = 44;
const RECORD_WORDS_AT: u32 = 50;
const SKIP_AT: u32 = 44;
const CHILD_BORN_AT: u32 = 55;
const TAGGED_AT: u32 = 56;
const EDGE_AT: u32 = 57;
const ITEM_USED: u32 = 1 << 30;
const PAGE_AT: u32 = 63;

const DELTA_AT: u32 = 27;
const HI_AT: u32 = 22;
const WIDTH_AT: u32 = 17;
const PAGE_BORN_AT: u32 = 16;
const FILTERED_AT: u32 = 15;
const BASE_MAX: u32 = (1 << FILTERED_AT) - 1;

/// A block by its position.
#[derive(Clone, Copy, Debug)]
pub(super) struct Block {
    pub(super) at: u32,
    pub(super) identity: u64,
    pub(super) node: NodeHint,
    pub(super) units: usize,
    pub(super) is_used: bool,
    pub(super) is_dead: bool,
}

impl Block {
    /// The block at a position.
    pub(super) fn read(log: &Log, at: u32) -> Self {
        let (identity, word) = (log.pair(at), log.pair(at.wrapping_add(2)));
        let addr = GlobalAddr::from_bits((word & ADDR) << 4);
        let born = log.unit(at.wrapping_add(4));
        let flags = (word >> 32) as u32;
        Self {
            at,
            identity,
            node: NodeHint { addr, born, depth: identity_depth(identity) },
            units: (word >> UNITS_AT & 0xfff) as usize,
            is_used: flags & BLOCK_USED != 0,
            is_dead: flags & DEAD != 0,
        }
    }

    /// Marks the block as used since it was last at the front.
    pub(super) fn touch(&self, log: &mut Log) {
        log.set_bits(self.at.wrapping_add(3), BLOCK_USED);
    }

    /// Marks the block as dead: the table no longer points to it.
    pub(super) fn kill(&self, log: &mut Log) {
        log.set_bits(self.at.wrapping_add(3), DEAD);
    }

    /// Its items.
    pub(super) fn items<'l>(&self, log: &'l Log) -> impl Iterator<Item = Item> + use<'l> {
        let (start, units) = (self.at, log.units(self.at, self.units));
        let mut at = HEAD_UNITS;
        std::iter::from_fn(move || {
            // A single unit at the end is padding.
            let [low, high, rest @ ..] = units.get(at..)? else { return None };
            let item = Item::of(start.wrapping_add(at as u32), [*low, *high], rest.first().copied());
            at += item.units;
            Some(item)
        })
    }
}

/// A block being built.
pub(super) struct Draft {
    units: Vec<u32>,
}

impl Draft {
    /// Creates a block of a node without items.
    pub(super) fn new(identity: u64, node: NodeHint) -> Self {
        let word = node.addr.bits() >> 4;
        let mut units = Vec::with_capacity(64);
        push_pair(&mut units, identity);
        push_pair(&mut units, word);
        units.push(node.born);
        Self { units }
    }

    /// Adds an item of another block, marked as unused.
    pub(super) fn copy(&mut self, log: &Log, item: Item) {
        let at = self.units.len();
        self.units.extend_from_slice(&log.units(item.at, item.units));
        self.units[at + 1] &= !ITEM_USED;
    }

    /// Adds a page. Returns whether it can be remembered.
    #[must_use]
    pub(super) fn add_page(&mut self, node: NodeHint, hint: &PageHint) -> bool {
        let PageHint { page, shape, map, delta } = hint;
        let base = shape.base.checked_sub(map::least_base(shape.records, shape.depth));
        let Some(base) = base.filter(|base| *base <= BASE_MAX) else { return false };
        let is_usual = shape.depth == node.depth
            && (1..=RECORDS_MAX).contains(&shape.records)
            && shape.map_words == map::words_of(shape.records, shape.width)
            && map.len() == shape.map_words
            && class_of(shape.words() as u64 * 8) == Some(page.class);
        if !is_usual {
            return false;
        }
        let (has_born, has_filter) = (shape.born != node.born, *delta != DeltaFilter::default());
        push_pair(
            &mut self.units,
            1 << PAGE_AT
                | u64::from(shape.edges.lo) << EDGE_AT
                | (shape.record_words as u64) << RECORD_WORDS_AT
                | (shape.records as u64 - 1) << RECORDS_AT
                | page.addr.bits() >> 4,
        );
        self.units.push(
            (shape.delta as u32) << DELTA_AT
                | u32::from(shape.edges.hi) << HI_AT
                | shape.width << WIDTH_AT
                | u32::from(has_born) << PAGE_BORN_AT
                | u32::from(has_filter) << FILTERED_AT
                | base,
        );
        self.units.extend(has_born.then_some(shape.born));
        self.units.extend(has_filter.then_some(delta.0));
        let halves = map.iter().flat_map(|word| [*word as u32, (word >> 32) as u32]);
        self.units.extend(halves.take(map_units(shape.records, shape.width)));
        true
    }

    /// Adds a child node under an edge. Returns whether it can be remembered.
    #[must_use]
    pub(super) fn add_child(&mut self, node: NodeHint, edge: u8, identity: u64, child: NodeHint) -> bool {
        let Some(skip) = child.depth.checked_sub(node.depth + 1).filter(|skip| *skip <= SKIP_MAX) else {
            return false;
        };
        let (has_born, has_tag) = (child.born != node.born, skip > 0);
        push_pair(
            &mut self.units,
            u64::from(edge) << EDGE_AT
                | u64::from(has_tag) << TAGGED_AT
                | u64::from(has_born) << CHILD_BORN_AT
                | (skip as u64) << SKIP_AT
                | child.addr.bits() >> 4,
        );
        self.units.extend(has_born.then_some(child.born));
        self.units.extend(has_tag.then_some(tag(identity)));
        true
    }

    /// Whether there are any items.
    pub(super) fn has_items(&self) -> bool {
        self.units.len() > HEAD_UNITS
    }

    /// The block's units; `None` if there are too many.
    pub(super) fn finish(mut self) -> Option<Vec<u32>> {
        if self.units.len() % 2 == 1 {
            self.units.push(0);
        }
        let units = self.units.len();
        self.units[3] |= (units as u32) << (UNITS_AT - 32);
        (units <= UNITS_MAX).then_some(self.units)
    }
}

fn push_pair(units: &mut Vec<u32>, pair: u64) {
    units.extend([pair as u32, (pair >> 32) as u32]);
}

/// A page or a child node in a block.
#[derive(Clone, Copy, Debug)]
pub(super) struct Item {
    at: u32,
    units: usize,
    word: u64,
    /// The third unit; meaningless for a child.
    shape: u32,
}

impl Item {
    /// The item at a position, by its first units.
    #[inline]
    fn of(at: u32, [low, high]: [u32; 2], third: Option<u32>) -> Self {
        let word = u64::from(low) | u64::from(high) << 32;
        let mut item = Self { at, units: 2, word, shape: third.unwrap_or(0) };
        item.units += if item.is_page() {
            let extra = (item.shape >> PAGE_BORN_AT & 1) + (item.shape >> FILTERED_AT & 1);
            1 + extra as usize + map_units(item.records(), item.width())
        } else {
            (item.word >> CHILD_BORN_AT & 1) as usize + (item.word >> TAGGED_AT & 1) as usize
        };
        item
    }

    /// Whether the item is a page.
    #[inline]
    pub(super) fn is_page(self) -> bool {
        self.word >> PAGE_AT == 1
    }

    /// Whether the item was used since its block was last at the front.
    pub(super) fn is_used(self) -> bool {
        (self.word >> 32) as u32 & ITEM_USED != 0
    }

    /// Marks the item as used.
    pub(super) fn touch(self, log: &mut Log) {
        log.set_bits(self.at.wrapping_add(1), ITEM_USED);
    }

    /// The address of the page or the child.
    pub(super) fn addr(self) -> GlobalAddr {
        GlobalAddr::from_bits((self.word & ADDR) << 4)
    }

    /// The edges that the page is responsible for, or the edge above the child.
    #[inline]
    pub(super) fn edges(self) -> EdgeRange {
        let lo = (self.word >> EDGE_AT & 31) as u8;
        let hi = if self.is_page() { (self.shape >> HI_AT & 31) as u8 } else { lo };
        EdgeRange { lo, hi }
    }

    fn records(self) -> usize {
        (self.word >> RECORDS_AT & 63) as usize + 1
    }

    fn width(self) -> u32 {
        self.shape >> WIDTH_AT & 31
    }

    /// The page, as one of this node.
    pub(super) fn page(self, log: &Log, node: NodeHint) -> PageHint {
        let (word, records, width) = (self.shape, self.records(), self.width());
        let (has_born, has_filter) = (word >> PAGE_BORN_AT & 1, word >> FILTERED_AT & 1);
        let behind = |count: u32| self.at.wrapping_add(3 + count);
        let born = if has_born == 1 { log.unit(behind(0)) } else { node.born };
        let filter = if has_filter == 1 { log.unit(behind(has_born)) } else { 0 };
        let shape = Shape {
            born,
            delta: (word >> DELTA_AT) as usize,
            records,
            record_words: (self.word >> RECORD_WORDS_AT & 127) as usize,
            map_words: map::words_of(records, width),
            edges: self.edges(),
            depth: node.depth,
            base: (word & BASE_MAX) + map::least_base(records, node.depth),
            width,
        };
        let class = class_of(shape.words() as u64 * 8).unwrap_or(u8::MAX);
        let units = map_units(records, width);
        let mut words = SmallVec::from_elem(0, shape.map_words);
        for (at, unit) in log.units(behind(has_born + has_filter), units).iter().enumerate() {
            words[at / 2] |= u64::from(*unit) << (at % 2 * 32);
        }
        PageHint { page: PageRef { addr: self.addr(), class }, shape, map: words, delta: DeltaFilter(filter) }
    }

    /// The child, as one of this node.
    pub(super) fn child(self, log: &Log, node: NodeHint) -> NodeHint {
        let has_born = self.word >> CHILD_BORN_AT & 1 == 1;
        let born = if has_born { log.unit(self.at.wrapping_add(2)) } else { node.born };
        let skip = (self.word >> SKIP_AT) as usize & SKIP_MAX;
        NodeHint { addr: self.addr(), born, depth: node.depth + 1 + skip }
    }

    /// Whether the child may be the node with this identity.
    pub(super) fn may_be(self, log: &Log, identity: u64) -> bool {
        let has_born = (self.word >> CHILD_BORN_AT & 1) as u32;
        self.word >> TAGGED_AT & 1 == 0 || log.unit(self.at.wrapping_add(2 + has_born)) == tag(identity)
    }
}

/// Bits of an identity that distinguish nodes of one depth.
fn tag(identity: u64) -> u32 {
    (identity >> 18) as u32
}

fn map_units(records: usize, width: u32) -> usize {
    map::bits(records, width).div_ceil(32)
}
