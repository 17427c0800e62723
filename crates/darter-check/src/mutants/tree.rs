//! Errors planted in DART's tree: searches, writes, type switches, retirement.

use super::{FoundBy, Mutant};

pub(super) const MUTANTS: &[Mutant] = &[
    Mutant::new(
        "tree",
        "bulk-load-over-a-late-key",
        "A bulk load replaces the root although a key was put while it sealed it.",
        FoundBy::Focused { index: "dart", scenarios: &["empty", "empty-edge"], schedules: 2_000 },
    ),
    Mutant::new(
        "tree",
        "key-below-sought-through-a-seal",
        "A split of a segment reads the key below a node that a hint names through a sealed slot, whose child may be free.",
        FoundBy::Tests(
            "--package darter-index --lib nothing_is_read_below_a_replaced_node_that_a_hint_names",
        ),
    ),
    Mutant::new(
        "tree",
        "key-below-sought-in-one-bucket",
        "A key below a node is sought in its first bucket alone.",
        FoundBy::Tests("--package darter-index --lib a_key_below_a_node_is_found_in_whatever_bucket_it_lies"),
    ),
    Mutant::new(
        "tree",
        "remembered-root-believed",
        "The root as last seen is believed without a look at its seals.",
        FoundBy::Focused { index: "dart", scenarios: &["root-n4"], schedules: 2_000 },
    ),
    Mutant::new(
        "tree",
        "parent-sought-from-its-child",
        "The way to a node's parent may begin at a hint to the node itself, which it then never reaches.",
        FoundBy::Explorer("dart", 2_000),
    ),
    Mutant::new(
        "tree",
        "hint-current-by-its-identity-word",
        "A hinted node counts as current when its identity word bears no seal, which it never does on purpose.",
        FoundBy::Explorer("dart", 2_000),
    ),
    Mutant::new(
        "tree",
        "hint-dated-by-the-newest-round",
        "A node is remembered with the round of retirement of the moment instead of the one read before it was found.",
        FoundBy::Tests(
            "--package darter-index --lib what_is_remembered_of_a_node_ends_before_a_sweep_frees_it",
        ),
    ),
    Mutant::new(
        "tree",
        "writer-passes-seals-of-other-edges",
        "A writer looks for a seal in the slot of its own edge alone, and takes a sealed empty slot for vacant.",
        FoundBy::Explorer("dart", 6_000),
    ),
    Mutant::new(
        "tree",
        "hint-not-tied-to-its-check",
        "The two words of a remembered hint are not tied to each other, so a torn pair passes for one.",
        FoundBy::Tests("--package darter-index --lib a_torn_hint_is_none"),
    ),
    Mutant::new(
        "tree",
        "node-seal-passes-over-empty-slots",
        "The slots of a node that were never taken are not sealed before it is copied.",
        FoundBy::Explorer("dart", 2_000),
    ),
    Mutant::new(
        "tree",
        "node-seal-leaves-the-last-slot",
        "The last slot of a node is not sealed before it is copied.",
        FoundBy::Explorer("dart", 2_000),
    ),
    Mutant::new(
        "tree",
        "node-freed-after-one-grace",
        "A node is freed as soon as it is scrubbed, without a second grace for those who read an entry before.",
        FoundBy::Explorer("dart", 2_000),
    ),
    Mutant::new(
        "tree",
        "retirement-counted-after-retiring",
        "A round of retirement is counted after its nodes were retired instead of before.",
        FoundBy::Tests("--package darter-index --lib a_scrub_that_fails_anywhere_loses_no_node"),
    ),
    Mutant::new(
        "tree",
        "node-retired-though-its-scrub-failed",
        "A node goes on to its second grace although an error cut its scrub short.",
        FoundBy::Tests("--package darter-index --lib a_scrub_that_fails_anywhere_loses_no_node"),
    ),
    Mutant::new(
        "tree",
        "retirement-not-counted",
        "A round of retirement is not counted, so processes go on with the nodes that they remember.",
        FoundBy::Explorer("dart", 3_000),
    ),
    Mutant::new(
        "tree",
        "nameless-node-not-scrubbed",
        "A node whose prefix nobody knows is retired without a search for entries that name it.",
        FoundBy::Sweep { index: "dart", fault: "hold", scenarios: &["express"] },
    ),
    Mutant::new(
        "tree",
        "scan-believes-a-sealed-hint",
        "A scan begins at a hinted node although all its slots are sealed.",
        FoundBy::Explorer("dart", 2_000),
    ),
    Mutant::new(
        "tree",
        "multi-get-takes-the-view-unchecked",
        "A multi-get goes by the view as it is, however old.",
        FoundBy::Focused { index: "dart", scenarios: &["segment", "churn-segment"], schedules: 19_000 },
    ),
    Mutant::new(
        "tree",
        "view-fresh-one-epoch-too-long",
        "A view is taken for fresh one epoch too long.",
        FoundBy::Tests(
            "--package darter-index --lib a_view_is_read_again_before_what_it_names_may_be_used_again",
        ),
    ),
    Mutant::new(
        "tree",
        "view-dated-by-the-end-of-its-reading",
        "A view counts as read in the epoch in which its reading ended instead of the pin of its reader.",
        FoundBy::Tests("--package darter-index --lib a_late_answer_does_not_bring_an_old_table_back"),
    ),
    Mutant::new(
        "tree",
        "split-waits-for-an-empty-subtree-to-go",
        "A put that meets a subtree without keys leaves it to others to remove it, and tries again.",
        FoundBy::Focused { index: "dart", scenarios: &["hollow-split"], schedules: 13_000 },
    ),
    Mutant::new(
        "tree",
        "lost-split-keeps-its-nodes",
        "A node split that lost its CAS does not give back the nodes that it made.",
        FoundBy::Explorer("dart", 2_000),
    ),
    Mutant::new(
        "tree",
        "split-skips-one-byte-too-many",
        "A node split leaves out the chain node where an edge skips one byte more than a slot can say.",
        FoundBy::Explorer("dart", 2_000),
    ),
    Mutant::new(
        "tree",
        "swept-nodes-stay-remembered",
        "A sweep clears the entries of unreachable nodes, and processes go on remembering those by themselves.",
        FoundBy::Tests(
            "--package darter-index --lib what_is_remembered_of_a_node_ends_before_a_sweep_frees_it",
        ),
    ),
    Mutant::new(
        "tree",
        "help-stops-below-a-sealed-parent",
        "Whoever helps a node whose parent is sealed too leaves both to others.",
        FoundBy::Tests(
            "--package darter-index --lib a_put_gets_past_a_node_and_a_parent_that_others_left_half_replaced",
        ),
    ),
    Mutant::new(
        "tree",
        "switch-copies-what-it-read-before-sealing",
        "A type switch copies what it had read before it sealed the node.",
        FoundBy::Explorer("dart", 2_000),
    ),
    Mutant::new(
        "tree",
        "switch-keeps-room-of-the-wrong-type",
        "A type switch that turns out to need another type does not give back the room that it had planned.",
        FoundBy::Explorer("dart", 2_000),
    ),
    Mutant::new(
        "tree",
        "lost-root-stays-remembered",
        "The root as last seen stays remembered after a CAS on the root word has shown that it is another.",
        FoundBy::Equivalent(
            "A descent believes the remembered root only where a slot of it is not sealed, and a root that was replaced is sealed to its last slot: the next descent reads the root word anyway, a round trip later.",
        ),
    ),
    Mutant::new(
        "tree",
        "lost-root-copy-remembered",
        "A root copy whose CAS on the root word was lost is remembered as the root.",
        FoundBy::Explorer("dart", 2_000),
    ),
    Mutant::new(
        "tree",
        "empty-subtree-sought-through-a-seal",
        "The way down to the lowest empty node passes through a node that is being replaced.",
        FoundBy::Tests("--package darter-index --lib an_empty_subtree_goes_only_once"),
    ),
    Mutant::new(
        "tree",
        "nameless-node-not-unlinked",
        "A node that was replaced without its prefix is not retired.",
        FoundBy::Explorer("dart", 35_000),
    ),
    Mutant::new(
        "tree",
        "copy-and-link-in-one-batch-to-two-nodes",
        "A copy's WRITE and the CAS that links it are posted in one batch although they go to two memory nodes.",
        FoundBy::Tests("--package darter-index --lib a_copy_on_another_memory_node_is_there_before_its_link"),
    ),
    Mutant::new(
        "tree",
        "switch-adds-beside-a-child-that-came",
        "A type switch adds its new child although another came under that edge before the seals.",
        FoundBy::Equivalent(
            "A switch is given a child to add only where all slots of its edge's bucket were found taken by other edges. A slot stays with its edge as long as the node is there, so no child can come under that edge.",
        ),
    ),
    Mutant::new(
        "tree",
        "collapse-skips-one-byte-too-many",
        "A lone child moves up although its edge then skips one byte more than a slot can say.",
        FoundBy::Focused { index: "dart", scenarios: &["edge"], schedules: 2_000 },
    ),
    Mutant::new(
        "tree",
        "copy-as-full-as-it-was",
        "A copy of a node that was sealed for want of room may be as full as the node was.",
        FoundBy::Tests("--package darter-index --lib whoever_finds_its_node_copied_finds_room_in_the_copy"),
    ),
    Mutant::new(
        "tree",
        "condition-judged-at-a-seal",
        "A conditional put that meets a seal is judged as if the key were absent.",
        FoundBy::Explorer("dart", 9_000),
    ),
    Mutant::new(
        "tree",
        "conditional-put-bows",
        "A conditional put that loses its slot bows, and marks its leaf for others to bow to.",
        FoundBy::Explorer("dart", 4_000),
    ),
    Mutant::new(
        "tree",
        "modify-asks-with-its-last-answer",
        "The buffer for a new value is not emptied before the decision is asked for again.",
        FoundBy::Explorer("dart", 2_000),
    ),
    Mutant::new(
        "tree",
        "tidying-delete-keeps-its-leaf",
        "A delete that goes on to tidy its node does not retire the leaf that it removed.",
        FoundBy::Explorer("dart", 2_000),
    ),
    Mutant::new(
        "tree",
        "delete-looks-for-no-rivals",
        "A delete judges by what it saw before its CAS whether it left its node with one child.",
        FoundBy::Tests("--package darter-index --test index deletes_at_a_time_leave_no_node_behind"),
    ),
    Mutant::new(
        "tree",
        "put-in-a-full-pool-keeps-its-leaf",
        "A put that runs out of space does not give back the leaf that it had placed.",
        FoundBy::Explorer("dart", 2_000),
    ),
    Mutant::new(
        "tree",
        "insert-marked-as-a-replacement",
        "A put that meant to replace a leaf and then inserts one keeps the mark for others to bow to.",
        FoundBy::Focused { index: "dart", scenarios: &["bowing-keys"], schedules: 5_000 },
    ),
    Mutant::new(
        "tree",
        "put-bows-to-a-sealed-slot",
        "A put bows to the leaf in a sealed slot, which may be the very leaf that it was to replace.",
        FoundBy::Explorer("dart", 12_000),
    ),
    Mutant::new(
        "tree",
        "put-bows-to-another-key",
        "A put bows to the leaf of another key.",
        FoundBy::Focused { index: "dart", scenarios: &["bowing-keys"], schedules: 4_000 },
    ),
    Mutant::new(
        "tree",
        "insert-takes-a-lost-slot-for-won",
        "An insert counts as done although its CAS on the empty slot was lost.",
        FoundBy::Explorer("dart", 2_000),
    ),
    Mutant::new(
        "tree",
        "vacancy-passes-over-the-edges-own-tomb",
        "An insert takes the first empty slot although its edge has a tombstone in the bucket.",
        FoundBy::Explorer("dart", 2_000),
    ),
];
