//! Memory nodes that are killed and restarted while clients stay: with a log, with a file, and
//! empty.

use crate::common::{darter, said};
use darter::{Session, Store};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// Maximum number of attempts until a condition is true; together they take minutes.
const ATTEMPTS: usize = 6000;
const PAUSE: Duration = Duration::from_millis(20);

/// A process of the program that serves until it is dropped.
struct Daemon {
    child: Child,
    /// `host:port`.
    address: String,
}

impl Daemon {
    /// Starts a process, which prints its URL.
    fn start(arguments: &[&str]) -> Self {
        Self::try_start(arguments).unwrap_or_else(|| panic!("{arguments:?} does not start"))
    }

    fn try_start(arguments: &[&str]) -> Option<Self> {
        let mut command = Command::new(env!("CARGO_BIN_EXE_darter"));
        command.args(arguments);
        Self::spawn(command)
    }

    fn spawn(mut command: Command) -> Option<Self> {
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        if let Some((_, address)) = line.trim().split_once("://") {
            Some(Self { child, address: address.to_owned() })
        } else {
            child.wait().unwrap();
            None
        }
    }

    fn memnode(listen: &str, options: &[&str]) -> Self {
        let node = [&["memnode", "--listen", listen], options].concat();
        // The address may still be in use for a moment.
        let started = (0..ATTEMPTS).find_map(|_| {
            Self::try_start(&node).or_else(|| {
                std::thread::sleep(PAUSE);
                None
            })
        });
        started.unwrap_or_else(|| panic!("{node:?} does not start"))
    }

    fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Kills the node, and starts another at its address.
    fn restart(&mut self, options: &[&str]) {
        self.kill();
        *self = Self::memnode(&self.address.clone(), options);
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A client of a gateway with a lasting connection.
struct Redis(BufReader<TcpStream>);

impl Redis {
    fn connect(gateway: &Daemon) -> Self {
        Self(BufReader::new(TcpStream::connect(&gateway.address).unwrap()))
    }

    /// Sends a command. Returns the reply's line, or the string that it announces.
    fn call(&mut self, command: &str) -> String {
        self.0.get_mut().write_all(format!("{command}\r\n").as_bytes()).unwrap();
        let mut line = String::new();
        self.0.read_line(&mut line).unwrap();
        assert!(line.ends_with("\r\n"), "the gateway has closed the connection: {line:?}");
        let line = line.trim_end().to_owned();
        let Some(length) = line.strip_prefix('$').and_then(|length| length.parse::<usize>().ok()) else {
            return line;
        };
        let mut string = vec![0; length + 2];
        self.0.read_exact(&mut string).unwrap();
        String::from_utf8(string[..length].to_vec()).unwrap()
    }

    /// Repeats a command until its reply is not an error. Returns that reply and the errors before.
    fn call_until_done(&mut self, command: &str) -> (String, Vec<String>) {
        let mut errors = Vec::new();
        for _ in 0..ATTEMPTS {
            let reply = self.call(command);
            if !reply.starts_with('-') {
                return (reply, errors);
            }
            errors.push(reply);
            std::thread::sleep(PAUSE);
        }
        panic!("{command}: {:?}", errors.last());
    }
}

/// Returns whether a condition becomes true.
fn becomes_true(mut is_true: impl FnMut() -> bool) -> bool {
    (0..ATTEMPTS).any(|_| {
        let found = is_true();
        if !found {
            std::thread::sleep(PAUSE);
        }
        found
    })
}

#[test]
fn a_gateway_and_a_store_outlast_crashes_of_node_0_with_a_log() {
    let directory = tempfile::tempdir().unwrap();
    let log = directory.path().join("log");
    let options = ["--size", "64M", "--durability", "log", "--log", log.to_str().unwrap()];
    let mut node = Daemon::memnode("127.0.0.1:0", &options);
    let url = format!("tcp://{}", node.address);
    let created = darter(&["pool", "create", "--pool", &url]);
    assert!(created.status.success(), "{}", said(&created));
    let mut gateway = Daemon::start(&["serve", "--resp", "127.0.0.1:0", "--pool", &url]);
    let mut client = Redis::connect(&gateway);
    let store = Store::open(&url).unwrap();
    assert_eq!(client.call("SET round 0"), "+OK");
    let session = store.session().unwrap();
    session.put("mine", "0").unwrap();
    let rows: Vec<String> = (0..200).map(|row| format!("row/{row:03}")).collect();
    session.put_many(&rows.iter().map(|row| (row, "")).collect::<Vec<_>>()).unwrap();
    for round in 1..=3 {
        let mut scan = session.prefix("row/");
        assert_eq!(scan.next().unwrap().unwrap().0, rows[0].as_bytes());
        if round == 2 {
            // Requests during the node's absence name it.
            node.kill();
            let error = client.call("GET round");
            assert!(error.starts_with("-ERR") && error.contains("memory node 0"), "{error}");
            let error = session.get("mine").unwrap_err();
            assert!(error.is_disconnected() && error.to_string().contains("memory node 0"), "{error}");
            node = Daemon::memnode(&node.address.clone(), &options);
        } else {
            node.restart(&options);
        }
        let (value, errors) = client.call_until_done("GET round");
        assert_eq!(value, (round - 1).to_string());
        let is_told = |error: &String| error.contains("memory node 0") || error.contains("shut out");
        assert!(errors.iter().all(is_told), "{errors:?}");
        assert!(!errors.iter().any(|error| error.contains("silent beyond its lease;")), "{errors:?}");
        let (stored, _) = client.call_until_done(&format!("SET round {round}"));
        assert_eq!(stored, "+OK");
        assert!(gateway.child.try_wait().unwrap().is_none());

        // The store's session goes on by itself, and so does a scan in progress.
        let read = reads_at_last(&session, "mine");
        assert_eq!(read, (round - 1).to_string().as_bytes());
        session.put("mine", round.to_string()).unwrap();
        assert_eq!((store.joins(), store.is_shut_out()), (round, false));
        assert!(scan.by_ref().map(|pair| pair.unwrap().0).eq(rows[1..].iter().map(String::as_bytes)));
    }
    let store = &store;
    let sessions = (0..4).map(|_| store.session().unwrap()).collect::<Vec<_>>();
    node.restart(&options);
    std::thread::scope(|scope| {
        let read = |session: &Session| assert_eq!(reads_at_last(session, "mine"), b"3");
        for session in sessions {
            scope.spawn(move || read(&session));
        }
    });
    assert_eq!(store.joins(), 4, "one join for all sessions");
    drop((client, gateway));
    let check = darter(&["check", "--pool", &url]);
    assert!(check.status.success() && said(&check).contains("violations    0"), "{}", said(&check));
}

#[test]
fn a_gateway_and_a_store_outlast_crashes_of_any_nodes_with_logs() {
    let directory = tempfile::tempdir().unwrap();
    let logs: Vec<String> =
        (0..3).map(|node| directory.path().join(node.to_string()).to_str().unwrap().to_owned()).collect();
    let options = |node: usize| ["--size", "32M", "--durability", "log", "--log", &logs[node]];
    let mut nodes: Vec<Daemon> = (0..3).map(|node| Daemon::memnode("127.0.0.1:0", &options(node))).collect();
    let url = format!("tcp://{},{},{}", nodes[0].address, nodes[1].address, nodes[2].address);
    assert!(darter(&["pool", "create", "--pool", &url]).status.success());
    let gateway = Daemon::start(&["serve", "--resp", "127.0.0.1:0", "--pool", &url]);
    let mut client = Redis::connect(&gateway);
    let store = Store::open(&url).unwrap();
    let session = store.session().unwrap();
    // Until all nodes have some keys.
    let mut keys = 0;
    while store.usage().unwrap().nodes.iter().any(|node| node.mine < 2) {
        for _ in 0..100 {
            session.put(format!("k{keys}"), keys.to_string().repeat(200)).unwrap();
            assert_eq!(client.call(&format!("SET k{keys} {keys}")), "+OK");
            keys += 1;
        }
    }
    for lost in [&[1][..], &[2], &[1, 2], &[0, 2], &[1], &[0, 1, 2]] {
        for &node in lost {
            nodes[node].kill();
        }
        for &node in lost {
            nodes[node] = Daemon::memnode(&nodes[node].address.clone(), &options(node));
        }
        for key in 0..keys {
            assert_eq!(client.call_until_done(&format!("GET k{key}")).0, key.to_string());
            let value = reads_at_last(&session, &format!("k{key}"));
            assert_eq!(value, key.to_string().repeat(200).as_bytes());
        }
        assert_eq!(client.call("SET k0 0"), "+OK");
        session.put("k0", "0".repeat(200)).unwrap();
    }
    assert!(store.joins() > 0);
    drop((client, gateway));
    let check = darter(&["check", "--pool", &url]);
    assert!(check.status.success() && said(&check).contains("violations    0"), "{}", said(&check));
}

/// Starts the replicas of a group, which wait for each other.
fn group(addresses: &[String], views: &std::path::Path) -> Vec<Daemon> {
    let (replicas, views) = (addresses.join("+"), format!("file:{}", views.display()));
    let options = ["--size", "32M", "--replicas", &replicas, "--views", &views];
    let options = &options;
    std::thread::scope(|scope| {
        let start = |address| scope.spawn(move || Daemon::memnode(address, options));
        let starting: Vec<_> = addresses.iter().map(|address| start(address)).collect();
        starting.into_iter().map(|replica| replica.join().unwrap()).collect()
    })
}

#[test]
fn a_gateway_serves_the_pool_that_is_made_in_place_of_a_lost_group() {
    let directory = tempfile::tempdir().unwrap();
    let addresses = [free_address(), free_address()];
    let mut replicas = group(&addresses, &directory.path().join("views"));
    let url = format!("tcp://{}", addresses.join("+"));
    assert!(darter(&["pool", "create", "--pool", &url]).status.success());
    let gateway = Daemon::start(&["serve", "--resp", "127.0.0.1:0", "--pool", &url]);
    let mut client = Redis::connect(&gateway);
    assert_eq!(client.call("SET key old"), "+OK");
    replicas.iter_mut().for_each(Daemon::kill);
    drop(replicas);
    let _replicas = group(&addresses, &directory.path().join("new"));
    let mut error = String::new();
    assert!(becomes_true(|| {
        error = client.call("GET key");
        error.contains("darter pool create")
    }));
    assert!(error.starts_with("-TRYAGAIN"), "{error}");
    let created = darter(&["pool", "create", "--pool", &url]);
    assert!(created.status.success(), "{}", said(&created));
    assert_eq!(client.call_until_done("GET key").0, "$-1");
    assert_eq!(client.call("SET key new"), "+OK");
}

/// Reads a key whose memory node will soon be back.
fn reads_at_last(session: &Session, key: &str) -> Vec<u8> {
    for _ in 0..ATTEMPTS {
        match session.get(key) {
            Ok(value) => return value.unwrap(),
            Err(error) => assert!(error.is_disconnected(), "{error}"),
        }
        std::thread::sleep(PAUSE);
    }
    panic!("{:?}", session.get(key));
}

#[test]
fn a_gateway_serves_the_pool_that_is_made_in_place_of_a_lost_one() {
    let options = ["--size", "32M"];
    let mut nodes: Vec<Daemon> = (0..2).map(|_| Daemon::memnode("127.0.0.1:0", &options)).collect();
    let url = format!("tcp://{},{}", nodes[0].address, nodes[1].address);
    assert!(darter(&["pool", "create", "--pool", &url]).status.success());
    let http = free_address();
    let mut gateway = Daemon::start(&["serve", "--resp", "127.0.0.1:0", "--http", &http, "--pool", &url]);
    let mut client = Redis::connect(&gateway);
    assert_eq!(client.call("SET key old"), "+OK");
    assert!(becomes_true(|| status_of(&http, "/readyz").starts_with("HTTP/1.1 200")));
    nodes[0].restart(&options);
    // The error says what has happened and what to do, until it is resolved.
    for _ in 0..3 {
        let mut error = String::new();
        assert!(becomes_true(|| {
            error = client.call("GET key");
            error.contains("holds no darter pool") && error.contains("darter pool create")
        }));
        assert!(error.starts_with("-TRYAGAIN"), "{error}");
    }
    assert!(status_of(&http, "/readyz").starts_with("HTTP/1.1 503"), "{}", status_of(&http, "/readyz"));
    let health = status_of(&http, "/healthz");
    assert!(health.contains("degraded") && health.contains("darter pool create"), "{health}");
    assert!(gateway.child.try_wait().unwrap().is_none());
    nodes[1].restart(&options);
    let created = darter(&["pool", "create", "--pool", &url]);
    assert!(created.status.success(), "{}", said(&created));
    assert_eq!(client.call_until_done("GET key").0, "$-1");
    assert_eq!(client.call("SET key new"), "+OK");
    assert_eq!(Redis::connect(&gateway).call("GET key"), "new");
    assert!(becomes_true(|| status_of(&http, "/readyz").starts_with("HTTP/1.1 200")));
    drop(gateway);
    let check = darter(&["check", "--pool", &url]);
    assert!(check.status.success() && said(&check).contains("violations    0"), "{}", said(&check));
}

/// Returns an address that was free just now.
fn free_address() -> String {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string()
}

/// Returns the response of a status page.
fn status_of(address: &str, path: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n").unwrap();
    let mut response = String::new();
    stream.read_to_string(&mut response).unwrap();
    response
}

#[test]
fn a_gateway_goes_on_when_a_node_with_a_file_is_restarted() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("region");
    let options = ["--size", "64M", "--file", file.to_str().unwrap()];
    let mut node = Daemon::memnode("127.0.0.1:0", &options);
    let url = format!("tcp://{}", node.address);
    assert!(darter(&["pool", "create", "--pool", &url]).status.success());
    let gateway = Daemon::start(&["serve", "--resp", "127.0.0.1:0", "--pool", &url]);
    let mut client = Redis::connect(&gateway);
    assert_eq!(client.call("SET round 0"), "+OK");
    for round in 1..=2 {
        node.restart(&options);
        let (value, errors) = client.call_until_done("GET round");
        assert_eq!(value, (round - 1).to_string());
        assert!(errors.iter().all(|error| error.contains("memory node 0")), "{errors:?}");
        assert_eq!(client.call_until_done(&format!("SET round {round}")).0, "+OK");
    }
}

#[test]
fn a_node_that_comes_back_empty_counts_as_lost() {
    let options = ["--size", "4M"];
    let mut nodes: Vec<Daemon> = (0..3).map(|_| Daemon::memnode("127.0.0.1:0", &options)).collect();
    let addresses: Vec<&str> = nodes.iter().map(|node| &node.address[..]).collect();
    let (url, by_first) = (format!("tcp://{}", addresses.join(",")), format!("tcp://{}", addresses[0]));
    assert!(darter(&["pool", "create", "--pool", &url]).status.success());
    let store = Store::open(&url).unwrap();
    let session = store.session().unwrap();
    // Until all nodes have some keys.
    let mut keys = 0;
    while store.usage().unwrap().nodes.iter().any(|node| node.mine < 2) {
        for _ in 0..100 {
            session.put(format!("k{keys}"), vec![7; 1000]).unwrap();
            keys += 1;
        }
    }
    let lost = nodes[2].address.clone();
    nodes[2].kill();
    let readable = |url: &str| {
        let store = Store::options().create(false).open(url).unwrap();
        let session = store.session().unwrap();
        let read = |number: i32| session.get(format!("k{number}"));
        (0..keys).map(read).collect::<Vec<_>>()
    };
    let without: Vec<bool> = readable(&url).iter().map(Result::is_ok).collect();
    assert!(without.contains(&true) && without.contains(&false), "{without:?}");
    nodes[2] = Daemon::memnode(&lost, &options);
    // By all names, and by the first node's, which the directory completes.
    for url in [&url, &by_first] {
        for (outcome, was_there) in readable(url).iter().zip(&without) {
            match outcome {
                Ok(value) => {
                    assert!(*was_there && value.as_ref().is_some_and(|value| value.len() == 1000));
                }
                Err(error) => {
                    assert!(!was_there && error.is_disconnected() && error.is_unsent(), "{error}");
                    let text = error.to_string();
                    assert!(text.contains("memory node 2 was restarted with another memory"), "{text}");
                    assert!(text.contains("darter pool status"), "{text}");
                }
            }
        }
        let status = darter(&["pool", "status", "--pool", url]);
        let advice = format!("memory node 2 ({lost}) was restarted without its contents");
        assert!(status.status.success() && said(&status).contains(&advice), "{}", said(&status));
        assert!(said(&status).contains("`darter import`"), "{}", said(&status));
        let status = darter(&["pool", "status", "--json", "--pool", url]);
        assert!(said(&status).contains(r#""is_lost":true"#), "{}", said(&status));
    }
    // The open store gets the same error.
    let found = becomes_true(|| {
        let read = |number: i32| session.get(format!("k{number}"));
        (0..keys).map(read).any(|outcome| {
            outcome.is_err_and(|error| error.to_string().contains("restarted with another memory"))
        })
    });
    assert!(found);
    // A node of another pool, or at another position, is an error as before.
    let swapped = format!("tcp://{},{},{lost}", nodes[1].address, nodes[0].address);
    let refused = darter(&["get", "k1", "--pool", &swapped]);
    assert!(said(&refused).contains("does not match"), "{}", said(&refused));
}

#[test]
fn store_and_gateway_switch_to_the_pool_that_replaces_a_lost_one() {
    let options = ["--size", "4M"];
    let mut nodes: Vec<Daemon> = (0..3).map(|_| Daemon::memnode("127.0.0.1:0", &options)).collect();
    let url = format!("tcp://{},{},{}", nodes[0].address, nodes[1].address, nodes[2].address);
    let create = |options: &[&str]| darter(&[&["pool", "create", "--pool", &url], options].concat());
    assert!(create(&[]).status.success());
    let gateway = Daemon::start(&["serve", "--resp", "127.0.0.1:0", "--pool", &url]);
    let mut client = Redis::connect(&gateway);
    let store = Store::options().create(false).accept_new_pool(true).open(&url).unwrap();
    let cautious = Store::options().create(false).open(&url).unwrap();
    let session = store.session().unwrap();
    // Until all nodes have some keys of both.
    let mut keys = 0;
    while store.usage().unwrap().nodes.iter().any(|node| node.mine < 1 || node.others < 1) {
        for _ in 0..100 {
            session.put(format!("k{keys}"), "v".repeat(1000)).unwrap();
            assert_eq!(client.call(&format!("SET k{keys} {}", "w".repeat(1000))), "+OK");
            keys += 1;
        }
    }
    let refused = create(&["--overwrite"]);
    assert!(said(&refused).contains("holds a darter pool already"), "{}", said(&refused));
    nodes[1].restart(&options);
    let is_told = |error: &str| error.contains("memory node 1") && error.contains("`darter pool status`");
    // Some operations fail with a reason, the others succeed.
    assert!(becomes_true(|| is_told(&client.call(&format!("GET k{}", keys / 2)))
        || (0..keys).any(|key| is_told(&client.call(&format!("GET k{key}"))))));
    assert!((0..keys).any(|key| session.get(format!("k{key}")).is_ok()));
    let status = darter(&["pool", "status", "--pool", &url]);
    assert!(said(&status).contains("`darter pool create --overwrite`"), "{}", said(&status));
    assert!(!create(&[]).status.success());
    let two = format!("tcp://{},{}", nodes[0].address, nodes[1].address);
    let refused = darter(&["pool", "create", "--overwrite", "--pool", &two]);
    assert!(said(&refused).contains("another number of memory nodes"), "{}", said(&refused));
    let created = create(&["--overwrite"]);
    assert!(created.status.success(), "{}", said(&created));

    assert_eq!(client.call_until_done("GET k0").0, "$-1");
    assert_eq!(client.call("SET k0 new"), "+OK");
    assert_eq!(Redis::connect(&gateway).call("GET k0"), "new");
    assert!(becomes_true(|| session.put("k0", "mine").is_ok()));
    assert_eq!(session.get("k0").unwrap().as_deref(), Some(&b"mine"[..]));
    assert_eq!(session.get("k1").unwrap(), None);
    assert!(store.usage().unwrap().nodes.iter().all(|node| !node.is_absent));
    // A program without the option does not join the new pool.
    let session = cautious.session().unwrap();
    assert!(becomes_true(|| {
        session.get("k0").is_err_and(|error| error.to_string().contains("open the store again to use it"))
    }));
    drop((client, gateway, store, cautious));
    let check = darter(&["check", "--pool", &url]);
    assert!(check.status.success() && said(&check).contains("violations    0"), "{}", said(&check));
}

/// Connections of other clients that never start the handshake.
fn strangers(address: &str) -> Vec<TcpStream> {
    (0..200).filter_map(|_| TcpStream::connect(address).ok()).collect()
}

/// A node whose limit of open files other clients could exhaust, with a gateway to it.
fn crowded(options: &[&str]) {
    let limited = |arguments: &[&str]| {
        let mut command = Command::new("prlimit");
        command.args(["--nofile=64:64", env!("CARGO_BIN_EXE_darter"), "memnode", "--size", "32M"]);
        command.args(["--listen", "127.0.0.1:0"]).args(arguments);
        command
    };
    let Some(node) = Daemon::spawn(limited(options)) else { panic!("the node does not start") };
    let url = format!("tcp://{}", node.address);
    assert!(darter(&["pool", "create", "--pool", &url]).status.success());
    let gateway = Daemon::start(&["serve", "--resp", "127.0.0.1:0", "--pool", &url]);
    let mut client = Redis::connect(&gateway);
    let mut put = |number: u32| {
        let reply = client.call(&format!("SET k{} {}", number % 100, "y".repeat(900)));
        assert_eq!(reply, "+OK", "write {number}");
    };
    put(0);
    let crowd = strangers(&node.address);
    // More than ten segments of a log.
    (0..3000).for_each(&mut put);
    // A new process is admitted.
    let came = darter(&["check", "--pool", &url]);
    assert!(came.status.success(), "{}", said(&came));
    drop(crowd);
    (0..100).for_each(&mut put);
}

#[test]
fn strangers_do_not_keep_a_log_from_its_files() {
    let directory = tempfile::tempdir().unwrap();
    let log = directory.path().join("log");
    let files = ["--segment-bytes", "256K", "--checkpoint-bytes", "1M"];
    crowded(&[&["--durability", "log", "--log", log.to_str().unwrap()], &files[..]].concat());
}

#[test]
fn strangers_do_not_keep_clients_from_a_node() {
    crowded(&[]);
}
