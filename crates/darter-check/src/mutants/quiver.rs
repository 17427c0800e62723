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
    Mutant::new(
        "Quiver",
        "quiver-helper-reads-leaves-of-linked-parts",
        "Who finishes a replacement reads the leaves of parts that are linked, which are retired when those change.",
        FoundBy::Tests(
            "-p darter-index --lib quiver::races::who_finishes_a_parting_reads_no_leaf_of_a_linked_part",
        ),
    ),
    Mutant::new(
        "Quiver",
        "quiver-scan-reads-leaves-of-linked-parts",
        "A scan reads all leaves of a page, those of parts that are linked included.",
        FoundBy::Tests(
            "-p darter-index --lib quiver::races::readers_read_no_leaf_of_a_linked_part_by_the_page",
        ),
    ),
    Mutant::new(
        "Quiver",
        "quiver-leaves-of-a-found-part-retired",
        "Who finds a part linked retires the leaves that the part does not name, as who linked it has done.",
        FoundBy::Explorer("quiver-uncached", 2_000),
    ),
    Mutant::new(
        "Quiver",
        "quiver-scan-believes-any-remembered-page",
        "A scan takes what lies where a remembered page lay, whatever its guard says.",
        FoundBy::Explorer("quiver", 4_000),
    ),
];
