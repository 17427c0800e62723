//! The program as tests run it, and what it says.

use std::process::{Command, Output};

/// Runs the program on no pool but those it is told of.
pub(crate) fn darter(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_darter")).args(arguments).env_remove("DARTER_POOL").output().unwrap()
}

/// All that it said.
pub(crate) fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}
