//! Errors planted in memory groups: what a reply waits for, who may serve, what the next primary
//! knows. Indexes on simulated groups find most of them too, later (docs/replication.md, "Errors
//! planted").

use super::{FoundBy, Mutant};

const BED: FoundBy = FoundBy::Tests("-p darter-fabric --test group_testbed groups_survive_whatever_happens");

pub(super) const MUTANTS: &[Mutant] = &[
    Mutant::new(
        "group",
        "group-reply-before-acknowledgement",
        "A frame that changed memory is answered before the backups have its record.",
        BED,
    ),
    Mutant::new(
        "group",
        "group-read-before-acknowledgement",
        "A read of words whose record the backups lack is answered at once.",
        BED,
    ),
    Mutant::new(
        "group",
        "group-no-lease",
        "Reads are answered whether a lease covers them or not.",
        FoundBy::Tests(
            "-p darter-fabric --test group_testbed a_lease_covers_what_was_executed_before_it_was_granted",
        ),
    ),
    Mutant::new(
        "group",
        "group-lease-from-its-arrival",
        "The lease begins when a backup's grant arrives, and not when the heartbeat was sent.",
        FoundBy::Tests(
            "-p darter-fabric --test group_testbed a_lease_counts_from_the_sending_of_the_heartbeat",
        ),
    ),
    Mutant::new("group", "group-no-duplicate-table", "A frame that is sent again is executed again.", BED),
    Mutant::new(
        "group",
        "group-frames-of-an-old-connection-executed",
        "A frame is executed though its client has begun another connection for the channel.",
        FoundBy::Tests("-p darter-fabric --test group_testbed a_frame_of_an_older_connection_is_void"),
    ),
    Mutant::new(
        "group",
        "group-frames-of-another-view-executed",
        "A primary executes frames of clients that go by another view.",
        FoundBy::Tests("-p darter-fabric --test group_testbed a_frame_of_another_view_is_void"),
    ),
    Mutant::new(
        "group",
        "group-old-memory-serves",
        "A replica that was not alone in its view goes on with the memory it comes back with.",
        BED,
    ),
    Mutant::new(
        "group",
        "group-learner-promoted",
        "A learner counts as a backup while its memory is still copied.",
        BED,
    ),
    Mutant::new(
        "group",
        "group-learner-not-awaited",
        "A primary does not wait for a learner while the view that makes it a backup is asked for.",
        BED,
    ),
    Mutant::new(
        "group",
        "group-copy-slower-than-patience",
        "A learner is sent parts so seldom that it is taken for silent, and forgotten.",
        FoundBy::Tests("-p darter-fabric --test group_testbed a_learner_is_heard_of_at_the_lowest_rate"),
    ),
    Mutant::new(
        "group",
        "group-shown-not-told",
        "A primary shows what all have, notes it nowhere, and makes a learner a backup that lacks it.",
        FoundBy::Tests(
            "-p darter-fabric --test group_testbed a_read_waits_for_the_learner_that_is_awaited_at_the_end_of_its_turn",
        ),
    ),
    Mutant::new(
        "group",
        "group-fences-forgotten",
        "Backups are not told whom the primary has shut out.",
        BED,
    ),
    Mutant::new(
        "group",
        "group-gap-in-the-log",
        "A record is left out of a stream, and the backup takes the next one.",
        BED,
    ),
    Mutant::new(
        "group",
        "group-suffix-kept",
        "A replica that a view leaves out keeps its log, and no primary compares it.",
        BED,
    ),
    Mutant::new(
        "group",
        "group-floor-forgotten",
        "A new primary shows what the one before had executed before all backups have it.",
        FoundBy::Tests(
            "-p darter-fabric --test group_testbed a_new_primary_shows_nothing_that_a_backup_lacks",
        ),
    ),
    Mutant::new(
        "group",
        "tcp-group-frame-under-a-new-id",
        "A client sends a frame without a reply again under another id.",
        FoundBy::Tests("-p darter-memnode --test memnode primaries_that_die_lose_and_repeat_nothing"),
    ),
    Mutant::new(
        "group",
        "tcp-group-lost-with-its-connection",
        "What was on a lost connection to a group fails.",
        FoundBy::Tests("-p darter-memnode --test memnode primaries_that_die_lose_and_repeat_nothing"),
    ),
    Mutant::new(
        "group",
        "node-group-fence-not-in-the-log",
        "A primary shuts a session out and tells no other replica.",
        FoundBy::Tests(
            "-p darter-memnode --test memnode a_session_that_was_shut_out_stays_so_when_another_replica_serves",
        ),
    ),
    Mutant::new(
        "group",
        "node-group-messages-of-an-old-connection",
        "A replica takes what another had sent on an older connection.",
        FoundBy::Tests(
            "-p darter-memnode --test memnode messages_that_a_replica_sent_on_an_older_connection_are_void",
        ),
    ),
    Mutant::new(
        "group",
        "group-spare-joins-at-once",
        "A primary takes in whoever asks, however many members there are.",
        FoundBy::Tests("-p darter-fabric --test group_testbed a_spare_stands_by_until_a_member_is_lost"),
    ),
    Mutant::new(
        "group",
        "pool-lease-shorter-than-a-failover",
        "A pool is opened whose members are held to be dead during a failover.",
        FoundBy::Tests(
            "-p darter-memnode --test memnode a_pool_whose_lease_does_not_outlast_failovers_is_refused",
        ),
    ),
];
