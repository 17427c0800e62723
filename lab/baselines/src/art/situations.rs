//! Rare situations of ART's protocol, and which of them a full exploration must meet.

use super::node::{Content, NodeType, Slot};
#[cfg(feature = "checker")]
use super::node::{HASHED, PUBLISHED};
use darter_index::checker::Situation;

darter_index::situations! {
    /// A node was replaced by its only child.
    COLLAPSE_TO_CHILD = "CollapseToChild";
    /// A node without children was removed.
    COLLAPSE_TO_NOTHING = "CollapseToNothing";
    /// At a replacement the slot had changed before the locks were taken.
    REPLACE_LATE = "ReplaceLate";
    /// A replacement begun by another client was finished.
    HELPED = "Helped";
    /// Two keys were separated below a leaf's slot.
    SPLIT_LEAF = "SplitLeaf";
    /// A key left the path in the bytes that an edge skips: a node was put above another.
    SPLIT_ABOVE = "SplitAbove";
    /// Room seen by a search was gone or had moved once the lock was taken.
    ROOM_GONE = "RoomGone";
    /// A slot sealed by a dead client was changed under the lock.
    SEALED_SLOT = "SealedSlot";
    /// A search found the cached root replaced.
    ROOT_STALE = "RootStale";
}

/// Returns the situation of a node's replacement.
pub(super) fn replaced(from: NodeType, by: Slot, is_copy: bool) -> Situation {
    match by.content() {
        Content::Node { ty, .. } if is_copy => Situation::Switch(from.name(), ty.name()),
        Content::Tomb => COLLAPSE_TO_NOTHING,
        _ => COLLAPSE_TO_CHILD,
    }
}

/// Every situation that a full exploration must meet, for the hashed layout or the published ones.
#[cfg(feature = "checker")]
pub fn art_situations(hashed: bool) -> Vec<Situation> {
    let mut expected = ALL.to_vec();
    let layout = if hashed { HASHED } else { PUBLISHED };
    for pair in layout.windows(2) {
        expected.push(Situation::Switch(pair[0].name(), pair[1].name()));
        expected.push(Situation::Switch(pair[1].name(), pair[0].name()));
    }
    expected
}
