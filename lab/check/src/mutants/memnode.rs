//! Errors planted in memory nodes: turns, sessions, ledger.

use super::{FoundBy, Mutant};

pub(super) const MUTANTS: &[Mutant] = &[
    Mutant::new(
        "memory node",
        "node-ledger-goes-on-in-a-cut-line",
        "The ledger's next line is written behind one that a crash cut short.",
        FoundBy::Tests("-p darter-memnode --lib what_was_noted_is_read_again_whatever_was_cut_off"),
    ),
    Mutant::new(
        "memory node",
        "node-ledger-ends-at-an-odd-line",
        "The ledger is read up to the first line that says nothing.",
        FoundBy::Tests("-p darter-memnode --lib what_was_noted_is_read_again_whatever_was_cut_off"),
    ),
    Mutant::new(
        "memory node",
        "node-silent-fenced-peer-kept",
        "A fenced peer that says nothing keeps its connection.",
        FoundBy::Tests("-p darter-memnode --test memnode a_session_shut_out_is_counted"),
    ),
    Mutant::new(
        "memory node",
        "node-counts-the-memory-of-the-gone",
        "The memory of a connection that has ended is still counted.",
        FoundBy::Tests("-p darter-memnode --test memnode slow_readers_together_stay_within_a_nodes_memory"),
    ),
    Mutant::new(
        "memory node",
        "node-greeting-in-drops-renews-patience",
        "Each byte of a greeting renews the patience with it.",
        FoundBy::Tests("-p darter-memnode --test memnode a_greeting_in_drops_is_not_waited_for"),
    ),
    Mutant::new(
        "memory node",
        "node-drain-ends-amid-a-request",
        "A node that drains hangs up on who has sent half a request.",
        FoundBy::Tests(
            "-p darter-memnode --test memnode a_node_that_drains_answers_what_arrived_and_takes_nobody_new",
        ),
    ),
    Mutant::new(
        "memory node",
        "node-hears-who-does-not-read",
        "A peer that leaves its answers unread is heard all the same.",
        FoundBy::Tests("-p darter-memnode --test memnode who_does_not_read_is_not_heard"),
    ),
    Mutant::new(
        "memory node",
        "node-frames-left-for-want-of-room-forgotten",
        "Frames that were left for want of room for their answers wait for more to arrive.",
        FoundBy::Tests(
            "-p darter-memnode --test memnode a_node_that_drains_answers_what_arrived_and_takes_nobody_new",
        ),
    ),
    Mutant::new(
        "memory node",
        "node-nonce-of-the-session",
        "A node's nonce is the same for all connections of a session.",
        FoundBy::Tests("-p darter-memnode --test memnode a_recorded_greeting_is_worth_nothing"),
    ),
    Mutant::new(
        "memory node",
        "node-lets-in-while-it-drains",
        "A node that drains lets in who was on the way.",
        FoundBy::Tests(
            "-p darter-memnode --test memnode a_node_that_drains_answers_what_arrived_and_takes_nobody_new",
        ),
    ),
    Mutant::new(
        "memory node",
        "node-one-too-many",
        "A node lets in one connection more than it takes.",
        FoundBy::Tests("-p darter-memnode --test memnode a_node_that_is_full_says_so"),
    ),
    Mutant::new(
        "memory node",
        "node-proves-itself-to-strangers",
        "A client that proved nothing is told what the node's region is, with a proof.",
        FoundBy::Tests("-p darter-memnode --test memnode a_recorded_greeting_is_worth_nothing"),
    ),
    Mutant::new(
        "memory node",
        "node-fenced-asked-only-at-the-door",
        "A session is asked for a fence when it connects, not at each request.",
        FoundBy::Tests("-p darter-memnode --test memnode a_session_gone_from_one_node_is_shut_out_of_all"),
    ),
    Mutant::new(
        "memory node",
        "node-one-slot-too-many",
        "The slot behind the last can be claimed.",
        FoundBy::Tests("-p darter-memnode --test wire_fuzz a_node_lives_through_whatever_is_said_to_it"),
    ),
    Mutant::new(
        "memory node",
        "node-refusal-behind-half-an-answer",
        "A refused batch leaves the begin of its answer before the refusal.",
        FoundBy::Tests("-p darter-memnode --test memnode bad_verbs_are_refused_and_the_connection_goes_on"),
    ),
    Mutant::new(
        "memory node",
        "node-session-gone-with-one-connection",
        "A session counts as gone when one of its connections has ended.",
        FoundBy::Tests("-p darter-memnode --lib a_session_lives_as_long_as_one_of_its_connections"),
    ),
    Mutant::new(
        "memory node",
        "node-fence-not-in-the-ledger",
        "A fence is answered and not written to the ledger.",
        FoundBy::Tests(
            "-p darter-memnode --test memnode a_session_shut_out_stays_so_when_its_node_is_restarted",
        ),
    ),
    Mutant::new(
        "memory node",
        "node-fenced-session-keeps-its-slot",
        "A session that is shut out keeps the slots that it holds.",
        FoundBy::Tests("-p darter-memnode --lib a_holder_lives_as_long_as_it_is_connected"),
    ),
    Mutant::new(
        "memory node",
        "node-slot-taken-over-without-fence",
        "A slot is taken over from a session that is gone without shutting it out.",
        FoundBy::Tests("-p darter-memnode --lib a_holder_lives_as_long_as_it_is_connected"),
    ),
    Mutant::new(
        "memory node",
        "node-slot-released-by-anybody",
        "Whoever asks gives a slot back, though another session holds it.",
        FoundBy::Tests("-p darter-memnode --lib a_slot_is_given_back_by_its_holder"),
    ),
    Mutant::new(
        "memory node",
        "node-stranger-taken-for-gone",
        "A session that the node has never seen counts as gone.",
        FoundBy::Tests("-p darter-memnode --lib of_a_session_from_before_a_restart_only_its_lease_tells"),
    ),
    Mutant::new(
        "memory node",
        "node-greeted-peer-makes-room",
        "The oldest connection makes room for the next, though it has greeted.",
        FoundBy::Tests("-p darter-memnode --test memnode a_greeted_connection_makes_no_room_for_strangers"),
    ),
    Mutant::new(
        "memory node",
        "node-drops-who-holds-least",
        "For want of memory the connection that holds least is dropped.",
        FoundBy::Tests("-p darter-memnode --test memnode who_holds_most_is_dropped_and_nobody_else"),
    ),
    Mutant::new(
        "memory node",
        "node-call-in-the-nodes-turn",
        "A call runs in the node's turn, and whatever comes behind it waits.",
        FoundBy::Tests(
            "-p darter-memnode --test memnode a_procedure_that_waits_holds_up_neither_verbs_nor_other_calls",
        ),
    ),
    Mutant::new(
        "memory node",
        "node-worker-ends-with-a-panic",
        "A worker ends with the procedure that panicked, and nobody is told.",
        FoundBy::Tests("-p darter-memnode --test memnode a_panic_is_told_and_the_worker_goes_on"),
    ),
    Mutant::new(
        "memory node",
        "node-calls-wait-without-bound",
        "As many calls wait for a worker as come.",
        FoundBy::Tests("-p darter-memnode --test memnode more_calls_than_may_wait_are_refused"),
    ),
    Mutant::new(
        "memory node",
        "node-fenced-sessions-call-runs",
        "A call that waits for a worker runs although its session was fenced meanwhile.",
        FoundBy::Tests("-p darter-memnode --test memnode a_call_that_waits_ends_with_its_session"),
    ),
    Mutant::new(
        "memory node",
        "node-drain-forgets-calls",
        "A node that drains hangs up on who waits for a procedure.",
        FoundBy::Tests("-p darter-memnode --test memnode a_node_that_stops_answers_its_calls_first"),
    ),
    Mutant::new(
        "memory node",
        "pool-empty-node-taken-for-no-pool",
        "A node that comes back empty keeps all processes from opening its pool.",
        FoundBy::Tests(
            "-p darter-memnode --test memnode an_absent_node_that_comes_back_without_its_memory_counts_as_lost",
        ),
    ),
    Mutant::new(
        "memory node",
        "node-crash-told-as-a-lapsed-lease",
        "A session that a crash of its node has ended receives the reason of a fence by another client.",
        FoundBy::Tests("-p darter-memnode --lib a_session_that_a_crash_ended_is_refused_for_that"),
    ),
    Mutant::new(
        "memory node",
        "node-strangers-take-all-descriptors",
        "Connections that have not greeted leave no descriptor to the log.",
        FoundBy::Tests("-p darter-memnode --lib connections_leave_descriptors_to_the_log"),
    ),
];
