//! Costs of verbs through an RDMA device for this process: no allocation, no lock held by another
//! thread, and little more time than a bare loop of verbs. Runs on the two Soft-RoCE devices of
//! `scripts/rdma-vm`; elsewhere it is skipped.

#![allow(clippy::unwrap_used, unreachable_pub)] // a test may panic

#[path = "../support/mod.rs"]
mod support;

use darter_fabric::tcp::TcpEndpoint;
use darter_fabric::{Batch, Endpoint, Fabric, GlobalAddr, Tcp, VerbKind, block_on, run_all};
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::io::Read;
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};
use support::devices::over_devices;
use support::{LONG, until};

/// The system's allocator, which counts the calls of each thread.
struct CountingAllocator;

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

fn count() {
    // A thread that ends may allocate after its counter was destroyed.
    let _ = ALLOCATIONS.try_with(|allocations| allocations.set(allocations.get() + 1));
}

// SAFETY: every call is passed to the system's allocator unchanged.
unsafe impl GlobalAlloc for CountingAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: as the caller promises.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        // SAFETY: as the caller promises.
        unsafe { System.dealloc(at, layout) }
    }

    unsafe fn realloc(&self, at: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        count();
        // SAFETY: as the caller promises.
        unsafe { System.realloc(at, layout, bytes) }
    }
}

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

/// Prefix of `/proc/PID/syscall` while a thread waits for a lock (x86-64).
const FUTEX: &str = "202 ";
/// Number of verbs in flight when rates are measured.
const IN_FLIGHT: usize = 64;

/// Adds one verb on the word of a task.
fn add(batch: &mut Batch, kind: VerbKind, task: usize) {
    let word = GlobalAddr::new(0, 4096 + 8 * task as u64);
    match kind {
        VerbKind::Read => drop(batch.read(word, 1)),
        VerbKind::Write => batch.write(word, &[7]),
        VerbKind::Cas => drop(batch.cas(word, 0, 0)),
        VerbKind::Faa => drop(batch.faa(word, 0)),
    }
}

/// Returns how many allocations this thread makes in this number of round trips.
async fn allocations_of_round_trips(endpoint: &mut TcpEndpoint, count: usize) -> u64 {
    let before = ALLOCATIONS.get();
    for round in 0..count {
        let mut batch = endpoint.batch();
        for kind in [VerbKind::Write, VerbKind::Read, VerbKind::Cas, VerbKind::Faa] {
            add(&mut batch, kind, round % 8);
        }
        batch.fence().write(GlobalAddr::new(0, 8192), &[round as u64; 100]);
        let done = endpoint.submit(batch).await.unwrap();
        endpoint.recycle(done);
    }
    ALLOCATIONS.get() - before
}

#[test]
fn a_round_trip_allocates_nothing() {
    let Some((_node, fabric)) = over_devices(1 << 20) else { return };
    let mut endpoint = fabric.endpoint().unwrap();
    // A buffer may still grow, or a first wait set something up, in the rounds that are counted:
    // the least of five counts is the cost of a round trip.
    let counts = block_on(async {
        let mut counts = Vec::with_capacity(6);
        for _ in 0..6 {
            counts.push(allocations_of_round_trips(&mut endpoint, 200).await);
        }
        counts
    });
    assert_eq!(counts[1..].iter().min(), Some(&0), "in 200 round trips each: {counts:?}");
}

/// Makes this number of round trips with every kind of verb.
async fn round_trips(endpoint: &mut TcpEndpoint, count: usize, task: usize) {
    for _ in 0..count {
        let mut batch = endpoint.batch();
        for kind in [VerbKind::Write, VerbKind::Read, VerbKind::Cas, VerbKind::Faa] {
            add(&mut batch, kind, task);
        }
        let done = endpoint.submit(batch).await.unwrap();
        endpoint.recycle(done);
    }
}

/// A thread that polls a task holds the locks of its connections. If it does so for long, other
/// threads must not be blocked.
#[test]
fn a_thread_needs_no_lock_that_another_has() {
    let Some((_node, fabric)) = over_devices(1 << 20) else { return };
    let (has_locked, locked) = channel();
    let (done, over) = channel();
    std::thread::scope(|scope| {
        let fabric = &fabric;
        scope.spawn(move || {
            let mut endpoint = fabric.endpoint().unwrap();
            block_on(async {
                round_trips(&mut endpoint, 1, 0).await;
                has_locked.send(()).unwrap();
                // The loop of this thread is blocked.
                assert!(over.recv_timeout(LONG).is_ok(), "the other thread waits for this one");
            });
        });
        let mut endpoint = fabric.endpoint().unwrap();
        locked.recv().unwrap();
        block_on(round_trips(&mut endpoint, 300, 1));
        done.send(()).unwrap();
    });
}

/// Ends `strace`, which traces a thread. Returns how many times the thread called futex, to wait
/// for a lock or to wake a waiting thread.
fn futexes_seen(mut strace: Child) -> usize {
    assert!(Command::new("kill").args(["-INT", &strace.id().to_string()]).status().unwrap().success());
    let mut lines = String::new();
    strace.stderr.take().unwrap().read_to_string(&mut lines).unwrap();
    strace.wait().unwrap();
    lines.matches("futex(").count()
}

/// Traces a thread's futex calls from now on.
fn watch(thread: &str) -> Child {
    let mut strace = Command::new("strace");
    strace.args(["-e", "trace=futex", "-p", thread]).stderr(Stdio::piped());
    let child = strace.spawn().unwrap();
    let status = format!("/proc/self/task/{thread}/status");
    until("it is watched", || !std::fs::read_to_string(&status).unwrap().contains("TracerPid:\t0\n"));
    child
}

#[test]
fn threads_at_work_wait_for_no_lock() {
    let Some((_node, fabric)) = over_devices(1 << 20) else { return };
    if Command::new("strace").arg("-V").output().is_err() {
        println!("skipped: there is no strace");
        return;
    }
    let at = AtomicUsize::new(0);
    let reach = |step| at.store(step, Ordering::SeqCst);
    let wait = |step| {
        while at.load(Ordering::SeqCst) < step {
            std::thread::yield_now();
        }
    };
    let (says, who) = channel();
    let lock = Mutex::new(());
    std::thread::scope(|scope| {
        for task in 1..3 {
            let (fabric, at) = (&fabric, &at);
            scope.spawn(move || {
                let mut endpoint = fabric.endpoint().unwrap();
                while at.load(Ordering::SeqCst) < 3 {
                    block_on(round_trips(&mut endpoint, 10, task));
                }
            });
        }
        scope.spawn(|| {
            let mut endpoint = fabric.endpoint().unwrap();
            block_on(round_trips(&mut endpoint, 100, 0));
            says.send(std::fs::read_link("/proc/thread-self").unwrap()).unwrap();
            wait(1);
            block_on(round_trips(&mut endpoint, 500, 0));
            reach(2);
            wait(4);
            drop(lock.lock().unwrap());
            reach(5);
            wait(6);
        });
        let path = who.recv().unwrap();
        let thread = path.file_name().unwrap().to_str().unwrap();
        let strace = watch(thread);
        reach(1);
        wait(2);
        assert_eq!(futexes_seen(strace), 0, "in 500 round trips with two other threads");
        // Verifies that the trace detects such calls.
        reach(3);
        let strace = watch(thread);
        let held = lock.lock().unwrap();
        reach(4);
        let call = format!("/proc/self/task/{thread}/syscall");
        until("it waits", || std::fs::read_to_string(&call).unwrap().starts_with(FUTEX));
        drop(held);
        wait(5);
        assert!(futexes_seen(strace) > 0);
        reach(6);
    });
}

/// Executes `count` verbs of a kind, 64 tasks at a time with one in flight each.
fn through_provider(fabric: &Tcp, kind: VerbKind, count: usize) -> Duration {
    let mut endpoints: Vec<_> = (0..IN_FLIGHT).map(|_| fabric.endpoint().unwrap()).collect();
    let begin = Instant::now();
    run_all(endpoints.iter_mut().enumerate().map(|(task, endpoint)| async move {
        for _ in 0..count / IN_FLIGHT {
            let mut batch = endpoint.batch();
            add(&mut batch, kind, task);
            let done = endpoint.submit(batch).await.unwrap();
            endpoint.recycle(done);
        }
    }));
    begin.elapsed()
}

#[test]
#[ignore = "a measurement: build it with --release and run it alone in the guest"]
fn rates_compared_with_a_bare_loop() {
    let Some((_node, fabric)) = over_devices(1 << 20) else { return };
    let (mut bare, _connection) = fabric.bare_loop(0).unwrap();
    let count = 100 * IN_FLIGHT;
    for kind in [VerbKind::Read, VerbKind::Write, VerbKind::Cas] {
        let mut ratios: Vec<(f64, f64, f64)> = (0..5)
            .map(|_| {
                let begin = Instant::now();
                bare.run(kind, count, IN_FLIGHT).unwrap();
                let alone = count as f64 / begin.elapsed().as_secs_f64();
                let ours = count as f64 / through_provider(&fabric, kind, count).as_secs_f64();
                (ours / alone, ours, alone)
            })
            .collect();
        ratios.sort_by(|one, other| one.0.total_cmp(&other.0));
        let (ratio, ours, alone) = ratios[2];
        println!("{kind:?}: {ours:.0} a second, bare {alone:.0}: {:.0}% (median of five)", ratio * 100.0);
    }
}
