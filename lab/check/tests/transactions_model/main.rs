//! A model check of transactions over several keys: every interleaving of a miniature of the
//! protocol.
//!
//! A key's word is plain, or leads to an intent of an attempt: the old and the new value of the key,
//! and the attempt's status. A transaction reads its keys, installs intents in all of them, also in
//! those that it only reads, and commits by a CAS of the status. An operation that must replace an
//! undecided intent aborts the attempt first; a reader returns the old value unless the attempt is
//! committed. A snapshot is two equal collects; if it contains an absent key, it commits as a
//! transaction does, since the word of an absent key recurs.
//!
//! The miniature has two or three keys, two to four clients with a few operations each, and two
//! attempts per transaction. Every verb is a step. The verbs of a transaction at its keys come in
//! the order of the keys or in any order, and its cleanup at any time after its return. Results must
//! be strictly serializable, and operations must end if all other clients have stopped.
//!
//! The protocol must hold in all scenarios, and each error planted in it must be found:
//!
//! ```sh
//! cargo test -p darter-check --test transactions_model -- --nocapture
//! cargo test -p darter-check --test transactions_model -- --nocapture --ignored --test-threads 1
//! ```
//!
//! `state` is the content of the pool and the progress of clients, `judge` what results permit,
//! `scenario` the programs and the errors, and `turn` the steps of clients; `explore` takes all of
//! them.

mod explore;
#[path = "../quiver_model/fingerprint.rs"]
mod fingerprint;
mod judge;
mod scenario;
mod scenarios;
mod state;
mod turn;

use explore::{Alone, Outcome, UNORDERED, explore};
use scenario::{Flaw, Order, Scenario};

/// Maximum number of states; a scenario with more fails.
const STATES_MAX: usize = 20_000_000;

/// Explores the protocol. Returns the number of states. Panics with a shortest trace to a violation.
fn assert_holds(scenario: &Scenario) -> (usize, Alone) {
    let Outcome { states, alone, violation } = explore(scenario, STATES_MAX);
    if let Some((what, trace)) = violation {
        let Scenario { name, order, clients, .. } = scenario;
        panic!("{name}, {order:?}, {clients:?}: {what}, {} steps:\n{}", trace.len(), trace.join("\n"));
    }
    (states, alone)
}

fn assert_all_hold(scenarios: &[Scenario]) {
    for scenario in scenarios {
        let (listed, _) = assert_holds(scenario);
        let (any, alone) = assert_holds(&scenario.clone().in_order(Order::Any));
        println!("{}: {listed} states in order, {any} in any order; {alone:?}", scenario.name);
    }
}

fn assert_family_holds(scenarios: &[Scenario]) {
    let states: Vec<usize> = scenarios.iter().map(|scenario| assert_holds(scenario).0).collect();
    let (sum, most) = (states.iter().sum::<usize>(), states.iter().max().expect("the family is not empty"));
    println!("{} scenarios, {sum} states, {most} at most", states.len());
}

#[test]
fn the_protocol_holds() {
    assert_all_hold(&scenarios::small());
}

#[test]
fn programs_of_one_operation_hold() {
    assert_family_holds(&scenarios::programs(1));
}

#[test]
#[ignore = "takes minutes"]
fn programs_of_two_operations_hold() {
    assert_family_holds(&scenarios::programs(2));
}

#[test]
#[ignore = "takes minutes"]
fn pairs_of_transactions_hold() {
    assert_family_holds(&scenarios::pairs());
}

#[test]
#[ignore = "takes minutes"]
fn large_scenarios_hold() {
    for scenario in scenarios::large() {
        let (states, alone) = assert_holds(&scenario);
        println!("{}: {states} states in order; {alone:?}", scenario.name);
    }
}

/// Returns the scenario that finds an error, and the number of steps to a result without an order.
fn finder(flaw: Flaw) -> (&'static str, usize) {
    match flaw {
        Flaw::ReaderTakesUndecided => ("blind writes and gets", 5),
        Flaw::ReaderIgnoresCommit => ("blind writes and gets", 7),
        Flaw::PutWithoutAbort | Flaw::ReadsValidated | Flaw::ReadsNotCompared => {
            ("a copy, a put and gets", 9)
        }
        Flaw::CommitByWrite | Flaw::CommitAfterAbort => ("a copy, a put and gets", 10),
        Flaw::CleanupOfAbortedNew => ("blind writes and gets", 11),
        Flaw::InstallWithoutAbort => ("copies in opposite directions and gets", 12),
        Flaw::AbortAssumed => ("a move, and an insert and a delete", 9),
        Flaw::SingleCollect => ("a transfer, a put and a snapshot", 10),
        Flaw::StatusNotCompared => ("a transfer, a put and a snapshot", 15),
        Flaw::AbsentAccepted => ("one absent key of three, and a snapshot", 14),
    }
}

/// Asserts that an error is found by a result without an order, after this number of steps.
fn assert_finds(flaw: Flaw, name: &str, steps: usize) {
    let scenarios = scenarios::small();
    let scenario = scenarios.iter().find(|scenario| scenario.name == name).expect("the scenario exists");
    let Outcome { states, violation, .. } = explore(&scenario.with(flaw), STATES_MAX);
    let Some((what, trace)) = violation else { panic!("{flaw:?} is not found by {name}") };
    println!("{flaw:?}: {name}: {what}, {} steps, {states} states:\n{}\n", trace.len(), trace.join("\n"));
    assert_eq!((what.as_str(), trace.len()), (UNORDERED, steps), "{flaw:?}");
}

#[test]
fn each_planted_error_is_found() {
    for flaw in Flaw::ALL {
        let (name, steps) = finder(flaw);
        assert_finds(flaw, name, steps);
    }
}

/// The words of absent keys recur, so two equal collects do not prove a moment between them.
#[test]
fn a_snapshot_of_two_absent_keys_may_have_no_order() {
    assert_finds(Flaw::AbsentAccepted, "keys that are absent alternately, and a snapshot", 16);
}
