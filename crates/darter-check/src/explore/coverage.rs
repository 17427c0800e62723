//! What an exploration must have met to mean anything.

use darter_index::{Hole, Situation};

/// Types of inner nodes, N4 to N256.
const TYPES: u8 = 8;

/// Every situation that a full exploration must meet: each type grown into the next and shrunk, both collapses, helping,
/// hints refused for either reason, segments split and helped, lists changed, hints scrubbed.
pub fn expected_situations() -> Vec<Situation> {
    let mut expected = vec![
        Situation::CollapseToLeaf,
        Situation::CollapseToNode,
        Situation::CollapseToNothing,
        Situation::SwitchLost,
        Situation::Helped,
        Situation::HelpedAbove,
        Situation::SplitLeaf,
        Situation::SplitAbove,
        Situation::TombReused,
        Situation::HintOffPath,
        Situation::HintSealed,
        Situation::HintHalfSealed,
        Situation::ReadSealed,
        Situation::ExpressInstalled,
        Situation::SegmentSplit,
        Situation::SegmentHelped,
        Situation::ScrubCleared,
        Situation::ScrubMetSplit,
        Situation::ListChanged,
        Situation::TableRefreshed,
        Situation::TableRetired,
    ];
    expected.extend((0..TYPES - 1).map(|ty| Situation::Switch(ty, ty + 1)));
    expected.extend((1..TYPES).map(|ty| Situation::Switch(ty, shrinks_to(ty))));
    expected
}

/// The type that a node of this type most often shrinks to.
fn shrinks_to(ty: u8) -> u8 {
    ty.saturating_sub(if ty == 1 { 1 } else { 2 })
}

/// The error of this name that can be brought back.
///
/// # Errors
/// The names there are.
pub fn hole_named(name: &str) -> Result<Hole, String> {
    Hole::ALL.into_iter().find(|hole| hole.name() == name).ok_or_else(|| {
        let names = Hole::ALL.map(Hole::name).join(", ");
        format!("'{name}' is no error that can be brought back; those are {names}")
    })
}
