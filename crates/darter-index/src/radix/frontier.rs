//! The frontier of an ordered walk: the items in a range that have not been visited, in key order.
//!
//! A scan reads a run of items at the front in one round trip, as many as the keys still wanted are
//! likely to need, and replaces them by the items read. Each index defines its own items.

use super::limits::{Limits, Touches};
use super::sink::{BYTES_MAX, WIDTH_MAX};
use std::collections::VecDeque;

/// The cost of reading an item, and its yield.
#[derive(Clone, Copy, Debug)]
pub struct Weight {
    /// Number of keys that it holds, or probably holds.
    pub keys: usize,
    /// Bytes to read.
    pub bytes: u64,
    /// Whether it is a node.
    pub is_node: bool,
}

impl Weight {
    /// The weight of a leaf.
    pub fn leaf(bytes: u64) -> Self {
        Self { keys: 1, bytes, is_node: false }
    }

    /// The weight of a node with room for `capacity` children. This is an estimate: a type is
    /// chosen when the next smaller one is full, so at least half of its slots are taken, each by
    /// one key or more.
    pub fn node(capacity: usize, bytes: u64) -> Self {
        Self { keys: capacity.div_ceil(2), bytes, is_node: true }
    }
}

/// Returns the run at a frontier's front that one round trip reads: the number of items, and
/// whether it contains nodes. Nodes are read first, one level at a time; if the front consists of
/// enough leaves for the keys wanted, those are read.
pub fn window<T>(frontier: &VecDeque<T>, wanted: usize, weigh: impl Fn(&T) -> Weight) -> (usize, bool) {
    let (mut keys, mut bytes, mut count, mut has_nodes) = (0, 0, 0, false);
    for item in frontier {
        if keys >= wanted || count >= WIDTH_MAX || bytes >= BYTES_MAX {
            break;
        }
        let weight = weigh(item);
        count += 1;
        keys += weight.keys;
        bytes += weight.bytes;
        has_nodes |= weight.is_node;
    }
    (count, has_nodes)
}

/// Puts items in front of a frontier, keeping their order.
pub fn put_front<T>(frontier: &mut VecDeque<T>, items: Vec<T>) {
    frontier.reserve(items.len());
    for item in items.into_iter().rev() {
        frontier.push_front(item);
    }
}

/// Appends the children of a node at `depth` in the walk's order, without those outside the range.
/// The children are given in key order, each with its edge; `item` makes an item of a child.
pub fn put_children<S, T>(
    limits: &Limits<'_>,
    depth: usize,
    touches: Touches,
    children: impl Iterator<Item = (u16, S)>,
    items: &mut Vec<T>,
    mut item: impl FnMut(S, Touches) -> T,
) {
    let begin = items.len();
    items.extend(
        children.filter_map(|(edge, child)| {
            limits.child(depth, edge, touches).map(|touches| item(child, touches))
        }),
    );
    if limits.reverse() {
        items[begin..].reverse();
    }
}

/// Returns `items` with others inserted: each element of `more` before the item at its position in
/// `items`. Positions must be ascending.
pub fn put_between<T>(items: Vec<T>, more: impl Iterator<Item = (usize, Vec<T>)>) -> Vec<T> {
    let mut merged = Vec::with_capacity(items.len());
    let mut items = items.into_iter();
    let mut taken = 0;
    for (at, between) in more {
        merged.extend(items.by_ref().take(at - taken));
        taken = at;
        merged.extend(between);
    }
    merged.extend(items);
    merged
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_ends_with_the_keys_wanted() {
        let frontier = VecDeque::from([Weight::leaf(80), Weight::node(7, 64), Weight::leaf(80)]);
        assert_eq!(window(&frontier, 1, |&weight| weight), (1, false));
        assert_eq!(window(&frontier, 5, |&weight| weight), (2, true));
        assert_eq!(window(&frontier, 6, |&weight| weight), (3, true));
        let large = VecDeque::from([Weight::leaf(BYTES_MAX), Weight::leaf(80)]);
        assert_eq!(window(&large, 9, |&weight| weight), (1, false));
    }

    #[test]
    fn items_come_in_order() {
        let mut frontier = VecDeque::from([5]);
        put_front(&mut frontier, vec![3, 4]);
        assert_eq!(frontier, [3, 4, 5]);
        let more = [(0, vec![0]), (1, vec![2, 3]), (2, vec![])];
        assert_eq!(put_between(vec![1, 4, 5], more.into_iter()), [0, 1, 2, 3, 4, 5]);
    }
}
