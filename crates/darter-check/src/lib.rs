//! Whether darter is right: histories, and the checker that judges them.

pub mod explore;
pub mod history;
pub mod linear;
pub mod stress;
