//! Errors planted in the pool: epochs, limbo, upkeep, members, grants, adoption.

use super::{FoundBy, Mutant};

pub(super) const MUTANTS: &[Mutant] = &[Mutant::new(
    "pool",
    "frees-forgotten-in-a-block-just-taken",
    "Objects freed by their bits in a block that the process takes over meanwhile are never fetched.",
    FoundBy::Nobody,
)];
