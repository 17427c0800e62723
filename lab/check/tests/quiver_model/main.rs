//! A model check of the paged index: every interleaving of a miniature of the protocol that
//! docs/quiver.md describes.
//!
//! The miniature has one node of three slots, pages of at most two records and two delta slots, two
//! or three clients with a few operations each on four keys, page frames that are reused after a
//! grace period, and hints that outlive their page. The words of a READ come one by one in any
//! order, as do the words of a new page that a hint may lead to, and every CAS is a step. It has no
//! paths of several nodes and no scans; leaves are retired, but their memory is not reused.
//!
//! The protocol must hold in all scenarios, and each error planted in it must be found:
//!
//! ```sh
//! cargo test -p darter-check --test quiver_model -- --nocapture
//! cargo test -p darter-check --test quiver_model -- --nocapture --ignored --test-threads 1
//! ```
//!
//! `memory` is the content of the pool, `state` the progress of clients, `judge` what histories
//! permit, `scenario` a start and the programs. A client's steps are in `turn`, `hinted`, `routed`,
//! `rebuild` and `step`; `explore` takes all of them; `scenarios` and `families` contain the
//! starts, and `situation` the situations that must occur.

#![allow(clippy::unwrap_used)] // a test may panic
#![allow(clippy::large_types_passed_by_value)] // a step changes its copy of the state

mod explore;
mod families;
mod fingerprint;
mod hinted;
mod judge;
mod memory;
mod rebuild;
mod routed;
mod scenario;
mod scenarios;
mod situation;
mod state;
mod step;
mod turn;

use explore::{Outcome, explore};
use families::Start;
use scenario::{Flaw, Scenario};
use situation::{Situation, Situations};

/// Maximum number of states; a scenario with more fails. A state takes 60 bytes, and 300 while its
/// successors are not known.
const STATES_MAX: usize = 15_000_000;

/// Explores the protocol completely. Returns the number of states, and the situations that
/// occurred. Panics with a shortest trace to a violation.
fn assert_holds(scenario: &Scenario) -> (usize, Situations) {
    let outcome = explore(scenario, None, STATES_MAX);
    let Scenario { name, clients, .. } = scenario;
    if let Some((what, trace)) = outcome.violation {
        panic!("{name}, {clients:?}: {what}:\n{}", trace.join("\n"));
    }
    assert!(outcome.complete, "{name}, {clients:?} has more than {STATES_MAX} states");
    (outcome.states, outcome.met)
}

fn assert_all_hold(scenarios: &[Scenario]) -> Situations {
    let mut all = Situations::default();
    for scenario in scenarios {
        let (states, met) = assert_holds(scenario);
        println!("{}: {states} states", scenario.name);
        all.add(met);
    }
    all
}

fn assert_families_hold(family: fn(&Start) -> Vec<Scenario>) {
    for start in families::starts() {
        let scenarios = family(&start);
        let states: Vec<usize> = scenarios.iter().map(|scenario| assert_holds(scenario).0).collect();
        let (sum, most) = (states.iter().sum::<usize>(), states.iter().max().unwrap());
        println!("{}: {} scenarios, {sum} states, {most} at most", start.name(), scenarios.len());
    }
}

#[test]
fn the_protocol_holds() {
    let met = assert_all_hold(&scenarios::small());
    for situation in Situation::ALL {
        assert!(met.contain(situation), "no scenario has {situation:?}");
    }
}

#[test]
fn programs_of_two_clients_hold() {
    assert_families_hold(Start::pairs);
}

#[test]
#[ignore = "takes minutes"]
fn long_programs_hold() {
    assert_all_hold(&scenarios::large());
}

#[test]
#[ignore = "takes minutes"]
fn programs_of_three_clients_hold() {
    assert_families_hold(Start::triples);
}

#[test]
#[ignore = "takes an hour"]
fn longer_programs_of_two_clients_hold() {
    assert_families_hold(Start::fours);
}

/// Returns the scenario that finds an error.
fn finder(flaw: Flaw) -> &'static str {
    match flaw {
        Flaw::HiUnchecked | Flaw::FirstPartFirst => "a split with a reader without hints",
        Flaw::BornOfRecord => "a reader with an old hint",
        Flaw::BornOfGuard => "an old hint to a key that is static now",
        Flaw::EarlyCopy | Flaw::SealedTrusted => "a copy with a reader",
        Flaw::GuardNotSealed => "an old hint to a key that came later",
        Flaw::BornOfCas | Flaw::GuardSealedFirst => "an updater with an old hint",
        Flaw::PlanFree => "two that split, and a reader",
        Flaw::ForeignTomb => "a key deleted beside two inserters of another",
        Flaw::LeafWithoutGuard => "an old hint to a record that is another key's now",
        Flaw::WrongLeafBelieved => "a wrong leaf beside readers",
        Flaw::WrongLeafCopied => "a wrong leaf in a rebuild",
        Flaw::UndoMissing | Flaw::UndoOverwrites | Flaw::LostLeafReused | Flaw::LostLeafFreed => {
            "a wrong leaf with an updater"
        }
        Flaw::NoGrace => "a page that is rebuilt twice under a reader",
        Flaw::HintedAbsence => "a wrong map",
    }
}

#[test]
fn each_planted_error_is_found() {
    let scenarios = scenarios::small();
    for flaw in Flaw::ALL {
        let name = finder(flaw);
        let scenario = scenarios.iter().find(|scenario| scenario.name == name).unwrap();
        let Outcome { states, violation, .. } = explore(scenario, Some(flaw), STATES_MAX);
        let Some((what, trace)) = violation else { panic!("{flaw:?} is not found by {name}") };
        println!("{flaw:?}: {name}: {what} after {} steps, {states} states", trace.len());
    }
}
