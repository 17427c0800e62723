//! Tests of the program from the command line, and checks of the structure of the workspace.

#![allow(clippy::unwrap_used)] // a test may panic
#![allow(clippy::format_collect)] // small inputs, and clear

// The functions with which the tests of `darter` run it, some of which are unused here.
#[allow(dead_code)]
#[path = "../../../../crates/darter-cli/tests/it/common.rs"]
mod common;
mod compare;
#[path = "../../../../crates/darter-cli/tests/it/daemon.rs"]
mod daemon;
mod damages;
mod deaths;
mod dependencies;
mod fabric;
mod help;
mod indexes;
mod interrupt;
mod modules;
mod outputs;
#[allow(dead_code)]
#[path = "../../../../crates/darter-cli/tests/it/scene.rs"]
mod scene;
mod serve;
#[cfg(feature = "peers")]
mod stores;
mod stress;
mod unsafe_code;
mod usage;
#[allow(dead_code)]
#[path = "../../../../crates/darter-cli/tests/it/work.rs"]
mod work;
mod xstore;

/// The program under test.
const PROGRAM: &str = env!("CARGO_BIN_EXE_darter-lab");
