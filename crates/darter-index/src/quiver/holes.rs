//! The errors of Quiver that can be brought back ([`crate::checker::Holes`]): points of the argument
//! in `docs/quiver.md`, each left out.

use crate::checker;

/// One error that can be brought back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum QuiverHole {
    /// Parts are linked from the first to the last (L5).
    FirstPartFirst,
    /// A delta slot is taken that another key has left (L6).
    TakeAnyTomb,
    /// A page is copied before its last word is sealed (L7).
    CopyUnsealed,
    /// What is unlinked is free at once.
    ReuseAtOnce,
    /// A remembered page is believed whatever life its words are of (L1, L2).
    IgnoreLife,
    /// A remembered page's sealed words are believed (L2).
    TrustSealed,
}

impl QuiverHole {
    /// All of them, those that what is remembered shows last.
    pub const ALL: [Self; 6] = [
        Self::FirstPartFirst,
        Self::TakeAnyTomb,
        Self::CopyUnsealed,
        Self::ReuseAtOnce,
        Self::IgnoreLife,
        Self::TrustSealed,
    ];

    /// The name in replay lines.
    pub const fn name(self) -> &'static str {
        match self {
            Self::FirstPartFirst => "first-part-first",
            Self::TakeAnyTomb => "take-any-tomb",
            Self::CopyUnsealed => "copy-unsealed",
            Self::ReuseAtOnce => "reuse-at-once",
            Self::IgnoreLife => "ignore-life",
            Self::TrustSealed => "trust-sealed",
        }
    }
}

impl checker::Hole for QuiverHole {
    fn number(self) -> u32 {
        self as u32
    }
}

/// The holes of Quiver that are open.
pub type QuiverHoles = checker::Holes<QuiverHole>;
pub(super) type Holes = QuiverHoles;
