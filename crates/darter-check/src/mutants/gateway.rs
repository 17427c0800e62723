//! Errors planted in gateways: records of keys, aggregates, turns.

#[allow(unused_imports)] // the list may be empty
use super::{FoundBy, Mutant};

pub(super) const MUTANTS: &[Mutant] = &[];
