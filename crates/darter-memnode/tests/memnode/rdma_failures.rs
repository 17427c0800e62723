//! Behaviour of clients and memory nodes when queue pairs end under load for reasons other than a
//! fence: the node closes them, a port goes down, a device is removed. Runs on the two Soft-RoCE
//! devices of `scripts/rdma-vm`; elsewhere these tests are skipped.

use crate::support::devices::{has_devices, reach, serving, through_device};
use crate::support::gate::gated;
use crate::support::{Node, connect_as, get, until, value};
use darter::Store;
use darter_fabric::tcp::TcpEndpoint;
use darter_fabric::{Endpoint, Fabric, FabricError, GlobalAddr, Tcp, block_on, run_all};
use darter_memnode::{HttpPort, serve_metrics};
use std::net::SocketAddr;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

const THREADS: u64 = 2;
/// Number of tasks per thread.
const TASKS: u64 = 4;
/// Number of words that a task writes in one batch, after its counter.
const WORDS: usize = 40;

/// Number of keys per thread.
const KEYS: u64 = 8;

/// The work done by a task.
#[derive(Clone, Copy, Debug, Default)]
struct Done {
    /// The last number written that was acknowledged, and the last number written.
    acknowledged: u64,
    tried: u64,
    /// Number of acknowledged additions.
    additions: u64,
}

/// Counts of all tasks together, for the test to wait for.
#[derive(Debug, Default)]
struct Progress {
    acknowledged: AtomicU64,
    failed: AtomicU64,
    ends: AtomicBool,
}

/// Returns whether an error says that the node, or its device, cannot be reached now.
fn is_lost(error: &FabricError) -> bool {
    matches!(error, FabricError::Disconnected { node: 0 } | FabricError::Unreachable { node: 0 })
        || error.to_string().contains("cannot reach the other device")
}

fn place(task: u64) -> GlobalAddr {
    GlobalAddr::new(0, 4096 + 1024 * task)
}

/// Adds to its own counter and writes increasing numbers after it until requested to end.
async fn work(endpoint: &mut TcpEndpoint, task: u64, progress: &Progress) -> Done {
    let mut done = Done::default();
    while !progress.ends.load(Ordering::Relaxed) {
        done.tried += 1;
        let mut batch = endpoint.batch();
        batch.faa(place(task), 1);
        batch.write(place(task).plus(8), &[done.tried; WORDS]);
        match endpoint.submit(batch).await {
            Ok(batch) => {
                endpoint.recycle(batch);
                (done.acknowledged, done.additions) = (done.tried, done.additions + 1);
                progress.acknowledged.fetch_add(1, Ordering::Relaxed);
            }
            Err(error) => {
                assert!(is_lost(&error), "{error}");
                progress.failed.fetch_add(1, Ordering::Relaxed);
                std::thread::sleep(Duration::from_millis(5));
            }
        }
    }
    done
}

/// Runs tasks of several threads on a fabric while `meanwhile` runs. Returns the work of each task.
fn under_load(fabric: &Tcp, meanwhile: impl FnOnce(&Progress)) -> Vec<Done> {
    let progress = Progress::default();
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS)
            .map(|thread| {
                let progress = &progress;
                scope.spawn(move || {
                    let mut endpoints: Vec<_> = (0..TASKS).map(|_| fabric.endpoint().unwrap()).collect();
                    let tasks = endpoints.iter_mut().zip(thread * TASKS..);
                    run_all(tasks.map(|(endpoint, task)| work(endpoint, task, progress)))
                })
            })
            .collect();
        go_on(&progress);
        meanwhile(&progress);
        go_on(&progress);
        progress.ends.store(true, Ordering::Relaxed);
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    })
}

/// Waits until much more has been acknowledged than now.
fn go_on(progress: &Progress) {
    let before = progress.acknowledged.load(Ordering::Relaxed);
    until("they work", || progress.acknowledged.load(Ordering::Relaxed) > before + 10 * THREADS * TASKS);
}

/// Waits until enough operations have failed that no task can be working.
fn all_fail(progress: &Progress) {
    let before = progress.failed.load(Ordering::Relaxed);
    until("they fail", || progress.failed.load(Ordering::Relaxed) > before + 2 * THREADS * TASKS);
}

/// Asserts that every word has the value last acknowledged, or one tried after it, and that every
/// acknowledged addition has happened, and no other except failed ones.
fn assert_kept(fabric: &Tcp, done: &[Done]) {
    let mut endpoint = fabric.endpoint().unwrap();
    for (task, done) in (0..).zip(done) {
        let mut batch = endpoint.batch();
        let all = batch.read(place(task), 1 + WORDS);
        let batch = block_on(endpoint.submit(batch)).unwrap();
        let (counter, words) = batch.words(all).split_first().unwrap();
        assert!((done.additions..=done.tried).contains(counter), "{task}: {counter}, {done:?}");
        for word in words {
            assert!((done.acknowledged..=done.tried).contains(word), "{task}: {word}, {done:?}");
        }
        endpoint.recycle(batch);
    }
}

fn metrics_of(node: &Node) -> HttpPort {
    serve_metrics("127.0.0.1:0".parse().unwrap(), Arc::clone(&node.metrics)).unwrap()
}

fn queue_pairs(port: &HttpPort) -> u64 {
    value(&get(port.address(), "/metrics"), "darter_memnode_queue_pairs")
}

/// Returns a client of a node behind a gate.
fn behind(address: SocketAddr) -> Tcp {
    Tcp::connect(&[address.to_string()], through_device()).unwrap()
}

#[test]
fn queue_pairs_that_the_node_ends_cost_errors_and_nothing_else() {
    if !has_devices() {
        return;
    }
    let node = serving(1 << 20);
    let port = metrics_of(&node);
    let (address, gate) = gated(node.address);
    let fabric = behind(address);
    let done = under_load(&fabric, |progress| {
        for _ in 0..2 {
            // The node ends its queue pairs; clients are notified by their devices only.
            let failed = progress.failed.load(Ordering::Relaxed);
            gate.shut(true);
            gate.hang_up_on_node();
            until("the queue pairs are gone", || queue_pairs(&port) == 0);
            until("they fail", || progress.failed.load(Ordering::Relaxed) >= failed + THREADS * TASKS);
            gate.shut(false);
            go_on(progress);
        }
    });
    assert_kept(&fabric, &done);
    until("one for each thread that lives", || queue_pairs(&port) == 1);
    drop(fabric);
    until("none is left", || queue_pairs(&port) == 0);
}

#[test]
fn an_index_whose_queue_pairs_end_loses_and_leaks_nothing() {
    if !has_devices() {
        return;
    }
    let node = serving(32 << 20);
    let (address, gate) = gated(node.address);
    let url = format!("rdma://{address}?device=rxe0");
    let store = Store::options().create(true).open(&url).unwrap();
    let key = |thread: u64, key: u64| (thread << 32 | key).wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes();
    let number = |value: &[u8]| u64::from_le_bytes(value.try_into().unwrap());
    let progress = Progress::default();
    let done: Vec<Vec<Done>> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS)
            .map(|thread| {
                let (store, progress) = (&store, &progress);
                scope.spawn(move || {
                    let session = store.session().unwrap();
                    let mut done = vec![Done::default(); KEYS as usize];
                    for turn in 0.. {
                        if progress.ends.load(Ordering::Relaxed) {
                            break;
                        }
                        let at = turn % KEYS;
                        let Done { acknowledged, tried, .. } = &mut done[at as usize];
                        *tried += 1;
                        let put = session.put(key(thread, at), tried.to_le_bytes()).map(drop);
                        if put.is_ok() {
                            *acknowledged = *tried;
                        }
                        let found = session.get(key(thread, at));
                        if let Ok(found) = &found {
                            let found = found.as_deref().map_or(0, number);
                            assert!((*acknowledged..=*tried).contains(&found), "{found}");
                        }
                        for outcome in [put, found.map(drop)] {
                            match outcome {
                                Ok(()) => progress.acknowledged.fetch_add(1, Ordering::Relaxed),
                                Err(error) => {
                                    assert!(error.to_string().contains("memory node 0"), "{error}");
                                    progress.failed.fetch_add(1, Ordering::Relaxed)
                                }
                            };
                        }
                    }
                    done
                })
            })
            .collect();
        for _ in 0..3 {
            go_on(&progress);
            let failed = progress.failed.load(Ordering::Relaxed);
            gate.shut(true);
            gate.hang_up_on_node();
            until("they fail", || progress.failed.load(Ordering::Relaxed) >= failed + THREADS);
            gate.shut(false);
        }
        go_on(&progress);
        progress.ends.store(true, Ordering::Relaxed);
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    drop(store);
    let store = Store::open(&url).unwrap();
    let session = store.session().unwrap();
    for (thread, done) in (0..).zip(&done) {
        for (at, done) in (0..).zip(done) {
            let found = session.get(key(thread, at)).unwrap().as_deref().map_or(0, number);
            assert!((done.acknowledged..=done.tried).contains(&found), "{found}, {done:?}");
        }
    }
    // Reads may rebuild pages, in blocks left by the first process. Leaks in them are freed after
    // the blocks are released.
    drop((session, store));
    let check = Store::open(&url).unwrap().repair().unwrap();
    assert_eq!((check.violations, check.leaked_bytes), (vec![], 0));
}

/// Runs a command that must succeed.
fn run(command: &str) {
    let mut words = command.split(' ');
    let output = Command::new(words.next().unwrap()).args(words).output().unwrap();
    assert!(output.status.success(), "{command}: {}", String::from_utf8_lossy(&output.stderr));
}

/// The second device's port is down; when this is dropped, it is up again, with its former route.
struct PortDown;

impl PortDown {
    fn now() -> Self {
        run("ip link set vb down");
        Self
    }
}

impl Drop for PortDown {
    fn drop(&mut self) {
        run("ip link set vb up");
        run("ip route replace 10.1.0.1 dev vb src 10.1.0.2 table 101");
    }
}

#[test]
fn a_port_that_goes_down_costs_errors_and_clients_come_back() {
    if !has_devices() {
        return;
    }
    let node = serving(1 << 20);
    let port = metrics_of(&node);
    let fabric = reach(&[&node]);
    let done = under_load(&fabric, |progress| {
        let down = PortDown::now();
        all_fail(progress);
        let error = connect_as(&[&node], through_device()).unwrap_err().to_string();
        assert!(error.contains("port 1 is not active"), "{error}");
        drop(down);
        go_on(progress);
    });
    assert_kept(&fabric, &done);
    until("one for each thread that lives", || queue_pairs(&port) == 1);
}

/// Removes a device that is in use: from now on the kernel refuses to open it, and it removes the
/// device after its last user has closed it (Soft-RoCE on Linux 6.1). Returns a thread that waits
/// for that.
fn take_away(device: &'static str) -> std::thread::JoinHandle<()> {
    let taken = std::thread::spawn(move || run(&format!("rdma link delete {device}")));
    let is_listed = || {
        let output = Command::new("rdma").args(["link", "show"]).output().unwrap();
        String::from_utf8_lossy(&output.stdout).contains(&format!("link {device}/"))
    };
    until("it is no longer listed", || !is_listed());
    taken
}

#[test]
fn a_client_s_device_that_is_taken_away_serves_until_it_is_closed() {
    if !has_devices() {
        return;
    }
    let node = serving(1 << 20);
    let fabric = reach(&[&node]);
    let mut taken = None;
    let done = under_load(&fabric, |progress| {
        taken = Some(take_away("rxe0"));
        go_on(progress);
        let error = connect_as(&[&node], through_device()).unwrap_err().to_string();
        assert!(error.contains("this device does not exist; there are rxe1"), "{error}");
    });
    assert_kept(&fabric, &done);
    // This thread keeps its hub, but not the device.
    drop(fabric);
    taken.unwrap().join().unwrap();
    run("rdma link add rxe0 type rxe netdev va");
    assert_kept(&reach(&[&node]), &done);
}

#[test]
fn a_node_s_device_that_is_taken_away_serves_until_the_node_ends() {
    if !has_devices() {
        return;
    }
    let mut node = serving(1 << 20);
    let fabric = reach(&[&node]);
    let mut taken = None;
    let done = under_load(&fabric, |progress| {
        taken = Some(take_away("rxe1"));
        go_on(progress);
    });
    assert_kept(&fabric, &done);
    // The node also serves new clients.
    assert_kept(&reach(&[&node]), &done);
    node.end();
    taken.unwrap().join().unwrap();
    let error = block_on(async {
        let mut endpoint = fabric.endpoint().unwrap();
        let mut batch = endpoint.batch();
        batch.faa(place(0), 1);
        endpoint.submit(batch).await.unwrap_err()
    });
    assert!(is_lost(&error), "{error}");
    run("rdma link add rxe1 type rxe netdev vb");
    let node = serving(1 << 20);
    under_load(&reach(&[&node]), |_| {});
}
