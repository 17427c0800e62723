//! The leaves of a B+-tree after inserts, with the data that training reads.

use crate::xstore::model::train::LeafView;
use std::collections::BTreeMap;

/// Keys of a full leaf.
const FULL: usize = 16;

#[derive(Clone, Debug)]
pub(super) struct Leaf {
    pub(super) number: u32,
    pub(super) incarnation: u32,
    pub(super) keys: Vec<u64>,
}

/// Leaves by the least key that they can hold.
#[derive(Clone, Debug)]
pub(super) struct Tree {
    pub(super) leaves: BTreeMap<u64, Leaf>,
    pub(super) keys: u64,
}

impl Tree {
    /// Leaves of 16 keys; a full one is split at the median.
    pub(super) fn of(keys: impl IntoIterator<Item = u64>) -> Self {
        let first = Leaf { number: 1, incarnation: 0, keys: Vec::new() };
        let mut tree = Self { leaves: BTreeMap::from([(0, first)]), keys: 0 };
        keys.into_iter().for_each(|key| tree.insert(key));
        tree
    }

    pub(super) fn insert(&mut self, key: u64) {
        let number = self.leaves.len() as u32 + 1;
        let (_, leaf) = self.leaves.range_mut(..=key).next_back().unwrap();
        let Err(at) = leaf.keys.binary_search(&key) else { return };
        leaf.keys.insert(at, key);
        self.keys += 1;
        if leaf.keys.len() > FULL {
            leaf.incarnation += 2;
            let right = leaf.keys.split_off(FULL / 2);
            self.leaves.insert(right[0], Leaf { number, incarnation: 0, keys: right });
        }
    }

    /// Returns the leaf that holds a key or would hold it.
    pub(super) fn leaf(&self, key: u64) -> &Leaf {
        self.leaves.range(..=key).next_back().unwrap().1
    }

    pub(super) fn views(&self) -> Vec<LeafView<'_>> {
        let highs = self.leaves.keys().skip(1).map(|low| low - 1).chain([u64::MAX]);
        self.leaves.iter().zip(highs).map(|((low, leaf), high)| leaf_view(leaf, *low, high)).collect()
    }
}

fn leaf_view(leaf: &Leaf, low: u64, high: u64) -> LeafView<'_> {
    LeafView { number: leaf.number, incarnation: leaf.incarnation, keys: &leaf.keys, low, high }
}

/// splitmix64 of a number, a bijection.
pub(super) fn mix(number: u64) -> u64 {
    let word = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let word = (word ^ word >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let word = (word ^ word >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ word >> 31
}

/// 0, 1, …
pub(super) fn linear(keys: u64) -> Tree {
    Tree::of(0..keys)
}

/// 1000 i and 0 to 999, ascending.
pub(super) fn noised(keys: u64) -> Tree {
    Tree::of((0..keys).map(|i| i * 1000 + mix(i) % 1000))
}

/// Hashed record numbers, in the order of the records.
pub(super) fn random(keys: u64) -> Tree {
    Tree::of((0..keys).map(mix))
}
