//! Small whole runs of `bench` on the real store.

mod bench;
