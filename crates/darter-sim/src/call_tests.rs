//! Tests of simulated calls: all interleavings of a procedure's verbs, and the results of callers
//! when a server dies, pauses or is replaced.

use super::*;
use darter_fabric::{
    CallFault, Endpoint, Fabric, FabricError, FenceOutcome, GlobalAddr, Procedures, Suspect,
};
use darter_fabric::{Membership, ProcedureError, block_on};
use std::cell::RefCell;
use std::collections::BTreeSet;

/// The server's process; callers are below.
const SERVER: u32 = 9;
/// Adds one to a word by READ and WRITE, then copies it to the next word.
const ADD: u64 = 1;
const WORD: u64 = 64;

fn node() -> (Sim, SimServer) {
    let sim = Sim::new(1, 1 << 12);
    let server = serve(&sim, SERVER);
    (sim, server)
}

fn serve(sim: &Sim, process: u32) -> SimServer {
    let own = sim.process(process);
    let procedures = Procedures::new().with(ADD, &own, |mut endpoint, _| async move {
        let sum = read(&mut endpoint, 1).await?[0] + 1;
        for word in 0..2 {
            let mut batch = endpoint.batch();
            batch.write(GlobalAddr::new(0, WORD + word * 8), &[sum]);
            endpoint.submit(batch).await?;
        }
        Ok(vec![sum])
    });
    own.serve(0, procedures)
}

async fn read(endpoint: &mut SimEndpoint, words: usize) -> Result<Vec<u64>, FabricError> {
    let mut batch = endpoint.batch();
    let id = batch.read(GlobalAddr::new(0, WORD), words);
    Ok(endpoint.submit(batch).await?.words(id).to_vec())
}

type Outcomes = RefCell<Vec<Result<Vec<u64>, FabricError>>>;

async fn call(sim: Sim, outcomes: &Outcomes) {
    let mut endpoint = sim.endpoint().unwrap();
    let outcome = endpoint.call(0, ADD, vec![]).await;
    outcomes.borrow_mut().push(outcome);
}

fn fault(outcomes: &Outcomes) -> Option<CallFault> {
    match outcomes.borrow_mut().pop() {
        Some(Err(FabricError::Call(error))) => Some(error.fault),
        _ => None,
    }
}

/// Performs events until none is left or `enough` were performed. `choose` picks one out of the
/// given number of events.
fn run(executor: &mut Executor<'_>, enough: usize, mut choose: impl FnMut(usize) -> usize) -> usize {
    let mut events = Vec::new();
    for done in 0..enough {
        executor.events(&mut events);
        if events.is_empty() {
            return done;
        }
        let event = events[choose(events.len())];
        executor.perform(event, u32::MAX, WordOrder::Ascending);
    }
    enough
}

/// Always chooses the first event.
fn first(_: usize) -> usize {
    0
}

/// Runs two calls and one READ of both words under schedules of many seeds. Returns the final
/// values of the word, and the results of the READ.
fn explored() -> (BTreeSet<u64>, BTreeSet<Vec<u64>>) {
    let (sim, _server) = node();
    let start = sim.snapshot();
    let (mut sums, mut found) = (BTreeSet::new(), BTreeSet::new());
    for seed in 1..500_u64 {
        sim.restore(&start);
        let _server = serve(&sim, SERVER);
        let (outcomes, seen) = (Outcomes::default(), RefCell::default());
        let mut executor = Executor::new(&sim);
        for process in 0..2 {
            executor.spawn(process, call(sim.process(process), &outcomes));
        }
        executor.spawn(2, async {
            let words = read(&mut sim.process(2).endpoint().unwrap(), 2).await.unwrap();
            seen.replace(words);
        });
        let mut random = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        run(&mut executor, usize::MAX, |events| {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            (random % events as u64) as usize
        });
        assert!(executor.all_ended());
        drop(executor);
        let mut answers: Vec<u64> = outcomes.take().into_iter().map(|it| it.unwrap()[0]).collect();
        answers.sort_unstable();
        sim.schedule(false);
        let sum = block_on(read(&mut sim.endpoint().unwrap(), 1)).unwrap()[0];
        assert!(answers == [1, 2] && sum == 2 || answers == [1, 1] && sum == 1, "{answers:?} {sum}");
        sums.insert(sum);
        found.insert(seen.take());
    }
    (sums, found)
}

#[test]
fn procedures_interleave_with_each_other_and_with_readers() {
    let (sums, found) = explored();
    assert_eq!(sums, BTreeSet::from([1, 2]), "runs with and without a lost update");
    for words in [vec![0, 0], vec![1, 0], vec![1, 1]] {
        assert!(found.contains(&words), "{words:?} in {found:?}");
    }
}

/// Kills the server at every event of a call: the caller gets the reply if it was sent, and the
/// error otherwise, and the words reflect the verbs that were executed.
#[test]
fn a_call_ends_with_its_server() {
    let (sim, _server) = node();
    let start = sim.snapshot();
    let mut outcomes_met = BTreeSet::new();
    for events in 1.. {
        sim.restore(&start);
        let _server = serve(&sim, SERVER);
        let outcomes = Outcomes::default();
        let mut executor = Executor::new(&sim);
        executor.spawn(0, call(sim.process(0), &outcomes));
        let has_ended = run(&mut executor, events, first) < events;
        executor.kill(SERVER);
        run(&mut executor, usize::MAX, first);
        assert!(executor.all_ended(), "after {events} events");
        drop(executor);
        sim.schedule(false);
        let words = block_on(read(&mut sim.endpoint().unwrap(), 2)).unwrap();
        let answered = outcomes.borrow().iter().all(Result::is_ok);
        let fault = fault(&outcomes);
        assert!(answered || fault == Some(CallFault::ServerGone), "after {events} events: {fault:?}");
        assert!(!answered || words == [1, 1]);
        outcomes_met.insert((answered, words));
        if has_ended {
            break;
        }
    }
    // A caller that gets the error cannot know which of these happened.
    for words in [[0, 0], [1, 0], [1, 1]] {
        assert!(outcomes_met.contains(&(false, words.to_vec())), "{words:?} in {outcomes_met:?}");
    }
    assert!(outcomes_met.contains(&(true, vec![1, 1])));
}

#[test]
fn a_dead_server_is_unreachable_until_another_takes_its_place() {
    let (sim, server) = node();
    let outcomes = Outcomes::default();
    let mut executor = Executor::new(&sim);
    executor.kill(SERVER);
    executor.spawn(0, call(sim.process(0), &outcomes));
    run(&mut executor, usize::MAX, first);
    assert!(matches!(outcomes.take()[..], [Err(FabricError::Unreachable { node: 0 })]));
    let another = serve(&sim, SERVER + 1);
    // The old server's end does not end its successor.
    drop(server);
    executor.spawn(0, call(sim.process(0), &outcomes));
    run(&mut executor, usize::MAX, first);
    assert_eq!(outcomes.take().pop().unwrap().unwrap(), [1]);
    drop(another);
    executor.spawn(0, call(sim.process(0), &outcomes));
    run(&mut executor, usize::MAX, first);
    assert_eq!(fault(&outcomes), Some(CallFault::NoServer));
}

#[test]
fn a_server_of_before_a_restore_ends_nothing() {
    let (sim, before) = node();
    sim.restore(&sim.snapshot());
    let mut endpoint = sim.endpoint().unwrap();
    let error = block_on(endpoint.call(0, ADD, vec![])).unwrap_err();
    assert!(matches!(error, FabricError::Call(error) if error.fault == CallFault::NoServer));
    let _server = serve(&sim, SERVER);
    drop(before);
    assert_eq!(block_on(endpoint.call(0, ADD, vec![])).unwrap(), [1]);
}

#[test]
fn a_paused_server_answers_late_or_is_shut_out() {
    let (sim, _server) = node();
    let server = sim.process(SERVER);
    let outcomes = Outcomes::default();
    for is_fenced in [false, true] {
        let identity = server.claim(3).unwrap();
        let mut executor = Executor::new(&sim);
        executor.spawn(0, call(sim.process(0), &outcomes));
        run(&mut executor, 4, first);
        server.pause_process(true);
        run(&mut executor, usize::MAX, first);
        assert!(outcomes.borrow().is_empty() && !executor.has_ended(0));
        if is_fenced {
            let suspect = Suspect { slot: 3, holder: identity.holder(), lapsed: true };
            assert_eq!(sim.fence(suspect).unwrap(), FenceOutcome::Fenced);
        } else {
            server.pause_process(false);
        }
        run(&mut executor, usize::MAX, first);
        assert!(executor.has_ended(0));
        if is_fenced {
            assert_eq!(fault(&outcomes), Some(CallFault::ServerGone));
        } else {
            assert!(outcomes.take().pop().unwrap().is_ok());
        }
    }
}

#[test]
fn a_fenced_callers_call_does_not_begin() {
    let (sim, _server) = node();
    let caller = sim.process(0);
    let identity = caller.claim(3).unwrap();
    let outcomes = Outcomes::default();
    let mut executor = Executor::new(&sim);
    executor.spawn(0, call(caller.clone(), &outcomes));
    run(&mut executor, 1, first);
    executor.kill(0);
    let suspect = Suspect { slot: 3, holder: identity.holder(), lapsed: false };
    assert_eq!(sim.process(1).fence(suspect).unwrap(), FenceOutcome::Fenced);
    run(&mut executor, usize::MAX, first);
    drop(executor);
    sim.schedule(false);
    assert_eq!(block_on(read(&mut sim.process(1).endpoint().unwrap(), 2)).unwrap(), [0, 0]);
}

#[test]
fn a_cut_loses_the_answer_and_a_dropped_call_runs_on() {
    let (sim, _server) = node();
    let outcomes = Outcomes::default();
    let mut executor = Executor::new(&sim);
    executor.spawn(0, call(sim.process(0), &outcomes));
    run(&mut executor, 3, first);
    sim.process(0).cut(0);
    run(&mut executor, usize::MAX, first);
    assert_eq!(fault(&outcomes), Some(CallFault::ServerGone));
    let endpoint = sim.process(1).endpoint().unwrap();
    let orphans = endpoint.orphans().unwrap();
    executor.spawn(1, async move {
        let mut endpoint = endpoint;
        let mut call = Box::pin(endpoint.call(0, ADD, vec![]));
        // Sent, and dropped before the server does anything.
        std::future::poll_fn(|context| {
            assert!(call.as_mut().poll(context).is_pending());
            std::task::Poll::Ready(())
        })
        .await;
    });
    // The remaining steps of the first call's server, then the start of the second task.
    run(&mut executor, 1, first);
    assert_eq!(orphans.in_flight(), 1);
    run(&mut executor, usize::MAX, first);
    assert_eq!(orphans.in_flight(), 0);
    drop(executor);
    sim.schedule(false);
    assert_eq!(block_on(read(&mut sim.process(1).endpoint().unwrap(), 2)).unwrap(), [2, 2]);
}

#[test]
fn outside_of_an_executor_a_call_runs_at_once() {
    let (sim, _server) = node();
    let mut endpoint = sim.endpoint().unwrap();
    assert_eq!(block_on(endpoint.call(0, ADD, vec![])).unwrap(), [1]);
    let failing = Procedures::new().with(2, &sim, |_, _| async { Err(ProcedureError::new(5, "no")) });
    let _server = sim.process(SERVER).serve(0, failing);
    let error = block_on(endpoint.call(0, 2, vec![])).unwrap_err();
    let failed = CallFault::Failed(ProcedureError::new(5, "no"));
    assert!(matches!(&error, FabricError::Call(it) if it.fault == failed), "{error}");
}
