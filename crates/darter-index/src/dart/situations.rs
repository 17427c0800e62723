//! Rare situations of the protocol, counted for each thread: what an exploration must have met to mean anything.
//!
//! Only paths that cost round trips of their own count here, so the count costs nothing that could be measured.

use super::node::NodeType;
use std::cell::RefCell;
use std::collections::BTreeMap;

/// A situation worth meeting.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Situation {
    /// A node replaced by one of another or the same type: node type codes from N4 = 0 to N256 = 7.
    Switch(u8, u8),
    /// A node replaced by its lone child that is a leaf.
    CollapseToLeaf,
    /// A node replaced by its lone child that is a node, the paths joined.
    CollapseToNode,
    /// A node without children taken out.
    CollapseToNothing,
    /// A replacement that somebody else had already made.
    SwitchLost,
    /// A replacement that somebody else had begun was finished.
    Helped,
    /// A node above one to be replaced was itself being replaced.
    HelpedAbove,
    /// Two keys parted below a leaf's slot.
    SplitLeaf,
    /// A key left a compressed path: a node put in above another.
    SplitAbove,
    /// An insert took a tombstone's slot.
    TombReused,
    /// A hinted node was refused: it lies on another path (rule R2).
    HintOffPath,
    /// A hinted node was refused: all its slots are sealed (rule R1).
    HintSealed,
    /// A hinted node with some sealed and some unsealed slots was believed (rule R1).
    HintHalfSealed,
    /// A search answered from a sealed bucket on the root's path.
    ReadSealed,
    /// An express entry was put in.
    ExpressInstalled,
    /// A segment of the express skip table was split.
    SegmentSplit,
    /// A split of a segment that somebody else had begun was finished.
    SegmentHelped,
    /// Express entries of a retired node were cleared.
    ScrubCleared,
    /// A scrub met a segment on its way into two.
    ScrubMetSplit,
    /// The prefix list was changed.
    ListChanged,
    /// A process saw a table that another had built.
    TableRefreshed,
    /// A table that nobody uses was taken apart.
    TableRetired,
}

impl Situation {
    /// A name for people.
    pub fn name(self) -> String {
        if let Self::Switch(from, to) = self {
            let name = |code: u8| NodeType::ALL.get(usize::from(code)).map_or("?", |ty| ty.name());
            return format!("{} -> {}", name(from), name(to));
        }
        format!("{self:?}")
    }
}

thread_local! {
    static COUNTS: RefCell<BTreeMap<Situation, u64>> = const { RefCell::new(BTreeMap::new()) };
}

/// Counts a situation.
#[cold]
pub(crate) fn note(situation: Situation) {
    COUNTS.with_borrow_mut(|counts| *counts.entry(situation).or_default() += 1);
}

/// Does something whose situations do not count.
pub fn without_situations<R>(act: impl FnOnce() -> R) -> R {
    let kept = COUNTS.take();
    let result = act();
    COUNTS.set(kept);
    result
}

/// What this thread has met since the last call.
pub fn take_situations() -> BTreeMap<Situation, u64> {
    COUNTS.take()
}
