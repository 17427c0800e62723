//! Errors planted in what radix trees share: leaves, prefix hashes, slots, bulk loads.

#[allow(unused_imports)] // the list may be empty
use super::{FoundBy, Mutant};

pub(super) const MUTANTS: &[Mutant] = &[];
