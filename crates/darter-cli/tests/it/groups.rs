//! Memory groups as processes: replicas that are killed and stopped while clients work, and
//! operators' commands.

use crate::common::{darter, said};
use crate::daemon::{Client, Daemon as Gateway};
use darter::engine::Engine;
use darter::{Store, TcpOptions};
use darter_fabric::{Fabric, PoolUrl, ReplicaRole, ReplicaState};
use rustix::process::{Pid, Signal, kill_process};
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// Long after everything should have happened, in tenths of a second.
const LONG: u32 = 3000;
/// Minimum number of writes acknowledged between two deaths.
const ACKNOWLEDGED: u64 = 100;

/// A replica's process.
struct Replica {
    address: String,
    child: Option<Child>,
}

/// The replicas of one memory node.
struct Group {
    directory: TempDir,
    replicas: Vec<Replica>,
}

impl Group {
    fn start(replicas: usize) -> Self {
        let listeners: Vec<_> = (0..replicas).map(|_| TcpListener::bind("127.0.0.1:0").unwrap()).collect();
        let address = |listener: &TcpListener| listener.local_addr().unwrap().to_string();
        let replica = |listener| Replica { address: address(listener), child: None };
        let replicas = listeners.iter().map(replica).collect();
        drop(listeners);
        let mut group = Self { directory: tempfile::tempdir().unwrap(), replicas };
        (0..group.replicas.len()).for_each(|at| group.revive(at));
        group
    }

    fn address(&self) -> String {
        let addresses: Vec<_> = self.replicas.iter().map(|replica| replica.address.as_str()).collect();
        addresses.join("+")
    }

    fn url(&self) -> String {
        format!("tcp://{}", self.address())
    }

    fn views(&self) -> String {
        format!("file:{}", self.directory.path().join("views").display())
    }

    /// Starts a replica, with zeroed memory.
    fn revive(&mut self, at: usize) {
        let (all, views) = (self.address(), self.views());
        let replica = &mut self.replicas[at];
        let mut command = Command::new(env!("CARGO_BIN_EXE_darter"));
        command.args(["memnode", "--size", "32M", "--listen", &replica.address]);
        command.args(["--replicas", &all, "--views", &views, "--log-level", "warn"]);
        let child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let child = replica.child.insert(child);
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line.trim(), format!("tcp://{}", replica.address));
    }

    fn signal(&self, at: usize, signal: &str) {
        let id = self.replicas[at].child.as_ref().unwrap().id().to_string();
        assert!(Command::new("kill").args([signal, &id]).status().unwrap().success());
    }

    /// SIGKILL.
    fn kill(&mut self, at: usize) {
        if let Some(mut child) = self.replicas[at].child.take() {
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }

    fn states(store: &Store) -> Vec<Option<ReplicaState>> {
        store.pool().fabric().replica_groups().replicas(0).iter().map(|replica| replica.state).collect()
    }

    /// Waits until all replicas are members of one view. Returns the replica that serves.
    fn settle(store: &Store) -> usize {
        let mut primary = None;
        until("all replicas are members", || {
            let states = Self::states(store);
            let newest = states.iter().flatten().map(|state| state.view).max();
            let is_member = |state: &Option<ReplicaState>| {
                state.is_some_and(|state| Some(state.view) == newest && state.role != ReplicaRole::Learner)
            };
            let serves =
                |state: &Option<ReplicaState>| state.is_some_and(|state| state.role == ReplicaRole::Primary);
            primary = states.iter().position(serves);
            states.iter().all(is_member) && primary.is_some()
        });
        primary.unwrap()
    }

    /// Waits until all replicas have the same records.
    fn level(store: &Store) {
        until("all replicas have the same records", || {
            let records: Vec<_> =
                Self::states(store).iter().map(|state| state.map(|state| state.record)).collect();
            records.iter().all(|record| record.is_some() && *record == records[0])
        });
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        (0..self.replicas.len()).for_each(|at| self.kill(at));
    }
}

fn until(what: &str, mut holds: impl FnMut() -> bool) {
    for _ in 0..LONG {
        if holds() {
            return;
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    panic!("never: {what}");
}

/// Opens a pool, or creates it. Its members' lease is long, since a process on a busy machine must
/// not count as dead.
fn open(url: &str, creates: bool) -> Store {
    let options = Store::options().lease(Duration::from_secs(60));
    let options = if creates { options.create(true) } else { options.create(false) };
    options.open(url.parse::<PoolUrl>().unwrap()).unwrap()
}

/// Puts its own keys, whose values count up. Every error fails the test, since a failover is only a
/// pause.
fn write(url: &str, writer: u64, has_ended: &AtomicBool, acknowledged: &AtomicU64) -> BTreeMap<Vec<u8>, u64> {
    let store = open(url, false);
    let session = store.session().unwrap();
    let mut model = BTreeMap::new();
    let mut at = 0_u64;
    while !has_ended.load(Ordering::Relaxed) {
        let key = format!("{writer}-{:04}", at * 7919 % 500).into_bytes();
        if at % 5 == 4 {
            session.discard(&key).unwrap();
            model.remove(&key);
        } else {
            // The key has this writer's last value: no write was lost or executed twice.
            let found = session.get(&key).unwrap().map(|value| u64::from_le_bytes(value.try_into().unwrap()));
            assert_eq!(found, model.get(&key).copied(), "{}", String::from_utf8_lossy(&key));
            session.put(&key, at.to_le_bytes()).unwrap();
            model.insert(key, at);
        }
        acknowledged.fetch_add(1, Ordering::Relaxed);
        at += 1;
    }
    model
}

#[test]
fn replicas_that_die_or_hang_lose_no_write_and_cause_no_error() {
    let mut group = Group::start(2);
    let url = group.url();
    let store = open(&url, true);
    let (has_ended, acknowledged) = (AtomicBool::new(false), AtomicU64::new(0));
    let mut model = BTreeMap::new();
    std::thread::scope(|scope| {
        let writers: Vec<_> = (0..2)
            .map(|writer| {
                let (url, has_ended, acknowledged) = (&url, &has_ended, &acknowledged);
                scope.spawn(move || write(url, writer, has_ended, acknowledged))
            })
            .collect();
        for round in 0..5 {
            let so_far = acknowledged.load(Ordering::Relaxed);
            until("writers go on", || {
                assert!(writers.iter().all(|writer| !writer.is_finished()), "a writer has failed");
                acknowledged.load(Ordering::Relaxed) >= so_far + ACKNOWLEDGED
            });
            let primary = Group::settle(&store);
            match round {
                // Longer than any lease: another replica serves when this one goes on.
                2 => {
                    group.signal(primary, "-STOP");
                    std::thread::sleep(Duration::from_millis(2500));
                    group.signal(primary, "-CONT");
                }
                // A backup.
                3 => {
                    group.kill(1 - primary);
                    group.revive(1 - primary);
                }
                _ => {
                    group.kill(primary);
                    group.revive(primary);
                }
            }
        }
        has_ended.store(true, Ordering::Relaxed);
        for writer in writers {
            model.extend(writer.join().unwrap());
        }
    });
    let session = store.session().unwrap();
    let all = session.scan_chunk(&darter::ScanRange::all(), 10_000).unwrap();
    let found: BTreeMap<_, _> =
        all.into_iter().map(|(key, value)| (key, u64::from_le_bytes(value.try_into().unwrap()))).collect();
    assert_eq!(found, model);
    Group::settle(&store);
    Group::level(&store);
    let check = store.check().unwrap();
    assert!(check.is_sound(), "{check:?}");
}

#[test]
fn operators_see_replicas_and_have_another_serve() {
    let group = Group::start(3);
    let url = group.url();
    let created = darter(&["pool", "create", "--pool", &url]);
    assert!(created.status.success(), "{}", said(&created));
    let store = open(&url, false);
    let primary = Group::settle(&store);
    let put = darter(&["put", "pear", "green", "--pool", &url]);
    assert!(put.status.success(), "{}", said(&put));
    let status = said(&darter(&["pool", "status", "--pool", &url]));
    for part in ["replica", "primary", "backup", "behind", &group.replicas[2].address] {
        assert!(status.contains(part), "{part} in\n{status}");
    }
    let next = (primary + 1) % 3;
    let handed = darter(&["pool", "handoff", "0", &group.replicas[next].address, "--pool", &url]);
    assert!(handed.status.success(), "{}", said(&handed));
    assert_eq!(Group::settle(&store), next);
    let json = said(&darter(&["pool", "status", "--json", "--pool", &url]));
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    let replicas = json["nodes"][0]["replicas"].as_array().unwrap();
    let roles: Vec<_> = replicas.iter().map(|replica| replica["role"].as_str().unwrap()).collect();
    assert_eq!((roles.len(), roles[next]), (3, "primary"));
    assert_eq!(said(&darter(&["get", "pear", "--pool", &url])), "green\n");
    let refused = darter(&["pool", "handoff", "0", "127.0.0.1:9", "--pool", &url]);
    assert_eq!(refused.status.code(), Some(1), "{}", said(&refused));
    assert!(said(&refused).contains("not a replica of memory node 0"), "{}", said(&refused));
}

#[test]
fn a_pool_whose_lease_is_too_short_for_failovers_is_refused() {
    let group = Group::start(2);
    let options = Store::options().lease(Duration::from_secs(4)).create(true);
    let refused = options.open(group.url().parse::<PoolUrl>().unwrap()).unwrap_err().to_string();
    assert!(refused.contains("two and a half failovers"), "{refused}");
}

#[test]
fn replicas_of_no_group_are_refused() {
    let views = tempfile::tempdir().unwrap();
    let views = format!("file:{}", views.path().join("views").display());
    let start = |more: &[&str]| {
        let always = ["memnode", "--size", "1M", "--listen", "127.0.0.1:1", "--views", &views];
        let output = darter(&[&always[..], more].concat());
        assert_eq!(output.status.code(), Some(2), "{}", said(&output));
        said(&output)
    };
    assert!(start(&["--replicas", "127.0.0.1:1"]).contains("two addresses or more"));
    assert!(start(&["--replicas", "127.0.0.1:1+nowhere"]).contains("host:port"));
    assert!(start(&["--replicas", "127.0.0.1:2+127.0.0.1:3"]).contains("none of the replicas"));
    assert!(start(&["--replicas", "127.0.0.1:1+127.0.0.1:2", "--file", "x"]).contains("cannot be used with"));
    let two = ["--replicas", "127.0.0.1:1+127.0.0.1:2"];
    assert!(start(&[&two[..], &["--members-min", "3"]].concat()).contains("the number of members, 2"));
    // The log of a lone node is not that of a replica.
    let lone = directory_with_a_log();
    let log = lone.path().to_str().unwrap();
    let replica = ["memnode", "--size", "1M", "--listen", "127.0.0.1:1", "--views", &views];
    let output = darter(&[&replica[..], &two, &["--durability", "log", "--log", log]].concat());
    assert_eq!(output.status.code(), Some(1), "{}", said(&output));
    assert!(said(&output).contains("is not a replica of a memory group"), "{}", said(&output));
    let store = ["--replicas", "127.0.0.1:1+127.0.0.1:2", "--views", "nothing"];
    let output = darter(&[&["memnode", "--size", "1M", "--listen", "127.0.0.1:1"], &store[..]].concat());
    assert!(said(&output).contains("store of views nothing"), "{}", said(&output));
    let rdma = darter(&["pool", "status", "--pool", "rdma://a:1+b:2?device=mlx5_0"]);
    assert!(rdma.status.code() == Some(2) && said(&rdma).contains("no `rdma://`"), "{}", said(&rdma));
}

/// Returns the directory of the log of a node that is not a replica.
fn directory_with_a_log() -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    let region = darter_memnode::Region::memory(1 << 20).unwrap();
    drop(region.logged(directory.path(), darter_memnode::LogOptions::default()).unwrap());
    directory
}

/// `up` restarts a replica that has died, while the pool goes on. The exit code shows which of the
/// two deadlines has ended it: leaving the pool would take minutes.
#[test]
fn a_gateway_whose_memory_group_is_gone_ends_on_signals() {
    for (drain, signals, code) in [("1", 1, 1), ("86400", 2, 130)] {
        let mut group = Group::start(2);
        let url = group.url();
        let made = darter(&["pool", "create", "--pool", &url]);
        assert!(made.status.success(), "{}", said(&made));
        let arguments = ["serve", "--resp", "127.0.0.1:0", "--pool", &url, "--drain", drain];
        let arguments = [&arguments[..], &["--group-patience", "86400"]].concat();
        let mut gateway = Gateway::start(&arguments);
        let mut client = Client::new(&gateway.address);
        assert_eq!(client.ask("set a b").unwrap().0, "+OK");
        (0..2).for_each(|at| group.kill(at));
        for signal in [Signal::TERM, Signal::INT].into_iter().take(signals) {
            kill_process(Pid::from_child(&gateway.child), signal).unwrap();
            std::thread::sleep(Duration::from_millis(100));
        }
        assert_eq!(gateway.child.wait().unwrap().code(), Some(code), "{signals} signals");
    }
}

/// A command waits for the group for the time of `--group-patience`, and later commands do not wait
/// that long again. With the default for clients each would take half a minute.
#[test]
fn commands_to_a_memory_group_that_is_gone_fail_soon() {
    let mut group = Group::start(2);
    let url = group.url();
    let made = darter(&["pool", "create", "--pool", &url]);
    assert!(made.status.success(), "{}", said(&made));
    let serve = ["serve", "--resp", "127.0.0.1:0", "--pool", &url, "--no-expiry-walk"];
    let gateway = Gateway::start(&[&serve[..], &["--group-patience", "4"]].concat());
    let mut client = Client::new(&gateway.address);
    assert_eq!(client.ask("set a b").unwrap().0, "+OK");
    (0..2).for_each(|at| group.kill(at));
    let begin = Instant::now();
    for _ in 0..100 {
        let reply = client.ask("set a b").unwrap().0;
        assert!(reply.starts_with('-'), "{reply}");
    }
    assert!(begin.elapsed() < Duration::from_secs(200), "{:?}", begin.elapsed());
}

#[test]
fn up_with_replicas_outlives_one_of_them() {
    let (mut up, url) = start_up(&["--memnodes", "2", "--replicas", "2", "--size", "32M"]);
    assert_eq!(url.matches('+').count(), 2, "{url}");
    assert!(darter(&["put", "pear", "green", "--pool", &url]).status.success());
    let store = open(&url, false);
    let states = || -> Vec<Option<ReplicaState>> {
        (0..2)
            .flat_map(|node| store.pool().fabric().replica_groups().replicas(node))
            .map(|replica| replica.state)
            .collect()
    };
    let are_members =
        || states().iter().all(|state| state.is_some_and(|state| state.role != ReplicaRole::Learner));
    until("all replicas are members", are_members);
    let before = states();
    let children = children_of(up.id());
    assert_eq!(children.len(), 4);
    assert!(Command::new("kill").args(["-KILL", &children[0]]).status().unwrap().success());
    assert_eq!(said(&darter(&["get", "pear", "--pool", &url])), "green\n");
    until("a replica was started again", || {
        let views =
            |states: &[Option<ReplicaState>]| states.iter().flatten().map(|state| state.view).sum::<u64>();
        are_members() && views(&states()) > views(&before)
    });
    assert_eq!(said(&darter(&["get", "pear", "--pool", &url])), "green\n");
    drop(store);
    assert!(Command::new("kill").args(["-TERM", &up.id().to_string()]).status().unwrap().success());
    up.wait().unwrap();
}

/// Starts `up` with three replicas whose logs are in a directory. Returns the pool's URL too.
fn up_with_logs(dir: &str) -> (std::process::Child, String) {
    let arguments =
        ["--memnodes", "1", "--replicas", "3", "--size", "16M", "--dir", dir, "--durability", "log"];
    start_up(&[&["--suspect-after", "0.5"], &arguments[..]].concat())
}

/// Starts `up` with these arguments. Returns the pool's URL too.
fn start_up(arguments: &[&str]) -> (std::process::Child, String) {
    let mut up = Command::new(env!("CARGO_BIN_EXE_darter"))
        .args([&["up", "--log-level", "warn"], arguments].concat())
        .env_remove("DARTER_POOL")
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut url = String::new();
    BufReader::new(up.stdout.take().unwrap()).read_line(&mut url).unwrap();
    (up, url.trim().to_owned())
}

/// All processes are killed at once, then stopped in order; each time the pool is there again.
#[test]
fn up_with_replicas_and_logs_survives_the_end_of_all_its_processes() {
    let directory = tempfile::tempdir().unwrap();
    let dir = directory.path().join("fruit");
    let dir = dir.to_str().unwrap();
    let (mut up, url) = up_with_logs(dir);
    let durable = format!("{url}?durability=log");
    assert!(darter(&["put", "pear", "green", "--pool", &durable]).status.success());
    let children = children_of(up.id());
    assert_eq!(children.len(), 3);
    up.kill().unwrap();
    assert!(Command::new("kill").arg("-KILL").args(&children).status().unwrap().success());
    up.wait().unwrap();
    let (mut up, again) = up_with_logs(dir);
    assert_eq!(again, url);
    assert_eq!(said(&darter(&["get", "pear", "--pool", &durable])), "green\n");
    assert!(darter(&["put", "fig", "blue", "--pool", &durable]).status.success());
    assert!(Command::new("kill").args(["-TERM", &up.id().to_string()]).status().unwrap().success());
    up.wait().unwrap();
    let (mut up, again) = up_with_logs(dir);
    assert_eq!(again, url);
    for (key, value) in [("pear", "green\n"), ("fig", "blue\n")] {
        assert_eq!(said(&darter(&["get", key, "--pool", &durable])), value);
    }
    assert!(Command::new("kill").args(["-TERM", &up.id().to_string()]).status().unwrap().success());
    up.wait().unwrap();
    let refused = |arguments: &[&str]| {
        let output = darter(&[&["up", "--memnodes", "1", "--size", "16M", "--dir", dir], arguments].concat());
        assert_eq!(output.status.code(), Some(2), "{}", said(&output));
        said(&output)
    };
    assert!(refused(&["--replicas", "3"]).contains("add --durability log"));
    let other = refused(&["--replicas", "2", "--durability", "log"]);
    assert!(other.contains("3 replicas; give that number"), "{other}");
    assert!(refused(&["--durability", "log"]).contains("give that number"));
}

fn children_of(parent: u32) -> Vec<String> {
    let threads = Path::new("/proc").join(parent.to_string()).join("task");
    let lists = std::fs::read_dir(threads)
        .unwrap()
        .map(|thread| std::fs::read_to_string(thread.unwrap().path().join("children")).unwrap_or_default());
    lists.flat_map(|list| list.split_whitespace().map(str::to_owned).collect::<Vec<_>>()).collect()
}

/// Without a limit the end of the store would wait for the group several times.
#[test]
fn a_store_whose_group_is_gone_is_dropped_before_its_operations_give_up() {
    let mut group = Group::start(2);
    let tcp = TcpOptions { group_patience: Duration::from_secs(86_400), ..TcpOptions::default() };
    let store = Store::options().create(true).tcp(tcp).open(group.url()).unwrap();
    let session = store.session().unwrap();
    session.put("key", "value").unwrap();
    (0..2).for_each(|at| group.kill(at));
    let (dropped, has_ended) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        drop((session, store));
        dropped.send(()).unwrap();
    });
    has_ended.recv_timeout(Duration::from_secs(u64::from(LONG / 10))).expect("the store is dropped");
}
