//! Redis's own clients: redis-cli, redis-benchmark and redis-py.

use crate::door::{Door, has};
use std::process::Command;

fn run(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let err = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program} {arguments:?}: {said}{err}");
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

#[test]
fn redis_py_is_served() {
    // The system's, to which its packages belong, before another.
    let pythons = ["/usr/bin/python3", "python3"];
    let knows = |python: &&&str| {
        let status =
            Command::new(python).args(["-c", "import redis"]).stderr(std::process::Stdio::null()).status();
        status.is_ok_and(|status| status.success())
    };
    let Some(python) = pythons.iter().find(knows) else {
        assert!(!has("/usr/bin/python3", &["-c", "import redis"]));
        return;
    };
    let door = Door::open();
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/gateway/redis_py.py");
    let said = run(python, &[script, &door.address.port().to_string()]);
    assert!(said.contains("all well"), "{said}");
}
