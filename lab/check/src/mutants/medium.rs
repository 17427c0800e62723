//! Errors planted in what a simulated provider promises of its medium: those that a provider for durable memory could make.

use super::{FoundBy, Mutant};
use darter_fabric::sim::Medium;

/// Found by schedules of an index whose memory has this rule.
const fn found(index: &'static str, medium: Medium, schedules: u64) -> FoundBy {
    FoundBy::Power { index, medium, schedules }
}

pub(super) const MUTANTS: &[Mutant] = &[
    Mutant::new(
        "medium",
        "medium-reply-before-its-sync",
        "A batch completes before all that it has written is on the medium.",
        found("dart", Medium::Log, 4000),
    ),
    Mutant::new(
        "medium",
        "medium-read-shown-early",
        "A batch completes before all that it has read is on the medium.",
        found("dart", Medium::Log, 8000),
    ),
    Mutant::new(
        "medium",
        "medium-last-line-not-flushed",
        "Of a WRITE of several words the last line is not flushed.",
        found("dart", Medium::Flush, 2000),
    ),
    Mutant::new(
        "medium",
        "medium-no-fence-before-a-cas",
        "A CAS executes before what was written before it is on the medium.",
        found("dart", Medium::Flush, 2000),
    ),
    Mutant::new(
        "medium",
        "medium-writes-in-any-order",
        "A WRITE executes before what was written before it in its batch is on the medium.",
        found("chime-inline", Medium::Flush, 2000),
    ),
    Mutant::new(
        "medium",
        "medium-volatile-hides-the-rest",
        "A batch with a volatile word waits for nothing that it has written.",
        found("sherman", Medium::Log, 4000),
    ),
    Mutant::new(
        "medium",
        "dart-publishes-by-volatile-words",
        "DART's slots are changed by volatile verbs.",
        found("dart", Medium::Log, 4000),
    ),
];
