//! The baselines under the tests that every index must pass, which are those of `darter-index`, and
//! their costs compared with DART.

#![allow(clippy::unwrap_used)] // a test may panic

#[path = "../../../../crates/darter-index/tests/index/common/mod.rs"]
mod common;
#[path = "../../../../crates/darter-index/tests/index/ground.rs"]
mod ground;

mod art;
mod calls;
mod chime;
mod dex;
mod ladder;
mod records;
mod sherman;
mod smart;
mod smart_counts;
mod wort;
mod wort_lines;
