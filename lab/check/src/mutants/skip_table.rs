//! Errors planted in the express skip table: entries, splits, scrubs, changes of the list.

use super::{FoundBy, Mutant};

pub(super) const MUTANTS: &[Mutant] = &[
    Mutant::new(
        "skip table",
        "table-filled-before-it-is-named",
        "A new table is filled before the root names it, so a scrub in between does not clear it.",
        FoundBy::Tests("--package darter-index --lib a_table_that_is_built_names_no_node_that_is_gone"),
    ),
    Mutant::new(
        "skip table",
        "table-no-longer-named-before-it-is-current",
        "The root stops naming a new table as the next one before it names it as the current one.",
        FoundBy::Explorer("dart", 7_000),
    ),
    Mutant::new(
        "skip table",
        "replaced-table-retired-by-all-who-finish",
        "Everybody who helps to finish a change of tables retires the old one.",
        FoundBy::Explorer("dart", 2_000),
    ),
    Mutant::new(
        "skip table",
        "entry-under-more-bytes-than-are-known",
        "A lone child that moved up is entered under bytes of the key at hand that need not be its own.",
        FoundBy::Explorer("dart", 8_000),
    ),
    Mutant::new(
        "skip table",
        "entry-put-over-a-sealed-one",
        "An entry takes the place of a sealed one, which then is no longer what the halves were made of.",
        FoundBy::Tests(
            "--package darter-index --lib what_is_left_in_a_segment_that_was_split_leads_nobody_to_free_memory",
        ),
    ),
    Mutant::new(
        "skip table",
        "scrub-skips-the-table-being-built",
        "A scrub clears the current table and not the one being built.",
        FoundBy::Sweep { index: "dart", fault: "slow", scenarios: &["churn-fill"] },
    ),
    Mutant::new(
        "skip table",
        "scrub-looks-at-the-current-table-first",
        "A scrub reads which table is current before it reads which is next, and misses one that becomes current in between.",
        FoundBy::Tests("--package darter-index --lib a_scrub_beside_a_change_of_tables_clears_both"),
    ),
    Mutant::new(
        "skip table",
        "scrub-one-byte-of-depth-short",
        "A scrub leaves out the entries of nodes that lie as deep below the entry's length as they may.",
        FoundBy::Explorer("dart", 4_000),
    ),
    Mutant::new(
        "skip table",
        "scrub-does-not-look-where-the-entry-went",
        "A scrub that meets a seal finishes the split and does not look where the entry went.",
        FoundBy::Tests("--package darter-index --lib a_scrub_beside_a_split_leaves_no_entry"),
    ),
    Mutant::new(
        "skip table",
        "scrub-tries-a-lost-clear-once",
        "A scrub does not look again at an entry whose clearing lost its CAS.",
        FoundBy::Tests("--package darter-index --lib a_scrub_beside_a_split_leaves_no_entry"),
    ),
    Mutant::new(
        "skip table",
        "scrub-everywhere-looks-once",
        "A scrub of a whole table does not look again when segments have split meanwhile.",
        FoundBy::Tests("--package darter-index --lib a_scrub_of_all_segments_beside_a_split_leaves_no_entry"),
    ),
    Mutant::new(
        "skip table",
        "scrub-everywhere-leaves-splits-begun",
        "A scrub of a whole table passes over the entries of segments whose split was begun and left.",
        FoundBy::Focused { index: "dart", scenarios: &["segment", "churn-segment"], schedules: 2_000 },
    ),
    Mutant::new(
        "skip table",
        "split-begun-is-left-when-there-is-room",
        "A split that was begun is not finished when the segment has room.",
        FoundBy::Tests("--package darter-index --lib a_split_begun_is_finished_however_few_entries_are_left"),
    ),
    Mutant::new(
        "skip table",
        "split-before-the-last-one-is-complete",
        "A segment splits while directory entries still name the segment that it came from.",
        FoundBy::Tests("--package darter-index --lib all_directory_entries_follow_however_soon_halves_split"),
    ),
    Mutant::new(
        "skip table",
        "split-begun-is-given-up-in-a-full-pool",
        "Whoever must have a begun split finished takes a full pool for an answer.",
        FoundBy::Tests("--package darter-index --lib a_split_begun_in_a_full_pool_is_an_error_for_scrubs"),
    ),
    Mutant::new(
        "skip table",
        "split-divides-what-it-read-before-sealing",
        "The halves of a segment are made from what was read before it was sealed.",
        FoundBy::Tests("--package darter-index --lib a_scrub_beside_a_split_leaves_no_entry"),
    ),
    Mutant::new(
        "skip table",
        "segment-retired-by-the-winner-of-either-half",
        "The old segment is retired by whoever wins a half, and so twice when two win one each.",
        FoundBy::Focused { index: "dart", scenarios: &["segment", "churn-segment"], schedules: 6_000 },
    ),
    Mutant::new(
        "skip table",
        "lost-half-kept",
        "The half that lost its place in the directory is not given back.",
        FoundBy::Focused { index: "dart", scenarios: &["segment", "churn-segment"], schedules: 2_000 },
    ),
    Mutant::new(
        "skip table",
        "split-not-told-to-other-processes",
        "A split does not bump the version word, so other processes keep the directory entry of the old segment.",
        FoundBy::Focused { index: "dart", scenarios: &["segment", "churn-segment"], schedules: 2_000 },
    ),
    Mutant::new(
        "skip table",
        "segment-freed-without-a-grace",
        "The old segment is free at once, while others may be reading it.",
        FoundBy::Explorer("dart", 3_000),
    ),
    Mutant::new(
        "skip table",
        "split-by-the-bit-above",
        "Entries are divided between the halves by the hash bit above the right one.",
        FoundBy::Tests("--package darter-index --lib a_scrub_beside_a_split_leaves_no_entry"),
    ),
    Mutant::new(
        "skip table",
        "lost-half-remembered",
        "A client remembers its own half in the directory although another's won.",
        FoundBy::Focused { index: "dart", scenarios: &["segment", "churn-segment"], schedules: 2_000 },
    ),
    Mutant::new(
        "skip table",
        "loser-of-a-half-does-not-fill-it",
        "A client whose half lost leaves it to the winner, who may be dead, to fill the other directory entries.",
        FoundBy::Tests("--package darter-index --lib no_directory_entry_names_a_segment_that_was_retired"),
    ),
    Mutant::new(
        "skip table",
        "view-goes-back",
        "A table that a slow client read is shared as if it had been found current later.",
        FoundBy::Tests("--package darter-index --lib a_late_answer_does_not_bring_an_old_table_back"),
    ),
    Mutant::new(
        "skip table",
        "est-commit-unpinned",
        "A builder commits out of any pin, and swings the table's word from what it read before.",
        FoundBy::Tests("--package darter-index --lib a_late_builder_does_not_swing_the_table_back"),
    ),
    Mutant::new(
        "skip table",
        "est-next-cleared-by-the-late",
        "A late helper clears the word of a change that is not the one it compared the table's word for.",
        FoundBy::Equivalent(
            "Whoever is late finds the table's word past the new table, and so the word that named it was cleared before: another table is named only where none is. It could say the same again only for another table at the same address, and whoever finishes a change is pinned since before that table was unlinked.",
        ),
    ),
    Mutant::new(
        "skip table",
        "scrub-everywhere-passes-seals",
        "A scrub of the whole table takes sealed entries for cleared ones, though they are on their way to another segment.",
        FoundBy::Tests("--package darter-index --lib a_scrub_of_all_segments_beside_a_split_leaves_no_entry"),
    ),
    Mutant::new(
        "skip table",
        "table-to-come-read-once",
        "Whoever helps a change of tables takes the word that named the new table before another was found current.",
        FoundBy::Tests("--package darter-index --lib a_late_helper_leaves_the_next_change_alone"),
    ),
];
