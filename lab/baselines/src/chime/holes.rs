//! Errors of the published system that can be brought back ([`darter_index::checker::Holes`]).

use darter_index::checker;

/// One of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum ChimeHole {
    /// A put takes its key as absent when it is in none of the slots up to the first vacant one.
    StopAtVacant,
}

impl checker::Hole for ChimeHole {
    fn number(self) -> u32 {
        self as u32
    }
}

/// The holes of CHIME that are open.
pub type ChimeHoles = checker::Holes<ChimeHole>;
