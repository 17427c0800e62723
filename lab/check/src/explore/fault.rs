//! What goes wrong in a run, each with whom it strikes and when.

use std::fmt;

/// One thing that goes wrong. Processes and clients are counted from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// A process dies when so many of its verbs have executed; what it has posted may still land.
    Kill(u32, u64),
    /// A client's operation is dropped at its so-manieth await.
    Cancel(u32, u64),
    /// A client's operation is dropped when what its so-manieth await waited for has come, and it has not looked yet.
    Drop(u32, u64),
    /// A client, with what it has posted, moves no further after so many of its events until nobody else can move.
    Hold(u32, u64),
    /// A process stops when so many of its verbs have executed, and goes on when all others have ended and its lease is
    /// long over.
    Pause(u32, u64),
    /// A process stops there for ever; nobody is told that it died.
    Stop(u32, u64),
    /// A process loses node 0 when so many of its verbs have executed, and has it again some events later.
    Cut(u32, u64),
    /// A process's so-manieth request for memory finds none.
    Refuse(u32, u64),
    /// All memory nodes lose power when so many verbs have executed altogether.
    Power(u32, u64),
}

impl Fault {
    /// Name, process or client, and when.
    pub fn parts(self) -> (&'static str, u32, u64) {
        match self {
            Self::Kill(who, when) => ("kill", who, when),
            Self::Cancel(who, when) => ("cancel", who, when),
            Self::Drop(who, when) => ("drop", who, when),
            Self::Hold(who, when) => ("hold", who, when),
            Self::Pause(who, when) => ("pause", who, when),
            Self::Stop(who, when) => ("stop", who, when),
            Self::Cut(who, when) => ("cut", who, when),
            Self::Refuse(who, when) => ("refuse", who, when),
            Self::Power(who, when) => ("power", who, when),
        }
    }

    /// The fault of this name.
    pub fn named(name: &str, who: u32, when: u64) -> Option<Self> {
        Some(match name {
            "kill" => Self::Kill(who, when),
            "cancel" => Self::Cancel(who, when),
            "drop" => Self::Drop(who, when),
            "hold" => Self::Hold(who, when),
            "pause" => Self::Pause(who, when),
            "stop" => Self::Stop(who, when),
            "cut" => Self::Cut(who, when),
            "refuse" => Self::Refuse(who, when),
            "power" => Self::Power(who, when),
            _ => return None,
        })
    }

    /// The names of faults that can be asked for.
    pub const NAMES: [&'static str; 9] =
        ["kill", "cancel", "drop", "hold", "pause", "stop", "cut", "refuse", "power"];

    /// Those that indexes survive whose clients wait for each other's locks: who is held for long is taken for dead there.
    pub const BESIDE_LOCKS: [&'static str; 8] =
        ["kill", "cancel", "drop", "pause", "stop", "cut", "refuse", "power"];

    /// Whether it may happen to a server as well. One that stands still, or for ever, is as good as one that died once others have
    /// shut it out; until then all wait for it.
    pub(super) fn strikes_servers(name: &str) -> bool {
        matches!(name, "kill" | "cut" | "refuse")
    }

    /// Whether it is a client that it happens to, and not a process.
    pub(super) fn is_of_client(name: &str) -> bool {
        matches!(name, "cancel" | "drop" | "hold")
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, who, when) = self.parts();
        write!(f, "{name}={who}@{when}")
    }
}
