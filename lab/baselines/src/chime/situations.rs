//! Rare situations of CHIME's protocol, in addition to those of the tree, and which of them a full
//! exploration must meet.

#[cfg(feature = "checker")]
use darter_index::checker::Situation;

darter_index::situations! {
    /// An entry was found in the slot named by a hot spot.
    HOT_SPOT_HIT = "HotSpotHit";
    /// A hot spot named a slot that no longer held the key.
    HOT_SPOT_MISLED = "HotSpotMisled";
    /// A neighbourhood was torn when it was read.
    NEIGHBOURHOOD_TORN = "NeighbourhoodTorn";
    /// A leaf's right neighbour differed from the one in the copy of the node above.
    SIBLING_DIFFERS = "SiblingDiffers";
    /// An entry was inserted after others had made room for it.
    HOPPED = "Hopped";
    /// A leaf with vacant slots was split because no slot could be freed in the neighbourhood.
    SPLIT_WITH_VACANT_SLOTS = "SplitWithVacantSlots";
}

/// Every situation that a full exploration must meet.
#[cfg(feature = "checker")]
pub fn chime_situations() -> Vec<Situation> {
    ALL.iter().copied().chain(crate::sherman::sherman_situations(true)).collect()
}
