//! A memory node is taken out of a pool, while processes work, and after interruptions.

use crate::common::{darter, said};
use crate::daemon::Daemon;
use darter::Store;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

pub(crate) fn node() -> Daemon {
    Daemon::start(&["memnode", "--listen", "127.0.0.1:0", "--size", "16M"])
}

pub(crate) fn start(count: usize) -> (Vec<Daemon>, String) {
    let nodes: Vec<Daemon> = (0..count).map(|_| node()).collect();
    let addresses: Vec<&str> = nodes.iter().map(|node| &node.address[..]).collect();
    let url = format!("tcp://{}", addresses.join(","));
    (nodes, url)
}

pub(crate) fn pool(arguments: &[&str], url: &str) -> std::process::Output {
    darter(&[&["pool"], arguments, &["--pool", url]].concat())
}

pub(crate) fn key(number: u32) -> String {
    format!("{}-{number}", ["apple", "pear", "plum", "quince"][number as usize % 4])
}

fn value(number: u32, round: u32) -> Vec<u8> {
    let bytes = [20, 2_000, 60_000][number as usize % 29 / 14];
    let mut value = vec![number as u8; bytes];
    value[..4].copy_from_slice(&round.to_le_bytes());
    value
}

const KEYS: u32 = 200;

/// Puts values of further rounds under these many keys and reads others, until the end of a round in
/// which `stops` is set. Returns the number of that round.
pub(crate) fn write_and_read(
    store: &Store,
    keys: u32,
    value: fn(u32, u32) -> Vec<u8>,
    stops: &AtomicBool,
) -> u32 {
    let session = store.session().unwrap();
    let mut round = 1;
    while !stops.load(Ordering::Relaxed) {
        for number in 0..keys {
            session.put(key(number), value(number, round)).unwrap();
            let read = (number + keys / 2) % keys;
            let found = session.get(key(read)).unwrap().unwrap();
            assert_eq!(found.len(), value(read, 0).len());
        }
        round += 1;
    }
    round - 1
}

/// Clients of this process write and read during two drains, and are not disturbed when the memory
/// nodes are then stopped. A node that has left can join again.
#[test]
fn memory_nodes_leave_a_pool_that_is_in_use() {
    let (mut nodes, url) = start(3);
    assert!(pool(&["create"], &url).status.success());
    let store = Store::open(&url).unwrap();
    for number in 0..KEYS {
        store.put(key(number), value(number, 0)).unwrap();
    }
    let stops = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| write_and_read(&store, KEYS, value, &stops));
        let drained = pool(&["drain", "1"], &url);
        assert!(
            drained.status.success() && said(&drained).contains("has left the pool"),
            "{}",
            said(&drained)
        );
        // The program that had it open needs it no longer.
        nodes[1].child.kill().unwrap();
        let drained = pool(&["drain", "2"], &url);
        assert!(drained.status.success() && said(&drained).contains(" moved ("), "{}", said(&drained));
        stops.store(true, Ordering::Relaxed);
        let round = writer.join().unwrap();
        for number in 0..KEYS {
            assert_eq!(store.get(key(number)).unwrap(), Some(value(number, round)), "{number}");
        }
    });
    let status = pool(&["status"], &url);
    assert_eq!(said(&status).matches("has left").count(), 2, "{}", said(&status));
    let again = pool(&["drain", "2"], &url);
    assert!(
        again.status.code() == Some(1) && said(&again).contains("has left the pool already"),
        "{}",
        said(&again)
    );
    // Its number is not used again.
    let added = pool(&["add-node", &nodes[2].address], &url);
    assert!(added.status.success() && said(&added).contains("as memory node 3"), "{}", said(&added));
    let scanned = darter(&["scan", "--pool", &url, "--keys-only"]);
    assert_eq!(String::from_utf8_lossy(&scanned.stdout).lines().count() as u32, KEYS, "{}", said(&scanned));
    assert!(store.get(key(3)).unwrap().is_some());
    drop(store);
    let check = darter(&["check", "--pool", &url]);
    assert!(check.status.success() && said(&check).contains("violations    0"), "{}", said(&check));
}

/// A drain is killed, goes on, is killed, is cancelled, and is completed.
#[test]
fn a_drain_goes_on_after_it_was_killed() {
    let (nodes, url) = start(2);
    assert!(pool(&["create"], &url).status.success());
    let store = Store::open(&url).unwrap();
    for number in 0..KEYS {
        store.put(key(number), value(number, 0)).unwrap();
    }
    let is_leaving = || store.usage().unwrap().nodes[1].is_leaving();
    for is_cancelled in [false, true] {
        let mut command = Command::new(crate::PROGRAM);
        command.args(["pool", "drain", "1", "--rate", "1", "--pool", &url]);
        let mut drain = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        while !is_leaving() {
            assert!(drain.try_wait().unwrap().is_none(), "the drain has ended");
            std::thread::sleep(Duration::from_millis(10));
        }
        drain.kill().unwrap();
        drain.wait().unwrap();
        assert!(is_leaving());
        if is_cancelled {
            let cancelled = pool(&["drain", "--cancel", "1"], &url);
            assert!(
                cancelled.status.success() && said(&cancelled).contains("in use again"),
                "{}",
                said(&cancelled)
            );
            assert!(!is_leaving());
            let cancelled = pool(&["drain", "--cancel", "1"], &url);
            assert!(cancelled.status.code() == Some(1) && said(&cancelled).contains("is not leaving"));
        }
    }
    let drained = pool(&["drain", "1"], &url);
    assert!(drained.status.success(), "{}", said(&drained));
    drop(nodes.into_iter().nth(1));
    drop(store);
}

/// A node that cannot leave is refused with the reason, and nothing changes.
#[test]
fn what_cannot_be_drained_is_refused() {
    let (_nodes, url) = start(2);
    assert!(pool(&["create", "--index", "dart"], &url).status.success());
    for (node, why) in [
        ("0", "memory node 0 cannot leave"),
        ("2", "no memory node of this number"),
        ("1", "this index cannot move"),
    ] {
        let refused = pool(&["drain", node], &url);
        assert!(refused.status.code() == Some(1) && said(&refused).contains(why), "{}", said(&refused));
    }
    let status = pool(&["status", "--json"], &url);
    assert!(!said(&status).contains(r#""is_leaving":true"#), "{}", said(&status));
    for arguments in [&["drain", "1", "--rate", "0"][..], &["drain", "x"], &["drain"]] {
        assert_eq!(pool(arguments, &url).status.code(), Some(2), "{arguments:?}");
    }
    let directory = tempfile::tempdir().unwrap();
    let file = format!("file:{}/fruit.pool?size=8M&nodes=2", directory.path().display());
    assert!(darter(&["put", "--pool", &file, "pear", "green"]).status.success());
    let refused = pool(&["drain", "1"], &file);
    assert!(refused.status.code() == Some(1) && said(&refused).contains("only a pool of memory nodes"));
}
