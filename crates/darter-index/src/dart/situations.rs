//! Rare situations of DART's protocol, and the set of them that a full exploration must meet.

#[cfg(feature = "checker")]
use super::node::NodeType;
#[cfg(feature = "checker")]
use crate::checker::Situation;

crate::situations! {
    /// A node was replaced by its lone child, a leaf.
    COLLAPSE_TO_LEAF = "CollapseToLeaf";
    /// A node was replaced by its lone child, a node, and the paths were joined.
    COLLAPSE_TO_NODE = "CollapseToNode";
    /// A node without children was removed.
    COLLAPSE_TO_NOTHING = "CollapseToNothing";
    /// A replacement failed because another client had already made it.
    SWITCH_LOST = "SwitchLost";
    /// A replacement that another client had begun was finished.
    HELPED = "Helped";
    /// The parent of a node to be replaced was itself being replaced.
    HELPED_ABOVE = "HelpedAbove";
    /// A key was inserted whose path diverged at a leaf's slot.
    SPLIT_LEAF = "SplitLeaf";
    /// A key diverged inside a compressed path: a node was inserted above another.
    SPLIT_ABOVE = "SplitAbove";
    /// An insert took a tombstone's slot.
    TOMB_REUSED = "TombReused";
    /// A put was superseded by a concurrent put of the same key.
    SUPERSEDED = "Superseded";
    /// A hinted node was rejected: it lies on another path (rule R2).
    HINT_OFF_PATH = "HintOffPath";
    /// A hinted node was rejected: all its slots are sealed (rule R1).
    HINT_SEALED = "HintSealed";
    /// A hinted node with some sealed and some unsealed slots was accepted (rule R1).
    HINT_HALF_SEALED = "HintHalfSealed";
    /// A search returned a value from a sealed bucket on the path from the root.
    READ_SEALED = "ReadSealed";
    /// An express entry was installed.
    EXPRESS_INSTALLED = "ExpressInstalled";
    /// A segment of the express skip table was split.
    SEGMENT_SPLIT = "SegmentSplit";
    /// A split of a segment that another client had begun was finished.
    SEGMENT_HELPED = "SegmentHelped";
    /// Express entries of a retired node were cleared.
    SCRUB_CLEARED = "ScrubCleared";
    /// A scrub met a segment that was being split.
    SCRUB_MET_SPLIT = "ScrubMetSplit";
    /// Nodes were scrubbed while a table was being built in which they might have entries.
    SCRUB_BESIDE_BUILD = "ScrubBesideBuild";
    /// Entries of a retired node were cleared in a table that was being built.
    SCRUB_CLEARED_BUILD = "ScrubClearedBuild";
    /// An entry that a scrub was about to clear was changed by another client.
    SCRUB_LOST = "ScrubLost";
    /// A node whose prefix is unknown was scrubbed.
    SCRUB_NAMELESS = "ScrubNameless";
    /// A process forgot nodes that others had retired, by their entries in the log.
    LOG_FOLLOWED = "LogFollowed";
    /// More nodes were retired than the log holds before a process had read their entries.
    LOG_LAPPED = "LogLapped";
    /// An entry of the log was not yet written when it was read.
    LOG_ENTRY_AWAITED = "LogEntryAwaited";
    /// An entry of the log was missing in the second read, too.
    LOG_ENTRY_MISSED = "LogEntryMissed";
    /// The prefix list was changed.
    LIST_CHANGED = "ListChanged";
    /// A process saw a table that another had built.
    TABLE_REFRESHED = "TableRefreshed";
    /// A client received a view of the root words after a client of the same process that was
    /// pinned later.
    VIEW_LATE = "ViewLate";
    /// A builder found that others had finished its change of the list.
    LIST_CHANGE_HELPED = "ListChangeHelped";
    /// A client was about to finish a change of the list that was already over.
    LIST_CHANGE_OVER = "ListChangeOver";
    /// A table that is no longer used was taken apart.
    TABLE_RETIRED = "TableRetired";
}

/// Every situation that a full exploration must meet: each type grown into the next and shrunk,
/// both collapses, helping, hints rejected for either reason, segments split and helped, lists
/// changed, hints scrubbed.
#[cfg(feature = "checker")]
pub fn dart_situations() -> Vec<Situation> {
    let mut expected = ALL.to_vec();
    let switch =
        |from: usize, to: usize| Situation::Switch(NodeType::ALL[from].name(), NodeType::ALL[to].name());
    let last = NodeType::ALL.len() - 1;
    expected.extend((0..last).map(|ty| switch(ty, ty + 1)));
    // The most frequent outcomes when a node shrinks.
    expected.extend((1..=last).map(|ty| switch(ty, if ty == 1 { 0 } else { ty - 2 })));
    expected
}
