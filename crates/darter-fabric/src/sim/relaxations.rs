//! What verbs promise in a simulation, beyond what RDMA devices do.

use std::fmt;
use std::str::FromStr;

/// What a simulation takes from verbs, so that they promise only what RDMA does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Relaxations {
    /// Verbs of one batch to one node may execute in another order than that of posting, as far as
    /// [`Batch`](crate::Batch) allows.
    pub order: bool,
    /// A CAS that fails writes back what it found, and a WRITE may execute in between.
    pub cas_writes_back: bool,
}

/// The names of sets of relaxations.
const NAMES: [(&str, Relaxations); 4] = [
    ("ordered", Relaxations { order: false, cas_writes_back: false }),
    ("reorder", Relaxations { order: true, cas_writes_back: false }),
    ("writeback", Relaxations { order: false, cas_writes_back: true }),
    ("rdma", Relaxations { order: true, cas_writes_back: true }),
];

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
            format!("'{text}' is none of {}", names.join(", "))
        })
    }
}
