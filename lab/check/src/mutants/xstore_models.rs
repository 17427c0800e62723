//! Errors planted in XStore's models, and in how its server lives: training, the client's cache,
//! membership, what it takes from callers, what it gives back.

use super::{FoundBy, Mutant};

pub(super) const MUTANTS: &[Mutant] = &[
    Mutant::new(
        "XStore",
        "xstore-leaf-bounds-not-trained",
        "A sub-model's error counts the keys of its leaves, and not the keys that they could have.",
        FoundBy::Tests("--package darter-baselines --lib a_key_is_predicted_to_its_leaf_or_to_nothing"),
    ),
    Mutant::new(
        "XStore",
        "xstore-error-of-a-clamped-prediction",
        "A sub-model's error is that of predictions clamped to its table, which clients do not clamp.",
        FoundBy::Tests("--package darter-baselines --lib a_key_is_predicted_to_its_leaf_or_to_nothing"),
    ),
    Mutant::new(
        "XStore",
        "xstore-torn-submodel-believed",
        "Two words that are of different sub-models are taken as one.",
        FoundBy::Tests("--package darter-baselines --lib words_that_are_torn_are_no_model"),
    ),
    Mutant::new(
        "XStore",
        "xstore-submodels-outlive-their-generation",
        "Another generation makes clients forget the entries of tables, and not the sub-models that lead to tables.",
        FoundBy::Explorer("xstore-inline", 200),
    ),
    Mutant::new(
        "XStore",
        "xstore-older-view-fills-the-cache",
        "A client caches a sub-model that it read in an earlier generation than the cache is of.",
        FoundBy::Tests("--package darter-baselines --lib another_generation_forgets_everything"),
    ),
    Mutant::new(
        "XStore",
        "xstore-entries-outlive-their-submodel",
        "A sub-model that was trained again keeps the cached entries of the table before.",
        FoundBy::Tests(
            "--package darter-baselines --lib a_submodel_that_was_trained_again_replaces_its_table",
        ),
    ),
    Mutant::new(
        "XStore",
        "xstore-entries-evict-submodels",
        "Entries of tables take the room of sub-models in a cache.",
        FoundBy::Tests(
            "--package darter-baselines --lib a_get_takes_two_three_or_four_round_trips_and_five_without_a_cache",
        ),
    ),
    Mutant::new(
        "XStore",
        "xstore-model-proves-absence",
        "A key that is in no predicted leaf is absent, whatever the leaves' bounds are.",
        FoundBy::Explorer("xstore-inline", 1000),
    ),
    Mutant::new(
        "XStore",
        "xstore-generation-read-once",
        "A client reads the generation of the models once, and not in every epoch.",
        FoundBy::Explorer("xstore-inline", 400),
    ),
    Mutant::new(
        "XStore",
        "xstore-load-keeps-the-generation",
        "A bulk load frees the leaves before it in the generation whose tables lead to them.",
        FoundBy::Explorer("xstore-inline", 400),
    ),
    Mutant::new(
        "XStore",
        "xstore-submodel-before-its-table",
        "A sub-model that is trained again leads to its table before that is written.",
        FoundBy::Tests("--package darter-baselines --lib a_submodel_leads_to_a_table_that_is_written"),
    ),
    Mutant::new(
        "XStore",
        "xstore-hint-believed",
        "A put goes to the leaf that its caller names, whatever the leaf's bounds are.",
        FoundBy::Explorer("xstore", 1000),
    ),
    Mutant::new(
        "XStore",
        "xstore-image-key-goes-left",
        "A key that is the least of a child of an inner node is looked for in the child before.",
        FoundBy::Tests("--package darter-baselines --lib a_key_goes_to_the_last_child_that_begins_before_it"),
    ),
    Mutant::new(
        "XStore",
        "xstore-image-outlives-its-generation",
        "Another generation leaves the cached inner nodes of the one before as they are.",
        FoundBy::Tests("--package darter-baselines --lib nodes_end_with_their_generation"),
    ),
    Mutant::new(
        "XStore",
        "xstore-scan-again-from-its-key",
        "A scan that begins behind a key, and has to begin again, begins with that key.",
        FoundBy::Explorer("xstore", 4000),
    ),
    Mutant::new(
        "XStore",
        "xstore-lost-owner-stays",
        "A server whose CAS of the first leaf had no reply answers nothing any more.",
        FoundBy::Focused { index: "xstore-inline", scenarios: &["unloaded"], schedules: 2000 },
    ),
    Mutant::new(
        "XStore",
        "xstore-server-trusts-lengths",
        "The server takes a value that its leaves have no room for, if a call brings one.",
        FoundBy::Tests("--package darter-baselines --lib a_value_that_has_no_room_is_refused"),
    ),
    Mutant::new(
        "XStore",
        "xstore-wrap-keeps-the-generation",
        "A leaf whose incarnation begins again does not end the generation.",
        FoundBy::Tests("--package darter-baselines --lib an_incarnation_that_wraps_ends_the_generation"),
    ),
    Mutant::new(
        "XStore",
        "xstore-stays-shut-out",
        "A server that was shut out of its pool keeps the membership that it no longer has.",
        FoundBy::Tests("--package darter-baselines --lib a_server_that_was_shut_out_comes_back"),
    ),
    Mutant::new(
        "XStore",
        "xstore-scan-skips-a-split",
        "A scan in reverse by call goes on below a leaf that has split, without the upper half.",
        FoundBy::Tests("--package darter-baselines --lib readers_by_call_race_writers"),
    ),
    Mutant::new(
        "XStore",
        "xstore-emptied-leaf-stays-at-rest",
        "A leaf is taken out of the index without a motion, so that readers prove absences by it.",
        FoundBy::Tests("--package darter-baselines --lib taking_leaves_out_survives_its_server"),
    ),
    Mutant::new(
        "XStore",
        "xstore-emptied-leaves-keep-the-generation",
        "Leaves are freed in the generation whose tables lead to them.",
        FoundBy::Tests("--package darter-baselines --lib upkeep_takes_emptied_leaves_out"),
    ),
    Mutant::new(
        "XStore",
        "xstore-emptied-leaf-known-until-it-is-out",
        "The server goes to a leaf that is out of the index, if no reply has told it so.",
        FoundBy::Tests("--package darter-baselines --lib taking_leaves_out_survives_lost_replies"),
    ),
    Mutant::new(
        "XStore",
        "xstore-pointer-that-does-not-count",
        "A pointer is taken for its key's without another look at the leaf's incarnation.",
        FoundBy::Tests("--package darter-baselines --lib a_pointer_that_does_not_count_yet_is_not_there"),
    ),
    Mutant::new(
        "XStore",
        "xstore-scan-takes-a-leaf-whole",
        "A scan takes keys that it has passed from a leaf that has taken the place of others.",
        FoundBy::Tests("--package darter-baselines --lib what_a_scan_has_passed_is_not_to_come"),
    ),
    Mutant::new(
        "XStore",
        "xstore-looks-at-a-torn-record-for-ever",
        "A reader looks at a record again as long as it is torn.",
        FoundBy::Tests("--package darter-baselines --lib a_record_that_stays_torn_is_left_to_a_call"),
    ),
];
