//! Tests of the pool through its public interface, one file per subject.

#![allow(clippy::unwrap_used)] // these are tests

mod cancellation;
mod hand_over;
mod membership;
mod reading;
mod reclamation;
mod slabs;
