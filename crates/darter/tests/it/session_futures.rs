//! Guarantees of a session's futures: dropping one halfway leaves a scan where it was, they move
//! between threads, and their cost is counted. The index's own tests cover operations that are cut
//! short at every point.

use darter::{Error, OpKind, StoreOptions, block_on, engine};
use darter_fabric::decorate::{Delay, Delaying};
use darter_fabric::{Local, Provider};
use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

fn quiet() -> StoreOptions {
    crate::options().maintenance(false).auto_adjust(false)
}

/// Polls a future up to `times` times, then drops it. Returns its result if it was ready in time.
fn poll_times<T>(future: impl Future<Output = T>, times: u64) -> Option<T> {
    let mut future = pin!(future);
    let mut context = Context::from_waker(Waker::noop());
    (0..times).find_map(|_| match future.as_mut().poll(&mut context) {
        Poll::Ready(output) => Some(output),
        Poll::Pending => None,
    })
}

/// A scan whose futures are dropped halfway neither skips nor repeats a pair.
#[test]
fn a_dropped_future_of_a_scan() {
    let delay = Delay { pending_before: 1, pending_after: 1, ..Delay::default() };
    let fabric = Delaying::new(Local::memory(16 << 20, 1).unwrap(), delay);
    let store = engine::create_on(&quiet(), Provider::foreign(fabric)).unwrap();
    let session = store.async_session().unwrap();
    for n in 0..200_u16 {
        block_on(session.put(n.to_be_bytes(), "")).unwrap();
    }
    let mut scan = session.range(..);
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
    let store = crate::options().open("mem:16M").unwrap();
    let session = send(store.async_session().unwrap());
    block_on(async {
        send(session.put("a", "1")).await?;
        send(session.try_insert("b".to_owned(), vec![2])).await?;
        send(session.replace("b", "3")).await?;
        send(session.compare_exchange("b", "3", "4")).await?;
        assert_eq!(send(session.get("b")).await?, Some(b"4".to_vec()));
        assert_eq!(send(session.get_with("b", <[u8]>::len)).await?, Some(1));
        assert_eq!(send(session.get_many(&["a", "x"])).await?, [Some(b"1".to_vec()), None]);
        let mut scan = session.prefix("").limit(1);
        assert_eq!(send(scan.next_back()).await.transpose()?, Some((b"b".to_vec(), b"4".to_vec())));
        drop(scan);
        assert!(send(session.discard("a")).await?);
        assert!(send(session.discard("b")).await?);
        send(session.maintain()).await?;
        assert_eq!(send(session.bulk_load([("c", "5")])).await?, 1);
        Ok::<_, Error>(())
    })
    .unwrap();
    let session = send(store.session().unwrap());
    std::thread::spawn(move || session.get("c").unwrap()).join().unwrap();
}

/// Counters distinguish kinds of operations, and count only those of their own session.
#[test]
fn counters_are_per_session_and_kind() {
    let store = quiet().direct(false).open("mem:16M").unwrap();
    let (busy, idle) = (store.session().unwrap(), store.session().unwrap());
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

/// Several operations of one session are in progress at a time, each with its own connection; later
/// operations use the same connections again.
#[test]
fn operations_of_one_session_overlap() {
    let delay = Delay { pending_before: 1, ..Delay::default() };
    let fabric = Delaying::new(Local::memory(16 << 20, 1).unwrap(), delay);
    let store = engine::create_on(&quiet(), Provider::foreign(fabric)).unwrap();
    let session = store.async_session().unwrap();
    let mut context = Context::from_waker(Waker::noop());
    for _ in 0..2 {
        let mut puts: Vec<_> = (0..4_u8).map(|n| Box::pin(session.put([n], [n]))).collect();
        assert!(puts.iter_mut().all(|put| put.as_mut().poll(&mut context).is_pending()));
        for put in puts {
            assert!(block_on(put).is_ok());
        }
    }
    let found = block_on(session.get_many(&[[0], [3]])).unwrap();
    assert_eq!(found, [Some(vec![0]), Some(vec![3])]);
    assert_eq!(session.counters()[OpKind::Insert].ops, 8);
}

/// Threads that use one store at the same time do not wait for each other, and each finds its own
/// writes.
#[test]
fn a_store_serves_several_threads() {
    let store = crate::options().open("mem:32M").unwrap();
    std::thread::scope(|scope| {
        for thread in 0..8_u8 {
            let store = &store;
            scope.spawn(move || {
                for n in 0..500_u16 {
                    let key = [&[thread][..], &n.to_be_bytes()].concat();
                    assert_eq!(store.insert(&key, "value").unwrap(), None);
                    // A call within a call, and within an iteration.
                    let length = store.get_with(&key, |_| store.get(&key).unwrap().unwrap().len()).unwrap();
                    assert_eq!(length, Some(5));
                }
                for pair in store.prefix([thread]).rev().take(100) {
                    assert!(store.remove(pair.unwrap().0).unwrap().is_some());
                }
                assert_eq!(store.prefix([thread]).count(), 400);
            });
        }
    });
}

/// The future of an operation on one key moves with each function that it passes through. Rare cases,
/// such as an update's repair of the index, are boxed.
#[test]
fn futures_on_one_key_are_small() {
    let store = quiet().open("mem:16M").unwrap();
    let mut worker = engine::Engine::worker_in(&store, engine::KeySpace::Program).unwrap();
    let get = size_of_val(&worker.get("key"));
    let put = size_of_val(&worker.put("key", "value"));
    let update = size_of_val(&worker.update("key", |_| darter::Change::Keep));
    let remove = size_of_val(&worker.remove_if("key", |_| true));
    let sizes = [("get", get, 2048), ("put", put, 3072), ("update", update, 3072), ("remove", remove, 3072)];
    for (operation, bytes, most) in sizes {
        assert!(bytes <= most, "the future of {operation} has {bytes} bytes");
    }
}
