//! The member that holds freed memory back.

use std::fmt;

/// A member that has not followed the global epoch, so that freed memory waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Laggard {
    /// Its slot.
    pub member: u32,
    /// Its process id, as it wrote it.
    pub pid: u64,
    /// Whether it is this process, which then has an operation under way.
    pub is_me: bool,
    /// For how long the epoch has not moved, in ms.
    pub for_ms: u64,
}

impl fmt::Display for Laggard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { member, pid, is_me, for_ms } = self;
        let what = if *is_me { "an operation of this process" } else { "its process" };
        let (seconds, tenths) = (for_ms / 1000, for_ms % 1000 / 100);
        write!(f, "member {member} (process {pid}): {what} has made no progress for {seconds}.{tenths} s")
    }
}
