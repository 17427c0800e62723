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
    Mutant::new(
        "WORT",
        "wort-words-before-not-flushed",
        "What is written into a node before the word that decides is not counted among the lines to flush.",
        FoundBy::Tests("-p darter-baselines --test baselines counts_of_five_thousand_inserts"),
    ),
    Mutant::new(
        "WORT",
        "woart-index-not-counted",
        "A search that looks at the index of a NODE48 does not count the line that it lies in.",
        FoundBy::Tests(
            "-p darter-baselines --test baselines searches_and_scans_touch_the_lines_of_the_model",
        ),
    ),
];
