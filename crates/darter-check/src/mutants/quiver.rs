//! Errors planted in Quiver, the paged index.

use super::{FoundBy, Mutant};

pub(super) const MUTANTS: &[Mutant] = &[
    Mutant::new(
        "Quiver",
        "quiver-copy-made-before-the-seals",
        "What follows a page is linked as it was made before the page was sealed, whatever changed in between.",
        FoundBy::Explorer("quiver", 4_000),
    ),
    Mutant::new(
        "Quiver",
        "quiver-bulk-load-over-a-late-key",
        "A bulk load replaces the root although a key was put while it sealed it.",
        FoundBy::Focused { index: "quiver", scenarios: &["empty"], schedules: 4_000 },
    ),
];
