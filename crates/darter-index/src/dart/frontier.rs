//! The frontier of an ordered walk: what lies in a range and has not been visited, in key order.
//!
//! Scans and walks read a run of items at its front in one round trip and put what they find in their place.

use super::node::{Held, NodeRef, Slot, children_in_order};
use crate::radix::limits::{Limits, Touches};
use crate::radix::slot::END;
use std::collections::VecDeque;

/// What an item is.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Place {
    Node(NodeRef),
    Leaf(Slot),
}

/// One item: a subtree or a leaf, with what its walker carries along.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Item<T> {
    pub(crate) place: Place,
    pub(crate) touches: Touches,
    /// The depth of the node that holds the pointer to it.
    pub(crate) above: usize,
    pub(crate) carried: T,
}

/// Appends the children of a node in the walk's order, those outside the range left out.
pub(crate) fn children<T: Copy>(
    limits: &Limits<'_>,
    node: NodeRef,
    words: &[u64],
    touches: Touches,
    carried: T,
    items: &mut Vec<Item<T>>,
) {
    let begin = items.len();
    items.extend(children_in_order(node.ty, words).into_iter().filter_map(|slot| {
        let touches = limits.child(node.depth, slot.edge().unwrap_or(END), touches)?;
        let place = match slot.held() {
            Held::Node { addr, ty, skip } => {
                Place::Node(NodeRef { addr, ty, depth: node.depth + 1 + usize::from(skip) })
            }
            _ => Place::Leaf(slot),
        };
        Some(Item { place, touches, above: node.depth, carried })
    }));
    if limits.reverse() {
        items[begin..].reverse();
    }
}

/// Puts items in front of a frontier, keeping their order.
pub(crate) fn put_front<T>(frontier: &mut VecDeque<T>, items: Vec<T>) {
    frontier.reserve(items.len());
    for item in items.into_iter().rev() {
        frontier.push_front(item);
    }
}
