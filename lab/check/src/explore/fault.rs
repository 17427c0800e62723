//! The faults of a run, each with the process or client that it strikes and when.

use std::fmt;

/// The process that gives lost memory nodes up, in faults: `kill=60@n` ends it after `n` of its
/// verbs, and another process goes on. Of several such faults, each strikes the next process.
pub const GIVER: u32 = 60;

/// A fault. Processes and clients are counted from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// A process dies after this many of its verbs have executed; verbs it has posted may still
    /// take effect.
    Kill(u32, u64),
    /// A client's operation is dropped at its await of this number.
    Cancel(u32, u64),
    /// A client's operation is dropped when its await of this number is ready but has not been
    /// polled again.
    Drop(u32, u64),
    /// A client stops after this many of its events, together with the verbs it has posted, until
    /// no other client can move.
    Hold(u32, u64),
    /// A process stops after this many of its verbs have executed, and continues after all others
    /// have ended and its lease has long expired.
    Pause(u32, u64),
    /// A process stops there for ever, without being reported dead.
    Stop(u32, u64),
    /// A process loses node 0 after this many of its verbs have executed, and is reconnected some
    /// events later.
    Cut(u32, u64),
    /// A process's request for memory of this number finds none.
    Refuse(u32, u64),
    /// All memory nodes lose power after this many verbs have executed in total.
    Power(u32, u64),
    /// The memory node of this number is lost for good after this many verbs have executed in total.
    Lose(u32, u64),
}

impl Fault {
    /// Returns the name, the process or client, and the time.
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
            Self::Lose(node, when) => ("lose", node, when),
        }
    }

    /// Returns the fault of this name.
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
            "lose" => Self::Lose(who, when),
            _ => return None,
        })
    }

    /// The names of all faults.
    pub const NAMES: [&'static str; 10] =
        ["kill", "cancel", "drop", "hold", "pause", "stop", "cut", "refuse", "power", "lose"];

    /// Faults that an index survives that cannot be read around lost memory nodes.
    pub const BESIDE_LOSSES: [&'static str; 9] =
        ["kill", "cancel", "drop", "hold", "pause", "stop", "cut", "refuse", "power"];

    /// Faults that an index survives if its clients wait for each other's locks: there, a client
    /// that is held for long is taken for dead.
    pub const BESIDE_LOCKS: [&'static str; 8] =
        ["kill", "cancel", "drop", "pause", "stop", "cut", "refuse", "power"];

    /// Whether it may strike a server as well. A server that is paused or stopped is equivalent to
    /// a dead one after others have shut it out; until then all wait for it.
    pub(super) fn strikes_servers(name: &str) -> bool {
        matches!(name, "kill" | "cut" | "refuse")
    }

    /// Whether it strikes a client, not a process.
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
