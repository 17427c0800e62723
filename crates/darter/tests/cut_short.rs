//! Operations that end early, at every place where they can: a verb that fails, a reply that is lost, a future that is
//! dropped. Either way the operation took effect or it did not, the store is sound, and the session goes on.

#![allow(clippy::unwrap_used)] // a test may panic

mod adversary;

use adversary::{Dice, Model, assert_holds};
use darter::{AsyncSession, Error, Fabric, OpKind, Session, Store, StoreOptions, block_on};
use darter_fabric::decorate::{Delay, Delaying, FailPlan, FailPoint, Failing};
use darter_fabric::{Counting, Local};
use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

enum Step {
    Put(Vec<u8>, Vec<u8>),
    Delete(Vec<u8>),
}

/// Steps that touch everything: fan-out through all node types and back, splits, prefixes, long keys.
fn script() -> Vec<Step> {
    let key = |n: u32| match n % 3 {
        0 => vec![b'f', (n % 256) as u8],
        1 => [vec![b'p'; n as usize % 50], vec![(n % 7) as u8]].concat(),
        _ => vec![0; n as usize % 30],
    };
    let mut dice = Dice::new(1);
    let puts = (0..150).map(|n| Step::Put(key(n * 5), vec![n as u8; n as usize * 3]));
    let mut steps: Vec<Step> = puts.collect();
    steps.extend((0..150).map(|_| {
        let key = key(dice.below(750) as u32);
        if dice.below(3) == 0 { Step::Put(key, vec![9; 40]) } else { Step::Delete(key) }
    }));
    steps
}

fn quiet() -> StoreOptions {
    Store::options().maintenance(false).auto_adjust(false)
}

/// What a step makes of the model.
fn applied(model: &Model, step: &Step) -> Model {
    let mut model = model.clone();
    match step {
        Step::Put(key, value) => drop(model.insert(key.clone(), value.clone())),
        Step::Delete(key) => drop(model.remove(key)),
    }
    model
}

/// Takes over whichever of the two states the store is in for the step's key.
fn settle_on<F: Fabric>(session: &mut Session<F>, model: &mut Model, step: &Step) {
    let (Step::Put(key, _) | Step::Delete(key)) = step;
    let after = applied(model, step);
    let found = session.get(key).unwrap();
    if found.as_ref() == after.get(key) {
        *model = after;
    } else {
        assert_eq!(found.as_ref(), model.get(key), "the step left a third state");
    }
}

async fn run<F: Fabric>(session: &mut AsyncSession<F>, step: &Step) -> Result<(), Error> {
    match step {
        Step::Put(key, value) => session.put(key, value).await.map(drop),
        Step::Delete(key) => session.delete(key).await.map(drop),
    }
}

/// What was cut short may be lost to the pool until its process has ended; nothing else may be wrong.
fn assert_sound_but_leaky<F: Fabric>(store: &Store<F>, model: &Model) {
    for check in [store.check().unwrap(), store.repair().unwrap()] {
        assert!(check.is_sound(), "{:#?}", check.violations);
        assert_eq!(check.stats.keys, model.len() as u64);
    }
}

/// Each step of the script fails first, at ever later verbs, until it passes.
fn fail_at_every(point: impl Fn(u64) -> FailPoint) {
    let memory = Local::memory(16 << 20, 2).unwrap();
    let fabric = Failing::new(Counting::new(memory));
    let plan: FailPlan = fabric.plan().clone();
    let store = quiet().create_on(fabric).unwrap();
    let mut session = store.async_session().unwrap();
    let mut watcher = store.session().unwrap();
    let mut model = Model::new();
    let mut failures = 0_u64;
    for step in script() {
        for at in 0.. {
            assert!(at < 10_000, "the step never passes");
            plan.fail_once(point(at));
            let outcome = block_on(run(&mut session, &step));
            let failed = plan.has_failed();
            plan.heal();
            match outcome {
                Ok(()) => {
                    model = applied(&model, &step);
                    // A failure that the operation could do without, in upkeep, still had its turn.
                    if !failed {
                        break;
                    }
                }
                Err(error) => {
                    assert!(matches!(error, Error::Fabric(_)), "{error}");
                    failures += 1;
                    settle_on(&mut watcher, &mut model, &step);
                }
            }
        }
    }
    assert!(failures > 500, "only {failures} failures");
    assert_holds(&mut watcher, &model);
    drop((session, watcher));
    assert_sound_but_leaky(&store, &model);
}

#[test]
fn a_failing_verb() {
    fail_at_every(FailPoint::Verb);
}

#[test]
fn a_failing_batch() {
    fail_at_every(FailPoint::Submit);
}

#[test]
fn a_lost_reply() {
    fail_at_every(FailPoint::Reply);
}

/// Polls a future so many times, then drops it. Answers its result when it was ready in time.
fn poll_times<T>(future: impl Future<Output = T>, times: u64) -> Option<T> {
    let mut future = pin!(future);
    let mut context = Context::from_waker(Waker::noop());
    (0..times).find_map(|_| match future.as_mut().poll(&mut context) {
        Poll::Ready(output) => Some(output),
        Poll::Pending => None,
    })
}

#[test]
fn a_dropped_future() {
    let delay = Delay { pending_before: 1, pending_after: 1, ..Delay::default() };
    // Ample: a slab or a block whose making is cut short stays out of use until its process has ended.
    let fabric = Delaying::new(Counting::new(Local::memory(128 << 20, 2).unwrap()), delay);
    let store = quiet().create_on(fabric).unwrap();
    let mut session = store.async_session().unwrap();
    let mut watcher = store.session().unwrap();
    let mut model = Model::new();
    let mut drops = 0_u64;
    for step in script() {
        for polls in 1.. {
            assert!(polls < 10_000, "the step is never ready");
            if let Some(outcome) = poll_times(run(&mut session, &step), polls) {
                outcome.unwrap();
                model = applied(&model, &step);
                break;
            }
            drops += 1;
            settle_on(&mut watcher, &mut model, &step);
        }
    }
    assert!(drops > 1000, "only {drops} drops");
    assert_holds(&mut watcher, &model);
    drop((session, watcher));
    assert_sound_but_leaky(&store, &model);
}

/// A scan whose futures are dropped halfway misses and repeats nothing.
#[test]
fn a_dropped_future_of_a_scan() {
    let delay = Delay { pending_before: 1, pending_after: 1, ..Delay::default() };
    let fabric = Delaying::new(Local::memory(16 << 20, 1).unwrap(), delay);
    let store = quiet().create_on(fabric).unwrap();
    let mut session = store.async_session().unwrap();
    for n in 0..200_u16 {
        block_on(session.put(n.to_be_bytes(), "")).unwrap();
    }
    let mut scan = session.scan(..);
    let mut found = Vec::new();
    loop {
        let mut polls = 1;
        let pair = loop {
            if let Some(pair) = poll_times(scan.next(), polls) {
                break pair;
            }
            polls += 1;
        };
        let Some(pair) = pair else { break };
        found.push(pair.unwrap().0);
    }
    assert!(found.into_iter().eq((0..200_u16).map(|n| n.to_be_bytes().to_vec())));
}

/// Sessions and the futures of their operations may move between threads.
#[test]
fn futures_are_send() {
    fn send<T: Send>(value: T) -> T {
        value
    }
    let store = Store::open("mem:16M").unwrap();
    let mut session = send(store.async_session().unwrap());
    block_on(async {
        send(session.put("a", "1")).await?;
        send(session.insert("b".to_owned(), vec![2])).await?;
        send(session.update("b", "3")).await?;
        send(session.replace_if_equal("b", "3", "4")).await?;
        assert_eq!(send(session.get("b")).await?, Some(b"4".to_vec()));
        assert_eq!(send(session.get_with("b", <[u8]>::len)).await?, Some(1));
        assert_eq!(send(session.multi_get(&["a", "x"])).await?, [Some(b"1".to_vec()), None]);
        let mut scan = session.scan_prefix("").limit(1);
        assert_eq!(send(scan.next_back()).await.transpose()?, Some((b"b".to_vec(), b"4".to_vec())));
        assert!(send(session.delete("a")).await?);
        assert!(send(session.delete("b")).await?);
        send(session.maintain()).await?;
        assert_eq!(send(session.bulk_load([("c", "5")])).await?, 1);
        Ok::<_, Error>(())
    })
    .unwrap();
    let mut session = send(store.session().unwrap());
    std::thread::spawn(move || session.get("c").unwrap()).join().unwrap();
}

/// Counters tell operations apart, and cost nothing to those that are not theirs.
#[test]
fn counters_are_per_session_and_kind() {
    let store = quiet().open("mem:16M").unwrap();
    let (mut busy, idle) = (store.session().unwrap(), store.session().unwrap());
    for n in 0..100_u32 {
        busy.put(n.to_be_bytes(), "v").unwrap();
    }
    let before = busy.counters();
    for n in 0..100_u32 {
        busy.get(n.to_be_bytes()).unwrap();
    }
    let gets = busy.counters() - before;
    assert_eq!(gets[OpKind::Get].ops, 100);
    assert!(gets[OpKind::Get].round_trips >= 100 && gets[OpKind::Get].read_bytes > 0);
    assert_eq!(gets[OpKind::Insert].ops, 0);
    assert_eq!(idle.counters().total().ops, 0);
}
