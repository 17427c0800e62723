//! Checks of darter's correctness.
//!
//! - [`history`]: the operations of clients and their results.
//! - [`linear`]: whether a history is linearizable, one key at a time.
//! - [`elle`]: whether transactions over lists are strictly serializable, from their reads alone.
//! - [`explore`]: simulated clients under many schedules and faults, checked after every run.
//! - [`stress`]: real processes that are killed and paused, checked for linearizability too.
//!
//! `lab/docs/checking.md` explains how to use it.

mod dice;
pub mod elle;
pub mod explore;
pub mod history;
pub mod linear;
pub mod mutants;
pub mod stress;

pub use darter_index::checker::Situation;
