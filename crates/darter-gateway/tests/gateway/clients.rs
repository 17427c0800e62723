//! Redis's own clients: redis-cli, redis-benchmark and redis-py.

use crate::door::{Door, has, index};
use darter::IndexKind;
use std::process::Command;

fn run(program: &str, arguments: &[&str]) -> String {
    finish(Command::new(program).args(arguments))
}

fn finish(command: &mut Command) -> String {
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let err = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {said}{err}");
    said
}

#[test]
fn redis_cli_is_served() {
    if !has("redis-cli", &["--version"]) {
        return;
    }
    let door = Door::open();
    let port = door.address.port().to_string();
    for protocol in ["-2", "-3"] {
        let cli = |words: &[&str]| run("redis-cli", &[&["-p", &port, protocol][..], words].concat());
        assert_eq!(cli(&["set", "greeting", "hello"]), "OK\n");
        assert_eq!(cli(&["get", "greeting"]), "hello\n");
        assert_eq!(cli(&["--scan", "--pattern", "greet*"]), "greeting\n");
        assert!(cli(&["info", "server"]).contains("darter_version:"));
        assert!(cli(&["command", "docs", "range"]).contains("two bounds"));
        assert!(cli(&["config", "get", "save"]).contains("save"));
        assert!(cli(&["client", "list"]).contains("cmd=client"));
        assert_eq!(cli(&["flushall"]), "OK\n");
    }
}

#[test]
fn redis_benchmark_is_served() {
    if !has("redis-benchmark", &["--version"]) {
        return;
    }
    let door = Door::open();
    let port = door.address.port().to_string();
    for pipeline in ["1", "16"] {
        let said = run(
            "redis-benchmark",
            &["-p", &port, "-n", "2000", "-P", pipeline, "-t", "ping,set,get,incr,mset", "--csv"],
        );
        assert!(said.contains("\"GET\"") && !said.contains("ERR"), "{said}");
    }
}

/// Debian's library supports only RESP2; `scripts/test-tools` installs a newer one as well.
#[test]
fn redis_py_is_served() {
    let tools = concat!(env!("CARGO_MANIFEST_DIR"), "/../../.tools/python");
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/gateway/redis_py.py");
    let transactions = if index() == IndexKind::Dart { "" } else { "transactions" };
    let mut protocols = Vec::new();
    // The system's interpreter, to which its packages belong, before another.
    for (python, path) in
        [("/usr/bin/python3", ""), ("python3", ""), ("/usr/bin/python3", tools), ("python3", tools)]
    {
        let knows = Command::new(python).env("PYTHONPATH", path).args(["-c", "import redis"]).output();
        if !knows.is_ok_and(|output| output.status.success()) {
            continue;
        }
        let door = Door::open();
        let mut command = Command::new(python);
        command.env("PYTHONPATH", path).args([script, &door.address.port().to_string(), transactions]);
        let said = finish(&mut command);
        protocols.extend(
            ["RESP2", "RESP3"].into_iter().filter(|name| said.contains(&format!("{name}: all well"))),
        );
    }
    for protocol in ["RESP2", "RESP3"] {
        if !protocols.contains(&protocol) {
            assert!(
                std::env::var_os("DARTER_TEST_ALL").is_none(),
                "{protocol} is required; run scripts/test-tools"
            );
            eprintln!("skipped: no redis-py for {protocol}; run scripts/test-tools");
        }
    }
}
