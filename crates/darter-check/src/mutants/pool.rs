//! Errors planted in the pool: epochs, limbo, upkeep, members, grants, adoption.

#[allow(unused_imports)] // the list may be empty
use super::{FoundBy, Mutant};

pub(super) const MUTANTS: &[Mutant] = &[];
