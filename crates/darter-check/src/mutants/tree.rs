//! Errors planted in DART's tree: searches, writes, type switches, retirement.

#[allow(unused_imports)] // the list may be empty
use super::{FoundBy, Mutant};

pub(super) const MUTANTS: &[Mutant] = &[];
