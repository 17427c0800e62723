//! The explorer's view of a subject, without its type.

use super::fixture::Fixture;
use super::groups;
use super::outcome::Outcome;
use super::plan::{Explored, Plan};
use super::run;
use super::schedule::Scheduler;
use super::subject::Subject;
use super::torn;
use darter_index::checker::Situation;
use std::sync::LazyLock;

/// Runs a plan on its fixture. On groups the scheduler only determines whether to trace.
fn run_plan<S: Subject>(fixture: &Fixture, plan: &Plan, scheduler: &mut dyn Scheduler) -> Outcome {
    match plan.groups {
        Some(faults) => groups::run::<S>(fixture, plan, faults, scheduler.traces()),
        None => run::run::<S>(fixture, plan, scheduler),
    }
}

/// Situations of the index, and of READs, that must occur in a full exploration.
fn situations<S: Subject>() -> Vec<Situation> {
    let mut all = S::situations();
    all.extend(torn::SITUATIONS);
    all
}

impl Explored {
    /// The view of a subject.
    pub const fn of<S: Subject>() -> Self {
        Self {
            name: S::NAME,
            promises: S::PROMISES,
            has_server: S::HAS_SERVER,
            in_one_process: S::IN_ONE_PROCESS,
            situations: situations::<S>,
            scenarios: LazyLock::new(S::scenarios),
            build: Fixture::build::<S>,
            run: run_plan::<S>,
        }
    }
}
