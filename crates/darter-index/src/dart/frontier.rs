//! The items of DART's scans and walks, which [`crate::radix::frontier`] keeps in key order.

use super::node::{Content, NodeRef, Slot, children_in_order};
use crate::radix::frontier::put_children;
use crate::radix::limits::{Limits, Touches};
use crate::radix::slot::END;

/// The kind of an item.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Place {
    Node(NodeRef),
    Leaf(Slot),
}

/// One item: a subtree or a leaf, with its walker's context.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Item<T> {
    pub(crate) place: Place,
    pub(crate) touches: Touches,
    /// The depth of the node that holds the pointer to it.
    pub(crate) above: usize,
    pub(crate) carried: T,
}

/// Appends the children of a node in the walk's order, without those outside the range.
pub(crate) fn children<T: Copy>(
    limits: &Limits<'_>,
    node: NodeRef,
    words: &[u64],
    touches: Touches,
    carried: T,
    items: &mut Vec<Item<T>>,
) {
    let slots = children_in_order(node.ty, words);
    let children = slots.into_iter().map(|slot| (slot.edge().unwrap_or(END), slot));
    put_children(limits, node.depth, touches, children, items, |slot, touches| {
        let place = match slot.content() {
            Content::Node { addr, ty, skip } => {
                Place::Node(NodeRef { addr, ty, depth: node.depth + 1 + usize::from(skip) })
            }
            _ => Place::Leaf(slot),
        };
        Item { place, touches, above: node.depth, carried }
    });
}
