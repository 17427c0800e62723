//! Tests of the cache: it returns what it was given, within any budget, and does not return what
//! was forgotten.

use super::*;
use crate::quiver::map::Map;
use crate::quiver::nibble::{EdgeRange, LAST};
use crate::quiver::page::{PageRef, Shape};
use crate::quiver::word::{Print, Word};
use crate::radix::prefix_hash::HashKeys;
use darter_fabric::GlobalAddr;
use darter_pool::size_class::class_of;
use proptest::prelude::*;

const EPOCH: u64 = 7;
// Numbers without a pattern: otherwise hashes of short keys would collide.
const SECRET: [u64; 4] =
    [0x6a09_e667_f3bc_c908, 0xbb67_ae85_84ca_a73b, 0x3c6e_f372_fe94_f82b, 0xa54f_f53a_5f1d_36f1];

fn addr(number: u64) -> GlobalAddr {
    GlobalAddr::new((number % 3) as u8, 4096 + number * 64)
}

fn node(number: u64, depth: usize) -> NodeHint {
    NodeHint { addr: addr(number), born: (number % 2) as u32, depth }
}

fn page(number: u64, depth: usize, edges: EdgeRange, keys: &[Vec<u8>]) -> PageHint {
    let map = Map::of(keys.iter().map(Vec::as_slice));
    let shape = Shape {
        born: (number % 3) as u32,
        delta: (number % 17) as usize,
        records: keys.len(),
        record_words: 1 + (number % 32) as usize,
        map_words: map.words.len(),
        edges,
        depth,
        base: map.base,
        width: map.width,
    };
    let class = class_of(shape.words() as u64 * 8).unwrap();
    PageHint::new(PageRef { addr: addr(number), class }, shape, &map.words)
}

/// The identity of the node whose prefix is the first nibbles of a key.
fn identity(keys: HashKeys, key: &[u8], depth: usize) -> u64 {
    NibbleKey::new(keys, key).identity(depth)
}

/// A hot word; each number gives another one.
fn hot(number: u64) -> HotWord {
    let leaf = GlobalAddr::new(0, 1 << 20 | number << 8);
    let print = Print::new(HashKeys::new(SECRET), &[]).of_leaf(leaf, EdgeRange::ALL, 0);
    HotWord { slot: PageSlot((number / 40 % 80) as u8), word: Word::leaf(print, 3, leaf) }
}

fn found(cache: &Cache, keys: HashKeys, key: &[u8]) -> Option<Hit> {
    cache.find(&mut NibbleKey::new(keys, key))
}

proptest! {
    #[test]
    fn pages_and_children_are_found_as_they_were(
        number in 0_u64..1 << 20,
        tails in proptest::collection::btree_set(proptest::collection::vec(any::<u8>(), 0..5), 1..64),
        lo in 0_u8..=LAST,
        span in 0_u8..=LAST,
        depth in 0_usize..9,
        skip in 0_usize..5,
    ) {
        let keys = HashKeys::new(SECRET);
        let cache = Cache::new(1 << 20, true);
        let prefix = vec![0x35; 12];
        let own = (identity(keys, &prefix, depth), node(number, depth));
        let tails: Vec<_> = tails.into_iter().map(|tail| [&prefix[..6], &tail[..]].concat()).collect();
        let edges = EdgeRange { lo, hi: (lo + span).min(LAST) };
        let hint = page(number, depth, edges, &tails);
        let edge = edge(&prefix, depth);
        // A child under the edge that the prefix takes.
        let child = node(number + 1, depth + 1 + skip);
        let below = identity(keys, &prefix, child.depth);
        cache.learn_node(Some((own, edge)), (below, child), EPOCH);
        let hit = found(&cache, keys, &prefix).unwrap();
        prop_assert_eq!((hit.identity, hit.node, hit.page), (below, child, None));
        // A key that leaves the path in the nibbles that the edge skips leads only to the node.
        if skip > 0 {
            let mut other = prefix.clone();
            other[depth.div_ceil(2)] ^= if depth % 2 == 0 { 1 } else { 0x10 };
            let hit = found(&cache, keys, &other).unwrap();
            prop_assert_eq!((hit.identity, hit.node), own);
        }
        cache.learn_page(own, &hint, EPOCH);
        let hit = found(&cache, keys, &prefix).unwrap();
        if edges.contains(edge) {
            prop_assert_eq!((hit.identity, hit.node, hit.page), (own.0, own.1, Some(hint.clone())));
            cache.forget_page(own.0, &hint);
            let hit = found(&cache, keys, &prefix).unwrap();
            prop_assert_eq!((hit.identity, hit.node, hit.page), (own.0, own.1, None));
        } else {
            prop_assert_eq!((hit.identity, hit.node, hit.page), (below, child, None));
            cache.forget_node(&mut NibbleKey::new(keys, &prefix), child);
            let hit = found(&cache, keys, &prefix).unwrap();
            prop_assert_eq!((hit.identity, hit.node, hit.page), (own.0, own.1, None));
            cache.forget_node(&mut NibbleKey::new(keys, &prefix), own.1);
            prop_assert!(found(&cache, keys, &prefix).is_none());
        }
    }

    #[test]
    fn no_budget_is_exceeded_and_nothing_found_is_wrong(
        budget in 0_u64..100_000,
        steps in proptest::collection::vec((0_u8..8, 0_u64..360), 1..800),
    ) {
        let keys = HashKeys::new(SECRET);
        let cache = Cache::new(budget, true);
        for (kind, number) in steps {
            let key = [(number % 40) as u8, ((number / 40) as u8).wrapping_mul(0x1d), 0];
            let (above, own) = ((identity(keys, &key, 0), node(0, 0)), (identity(keys, &key, 2), node(number % 40, 2)));
            let edges = EdgeRange::one(edge(&key, 2));
            let hint = page(number, 2, edges, &[key.to_vec(), key[..2].to_vec()]);
            match kind {
                0 => cache.learn_node(Some((above, edge(&key, 0))), own, EPOCH),
                1 => cache.learn_page(own, &hint, EPOCH),
                2 => cache.forget_page(own.0, &hint),
                3 => cache.forget_node(&mut NibbleKey::new(keys, &key), own.1),
                4 => cache.forget_hot(own.0, hint.page.addr, hot(number).slot),
                _ => cache.learn_hot(own.0, (hint.page.addr, hint.shape.born), hot(number)),
            }
            prop_assert!(cache.bytes() <= budget, "{} of {budget}", cache.bytes());
            if let Some(hit) = found(&cache, keys, &key) {
                let is_root = hit.node == above.1 && hit.identity == above.0;
                prop_assert!(is_root || (hit.identity, hit.node) == own);
                prop_assert!(hit.page.as_ref().is_none_or(|page| *page == hint));
                let remembered = hit.page.as_ref().map(|page| cache.hot_words(hit.identity, page, 0..64));
                for word in remembered.iter().flatten() {
                    prop_assert!((0..9).any(|at| *word == hot(number % 40 + at * 40)), "{word:?}");
                }
            }
        }
    }
}

#[test]
fn a_page_takes_few_bytes() {
    let keys = HashKeys::new(SECRET);
    let cache = Cache::new(1 << 20, true);
    let empty = cache.bytes();
    for number in 0..256_u64 {
        let key = [number as u8, 0, 0, 0];
        let tails: Vec<_> = (0..60_u32)
            .map(|tail| [key[0], (tail * 4) as u8, tail.wrapping_mul(77) as u8].to_vec())
            .collect();
        let own = (identity(keys, &key, 2), NodeHint { born: 0, ..node(number, 2) });
        for lo in [0, 4, 8, 12] {
            let edges = EdgeRange { lo, hi: lo + 3 };
            let hint = page(number * 12, 2, edges, &tails);
            cache.learn_page(own, &hint, EPOCH);
        }
    }
    let each = (cache.bytes() - empty) as f64 / 1024.0;
    // 12 bytes, a map of 59 positions of 4 bits, a quarter of a node, and space that waits for
    // reuse.
    assert!(each < 90.0, "{each} bytes a page");
}

#[test]
fn pages_that_are_used_stay_and_child_nodes_go_last() {
    let keys = HashKeys::new(SECRET);
    let cache = Cache::new(16 << 10, true);
    let root = (identity(keys, &[], 0), node(0, 0));
    let child = |number: u64| {
        let key = [(number as u8) << 4, 0];
        ((identity(keys, &key, 1), node(number + 1, 1)), key)
    };
    for number in 0..16 {
        let (known, key) = child(number);
        cache.learn_node(Some((root, edge(&key, 0))), known, EPOCH);
    }
    // Ten thousand pages of other nodes, and one page that is used all the time.
    let favourite = [0xff, 0xff, 0xff];
    let own = (identity(keys, &favourite, 4), node(1, 4));
    let hint = page(1, 4, EdgeRange { lo: 16, hi: LAST }, &[favourite.to_vec()]);
    cache.learn_page(own, &hint, EPOCH);
    for number in 0..10_000_u64 {
        let key = [(number >> 8) as u8, number as u8, 7];
        let own = (identity(keys, &key, 4), node(number, 4));
        cache.learn_page(own, &page(number, 4, EdgeRange::ALL, &[key.to_vec()]), EPOCH);
        let hit = found(&cache, keys, &favourite).unwrap();
        assert_eq!(hit.page.as_ref(), Some(&hint), "after {number}");
    }
    for number in 0..16 {
        let (known, key) = child(number);
        let hit = found(&cache, keys, &key).unwrap();
        assert_eq!((hit.identity, hit.node), known);
    }
}
