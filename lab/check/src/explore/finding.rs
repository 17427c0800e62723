//! A violation that a campaign met, as it was met and as short as it could be made, and the line that reproduces it.

use super::outcome::Violation;
use super::plan::Plan;
use super::schedule::Schedule;

/// A violation and how to see it again.
#[derive(Clone, Debug)]
pub struct Finding {
    /// The number of the run that met it.
    pub run: u64,
    /// As it was met: plan and schedule.
    pub plan: Plan,
    /// The schedule as it was met.
    pub schedule: Schedule,
    /// The plan with everything left out that is not needed.
    pub small_plan: Plan,
    /// The schedule with as few context switches as could be found.
    pub small_schedule: Schedule,
    /// What the shrunk run does wrong.
    pub violation: Violation,
}

impl Finding {
    /// The line that reproduces the shrunk run.
    pub fn replay_line(&self) -> String {
        replay_line(&self.small_plan, &self.small_schedule)
    }
}

/// Plan and schedule in one line.
pub fn replay_line(plan: &Plan, schedule: &Schedule) -> String {
    format!("{plan}#{}", schedule.clone().trimmed())
}

/// Reads a replay line back.
///
/// # Errors
/// What is wrong with it.
pub fn parse_replay(line: &str) -> Result<(Plan, Schedule), String> {
    let (plan, schedule) = line.trim().split_once('#').unwrap_or((line.trim(), ""));
    Ok((plan.parse()?, schedule.parse()?))
}
