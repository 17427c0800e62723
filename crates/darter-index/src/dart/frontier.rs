//! The frontier of an ordered walk: what lies in a range and has not been visited, in key order.
//!
//! Scans and walks read a run of items at its front in one round trip and put what they find in their place. An item knows
//! whether it touches the range's lower or upper bound; only such items are compared with it. Where path compression hides
//! on which side of a bound a node lies, the key of any leaf below it tells.

use super::node::{NodeRef, children_in_order, order_of};
use super::prefix_hash::{HashKeys, HashedKey};
use super::slot::{END, Held, Slot};
use crate::ScanRange;
use std::collections::VecDeque;
use std::ops::Bound;

/// Which bounds of the range an item touches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Touches {
    pub(crate) low: bool,
    pub(crate) high: bool,
}

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

/// How a node stands to the range.
pub(crate) enum Standing {
    /// Its children may be taken, bounds touched as said.
    Known(Touches),
    /// It left the path to a bound inside its compressed bytes: ask a key below.
    Unknown,
}

/// The range, prepared for comparing.
pub(crate) struct Limits<'r> {
    range: &'r ScanRange,
    low: Option<HashedKey<'r>>,
    high: Option<HashedKey<'r>>,
}

fn bound_bytes(bound: &Bound<Vec<u8>>) -> Option<&[u8]> {
    match bound {
        Bound::Included(key) | Bound::Excluded(key) => Some(key),
        Bound::Unbounded => None,
    }
}

impl<'r> Limits<'r> {
    pub(crate) fn new(keys: HashKeys, range: &'r ScanRange) -> Self {
        let hashed = |bound| bound_bytes(bound).map(|key| HashedKey::new(keys, key));
        Self { low: hashed(&range.from), high: hashed(&range.to), range }
    }

    /// What the root touches.
    pub(crate) fn whole(&self) -> Touches {
        Touches { low: self.low.is_some(), high: self.high.is_some() }
    }

    /// Whether a key lies in the range.
    pub(crate) fn contains(&self, key: &[u8]) -> bool {
        let above = match &self.range.from {
            Bound::Included(from) => key >= &from[..],
            Bound::Excluded(from) => key > &from[..],
            Bound::Unbounded => true,
        };
        above
            && match &self.range.to {
                Bound::Included(to) => key <= &to[..],
                Bound::Excluded(to) => key < &to[..],
                Bound::Unbounded => true,
            }
    }

    /// How a node with this identity word stands, its pointer touching the bounds as said.
    pub(crate) fn standing(&mut self, depth: usize, identity: u64, touches: Touches) -> Standing {
        let on_path = |bound: &mut Option<HashedKey<'_>>| {
            bound.as_mut().is_some_and(|key| key.bytes().len() >= depth && key.identity(depth) == identity)
        };
        let low_known = !touches.low || on_path(&mut self.low);
        let high_known = !touches.high || on_path(&mut self.high);
        if low_known && high_known { Standing::Known(touches) } else { Standing::Unknown }
    }

    /// How a node of this depth stands, given a key below it; `None` when it lies outside the range.
    pub(crate) fn standing_by_key(&self, depth: usize, key: &[u8], touches: Touches) -> Option<Touches> {
        let prefix = &key[..depth.min(key.len())];
        let mut now = touches;
        if let (true, Some(low)) = (touches.low, &self.low)
            && !low.bytes().starts_with(prefix)
        {
            if prefix < low.bytes() {
                return None;
            }
            now.low = false;
        }
        if let (true, Some(high)) = (touches.high, &self.high)
            && !high.bytes().starts_with(prefix)
        {
            if prefix > high.bytes() {
                return None;
            }
            now.high = false;
        }
        Some(now)
    }

    /// Appends the children of a node in the walk's order, those outside the range left out.
    pub(crate) fn children<T: Copy>(
        &self,
        node: NodeRef,
        words: &[u64],
        touches: Touches,
        carried: T,
        items: &mut Vec<Item<T>>,
    ) {
        let first = self.low.as_ref().filter(|_| touches.low).map(|key| order_of(key.edge(node.depth)));
        let last = self.high.as_ref().filter(|_| touches.high).map(|key| order_of(key.edge(node.depth)));
        let begin = items.len();
        items.extend(children_in_order(node.ty, words).into_iter().filter_map(|slot| {
            let order = order_of(slot.edge().unwrap_or(END));
            if first.is_some_and(|first| order < first) || last.is_some_and(|last| order > last) {
                return None;
            }
            let touches = Touches { low: first == Some(order), high: last == Some(order) };
            let place = match slot.held() {
                Held::Node { addr, ty, skip } => {
                    Place::Node(NodeRef { addr, ty, depth: node.depth + 1 + usize::from(skip) })
                }
                _ => Place::Leaf(slot),
            };
            Some(Item { place, touches, above: node.depth, carried })
        }));
        if self.range.reverse {
            items[begin..].reverse();
        }
    }
}

/// Puts items in front of a frontier, keeping their order.
pub(crate) fn put_front<T>(frontier: &mut VecDeque<T>, items: Vec<T>) {
    frontier.reserve(items.len());
    for item in items.into_iter().rev() {
        frontier.push_front(item);
    }
}
