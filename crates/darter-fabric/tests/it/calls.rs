//! Calls through the decorators: each forwards them, and counts, fails or delays them like batches.

use darter_fabric::decorate::{Aging, Delay, Delaying, FailPoint, Jitter};
use darter_fabric::{
    CallFault, Counting, Endpoint, Fabric, FabricError, Failing, GlobalAddr, Local, OpCounters, OpKind,
    Procedures, Tracing, block_on,
};
use std::time::Duration;

const AT: GlobalAddr = GlobalAddr::new(0, 4096);
/// Adds the words of its request to a word of the node, and returns the old value, twice.
const ADD: u64 = 1;

fn node() -> Local {
    let memory = Local::memory(64 << 10, 1).unwrap();
    let procedures = Procedures::new().with(ADD, &memory, |mut endpoint, words| async move {
        let mut batch = endpoint.batch();
        let sum = batch.faa(AT, words.iter().sum());
        let done = endpoint.submit(batch).await?;
        Ok(vec![done.fetched(sum); 2])
    });
    memory.with_procedures(0, procedures).unwrap()
}

fn sum(endpoint: &mut impl Endpoint) -> u64 {
    let mut batch = endpoint.batch();
    let word = batch.read(AT, 1);
    block_on(endpoint.submit(batch)).unwrap().words(word)[0]
}

#[test]
fn a_call_counts_apart_from_verbs() {
    let pool = Counting::new(node());
    assert!(pool.capabilities().calls);
    let mut endpoint = pool.endpoint().unwrap();
    endpoint.begin(OpKind::Insert);
    assert_eq!(block_on(endpoint.call(0, ADD, vec![1, 2, 3])).unwrap(), [0, 0]);
    // A call without a result was still made.
    block_on(endpoint.call(0, 2, vec![4])).unwrap_err();
    let expected = OpCounters {
        ops: 1,
        round_trips: 2,
        calls: 2,
        call_bytes: 32,
        answer_bytes: 16,
        ..OpCounters::default()
    };
    assert_eq!(endpoint.counters().unwrap()[OpKind::Insert], expected);
}

#[test]
fn a_call_passes_every_decorator() {
    let jitter = Jitter { share: 1.0, longest: Duration::from_micros(2), seed: 1 };
    let delay = Delay { pending_before: 1, pending_after: 1, jitter, ..Delay::default() };
    let pool = Tracing::new(Failing::new(Delaying::new(Aging::new(node(), 1), delay)), 8);
    let mut endpoint = pool.endpoint().unwrap();
    for round in 0..20 {
        assert_eq!(block_on(endpoint.call(0, ADD, vec![1])).unwrap(), [round; 2]);
    }
    assert_eq!((pool.trace().round_trips(), pool.trace().take().len()), (20, 0));
    let error = block_on(endpoint.call(0, 9, vec![])).unwrap_err();
    assert!(matches!(error, FabricError::Call(error) if error.fault == CallFault::Unknown));
}

#[test]
fn a_call_fails_where_a_batch_of_one_verb_would() {
    let pool = Failing::new(node());
    let mut endpoint = pool.endpoint().unwrap();
    for (point, takes_effect) in
        [(FailPoint::Verb(1), 0), (FailPoint::Submit(1), 0), (FailPoint::Reply(1), 1)]
    {
        let before = sum(&mut endpoint);
        pool.plan().fail_once(point);
        block_on(endpoint.call(0, ADD, vec![0])).unwrap();
        let error = block_on(endpoint.call(0, ADD, vec![1])).unwrap_err();
        assert!(matches!(error, FabricError::Injected { .. }), "{error}");
        assert_eq!(sum(&mut endpoint), before + takes_effect, "{point:?}");
    }
}
