//! Memory nodes that were added get their share of a pool, while processes work, and after
//! interruptions.

use crate::common::{darter, said};
use crate::drain::{key, node, pool, start, write_and_read};
use darter::Store;
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

const KEYS: u32 = 1500;

fn value(number: u32, round: u32) -> Vec<u8> {
    let mut value = vec![number as u8; [20, 200, 1000][number as usize % 3]];
    value[..4].copy_from_slice(&round.to_le_bytes());
    value
}

fn filled(url: &str) -> Store {
    assert!(pool(&["create"], url).status.success());
    let store = Store::open(url).unwrap();
    let session = store.session().unwrap();
    for number in 0..KEYS {
        session.put(key(number), value(number, 0)).unwrap();
    }
    drop(session);
    store
}

fn assert_done(output: &Output, text: &str) {
    assert!(output.status.success() && said(output).contains(text), "{}", said(output));
}

fn assert_refused(output: &Output, why: &str) {
    assert!(output.status.code() == Some(1) && said(output).contains(why), "{}", said(output));
}

/// The fill of the fullest memory node, as a multiple of the mean, as printed.
fn fullest(output: &Output) -> f64 {
    let said = said(output);
    let (_, after) = said.split_once("the fullest memory node has ").unwrap_or_else(|| panic!("{said}"));
    after.split(' ').next().unwrap().parse().unwrap()
}

fn assert_whole(url: &str) {
    let scanned = darter(&["scan", "--pool", url, "--keys-only"]);
    assert_eq!(String::from_utf8_lossy(&scanned.stdout).lines().count() as u32, KEYS, "{}", said(&scanned));
    let check = darter(&["check", "--pool", url]);
    assert_done(&check, "violations    0");
}

/// Clients of this process write and read while a node is added and gets its share.
#[test]
fn a_node_that_is_added_gets_its_share_while_clients_work() {
    let (_first, url) = start(1);
    let store = filled(&url);
    let added = node();
    let stops = AtomicBool::new(false);
    let round = std::thread::scope(|scope| {
        let writer = scope.spawn(|| write_and_read(&store, KEYS, value, &stops));
        let done = pool(&["add-node", &added.address, "--rebalance"], &url);
        stops.store(true, Ordering::Relaxed);
        let round = writer.join().unwrap();
        assert!(said(&done).contains("as memory node 1"), "{}", said(&done));
        // If the writer was much faster, it is still to be run again.
        assert!(done.status.success() || said(&done).contains("run the command again"), "{}", said(&done));
        assert!(said(&done).contains(" moved ("), "{}", said(&done));
        round
    });
    for number in 0..KEYS {
        assert_eq!(store.get(key(number)).unwrap(), Some(value(number, round)), "{number}");
    }
    let again = pool(&["rebalance"], &url);
    assert!(again.status.success() && fullest(&again) <= 1.15, "{}", said(&again));
    assert_done(&pool(&["rebalance"], &url), "nothing to move");
    drop(store);
    assert_whole(&url);
}

fn spawned(arguments: &[&str], url: &str) -> Child {
    let mut command = Command::new(crate::PROGRAM);
    command.arg("pool").args(arguments).args(["--rate", "1", "--pool", url]);
    command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
}

fn wait_until(child: &mut Child, is_so: impl Fn() -> bool) {
    while !is_so() {
        assert!(child.try_wait().unwrap().is_none(), "the command has ended");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// A rebalance excludes another one, is killed while it moves objects, and the next one goes on.
#[test]
fn a_rebalance_goes_on_after_it_was_killed() {
    let (_first, url) = start(1);
    let store = filled(&url);
    let (one, two) = (node(), node());
    assert!(pool(&["add-node", &one.address], &url).status.success());
    let mut moving = spawned(&["add-node", &two.address, "--rebalance"], &url);
    let used =
        |node: usize| store.usage().unwrap().nodes.get(node).is_some_and(|node| node.free < node.blocks);
    wait_until(&mut moving, || used(1) || used(2));
    assert_refused(&pool(&["rebalance"], &url), "another process is rebalancing");
    moving.kill().unwrap();
    moving.wait().unwrap();
    assert_eq!(store.get(key(7)).unwrap(), Some(value(7, 0)));
    let done = pool(&["rebalance"], &url);
    assert!(done.status.success() && fullest(&done) <= 1.15, "{}", said(&done));
    for number in 0..KEYS {
        assert_eq!(store.get(key(number)).unwrap(), Some(value(number, 0)), "{number}");
    }
    // While a node leaves, the pool is not rebalanced.
    let mut leaving = spawned(&["drain", "2"], &url);
    wait_until(&mut leaving, || store.usage().unwrap().nodes[2].is_leaving());
    assert_refused(&pool(&["rebalance"], &url), "a memory node is leaving");
    let three = node();
    assert_refused(&pool(&["add-node", &three.address, "--rebalance"], &url), "nothing was changed");
    assert_eq!(store.usage().unwrap().nodes.len(), 3);
    leaving.kill().unwrap();
    leaving.wait().unwrap();
    assert!(pool(&["drain", "2"], &url).status.success());
    drop(store);
    assert_whole(&url);
}

/// A pool that cannot be rebalanced is refused with the reason, and nothing changes.
#[test]
fn what_cannot_be_rebalanced_is_refused() {
    let (_nodes, url) = start(2);
    assert!(pool(&["create", "--index", "dart"], &url).status.success());
    assert_refused(&pool(&["rebalance"], &url), "this index cannot move");
    let added = node();
    assert_refused(&pool(&["add-node", &added.address, "--rebalance"], &url), "nothing was changed");
    for arguments in [
        &["rebalance", "--rate", "0"][..],
        &["rebalance", "1"],
        &["add-node", &added.address, "--rate", "1M"],
        &["add-node", &added.address, "--rebalance", "--rate", "0"],
    ] {
        assert_eq!(pool(arguments, &url).status.code(), Some(2), "{arguments:?}");
    }
    let status = pool(&["status", "--json"], &url);
    assert!(!said(&status).contains(&added.address), "{}", said(&status));
    let (_alone, single) = start(1);
    assert!(pool(&["create"], &single).status.success());
    assert_refused(&pool(&["rebalance"], &single), "a single memory node");
    let directory = tempfile::tempdir().unwrap();
    let file = format!("file:{}/fruit.pool?size=8M&nodes=2", directory.path().display());
    assert!(darter(&["put", "--pool", &file, "pear", "green"]).status.success());
    assert_refused(&pool(&["rebalance"], &file), "only a pool of memory nodes");
    let (mut others, away) = start(2);
    drop(filled(&away));
    others[1].kill();
    assert_refused(&pool(&["rebalance"], &away), "memory node 1");
}
