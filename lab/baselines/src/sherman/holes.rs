//! Errors of the published system that can be brought back ([`darter_index::checker::Holes`]).

use darter_index::checker;

/// One of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum ShermanHole {
    /// A search that finds an entry torn says that its key is absent.
    TrustTorn,
}

impl checker::Hole for ShermanHole {
    fn number(self) -> u32 {
        self as u32
    }
}

/// The holes of Sherman that are open.
pub type ShermanHoles = checker::Holes<ShermanHole>;
