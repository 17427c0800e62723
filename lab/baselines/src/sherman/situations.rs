//! Rare situations of Sherman's protocol, and which of them a full exploration must meet.

#[cfg(feature = "checker")]
use darter_index::checker::Situation;

darter_index::situations! {
    /// A lock was taken over from a holder that died or gave up.
    TAKEN_OVER = "TakenOver";
    /// A redo image was copied to its node.
    REDONE = "Redone";
    /// An inline entry whose write was interrupted was repaired.
    ENTRY_MENDED = "EntryMended";
    /// A node was split.
    SPLIT = "Split";
    /// The root was split in place.
    ROOT_SPLIT = "RootSplit";
    /// A node took in its right neighbour.
    MERGED = "Merged";
    /// A merge that another client had begun was finished.
    MERGE_FINISHED = "MergeFinished";
    /// The root took in its only child.
    ROOT_LOWERED = "RootLowered";
    /// A writer found its key's node to the right of the one it had locked.
    MOVED_RIGHT = "MovedRight";
    /// A walk was led to a wrong node by an outdated copy.
    COPY_MISLED = "CopyMisled";
}

/// Every situation that a full exploration must meet, with values inline or in separate blocks.
#[cfg(feature = "checker")]
pub fn sherman_situations(inline: bool) -> Vec<Situation> {
    ALL.iter().copied().filter(|&situation| inline || situation != ENTRY_MENDED).collect()
}
