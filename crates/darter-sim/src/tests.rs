//! Tests of a simulation's guarantees, each on a minimal case.

use super::*;
use darter_fabric::{
    Endpoint, Fabric, FabricError, FenceOutcome, GlobalAddr, Membership, MemoryObserver, ObjectState,
    Suspect, block_on,
};
use std::cell::RefCell;

const BYTES: u64 = 1 << 16;

fn at(word: u64) -> GlobalAddr {
    GlobalAddr::new(0, word * 8)
}

/// Performs the first event until none is left.
fn run(executor: &mut Executor<'_>) {
    let mut events = Vec::new();
    loop {
        executor.events(&mut events);
        let Some(&event) = events.first() else { return };
        executor.perform(event, u32::MAX, WordOrder::Ascending);
    }
}

async fn write(sim: Sim, addr: GlobalAddr, words: Vec<u64>) -> Result<(), FabricError> {
    let mut endpoint = sim.endpoint()?;
    let mut batch = endpoint.batch();
    batch.write(addr, &words);
    endpoint.submit(batch).await.map(drop)
}

fn read(sim: &Sim, addr: GlobalAddr, words: usize) -> Vec<u64> {
    sim.schedule(false);
    let mut endpoint = sim.endpoint().unwrap();
    let mut batch = endpoint.batch();
    let id = batch.read(addr, words);
    let done = block_on(endpoint.submit(batch)).unwrap();
    done.words(id).to_vec()
}

#[test]
fn long_verbs_tear_as_the_events_choose() {
    let sim = Sim::new(1, BYTES);
    let seen = RefCell::new(Vec::new());
    let mut executor = Executor::new(&sim);
    executor.spawn(0, async { write(sim.clone(), at(8), vec![7; 4]).await.unwrap() });
    executor.spawn(0, async {
        let mut endpoint = sim.endpoint().unwrap();
        let mut batch = endpoint.batch();
        let id = batch.read(at(8), 4);
        let done = endpoint.submit(batch).await.unwrap();
        seen.borrow_mut().extend_from_slice(done.words(id));
    });
    let mut events = Vec::new();
    for task in 0..2 {
        executor.perform(Event { task, kind: EventKind::Run }, 0, WordOrder::Ascending);
    }
    executor.events(&mut events);
    assert_eq!(events.len(), 2);
    executor.perform(events[0], 1, WordOrder::Descending);
    executor.perform(events[1], u32::MAX, WordOrder::Ascending);
    run(&mut executor);
    assert!(executor.all_ended());
    drop(executor);
    assert_eq!(seen.into_inner(), [0, 0, 0, 7]);
    assert_eq!(read(&sim, at(8), 4), [7; 4]);
    assert_eq!(sim.counts().torn, 1);
}

#[test]
fn one_nodes_verbs_keep_their_order_and_two_nodes_do_not() {
    let sim = Sim::new(2, BYTES);
    let mut executor = Executor::new(&sim);
    executor.spawn(0, async {
        let mut endpoint = sim.endpoint().unwrap();
        let mut batch = endpoint.batch();
        batch.write(at(8), &[1]);
        batch.cas(at(8), 1, 2);
        batch.faa(GlobalAddr::new(1, 64), 5);
        endpoint.submit(batch).await.unwrap();
    });
    let mut events = Vec::new();
    executor.perform(Event { task: 0, kind: EventKind::Run }, 0, WordOrder::Ascending);
    executor.events(&mut events);
    let heads: Vec<_> = events
        .iter()
        .map(|event| match event.kind {
            EventKind::Execute { node, verb, .. } => (node, verb),
            _ => panic!("{event:?}"),
        })
        .collect();
    assert_eq!(heads, [(0, 0), (1, 2)]);
    run(&mut executor);
    drop(executor);
    assert_eq!((read(&sim, at(8), 1), read(&sim, GlobalAddr::new(1, 64), 1)), (vec![2], vec![5]));
}

#[test]
fn a_dead_processs_verbs_may_land_until_it_is_fenced() {
    for fence_first in [false, true] {
        let sim = Sim::new(1, BYTES);
        let identity = sim.process(1).claim(3).unwrap();
        assert_eq!(sim.fence(suspect(3)).unwrap(), FenceOutcome::Alive);
        let mut executor = Executor::new(&sim);
        executor.spawn(1, async { write(sim.process(1), at(8), vec![9]).await.unwrap() });
        executor.perform(Event { task: 0, kind: EventKind::Run }, 0, WordOrder::Ascending);
        executor.kill(1);
        assert!(executor.has_ended(0) && sim.process(1).endpoint().is_err());
        if fence_first {
            assert_eq!(sim.fence(suspect(3)).unwrap(), FenceOutcome::Fenced);
        }
        run(&mut executor);
        drop((executor, identity));
        assert_eq!(read(&sim, at(8), 1), [if fence_first { 0 } else { 9 }]);
        assert!(sim.claim(3).is_ok());
    }
}

/// A task that waits for another continues only when that task wakes it. A task that is never woken
/// has no event.
#[test]
fn a_task_that_waits_for_another_runs_once_woken() {
    let sim = Sim::new(1, BYTES);
    let (waiting, told) = (RefCell::new(None::<std::task::Waker>), RefCell::new(Vec::new()));
    let mut executor = Executor::new(&sim);
    let waiting = &waiting;
    let wait = || {
        let mut first = true;
        std::future::poll_fn(move |context: &mut std::task::Context<'_>| {
            if std::mem::take(&mut first) {
                *waiting.borrow_mut() = Some(context.waker().clone());
                return std::task::Poll::Pending;
            }
            std::task::Poll::Ready(())
        })
    };
    executor.spawn(0, async {
        wait().await;
        told.borrow_mut().push("woken");
        wait().await;
        told.borrow_mut().push("never");
    });
    executor.spawn(0, async {
        write(sim.clone(), at(8), vec![1]).await.unwrap();
        told.borrow_mut().push("wakes");
        waiting.borrow_mut().take().unwrap().wake();
    });
    run(&mut executor);
    assert!(!executor.has_ended(0) && executor.has_ended(1) && !executor.all_ended());
    let mut events = Vec::new();
    executor.events(&mut events);
    assert_eq!(events, []);
    drop(executor);
    assert_eq!(told.into_inner(), ["wakes", "woken"]);
}

#[test]
fn a_future_run_alone_ends_or_is_given_up() {
    let sim = Sim::new(1, BYTES);
    assert_eq!(sim.run_alone(2, async { write(sim.clone(), at(8), vec![3]).await.is_ok() }), Some(true));
    assert_eq!(sim.run_alone(10, std::future::pending::<()>()), None);
    let endless = async {
        loop {
            write(sim.clone(), at(8), vec![4]).await.unwrap();
            sim.endpoint().unwrap().pause().await;
        }
    };
    assert_eq!(sim.run_alone::<()>(10, endless), None);
    assert_eq!((sim.counts().batches, read(&sim, at(8), 1)), (6, vec![4]));
}

#[test]
fn clocks_of_processes_begin_years_apart_and_drift_only_if_enabled() {
    let sim = Sim::new(1, BYTES);
    let read = || [0, 1, 2].map(|process| sim.process(process).endpoint().unwrap().now_ms());
    let begin = read();
    assert_eq!(begin[1] - begin[0], 3_600_000);
    assert_eq!(begin[0] - begin[2], 10 * 365 * 24 * 3_600_000);
    let passed = || {
        let now = read();
        [now[0] - begin[0], now[1] - begin[1], now[2] - begin[2]]
    };
    sim.advance_ms(1600);
    assert_eq!(passed(), [1600, 1600, 1600]);
    sim.let_clocks_drift();
    assert_eq!(passed(), [1600, 1700, 1500]);
}

/// Process 1, which may be dead.
fn suspect(slot: u32) -> Suspect {
    Suspect { slot, holder: 2, lapsed: false }
}

#[test]
fn a_process_beyond_its_lease_is_shut_out_though_it_lives() {
    let sim = Sim::new(1, BYTES);
    let other = sim.process(1);
    let identity = other.claim(0).unwrap();
    assert_eq!(identity.holder(), 2);
    let lapsed = Suspect { lapsed: true, ..suspect(0) };
    // Another holder of the slot is not affected.
    assert_eq!(sim.fence(Suspect { holder: 7, ..lapsed }).unwrap(), FenceOutcome::Fenced);
    block_on(write(other.clone(), at(8), vec![1])).unwrap();
    assert_eq!(sim.fence(suspect(0)).unwrap(), FenceOutcome::Alive);
    assert_eq!(sim.fence(lapsed).unwrap(), FenceOutcome::Fenced);
    assert!(matches!(block_on(write(other, at(8), vec![2])), Err(FabricError::Fenced)));
    assert_eq!(read(&sim, at(8), 1), [1]);
}

#[test]
fn a_paused_process_wakes_to_find_itself_fenced() {
    let sim = Sim::new(1, BYTES);
    let other = sim.process(1);
    let _identity = other.claim(0).unwrap();
    other.pause_process(true);
    assert_eq!(sim.fence(suspect(0)).unwrap(), FenceOutcome::Fenced);
    other.pause_process(false);
    assert!(other.is_fenced());
    assert!(matches!(block_on(write(other, at(8), vec![1])), Err(FabricError::Fenced)));
}

#[test]
fn a_cut_connection_fails_and_heals() {
    let sim = Sim::new(1, BYTES);
    let result = RefCell::new(None);
    let mut executor = Executor::new(&sim);
    executor.spawn(0, async {
        *result.borrow_mut() = Some(write(sim.clone(), at(8), vec![3]).await);
    });
    executor.perform(Event { task: 0, kind: EventKind::Run }, 0, WordOrder::Ascending);
    sim.cut(0);
    run(&mut executor);
    drop(executor);
    assert!(matches!(result.into_inner(), Some(Err(FabricError::Disconnected { node: 0 }))));
    sim.schedule(false);
    assert!(block_on(write(sim.clone(), at(8), vec![4])).is_err());
    sim.heal(0);
    assert!(block_on(write(sim.clone(), at(8), vec![5])).is_ok());
    assert_eq!(read(&sim, at(8), 1), [5]);
}

#[test]
fn a_dropped_future_leaves_its_verbs_under_way() {
    let sim = Sim::new(1, BYTES);
    sim.schedule(true);
    let mut endpoint = sim.endpoint().unwrap();
    let mut batch = endpoint.batch();
    batch.write(at(8), &[6]);
    {
        let mut future = std::pin::pin!(endpoint.submit(batch));
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        assert!(future.as_mut().poll(&mut context).is_pending());
    }
    assert_eq!(endpoint.in_flight(), 1);
    let mut executor = Executor::new(&sim);
    executor.spawn(0, async {});
    run(&mut executor);
    assert_eq!(endpoint.in_flight(), 0);
    assert_eq!(read(&sim, at(8), 1), [6]);
}

#[test]
fn power_failure_keeps_what_was_flushed() {
    let sim = Sim::new(1, BYTES);
    let snapshot = sim.snapshot();
    sim.set_medium(Medium::Never);
    block_on(write(sim.clone(), at(8), vec![1, 1])).unwrap();
    sim.persist().unwrap();
    block_on(write(sim.clone(), at(8), vec![2])).unwrap();
    block_on(write(sim.clone(), at(8), vec![3])).unwrap();
    sim.lose_power(vec![1]);
    assert_eq!((read(&sim, at(8), 2), sim.choices()), (vec![2, 1], vec![(1, 3)]));
    sim.restore(&snapshot);
    assert_eq!(read(&sim, at(8), 2), [0, 0]);
}

#[test]
fn bad_addresses_are_refused() {
    let sim = Sim::new(1, BYTES);
    for (addr, what) in [
        (GlobalAddr::new(1, 0), "no memory node"),
        (GlobalAddr::new(0, BYTES - 8), "outside"),
        (GlobalAddr::new(0, 12), "aligned"),
    ] {
        let error = block_on(write(sim.clone(), addr, vec![1, 1])).unwrap_err().to_string();
        assert!(error.contains(what), "{error}");
    }
}

/// Returns the verbs that may execute next.
fn offered(executor: &Executor<'_>) -> Vec<u32> {
    let mut events = Vec::new();
    executor.events(&mut events);
    let verb = |event: &Event| match event.kind {
        EventKind::Execute { verb, .. } => Some(verb),
        EventKind::Run | EventKind::Complete | EventKind::Reach { .. } => None,
    };
    events.iter().filter_map(verb).collect()
}

fn perform(executor: &mut Executor<'_>, wanted: u32, words: u32) {
    let mut events = Vec::new();
    executor.events(&mut events);
    let event = events
        .into_iter()
        .find(|event| matches!(event.kind, EventKind::Execute { verb, .. } if verb == wanted));
    executor.perform(event.unwrap(), words, WordOrder::Ascending);
}

#[test]
fn relaxed_verbs_keep_the_order_that_rdma_keeps() {
    let sim = Sim::new(1, BYTES);
    sim.relax("reorder".parse().unwrap());
    let seen = RefCell::new(Vec::new());
    let mut executor = Executor::new(&sim);
    executor.spawn(0, async {
        let mut endpoint = sim.endpoint().unwrap();
        let mut batch = endpoint.batch();
        let first = batch.read(at(8), 2);
        batch.write(at(8), &[1]);
        batch.faa(at(9), 5);
        let last = batch.read(at(8), 1);
        batch.fence().write(at(8), &[3]);
        let done = endpoint.submit(batch).await.unwrap();
        seen.borrow_mut().extend([done.words(first)[0], done.words(last)[0]]);
    });
    executor.perform(Event { task: 0, kind: EventKind::Run }, 0, WordOrder::Ascending);
    // The FAA waits for the WRITE; the READ and the fenced WRITE wait for all before them.
    assert_eq!(offered(&executor), [0, 1]);
    perform(&mut executor, 1, u32::MAX);
    assert_eq!(offered(&executor), [0, 2]);
    // A READ in pieces continues before another verb of its lane.
    perform(&mut executor, 0, 1);
    assert_eq!(offered(&executor), [0]);
    perform(&mut executor, 0, 1);
    assert_eq!(offered(&executor), [2]);
    perform(&mut executor, 2, u32::MAX);
    assert_eq!(offered(&executor), [3]);
    perform(&mut executor, 3, u32::MAX);
    assert_eq!(offered(&executor), [4]);
    run(&mut executor);
    drop(executor);
    assert_eq!(seen.into_inner(), [1, 1], "the first READ came after the WRITE");
    assert_eq!(read(&sim, at(8), 2), [3, 5]);
}

/// A WRITE between the two halves of a failing CAS is lost, and no other atomic executes in
/// between. A succeeding CAS has no second half here.
#[test]
fn a_cas_that_fails_writes_back_what_it_found() {
    for (expected, left) in [(1, 7), (7, 9)] {
        let sim = Sim::new(1, BYTES);
        block_on(write(sim.clone(), at(8), vec![7])).unwrap();
        sim.relax("writeback".parse().unwrap());
        let mut executor = Executor::new(&sim);
        executor.spawn(0, async {
            let mut endpoint = sim.endpoint().unwrap();
            let mut batch = endpoint.batch();
            batch.cas(at(8), expected, 5);
            endpoint.submit(batch).await.unwrap();
        });
        executor.spawn(0, async { write(sim.clone(), at(8), vec![9]).await.unwrap() });
        executor.spawn(0, async {
            let mut endpoint = sim.endpoint().unwrap();
            let mut batch = endpoint.batch();
            batch.faa(at(8), 100);
            endpoint.submit(batch).await.unwrap();
        });
        for task in 0..3 {
            executor.perform(Event { task, kind: EventKind::Run }, 0, WordOrder::Ascending);
        }
        let mut events = Vec::new();
        executor.events(&mut events);
        executor.perform(events[0], 1, WordOrder::Ascending);
        executor.events(&mut events);
        let verbs = |event: &&Event| matches!(event.kind, EventKind::Execute { .. });
        let tasks: Vec<_> = events.iter().filter(verbs).map(|event| event.task).collect();
        assert_eq!(tasks, if left == 7 { vec![0, 1] } else { vec![1, 2] });
        let write = *events.iter().find(|event| event.task == 1).unwrap();
        executor.perform(write, u32::MAX, WordOrder::Ascending);
        run(&mut executor);
        drop(executor);
        assert_eq!(read(&sim, at(8), 1), [left + 100]);
    }
}

/// The halves of an FAA by the device, and the verbs that may execute in between: the processor's
/// FAA is lost, the device's waits.
#[test]
fn atomics_of_two_sides_are_not_atomic_to_each_other() {
    for (side, left) in [(Side::Processor, 1), (Side::Device, 11)] {
        let sim = Sim::new(1, BYTES);
        sim.relax("split".parse().unwrap());
        sim.process(1).reach_by(side);
        let found = RefCell::new(Vec::new());
        let mut executor = Executor::new(&sim);
        for (process, addend) in [(0, 1), (1, 10)] {
            let (sim, found) = (sim.process(process), &found);
            executor.spawn(process, async move {
                let mut endpoint = sim.endpoint().unwrap();
                let mut batch = endpoint.batch();
                let sum = batch.faa(at(8), addend);
                let done = endpoint.submit(batch).await.unwrap();
                found.borrow_mut().push(done.fetched(sum));
            });
            executor.perform(Event { task: process, kind: EventKind::Run }, 0, WordOrder::Ascending);
        }
        let mut events = Vec::new();
        executor.events(&mut events);
        assert_eq!(events.len(), 2);
        executor.perform(events[0], 1, WordOrder::Ascending);
        executor.events(&mut events);
        assert_eq!(events.len(), if side == Side::Processor { 2 } else { 1 }, "{events:?}");
        executor.perform(events[events.len() - 1], u32::MAX, WordOrder::Ascending);
        run(&mut executor);
        drop(executor);
        let found = found.into_inner();
        assert_eq!(found, if side == Side::Processor { [0, 0] } else { [0, 1] });
        assert_eq!(read(&sim, at(8), 1), [left]);
    }
}

#[test]
fn a_cas_in_halves_stores_what_it_decided_to_store() {
    for (name, expected, left) in
        [("split", 7, 5), ("split", 1, 9), ("writeback", 7, 9), ("writeback", 1, 7), ("rdma+split", 1, 7)]
    {
        let sim = Sim::new(1, BYTES);
        block_on(write(sim.clone(), at(8), vec![7])).unwrap();
        sim.relax(name.parse().unwrap());
        let mut executor = Executor::new(&sim);
        executor.spawn(0, async {
            let mut endpoint = sim.endpoint().unwrap();
            let mut batch = endpoint.batch();
            let cas = batch.cas(at(8), expected, 5);
            let done = endpoint.submit(batch).await.unwrap();
            assert_eq!((done.found(cas), done.swapped(cas)), (7, expected == 7));
        });
        executor.spawn(0, async { write(sim.clone(), at(8), vec![9]).await.unwrap() });
        for task in 0..2 {
            executor.perform(Event { task, kind: EventKind::Run }, 0, WordOrder::Ascending);
        }
        let mut events = Vec::new();
        executor.events(&mut events);
        executor.perform(events[0], 1, WordOrder::Ascending);
        let write = *events.iter().find(|event| event.task == 1).unwrap();
        executor.perform(write, u32::MAX, WordOrder::Ascending);
        run(&mut executor);
        drop(executor);
        assert_eq!(read(&sim, at(8), 1), [left], "{name} {expected}");
    }
}

#[test]
fn every_set_of_relaxations_has_a_name() {
    for bits in 0..8 {
        let set = Relaxations {
            order: bits & 1 != 0,
            cas_writes_back: bits & 2 != 0,
            split_atomics: bits & 4 != 0,
        };
        assert_eq!(set.to_string().parse(), Ok(set));
    }
    assert!("rdma+".parse::<Relaxations>().unwrap_err().contains("rdma+split"));
}

/// An event may be performed after its verb has executed, for example by a scheduler that tears a
/// READ that turns out to be short: nothing happens twice.
#[test]
fn an_event_that_is_over_changes_nothing() {
    let sim = Sim::new(1, BYTES);
    let mut executor = Executor::new(&sim);
    executor.spawn(0, async {
        let mut endpoint = sim.endpoint().unwrap();
        let mut batch = endpoint.batch();
        batch.faa(at(8), 1);
        batch.faa(at(8), 10);
        endpoint.submit(batch).await.unwrap();
    });
    let mut events = Vec::new();
    executor.perform(Event { task: 0, kind: EventKind::Run }, 0, WordOrder::Ascending);
    executor.events(&mut events);
    let first = events[0];
    executor.perform(first, 0, WordOrder::Ascending);
    executor.perform(first, u32::MAX, WordOrder::Ascending);
    run(&mut executor);
    drop(executor);
    assert_eq!(read(&sim, at(8), 1), [11]);
}

/// A second executor was offered the completion of a batch that a paused task of the first one had
/// posted, since both were the first task of their executors. It then waited for its own batch for
/// ever.
#[test]
fn an_executor_next_to_another_completes_its_own_batches() {
    let sim = Sim::new(1, BYTES);
    let (paused, other) = (sim.process(1), sim.process(2));
    let mut outer = Executor::new(&sim);
    let first = outer.spawn(1, async { write(paused.clone(), at(8), vec![7]).await.unwrap() });
    outer.perform(Event { task: first, kind: EventKind::Run }, 0, WordOrder::Ascending);
    let mut events = Vec::new();
    outer.events(&mut events);
    outer.perform(events[0], u32::MAX, WordOrder::Ascending);
    paused.pause_process(true);

    let mut inner = Executor::new(&sim);
    let second = inner.spawn(2, async { write(other.clone(), at(16), vec![9]).await.unwrap() });
    assert_ne!(first, second);
    for _ in 0..3 {
        inner.events(&mut events);
        inner.perform(events[0], u32::MAX, WordOrder::Ascending);
    }
    assert!(inner.has_ended(second));
    drop(inner);
    paused.pause_process(false);
    run(&mut outer);
    assert!(outer.has_ended(first));
    drop(outer);
    assert_eq!((read(&sim, at(8), 1), read(&sim, at(16), 1)), (vec![7], vec![9]));
}

/// Formerly a READ of an object's unwritten end was a misuse: a reader that applies a new page's map
/// to the old page can read the end of its size class.
#[test]
fn unwritten_object_is_misused_but_its_unwritten_end_is_not() {
    let sim = Sim::new(1, BYTES);
    for start in [8, 16] {
        sim.note_object(at(start), 64, ObjectState::Allocated);
    }
    block_on(write(sim.clone(), at(8), vec![7; 3])).unwrap();
    read(&sim, at(15), 1);
    read(&sim, at(8), 8);
    assert_eq!(sim.misuse(), None);
    read(&sim, at(18), 1);
    let misuse = sim.misuse().unwrap();
    assert_eq!((misuse.what, misuse.addr), ("an object is used before it is written", at(18)));
}

/// With hints, verbs may reach free memory, and a double free is an error all the same.
#[test]
fn a_wrong_free_is_told_apart_from_a_wrong_use() {
    let sim = Sim::new(1, BYTES);
    sim.note_object(at(8), 64, ObjectState::Allocated);
    block_on(write(sim.clone(), at(8), vec![7; 8])).unwrap();
    sim.note_object(at(8), 64, ObjectState::Free);
    read(&sim, at(9), 1);
    assert_eq!(sim.misuse().unwrap().what, "a READ of free memory");
    assert_eq!(sim.wrong_free(), None);
    sim.note_object(at(8), 64, ObjectState::Free);
    assert_eq!(sim.misuse().unwrap().what, "a READ of free memory");
    assert_eq!(sim.wrong_free().unwrap().what, "free memory was freed");
}

/// A replay says who allocated, retired and freed the memory of a misuse, and who wrote to it last.
#[test]
fn a_journal_describes_what_has_happened_to_memory() {
    let sim = Sim::new(1, BYTES);
    sim.note_object(at(32), 64, ObjectState::Allocated);
    assert!(sim.journal_of(at(32)).is_empty() && sim.allocated().is_empty());
    sim.keep_journal();
    for start in [8, 16] {
        sim.note_object(at(start), 64, ObjectState::Allocated);
    }
    block_on(write(sim.clone(), at(10), vec![7; 3])).unwrap();
    sim.process(2).note_object(at(8), 64, ObjectState::Retired(5));
    sim.process(2).note_object(at(8), 64, ObjectState::Free);
    let lines = sim.journal_of(at(11));
    assert_eq!(lines.len(), 4, "{lines:?}");
    let told = ["allocated by task 0 of process 0", "retired at epoch 5", "freed", "a Write of 3 words"];
    for (line, told) in lines.iter().zip(told) {
        assert!(line.contains(told), "{line}");
    }
    assert_eq!(sim.journal_of(at(8)).len(), 3, "nothing was written there");
    assert_eq!(sim.allocated(), [(at(16), 64)]);
}
