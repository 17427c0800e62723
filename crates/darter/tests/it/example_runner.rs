//! Runs an example of the library as a program. Shared with the tests of `darter-memnode`, which run
//! the same examples over memory nodes.

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
                concat!(env!("CARGO_MANIFEST_DIR"), "/../darter/Cargo.toml"),
            ])
            .args(["--example", name])
            .status()
            .unwrap();
        assert!(cargo.success());
    }
    program
}

/// What each example prints when it has done its work.
const SAYS: [(&str, &str); 10] = [
    ("quickstart", "plum is blue"),
    ("cookbook", "every recipe ran"),
    ("map", "flying = fish"),
    ("multi_get_and_scan", "10 keys in"),
    ("typed_values", "cents: 1000"),
    ("survive_kill", "all of them are there"),
    ("worker_pool", "all 200 jobs are done"),
    ("time_series", "roof, second half hour: 44.99"),
    ("secondary_index", "Emmy lives in London"),
    ("tokio_service", "get pear: Some(\"green\")"),
];

/// Runs an example over the pool that it chooses, or the one given, and checks what it prints.
pub(crate) fn runs(name: &str, pool: Option<&str>) {
    let mut command = Command::new(program(name));
    match pool {
        Some(pool) => command.env("DARTER_POOL", pool),
        None => command.env_remove("DARTER_POOL"),
    };
    let output = command.output().unwrap();
    let says = SAYS.iter().find(|(known, _)| *known == name).unwrap().1;
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{name}: {}\n{out}\n{err}", output.status);
    assert!(out.contains(says), "{name} said:\n{out}");
}
