//! XStore under the tests that every index must pass, which are those of `darter-index`, on memory
//! with a server.

#![allow(clippy::unwrap_used)] // a test may panic

#[path = "../../../../crates/darter-index/tests/index/common/mod.rs"]
mod common;
mod ground;
mod models;
mod ranges;
mod records;
mod tree;

use common::Tested;
use darter_baselines::XStore;
use darter_fabric::Fabric;

struct Any;

impl Tested for Any {
    type Index<F: Fabric> = XStore<F>;

    const FAILURES_MIN: u64 = 200;
}

common::index_tests!(Any);
