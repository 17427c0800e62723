//! What a session's futures promise: one that is dropped halfway leaves a scan where it was, they
//! move between threads, and their cost is counted. Operations cut short at every place are tested
//! where the index is.

use darter::{Error, OpKind, StoreOptions, block_on};
use darter_fabric::Local;
use darter_fabric::decorate::{Delay, Delaying};
use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

fn quiet() -> StoreOptions {
    crate::options().maintenance(false).auto_adjust(false)
}

/// Polls a future so many times, then drops it. Returns its result when it was ready in time.
fn poll_times<T>(future: impl Future<Output = T>, times: u64) -> Option<T> {
    let mut future = pin!(future);
    let mut context = Context::from_waker(Waker::noop());
    (0..times).find_map(|_| match future.as_mut().poll(&mut context) {
        Poll::Ready(output) => Some(output),
        Poll::Pending => None,
    })
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
    let store = crate::options().open("mem:16M").unwrap();
    let mut session = send(store.async_session().unwrap());
    block_on(async {
        send(session.put("a", "1")).await?;
        send(session.insert_if_absent("b".to_owned(), vec![2])).await?;
        send(session.update("b", "3")).await?;
        send(session.replace_if_equal("b", "3", "4")).await?;
        assert_eq!(send(session.get("b")).await?, Some(b"4".to_vec()));
        assert_eq!(send(session.get_with("b", <[u8]>::len)).await?, Some(1));
        assert_eq!(send(session.multi_get(&["a", "x"])).await?, [Some(b"1".to_vec()), None]);
        let mut scan = session.scan_prefix("").limit(1);
        assert_eq!(send(scan.next_back()).await.transpose()?, Some((b"b".to_vec(), b"4".to_vec())));
        drop(scan);
        assert!(send(session.delete("a")).await?);
        assert!(send(session.delete("b")).await?);
        send(session.maintain()).await?;
        assert_eq!(send(session.bulk_load([("c", "5")])).await?, 1);
        Ok::<_, Error>(())
    })
    .unwrap();
    let session = send(store.session().unwrap());
    std::thread::spawn(move || session.get("c").unwrap()).join().unwrap();
}

/// Counters tell operations apart, and cost nothing to those that are not theirs.
#[test]
fn counters_are_per_session_and_kind() {
    let store = quiet().open("mem:16M").unwrap();
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
