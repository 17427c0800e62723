//! The explorer: one plan under many schedules, until something does not fit (design, section 6).

mod campaign;
mod clients;
mod coverage;
mod exhaustive;
mod plan;
mod run;
mod scenario;
mod schedule;
mod shrink;
mod stage;
mod sweep;
mod verdict;

pub use campaign::{Finding, SchedulerKind, Settings, Stages, Summary, parse_replay, replay_line};
pub use coverage::{expected_situations, hole_named};
pub use exhaustive::{Exhaustion, Exhaustive, exhaust};
pub use plan::{Fault, Op, Plan};
pub use run::{Outcome, Violation, run};
pub use scenario::Scenario;
pub use schedule::{Decision, Pct, Random, Replay, Schedule, Scheduler};
pub use stage::Stage;
pub use sweep::{Sweep, victims};
