//! The fixtures that a thread has built, and runs on them.

use super::fixture::Fixture;
use super::outcome::{Outcome, Violation};
use super::plan::Plan;
use super::schedule::{Schedule, Scheduler};
use super::schedulers::Replay;
use darter_index::checker::without_situations;
use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Fixtures by index, scenario and number of nodes, built once a thread.
pub struct Fixtures {
    built: HashMap<FixtureKey, Fixture>,
    build: fn(&Plan) -> Fixture,
}

impl Default for Fixtures {
    fn default() -> Self {
        Self::of_build(|plan| plan.subject.fixture(plan.scenario, plan.nodes))
    }
}

type FixtureKey = (&'static str, &'static str, u8);

fn key_of(plan: &Plan) -> FixtureKey {
    (plan.subject.name, &plan.scenario.name, plan.nodes)
}

impl Fixtures {
    /// Fixtures on one small node each, for simulated groups.
    pub(super) fn small() -> Self {
        Self::of_build(|plan| (plan.subject.build_small)(plan.scenario))
    }

    fn of_build(build: fn(&Plan) -> Fixture) -> Self {
        Self { built: HashMap::new(), build }
    }

    /// The fixture of a plan.
    pub fn of(&mut self, plan: &Plan) -> &Fixture {
        let build = self.build;
        self.built.entry(key_of(plan)).or_insert_with(|| without_situations(|| build(plan)))
    }

    /// Runs a plan.
    pub fn run(&mut self, plan: &Plan, scheduler: &mut dyn Scheduler) -> Outcome {
        self.run_by(plan, |fixture| plan.subject.run(fixture, plan, scheduler))
    }

    /// Runs something on a plan's fixture; a panic is a violation, and so is a beginning that
    /// cannot be built.
    pub(super) fn run_by(&mut self, plan: &Plan, run: impl FnOnce(&Fixture) -> Outcome) -> Outcome {
        match catch_unwind(AssertUnwindSafe(|| run(self.of(plan)))) {
            Ok(outcome) => outcome,
            Err(panic) => {
                let violation = Violation::of_panic(&*panic);
                self.built.remove(&key_of(plan));
                Outcome { violation: Some(violation), ..Outcome::default() }
            }
        }
    }

    /// Replays a schedule.
    pub fn replay(&mut self, plan: &Plan, schedule: &Schedule) -> Outcome {
        self.run(plan, &mut Replay::new(schedule))
    }
}
