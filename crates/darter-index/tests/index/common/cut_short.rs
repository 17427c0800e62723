//! Operations that end early, at every possible point: a verb fails, a reply is lost, or a future
//! is dropped. In each case the operation either took effect or did not, the index is sound, and
//! its clients continue.

use super::{Bench, Model, Tested, delayed_memory, memory};
use darter_fabric::decorate::{Delay, FailPlan, FailPoint};
use darter_fabric::{Fabric, FabricError, block_on};
use darter_index::{Condition, IndexError, OrderedIndex};
use darter_pool::{Client, PoolError, PoolOptions};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

enum CutStep {
    Put(Vec<u8>, Vec<u8>),
    Delete(Vec<u8>),
}

/// Steps that cover everything: fan-out through all node types and back, splits, prefixes, long
/// keys.
fn script() -> Vec<CutStep> {
    let key = |n: u32| match n % 3 {
        0 => vec![b'f', (n % 256) as u8],
        1 => [vec![b'p'; n as usize % 50], vec![(n % 7) as u8]].concat(),
        _ => vec![0; n as usize % 30],
    };
    // With this seed, later deletes collapse all nodes that failed deletes have left with one
    // child.
    let mut dice = Pcg64Mcg::seed_from_u64(3);
    let puts = (0..150).map(|n| CutStep::Put(key(n * 5), vec![n as u8; n as usize * 3]));
    let mut steps: Vec<CutStep> = puts.collect();
    steps.extend((0..150).map(|_| {
        let key = key(dice.random_range(0..750_u32));
        if dice.random_range(0..3) == 0 { CutStep::Put(key, vec![9; 40]) } else { CutStep::Delete(key) }
    }));
    steps
}

/// The model after a step.
fn applied(model: &Model, step: &CutStep) -> Model {
    let mut model = model.clone();
    match step {
        CutStep::Put(key, value) => drop(model.insert(key.clone(), value.clone())),
        CutStep::Delete(key) => drop(model.remove(key)),
    }
    model
}

/// Sets the model to the state, of the two possible ones, in which the index is for the step's key.
fn settle_on<T: Tested, F: Fabric>(watcher: &mut Bench<T, F>, model: &mut Model, step: &CutStep) {
    let (CutStep::Put(key, _) | CutStep::Delete(key)) = step;
    let after = applied(model, step);
    let found = watcher.get(key);
    if found.as_ref() == after.get(key) {
        *model = after;
    } else {
        assert_eq!(found.as_ref(), model.get(key), "the step left a third state");
    }
}

async fn run<F: Fabric, I: OrderedIndex<F>>(
    index: &I,
    client: &mut Client<F>,
    step: &CutStep,
) -> Result<(), IndexError> {
    match step {
        CutStep::Put(key, value) => index.put(client, key, value, Condition::Always).await.map(drop),
        CutStep::Delete(key) => index.delete(client, key).await.map(drop),
    }
}

/// Memory of operations that were cut short may be lost to the pool until their process has ended.
/// Nothing else may be wrong, and after that not even this.
fn assert_sound_in_the_end<T: Tested, F: Fabric>(mut bench: Bench<T, F>, model: &Model) {
    bench.assert_holds(model);
    let report = bench.check();
    assert_eq!(report.violations, Vec::<String>::new());
    assert_eq!(report.stats.keys, model.len() as u64);
    let mut bench = bench.reopened();
    bench.assert_holds(model);
    bench.assert_sound(model.len());
}

/// Each step of the script first fails, at a later verb each time, until it succeeds.
fn fails_at_every<T: Tested>(point: impl Fn(u64) -> FailPoint) {
    let fabric = memory(32 << 20, 2);
    let plan: FailPlan = fabric.plan().clone();
    let mut watcher = Bench::<T, _>::on(fabric, &PoolOptions::default());
    let (index, mut client) = (watcher.index.clone(), watcher.pool.client().unwrap());
    let mut model = Model::new();
    let mut failures = 0_u64;
    for step in script() {
        for at in 0.. {
            assert!(at < 10_000, "the step never passes");
            plan.fail_once(point(at));
            let outcome = block_on(run(&index, &mut client, &step));
            let failed = plan.has_failed();
            plan.heal();
            match outcome {
                Ok(()) => {
                    model = applied(&model, &step);
                    // A step is done once it meets no failure. A failure in upkeep does not make
                    // the operation fail.
                    if !failed {
                        break;
                    }
                }
                Err(error) => {
                    let is_ours = matches!(
                        error,
                        IndexError::Fabric(FabricError::Injected { .. })
                            | IndexError::Pool(PoolError::Fabric(FabricError::Injected { .. }))
                    );
                    assert!(is_ours, "{error}");
                    failures += 1;
                    settle_on(&mut watcher, &mut model, &step);
                }
            }
        }
        watcher.maintain();
    }
    assert!(failures > T::FAILURES_MIN, "only {failures} failures");
    drop((client, index));
    assert_sound_in_the_end(watcher, &model);
}

pub(crate) fn fails_at_every_verb<T: Tested>() {
    fails_at_every::<T>(FailPoint::Verb);
}

pub(crate) fn fails_at_every_batch<T: Tested>() {
    fails_at_every::<T>(FailPoint::Submit);
}

pub(crate) fn loses_every_reply<T: Tested>() {
    fails_at_every::<T>(FailPoint::Reply);
}

/// A check fails if one of its verbs fails, and does not report what it could not read as damaged.
pub(crate) fn a_check_that_cannot_read_reports_no_damage<T: Tested>() {
    let fabric = memory(32 << 20, 2);
    let plan = fabric.plan().clone();
    let mut bench = Bench::<T, _>::on(fabric, &PoolOptions::default());
    for step in script().iter().filter(|step| matches!(step, CutStep::Put(..))) {
        block_on(run(&bench.index, &mut bench.client, step)).unwrap();
    }
    plan.heal();
    assert_eq!(bench.check().violations, Vec::<String>::new());
    let verbs = plan.verbs();
    assert!(verbs > 10, "only {verbs} verbs");
    for at in 0..verbs {
        plan.fail_once(FailPoint::Verb(at));
        let checked = block_on(bench.index.check(&mut bench.client));
        assert!(checked.is_err(), "no error at verb {at} of {verbs}");
    }
    plan.heal();
    assert_eq!(bench.check().violations, Vec::<String>::new());
}

/// Polls a future the given number of times, then drops it. Returns its result if it was ready in
/// time.
fn poll_times<R>(future: impl Future<Output = R>, times: u64) -> Option<R> {
    let mut future = pin!(future);
    let mut context = Context::from_waker(Waker::noop());
    (0..times).find_map(|_| match future.as_mut().poll(&mut context) {
        Poll::Ready(output) => Some(output),
        Poll::Pending => None,
    })
}

pub(crate) fn dropped_at_every_await<T: Tested>() {
    let delay = Delay { pending_before: 1, pending_after: 1, ..Delay::default() };
    // Generous: a slab or a block whose creation is cut short stays unusable until its process has
    // ended.
    let fabric = delayed_memory(128 << 20, 2, delay);
    let mut watcher = Bench::<T, _>::on(fabric, &PoolOptions::default());
    let (index, mut client) = (watcher.index.clone(), watcher.pool.client().unwrap());
    let mut model = Model::new();
    let mut drops = 0_u64;
    for step in script() {
        for polls in 1.. {
            assert!(polls < 10_000, "the step is never ready");
            if let Some(outcome) = poll_times(run(&index, &mut client, &step), polls) {
                outcome.unwrap();
                model = applied(&model, &step);
                break;
            }
            drops += 1;
            settle_on(&mut watcher, &mut model, &step);
        }
        watcher.maintain();
    }
    assert!(drops > 2 * T::FAILURES_MIN, "only {drops} drops");
    drop((client, index));
    assert_sound_in_the_end(watcher, &model);
}
