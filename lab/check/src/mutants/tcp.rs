//! Errors planted in the TCP fabric: hub, handshake, fencing.

use super::{FoundBy, Mutant};

pub(super) const MUTANTS: &[Mutant] = &[
    Mutant::new(
        "tcp",
        "tcp-lost-does-not-outweigh-unsent",
        "A batch that one node has lost and another was never sent is told as not sent.",
        FoundBy::Tests("-p darter-memnode --test memnode a_batch_lost_by_one_node_is_not_told_as_unsent"),
    ),
    Mutant::new(
        "tcp",
        "tcp-waker-not-replaced",
        "A future that is polled by another task still wakes the first.",
        FoundBy::Tests("-p darter-memnode --test memnode a_dropped_future_leaves_its_verbs_to_land"),
    ),
    Mutant::new(
        "tcp",
        "tcp-orphan-not-counted",
        "A batch given up counts as ended while its verbs are on their way.",
        FoundBy::Tests("-p darter-memnode --test memnode a_dropped_batch_counts_until_it_has_landed"),
    ),
    Mutant::new(
        "tcp",
        "tcp-reply-of-any-request",
        "A reply is taken for the oldest request's, whatever id it bears.",
        FoundBy::Tests("-p darter-memnode --test wire_fuzz a_client_lives_through_whatever_answers"),
    ),
    Mutant::new(
        "tcp",
        "tcp-node-admitted-twice",
        "A node that is one of the pool's already is admitted under another number.",
        FoundBy::Tests("-p darter-memnode --test memnode a_node_is_one_of_the_pools_once"),
    ),
    Mutant::new(
        "tcp",
        "tcp-control-takes-any-memory",
        "A node that came back with another memory is still asked for claims and fences.",
        FoundBy::Tests("-p darter-memnode --test memnode nobody_claims_slots_of_another_memory"),
    ),
    Mutant::new(
        "tcp",
        "tcp-late-answer-taken-for-the-next",
        "A control connection whose answer did not come in time is used again, and that answer taken for the next.",
        FoundBy::Tests("-p darter-memnode --test memnode an_answer_that_comes_late_answers_nothing_else"),
    ),
    Mutant::new(
        "tcp",
        "tcp-forgotten-node-keeps-its-link",
        "A node that was forgotten keeps its connection, which the next of its number inherits.",
        FoundBy::Tests(
            "-p darter-memnode --test memnode what_is_sent_to_a_node_reaches_no_other_that_had_its_number",
        ),
    ),
    Mutant::new(
        "tcp",
        "tcp-fence-leaves-others-to-judge",
        "Once the arbiter has shut a session out, the other nodes are asked whether they think it gone.",
        FoundBy::Tests("-p darter-memnode --test memnode a_session_gone_from_one_node_is_shut_out_of_all"),
    ),
    Mutant::new(
        "tcp",
        "tcp-fence-told-to-the-arbiter-only",
        "A fence is told to the arbiter and to no other node.",
        FoundBy::Tests(
            "-p darter-memnode --test memnode a_member_is_fenced_when_its_connections_are_gone_or_its_lease_is_over",
        ),
    ),
    Mutant::new(
        "tcp",
        "tcp-fence-passes-over-the-absent",
        "A fence counts as done though a node could not be told.",
        FoundBy::Tests("-p darter-memnode --test memnode a_fence_that_one_node_has_not_heard_of_is_none"),
    ),
    Mutant::new(
        "tcp",
        "tcp-client-nonce-of-the-session",
        "A client's nonce is the same on all its connections.",
        FoundBy::Tests("-p darter-memnode --test memnode a_recorded_node_is_not_believed"),
    ),
    Mutant::new(
        "tcp",
        "tcp-refusal-of-anybody-believed",
        "A refusal is believed of a node that has not proven to know the token.",
        FoundBy::Tests("-p darter-memnode --test memnode an_impostor_is_noticed"),
    ),
    Mutant::new(
        "tcp",
        "tcp-look-waits-for-another-threads-turn",
        "A look for late verbs waits for the hubs of other threads, which may wait for this one's.",
        FoundBy::Tests(
            "--package darter-fabric --lib tcp::links::tests::a_look_at_all_hubs_waits_for_no_thread",
        ),
    ),
    Mutant::new(
        "tcp",
        "tcp-hub-takes-any-memory",
        "A hub connects again to a node of the same size, whatever memory it has.",
        FoundBy::Tests("-p darter-memnode --test memnode a_lost_node_is_an_error_and_comes_back"),
    ),
    Mutant::new(
        "tcp",
        "tcp-silence-never-forgiven",
        "A node's patience runs from its first silence on, though it has answered since.",
        FoundBy::Tests("-p darter-memnode --test memnode a_node_that_takes_its_time_each_time_is_waited_for"),
    ),
    Mutant::new(
        "tcp",
        "tcp-fenced-reply-forgotten",
        "A reply that tells of a fence shuts the session out of that batch alone.",
        FoundBy::Tests("-p darter-memnode --test memnode a_session_that_one_node_has_shut_out_gives_up_all"),
    ),
    Mutant::new(
        "tcp",
        "tcp-lost-told-as-unsent",
        "A batch whose connection was lost is told as not sent.",
        FoundBy::Tests("-p darter-memnode --test memnode a_lost_node_is_an_error_and_comes_back"),
    ),
    Mutant::new(
        "tcp",
        "tcp-fenced-greeting-forgotten",
        "A greeting that tells of a fence shuts the session out of that node alone.",
        FoundBy::Tests("-p darter-memnode --test memnode a_session_that_one_node_has_shut_out_gives_up_all"),
    ),
    Mutant::new(
        "tcp",
        "tcp-answers-beyond-a-frame",
        "A frame is filled as long as its requests fit, whatever its answers take.",
        FoundBy::Tests("-p darter-memnode --test memnode a_batch_of_many_frames_is_one_batch"),
    ),
    Mutant::new(
        "tcp",
        "tcp-one-verb-too-many",
        "A frame takes one verb more than a node does.",
        FoundBy::Tests("-p darter-memnode --test memnode a_frame_has_no_more_verbs_than_nodes_take"),
    ),
    Mutant::new(
        "tcp",
        "tcp-later-frame-answers-from-the-first",
        "The answers of a batch's second frame are put where the first frame's verbs want theirs.",
        FoundBy::Tests("-p darter-memnode --test memnode a_batch_of_many_frames_is_one_batch"),
    ),
    Mutant::new(
        "tcp",
        "tcp-batch-ends-with-its-first-frame",
        "A batch of several frames has ended when its first frame was answered.",
        FoundBy::Tests("-p darter-memnode --test memnode a_batch_of_many_frames_is_one_batch"),
    ),
    Mutant::new(
        "tcp",
        "tcp-proof-of-no-session",
        "A proof is made over the nonces alone, for whatever session.",
        FoundBy::Tests("-p darter-fabric --lib a_proof_holds_for_what_it_was_made_of_alone"),
    ),
    Mutant::new(
        "tcp",
        "tcp-frame-of-any-number-of-verbs",
        "A frame may have more verbs than the limit says.",
        FoundBy::Tests("-p darter-fabric --lib a_frame_has_so_many_verbs_and_no_more"),
    ),
    Mutant::new(
        "tcp",
        "tcp-atomic-of-many-words",
        "An atomic verb may say that it has more words than one.",
        FoundBy::Tests("-p darter-memnode --test memnode malformed_frames_touch_no_memory"),
    ),
    Mutant::new(
        "tcp",
        "tcp-surplus-answer-taken",
        "A reply with more words than its verbs wanted is taken.",
        FoundBy::Tests("-p darter-fabric --lib answers_fit_or_are_refused"),
    ),
    Mutant::new(
        "tcp",
        "tcp-answer-to-the-oldest-call",
        "The answer to a call is taken for that of the call that has waited longest.",
        FoundBy::Tests(
            "-p darter-memnode --test memnode a_procedure_that_waits_holds_up_neither_verbs_nor_other_calls",
        ),
    ),
    Mutant::new(
        "tcp",
        "tcp-lost-call-told-as-unsent",
        "A call that was under way when its connection ended is told as never sent.",
        FoundBy::Tests("-p darter-memnode --test memnode a_call_ends_with_its_connection"),
    ),
    Mutant::new(
        "tcp",
        "tcp-calls-wait-for-a-silent-node",
        "A client whose calls alone are under way asks a silent node for no sign.",
        FoundBy::Tests("-p darter-memnode --test memnode a_call_to_a_node_that_falls_silent_ends"),
    ),
    Mutant::new(
        "tcp",
        "tcp-earlier-changes-told-as-unsent",
        "An operation that has changed something, and meets an absent node then, says that nothing was sent.",
        FoundBy::Tests(
            "-p darter-memnode --test memnode an_operation_that_has_changed_something_does_not_say_that_nothing_was_sent",
        ),
    ),
];
