//! A model check of memory groups: every interleaving of a miniature of the protocol that
//! docs/replication.md describes.
//!
//! The miniature has one word, two or three replicas, sometimes one that learns or comes back, two
//! clients with one or two operations each, which may ask another replica while their request still
//! lies in the first one's socket, a death, and a store whose compare-and-set may arrive late. A
//! lease is a bit that all backups have granted. The protocol must hold in all scenarios, and each
//! error planted in it must be found:
//!
//! ```sh
//! cargo test -p darter-fabric --test group_model -- --nocapture
//! cargo test -p darter-fabric --test group_model -- --nocapture --ignored --test-threads 1
//! ```
//!
//! `state` is what there is, `step` and `change` are what can happen, `judge` is what histories
//! permit, `explore` goes everywhere, `scenarios` says from where.

#![allow(clippy::unwrap_used)] // a test may panic
#![allow(clippy::large_types_passed_by_value)] // a step changes its copy of the state

mod change;
mod explore;
mod judge;
mod scenarios;
mod state;
mod step;

use explore::{Outcome, explore};
use state::Flaw;
use step::Scenario;

/// States at most. A scenario that has more is no scenario: it fails.
const STATES_MAX: usize = 15_000_000;

fn assert_hold(scenarios: &[Scenario]) {
    for scenario in scenarios {
        let Outcome { states, ended, is_complete, violation } = explore(scenario, None, STATES_MAX);
        let name = scenario.name;
        if let Some((what, trace)) = violation {
            panic!("{name}: {what}:\n{}", trace.join("\n"));
        }
        println!("{name}: {states} states, all answered in {ended}");
        assert!(is_complete, "{name} has more than {STATES_MAX} states");
        assert!(ended > 0 || scenario.switches == 0, "{name}: nobody is answered");
    }
}

#[test]
fn the_protocol_holds() {
    assert_hold(&scenarios::small());
}

#[test]
#[ignore = "takes minutes"]
fn the_protocol_holds_in_large_scenarios() {
    assert_hold(&scenarios::large());
}

#[test]
fn each_planted_error_is_found() {
    for flaw in Flaw::ALL {
        let scenario = scenarios::finder(flaw);
        let Outcome { states, violation, .. } = explore(&scenario, Some(flaw), STATES_MAX);
        let Some((what, trace)) = violation else { panic!("{flaw:?} is not found: {states} states") };
        println!("{flaw:?}: {what} after {} steps, {states} states", trace.len());
    }
}
