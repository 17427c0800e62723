//! The library's store with a baseline index behind a pointer.

#![allow(clippy::unwrap_used)] // a test may panic

#[path = "../../../../crates/darter/tests/it/adversary.rs"]
mod adversary;
#[path = "../../../../crates/darter/tests/it/model.rs"]
mod model;
mod out_of_space;

use darter::{Store, engine};
use darter_baselines::{Wort, WortOptions};
use proptest::strategy::{Just, Strategy};

/// WORT.
#[derive(Clone, Copy, Debug)]
struct Kind;

impl Kind {
    /// Opens a store with it in a new pool.
    #[allow(clippy::unused_self)] // tests of the store's own indexes choose by it
    fn open(self, nodes: usize) -> Store {
        let url = format!("mem:{}M?nodes={nodes}", 96 * nodes).parse().unwrap();
        let options = Store::options().maintenance(false);
        engine::open_with::<Wort<_>>(&options, &url, WortOptions::default()).unwrap()
    }
}

/// Returns the only kind.
fn kind() -> impl Strategy<Value = Kind> {
    Just(Kind)
}
