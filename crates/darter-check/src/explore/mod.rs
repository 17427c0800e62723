//! The explorer: one plan under many schedules, until something does not fit (design, section 6).

mod campaign;
mod clients;
mod plan;
mod run;
mod scenario;
mod schedule;
mod shrink;
mod stage;
mod verdict;

pub use campaign::{Finding, SchedulerKind, Settings, Stages, Summary, parse_replay, replay_line};
pub use plan::{Fault, Op, Plan};
pub use run::{Outcome, Violation, run};
pub use scenario::Scenario;
pub use schedule::{Decision, Dice, Pct, Random, Replay, Schedule, Scheduler};
pub use stage::Stage;
