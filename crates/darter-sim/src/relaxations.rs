//! The guarantees that a simulation can remove from verbs, down to those of RDMA devices.

use darter_fabric::{Verb, VerbKind};
use std::fmt;
use std::str::FromStr;

/// The guarantees that a simulation removes, so that verbs have only those of RDMA.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Relaxations {
    /// Verbs of one batch to one node may execute in another order than they were posted, as far as
    /// [`Batch`](darter_fabric::Batch) allows.
    pub order: bool,
    /// A CAS that fails writes back the value that it found, and a WRITE may execute in between.
    pub cas_writes_back: bool,
    /// A CAS that succeeds, and an FAA, read the word first and write it later. In between, READs
    /// and WRITEs may execute, and atomics of the other [`Side`], but not atomics of the same side.
    pub split_atomics: bool,
}

/// The side that executes a process's verbs at the memory nodes. It matters with
/// [`Relaxations::split_atomics`]: atomics of one side are atomic only with respect to each other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Side {
    /// The node's RDMA device.
    #[default]
    Device,
    /// The node's processor, as over TCP.
    Processor,
}

/// The names of sets of relaxations.
const NAMES: [(&str, Relaxations); 8] = [
    ("ordered", Relaxations::of(false, false, false)),
    ("reorder", Relaxations::of(true, false, false)),
    ("writeback", Relaxations::of(false, true, false)),
    ("rdma", Relaxations::of(true, true, false)),
    ("split", Relaxations::of(false, false, true)),
    ("reorder+split", Relaxations::of(true, false, true)),
    ("writeback+split", Relaxations::of(false, true, true)),
    ("rdma+split", Relaxations::of(true, true, true)),
];

impl Relaxations {
    const fn of(order: bool, cas_writes_back: bool, split_atomics: bool) -> Self {
        Self { order, cas_writes_back, split_atomics }
    }

    /// Returns the number of pieces in which a verb can execute.
    pub(super) fn pieces(self, verb: &Verb) -> u32 {
        match verb.kind {
            VerbKind::Read | VerbKind::Write => verb.words,
            VerbKind::Cas => 1 + u32::from(self.cas_writes_back || self.split_atomics),
            VerbKind::Faa => 1 + u32::from(self.split_atomics),
        }
    }

    /// Returns whether an atomic writes later than it reads, given whether it changes the word.
    pub(super) fn has_second_half(self, takes_effect: bool) -> bool {
        if takes_effect { self.split_atomics } else { self.cas_writes_back }
    }
}

impl fmt::Display for Relaxations {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, _) = NAMES.iter().find(|(_, named)| named == self).unwrap_or(&NAMES[0]);
        f.write_str(name)
    }
}

impl FromStr for Relaxations {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let named = NAMES.iter().find(|(name, _)| *name == text);
        named.map(|&(_, relaxations)| relaxations).ok_or_else(|| {
            let names: Vec<&str> = NAMES.iter().map(|(name, _)| *name).collect();
            format!("unknown relaxations '{text}': expected one of {}", names.join(", "))
        })
    }
}
