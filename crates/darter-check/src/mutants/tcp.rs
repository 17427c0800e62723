//! Errors planted in the TCP fabric: hub, handshake, fencing.

#[allow(unused_imports)] // the list may be empty
use super::{FoundBy, Mutant};

pub(super) const MUTANTS: &[Mutant] = &[];
