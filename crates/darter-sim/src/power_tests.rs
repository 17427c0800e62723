//! Tests of the medium of a simulated node: stores that reach it, batches that wait for it, and
//! power failures.

use super::*;
use darter_fabric::{Batch, Capabilities, Durability, Endpoint, Fabric, GlobalAddr, ReadId, block_on};
use std::cell::RefCell;
use std::task::{Context, Waker};

const BYTES: u64 = 1 << 12;

fn at(word: u64) -> GlobalAddr {
    GlobalAddr::new(0, word * 8)
}

/// Returns a simulation of one node with this medium, whose verbs wait for an executor.
fn scheduled(medium: Medium) -> Sim {
    let sim = Sim::new(1, BYTES);
    sim.set_medium(medium);
    sim
}

async fn submit(sim: Sim, fill: impl FnOnce(&mut Batch)) {
    let mut endpoint = sim.endpoint().unwrap();
    let mut batch = endpoint.batch();
    fill(&mut batch);
    endpoint.submit(batch).await.unwrap();
}

/// Returns the possible next events as letters: a task runs, a verb executes, a store reaches the
/// medium.
fn offered(executor: &Executor<'_>) -> String {
    let mut events = Vec::new();
    executor.events(&mut events);
    let letter = |event: &Event| match event.kind {
        EventKind::Run => 'r',
        EventKind::Complete => 'c',
        EventKind::Execute { .. } => 'x',
        EventKind::Reach { .. } => 'm',
    };
    events.iter().map(letter).collect()
}

/// Performs the first event with this letter, with this number of pieces.
fn perform(executor: &mut Executor<'_>, letter: char, pieces: u32) {
    let nth = offered(executor).find(letter).unwrap_or_else(|| panic!("no {letter}"));
    let mut events = Vec::new();
    executor.events(&mut events);
    executor.perform(events[nth], pieces, WordOrder::Ascending);
}

/// Reads words while verbs execute at once.
fn read(sim: &Sim, addr: GlobalAddr, words: usize) -> Vec<u64> {
    sim.schedule(false);
    let mut endpoint = sim.endpoint().unwrap();
    let mut batch = endpoint.batch();
    let id: ReadId = batch.read(addr, words);
    block_on(endpoint.submit(batch)).unwrap().words(id).to_vec()
}

#[test]
fn the_capabilities_say_what_the_medium_keeps() {
    let durability = |medium| {
        let Capabilities { durability, .. } = scheduled(medium).capabilities();
        durability
    };
    assert_eq!(durability(Medium::Never), Durability::Never);
    assert_eq!([Medium::Log, Medium::Flush].map(durability), [Durability::OnCompletion; 2]);
}

#[test]
fn log_keeps_a_prefix_of_the_executed_verbs() {
    for (back, left) in [(0, [1, 2, 3]), (1, [1, 2, 0]), (2, [1, 0, 0]), (3, [0, 0, 0])] {
        let sim = scheduled(Medium::Log);
        let mut executor = Executor::new(&sim);
        executor.spawn(0, submit(sim.clone(), |batch| batch.write(at(8), &[1, 2, 3])));
        executor.spawn_medium();
        perform(&mut executor, 'r', 0);
        perform(&mut executor, 'x', 3);
        assert_eq!(offered(&executor), "m");
        sim.lose_power(vec![back]);
        assert_eq!((read(&sim, at(8), 3), sim.choices()), (left.to_vec(), vec![(back.into(), 4)]));
    }
}

#[test]
fn what_has_reached_the_log_stays() {
    let sim = scheduled(Medium::Log);
    let mut executor = Executor::new(&sim);
    executor.spawn(0, submit(sim.clone(), |batch| batch.write(at(8), &[1, 2, 3])));
    executor.spawn_medium();
    perform(&mut executor, 'r', 0);
    perform(&mut executor, 'x', 3);
    perform(&mut executor, 'm', 2);
    assert_eq!(offered(&executor), "m");
    sim.lose_power(vec![1]);
    assert_eq!((read(&sim, at(8), 3), sim.choices()), (vec![1, 2, 0], vec![(1, 2)]));
}

#[test]
fn a_batch_completes_when_what_it_wrote_and_read_is_on_the_medium() {
    for medium in [Medium::Log, Medium::Flush] {
        let sim = scheduled(medium);
        let seen = RefCell::new(Vec::new());
        let mut executor = Executor::new(&sim);
        executor.spawn(0, submit(sim.clone(), |batch| batch.write(at(8), &[7])));
        executor.spawn(0, async {
            let mut endpoint = sim.endpoint().unwrap();
            let mut batch = endpoint.batch();
            let (near, far) = (batch.read(at(8), 1), batch.read(at(64), 1));
            let done = endpoint.submit(batch).await.unwrap();
            seen.borrow_mut().extend([done.words(near)[0], done.words(far)[0]]);
        });
        executor.spawn_medium();
        perform(&mut executor, 'r', 0);
        perform(&mut executor, 'r', 0);
        for _ in 0..3 {
            perform(&mut executor, 'x', 1);
        }
        // No batch waits for stores that the medium lacks.
        assert_eq!(offered(&executor), "m", "{medium}");
        perform(&mut executor, 'm', 1);
        assert_eq!(offered(&executor), "cc", "{medium}");
        perform(&mut executor, 'c', 0);
        perform(&mut executor, 'c', 0);
        assert!(executor.all_ended());
        drop(executor);
        assert_eq!(seen.into_inner(), [7, 0]);
    }
}

#[test]
fn no_batch_waits_for_volatile_words() {
    for medium in [Medium::Log, Medium::Flush] {
        let sim = scheduled(medium);
        let mut executor = Executor::new(&sim);
        executor.spawn(0, submit(sim.clone(), |batch| _ = batch.volatile().cas(at(8), 0, 7)));
        executor.spawn(0, submit(sim.clone(), |batch| _ = batch.read(at(8), 1)));
        executor.spawn(
            0,
            submit(sim.clone(), |batch| {
                batch.write(at(64), &[1]);
                batch.volatile().cas(at(8), 7, 0);
            }),
        );
        executor.spawn_medium();
        for _ in 0..2 {
            perform(&mut executor, 'r', 0);
            perform(&mut executor, 'x', 1);
        }
        assert_eq!(offered(&executor), "ccrm", "{medium}");
        perform(&mut executor, 'c', 0);
        perform(&mut executor, 'c', 0);
        perform(&mut executor, 'r', 0);
        perform(&mut executor, 'x', 1);
        perform(&mut executor, 'x', 1);
        // Adjacent words are waited for.
        assert!(!offered(&executor).contains('c'), "{medium}");
        while offered(&executor).contains('m') {
            perform(&mut executor, 'm', 1);
        }
        assert_eq!(offered(&executor), "c", "{medium}");
    }
}

#[test]
fn a_later_store_is_not_waited_for() {
    let sim = scheduled(Medium::Flush);
    let mut executor = Executor::new(&sim);
    executor.spawn(0, submit(sim.clone(), |batch| batch.write(at(8), &[7])));
    executor.spawn(0, submit(sim.clone(), |batch| batch.write(at(8), &[9])));
    executor.spawn_medium();
    perform(&mut executor, 'r', 0);
    perform(&mut executor, 'x', 1);
    perform(&mut executor, 'm', 1);
    perform(&mut executor, 'r', 0);
    perform(&mut executor, 'x', 1);
    // The first batch has its needs on the medium; the second does not.
    assert_eq!(offered(&executor), "cm");
    sim.lose_power(vec![1]);
    assert_eq!((read(&sim, at(8), 1), sim.choices()), (vec![7], vec![(1, 2)]));
}

#[test]
fn what_changes_words_waits_until_the_writes_before_it_are_flushed() {
    for fenced in [false, true] {
        what_waits(fenced);
    }
}

/// Posts a WRITE of two lines, a CAS, and a WRITE.
fn what_waits(fenced: bool) {
    let fill = |batch: &mut Batch| {
        batch.write(at(8), &[7; 16]);
        batch.cas(at(64), 0, 8);
        if fenced {
            batch.fence();
        }
        batch.write(at(72), &[9]);
    };
    let sim = scheduled(Medium::Flush);
    let mut executor = Executor::new(&sim);
    executor.spawn(0, submit(sim.clone(), fill));
    executor.spawn_medium();
    perform(&mut executor, 'r', 0);
    perform(&mut executor, 'x', 16);
    assert_eq!(offered(&executor), "m");
    perform(&mut executor, 'm', 1);
    // One of the WRITE's two lines.
    assert_eq!(offered(&executor), "m");
    perform(&mut executor, 'm', 1);
    assert_eq!(offered(&executor), "x");
    perform(&mut executor, 'x', 1);
    // The second WRITE waits for WRITEs only, unless it is fenced.
    assert_eq!(offered(&executor), if fenced { "m" } else { "xm" });
    let sim = scheduled(Medium::Log);
    let mut executor = Executor::new(&sim);
    executor.spawn(0, submit(sim.clone(), fill));
    executor.spawn_medium();
    perform(&mut executor, 'r', 0);
    perform(&mut executor, 'x', 16);
    assert_eq!(offered(&executor), "xm");
}

#[test]
fn flushed_words_are_left_one_by_one_and_chosen_when_they_are_read() {
    let sim = scheduled(Medium::Flush);
    let mut executor = Executor::new(&sim);
    executor.spawn(0, submit(sim.clone(), |batch| batch.write(at(8), &[1, 2, 3])));
    executor.spawn_medium();
    perform(&mut executor, 'r', 0);
    perform(&mut executor, 'x', 3);
    assert_eq!(sim.choices_max(), 3);
    sim.lose_power(vec![0, 1]);
    assert_eq!(sim.choices(), []);
    assert_eq!(read(&sim, at(10), 1), [3]);
    // The overwritten word was never read.
    sim.schedule(false);
    block_on(submit(sim.clone(), |batch| batch.write(at(9), &[5])));
    assert_eq!(read(&sim, at(8), 3), [0, 5, 3]);
    assert_eq!(sim.choices(), [(0, 2), (1, 2)]);
}

#[test]
fn what_executes_at_once_is_on_the_medium_at_once() {
    for medium in [Medium::Log, Medium::Flush] {
        let sim = scheduled(medium);
        block_on(submit(sim.clone(), |batch| batch.write(at(8), &[1, 2])));
        sim.lose_power(vec![1; 4]);
        assert_eq!(read(&sim, at(8), 2), [1, 2], "{medium}");
    }
}

#[test]
fn whose_future_is_gone_waits_for_nothing() {
    let sim = scheduled(Medium::Log);
    sim.schedule(true);
    {
        let mut future = std::pin::pin!(submit(sim.clone(), |batch| batch.write(at(8), &[1])));
        assert!(future.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    }
    let mut executor = Executor::new(&sim);
    executor.spawn(0, std::future::ready(()));
    executor.spawn_medium();
    perform(&mut executor, 'r', 0);
    perform(&mut executor, 'x', 1);
    assert_eq!(offered(&executor), "m");
    perform(&mut executor, 'm', 1);
    assert_eq!(offered(&executor), "");
}
