//! Errors planted in the local provider on persistent memory: flushes, fences, counters.

use super::{FoundBy, Mutant};

pub(super) const MUTANTS: &[Mutant] = &[
    Mutant::new(
        "flush",
        "flush-write-not-flushed",
        "The lines of a WRITE are not flushed.",
        FoundBy::Tests("-p darter-fabric --lib a_cas_executes_when_the_writes_before_it_are_fenced"),
    ),
    Mutant::new(
        "flush",
        "flush-last-line-forgotten",
        "Of a WRITE of several lines the last is not flushed.",
        FoundBy::Tests("-p darter-fabric --lib a_cas_executes_when_the_writes_before_it_are_fenced"),
    ),
    Mutant::new(
        "flush",
        "flush-no-fence-before-a-cas",
        "A CAS executes before the WRITEs before it are fenced.",
        FoundBy::Tests("-p darter-fabric --lib a_cas_executes_when_the_writes_before_it_are_fenced"),
    ),
    Mutant::new(
        "flush",
        "flush-writes-in-any-order",
        "A WRITE executes before the one before it is fenced.",
        FoundBy::Tests("-p darter-fabric --lib writes_reach_the_medium_in_posting_order"),
    ),
    Mutant::new(
        "flush",
        "flush-counter-lowered-early",
        "A line's counter is lowered before its flush and fence.",
        FoundBy::Tests("-p darter-fabric --lib who_reads_amid_a_write_flushes_first"),
    ),
    Mutant::new(
        "flush",
        "flush-reader-does-not-flush",
        "Who reads a line that is perhaps not on the medium does not flush it.",
        FoundBy::Tests("-p darter-fabric --lib who_reads_amid_a_write_flushes_first"),
    ),
    Mutant::new(
        "flush",
        "flush-failed-cas-shown-early",
        "A CAS that fails does not flush the word that it has found.",
        FoundBy::Tests("-p darter-fabric --lib the_count_of_a_dead_writer_costs_flushes_and_nothing_else"),
    ),
];
