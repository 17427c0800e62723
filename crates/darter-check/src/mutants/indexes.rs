//! Errors planted in the indexes beside DART: ART, SMART, Sherman.

#[allow(unused_imports)] // the list may be empty
use super::{FoundBy, Mutant};

pub(super) const MUTANTS: &[Mutant] = &[];
