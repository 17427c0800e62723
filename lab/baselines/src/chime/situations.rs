//! Rare situations of CHIME's protocol, beside those of the tree, and which of them a full
//! exploration must meet.

#[cfg(feature = "checker")]
use darter_index::checker::Situation;

darter_index::situations! {
    /// An entry was read where a hot spot said that it was.
    HOT_SPOT_HIT = "HotSpotHit";
    /// A hot spot named a slot in which the key no longer was.
    HOT_SPOT_MISLED = "HotSpotMisled";
    /// A neighbourhood that was read did not fit together.
    NEIGHBOURHOOD_TORN = "NeighbourhoodTorn";
    /// A leaf had another right neighbour than the copy of the node above said.
    SIBLING_DIFFERS = "SiblingDiffers";
    /// An entry was inserted after others had made room for it.
    HOPPED = "Hopped";
    /// A leaf was split that had vacant slots, none of which could be brought near.
    SPLIT_WITH_VACANT_SLOTS = "SplitWithVacantSlots";
}

/// Every situation that a full exploration must meet.
#[cfg(feature = "checker")]
pub fn chime_situations() -> Vec<Situation> {
    ALL.iter().copied().chain(crate::sherman::sherman_situations(true)).collect()
}
