//! Errors planted in the redo log of memory nodes: what waits for what, checkpoints, recovery.

use super::{FoundBy, Mutant};

pub(super) const MUTANTS: &[Mutant] = &[
    Mutant::new(
        "redo log",
        "log-acknowledged-before-it-is-synced",
        "The log is held to be durable when it was written, and not synced.",
        FoundBy::Tests("-p darter-memnode --lib what_was_acknowledged_survives_power_failures_everywhere"),
    ),
    Mutant::new(
        "redo log",
        "log-write-acknowledged-early",
        "A write is answered before its record is durable.",
        FoundBy::Tests("-p darter-memnode --lib what_was_acknowledged_survives_power_failures_everywhere"),
    ),
    Mutant::new(
        "redo log",
        "log-volatile-hides-the-rest",
        "What is written beside a volatile word is answered at once.",
        FoundBy::Tests("-p darter-memnode --lib what_is_written_beside_volatile_words_is_waited_for"),
    ),
    Mutant::new(
        "redo log",
        "log-read-shown-early",
        "A read of a line whose last change is not durable is answered at once.",
        FoundBy::Tests("-p darter-memnode --lib what_was_acknowledged_survives_power_failures_everywhere"),
    ),
    Mutant::new(
        "redo log",
        "log-image-named-ahead-of-its-log",
        "A checkpoint is named before the log is durable up to where its chunks were copied.",
        FoundBy::Tests("-p darter-memnode --lib what_was_acknowledged_survives_power_failures_everywhere"),
    ),
    Mutant::new(
        "redo log",
        "log-cut-before-its-checkpoint-is-durable",
        "The log is cut before the checkpoint that makes it superfluous is named.",
        FoundBy::Tests("-p darter-memnode --lib what_was_acknowledged_survives_power_failures_everywhere"),
    ),
    Mutant::new(
        "redo log",
        "log-error-of-a-sync-ignored",
        "A sync that fails is taken for one that did not.",
        FoundBy::Tests("-p darter-memnode --lib a_sync_that_fails_acknowledges_nothing"),
    ),
    Mutant::new(
        "redo log",
        "log-checksum-not-compared",
        "The checksums of records and chunks are not compared.",
        FoundBy::Tests("-p darter-memnode --lib every_cut_and_every_flip_is_noticed"),
    ),
    Mutant::new(
        "redo log",
        "log-missing-segment-not-noticed",
        "A segment gets no mark that another one follows it.",
        FoundBy::Tests("-p darter-memnode --lib damage_before_what_was_durable_later_is_named"),
    ),
    Mutant::new(
        "redo log",
        "log-damage-taken-for-a-torn-tail",
        "A record that was durable and is damaged is cut off with all behind it.",
        FoundBy::Tests("-p darter-memnode --lib a_tail_that_is_cut_or_flipped_is_cut_off_or_named"),
    ),
    Mutant::new(
        "redo log",
        "log-forgotten-sessions-let-in",
        "A node back from a crash lets in the sessions of before.",
        FoundBy::Tests("-p darter-memnode --test memnode sessions_of_before_a_crash_are_shut_out"),
    ),
    Mutant::new(
        "redo log",
        "log-fence-not-recorded",
        "The log is not told whom the node has shut out.",
        FoundBy::Tests("-p darter-memnode --test memnode sessions_of_before_a_crash_are_shut_out"),
    ),
    Mutant::new(
        "redo log",
        "log-queue-without-bound",
        "A node whose disk is slow takes whatever comes.",
        FoundBy::Tests(
            "-p darter-memnode --test memnode a_node_whose_disk_is_slow_takes_no_more_than_it_may_hold",
        ),
    ),
    Mutant::new(
        "redo log",
        "log-fence-acknowledged-early",
        "A fence is acknowledged before it is durable.",
        FoundBy::Tests("-p darter-memnode --test memnode sessions_of_before_a_crash_are_shut_out"),
    ),
    Mutant::new(
        "redo log",
        "tcp-node-without-log-let-pass",
        "A pool that must be durable takes a node that is not.",
        FoundBy::Tests(
            "-p darter-memnode --test memnode a_pool_that_must_be_durable_takes_durable_nodes_only",
        ),
    ),
    Mutant::new(
        "redo log",
        "log-durable-end-not-marked",
        "Nothing behind the newest records says that they are durable.",
        FoundBy::Tests("-p darter-memnode --lib damage_to_a_log_is_named_or_makes_no_difference"),
    ),
    Mutant::new(
        "redo log",
        "log-fails-for-a-shortage",
        "A log that cannot open its next file for a moment has failed for good.",
        FoundBy::Tests("-p darter-memnode --lib a_shortage_delays_records_and_loses_none"),
    ),
];
