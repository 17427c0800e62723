//! Memory nodes with a log, each in a process that is killed by SIGKILL in a loop under load, and
//! whose unsynced data is discarded: everything that a client has read or has an acknowledgement
//! for is present afterwards. `groups.rs` does the same with groups of such nodes.
//!
//! The node is this program, started again to run the test `node_process`.
//! `DARTER_POWER_ROUNDS=200 cargo test -p darter-memnode --test power` runs longer.

#![allow(clippy::unwrap_used, unreachable_pub)] // a test may panic

mod groups;

use darter::{Error, Store};
use darter_memnode::{LogOptions, MemNode, MemNodeOptions, Region, Stop};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{Scope, ScopedJoinHandle};
use std::time::{Duration, Instant};

const NODE_BYTES: u64 = 16 << 20;
const WRITERS: usize = 3;
/// Number of keys per writer.
const KEYS: usize = 40;
/// The directory of the node's log, for its process.
const DIRECTORY: &str = "DARTER_POWER_DIRECTORY";

/// If this process is a node, runs the node until it is killed.
#[test]
#[ignore = "the other test starts it"]
fn node_process() {
    let Some(directory) = std::env::var_os(DIRECTORY).map(PathBuf::from) else { return };
    let region = Region::memory(NODE_BYTES).unwrap().logged(&directory.join("log"), log_options()).unwrap();
    let node = MemNode::bind("127.0.0.1:0".parse().unwrap(), region, MemNodeOptions::default()).unwrap();
    let draft = directory.join("address.new");
    std::fs::write(&draft, node.address().unwrap().to_string()).unwrap();
    std::fs::rename(draft, directory.join("address")).unwrap();
    node.serve(&Stop::default()).unwrap();
}

/// The options of a log that loses what it has not synced when its process is killed.
fn log_options() -> LogOptions {
    LogOptions {
        segment_bytes: 256 << 10,
        checkpoint_bytes: 512 << 10,
        loses_unsynced: Some(Duration::from_millis(1)),
        ..LogOptions::default()
    }
}

/// Returns how often a test kills nodes.
fn rounds(default: usize) -> usize {
    std::env::var("DARTER_POWER_ROUNDS").map_or(default, |rounds| rounds.parse().unwrap())
}

/// A node's process; killed when dropped.
struct NodeProcess(Child);

impl NodeProcess {
    /// Starts a node. Returns the pool's name too.
    fn start(directory: &Path) -> (Self, String) {
        let address = directory.join("address");
        let _ = std::fs::remove_file(&address);
        let child = Command::new(std::env::current_exe().unwrap())
            .args(["--ignored", "--exact", "node_process"])
            .env(DIRECTORY, directory)
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let mut node = Self(child);
        let end = Instant::now() + Duration::from_secs(60);
        loop {
            if let Ok(address) = std::fs::read_to_string(&address) {
                return (node, format!("tcp://{address}"));
            }
            assert!(node.0.try_wait().unwrap().is_none(), "the node did not start");
            assert!(Instant::now() < end, "the node does not start");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    fn kill(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

impl Drop for NodeProcess {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The known values of one key, which are increasing numbers.
#[derive(Default)]
struct Known {
    /// The last value that a client tried to write.
    tried: AtomicU64,
    /// The last value that a client has read or has an acknowledgement for.
    told: AtomicU64,
}

fn key(writer: usize, key: usize) -> String {
    format!("writer {writer} key {key}")
}

fn number(value: &[u8]) -> u64 {
    value.first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes))
}

fn value(number: u64) -> Vec<u8> {
    let mut value = number.to_le_bytes().to_vec();
    // Spans several lines.
    value.resize(8 + (number % 5) as usize * 100, number as u8);
    value
}

fn write_until_killed(store: &Store, writer: usize, known: &[Known], has_ended: &AtomicBool) {
    let session = store.session().unwrap();
    for at in (0..KEYS).cycle() {
        if has_ended.load(Ordering::Relaxed) {
            return;
        }
        let next = known[at].tried.load(Ordering::Relaxed) + 1;
        known[at].tried.store(next, Ordering::Relaxed);
        if session.put(key(writer, at), value(next)).is_err() {
            return;
        }
        known[at].told.fetch_max(next, Ordering::Relaxed);
    }
}

/// Starts a thread for each writer. Returns their handles.
fn spawn_writers<'s>(
    scope: &'s Scope<'s, '_>,
    store: &'s Store,
    known: &'s [Vec<Known>],
    has_ended: &'s AtomicBool,
) -> Vec<ScopedJoinHandle<'s, ()>> {
    let spawn = |(writer, known): (usize, &'s Vec<Known>)| {
        scope.spawn(move || write_until_killed(store, writer, known, has_ended))
    };
    known.iter().enumerate().map(spawn).collect()
}

fn read_until_killed(store: &Store, known: &[Vec<Known>], has_ended: &AtomicBool) {
    let session = store.session().unwrap();
    for at in (0..KEYS).cycle() {
        for (writer, known) in known.iter().enumerate() {
            if has_ended.load(Ordering::Relaxed) {
                return;
            }
            match session.get(key(writer, at)) {
                Ok(found) => {
                    let found = found.as_deref().map_or(0, number);
                    known[at].told.fetch_max(found, Ordering::Relaxed);
                }
                Err(_) => return,
            }
        }
    }
}

/// Checks all keys. Returns the number of keys with a value.
fn judge(store: &Store, known: &[Vec<Known>], round: usize) -> usize {
    let session = store.session().unwrap();
    let mut there = 0;
    for (writer, known) in known.iter().enumerate() {
        for (at, known) in known.iter().enumerate() {
            let found = session.get(key(writer, at)).unwrap();
            there += usize::from(found.is_some());
            let number = found.as_deref().map_or(0, number);
            let (told, tried) = (known.told.load(Ordering::Relaxed), known.tried.load(Ordering::Relaxed));
            assert!(
                told <= number && number <= tried,
                "round {round}, {}: {number} is present, {told} was reported, {tried} was tried",
                key(writer, at)
            );
            assert!(found.is_none_or(|found| found == value(number)), "round {round}: a torn value");
            // The present value was read just now.
            known.told.store(number, Ordering::Relaxed);
        }
    }
    there
}

#[test]
fn acknowledged_writes_survive_a_node_killed_repeatedly() {
    let rounds = rounds(8);
    let directory = tempfile::tempdir().unwrap();
    let known: Vec<Vec<Known>> =
        (0..WRITERS).map(|_| (0..KEYS).map(|_| Known::default()).collect()).collect();
    for round in 0..rounds {
        let (mut node, url) = NodeProcess::start(directory.path());
        // Sometimes killed at once, while it recovers and starts.
        if round % 4 == 3 {
            node.kill();
            continue;
        }
        let options = Store::options().create(round == 0);
        let store = if round == 0 { options.open(&url) } else { options.create(false).open(&url) };
        let store = store.unwrap();
        let there = judge(&store, &known, round);
        assert!(round == 0 || there > 0, "something was written");
        let has_ended = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let (store, has_ended, all) = (&store, &has_ended, &known);
            spawn_writers(scope, store, all, has_ended);
            scope.spawn(move || read_until_killed(store, all, has_ended));
            let written =
                || all.iter().flatten().map(|known| known.told.load(Ordering::Relaxed)).sum::<u64>();
            let (goal, end) = (written() + 200 + 37 * round as u64, Instant::now() + Duration::from_secs(30));
            while written() < goal && Instant::now() < end {
                std::thread::sleep(Duration::from_millis(1));
            }
            node.kill();
            has_ended.store(true, Ordering::Relaxed);
        });
    }
    let (_node, url) = NodeProcess::start(directory.path());
    let store = Store::options().create(false).open(&url).unwrap();
    assert!(judge(&store, &known, rounds) > 0);
    let check: Result<_, Error> = store.check();
    let check = check.unwrap();
    assert!(check.violations.is_empty(), "{:?}", check.violations);
}
