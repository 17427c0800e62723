//! Errors planted in memory nodes: turns, sessions, ledger.

#[allow(unused_imports)] // the list may be empty
use super::{FoundBy, Mutant};

pub(super) const MUTANTS: &[Mutant] = &[];
