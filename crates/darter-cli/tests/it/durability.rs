//! Durable memory nodes from the operator's point of view.

use crate::common::{darter, may_mount, mounting, said};
use darter::{Error, Store};
use rustix::process::{Pid, Signal, kill_process};
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// A `darter` process that serves until it is dropped, and the first line that it prints.
struct Serving {
    child: Child,
    line: String,
}

impl Serving {
    fn start(arguments: &[&str]) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_darter"));
        command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert!(line.starts_with("tcp://"), "{line}");
        Self { child, line: line.trim().to_owned() }
    }

    fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn memnode(log: &Path) -> Serving {
    let log = log.to_str().unwrap();
    Serving::start(&[
        "memnode",
        "--listen",
        "127.0.0.1:0",
        "--size",
        "64M",
        "--durability",
        "log",
        "--log",
        log,
        "--segment-bytes",
        "1M",
        "--checkpoint-bytes",
        "1M",
    ])
}

#[test]
fn a_node_with_a_log_comes_back_with_all_that_was_acknowledged() {
    let directory = tempfile::tempdir().unwrap();
    let log = directory.path().join("log");
    for round in 0..3 {
        let node = memnode(&log);
        let url = format!("{}?durability=log", node.line);
        if round == 0 {
            let created = darter(&["pool", "create", "--pool", &url]);
            assert!(created.status.success(), "{}", said(&created));
        }
        for number in 0..5 {
            let put = darter(&["put", "--pool", &url, &format!("key {round} {number}"), "value"]);
            assert!(put.status.success(), "{}", said(&put));
        }
        let scanned = darter(&["scan", "--keys-only", "--pool", &url]);
        let keys = String::from_utf8_lossy(&scanned.stdout).lines().count();
        assert_eq!(keys, 5 * (round + 1), "{}", said(&scanned));
        let store = Store::options().durable(true).open(&node.line).unwrap();
        assert_eq!(store.session().unwrap().get(b"key 0 0").unwrap().as_deref(), Some(&b"value"[..]));
        drop(store);
        let check = darter(&["check", "--pool", &url]);
        assert!(check.status.success() && said(&check).contains("violations    0"), "{}", said(&check));
        let status = darter(&["pool", "status", "--pool", &url]);
        assert!(said(&status).contains("durability    on-completion"), "{}", said(&status));
        let status = darter(&["pool", "status", "--json", "--pool", &url]);
        assert!(said(&status).contains(r#""durability":"on-completion""#), "{}", said(&status));
        node.kill();
    }
}

/// Starts a node whose log is on a file system of 24 MiB and, after that has ended, another one on
/// the same file system, which then has more space.
const TWO_NODES: &str = r#"
node() { "$2" memnode --listen 127.0.0.1:0 --size 64M --durability log --log "$1/log" --segment-bytes 1M --checkpoint-bytes 1M; }
mount -t tmpfs -o size=24M none "$1" || exit
node "$@"
mount -o remount,size=512M "$1" && node "$@"
"#;

/// Returns the only child of a process.
fn child_of(process: u32) -> Pid {
    let children = std::fs::read_to_string(format!("/proc/{process}/task/{process}/children")).unwrap();
    Pid::from_raw(children.trim().parse().unwrap()).unwrap()
}

#[test]
fn a_disk_that_is_full_loses_nothing_that_was_acknowledged() {
    if !may_mount() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let mut shell = mounting();
    shell.args(["sh", "-c", TWO_NODES, "sh"]);
    shell.arg(directory.path()).arg(env!("CARGO_BIN_EXE_darter"));
    let mut shell = shell.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut lines = BufReader::new(shell.stdout.take().unwrap()).lines();
    let mut next_node = || lines.next().expect("a node starts").unwrap();
    let value = |number: u32| vec![number as u8; 60_000];

    let store = Store::options().create(true).durable(true).open(next_node()).unwrap();
    let session = store.session().unwrap();
    let mut acknowledged = 0;
    let error = loop {
        match session.put(acknowledged.to_string(), value(acknowledged)) {
            Ok(_) => acknowledged += 1,
            Err(error) => break error,
        }
    };
    assert!(error.to_string().contains("no longer acknowledges"), "{error}");
    assert!(acknowledged > 50, "the disk had room for {acknowledged} values");
    // It keeps refusing, including reads of values that were not acknowledged.
    assert!(session.put("later", "value").is_err());
    drop((session, store));

    kill_process(child_of(shell.id()), Signal::KILL).unwrap();
    let store = Store::options().durable(true).open(next_node()).unwrap();
    let session = store.session().unwrap();
    for number in 0..acknowledged {
        assert!(session.get(number.to_string()).unwrap() == Some(value(number)), "value {number}");
    }
    session.put("later", "value").unwrap();
    drop((session, store));
    kill_process(child_of(shell.id()), Signal::KILL).unwrap();
    shell.wait().unwrap();
}

#[test]
fn a_pool_that_must_be_durable_refuses_other_nodes() {
    let plain = Serving::start(&["memnode", "--listen", "127.0.0.1:0", "--size", "64M"]);
    let url = format!("{}?durability=log", plain.line);
    let refused = darter(&["pool", "create", "--pool", &url]);
    assert!(!refused.status.success() && said(&refused).contains("not durable"), "{}", said(&refused));
    let opened = Store::options().durable(true).create(true).open(&plain.line);
    assert!(matches!(opened, Err(Error::NotDurable { .. })));
    let taken = darter(&["get", "--pool", &plain.line, "pear"]);
    assert!(said(&taken).contains("holds no darter pool"), "nothing was made: {}", said(&taken));
}

#[test]
fn up_keeps_logs_in_its_directory() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().to_str().unwrap();
    let up = [
        "up",
        "--memnodes",
        "2",
        "--size",
        "64M",
        "--dir",
        path,
        "--durability",
        "log",
        "--log-level",
        "warn",
    ];
    for (round, expected) in [(0, None), (1, Some("green"))] {
        let serving = Serving::start(&up);
        let url = format!("{}?durability=log", serving.line);
        let got = darter(&["get", "--pool", &url, "pear"]);
        let found = got.status.success().then(|| String::from_utf8_lossy(&got.stdout).trim().to_owned());
        assert_eq!(found.as_deref(), expected, "round {round}: {}", said(&got));
        assert!(darter(&["put", "--pool", &url, "pear", "green"]).status.success());
        // The nodes detect that it has ended, and stop.
        serving.kill();
        let is_free = |node| std::fs::File::open(directory.path().join(node)).unwrap().try_lock().is_ok();
        while !(is_free("node-0") && is_free("node-1")) {
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
    }
}

#[test]
fn conflicting_options_exit_with_code_2() {
    let node = ["memnode", "--listen", "127.0.0.1:0", "--size", "64M"];
    for (more, what) in [
        (&["--durability", "log"][..], "--log DIR"),
        (&["--log", "/nowhere/log"], "--durability log"),
        (&["--durability", "log", "--log", "/nowhere/log", "--file", "/nowhere/region"], "leave out --file"),
        (&["--durability", "log", "--log", "/nowhere/log", "--rdma", "rxe0"], "leave out --rdma"),
        (&["--durability", "log", "--log", "/nowhere/log", "--checkpoint-bytes", "1K"], "1 MiB"),
    ] {
        let refused = darter(&[&node[..], more].concat());
        assert_eq!(refused.status.code(), Some(2), "{more:?}: {}", said(&refused));
        assert!(said(&refused).contains(what), "{more:?}: {}", said(&refused));
    }
    let up = darter(&["up", "--durability", "log"]);
    assert!(up.status.code() == Some(2) && said(&up).contains("--dir DIR"), "{}", said(&up));
    let file = darter(&["put", "--pool", "file:/nowhere/p?size=64M&durability=log", "k", "v"]);
    assert!(file.status.code() == Some(2) && said(&file).contains("memnode"), "{}", said(&file));
}
