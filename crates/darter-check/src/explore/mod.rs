//! The explorer: one plan under many schedules, until something does not fit (design, section 6).

mod campaign;
mod clients;
mod corpus;
mod exhaustive;
mod hunt;
mod last_look;
mod outcome;
mod plan;
mod play;
mod run;
pub mod scenario;
mod schedule;
mod shrink;
mod stage;
mod subject;
mod subjects;
mod sweep;
mod verdict;

pub use campaign::{Finding, SchedulerKind, Settings, Stages, Summary, parse_replay, replay_line};
pub use exhaustive::{Exhaustion, Exhaustive, exhaust};
pub use outcome::{Outcome, Violation};
pub use plan::{Fault, Op, Plan};

pub use scenario::Scenario;
pub use schedule::{Decision, Late, Pct, Random, Replay, Schedule, Scheduler};
pub use stage::Stage;
pub use subject::{Explored, Hole, Holes, OptionsOf, Promises, Subject};
pub use subjects::{subject, subjects};
pub use sweep::{SLOW, Sweep, victims};
