//! The fixtures that a thread has built, and runs on them.

use super::fixture::Fixture;
use super::outcome::{Outcome, Violation};
use super::plan::Plan;
use super::schedule::{Schedule, Scheduler};
use super::schedulers::Replay;
use darter_index::checker::without_situations;
use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Fixtures by index, scenario, number of nodes and whether these are groups, each built once per
/// thread.
#[derive(Default)]
pub struct Fixtures {
    built: HashMap<FixtureKey, Fixture>,
}

type FixtureKey = (&'static str, &'static str, u8, bool);

fn key_of(plan: &Plan) -> FixtureKey {
    (plan.subject.name, &plan.scenario.name, plan.nodes, plan.groups.is_some())
}

impl Fixtures {
    /// Returns the fixture of a plan.
    pub fn of(&mut self, plan: &Plan) -> &Fixture {
        self.built.entry(key_of(plan)).or_insert_with(|| without_situations(|| plan.subject.fixture(plan)))
    }

    /// Runs a plan. A panic is a violation, as is a scenario that cannot be built.
    pub fn run(&mut self, plan: &Plan, scheduler: &mut dyn Scheduler) -> Outcome {
        match catch_unwind(AssertUnwindSafe(|| plan.subject.run(self.of(plan), plan, scheduler))) {
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
