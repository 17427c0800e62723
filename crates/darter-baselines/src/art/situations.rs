//! Rare situations of ART's protocol, and which of them a full exploration must meet.

#[cfg(feature = "checker")]
use super::node::{HASHED, PUBLISHED};
use super::node::{Held, NodeType, Slot};
use darter_index::checker::Situation;

/// A node replaced by its lone child.
const COLLAPSE_TO_CHILD: Situation = Situation::Met("CollapseToChild");
/// A node without children taken out.
const COLLAPSE_TO_NOTHING: Situation = Situation::Met("CollapseToNothing");
/// A replacement for which something else stood in the node's place when the locks were there.
pub(super) const REPLACE_LATE: Situation = Situation::Met("ReplaceLate");
/// A replacement that another client had begun was made.
pub(super) const HELPED: Situation = Situation::Met("Helped");
/// Two keys parted below a leaf's slot.
pub(super) const SPLIT_LEAF: Situation = Situation::Met("SplitLeaf");
/// A key left the bytes that an edge skips: a node put in above another.
pub(super) const SPLIT_ABOVE: Situation = Situation::Met("SplitAbove");
/// Room that a search saw was gone, or no longer where it was, once the lock was there.
pub(super) const ROOM_GONE: Situation = Situation::Met("RoomGone");
/// A slot that a dead client had sealed was changed under the lock.
pub(super) const SEALED_SLOT: Situation = Situation::Met("SealedSlot");
/// A search found the root as last seen replaced.
pub(super) const ROOT_STALE: Situation = Situation::Met("RootStale");

/// What became of a node.
pub(super) fn replaced(from: NodeType, by: Slot, is_copy: bool) -> Situation {
    match by.held() {
        Held::Node { ty, .. } if is_copy => Situation::Switch(from.name(), ty.name()),
        Held::Tomb => COLLAPSE_TO_NOTHING,
        _ => COLLAPSE_TO_CHILD,
    }
}

/// Every situation that a full exploration must meet; of the hashed layout or of the published
/// ones.
#[cfg(feature = "checker")]
pub fn art_situations(hashed: bool) -> Vec<Situation> {
    let mut expected = vec![
        COLLAPSE_TO_CHILD,
        COLLAPSE_TO_NOTHING,
        REPLACE_LATE,
        HELPED,
        SPLIT_LEAF,
        SPLIT_ABOVE,
        ROOM_GONE,
        SEALED_SLOT,
        ROOT_STALE,
    ];
    let layout = if hashed { HASHED } else { PUBLISHED };
    for pair in layout.windows(2) {
        expected.push(Situation::Switch(pair[0].name(), pair[1].name()));
        expected.push(Situation::Switch(pair[1].name(), pair[0].name()));
    }
    expected
}
