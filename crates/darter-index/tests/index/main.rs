//! DART under the tests that every index must pass ([`common`]).

#![allow(clippy::unwrap_used)] // a test may panic

mod common;
mod dart;
mod flushes;
mod ground;
mod quiver;
mod quiver_counts;
