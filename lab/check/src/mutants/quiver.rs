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
            "-p darter-index --lib quiver::interleavings::who_finishes_a_parting_reads_no_leaf_of_a_linked_part",
        ),
    ),
    Mutant::new(
        "Quiver",
        "quiver-scan-reads-leaves-of-linked-parts",
        "A scan reads all leaves of a page, those of parts that are linked included.",
        FoundBy::Tests(
            "-p darter-index --lib quiver::interleavings::readers_read_no_leaf_of_a_linked_part_by_the_page",
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
    Mutant::new(
        "Quiver",
        "quiver-blind-cas-in-any-life",
        "The blind CAS of a put expects INLINE of whatever life lies at the record.",
        FoundBy::Tests(
            "-p darter-index --lib quiver::interleavings::a_blind_cas_changes_no_page_of_another_life",
        ),
    ),
    Mutant::new(
        "Quiver",
        "quiver-blind-cas-of-any-record",
        "A put whose blind CAS won does not look whose record it is.",
        FoundBy::Focused { index: "quiver", scenarios: &["rivals-twins"], schedules: 4_000 },
    ),
    Mutant::new(
        "Quiver",
        "quiver-undo-without-a-cas",
        "Who hit another key's record puts INLINE back by a WRITE.",
        FoundBy::Focused { index: "quiver", scenarios: &["rivals-twins"], schedules: 4_000 },
    ),
    Mutant::new(
        "Quiver",
        "quiver-leaf-linked-again-after-a-lost-undo",
        "A put links its leaf again although INLINE could not be put back.",
        FoundBy::Focused { index: "quiver", scenarios: &["rivals-twins"], schedules: 4_000 },
    ),
    Mutant::new(
        "Quiver",
        "quiver-leaf-retired-after-a-lost-undo",
        "A put retires its leaf although INLINE could not be put back.",
        FoundBy::Focused { index: "quiver", scenarios: &["rivals-twins"], schedules: 4_000 },
    ),
    Mutant::new(
        "Quiver",
        "quiver-undone-leaf-given-back-at-once",
        "The leaf of a CAS that was undone is free at once, although others may be reading it.",
        FoundBy::Tests("-p darter-index --lib quiver::interleavings::the_leaf_of_an_undone_cas_stays"),
    ),
    Mutant::new(
        "Quiver",
        "quiver-search-believes-any-leaf",
        "A search by a map takes a record's leaf for its key's, whosever it is.",
        FoundBy::Focused { index: "quiver", scenarios: &["rivals-twins"], schedules: 9_000 },
    ),
    Mutant::new(
        "Quiver",
        "quiver-record-lost-under-another-keys-leaf",
        "A record that another key's leaf is in counts as no record.",
        FoundBy::Focused { index: "quiver", scenarios: &["rivals-twins"], schedules: 4_000 },
    ),
    Mutant::new(
        "Quiver",
        "quiver-rebuild-copies-another-keys-leaf",
        "A new page has the key of the leaf in place of the record's.",
        FoundBy::Focused { index: "quiver", scenarios: &["stray-twins"], schedules: 4_000 },
    ),
    Mutant::new(
        "Quiver",
        "quiver-scan-believes-any-leaf",
        "A scan takes a record's leaf for its key's, whosever it is.",
        FoundBy::Focused { index: "quiver", scenarios: &["rivals-twins"], schedules: 4_000 },
    ),
    Mutant::new(
        "Quiver",
        "quiver-scan-trusts-the-rank-of-its-bound",
        "A scan takes the record that the map leads its bound to for the first in its range.",
        FoundBy::Explorer("quiver", 600),
    ),
    Mutant::new(
        "Quiver",
        "quiver-scan-goes-on-behind-a-page-read-in-part",
        "A scan that wants more than the records it has read of a page goes on behind the page.",
        FoundBy::Tests(
            "-p darter-index --test index quiver_counts::a_scan_goes_on_behind_the_last_record_that_it_has_read",
        ),
    ),
    Mutant::new(
        "Quiver",
        "quiver-scan-down-trusts-a-torn-node",
        "A descending scan goes by a node whose READ saw the slot of a part before the part was linked.",
        FoundBy::Explorer("quiver", 40_000),
    ),
    Mutant::new(
        "Quiver",
        "quiver-scan-up-trusts-a-torn-node",
        "An ascending scan goes by a node whose READ saw the slot of a part before the part was linked.",
        FoundBy::Explorer("quiver", 40_000),
    ),
    Mutant::new(
        "Quiver",
        "quiver-absence-by-a-remembered-map",
        "A search whose remembered map leads to another key's record says that the key is absent.",
        FoundBy::Explorer("quiver", 100),
    ),
    Mutant::new(
        "Quiver",
        "quiver-map-copy-not-proved",
        "A search takes what a map's copy leads to for a record, whatever page the copy is of.",
        FoundBy::Tests("-p darter-index --lib quiver::astray::a_record_spelled_in_a_value_is_no_record"),
    ),
    Mutant::new(
        "Quiver",
        "quiver-skip-identity-not-compared",
        "A descent believes the node that the skip table leads to, whatever prefix it is of.",
        FoundBy::Tests(
            "-p darter-index --lib quiver::skip::interleavings::a_node_of_another_prefix_is_not_believed",
        ),
    ),
    Mutant::new(
        "Quiver",
        "quiver-skip-born-not-compared",
        "A descent believes the node that the skip table leads to, whatever life it is of.",
        FoundBy::Tests(
            "-p darter-index --lib quiver::skip::interleavings::a_node_of_another_life_is_not_believed",
        ),
    ),
    Mutant::new(
        "Quiver",
        "quiver-skip-entry-not-checked",
        "Words of two entries of the skip table count as one.",
        FoundBy::Tests("-p darter-index --lib quiver::skip::entry::tests::words_of_two_entries_are_none"),
    ),
    Mutant::new(
        "Quiver",
        "quiver-skip-view-kept-too-long",
        "A process goes by a skip table that it has not found current in the last epochs.",
        FoundBy::Tests(
            "-p darter-index --lib quiver::skip::interleavings::a_late_search_goes_by_no_table_that_is_free",
        ),
    ),
    Mutant::new(
        "Quiver",
        "quiver-skip-table-freed-at-once",
        "A skip table that was replaced is free at once.",
        FoundBy::Tests(
            "-p darter-index --lib quiver::skip::interleavings::a_late_search_goes_by_no_table_that_is_free",
        ),
    ),
    Mutant::new(
        "Quiver",
        "quiver-sweep-fails-in-a-full-pool",
        "A sweep that has no room to finish what a dead client began frees nothing.",
        FoundBy::Tests(
            "-p darter-index --lib quiver::interleavings::a_sweep_passes_over_what_a_full_pool_has_no_room_to_finish",
        ),
    ),
    Mutant::new(
        "Quiver",
        "quiver-folds-what-cannot-stand",
        "A page is rebuilt for pairs in leaves, whether they would stand in the new one or not.",
        FoundBy::Tests(
            "-p darter-index --test index quiver_counts::reads_do_not_rebuild_pages_for_pairs_that_cannot_stand_in_them",
        ),
    ),
    Mutant::new(
        "Quiver",
        "quiver-reads-fold-what-is-being-changed",
        "Round trips for leaves count for a rebuild of their page although it is being changed.",
        FoundBy::Tests(
            "-p darter-index --test index quiver_counts::reads_do_not_rebuild_a_page_that_is_being_changed",
        ),
    ),
    Mutant::new(
        "Quiver",
        "quiver-collapse-believes-counts",
        "A node is replaced because its pages say that hardly a pair is left, and again after a copy.",
        FoundBy::Tests("-p darter-index --lib a_node_whose_pages_count_too_many_deletes_stays"),
    ),
    Mutant::new(
        "Quiver",
        "quiver-all-nodes-on-the-first-memory-node",
        "New nodes and their pages are not spread over the memory nodes.",
        FoundBy::Tests(
            "-p darter-index --test index quiver::an_index_that_grows_by_inserts_takes_all_memory_nodes_alike",
        ),
    ),
    Mutant::new(
        "Quiver",
        "quiver-stem-anywhere",
        "The node of a prefix that all keys share is on any memory node.",
        FoundBy::Tests("-p darter-index --lib what_all_keys_share_is_on_the_first_memory_node"),
    ),
    Mutant::new(
        "Quiver",
        "quiver-siblings-on-one-memory-node",
        "Nodes whose prefixes differ in their last byte are on one memory node.",
        FoundBy::Tests("-p darter-index --lib siblings_are_on_all_memory_nodes_alike"),
    ),
    Mutant::new(
        "Quiver",
        "quiver-put-bows-to-any",
        "A put that lost its word bows to any put of its key, also to one that found the key absent.",
        FoundBy::Focused { index: "quiver", scenarios: &["bowing-keys"], schedules: 4_000 },
    ),
    Mutant::new(
        "Quiver",
        "quiver-conditional-put-bows",
        "A conditional put that loses its word bows, and marks its leaf for others to bow to.",
        FoundBy::Explorer("quiver", 8_000),
    ),
    Mutant::new(
        "Quiver",
        "quiver-insert-keeps-the-mark",
        "A put that inserts its key marks its leaf for others to bow to.",
        FoundBy::Focused { index: "quiver", scenarios: &["bowing-keys"], schedules: 4_000 },
    ),
    Mutant::new(
        "Quiver",
        "quiver-put-bows-to-a-sealed-word",
        "A put bows to the leaf in a sealed word, which may be the very leaf that it was to replace.",
        FoundBy::Explorer("quiver", 12_000),
    ),
    Mutant::new(
        "Quiver",
        "quiver-hot-word-not-compared",
        "A search believes the leaf that a hot word named, whatever the word says now.",
        FoundBy::Explorer("quiver", 8_000),
    ),
    Mutant::new(
        "Quiver",
        "quiver-hot-word-of-any-life",
        "A search believes a hot word of a page that is not proved to live.",
        FoundBy::Tests("-p darter-index --lib a_hot_word_of_another_life_is_not_believed"),
    ),
    Mutant::new(
        "Quiver",
        "quiver-hot-leaf-of-any-key",
        "A search believes the leaf that a hot word names to be its key's.",
        FoundBy::Explorer("quiver", 8_000),
    ),
    Mutant::new(
        "Quiver",
        "quiver-hot-word-with-another-keys-leaf",
        "A search remembers the word of its key's record although that names another key's leaf.",
        FoundBy::Tests("-p darter-index --lib a_record_under_another_keys_leaf_is_no_hot_word"),
    ),
    Mutant::new(
        "Quiver",
        "quiver-scan-believes-any-hot-word",
        "A scan believes the leaf that a hot word named, whatever the word says now.",
        FoundBy::Explorer("quiver", 8_000),
    ),
    Mutant::new(
        "Quiver",
        "quiver-scan-hands-on-hot-leaves-last",
        "A scan hands on the pairs of hot words behind those of records, not in key order.",
        FoundBy::Tests("-p darter-index --lib a_scan_hands_on_the_pair_of_a_hot_word_in_its_place"),
    ),
    Mutant::new(
        "Quiver",
        "quiver-scan-reads-all-leaves-at-once",
        "A scan reads all leaves of all its pages in one round trip.",
        FoundBy::Tests("-p darter-index --test index a_scan_reads_a_few_large_values_at_a_time"),
    ),
    Mutant::new(
        "Quiver",
        "quiver-word-of-another-record",
        "A record is believed to have its own word, and its own leaf.",
        FoundBy::Tests("-p darter-index --lib a_word_of_another_record_is_damage"),
    ),
    Mutant::new(
        "Quiver",
        "quiver-hot-leaf-read-first",
        "The leaf of a hot word is read before the word that protects it.",
        FoundBy::Tests("-p darter-index --lib the_leaf_is_read_behind_the_words_that_protect_it"),
    ),
];
