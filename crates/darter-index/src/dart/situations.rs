//! Rare situations of DART's protocol, and which of them a full exploration must meet.

#[cfg(feature = "checker")]
use super::node::NodeType;
#[cfg(feature = "checker")]
use crate::checker::Situation;

crate::situations! {
    /// A node replaced by its lone child that is a leaf.
    COLLAPSE_TO_LEAF = "CollapseToLeaf";
    /// A node replaced by its lone child that is a node, the paths joined.
    COLLAPSE_TO_NODE = "CollapseToNode";
    /// A node without children taken out.
    COLLAPSE_TO_NOTHING = "CollapseToNothing";
    /// A replacement that another client had already made.
    SWITCH_LOST = "SwitchLost";
    /// A replacement that another client had begun was finished.
    HELPED = "Helped";
    /// A node above one to be replaced was itself being replaced.
    HELPED_ABOVE = "HelpedAbove";
    /// Two keys parted below a leaf's slot.
    SPLIT_LEAF = "SplitLeaf";
    /// A key left a compressed path: a node put in above another.
    SPLIT_ABOVE = "SplitAbove";
    /// An insert took a tombstone's slot.
    TOMB_REUSED = "TombReused";
    /// A put was superseded by another that had taken its key's slot meanwhile.
    SUPERSEDED = "Superseded";
    /// A hinted node was refused: it lies on another path (rule R2).
    HINT_OFF_PATH = "HintOffPath";
    /// A hinted node was refused: all its slots are sealed (rule R1).
    HINT_SEALED = "HintSealed";
    /// A hinted node with some sealed and some unsealed slots was believed (rule R1).
    HINT_HALF_SEALED = "HintHalfSealed";
    /// A search returned what it found in a sealed bucket on the root's path.
    READ_SEALED = "ReadSealed";
    /// An express entry was put in.
    EXPRESS_INSTALLED = "ExpressInstalled";
    /// A segment of the express skip table was split.
    SEGMENT_SPLIT = "SegmentSplit";
    /// A split of a segment that another client had begun was finished.
    SEGMENT_HELPED = "SegmentHelped";
    /// Express entries of a retired node were cleared.
    SCRUB_CLEARED = "ScrubCleared";
    /// A scrub met a segment on its way into two.
    SCRUB_MET_SPLIT = "ScrubMetSplit";
    /// Nodes were scrubbed while a table was being built, which they may have been entered in.
    SCRUB_BESIDE_BUILD = "ScrubBesideBuild";
    /// Entries of a retired node were cleared in a table that was being built.
    SCRUB_CLEARED_BUILD = "ScrubClearedBuild";
    /// An entry that a scrub was about to clear changed meanwhile.
    SCRUB_LOST = "ScrubLost";
    /// A node whose prefix nobody knows was scrubbed.
    SCRUB_NAMELESS = "ScrubNameless";
    /// A process forgot nodes that others had retired, by their entries in the log.
    LOG_FOLLOWED = "LogFollowed";
    /// More nodes were retired than the log holds, before a process had read of them.
    LOG_LAPPED = "LogLapped";
    /// An entry of the log was not there yet when it was read.
    LOG_ENTRY_AWAITED = "LogEntryAwaited";
    /// An entry of the log was not there the second time either.
    LOG_ENTRY_MISSED = "LogEntryMissed";
    /// The prefix list was changed.
    LIST_CHANGED = "ListChanged";
    /// A process saw a table that another had built.
    TABLE_REFRESHED = "TableRefreshed";
    /// A process was told of its root words after another of its clients, pinned later, had been.
    VIEW_LATE = "ViewLate";
    /// A builder found its change of the list finished by others.
    LIST_CHANGE_HELPED = "ListChangeHelped";
    /// A client would have finished a change of the list that was over.
    LIST_CHANGE_OVER = "ListChangeOver";
    /// A table that nobody uses was taken apart.
    TABLE_RETIRED = "TableRetired";
}

/// Every situation that a full exploration must meet: each type grown into the next and shrunk,
/// both collapses, helping, hints refused for either reason, segments split and helped, lists
/// changed, hints scrubbed.
#[cfg(feature = "checker")]
pub fn dart_situations() -> Vec<Situation> {
    let mut expected = ALL.to_vec();
    let switch =
        |from: usize, to: usize| Situation::Switch(NodeType::ALL[from].name(), NodeType::ALL[to].name());
    let last = NodeType::ALL.len() - 1;
    expected.extend((0..last).map(|ty| switch(ty, ty + 1)));
    // What most often becomes of a node that shrinks.
    expected.extend((1..=last).map(|ty| switch(ty, if ty == 1 { 0 } else { ty - 2 })));
    expected
}
