//! A range that is being walked, and the relation of nodes and keys to it.
//!
//! Only items that touch one of the range's bounds are compared with it. If path compression hides
//! on which side of a bound a node lies, the key of any leaf below the node decides.

use super::prefix_hash::{HashKeys, HashedKey};
use super::slot::order_of;
use crate::ScanRange;
use std::ops::Bound;

/// Which bounds of the range an item touches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Touches {
    /// Whether it touches the lower one.
    pub low: bool,
    /// Whether it touches the upper one.
    pub high: bool,
}

/// The relation of a node to the range.
pub enum Standing {
    /// Its children can be visited; the node touches these bounds.
    Known(Touches),
    /// It diverged from the path to a bound inside its compressed bytes: a key below it must
    /// decide.
    Unknown,
}

/// The range, prepared for comparisons.
pub struct Limits<'r> {
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
    /// Prepares a range; `keys` hashes the prefixes of its bounds.
    pub fn new(keys: HashKeys, range: &'r ScanRange) -> Self {
        let hashed = |bound| bound_bytes(bound).map(|key| HashedKey::new(keys, key));
        Self { low: hashed(&range.from), high: hashed(&range.to), range }
    }

    /// The bounds that the root touches.
    pub fn whole(&self) -> Touches {
        Touches { low: self.low.is_some(), high: self.high.is_some() }
    }

    /// Whether a key lies in the range.
    pub fn contains(&self, key: &[u8]) -> bool {
        self.range.contains(key)
    }

    /// The relation of a node whose pointer touches these bounds. `has` returns whether the node is
    /// on a key's path.
    pub fn standing(&mut self, touches: Touches, has: impl Fn(&mut HashedKey<'_>) -> bool) -> Standing {
        let on_path = |bound: &mut Option<HashedKey<'_>>| bound.as_mut().is_some_and(&has);
        let low_known = !touches.low || on_path(&mut self.low);
        let high_known = !touches.high || on_path(&mut self.high);
        if low_known && high_known { Standing::Known(touches) } else { Standing::Unknown }
    }

    /// The bounds that a node of this depth touches, given a key below it; `None` if it lies
    /// outside the range.
    pub fn standing_by_key(&self, depth: usize, key: &[u8], touches: Touches) -> Option<Touches> {
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

    /// The bounds that the child under an edge of a node at `depth` touches, given those that the
    /// node touches; `None` if it lies outside the range.
    pub fn child(&self, depth: usize, edge: u16, touches: Touches) -> Option<Touches> {
        let first = self.low.as_ref().filter(|_| touches.low).map(|key| order_of(key.edge(depth)));
        let last = self.high.as_ref().filter(|_| touches.high).map(|key| order_of(key.edge(depth)));
        let order = order_of(edge);
        let outside = first.is_some_and(|first| order < first) || last.is_some_and(|last| order > last);
        (!outside).then_some(Touches { low: first == Some(order), high: last == Some(order) })
    }

    /// The bounds that a subtree touches after these further bytes of its prefix, the first of them
    /// at `depth`; `None` if it lies outside the range.
    pub fn along(&self, depth: usize, bytes: &[u8], touches: Touches) -> Option<Touches> {
        let against = |bound: &Option<HashedKey<'_>>| {
            let rest = bound.as_ref().and_then(|key| key.bytes().get(depth..)).unwrap_or_default();
            let same = super::common_prefix(bytes, rest);
            // A path that continues after the end of the bound lies above it.
            (same < bytes.len()).then(|| rest.get(same).is_none_or(|bound| bytes[same] > *bound))
        };
        let mut now = touches;
        if touches.low {
            match against(&self.low) {
                Some(true) => now.low = false,
                Some(false) => return None,
                None => {}
            }
        }
        if touches.high {
            match against(&self.high) {
                Some(true) => return None,
                Some(false) => now.high = false,
                None => {}
            }
        }
        Some(now)
    }

    /// Whether the walk is in descending order.
    pub fn reverse(&self) -> bool {
        self.range.reverse
    }
}
