//! Errors planted in the pool: epochs, limbo, upkeep, members, grants, adoption.

use super::{FoundBy, Mutant};

pub(super) const MUTANTS: &[Mutant] = &[
    Mutant::new(
        "pool",
        "room-kept-from-those-who-ask",
        "A member that another one asks for room keeps what others have freed in its blocks.",
        FoundBy::Tests(
            "--package darter-pool --lib interleavings::a_member_that_asks_for_room_gets_what_others_hold_and_do_not_use",
        ),
    ),
    Mutant::new(
        "pool",
        "magazines-kept-during-a-hand-over",
        "A client that begins an operation keeps the free objects of blocks that are about to be handed over.",
        FoundBy::Tests(
            "--package darter-pool --lib interleavings::a_block_is_handed_over_without_anything_that_a_client_has_of_it",
        ),
    ),
    Mutant::new(
        "pool",
        "idle-magazines-kept-in-a-hand-over",
        "Idle clients keep the free objects of blocks that are handed over.",
        FoundBy::Tests(
            "--package darter-pool --lib interleavings::a_block_is_handed_over_without_anything_that_a_client_has_of_it",
        ),
    ),
    Mutant::new(
        "pool",
        "blocks-handed-over-under-operations",
        "Blocks are handed over while an operation may have an object of them in hand.",
        FoundBy::Tests(
            "--package darter-pool --lib interleavings::a_block_is_handed_over_without_anything_that_a_client_has_of_it",
        ),
    ),
    Mutant::new(
        "pool",
        "store-stays-shut-out",
        "A store does not join its pool again.",
        FoundBy::Tests("-p darter --lib sessions_of_all_threads_go_on_after_one_join"),
    ),
    Mutant::new(
        "pool",
        "store-drop-waits-for-a-node-that-hangs",
        "The end of a store waits for a memory node for as long as operations do.",
        FoundBy::Tests("-p darter-memnode --test memnode a_store_whose_node_hangs_is_dropped_in_spite_of_it"),
    ),
    Mutant::new(
        "pool",
        "pool-erased-under-its-members",
        "A pool is erased while members use it.",
        FoundBy::Tests(
            "-p darter-memnode --test memnode a_pool_that_has_lost_a_node_is_erased_and_its_members_are_shut_out",
        ),
    ),
    Mutant::new(
        "pool",
        "pool-erased-though-its-node-is-there",
        "A pool is erased when an empty node is named in place of a node that is there.",
        FoundBy::Tests(
            "-p darter-memnode --test memnode a_pool_that_has_lost_a_node_is_erased_and_its_members_are_shut_out",
        ),
    ),
    Mutant::new(
        "pool",
        "pool-not-confirmed-once-it-is-open",
        "A process uses a pool by the superblock of the pool that was there before.",
        FoundBy::Tests(
            "-p darter-memnode --test memnode a_process_that_opens_a_pool_that_is_replaced_meanwhile_leaves_it",
        ),
    ),
    Mutant::new(
        "pool",
        "store-write-of-unknown-outcome-repeated",
        "A write that may have taken effect is done again by the next membership.",
        FoundBy::Tests("-p darter --lib what_may_have_happened_is_not_done_again"),
    ),
    Mutant::new(
        "pool",
        "store-full-without-a-wait",
        "A store takes a pool for full although freed memory waits for its epochs.",
        FoundBy::Tests("--package darter --test it out_of_space::a_pool_that_is_overwritten_is_never_full"),
    ),
    Mutant::new(
        "pool",
        "lease-compared-across-clocks",
        "A member writes when its lease ends by its own clock, and others compare that with theirs.",
        FoundBy::Tests(
            "--package darter-pool --lib interleavings::clocks_that_differ_and_drift_shut_out_only_a_member_that_is_silent",
        ),
    ),
    Mutant::new(
        "pool",
        "pool-created-after-a-look-alone",
        "A pool is made of nodes that held none when they were looked at, without taking them first.",
        FoundBy::Tests(
            "--package darter-pool --lib interleavings::of_two_that_make_a_pool_at_once_one_wins_and_the_other_is_told",
        ),
    ),
    Mutant::new(
        "pool",
        "adopt-reads-members-before-blocks",
        "A sweep reads the members before the block table, so the block of a member that joined in between seems a dead one's.",
        FoundBy::Tests(
            "--package darter-pool --lib interleavings::the_block_of_a_member_that_joins_during_a_look_round_is_not_swept",
        ),
    ),
    Mutant::new(
        "pool",
        "adopt-leaves-closed-blocks",
        "A sweep takes the blocks of the dead alone, not those that a clean close left with lost objects in them.",
        FoundBy::Explorer("dart", 2_000),
    ),
    Mutant::new(
        "pool",
        "sweep-waits-one-epoch-less",
        "A sweep goes on when all members have flushed the epoch before the one that it read.",
        FoundBy::Explorer("dart", 4_000),
    ),
    Mutant::new(
        "pool",
        "sweep-does-not-wait-for-its-own-process",
        "A sweep waits for all members but its own process.",
        FoundBy::Explorer("dart", 4_000),
    ),
    Mutant::new(
        "pool",
        "sweep-waits-for-published-epochs",
        "A sweep waits for published epochs of the others instead of flushed ones.",
        FoundBy::Explorer("dart", 12_000),
    ),
    Mutant::new(
        "pool",
        "sweep-ignores-freed-bits",
        "A sweep takes reachable objects for objects in use that were freed since the walk met them.",
        FoundBy::Tests(
            "--package darter-pool --lib interleavings::what_is_freed_after_the_walk_of_a_sweep_is_free",
        ),
    ),
    Mutant::new(
        "pool",
        "sweep-adds-bits-that-are-set",
        "A sweep adds the bits of all free objects to the freed bits, also those that are set already.",
        FoundBy::Tests("--package darter-pool --lib interleavings::what_is_freed_during_a_sweep_is_free"),
    ),
    Mutant::new(
        "pool",
        "sweep-begins-again-under-late-bits",
        "A sweep that was cut short while it added bits is begun again by the same process, with those bits still on their way.",
        FoundBy::Tests(
            "--package darter-pool --lib interleavings::a_sweep_cut_short_while_it_adds_bits_is_not_begun_again",
        ),
    ),
    Mutant::new(
        "pool",
        "block-sequence-kept",
        "A block's word does not count its changes, so a late CAS finds the word that it knew.",
        FoundBy::Tests("--package darter-pool --lib block::tests::words_survive_and_nonsense_is_refused"),
    ),
    Mutant::new(
        "pool",
        "pin-dropped-with-a-cancelled-operation",
        "An operation that is cancelled ends its pin although its verbs are on their way.",
        FoundBy::Explorer("dart", 5_000),
    ),
    Mutant::new(
        "pool",
        "pin-of-a-dropped-client-ends-at-once",
        "A client that is dropped ends its pin although its verbs are on their way.",
        FoundBy::Explorer("dart", 16_000),
    ),
    Mutant::new(
        "pool",
        "lingering-pin-moved-by-the-next-operation",
        "The operation after a cancelled one pins the present epoch although the other's verbs are on their way.",
        FoundBy::Explorer("dart", 10_000),
    ),
    Mutant::new(
        "pool",
        "draft-freed-under-late-verbs",
        "What an operation gives back is free at once although verbs of a cancelled one are on their way to it.",
        FoundBy::Tests(
            "--package darter-pool --test pool what_a_cancelled_operation_gives_back_is_not_reused_under_its_verbs",
        ),
    ),
    Mutant::new(
        "pool",
        "born-in-the-process-epoch",
        "What is unlinked counts as born in the process epoch of the moment instead of its operation's pin.",
        FoundBy::Tests(
            "--package darter-pool --lib interleavings::what_is_unlinked_was_born_when_its_operation_began",
        ),
    ),
    Mutant::new(
        "pool",
        "hold-over-before-its-late-verbs",
        "What a cancelled operation left is done when the next operation begins, whatever is on its way.",
        FoundBy::Tests(
            "--package darter-pool --lib interleavings::leftovers_wait_in_the_next_operation_while_a_verb_is_on_its_way",
        ),
    ),
    Mutant::new(
        "pool",
        "magazine-overflow-loses-one",
        "The object that a full magazine had no room for is not given back with the others.",
        FoundBy::Explorer("dart", 2_000),
    ),
    Mutant::new(
        "pool",
        "close-over-lingering-pins",
        "A process closes its blocks although verbs of cancelled operations are on their way into them.",
        FoundBy::Tests("--package darter-pool --lib interleavings::no_block_is_closed_under_late_verbs"),
    ),
    Mutant::new(
        "pool",
        "close-says-closed-before-its-books",
        "A block's word says closed before its freed bits and page words are written.",
        FoundBy::Explorer("dart", 12_000),
    ),
    Mutant::new(
        "pool",
        "close-writes-over-freed-bits",
        "A close writes the freed bits instead of adding to them, over what others have freed meanwhile.",
        FoundBy::Tests(
            "--package darter-pool --lib interleavings::a_block_says_closed_when_its_books_are_there_and_keeps_what_others_freed",
        ),
    ),
    Mutant::new(
        "pool",
        "pin-without-a-second-look",
        "A pin is taken without a second look at the process epoch.",
        FoundBy::Tests("--package darter-pool --lib an_epoch_that_moved_before_it_was_pinned_is_not_pinned"),
    ),
    Mutant::new(
        "pool",
        "slab-cut-over-an-old-bitmap",
        "A slab is cut without clearing the place of its freed bitmap, where objects of another class have been.",
        FoundBy::Tests(
            "--package darter-pool --test pool slabs::slabs_of_several_pages_are_swept_after_a_death",
        ),
    ),
    Mutant::new(
        "pool",
        "grant-after-a-lost-race",
        "A free block is used although another process won the CAS on its word.",
        FoundBy::Explorer("dart", 2_000),
    ),
    Mutant::new(
        "pool",
        "reopen-after-a-lost-race",
        "A closed block is reopened although another process won the CAS on its word.",
        FoundBy::Explorer("dart", 2_000),
    ),
    Mutant::new(
        "pool",
        "reopen-leaves-freed-bits",
        "A closed block is reopened without fetching what its bitmaps say is free.",
        FoundBy::Explorer("dart", 2_000),
    ),
    Mutant::new(
        "pool",
        "claim-wins-bits-by-a-lost-cas",
        "Freed bits count as won although the CAS that was to clear them has lost.",
        FoundBy::Tests("--package darter-pool --lib interleavings::freed_bits_are_won_once"),
    ),
    Mutant::new(
        "pool",
        "page-released-under-a-claim",
        "A slab becomes a free page while somebody is fetching its freed bits.",
        FoundBy::Tests("--package darter-pool --lib interleavings::a_slab_under_a_claim_stays_a_slab"),
    ),
    Mutant::new(
        "pool",
        "slab-cut-from-a-leaving-block",
        "A block on its way back to the pool can still be cut into slabs.",
        FoundBy::Tests(
            "--package darter-pool --lib interleavings::nothing_is_cut_from_a_block_on_its_way_back",
        ),
    ),
    Mutant::new(
        "pool",
        "slab-begins-where-an-object-does",
        "An object is looked for in a slab that begins with the object's own page.",
        FoundBy::Tests(
            "--package darter-pool --lib layout::tests::slabs_fit_their_pages_and_objects_find_back",
        ),
    ),
    Mutant::new(
        "pool",
        "further-pages-of-a-slab-left-free",
        "Only the first page of a slab is in use.",
        FoundBy::Tests(
            "--package darter-pool --lib rebuild::tests::further_pages_of_a_slab_hold_nothing_else",
        ),
    ),
    Mutant::new(
        "pool",
        "run-keeps-its-last-page",
        "The last page of a freed slab stays out of use.",
        FoundBy::Tests("--package darter-pool --lib interleavings::all_pages_of_a_freed_run_are_free"),
    ),
    Mutant::new(
        "pool",
        "limbo-forgets-the-birth-in-hand",
        "What was handed out for scrubbing is retired with the birth of the operation that retires it.",
        FoundBy::Tests(
            "--package darter-pool --lib interleavings::what_is_retired_while_something_is_in_hand_is_as_old",
        ),
    ),
    Mutant::new(
        "pool",
        "limbo-birth-of-the-last-in-the-ring",
        "A bag counts as born with the last object in it instead of the oldest.",
        FoundBy::Tests("--package darter-pool --lib interleavings::the_oldest_in_a_ring_counts"),
    ),
    Mutant::new(
        "pool",
        "limbo-stamped-with-the-clients-epoch",
        "Garbage is stamped with the epoch of the client that unlinked it instead of the global one.",
        FoundBy::Explorer("dart", 2_000),
    ),
    Mutant::new(
        "pool",
        "limbo-frees-one-epoch-early",
        "An object is freed one epoch after its stamp instead of two.",
        FoundBy::Explorer("dart", 2_000),
    ),
    Mutant::new(
        "pool",
        "limbo-first-grace-of-one-epoch",
        "An unlinked node is handed out for scrubbing one epoch after its stamp instead of two.",
        FoundBy::Explorer("dart", 2_000),
    ),
    Mutant::new(
        "pool",
        "limbo-oldest-passes-over-what-is-graced",
        "The oldest birth in limbo leaves out what waits to be scrubbed, so a sweep goes on too early.",
        FoundBy::Tests("--package darter-pool --lib upkeep::tests::what_is_unlinked_again_keeps_its_birth"),
    ),
    Mutant::new(
        "pool",
        "limbo-oldest-looks-once",
        "The oldest birth is taken from limbo, then from rings, and not from limbo again: what moves over is missed.",
        FoundBy::Tests("--package darter-pool --lib interleavings::the_oldest_in_a_ring_counts"),
    ),
    Mutant::new(
        "pool",
        "member-lines-read-before-the-epoch",
        "The member lines are read before the global epoch, so a member that registers in between is missed.",
        FoundBy::Tests(
            "--package darter-pool --lib interleavings::whoever_joined_before_an_epoch_is_seen_with_it",
        ),
    ),
    Mutant::new(
        "pool",
        "member-lines-counted-beside-the-epoch",
        "How many member lines there are is read in the READ of the epoch, from before a member registered perhaps, and not after it.",
        FoundBy::Tests(
            "--package darter-pool --lib interleavings::whoever_joined_before_an_epoch_is_seen_with_it",
        ),
    ),
    Mutant::new(
        "pool",
        "member-incarnation-kept",
        "A member that takes a slot over keeps the incarnation of the one before, and with it its blocks' owner.",
        FoundBy::Explorer("dart", 2_000),
    ),
    Mutant::new(
        "pool",
        "member-goes-live-by-what-it-read-before",
        "A new member publishes the epoch that it read before it went live.",
        FoundBy::Tests(
            "--package darter-pool --lib interleavings::whoever_joins_during_an_addition_reaches_the_node_before_others_use_it",
        ),
    ),
    Mutant::new(
        "pool",
        "bury-though-the-lease-was-renewed",
        "A member counts as lapsed although it renewed its lease between two looks at its line.",
        FoundBy::Tests(
            "--package darter-pool --lib interleavings::who_renewed_its_lease_after_the_first_look_has_not_lapsed",
        ),
    ),
    Mutant::new(
        "pool",
        "silence-counted-while-nobody-could-look",
        "A member counts as silent for all of the time in which its memory node was away, for whoever looks first.",
        FoundBy::Tests(
            "--package darter-pool --lib interleavings::whoever_looks_first_when_a_node_is_back_leaves_the_others_time_to_renew",
        ),
    ),
    Mutant::new(
        "pool",
        "lease-left-to-rounds-that-wait",
        "A lease is renewed by rounds of upkeep alone, also while one waits for a memory node.",
        FoundBy::Tests(
            "--package darter-pool --lib interleavings::a_lease_is_renewed_beside_a_round_that_waits",
        ),
    ),
    Mutant::new(
        "pool",
        "bury-whoever-the-line-names-now",
        "The holder to be fenced is taken from the second look at a line, where the next one may have its name already.",
        FoundBy::Tests(
            "--package darter-pool --lib interleavings::the_next_in_a_slot_is_not_shut_out_for_the_one_before",
        ),
    ),
    Mutant::new(
        "pool",
        "member-line-read-once",
        "A member's line is believed although its state is read beside words of the member before.",
        FoundBy::Tests(
            "--package darter-pool --lib interleavings::who_is_seen_live_is_seen_with_words_of_its_own",
        ),
    ),
    Mutant::new(
        "pool",
        "bury-without-the-nodes-that-came-since",
        "A member is ended although memory nodes were added that do not know that it was shut out.",
        FoundBy::Tests(
            "--package darter-pool --lib interleavings::nobody_is_ended_who_may_write_to_nodes_that_are_not_known",
        ),
    ),
    Mutant::new(
        "pool",
        "node-used-before-all-reach-it",
        "A process allocates on a new memory node before all members can reach it.",
        FoundBy::Tests(
            "--package darter-pool --lib interleavings::whoever_joins_during_an_addition_reaches_the_node_before_others_use_it",
        ),
    ),
    Mutant::new(
        "pool",
        "node-line-kept-after-an-error",
        "An addition of a memory node that failed keeps its claim of the directory's line.",
        FoundBy::Tests("--package darter-pool --lib a_line_is_free_again_when_its_node_cannot_be_added"),
    ),
    Mutant::new(
        "pool",
        "join-without-the-nodes-that-came-since",
        "A new member does not learn of memory nodes that were added before others could see it.",
        FoundBy::Tests(
            "--package darter-pool --lib interleavings::whoever_joins_during_an_addition_reaches_the_node_before_others_use_it",
        ),
    ),
    Mutant::new(
        "pool",
        "limbo-marked-after-the-epoch-was-read",
        "The mark in limbo is set after the epoch was read, so what was unlinked in between bears an older stamp.",
        FoundBy::Tests(
            "--package darter-pool --lib interleavings::what_is_unlinked_within_a_round_has_no_stamp_of_it",
        ),
    ),
    Mutant::new(
        "pool",
        "limbo-stamped-with-the-process-epoch",
        "Garbage is stamped with the epoch of this process instead of the global one.",
        FoundBy::Explorer("dart", 2_000),
    ),
    Mutant::new(
        "pool",
        "lingering-pin-reaped-at-once",
        "Upkeep ends the pin of a cancelled operation without asking whether its verbs have landed.",
        FoundBy::Explorer("dart", 11_000),
    ),
    Mutant::new(
        "pool",
        "holds-settled-under-late-verbs",
        "Upkeep does what operations have left without asking whether their verbs have landed.",
        FoundBy::Tests(
            "--package darter-pool --lib interleavings::leftovers_wait_in_the_next_operation_while_a_verb_is_on_its_way",
        ),
    ),
    Mutant::new(
        "pool",
        "cancelled-frees-taken-for-landed",
        "Freed bits whose landing is unknown do not hold sweeps back.",
        FoundBy::Tests(
            "--package darter-pool --lib interleavings::frees_that_may_land_late_hold_sweeps_back",
        ),
    ),
    Mutant::new(
        "pool",
        "flushed-without-looking-at-pins",
        "The flushed epoch passes operations under way that have yet to retire what they unlinked.",
        FoundBy::Tests("--package darter-pool --lib interleavings::a_pin_holds_back_what_counts_as_flushed"),
    ),
    Mutant::new(
        "pool",
        "published-over-a-pin-one-epoch-behind",
        "A process publishes an epoch while one of its clients is pinned in the epoch before.",
        FoundBy::Explorer("dart", 2_000),
    ),
    Mutant::new(
        "pool",
        "epoch-moved-past-a-member-one-behind",
        "The global epoch is moved on although a member has only published the one before.",
        FoundBy::Explorer("dart", 2_000),
    ),
    Mutant::new(
        "pool",
        "epoch-moved-past-pins-of-its-own",
        "A process moves the global epoch on although a client of its own is pinned below it.",
        FoundBy::Explorer("dart", 2_000),
    ),
    Mutant::new(
        "pool",
        "lease-renewed-with-news-alone",
        "A process renews its lease only when it has something else to publish.",
        FoundBy::Tests(
            "--package darter-pool --lib interleavings::members_that_renew_their_leases_are_not_shut_out",
        ),
    ),
    Mutant::new(
        "pool",
        "frees-forgotten-in-a-block-just-taken",
        "Objects freed by their bits in a block that the process takes over meanwhile are never fetched.",
        FoundBy::Tests(
            "--package darter-pool --lib interleavings::objects_freed_in_a_block_just_taken_over_are_fetched",
        ),
    ),
    Mutant::new(
        "pool",
        "directory-without-ids",
        "The directory does not say which memory a node has, so that an absent one cannot be expected.",
        FoundBy::Tests("-p darter-memnode --test memnode a_pool_opens_while_a_memory_node_is_away"),
    ),
    Mutant::new(
        "pool",
        "object-taken-on-an-absent-node",
        "A client goes on taking free objects of a node that cannot be reached.",
        FoundBy::Tests("-p darter-memnode --test memnode new_objects_are_not_placed_on_an_absent_node"),
    ),
];
