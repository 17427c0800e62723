//! Rare situations of ART's protocol, and which of them a full exploration must meet.

use super::node::{Content, NodeType, Slot};
#[cfg(feature = "checker")]
use super::node::{HASHED, PUBLISHED};
use darter_index::checker::Situation;

darter_index::situations! {
    /// A node replaced by its lone child.
    COLLAPSE_TO_CHILD = "CollapseToChild";
    /// A node without children taken out.
    COLLAPSE_TO_NOTHING = "CollapseToNothing";
    /// A replacement for which something else stood in the node's place when the locks were there.
    REPLACE_LATE = "ReplaceLate";
    /// A replacement that another client had begun was made.
    HELPED = "Helped";
    /// Two keys parted below a leaf's slot.
    SPLIT_LEAF = "SplitLeaf";
    /// A key left the bytes that an edge skips: a node put in above another.
    SPLIT_ABOVE = "SplitAbove";
    /// Room that a search saw was gone, or no longer where it was, once the lock was there.
    ROOM_GONE = "RoomGone";
    /// A slot that a dead client had sealed was changed under the lock.
    SEALED_SLOT = "SealedSlot";
    /// A search found the root as last seen replaced.
    ROOT_STALE = "RootStale";
}

/// What became of a node.
pub(super) fn replaced(from: NodeType, by: Slot, is_copy: bool) -> Situation {
    match by.content() {
        Content::Node { ty, .. } if is_copy => Situation::Switch(from.name(), ty.name()),
        Content::Tomb => COLLAPSE_TO_NOTHING,
        _ => COLLAPSE_TO_CHILD,
    }
}

/// Every situation that a full exploration must meet; of the hashed layout or of the published
/// ones.
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
