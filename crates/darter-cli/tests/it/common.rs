//! Runs the program and collects its output.

use crate::PROGRAM;
use std::process::{Command, Output, Stdio};

/// Runs the program without a pool from the environment.
pub(crate) fn darter(arguments: &[&str]) -> Output {
    Command::new(PROGRAM).args(arguments).env_remove("DARTER_POOL").output().unwrap()
}

/// Returns the program with the default action for SIGHUP, even if this process ignores that
/// signal, as under `nohup`.
pub(crate) fn with_default_hangup() -> Command {
    let mut command = Command::new("env");
    command.args(["--default-signal=HUP", PROGRAM]);
    command
}

/// Returns all output.
pub(crate) fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

/// Returns `unshare` for a command that may mount file systems, which only it sees.
pub(crate) fn mounting() -> Command {
    let mut command = Command::new("unshare");
    command.args(["--user", "--map-root-user", "--mount", "--"]);
    command
}

/// Returns whether [`mounting`] works here, and prints a note if not.
pub(crate) fn may_mount() -> bool {
    let mut mount = mounting();
    mount.args(["mount", "-t", "tmpfs", "none", "/mnt"]).stderr(Stdio::null());
    if mount.status().is_ok_and(|status| status.success()) {
        return true;
    }
    assert!(std::env::var_os("DARTER_TEST_ALL").is_none(), "file systems cannot be mounted here");
    eprintln!("skipped: file systems cannot be mounted here");
    false
}
