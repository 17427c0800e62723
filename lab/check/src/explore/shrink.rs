//! Shrinks a failing run: fewer clients, operations and faults, then fewer context switches, as
//! long as it still fails in the same way.

use super::fault::{Fault, GIVER};
use super::fixtures::Fixtures;
use super::group_faults::GroupFaults;
use super::outcome::Violation;
use super::plan::Plan;
use super::schedule::{Decision, Schedule};
use super::schedulers::Random;
use super::servers::{LATE_SERVER, SERVER};

/// Replays for shrinking one finding, and batches posted in them, at most.
const REPLAYS_MAX: usize = 6000;
const EFFORT_MAX: u64 = 30_000_000;
/// Random schedules to try for a smaller plan; for one on groups, which takes longer, seeds to try.
const TRIES: u64 = 60;
const TRIES_ON_GROUPS: u64 = 12;

struct Shrinking<'s> {
    fixtures: &'s mut Fixtures,
    kind: &'static str,
    left: usize,
    effort_left: u64,
}

impl Shrinking<'_> {
    /// Replays a schedule. Returns the violation if it is of the kind sought, and the schedule as
    /// performed.
    fn replay(&mut self, plan: &Plan, schedule: &Schedule) -> Option<(Schedule, Violation)> {
        self.left = self.left.checked_sub(1)?;
        let outcome = self.fixtures.replay(plan, schedule);
        self.effort_left = self.effort_left.checked_sub(outcome.effort)?;
        let violation = outcome.violation.filter(|violation| violation.kind == self.kind)?;
        Some((
            if outcome.schedule.0.is_empty() { schedule.clone() } else { outcome.schedule.trimmed() },
            violation,
        ))
    }

    /// Finds a schedule under which a smaller plan fails too: the old one, or a random one. On
    /// groups the seed, which is part of the plan, determines the schedule.
    fn search(&mut self, plan: Plan, schedule: &Schedule) -> Option<(Plan, Schedule, Violation)> {
        if let Some((schedule, violation)) = self.replay(&plan, schedule) {
            return Some((plan, schedule, violation));
        }
        for seed in 0..if plan.groups.is_some() { TRIES_ON_GROUPS } else { TRIES } {
            let groups = plan.groups.map(|faults| GroupFaults { seed, ..faults });
            let plan = Plan { groups, ..plan.clone() };
            self.left = self.left.checked_sub(1)?;
            let outcome = self.fixtures.run(&plan, &mut Random::new(seed));
            self.effort_left = self.effort_left.checked_sub(outcome.effort)?;
            if let Some(violation) = outcome.violation.filter(|violation| violation.kind == self.kind) {
                return Some((plan, outcome.schedule.trimmed(), violation));
            }
        }
        None
    }
}

/// Returns the plans that are one step smaller.
fn smaller(plan: &Plan) -> Vec<Plan> {
    let mut plans = Vec::new();
    for shorter in plan.groups.into_iter().flat_map(GroupFaults::shorter) {
        plans.push(Plan { groups: Some(shorter), ..plan.clone() });
    }
    for fault in 0..plan.faults.len() {
        let mut less = plan.clone();
        less.faults.remove(fault);
        plans.push(less);
    }
    // Many operations at once, if there are many.
    for client in (0..plan.clients.len()).rev() {
        let count = plan.clients[client].len();
        for part in [0..count, count / 2..count, 0..count / 2].into_iter().filter(|_| count >= 4) {
            let mut less = plan.clone();
            less.clients[client].drain(part);
            plans.push(less);
        }
    }
    for client in (0..plan.clients.len()).rev() {
        for op in (0..plan.clients[client].len()).rev() {
            let mut less = plan.clone();
            less.clients[client].remove(op);
            plans.push(less);
        }
    }
    if plan.clients.last().is_some_and(Vec::is_empty) {
        let mut less = plan.clone();
        less.clients.pop();
        less.processes.pop();
        let last = less.processes();
        let is_of_none = |fault: &Fault| {
            matches!(fault.parts().1, SERVER | LATE_SERVER | GIVER) || matches!(fault, Fault::Lose(..))
        };
        less.faults.retain(|fault| fault.parts().1 < last || is_of_none(fault));
        plans.insert(0, less);
    }
    if plan.nodes > 1 && !plan.loses_nodes() {
        plans.push(Plan { nodes: 1, ..plan.clone() });
    }
    if !plan.warm {
        plans.push(Plan { warm: true, ..plan.clone() });
    }
    plans
}

/// Returns the smallest plan and schedule found that fail in the same way, and the violation.
pub(super) fn shrink(
    fixtures: &mut Fixtures,
    plan: &Plan,
    schedule: &Schedule,
    violation: Violation,
) -> (Plan, Schedule, Violation) {
    let mut shrinking =
        Shrinking { fixtures, kind: violation.kind, left: REPLAYS_MAX, effort_left: EFFORT_MAX };
    let (mut plan, mut schedule, mut violation) = (plan.clone(), schedule.clone(), violation);
    while let Some(found) = smaller(&plan).into_iter().find_map(|next| shrinking.search(next, &schedule)) {
        (plan, schedule, violation) = found;
    }
    // Context switches: runs of decisions become zeros, long runs first.
    let mut width = schedule.0.len().next_power_of_two();
    while width > 0 {
        let mut at = 0;
        while at < schedule.0.len() {
            let end = (at + width).min(schedule.0.len());
            let is_zero = |decision: &Decision| *decision == Decision::default();
            if !schedule.0[at..end].iter().all(is_zero) {
                let mut fewer = schedule.clone();
                fewer.0[at..end].fill(Decision::default());
                if let Some((went, found)) = shrinking.replay(&plan, &fewer)
                    && went.switches() < schedule.switches()
                {
                    (schedule, violation) = (went, found);
                }
            }
            at += width;
        }
        width /= 2;
    }
    (plan, schedule.trimmed(), violation)
}
