//! The errors of DART that can be brought back ([`crate::checker::Holes`]).
//!
//! Each restores one point of the published protocol that is incomplete or wrong (`docs/dart.md`
//! argues what stands in its place), or a mistake of our own.

use crate::checker;

/// One error that can be brought back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum Hole {
    /// A delete empties its slot, so that two inserters of one key can meet different first empty
    /// slots (paper, section 4.2, "Insert").
    DeleteToEmpty,
    /// A type switch freezes the parent's pointer, looks again after a while and copies, the old
    /// node's slots unsealed (paper, section 4.2, "Node type switch"): a late CAS into the old node
    /// is lost. They are sealed after the link, so that no hint believes the old node.
    FreezeParent,
    /// An express entry that matches is believed without the identity word (paper, section 4.1).
    TrustExpress,
    /// What path compression skips is taken for equal on the way down (paper, section 2.1).
    TrustCompression,
    /// What is unlinked is free at once (no section 4.4).
    ReuseAtOnce,
    /// A search believes a node reached through a hint although all its slots are sealed (rule R1).
    TrustSealed,
    /// A retired node is freed after one grace, its express entries left behind (rule R3).
    SkipScrub,
    /// A put counts as superseded by any other leaf of its key, a conditional put's too.
    SupersededByAny,
    /// A canary of our own: a put that meets an error after its CAS was posted frees the leaf.
    FreeAfterError,
}

impl Hole {
    /// All of them.
    pub const ALL: [Self; 9] = [
        Self::DeleteToEmpty,
        Self::FreezeParent,
        Self::TrustExpress,
        Self::TrustCompression,
        Self::ReuseAtOnce,
        Self::TrustSealed,
        Self::SkipScrub,
        Self::SupersededByAny,
        Self::FreeAfterError,
    ];

    /// The name in replay lines.
    pub const fn name(self) -> &'static str {
        match self {
            Self::DeleteToEmpty => "delete-to-empty",
            Self::FreezeParent => "freeze-parent",
            Self::TrustExpress => "trust-express",
            Self::TrustCompression => "trust-compression",
            Self::ReuseAtOnce => "reuse-at-once",
            Self::TrustSealed => "trust-sealed",
            Self::SkipScrub => "skip-scrub",
            Self::SupersededByAny => "bow-to-any",
            Self::FreeAfterError => "free-after-error",
        }
    }
}

impl checker::Hole for Hole {
    fn number(self) -> u32 {
        self as u32
    }
}

/// The holes of DART that are open.
pub type Holes = checker::Holes<Hole>;
