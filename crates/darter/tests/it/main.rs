//! The tests of the library as a program meets it, in one binary.

#![allow(clippy::unwrap_used)] // a test may panic

mod adversary;
mod contention;
mod damaged_files;
#[path = "../../../darter-index/tests/index/common/dice.rs"]
mod dice;
mod example_runner;
mod examples;
mod features;
mod key_spaces;
mod killed_writers;
mod model;
mod out_of_space;
mod session_futures;
mod sessions;

/// The index of the tests' new pools: the default, or the one that `DARTER_TEST_INDEX` names.
fn index() -> darter::IndexKind {
    let named = std::env::var("DARTER_TEST_INDEX").ok();
    named.map_or_else(Default::default, |name| name.parse().unwrap())
}

/// How the tests open stores.
fn options() -> darter::StoreOptions {
    darter::Store::options().index(index())
}
