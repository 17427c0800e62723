//! Errors planted in the RDMA provider and in a memory node's queue pairs. Their tests run where there are RDMA devices:
//! `scripts/rdma-vm` before the test program.

use super::{FoundBy, Mutant};

pub(super) const MUTANTS: &[Mutant] = &[
    Mutant::new(
        "rdma",
        "rdma-bounds-left-to-the-device",
        "A verb outside the region is posted; the node's device ends the connection for it.",
        FoundBy::Tests(
            "-p darter-memnode --test memnode an_address_at_fault_costs_an_error_and_not_the_connection",
        ),
    ),
    Mutant::new(
        "rdma",
        "rdma-chain-cut-and-forgotten",
        "Of a batch longer than a queue the rest is never posted.",
        FoundBy::Tests(
            "-p darter-memnode --test memnode \
             batches_longer_than_a_queue_and_transfers_longer_than_a_message_go_in_parts",
        ),
    ),
    Mutant::new(
        "rdma",
        "rdma-completions-not-armed",
        "A thread sleeps without having its completions announced. It wakes after a while all the same, only later.",
        FoundBy::Nobody,
    ),
    Mutant::new(
        "rdma",
        "rdma-closed-hub-keeps-its-device",
        "A thread that outlives a pool keeps the pool's device open, and its memory registered.",
        FoundBy::Tests(
            "-p darter-memnode --test memnode a_client_s_device_that_is_taken_away_serves_until_it_is_closed",
        ),
    ),
    Mutant::new(
        "rdma",
        "rdma-failed-taken-for-done",
        "A completion that reports a failure ends its batch as any other: what was lost is acknowledged.",
        FoundBy::Tests(
            "-p darter-memnode --test memnode queue_pairs_that_the_node_ends_cost_errors_and_nothing_else",
        ),
    ),
    Mutant::new(
        "rdma",
        "rdma-fence-left-to-a-device-that-forgets",
        "Fenced requests are posted to a device that loses them, in one run of six or so.",
        FoundBy::Tests("-p darter-memnode --test memnode fenced_verbs_are_not_lost"),
    ),
    Mutant::new(
        "rdma",
        "rdma-fence-not-posted",
        "A fenced verb is posted as any other. Soft-RoCE executes in order anyway.",
        FoundBy::Nobody,
    ),
    Mutant::new(
        "rdma",
        "node-fence-leaves-queue-pairs",
        "A session is fenced, and its queue pairs stay until its connections are dropped.",
        FoundBy::Tests(
            "-p darter-memnode --test memnode after_a_fence_nothing_of_the_client_lands_and_it_learns_of_it",
        ),
    ),
    Mutant::new(
        "rdma",
        "node-queue-outlives-its-connection",
        "A connection that is gone leaves its queue pair behind.",
        FoundBy::Tests(
            "-p darter-memnode --test memnode a_member_whose_connections_end_leaves_no_queue_behind",
        ),
    ),
    Mutant::new(
        "rdma",
        "node-verbs-beside-its-device",
        "A memory node with a device executes verbs that come over TCP too; its atomics are not the device's.",
        FoundBy::Tests(
            "-p darter-memnode --test memnode pairings_that_make_no_sense_are_refused_and_the_node_serves_on",
        ),
    ),
    Mutant::new(
        "rdma",
        "node-second-queue-pair-of-a-connection",
        "A connection may have any number of queue pairs, of which only the last ends with it.",
        FoundBy::Tests(
            "-p darter-memnode --test memnode pairings_that_make_no_sense_are_refused_and_the_node_serves_on",
        ),
    ),
];
