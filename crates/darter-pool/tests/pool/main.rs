//! Tests of the pool through its public interface, one file a subject.

#![allow(clippy::unwrap_used)] // these are tests

mod cancellation;
mod membership;
mod reclamation;
