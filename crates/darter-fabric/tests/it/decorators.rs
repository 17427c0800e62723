//! Tests of the decorators, and of stacking them.

use darter_fabric::decorate::{Aging, Delay, FailPoint, Jitter, JitterCounts};
use darter_fabric::{
    Batch, Counting, Delaying, Endpoint, Fabric, FabricError, Failing, GlobalAddr, Local, Membership,
    OpCounters, OpKind, Tracing, VerbKind, block_on,
};
use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

const AT: GlobalAddr = GlobalAddr::new(0, 4096);

fn memory() -> Local {
    Local::memory(64 << 10, 1).unwrap()
}

fn words<F: Fabric>(fabric: &F, count: usize) -> Vec<u64> {
    let mut endpoint = fabric.endpoint().unwrap();
    let mut batch = endpoint.batch();
    let id = batch.read(AT, count);
    block_on(endpoint.submit(batch)).unwrap().words(id).to_vec()
}

/// Three WRITEs of 1, 2, 3 into successive words.
fn three_writes(mut batch: Batch) -> Batch {
    for i in 0..3 {
        batch.write(AT.plus(i * 8), &[i + 1]);
    }
    batch
}

#[test]
fn counting_counts_by_kind_exactly() {
    let pool = Counting::new(memory());
    let mut endpoint = pool.endpoint().unwrap();
    endpoint.begin(OpKind::Insert);
    let mut batch = endpoint.batch();
    batch.write(AT, &[1, 2, 3]);
    batch.cas(AT, 1, 2);
    endpoint.retried();
    block_on(endpoint.submit(batch)).unwrap();
    endpoint.begin(OpKind::Get);
    let mut batch = endpoint.batch();
    batch.read(AT, 5);
    batch.faa(AT, 1);
    block_on(endpoint.submit(batch)).unwrap();
    let counters = *endpoint.counters().unwrap();
    assert_eq!(
        counters[OpKind::Insert],
        OpCounters {
            ops: 1,
            round_trips: 1,
            verbs: 2,
            read_bytes: 8,
            write_bytes: 24 + 16,
            retries: 1,
            ..Default::default()
        }
    );
    assert_eq!(
        counters[OpKind::Get],
        OpCounters { ops: 1, round_trips: 1, verbs: 2, read_bytes: 48, write_bytes: 8, ..Default::default() }
    );
    assert_eq!(counters.total().round_trips, 2);
    assert_eq!(pool.endpoint().unwrap().counters().unwrap().total(), OpCounters::default());
    assert!(memory().endpoint().unwrap().counters().is_none());
}

#[test]
fn tracing_records_what_was_posted_and_found() {
    let pool = Tracing::new(memory(), 4);
    let mut endpoint = pool.endpoint().unwrap();
    endpoint.begin(OpKind::Update);
    let mut batch = endpoint.batch();
    batch.write(AT, &[7]);
    batch.cas(AT, 6, 9);
    block_on(endpoint.submit(batch)).unwrap();
    let text = pool.trace().to_string();
    assert_eq!(
        text,
        "#0 ep0 update WRITE mn0+0x1000 1 words\n#0 ep0 update CAS mn0+0x1000 0x6 -> 0x9 found 0x7\n"
    );
    assert_eq!(pool.trace().take().len(), 2);
    // The record is bounded, and completing a batch that was partly dropped from it does no harm.
    let mut batch = endpoint.batch();
    for i in 0..6 {
        batch.faa(AT, i);
    }
    block_on(endpoint.submit(batch)).unwrap();
    let verbs = pool.trace().take();
    let found: Vec<_> = verbs.iter().map(|verb| (verb.kind, verb.operands[0], verb.found)).collect();
    let expected = [(2, 8), (3, 10), (4, 13), (5, 17)];
    assert_eq!(found, expected.map(|(addend, found)| (VerbKind::Faa, addend, Some(found))));
    assert_eq!(pool.trace().round_trips(), 2);
}

#[test]
fn failing_at_each_verb_lets_exactly_the_earlier_ones_land() {
    for n in 0..3 {
        let pool = Failing::new(memory());
        pool.plan().fail_once(FailPoint::Verb(n));
        let mut endpoint = pool.endpoint().unwrap();
        let batch = three_writes(endpoint.batch());
        let result = block_on(endpoint.submit(batch));
        assert!(matches!(result, Err(FabricError::Injected { verb }) if verb == n));
        assert!(pool.plan().has_failed());
        let expected: Vec<u64> = (1..=3).map(|i| if i <= n { i } else { 0 }).collect();
        assert_eq!(words(&pool, 3), expected);
    }
}

#[test]
fn failing_counts_without_a_point_and_stays_dead_after_fail_from() {
    let pool = Failing::new(memory());
    let mut endpoint = pool.endpoint().unwrap();
    let batch = three_writes(endpoint.batch());
    block_on(endpoint.submit(batch)).unwrap();
    assert_eq!((pool.plan().verbs(), pool.plan().submits()), (3, 1));

    pool.plan().fail_from(FailPoint::Submit(1));
    for round in 0..4 {
        let mut batch = endpoint.batch();
        batch.faa(AT, 10);
        assert_eq!(block_on(endpoint.submit(batch)).is_ok(), round == 0);
    }
    pool.plan().heal();
    assert_eq!(words(&pool, 1), [11]);

    pool.plan().fail_once(FailPoint::Reply(0));
    let mut batch = endpoint.batch();
    batch.faa(AT, 10);
    assert!(block_on(endpoint.submit(batch)).is_err());
    assert_eq!(words(&pool, 1), [21]);
}

#[test]
fn a_delayed_future_can_be_dropped_before_and_after_its_verbs() {
    let delay = Delay { pending_before: 2, pending_after: 2, ..Delay::default() };
    for (polls, landed) in [(0, 0), (1, 0), (2, 0), (3, 1), (4, 1)] {
        let pool = Delaying::new(memory(), delay);
        let mut endpoint = pool.endpoint().unwrap();
        let mut batch = endpoint.batch();
        batch.write(AT, &[1]);
        {
            let mut future = pin!(endpoint.submit(batch));
            let mut context = Context::from_waker(Waker::noop());
            for _ in 0..polls {
                assert!(matches!(future.as_mut().poll(&mut context), Poll::Pending));
            }
        }
        assert_eq!(words(pool.inner(), 1), [landed], "after {polls} polls");
        // The endpoint is still usable, and block_on waits for the delay.
        assert_eq!(words(&pool, 1), [landed]);
        assert_eq!(endpoint.in_flight(), 0);
    }
}

/// Random delays, short enough for a test.
fn jitter(share: f64) -> Delay {
    Delay { jitter: Jitter { share, longest: Duration::from_micros(50), seed: 7 }, ..Delay::default() }
}

/// Every verb that is split or delayed, in any order, has the same result.
#[test]
fn delays_at_random_change_no_result() {
    let pool = Delaying::new(Local::memory(64 << 10, 2).unwrap(), jitter(1.0));
    let mut endpoint = pool.endpoint().unwrap();
    let there = GlobalAddr::new(1, 8192);
    for round in 1..300_u64 {
        let mut batch = endpoint.batch();
        batch.write(AT, &[round, round + 1, round + 2, round + 3]);
        batch.write(there, &[round; 3]);
        let swap = batch.cas(AT, round, 99);
        let fail = batch.cas(there, round + 1, 5);
        let sum = batch.faa(AT.plus(24), 4);
        let here = batch.read(AT, 4);
        let other = batch.read(there, 3);
        let batch = block_on(endpoint.submit(batch)).unwrap();
        assert!(batch.swapped(swap) && !batch.swapped(fail));
        assert_eq!((batch.found(fail), batch.fetched(sum)), (round, round + 3));
        assert_eq!(batch.words(here), [99, round + 1, round + 2, round + 7]);
        assert_eq!(batch.words(other), [round; 3]);
        endpoint.recycle(batch);
    }
    let counts = pool.tally().counts();
    assert_eq!(counts.batches, 299);
    assert!(counts.split > 50 && counts.split < 200, "{counts:?}");
    assert!(
        counts.time > Duration::from_micros(299) && counts.time < Duration::from_millis(15),
        "{counts:?}"
    );
}

/// A batch in two parts lets other clients in: a WRITE of four words is observed torn, at either
/// end, and verbs to two nodes in either order. The record of an inner decorator shows the parts in
/// which they were posted.
#[test]
fn delays_at_random_post_what_may_come_first() {
    let pool = Delaying::new(Tracing::new(Local::memory(64 << 10, 2).unwrap(), 10), jitter(1.0));
    let mut endpoint = pool.endpoint().unwrap();
    let there = GlobalAddr::new(1, 8192);
    let (mut torn_head, mut torn_tail, mut later_node_first, mut whole) = (0, 0, 0, 0);
    for _ in 0..400 {
        let mut batch = endpoint.batch();
        batch.write(AT, &[1, 2, 3, 4]);
        batch.write(there, &[5]);
        block_on(endpoint.submit(batch)).unwrap();
        let verbs = pool.inner().trace().take();
        let first: Vec<_> = verbs.iter().filter(|verb| verb.round_trip == verbs[0].round_trip).collect();
        whole += u32::from(first.len() == 2 && verbs.len() == 2);
        later_node_first += u32::from(first[0].addr == there);
        let torn = first[0].addr.node() == 0 && first[0].words < 4;
        torn_head += u32::from(torn && first[0].operands[0] == 1);
        torn_tail += u32::from(torn && first[0].operands[0] > 1);
    }
    assert!(
        torn_head > 10 && torn_tail > 10 && later_node_first > 10 && whole > 200,
        "{torn_head} {torn_tail} {later_node_first} {whole}"
    );
}

/// The same seed delays the same batches for the same time, another seed delays others, and a share
/// of zero delays nothing.
#[test]
fn a_seed_decides_the_delays() {
    let run = |delay: Delay| {
        let pool = Delaying::new(memory(), delay);
        let mut endpoint = pool.endpoint().unwrap();
        for _ in 0..500 {
            let batch = three_writes(endpoint.batch());
            block_on(endpoint.submit(batch)).unwrap();
        }
        pool.tally().counts()
    };
    let counts = run(jitter(0.1));
    assert_eq!(counts, run(jitter(0.1)));
    assert!(counts.batches > 25 && counts.batches < 100, "{counts:?}");
    let mut other = jitter(0.1);
    other.jitter.seed += 1;
    assert_ne!(counts, run(other));
    assert_eq!(run(Delay::default()), JitterCounts::default());
}

/// A batch whose second part fails returns an error, but its first part has taken effect.
#[test]
fn a_batch_that_fails_between_its_parts_has_half_landed() {
    let mut halves = 0;
    for seed in 0..40 {
        let failing = Failing::new(memory());
        let mut delay = jitter(1.0);
        delay.jitter.seed = seed;
        let pool = Delaying::new(failing.clone(), delay);
        failing.plan().fail_once(FailPoint::Submit(1));
        let mut endpoint = pool.endpoint().unwrap();
        let batch = three_writes(endpoint.batch());
        if block_on(endpoint.submit(batch)).is_err() {
            halves += 1;
            let landed = words(&failing, 3);
            assert!(landed[0] == 1 && landed[2] == 0, "{landed:?}");
        }
    }
    assert!(halves > 3, "{halves}");
}

/// Only long WRITEs to an address that was written before are counted, by any endpoint.
#[test]
fn aging_counts_what_is_written_again() {
    let pool = Aging::new(memory(), 3);
    for (at, words, again) in
        [(0, 3, 0), (64, 4, 0), (0, 2, 0), (8, 3, 0), (0, 5, 1), (64, 3, 2), (64, 2, 2), (8, 3, 3)]
    {
        let mut endpoint = pool.endpoint().unwrap();
        let mut batch = endpoint.batch();
        batch.write(AT.plus(at), &vec![1; words]);
        batch.read(AT.plus(at), words);
        block_on(endpoint.submit(batch)).unwrap();
        assert_eq!(pool.tally().ages().count(), again, "{at} {words}");
    }
    let mut endpoint = pool.endpoint().unwrap();
    std::thread::sleep(Duration::from_millis(3));
    let mut batch = endpoint.batch();
    batch.write(AT, &[1; 3]);
    let before = pool.tally().ages();
    block_on(endpoint.submit(batch)).unwrap();
    let after = pool.tally().ages();
    let place = (0..).zip(before.0.iter().zip(after.0)).find(|(_, (before, after))| *before != after);
    assert!(matches!(place, Some((12.., (0, 1)))), "{place:?}");
}

#[test]
fn decorators_stack() {
    let pool = Failing::new(Tracing::new(Delaying::new(Counting::new(memory()), Delay::default()), 16));
    let mut endpoint = pool.endpoint().unwrap();
    endpoint.begin(OpKind::Scan);
    endpoint.retried();
    let batch = three_writes(endpoint.batch());
    let batch = block_on(endpoint.submit(batch)).unwrap();
    endpoint.recycle(batch);
    let scan = endpoint.counters().unwrap()[OpKind::Scan];
    assert_eq!((scan.ops, scan.verbs, scan.retries), (1, 3, 1));
    assert!(pool.inner().trace().take().iter().all(|verb| verb.op == OpKind::Scan));
    assert_eq!((pool.nodes(), pool.node_bytes(0)), (1, 64 << 10));
    let held = pool.claim(1).unwrap();
    assert!(pool.inner().claim(1).is_err());
    drop(held);
    pool.persist().unwrap();
}
