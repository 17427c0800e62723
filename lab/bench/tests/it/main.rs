//! Small whole runs: every index by `bench` and `compare`, and peers.

mod bench;
mod compare;
