//! Errors planted in the express skip table: entries, splits, scrubs, changes of the list.

use super::{FoundBy, Mutant};

pub(super) const MUTANTS: &[Mutant] = &[
    Mutant::new(
        "skip table",
        "view-goes-back",
        "A table that a slow client read is shared as if it had been found current later.",
        FoundBy::Nobody,
    ),
    Mutant::new(
        "skip table",
        "est-commit-unpinned",
        "A builder commits out of any pin, and swings the table's word from what it read before.",
        FoundBy::Nobody,
    ),
    Mutant::new(
        "skip table",
        "est-next-cleared-by-the-late",
        "A late helper clears the word of a change that is not the one it compared the table's word for.",
        FoundBy::Nobody,
    ),
    Mutant::new(
        "skip table",
        "scrub-everywhere-passes-seals",
        "A scrub of the whole table takes sealed entries for cleared ones, though they are on their way to another segment.",
        FoundBy::Nobody,
    ),
];
