//! DART under the tests that every index must pass ([`common`]), and on a modelled cluster.

#![allow(clippy::unwrap_used)] // a test may panic

mod common;
mod dart;
mod flushes;
mod ground;
mod modelled;
mod quiver;
mod quiver_counts;
