//! Whether darter is right.
//!
//! - [`history`]: what clients did and were told.
//! - [`linear`]: whether all of it can be true of one key at a time.
//! - [`explore`]: simulated clients under many schedules and faults, judged after every run.
//! - [`stress`]: real processes, killed and paused, judged by the same checker.
//!
//! `lab/docs/checking.md` teaches how to use it.

mod dice;
pub mod explore;
pub mod history;
pub mod linear;
pub mod mutants;
pub mod stress;

pub use darter_index::checker::Situation;
