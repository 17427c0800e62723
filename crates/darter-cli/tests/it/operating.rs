//! Operators' work with memory nodes: starting several at once, reading their metrics and logs, and
//! stopping them.

use crate::common::{darter, said, with_default_hangup};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, ChildStderr, ChildStdout, Command, Stdio};
use std::time::Duration;

/// A `darter` that serves until requested to stop; killed when dropped.
struct Daemon {
    child: Child,
    /// The first line it printed.
    line: String,
    out: BufReader<ChildStdout>,
    log: BufReader<ChildStderr>,
    /// The part of the log that was read.
    told: String,
}

impl Daemon {
    fn start(arguments: &[&str]) -> Self {
        Self::start_with(&[], arguments)
    }

    fn start_with(variables: &[(&str, &str)], arguments: &[&str]) -> Self {
        let mut command = with_default_hangup();
        command.args(arguments).envs(variables.iter().copied());
        Self::of(command)
    }

    fn of(mut command: Command) -> Self {
        let mut child = command
            .env_remove("DARTER_LOG")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let out = BufReader::new(child.stdout.take().unwrap());
        let log = BufReader::new(child.stderr.take().unwrap());
        let mut daemon = Self { child, line: String::new(), out, log, told: String::new() };
        daemon.line = daemon.next_line();
        daemon
    }

    /// Returns the next line of stdout.
    fn next_line(&mut self) -> String {
        let mut line = String::new();
        self.out.read_line(&mut line).unwrap();
        line.trim().to_owned()
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// Returns the next JSON line of the log with this message.
    fn wait_for(&mut self, message: &str) -> Value {
        loop {
            let mut line = String::new();
            let is_line = self.log.read_line(&mut line).unwrap() > 0;
            assert!(is_line, "the log ends without `{message}`:\n{}", self.told);
            self.told.push_str(&line);
            let event: Value = serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line}"));
            if event["message"] == message {
                return event;
            }
        }
    }

    /// Returns the exit status, and the log.
    fn end(mut self) -> (Option<i32>, String) {
        self.log.read_to_string(&mut self.told).unwrap();
        (self.child.wait().unwrap().code(), std::mem::take(&mut self.told))
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Waits for a condition that other processes will make true.
fn until(what: &str, mut holds: impl FnMut() -> bool) {
    for _ in 0..6000 {
        if holds() {
            return;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    panic!("never: {what}");
}

/// Returns whether any process listens at an address of a pool.
fn is_anybody_there(url: &str) -> bool {
    let addresses = url.strip_prefix("tcp://").unwrap();
    addresses.split(',').any(|address| TcpStream::connect(address).is_ok())
}

#[test]
fn up_serves_a_pool_until_it_is_stopped() {
    // The variables with certificates of other nodes are not used.
    let variables = ["DARTER_TLS_CA", "DARTER_TLS_CERT", "DARTER_TLS_KEY", "DARTER_TLS_CLIENT_CA"];
    let variables = variables.map(|variable| (variable, "absent"));
    let up = Daemon::start_with(&variables, &["up", "--memnodes", "2", "--size", "16M"]);
    let url = up.line.clone();
    assert!(url.starts_with("tcp://127.0.0.1:") && url.contains(','), "{url}");
    let put = darter(&["put", "--pool", &url, "k", "v"]);
    assert!(put.status.success(), "{}", said(&put));
    assert_eq!(darter(&["get", "--pool", &url, "k"]).stdout, b"v\n");
    up.signal(Signal::TERM);
    let (code, log) = up.end();
    assert_eq!(code, Some(0), "{log}");
    assert_eq!(log.matches("stopped").count(), 2, "both have drained:\n{log}");
    assert!(!is_anybody_there(&url));
}

#[test]
fn up_keeps_a_pool_in_a_directory() {
    let directory = tempfile::tempdir().unwrap();
    let token = directory.path().join("token");
    std::fs::write(&token, "open sesame\n").unwrap();
    let (dir, token) = (directory.path().join("pool"), token.to_str().unwrap());
    let arguments = |memnodes| {
        let dir = dir.to_str().unwrap();
        ["up", "--memnodes", memnodes, "--size", "16M", "--dir", dir, "--token-file", token]
    };
    let mut before = String::new();
    for round in 0..2 {
        let up = Daemon::start(&arguments("2"));
        if round == 0 {
            let refused = darter(&["get", "--pool", &up.line, "k"]);
            assert!(said(&refused).contains("credentials"), "{}", said(&refused));
            assert!(darter(&["put", "--pool", &up.line, "--token-file", token, "k", "v"]).status.success());
        } else {
            // At the same addresses, so the first one is sufficient.
            assert_eq!(up.line, before);
            let first = up.line.split(',').next().unwrap();
            assert_eq!(darter(&["get", "--pool", first, "--token-file", token, "k"]).stdout, b"v\n");
        }
        before.clone_from(&up.line);
        up.signal(Signal::INT);
        let (code, log) = up.end();
        assert_eq!(code, Some(0), "{log}");
        assert!(!log.contains("sesame"), "{log}");
    }
    for memnodes in ["1", "3"] {
        let other = darter(&arguments(memnodes));
        assert_eq!(other.status.code(), Some(2));
        assert!(said(&other).contains("--memnodes"), "{}", said(&other));
    }
}

#[test]
fn nodes_do_not_outlive_up() {
    let mut up = Daemon::start(&["up", "--memnodes", "2", "--size", "16M"]);
    assert!(is_anybody_there(&up.line));
    up.child.kill().unwrap();
    until("the nodes end", || !is_anybody_there(&up.line));
}

/// Returns a gateway's reply to a line.
fn answer(gateway: &str, line: &str, ends: &str) -> String {
    let mut stream = TcpStream::connect(gateway.strip_prefix("redis://").unwrap()).unwrap();
    stream.write_all(format!("{line}\r\n").as_bytes()).unwrap();
    let mut answer = String::new();
    while !answer.ends_with(ends) {
        let mut bytes = [0; 4096];
        let count = stream.read(&mut bytes).unwrap();
        assert!(count > 0, "{line}: {answer}");
        answer.push_str(std::str::from_utf8(&bytes[..count]).unwrap());
    }
    answer
}

#[test]
fn up_goes_on_when_a_gateway_is_killed() {
    let mut up =
        Daemon::start(&["up", "--memnodes", "2", "--gateways", "2", "--size", "16M", "--log-format", "json"]);
    let url = up.line.clone();
    let gateways = [up.next_line(), up.next_line()];
    let mut pages = Vec::new();
    while pages.len() < 2 {
        let mut line = String::new();
        assert!(up.log.read_line(&mut line).unwrap() > 0, "{pages:?}");
        // Messages of `up` itself are between the events.
        let event: Value = serde_json::from_str(&line).unwrap_or_default();
        if event["message"] == "status page" {
            pages.push(event["address"].as_str().unwrap().to_owned());
        }
    }
    assert_eq!(answer(&gateways[0], "SET pear green", "\r\n"), "+OK\r\n");
    let info = answer(&gateways[0], "INFO server", "\r\n\r\n");
    let process = info.lines().find_map(|line| line.strip_prefix("process_id:")).unwrap();
    let process = Pid::from_raw(process.parse().unwrap()).unwrap();
    kill_process(process, Signal::KILL).unwrap();
    assert_eq!(answer(&gateways[1], "GET pear", "green\r\n"), "$5\r\ngreen\r\n");
    until("the pages of the remaining gateways", || {
        let health = |page: &String| {
            let mut stream = TcpStream::connect(page).ok()?;
            stream.write_all(b"GET /healthz HTTP/1.1\r\nHost: g\r\n\r\n").ok()?;
            let mut answer = String::new();
            stream.read_to_string(&mut answer).ok()?;
            answer.ends_with("serving\n").then_some(())
        };
        pages.iter().filter_map(health).count() == 1
    });
    // A process closes its sockets before its parent is notified of its end, so an absent page does
    // not show that `up` knows; its message does.
    let mut line = String::new();
    while !line.contains("the others go on") {
        line.clear();
        assert!(up.log.read_line(&mut line).unwrap() > 0, "up did not report the gateway's end");
    }
    up.signal(Signal::TERM);
    let (code, log) = up.end();
    assert_eq!(code, Some(0), "{log}");
    assert!(
        !is_anybody_there(&url) && TcpStream::connect(gateways[1].strip_prefix("redis://").unwrap()).is_err()
    );
}

#[test]
fn gateways_of_up_require_the_token_or_their_password() {
    let directory = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        let path = directory.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let (token, password) = (file("token", "open sesame\n"), file("password", "friend\n"));
    for (more, known, unknown) in
        [(&[][..], "open sesame", "friend"), (&["--password-file", &password], "friend", "open sesame")]
    {
        let arguments = ["up", "--memnodes", "1", "--gateways", "1", "--size", "16M", "--token-file", &token];
        let mut up = Daemon::start(&[&arguments[..], more].concat());
        let gateway = up.next_line();
        assert!(answer(&gateway, "GET a", "\r\n").starts_with("-NOAUTH"));
        assert!(answer(&gateway, &format!("AUTH \"{unknown}\""), "\r\n").starts_with("-WRONGPASS"));
        assert_eq!(answer(&gateway, &format!("AUTH \"{known}\""), "\r\n"), "+OK\r\n");
        up.signal(Signal::TERM);
        assert_eq!(up.end().0, Some(0));
    }
}

/// Returns the processes started by a process.
fn children(parent: u32) -> Vec<u32> {
    let stat = |path: &Path| std::fs::read_to_string(path.join("stat")).ok();
    let parent_of = |stat: &str| stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok();
    std::fs::read_dir("/proc")
        .unwrap()
        .filter_map(|entry| {
            let path = entry.ok()?.path();
            let pid = path.file_name()?.to_str()?.parse().ok()?;
            (parent_of(&stat(&path)?) == Some(parent)).then_some(pid)
        })
        .collect()
}

#[test]
fn a_node_that_ends_by_itself_ends_up_with_a_no() {
    let up = Daemon::start(&["up", "--memnodes", "3", "--size", "16M"]);
    let url = up.line.clone();
    let nodes = children(up.child.id());
    assert_eq!(nodes.len(), 3);
    let victim = Pid::from_raw(i32::try_from(nodes[1]).unwrap()).unwrap();
    kill_process(victim, Signal::KILL).unwrap();
    let (code, log) = up.end();
    assert_eq!(code, Some(1), "{log}");
    assert!(log.contains(&format!("process {}: ended by itself", nodes[1])), "{log}");
    assert!(!is_anybody_there(&url));
}

#[test]
fn up_tells_why_it_cannot_start() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("file");
    std::fs::write(&file, "").unwrap();
    for arguments in [
        &["up", "--memnodes", "0"][..],
        &["up", "--memnodes", "257"],
        &["up", "--size", "lots"],
        &["up", "--gateways", "257"],
        &["up", "--gateways", "3", "--resp-port", "65534"],
        &["serve", "--resp", "127.0.0.1:0", "--pool", "mem:16M", "--http", "nowhere"],
        &["up", "--dir", file.to_str().unwrap()],
        &["up", "--token-file", directory.path().join("absent").to_str().unwrap()],
        &["memnode", "--listen", "127.0.0.1:0", "--size", "1M", "--frame-bytes", "1G"],
        &["memnode", "--listen", "127.0.0.1:0", "--size", "1M", "--buffer-bytes", "1M"],
        &["memnode", "--listen", "127.0.0.1:0", "--size", "1M", "--patience", "NaN"],
        &["memnode", "--listen", "127.0.0.1:0", "--size", "1M", "--drain", "-1"],
        &["memnode", "--listen", "127.0.0.1:0", "--size", "1M", "--log-level", "loud"],
        &["memnode", "--listen", "127.0.0.1:0", "--size", "1M", "--huge-pages", "--file", "f"],
    ] {
        let output = darter(arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {}", said(&output));
    }
    // Too small for a pool: the nodes start and are stopped again.
    let small = darter(&["up", "--memnodes", "2", "--size", "4K"]);
    assert!(!small.status.success() && small.stdout.is_empty(), "{}", said(&small));
}

#[test]
fn a_node_logs_events_but_never_the_token() {
    let directory = tempfile::tempdir().unwrap();
    let token = directory.path().join("token");
    std::fs::write(&token, "open sesame\n").unwrap();
    let token = token.to_str().unwrap();
    let mut node = Daemon::start(&[
        "memnode",
        "--listen",
        "127.0.0.1:0",
        "--size",
        "16M",
        "--token-file",
        token,
        "--metrics",
        "127.0.0.1:0",
        "--log-format",
        "json",
    ]);
    let url = node.line.clone();
    let metrics = node.wait_for("metrics");
    let listening = node.wait_for("listening");
    assert_eq!(listening["span"]["node"], url.strip_prefix("tcp://").unwrap());
    assert!(!darter(&["pool", "create", "--pool", &url]).status.success());
    let refused = node.wait_for("connection refused");
    assert_eq!(refused["reason"], "credentials");
    assert!(refused["peer"].as_str().unwrap().starts_with("127.0.0.1:"), "{refused}");
    assert!(darter(&["pool", "create", "--pool", &url, "--token-file", token]).status.success());
    node.wait_for("connection accepted");
    let mut stream = TcpStream::connect(metrics["address"].as_str().unwrap()).unwrap();
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: node\r\n\r\n").unwrap();
    let mut page = String::new();
    stream.read_to_string(&mut page).unwrap();
    assert!(page.contains("darter_memnode_refused_connections_total{reason=\"credentials\"} 1\n"), "{page}");
    assert!(page.ends_with("# EOF\n"), "{page}");
    node.signal(Signal::TERM);
    node.wait_for("draining");
    let stopped = node.wait_for("stopped");
    assert_eq!(stopped["refused"], 1, "{stopped}");
    let (code, log) = node.end();
    assert_eq!(code, Some(0), "{log}");
    assert!(!log.contains("sesame"), "{log}");
}

#[test]
fn a_flood_of_refusals_is_logged_as_a_sum() {
    let mut node =
        Daemon::start(&["memnode", "--listen", "127.0.0.1:0", "--size", "1M", "--log-format", "json"]);
    let floods = 300;
    for _ in 0..floods {
        let mut stream = TcpStream::connect(node.line.strip_prefix("tcp://").unwrap()).unwrap();
        stream.write_all(b"GET / HTTP/1.1\r\nHost: memory.node\r\n\r\n").unwrap();
        // Disconnected, by a reset or not.
        let _ = stream.read(&mut [0]);
    }
    node.signal(Signal::TERM);
    assert_eq!(node.wait_for("stopped")["refused"], floods);
    let (_, log) = node.end();
    let events = log.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let (mut lines, mut left_out) = (0, 0);
    for event in events {
        match event["message"].as_str().unwrap() {
            "connection refused" => lines += 1,
            "more connections refused, not logged individually" => {
                left_out += event["count"].as_u64().unwrap();
            }
            _ => {}
        }
    }
    assert_eq!(lines + left_out, floods);
    assert!(left_out > 0, "{log}");
}

#[test]
fn a_hangup_ends_a_cluster_that_up_has_started() {
    let server = Daemon::start(&["up", "--memnodes", "1", "--size", "16M"]);
    server.signal(Signal::HUP);
    let (code, log) = server.end();
    assert!(code == Some(0) && log.contains("stopped"), "{code:?}: {log}");
}

#[test]
fn a_hangup_makes_a_node_read_its_token_again() {
    let directory = tempfile::tempdir().unwrap();
    let token = directory.path().join("token");
    let path = token.to_str().unwrap();
    std::fs::write(&token, "old\n").unwrap();
    let options = ["--size", "16M", "--log-format", "json", "--token-file", path];
    let mut node = Daemon::start(&[&["memnode", "--listen", "127.0.0.1:0"], &options[..]].concat());
    let url = node.line.clone();
    let as_client = |arguments: &[&str], token: &str| {
        let own = directory.path().join("own");
        std::fs::write(&own, token).unwrap();
        let arguments = [arguments, &["--pool", &url, "--token-file", own.to_str().unwrap()]].concat();
        darter(&arguments)
    };
    assert!(as_client(&["pool", "create"], "old").status.success());
    // The reason names the file, and the node goes on with its old token.
    std::fs::write(&token, "").unwrap();
    node.signal(Signal::HUP);
    let failed = node.wait_for("cannot be used; the earlier ones stay in use");
    assert!(failed["why"].as_str().unwrap().contains(path), "{failed}");
    assert!(as_client(&["put", "pear", "green"], "old").status.success());
    std::fs::write(&token, "new\nold\n").unwrap();
    node.signal(Signal::HUP);
    assert_eq!(node.wait_for("read again, and in use for new connections")["what"], "token");
    for token in ["old", "new", "new\nold"] {
        assert!(as_client(&["get", "pear"], token).status.success(), "{token}");
    }
    // Without a signal, a connection finds the change.
    std::fs::write(&token, "new\n").unwrap();
    let refused = as_client(&["get", "pear"], "old");
    assert!(refused.status.code() == Some(1) && said(&refused).contains("credentials"), "{}", said(&refused));
    assert!(as_client(&["get", "pear"], "new").status.success());
    node.signal(Signal::TERM);
    node.wait_for("stopped");
    assert_eq!(node.end().0, Some(0));
}

#[test]
fn a_hangup_that_was_ignored_at_the_start_has_no_effect() {
    let mut command = Command::new("nohup");
    command.arg(env!("CARGO_BIN_EXE_darter")).args([
        "memnode",
        "--listen",
        "127.0.0.1:0",
        "--size",
        "16M",
        "--log-format",
        "json",
    ]);
    let mut node = Daemon::of(command);
    node.signal(Signal::HUP);
    let url = node.line.clone();
    assert!(darter(&["pool", "create", "--pool", &url]).status.success(), "it serves");
    node.signal(Signal::TERM);
    node.wait_for("stopped");
    assert_eq!(node.end().0, Some(0));
}

#[test]
fn a_second_signal_ends_a_node_that_drains() {
    let options = ["--size", "1M", "--drain", "86400", "--patience", "86400", "--log-format", "json"];
    let mut node = Daemon::start(&[&["memnode", "--listen", "127.0.0.1:0"], &options[..]].concat());
    // A connection without a handshake, which is waited for.
    let _silent = TcpStream::connect(node.line.strip_prefix("tcp://").unwrap()).unwrap();
    node.signal(Signal::TERM);
    node.wait_for("draining");
    node.signal(Signal::INT);
    let dropped = node.wait_for("connection dropped");
    assert_eq!(dropped["reason"], "closing");
    assert_eq!(node.end().0, Some(0));
}

#[test]
fn a_file_is_overwritten_only_if_requested() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("fruit.pool");
    std::fs::write(&path, vec![7; 1 << 16]).unwrap();
    let pool = format!("file:{}?size=16M", path.display());
    let refused = darter(&["pool", "create", "--pool", &pool]);
    assert_eq!(refused.status.code(), Some(2), "{}", said(&refused));
    assert!(said(&refused).contains("--overwrite"), "{}", said(&refused));
    assert_eq!(std::fs::read(&path).unwrap(), vec![7; 1 << 16]);
    let made = darter(&["pool", "create", "--overwrite", "--pool", &pool]);
    assert!(made.status.success() && said(&made).contains("created"), "{}", said(&made));
    assert!(darter(&["put", "pear", "green", "--pool", &pool]).status.success());
}
