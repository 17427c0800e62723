//! The tests of the library as a program meets it, in one binary.

#![allow(clippy::unwrap_used)] // a test may panic

mod adversary;
mod backups;
mod contention;
mod damaged_files;
mod edges;
mod example_runner;
mod examples;
mod features;
mod key_spaces;
mod killed_writers;
mod model;
mod out_of_space;
mod quotas;
mod session_futures;
mod sessions;
mod snapshots;
mod transactions;

/// The index of the tests' new pools: the default, or the one that `DARTER_TEST_INDEX` names.
fn index() -> darter::IndexKind {
    let named = std::env::var("DARTER_TEST_INDEX").ok();
    named.map_or_else(Default::default, |name| name.parse().unwrap())
}

/// An index of the tests against a model.
#[derive(Clone, Copy, Debug)]
struct Kind(darter::IndexKind);

impl Kind {
    /// Opens a store over this index in a new pool.
    fn open(self, nodes: usize) -> darter::Store {
        let url = format!("mem:{}M?nodes={nodes}", 96 * nodes);
        darter::Store::options().maintenance(false).index(self.0).open(&url).unwrap()
    }
}

/// Returns one of the indexes.
fn kind() -> impl proptest::strategy::Strategy<Value = Kind> {
    use proptest::strategy::Strategy;
    proptest::sample::select(&darter::IndexKind::ALL).prop_map(Kind)
}

/// How the tests open stores.
fn options() -> darter::StoreOptions {
    darter::Store::options().index(index())
}
