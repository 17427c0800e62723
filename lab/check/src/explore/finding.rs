//! A violation found by a campaign, in its original form and as short as possible, and the line
//! that reproduces it.

use super::outcome::Violation;
use super::plan::Plan;
use super::schedule::Schedule;

/// A violation and how to reproduce it.
#[derive(Clone, Debug)]
pub struct Finding {
    /// The number of the run that found it.
    pub run: u64,
    /// The original plan.
    pub plan: Plan,
    /// The original schedule.
    pub schedule: Schedule,
    /// The plan without everything that is not needed.
    pub small_plan: Plan,
    /// The schedule with as few context switches as could be found.
    pub small_schedule: Schedule,
    /// The violation of the shrunk run.
    pub violation: Violation,
}

impl Finding {
    /// Returns the line that reproduces the shrunk run.
    pub fn replay_line(&self) -> String {
        replay_line(&self.small_plan, &self.small_schedule)
    }
}

/// Returns a plan and a schedule in one line.
pub fn replay_line(plan: &Plan, schedule: &Schedule) -> String {
    format!("{plan}#{}", schedule.clone().trimmed())
}

/// Parses a replay line.
///
/// # Errors
/// Fails if the line is malformed; the text says where.
pub fn parse_replay(line: &str) -> Result<(Plan, Schedule), String> {
    let (plan, schedule) = line.trim().split_once('#').unwrap_or((line.trim(), ""));
    Ok((plan.parse()?, schedule.parse()?))
}
