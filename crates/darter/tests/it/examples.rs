//! Every example runs to its end; they assert what they show. `darter-memnode` runs them over memory
//! nodes.

use std::path::PathBuf;
use std::process::Command;

/// Returns the example's program, and builds it unless `cargo test` has.
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

/// What each example prints when it has done its work.
const SAYS: [(&str, &str); 6] = [
    ("quickstart", "plum = blue"),
    ("cookbook", "every recipe ran"),
    ("map", "flying = fish"),
    ("multi_get_and_scan", "10 keys in"),
    ("typed_values", "cents: 1000"),
    ("survive_kill", "all of them are there"),
];

fn runs(name: &str) {
    let output = Command::new(program(name)).env_remove("DARTER_POOL").output().unwrap();
    let says = SAYS.iter().find(|(known, _)| *known == name).unwrap().1;
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{name}: {}\n{out}\n{err}", output.status);
    assert!(out.contains(says), "{name} said:\n{out}");
}

#[test]
fn map() {
    runs("map");
}

#[test]
fn multi_get_and_scan() {
    runs("multi_get_and_scan");
}

#[test]
fn typed_values() {
    runs("typed_values");
}

#[test]
fn survive_kill() {
    runs("survive_kill");
}

#[test]
fn quickstart() {
    runs("quickstart");
}

#[test]
fn cookbook() {
    runs("cookbook");
}
