//! Tests of the pool through its public interface, one file a subject.

#![allow(clippy::unwrap_used)] // these are tests

mod cancellation;
mod lock_tokens;
mod membership;
mod reclamation;
