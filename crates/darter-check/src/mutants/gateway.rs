//! Errors planted in gateways: records of keys, aggregates, turns.

use super::{FoundBy, Mutant};

pub(super) const MUTANTS: &[Mutant] = &[
    Mutant::new(
        "gateway",
        "gateway-error-behind-half-a-reply",
        "A command that fails amid its reply leaves the begin of it before the error.",
        FoundBy::Tests("-p darter-gateway --test gateway a_reply_that_is_too_long_is_refused"),
    ),
    Mutant::new(
        "gateway",
        "gateway-strangers-requests-foreseen",
        "Requests behind an AUTH are parsed before it is done, by a stranger's limits.",
        FoundBy::Tests("-p darter-gateway --test gateway what_comes_with_the_password_is_no_strangers"),
    ),
    Mutant::new(
        "gateway",
        "gateway-doubt-without-second-look",
        "A head is put in doubt and nobody looks again whether the key is still empty.",
        FoundBy::Tests("-p darter-gateway --lib a_field_and_a_string_for_an_empty_key"),
    ),
    Mutant::new(
        "gateway",
        "gateway-buries-members-alone",
        "Of a sorted set that has ended the members are removed, the index is not.",
        FoundBy::Tests("-p darter-gateway --lib what_has_ended_is_buried_and_nothing_else"),
    ),
    Mutant::new(
        "gateway",
        "gateway-buries-one-turn-alone",
        "Of what has ended no more is removed than fits in one turn.",
        FoundBy::Tests("-p darter-gateway --lib what_a_hash_that_is_over_held_goes_with_it"),
    ),
    Mutant::new(
        "gateway",
        "gateway-expired-hash-found-once-more",
        "Who finds a hash or sorted set that is over removes it, and reads it all the same.",
        FoundBy::Tests("-p darter-gateway --lib what_a_hash_that_is_over_held_goes_with_it"),
    ),
    Mutant::new(
        "gateway",
        "gateway-other-kind-opened-without-doubt",
        "An empty head of another kind is replaced without a doubt.",
        FoundBy::Tests("-p darter-gateway --lib a_field_and_a_member_for_an_empty_key"),
    ),
    Mutant::new(
        "gateway",
        "gateway-empty-key-keeps-its-end",
        "What is added to an empty key ends when the key would have.",
        FoundBy::Tests(
            "-p darter-gateway --lib what_is_added_to_an_empty_key_does_not_end_as_that_would_have",
        ),
    ),
    Mutant::new(
        "gateway",
        "gateway-generation-of-the-time",
        "A generation is named by the time, so that two of the same moment are one.",
        FoundBy::Tests("-p darter-gateway --lib a_key_that_goes_and_comes_in_one_moment_is_another"),
    ),
    Mutant::new(
        "gateway",
        "gateway-read-across-generations",
        "What was read of a key counts though the key has ended meanwhile.",
        FoundBy::Tests("-p darter-gateway --lib a_key_that_goes_and_comes_in_one_moment_is_another"),
    ),
    Mutant::new(
        "gateway",
        "gateway-confirms-in-doubt",
        "A writer finds its generation in doubt and leaves it so.",
        FoundBy::Tests(
            "-p darter-gateway --lib what_holds_nothing_goes_when_nobody_has_written_to_it_for_long",
        ),
    ),
    Mutant::new(
        "gateway",
        "gateway-confirms-without-looking-again",
        "A writer takes a doubt off and does not see whether it could.",
        FoundBy::Nobody,
    ),
    Mutant::new(
        "gateway",
        "gateway-cursor-of-two-keys",
        "A scan's position takes the number of another's that is still remembered.",
        FoundBy::Tests("-p darter-gateway --lib a_number_is_one_keys_as_long_as_it_is_remembered"),
    ),
    Mutant::new(
        "gateway",
        "gateway-cursor-over-recalled",
        "A scan's position is recalled though its time is over.",
        FoundBy::Tests("-p darter-gateway --lib a_number_is_one_keys_as_long_as_it_is_remembered"),
    ),
    Mutant::new(
        "gateway",
        "gateway-doubt-like-another",
        "Two doubts of the same moment look the same.",
        FoundBy::Tests("-p darter-gateway --lib two_doubts_of_one_moment_differ"),
    ),
    Mutant::new(
        "gateway",
        "gateway-ends-a-ms-early",
        "A key ends in the ms up to which it lives.",
        FoundBy::Tests("-p darter-gateway --lib records_are_read_as_they_were_written"),
    ),
    Mutant::new(
        "gateway",
        "gateway-stamp-kept-by-the-member",
        "A member keeps its stamp when its score changes.",
        FoundBy::Tests("-p darter-gateway --test gateway a_gateway_killed_amid_zadds_leaves_ranges_right"),
    ),
    Mutant::new(
        "gateway",
        "gateway-index-written-after-member",
        "A member's record is changed before the index has a record for it.",
        FoundBy::Tests("-p darter-gateway --lib a_member_that_is_moved_is_told_once"),
    ),
    Mutant::new(
        "gateway",
        "gateway-refused-score-left-in-the-index",
        "A score that came too late leaves its record in the index.",
        FoundBy::Tests("-p darter-gateway --lib a_score_that_comes_too_late_leaves_nothing"),
    ),
    Mutant::new(
        "gateway",
        "gateway-removes-whatever-score-it-has-by-now",
        "A member is removed for a score that it no longer has.",
        FoundBy::Tests("-p darter-gateway --lib a_member_that_is_not_wanted_any_more_stays"),
    ),
    Mutant::new(
        "gateway",
        "gateway-index-believed",
        "A record of the index counts whatever the member's record calls for.",
        FoundBy::Tests("-p darter-gateway --lib what_no_member_calls_for_goes_when_it_is_old"),
    ),
    Mutant::new(
        "gateway",
        "gateway-member-told-twice",
        "A walk tells a member again that was moved before it meanwhile.",
        FoundBy::Tests("-p darter-gateway --lib a_member_that_is_moved_is_told_once"),
    ),
    Mutant::new(
        "gateway",
        "gateway-removes-what-was-over-when-seen",
        "A key that was found over is removed, whatever it is by then.",
        FoundBy::Tests("-p darter-gateway --lib a_key_that_lives_again_is_not_removed_as_over"),
    ),
    Mutant::new(
        "gateway",
        "gateway-expired-elements-left",
        "A key that is over is removed without what it holds.",
        FoundBy::Tests("-p darter-gateway --lib what_a_hash_that_is_over_held_goes_with_it"),
    ),
    Mutant::new(
        "gateway",
        "gateway-decision-kept-from-an-earlier-look",
        "A decision made of a record that has changed since stands, if the new one is to be looked at closer.",
        FoundBy::Tests("-p darter-gateway --lib a_string_that_became_a_hash_is_decided_on_anew"),
    ),
    Mutant::new(
        "gateway",
        "gateway-empty-key-replaced-without-doubt",
        "A head that seems empty is replaced or removed without a doubt.",
        FoundBy::Tests("-p darter-gateway --lib a_field_and_a_string_for_an_empty_key"),
    ),
    Mutant::new(
        "gateway",
        "gateway-put-over-what-came-between",
        "A hash or sorted set is replaced though somebody else came between.",
        FoundBy::Tests("-p darter-gateway --lib what_took_a_hash_s_place_is_decided_on_anew"),
    ),
    Mutant::new(
        "gateway",
        "gateway-any-head-keeps-graves",
        "Elements of a generation that has ended stay as long as the key has any head.",
        FoundBy::Tests("-p darter-gateway --lib what_has_ended_is_buried_and_nothing_else"),
    ),
    Mutant::new(
        "gateway",
        "gateway-index-swept-while-at-work",
        "A record of an index that no member calls for is removed while its writer is at work.",
        FoundBy::Tests("-p darter-gateway --lib what_no_member_calls_for_goes_when_it_is_old"),
    ),
    Mutant::new(
        "gateway",
        "gateway-doubt-ends-a-head-at-once",
        "A head in doubt is removed by the next who meets it empty.",
        FoundBy::Tests(
            "-p darter-gateway --lib what_holds_nothing_goes_when_nobody_has_written_to_it_for_long",
        ),
    ),
    Mutant::new(
        "gateway",
        "gateway-idle-head-removed-though-used",
        "An idle head is removed though somebody has written to it since it was seen.",
        FoundBy::Tests("-p darter-gateway --lib a_head_that_was_written_to_since_it_was_seen_stays"),
    ),
    Mutant::new(
        "gateway",
        "gateway-strings-overtake-aggregates",
        "A walk tells strings before the hashes in front of them.",
        FoundBy::Tests("-p darter-gateway --lib keys_of_all_kinds_are_told_in_their_order"),
    ),
    Mutant::new(
        "gateway",
        "gateway-walk-tells-of-empty-keys",
        "A walk tells of keys that have a head and hold nothing.",
        FoundBy::Tests(
            "-p darter-gateway --test gateway what_takes_the_place_of_an_empty_key_takes_nothing_else",
        ),
    ),
    Mutant::new(
        "gateway",
        "gateway-line-answered-for-all",
        "Requests that arrived with a line are given the line's words.",
        FoundBy::Tests("-p darter-gateway --lib however_many_are_parsed_at_once_they_are_the_same_requests"),
    ),
];
