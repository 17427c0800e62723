//! Rare situations of DART's protocol, and which of them a full exploration must meet.

#[cfg(feature = "checker")]
use super::node::NodeType;
use crate::checker::Situation;

/// A node replaced by its lone child that is a leaf.
pub(crate) const COLLAPSE_TO_LEAF: Situation = Situation::Met("CollapseToLeaf");
/// A node replaced by its lone child that is a node, the paths joined.
pub(crate) const COLLAPSE_TO_NODE: Situation = Situation::Met("CollapseToNode");
/// A node without children taken out.
pub(crate) const COLLAPSE_TO_NOTHING: Situation = Situation::Met("CollapseToNothing");
/// A replacement that another client had already made.
pub(crate) const SWITCH_LOST: Situation = Situation::Met("SwitchLost");
/// A replacement that another client had begun was finished.
pub(crate) const HELPED: Situation = Situation::Met("Helped");
/// A node above one to be replaced was itself being replaced.
pub(crate) const HELPED_ABOVE: Situation = Situation::Met("HelpedAbove");
/// Two keys parted below a leaf's slot.
pub(crate) const SPLIT_LEAF: Situation = Situation::Met("SplitLeaf");
/// A key left a compressed path: a node put in above another.
pub(crate) const SPLIT_ABOVE: Situation = Situation::Met("SplitAbove");
/// An insert took a tombstone's slot.
pub(crate) const TOMB_REUSED: Situation = Situation::Met("TombReused");
/// A put was superseded by another that had taken its key's slot meanwhile.
pub(crate) const SUPERSEDED: Situation = Situation::Met("Bowed");
/// A hinted node was refused: it lies on another path (rule R2).
pub(crate) const HINT_OFF_PATH: Situation = Situation::Met("HintOffPath");
/// A hinted node was refused: all its slots are sealed (rule R1).
pub(crate) const HINT_SEALED: Situation = Situation::Met("HintSealed");
/// A hinted node with some sealed and some unsealed slots was believed (rule R1).
pub(crate) const HINT_HALF_SEALED: Situation = Situation::Met("HintHalfSealed");
/// A search returned what it found in a sealed bucket on the root's path.
pub(crate) const READ_SEALED: Situation = Situation::Met("ReadSealed");
/// An express entry was put in.
pub(crate) const EXPRESS_INSTALLED: Situation = Situation::Met("ExpressInstalled");
/// A segment of the express skip table was split.
pub(crate) const SEGMENT_SPLIT: Situation = Situation::Met("SegmentSplit");
/// A split of a segment that another client had begun was finished.
pub(crate) const SEGMENT_HELPED: Situation = Situation::Met("SegmentHelped");
/// Express entries of a retired node were cleared.
pub(crate) const SCRUB_CLEARED: Situation = Situation::Met("ScrubCleared");
/// A scrub met a segment on its way into two.
pub(crate) const SCRUB_MET_SPLIT: Situation = Situation::Met("ScrubMetSplit");
/// Nodes were scrubbed while a table was being built, which they may have been entered in.
pub(crate) const SCRUB_BESIDE_BUILD: Situation = Situation::Met("ScrubBesideBuild");
/// Entries of a retired node were cleared in a table that was being built.
pub(crate) const SCRUB_CLEARED_BUILD: Situation = Situation::Met("ScrubClearedBuild");
/// An entry that a scrub was about to clear changed meanwhile.
pub(crate) const SCRUB_LOST: Situation = Situation::Met("ScrubLost");
/// A node whose prefix nobody knows was scrubbed.
pub(crate) const SCRUB_NAMELESS: Situation = Situation::Met("ScrubNameless");
/// The prefix list was changed.
pub(crate) const LIST_CHANGED: Situation = Situation::Met("ListChanged");
/// A process saw a table that another had built.
pub(crate) const TABLE_REFRESHED: Situation = Situation::Met("TableRefreshed");
/// A process was told of its root words after another of its clients, pinned later, had been.
pub(crate) const VIEW_LATE: Situation = Situation::Met("ViewLate");
/// A builder found its change of the list finished by others.
pub(crate) const LIST_CHANGE_HELPED: Situation = Situation::Met("ListChangeHelped");
/// A client would have finished a change of the list that was over.
pub(crate) const LIST_CHANGE_OVER: Situation = Situation::Met("ListChangeOver");
/// A table that nobody uses was taken apart.
pub(crate) const TABLE_RETIRED: Situation = Situation::Met("TableRetired");

/// Every situation that a full exploration must meet: each type grown into the next and shrunk,
/// both collapses, helping, hints refused for either reason, segments split and helped, lists
/// changed, hints scrubbed.
#[cfg(feature = "checker")]
pub fn dart_situations() -> Vec<Situation> {
    let mut expected = vec![
        COLLAPSE_TO_LEAF,
        COLLAPSE_TO_NODE,
        COLLAPSE_TO_NOTHING,
        SWITCH_LOST,
        HELPED,
        HELPED_ABOVE,
        SPLIT_LEAF,
        SPLIT_ABOVE,
        TOMB_REUSED,
        SUPERSEDED,
        HINT_OFF_PATH,
        HINT_SEALED,
        HINT_HALF_SEALED,
        READ_SEALED,
        EXPRESS_INSTALLED,
        SEGMENT_SPLIT,
        SEGMENT_HELPED,
        SCRUB_CLEARED,
        SCRUB_MET_SPLIT,
        SCRUB_BESIDE_BUILD,
        SCRUB_CLEARED_BUILD,
        SCRUB_LOST,
        SCRUB_NAMELESS,
        LIST_CHANGED,
        TABLE_REFRESHED,
        TABLE_RETIRED,
        VIEW_LATE,
        LIST_CHANGE_HELPED,
        LIST_CHANGE_OVER,
    ];
    let switch =
        |from: usize, to: usize| Situation::Switch(NodeType::ALL[from].name(), NodeType::ALL[to].name());
    let last = NodeType::ALL.len() - 1;
    expected.extend((0..last).map(|ty| switch(ty, ty + 1)));
    // What most often becomes of a node that shrinks.
    expected.extend((1..=last).map(|ty| switch(ty, if ty == 1 { 0 } else { ty - 2 })));
    expected
}
