//! Groups of replicas with logs: all are killed at once or one after the other, and lose what they
//! had not synced; or one is killed, and clients must not notice.

use super::{
    KEYS, Known, NODE_BYTES, NodeProcess, WRITERS, judge, log_options, read_until_killed, rounds,
    spawn_writers,
};
use darter::Store;
use darter_fabric::{ReplicaGroups, ReplicaRole, Tcp, TcpOptions};
use darter_group::Options;
use darter_memnode::{GroupOptions, MemNode, MemNodeOptions, Region, Stop, Views};
use darter_views::ViewStore;
use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// The description of a replica, for its process: its index, the addresses of all, and the least
/// number of members.
const REPLICA: &str = "DARTER_POWER_REPLICA";
/// How long replicas wait for each other: short, since most rounds wait that long.
const PATIENCE: Duration = Duration::from_millis(500);
/// How long clients wait for a group.
const CLIENT_PATIENCE: Duration = Duration::from_secs(5);
/// Longer than any wait on a busy machine.
const LONG: Duration = Duration::from_secs(120);

/// If this process is a replica, runs it until it is killed.
#[test]
#[ignore = "other tests start it"]
fn replica_process() {
    let Some(replica) = std::env::var_os(REPLICA) else { return };
    let replica = replica.into_string().unwrap();
    let parts: Vec<&str> = replica.split(' ').collect();
    let [me, addresses, members_min, directory] = parts[..] else { panic!("{replica}") };
    let (me, replicas) =
        (me.parse::<usize>().unwrap(), addresses.split('+').map(str::to_owned).collect::<Vec<_>>());
    let directory = Path::new(directory);
    let mut store = ViewStore::open(&format!("file:{}", directory.join("views").display()), 0).unwrap();
    let views = Views::new(move |request| store.carry_out(request).map_err(|error| error.to_string()));
    let times = Options {
        lease: PATIENCE * 3 / 5,
        patience: PATIENCE,
        members_min: members_min.parse().unwrap(),
        ..Options::default()
    };
    let address: SocketAddr = replicas[me].parse().unwrap();
    let group = GroupOptions { replicas, me, views, times, tls: None };
    let log = directory.join(format!("log-{me}"));
    let region = Region::memory(NODE_BYTES).unwrap().logged_replica(&log, log_options()).unwrap();
    let options = MemNodeOptions { group: Some(group), ..MemNodeOptions::default() };
    MemNode::bind(address, region, options).unwrap().serve(&Stop::default()).unwrap();
}

/// A group of processes.
struct Group {
    directory: tempfile::TempDir,
    addresses: Vec<String>,
    members_min: usize,
    nodes: Vec<Option<NodeProcess>>,
}

impl Group {
    fn new(replicas: usize, members_min: usize) -> Self {
        let listeners: Vec<_> = (0..replicas).map(|_| TcpListener::bind("127.0.0.1:0").unwrap()).collect();
        let addresses = listeners.iter().map(|listener| listener.local_addr().unwrap().to_string()).collect();
        let nodes = (0..replicas).map(|_| None).collect();
        Self { directory: tempfile::tempdir().unwrap(), addresses, members_min, nodes }
    }

    fn address(&self) -> String {
        self.addresses.join("+")
    }

    fn url(&self) -> String {
        format!("tcp://{}?durability=log", self.address())
    }

    fn start(&mut self, at: usize) {
        let directory = self.directory.path().display();
        let replica = format!("{at} {} {} {directory}", self.address(), self.members_min);
        let child = Command::new(std::env::current_exe().unwrap())
            .args(["--ignored", "--exact", "groups::replica_process"])
            .env(REPLICA, replica)
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        self.nodes[at] = Some(NodeProcess(child));
    }

    fn start_all(&mut self) {
        (0..self.nodes.len()).for_each(|at| self.start(at));
    }

    fn kill(&mut self, at: usize) {
        if let Some(mut node) = self.nodes[at].take() {
            node.kill();
        }
    }

    /// Waits until all replicas are members that have the same records.
    fn settle(&self) {
        let end = Instant::now() + LONG;
        loop {
            let tcp = Tcp::connect(&[self.address()], TcpOptions::default());
            let replicas = tcp.as_ref().map(|tcp| tcp.replicas(0)).unwrap_or_default();
            let is_member = |role| matches!(role, ReplicaRole::Primary | ReplicaRole::Backup);
            let states: Vec<_> = replicas.iter().filter_map(|replica| replica.state).collect();
            if states.len() == self.nodes.len() && states.iter().all(|state| is_member(state.role)) {
                return;
            }
            assert!(Instant::now() < end, "not all replicas become members: {states:?}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Opens the pool, and creates it in the first round.
    fn open(&self, is_first: bool) -> Store {
        let end = Instant::now() + LONG;
        loop {
            let tcp = TcpOptions { group_patience: CLIENT_PATIENCE, ..TcpOptions::default() };
            match Store::options().create(is_first).tcp(tcp).open(self.url()) {
                Ok(store) => return store,
                Err(error) => assert!(Instant::now() < end, "{error}"),
            }
        }
    }
}

fn nothing_known() -> Vec<Vec<Known>> {
    (0..WRITERS).map(|_| (0..KEYS).map(|_| Known::default()).collect()).collect()
}

/// Waits until this number of values more were reported.
fn wait_for_more(known: &[Vec<Known>], more: u64) {
    let told = || known.iter().flatten().map(|known| known.told.load(Ordering::Relaxed)).sum::<u64>();
    let (goal, end) = (told() + more, Instant::now() + LONG);
    while told() < goal {
        assert!(Instant::now() < end, "the clients do not go on");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Kills all replicas under load, in changing order, and judges what they have after a restart.
fn lose_nothing(replicas: usize, members_min: usize, rounds: usize) {
    let mut group = Group::new(replicas, members_min);
    let known = nothing_known();
    for round in 0..rounds {
        group.start_all();
        // Sometimes killed at once, while they recover and connect to each other.
        if round % 4 == 3 {
            std::thread::sleep(PATIENCE * (round as u32 / 4 % 4));
            (0..replicas).for_each(|at| group.kill(at));
            continue;
        }
        let store = group.open(round == 0);
        let there = judge(&store, &known, round);
        assert!(round == 0 || there > 0, "something was written");
        let has_ended = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let (store, has_ended, all) = (&store, &has_ended, &known);
            spawn_writers(scope, store, all, has_ended);
            scope.spawn(move || read_until_killed(store, all, has_ended));
            wait_for_more(all, 200);
            for number in 0..replicas {
                group.kill((round + number) % replicas);
                if round % 3 == 1 {
                    // The others go on for a while, with another view or without.
                    std::thread::sleep(PATIENCE * 2);
                }
            }
            has_ended.store(true, Ordering::Relaxed);
        });
    }
    group.start_all();
    let store = group.open(false);
    assert!(judge(&store, &known, rounds) > 0);
    let check = store.check().unwrap();
    assert!(check.violations.is_empty(), "{:?}", check.violations);
    group.settle();
}

#[test]
fn acknowledged_writes_survive_the_power_failure_of_three_replicas() {
    lose_nothing(3, 2, rounds(4));
}

#[test]
fn acknowledged_writes_survive_the_power_failure_of_two_replicas() {
    lose_nothing(2, 1, rounds(2));
}

/// Returns a segment of a log, and the offset in it of a byte of the first record that is replayed.
fn first_record(log: &Path) -> (std::path::PathBuf, usize) {
    let manifest = std::fs::read(log.join("checkpoint")).unwrap();
    let replayed_from = u64::from_le_bytes(manifest[32..40].try_into().unwrap());
    let start = |path: &std::path::PathBuf| {
        let digits = path.file_name()?.to_str()?.strip_prefix("segment-")?;
        u64::from_str_radix(digits, 16).ok()
    };
    let files = std::fs::read_dir(log).unwrap().map(|entry| entry.unwrap().path());
    let segments = files.filter(|path| start(path).is_some_and(|start| start <= replayed_from));
    let path = segments.max_by_key(start).unwrap();
    let at = 4096 + (replayed_from - start(&path).unwrap()) + 20;
    (path, at as usize)
}

/// A replica whose log is damaged takes its state from the others.
#[test]
fn a_damaged_log_is_replaced_by_the_state_of_the_other_replicas() {
    let mut group = Group::new(3, 2);
    group.start_all();
    let known = nothing_known();
    let store = group.open(true);
    group.settle();
    let has_ended = AtomicBool::new(false);
    let write = |store: &Store, more| {
        has_ended.store(false, Ordering::Relaxed);
        std::thread::scope(|scope| {
            spawn_writers(scope, store, &known, &has_ended);
            wait_for_more(&known, more);
            has_ended.store(true, Ordering::Relaxed);
        });
    };
    write(&store, 300);
    for number in 0..2 {
        let log = group.directory.path().join("log-1");
        group.kill(1);
        let (path, at) = if number == 0 { (log.join("checkpoint"), 40) } else { first_record(&log) };
        let mut bytes = std::fs::read(&path).unwrap();
        bytes[at] ^= 0x10;
        std::fs::write(&path, bytes).unwrap();
        group.start(1);
        group.settle();
        assert!(log.join(format!("damaged-{number}")).is_dir(), "the damage was found");
        write(&store, 50);
    }
    // With the state that it has copied it serves, whichever other one is lost.
    group.kill(0);
    write(&store, 50);
    judge(&store, &known, 0);
    assert!(store.check().unwrap().violations.is_empty());
}

/// Clients get no error, and lose nothing.
#[test]
fn clients_do_not_notice_the_power_failure_of_one_replica() {
    let mut group = Group::new(3, 2);
    let known = nothing_known();
    group.start_all();
    let store = group.open(true);
    group.settle();
    let has_ended = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let (store, has_ended, all) = (&store, &has_ended, &known);
        let writers = spawn_writers(scope, store, all, has_ended);
        for round in 0..rounds(5) {
            wait_for_more(all, 100);
            group.kill(round % 3);
            wait_for_more(all, 100);
            group.start(round % 3);
            group.settle();
        }
        let have_failed = writers.iter().any(std::thread::ScopedJoinHandle::is_finished);
        has_ended.store(true, Ordering::Relaxed);
        assert!(!have_failed, "a write failed");
    });
    judge(&store, &known, 0);
    assert!(store.check().unwrap().violations.is_empty());
}
