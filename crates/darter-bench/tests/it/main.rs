//! Small whole runs: `bench` on the real store, `compare` and `paper` over every index.

mod bench;
mod compare;
