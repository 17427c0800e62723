//! Errors of the published system that can be brought back ([`darter_index::checker::Holes`]).

use darter_index::checker;

/// One of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum SmartHole {
    /// Writers follow slots beyond a header's type without raising it.
    UnseenSlots,
    /// Locks have no lease: one of a client that died is taken for ever.
    LocksOfTheDead,
    /// A lock is released by the last word of a WRITE, as if words landed in order.
    LockInWrite,
}

impl SmartHole {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::UnseenSlots, Self::LocksOfTheDead, Self::LockInWrite];
}

impl checker::Hole for SmartHole {
    fn number(self) -> u32 {
        self as u32
    }
}

/// The holes of SMART that are open.
pub type SmartHoles = checker::Holes<SmartHole>;
