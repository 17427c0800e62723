//! Errors planted in the express skip table: entries, splits, scrubs, changes of the list.

#[allow(unused_imports)] // the list may be empty
use super::{FoundBy, Mutant};

pub(super) const MUTANTS: &[Mutant] = &[];
