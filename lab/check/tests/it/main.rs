//! Integration tests in one binary: the linearizability checker, the explorer and its plans, the
//! stress's logs and the list of planted errors.

#![allow(clippy::unwrap_used)] // a test may panic

mod checker;
mod direct;
mod exploration;
mod groups;
mod histories;
mod judges;
mod mutants;
mod plans;
mod stress_logs;
