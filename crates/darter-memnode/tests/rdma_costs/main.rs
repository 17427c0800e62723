//! What verbs through an RDMA device cost this process: no allocation, and little more time than a
//! bare loop of verbs. Runs where Soft-RoCE's two devices are (`scripts/rdma-vm`), and is skipped
//! elsewhere.

#![allow(clippy::unwrap_used, unreachable_pub)] // a test may panic

#[path = "../support/mod.rs"]
mod support;

use darter_fabric::{Batch, Endpoint, Fabric, GlobalAddr, Tcp, VerbKind, block_on, run_all};
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::time::{Duration, Instant};
use support::devices::over_devices;

/// The system's allocator, which counts the calls of each thread.
struct CountingAllocator;

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

fn count() {
    // A thread that ends may allocate after its counter is gone.
    let _ = ALLOCATIONS.try_with(|allocations| allocations.set(allocations.get() + 1));
}

// SAFETY: every call goes to the system's allocator as it came.
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

/// Verbs in flight when rates are measured.
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

#[test]
fn a_round_trip_allocates_nothing() {
    let Some((_node, fabric)) = over_devices(1 << 20) else { return };
    let mut endpoint = fabric.endpoint().unwrap();
    let allocated = block_on(async {
        let mut before = 0;
        for round in 0..400 {
            if round == 200 {
                before = ALLOCATIONS.get();
            }
            let mut batch = endpoint.batch();
            for kind in [VerbKind::Write, VerbKind::Read, VerbKind::Cas, VerbKind::Faa] {
                add(&mut batch, kind, round % 8);
            }
            batch.fence().write(GlobalAddr::new(0, 8192), &[round as u64; 100]);
            let done = endpoint.submit(batch).await.unwrap();
            endpoint.recycle(done);
        }
        ALLOCATIONS.get() - before
    });
    assert_eq!(allocated, 0, "in 200 round trips");
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
fn rates_beside_a_bare_loop() {
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
