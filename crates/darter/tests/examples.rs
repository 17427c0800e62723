//! Every example runs to its end; they assert what they show.

#![allow(clippy::unwrap_used)] // a test may panic

use std::path::PathBuf;
use std::process::Command;

/// The example's program: built beside this test by a plain `cargo test`, else built now.
fn program(name: &str) -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let profile = test.ancestors().nth(2).unwrap();
    let program = profile.join("examples").join(name);
    if !program.exists() {
        let cargo = Command::new(env!("CARGO"))
            .args([
                "build",
                "--profile",
                "test",
                "--manifest-path",
                concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml"),
            ])
            .args(["--example", name])
            .status()
            .unwrap();
        assert!(cargo.success());
    }
    program
}

fn runs(name: &str, says: &str) {
    let output = Command::new(program(name)).output().unwrap();
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{name}: {}\n{out}\n{err}", output.status);
    assert!(out.contains(says), "{name} said:\n{out}");
}

#[test]
fn map() {
    runs("map", "flying = fish");
}

#[test]
fn multi_get_and_scan() {
    runs("multi_get_and_scan", "10 keys in");
}

#[test]
fn typed_values() {
    runs("typed_values", "cents: 1000");
}

#[test]
fn survive_kill() {
    runs("survive_kill", "all of them are there");
}
