//! Rare situations of the trees' protocol, and which of them a full exploration must meet.

#[cfg(feature = "checker")]
use super::Design;
use darter_index::checker::Situation;

darter_index::situations! {
    /// Two keys were separated at a leaf's slot.
    SPLIT_LEAF = "SplitLeaf";
    /// A key left the path in the digits that an edge skips: a node was put above another.
    SPLIT_ABOVE = "SplitAbove";
    /// A delete replaced a node by its only child.
    COLLAPSED = "Collapsed";
    /// A search found the cached root replaced.
    ROOT_STALE = "RootStale";
}

/// A header that a dead writer left stale was rebuilt.
pub(super) const REBUILT: Situation = Situation::Met("HeaderRebuilt");

/// Every situation that a full exploration of a design must meet.
#[cfg(feature = "checker")]
pub fn wort_situations(design: Design) -> Vec<Situation> {
    let format = design.format();
    let mut expected = ALL.to_vec();
    if !format.copies {
        expected.push(REBUILT);
    }
    for pair in format.types.windows(2) {
        expected.push(Situation::Switch(pair[0].name(), pair[1].name()));
        expected.push(Situation::Switch(pair[1].name(), pair[0].name()));
    }
    expected
}
