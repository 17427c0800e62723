//! Errors planted in WORT, WOART and ART+CoW.

use super::{FoundBy, Mutant};

pub(super) const MUTANTS: &[Mutant] = &[
    Mutant::new(
        "WORT",
        "wort-header-without-depth",
        "A node's path is taken to begin where its reader stands, whatever depth its header says.",
        FoundBy::Explorer("wort", 2_000),
    ),
    Mutant::new(
        "WORT",
        "wort-unlocks-before-it-publishes",
        "The tree's lock is given back before the verb that it protects.",
        FoundBy::Explorer("wort", 1_000),
    ),
    Mutant::new(
        "WORT",
        "woart-bitmap-first",
        "A slot of a NODE16 counts before its child is written.",
        FoundBy::Explorer("woart", 30_000),
    ),
    Mutant::new(
        "WORT",
        "artcow-original-freed-at-once",
        "A node of ART+CoW is freed when its copy is linked, though readers may be on their way to it.",
        FoundBy::Explorer("artcow", 400),
    ),
];
