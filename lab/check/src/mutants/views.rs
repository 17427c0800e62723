//! Errors planted in the stores of memory groups' views.

use super::{FoundBy, Mutant};

pub(super) const MUTANTS: &[Mutant] = &[
    Mutant::new(
        "views",
        "store-sets-views-that-do-not-follow",
        "A view is set whatever the number of the current one.",
        FoundBy::Tests("-p darter-views --test it files::a_file_keeps_views"),
    ),
    Mutant::new(
        "views",
        "store-tells-what-it-read-before",
        "A replica whose view was not set is told the view before it, and not the one that was.",
        FoundBy::Tests("-p darter-views --test it servers::a_change_whose_answer_was_lost_is_not_lost"),
    ),
    Mutant::new(
        "views",
        "etcd-compares-existence-alone",
        "A view takes the place of whatever etcd holds.",
        FoundBy::Tests("-p darter-views --test it etcd::etcd_keeps_views"),
    ),
    Mutant::new(
        "views",
        "store-asks-one-address",
        "A server that does not answer is asked again instead of the next one.",
        FoundBy::Tests("-p darter-views --test it servers::a_server_that_fails_or_is_silent_is_passed_over"),
    ),
    Mutant::new(
        "views",
        "file-of-views-without-a-lock",
        "Two replicas compare a file of views and replace it, one after the other.",
        FoundBy::Tests("-p darter-views --test it files::a_file_keeps_views"),
    ),
];
