//! Fuzzing of the wire protocol: for arbitrary bytes, both ends keep running, execute valid
//! requests, and hold no resources afterwards.
//!
//! `DARTER_FUZZ_SECONDS=600 cargo test -p darter-memnode --test wire_fuzz -- --ignored` runs
//! longer; `DARTER_FUZZ_CASE=…`, as printed by a failure, repeats one case.
//!
//! These tests are a separate process because they limit its memory.

#![allow(clippy::unwrap_used, unreachable_pub)] // a test may panic

#[path = "../support/mod.rs"]
mod support;

mod client_end;
mod corpus;
mod mutate;
mod node_end;
mod reading;
mod run;

use darter_fabric::wire::{Challenge, Welcome};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use run::Run;
use std::time::Duration;
use support::LONG;

const TOKEN: &[u8] = b"open sesame";

/// A corpus with fewer outcomes than intended would be weak, so check each new outcome by hand.
#[test]
fn the_corpus_is_true() {
    let keeps = std::env::var_os("DARTER_FUZZ_KEEP").is_some();
    let mut wrong = Vec::new();
    let mut compare = |conversation: &corpus::Conversation, outcome: String| {
        if keeps {
            conversation.keep(&outcome);
        } else if conversation.outcome() != outcome {
            wrong.push(format!("{}: {outcome}", conversation.path.display()));
        }
    };
    let mut node = node_end::NodeUnderTest::new(TOKEN, LONG);
    for (conversation, session) in node_end::corpus().iter().zip(1000..) {
        let outcome = node.outcome(conversation, session);
        compare(conversation, outcome);
    }
    node.end();
    for conversation in client_end::corpus() {
        let outcome = client_end::outcome(&conversation);
        compare(&conversation, outcome);
    }
    assert!(wrong.is_empty(), "not what the files say:\n{}", wrong.join("\n"));
}

fn fuzz_nodes(run: &mut Run) {
    let corpus = node_end::corpus();
    let mut nodes = [node_end::NodeUnderTest::new(b"", LONG), node_end::NodeUnderTest::new(TOKEN, LONG)];
    for (_, mut dice) in run.by_ref() {
        nodes[usize::from(dice.random_ratio(1, 3))].case(&mut dice, &corpus);
    }
    nodes.into_iter().for_each(node_end::NodeUnderTest::end);
}

fn fuzz_clients(run: &mut Run) {
    let corpus = client_end::corpus();
    let imposter = client_end::Imposter::start();
    let is_long = run.is_long();
    for (_, mut dice) in run.by_ref() {
        imposter.case(&mut dice, &corpus, is_long);
    }
}

#[test]
fn a_node_lives_through_whatever_is_said_to_it() {
    fuzz_nodes(&mut Run::short("node", 500));
}

#[test]
fn a_client_lives_through_whatever_answers() {
    fuzz_clients(&mut Run::short("client", 400));
}

#[test]
fn clients_with_unfinished_requests_are_not_waited_for() {
    let mut node = node_end::NodeUnderTest::new(b"", Duration::from_millis(300));
    let unfinished = node.leave_all_unfinished(&mut Pcg64Mcg::seed_from_u64(1), &node_end::corpus());
    // All of them are still open on this side.
    node.settle();
    assert!(node.dropped() > 0);
    drop(unfinished);
    node.end();
}

/// Number of bytes that a node sends until it has admitted a client, and until it has replied once.
const GREETED: usize = size_of::<Challenge>() + size_of::<Welcome>();
const REPLIED: usize = GREETED + 40;

#[test]
fn a_node_that_falls_silent_is_not_waited_for() {
    let good = &client_end::corpus()
        .into_iter()
        .find(|conversation| conversation.path.ends_with("good.txt"))
        .unwrap();
    std::thread::scope(|scope| {
        // At once, in the challenge, in the welcome, after it, in a reply's head, in its payload,
        // after it.
        for bytes in [0, 20, 100, GREETED, GREETED + 8, GREETED + 28, REPLIED] {
            for way in [client_end::Way::Loop, client_end::Way::Reactor] {
                scope.spawn(move || {
                    let outcomes = client_end::outcome_of_silence(good, bytes, way);
                    // Before the handshake is complete, no request was made.
                    let lost = if bytes < GREETED { "Unreachable" } else { "Disconnected" };
                    let done = if bytes < REPLIED { [].iter() } else { ["Ok"].iter() };
                    let after = std::iter::repeat("Ok");
                    let expected: Vec<&str> =
                        done.copied().chain([lost]).chain(after).take(client_end::REQUESTS).collect();
                    assert_eq!(outcomes, expected, "{bytes} {way:?}");
                });
            }
        }
    });
}

fn as_long_as_said() -> Duration {
    Duration::from_secs(std::env::var("DARTER_FUZZ_SECONDS").map_or(60, |text| text.parse().unwrap()))
}

#[test]
#[ignore = "takes as long as DARTER_FUZZ_SECONDS says"]
fn nodes_for_longer() {
    fuzz_nodes(&mut Run::long("node", as_long_as_said()));
}

#[test]
#[ignore = "takes as long as DARTER_FUZZ_SECONDS says"]
fn clients_for_longer() {
    fuzz_clients(&mut Run::long("client", as_long_as_said()));
}
