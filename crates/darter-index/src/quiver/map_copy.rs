//! Copies of pages' maps in their node (`docs/quiver.md`, "Node"): with a copy, a reader of the
//! node goes directly to a record in the next round trip, as with a remembered page.
//!
//! ```text
//! copy  | born 32 | records - 1, 6 | record words 7 | width 5 | lo 5 | base 9 |   map, 4 words
//! ```
//!
//! A copy is a hint, like everything that is remembered: a client that links a page writes it
//! without regard to other writers, and it is never sealed. *Base* is reduced by the position where
//! the node's prefix ends. The copy of a larger map has fewer bits per position: positions that do
//! not fit get the highest value, which misleads few keys. Some nodes have more pages than copies.

use super::hint::PageHint;
use super::map;
use super::nibble::{EDGES, EdgeRange};
use super::page::{PageRef, RECORDS_MAX, Shape};

/// Copies in a node.
pub(super) const COPIES: usize = 10;
/// Words of a copy.
pub(super) const COPY_WORDS: usize = 1 + MAP_WORDS;

const MAP_WORDS: usize = 4;

const BORN_AT: u32 = 32;
const RECORDS_AT: u32 = 26;
const RECORD_WORDS_AT: u32 = 19;
const WIDTH_AT: u32 = 14;
const LO_AT: u32 = 9;
const BASE_MAX: u32 = (1 << LO_AT) - 1;

/// Bits of a position in the copy of a map of `records` keys.
fn width_of(records: usize, width: u32) -> u32 {
    width.min((MAP_WORDS * 64 / (records - 1).max(1)) as u32)
}

/// A page's copy; `None` if the page cannot have one.
pub(super) fn copy(shape: &Shape, map: &[u64]) -> Option<[u64; COPY_WORDS]> {
    let base = shape.base.checked_sub(map::least_base(shape.records, shape.depth))?;
    if base > BASE_MAX || !(1..=RECORDS_MAX).contains(&shape.records) {
        return None;
    }
    let mut words = [0; COPY_WORDS];
    words[0] = u64::from(shape.born) << BORN_AT
        | (shape.records as u64 - 1) << RECORDS_AT
        | (shape.record_words as u64) << RECORD_WORDS_AT
        | u64::from(shape.width) << WIDTH_AT
        | u64::from(shape.edges.lo) << LO_AT
        | u64::from(base);
    let narrow = map::narrowed(map, shape.records, shape.width, width_of(shape.records, shape.width));
    words[1..=narrow.len()].copy_from_slice(&narrow);
    Some(words)
}

/// What a key learns from a copy about the way to its record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct CopiedPage {
    /// The page, with the map if the copy has all of it.
    pub(super) hint: PageHint,
    /// Whether the copy has the whole map.
    pub(super) is_whole: bool,
    /// The rank of the key's record if the key is static; only a likely rank if the copy is not
    /// whole.
    pub(super) rank: usize,
}

/// What a node's copies say about the page that one of its slots points to, in an index whose pages
/// have `delta` delta slots; `None` if the page has no copy.
pub(super) fn page_for(
    copies: &[u64],
    (page, edges): (PageRef, EdgeRange),
    depth: usize,
    delta: usize,
    key: &[u8],
) -> Option<CopiedPage> {
    let copy = copies.chunks_exact(COPY_WORDS).find(|copy| lo_of(copy[0]) == Some(edges.lo))?;
    let records = (copy[0] >> RECORDS_AT & 63) as usize + 1;
    let width = (copy[0] >> WIDTH_AT & 31) as u32;
    let shape = Shape {
        born: (copy[0] >> BORN_AT) as u32,
        delta,
        records,
        record_words: (copy[0] >> RECORD_WORDS_AT & 127) as usize,
        map_words: map::words_of(records, width),
        edges,
        depth,
        base: (copy[0] as u32 & BASE_MAX) + map::least_base(records, depth),
        width,
    };
    if shape.words() as u64 * 8 > page.bytes() {
        return None;
    }
    let narrow = width_of(records, width);
    let rank = map::rank(shape.base, narrow, &copy[1..], records, key);
    let is_whole = narrow == width;
    let map = if is_whole { &copy[1..=shape.map_words] } else { &[] };
    Some(CopiedPage { hint: PageHint::new(page, shape, map), is_whole, rank })
}

/// The first edge of a copy's page, from the copy's first word.
fn lo_of(word: u64) -> Option<u8> {
    (word >> RECORD_WORDS_AT & 127 != 0).then_some((word >> LO_AT & 31) as u8)
}

/// Which pages of a node have copies, by their first edges.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Copied([Option<u8>; COPIES]);

impl Copied {
    /// Reads them from a node's copies.
    pub(super) fn of(copies: &[u64]) -> Self {
        let mut copied = Self::default();
        for (lo, copy) in copied.0.iter_mut().zip(copies.chunks_exact(COPY_WORDS)) {
            *lo = lo_of(copy[0]);
        }
        copied
    }

    /// Returns the copy to use for the page with this first edge: its own, a free one, or another
    /// page's.
    pub(super) fn assign(&mut self, lo: u8) -> usize {
        let at = [Some(lo), None].into_iter().find_map(|wanted| self.0.iter().position(|of| *of == wanted));
        let at = at.unwrap_or(usize::from(lo) * COPIES / EDGES);
        self.0[at] = Some(lo);
        at
    }
}

#[cfg(test)]
mod tests {
    use super::super::map::Map;
    use super::super::nibble::LAST;
    use super::*;
    use darter_fabric::GlobalAddr;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_page_is_what_its_copy_says(
            tails in proptest::collection::btree_set(proptest::collection::vec(any::<u8>(), 0..5), 1..64),
            prefix in 0_usize..60,
            depth in 0_usize..6,
            born in any::<u32>(),
            record_words in 1_usize..33,
            lo in 0_u8..=LAST,
        ) {
            let keys: Vec<_> = tails.iter().map(|tail| [&vec![7; prefix.max(3)][..], tail].concat()).collect();
            let map = Map::of(keys.iter().map(Vec::as_slice));
            let shape = Shape {
                born,
                delta: 16,
                records: keys.len(),
                record_words,
                map_words: map.words.len(),
                edges: EdgeRange { lo, hi: LAST },
                depth,
                base: map.base,
                width: map.width,
            };
            let page = PageRef { addr: GlobalAddr::new(1, 64), class: u8::MAX >> 1 };
            let copied = copy(&shape, &map.words);
            let base = map.base - map::least_base(keys.len(), depth);
            prop_assert_eq!(copied.is_some(), base <= BASE_MAX);
            if let Some(words) = copied {
                let copies = [&[0; COPY_WORDS][..], &words].concat();
                let hint = PageHint::new(page, shape, &map.words);
                let mut right = 0;
                for (rank, key) in keys.iter().enumerate() {
                    let found = page_for(&copies, (page, shape.edges), depth, 16, key).unwrap();
                    prop_assert_eq!(found.hint.shape, shape);
                    prop_assert!(!found.is_whole || (&found.hint, found.rank) == (&hint, rank));
                    right += usize::from(found.rank == rank);
                }
                prop_assert!(right * 4 >= keys.len(), "{} of {}", right, keys.len());
                let other = EdgeRange { lo: (lo + 1) % 17, hi: LAST };
                prop_assert!(page_for(&copies, (page, other), depth, 16, b"").is_none());
            }
        }

        #[test]
        fn any_words_are_some_copy_or_none(words in proptest::collection::vec(any::<u64>(), 24), class in 0_u8..64) {
            let page = PageRef { addr: GlobalAddr::new(1, 64), class };
            for lo in 0..=LAST {
                if let Some(found) = page_for(&words, (page, EdgeRange::one(lo)), 3, 16, b"any key") {
                    prop_assert!(found.hint.shape.words() as u64 * 8 <= page.bytes());
                    prop_assert!(found.rank < found.hint.shape.records);
                }
            }
        }
    }

    #[test]
    fn copies_go_to_free_entries_then_overwrite_others() {
        let mut copied = Copied::default();
        assert_eq!([3, 9, 12, 3].map(|lo| copied.assign(lo)), [0, 1, 2, 0]);
        let free = [1, 2, 4, 5, 6, 7, 8].map(|lo| copied.assign(lo));
        assert_eq!(free, [3, 4, 5, 6, 7, 8, 9]);
        // No copy is free: another page's is overwritten.
        assert_eq!([16, 0, 16].map(|lo| copied.assign(lo)), [9, 0, 9]);
    }
}
