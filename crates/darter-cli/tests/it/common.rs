//! Runs the program and collects its output.

use std::process::{Command, Output};

/// Runs the program without a pool from the environment.
pub(crate) fn darter(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_darter")).args(arguments).env_remove("DARTER_POOL").output().unwrap()
}

/// Returns all output.
pub(crate) fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}
