//! Rare situations of Sherman's protocol, and which of them a full exploration must meet.

use darter_index::checker::Situation;

/// A lock was taken over from a holder that died or gave up.
pub(super) const TAKEN_OVER: Situation = Situation::Met("TakenOver");
/// A redo image was put in its node's place.
pub(super) const REDONE: Situation = Situation::Met("Redone");
/// An inline entry whose write was cut short was mended.
pub(super) const ENTRY_MENDED: Situation = Situation::Met("EntryMended");
/// A node was split.
pub(super) const SPLIT: Situation = Situation::Met("Split");
/// The root was split in place.
pub(super) const ROOT_SPLIT: Situation = Situation::Met("RootSplit");
/// A node took in its right neighbour.
pub(super) const MERGED: Situation = Situation::Met("Merged");
/// A merge that another client had begun was finished.
pub(super) const MERGE_FINISHED: Situation = Situation::Met("MergeFinished");
/// The root took in its only child.
pub(super) const ROOT_LOWERED: Situation = Situation::Met("RootLowered");
/// A writer found its key's node to the right of the one it had locked.
pub(super) const MOVED_RIGHT: Situation = Situation::Met("MovedRight");
/// A walk was led nowhere by a copy that no longer held.
pub(super) const COPY_MISLED: Situation = Situation::Met("CopyMisled");

/// Every situation that a full exploration must meet, with values inline or in blocks of their own.
#[cfg(feature = "checker")]
pub fn sherman_situations(inline: bool) -> Vec<Situation> {
    let mut expected = vec![
        TAKEN_OVER,
        REDONE,
        SPLIT,
        ROOT_SPLIT,
        MERGED,
        MERGE_FINISHED,
        ROOT_LOWERED,
        MOVED_RIGHT,
        COPY_MISLED,
    ];
    expected.extend(inline.then_some(ENTRY_MENDED));
    expected
}
