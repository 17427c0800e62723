//! A model check of memory groups: every interleaving of a miniature of the protocol that
//! docs/replication.md describes.
//!
//! The model has one word, two or three replicas, at most one replica that is a learner or returns,
//! two clients with one or two operations each, a death, and a store whose compare-and-set may
//! arrive late. A client may contact another replica while its request is still in the first one's
//! socket. A lease is a bit that all backups have granted. The protocol must hold in all scenarios,
//! and each error planted in it must be found:
//!
//! ```sh
//! cargo test -p darter-group --test group_model -- --nocapture
//! cargo test -p darter-group --test group_model -- --nocapture --ignored --test-threads 1
//! ```
//! `state` has the state, `step` and `change` the possible steps, `judge` the histories that are
//! permitted, `explore` the search, and `scenarios` its starting points.
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

/// Maximum number of states. A scenario with more states fails.
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
        assert!(ended > 0 || scenario.switches == 0, "{name}: no run ends with a reply to every client");
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
