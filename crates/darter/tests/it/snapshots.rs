//! Snapshots of a store, beside threads and other members that change it.

use darter::engine::{Engine, KeySpace};
use darter::{Error, ErrorKind, PoolError, Store};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Accounts between which clients move money.
const ACCOUNTS: u64 = 64;
/// Money in each account at first.
const MONEY: u64 = 1000;

/// A file pool with two members.
fn two_members() -> (tempfile::TempDir, [Store; 2]) {
    let directory = tempfile::tempdir().unwrap();
    let name = format!("file:{}?size=64M", directory.path().join("pool").display());
    let one = Store::open(&name).unwrap();
    let two = Store::open(&name).unwrap();
    (directory, [one, two])
}

fn number(value: &[u8]) -> u64 {
    u64::from_be_bytes(value.try_into().unwrap())
}

/// Runs `work` while other threads run `change`, each with its store and number, until it has
/// returned.
fn beside<T>(stores: &[Store], change: impl Fn(&Store, u64) + Sync, work: impl FnOnce() -> T) -> T {
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for (store, thread) in stores.iter().cycle().zip(0..4) {
            let (change, is_over) = (&change, &is_over);
            scope.spawn(move || {
                while !is_over.load(Ordering::SeqCst) {
                    change(store, thread);
                }
            });
        }
        let result = work();
        is_over.store(true, Ordering::SeqCst);
        result
    })
}

/// Transfers by transactions leave the sum of all accounts unchanged in every snapshot.
#[test]
fn a_snapshot_shows_all_of_a_transaction_or_nothing() {
    let (_directory, stores) = two_members();
    for account in 0..ACCOUNTS {
        stores[0].put(account.to_be_bytes(), MONEY.to_be_bytes()).unwrap();
    }
    let transfer = |store: &Store, thread: u64| {
        let from = darter_fabric::random_word() % ACCOUNTS;
        let to = (from + 1 + thread) % ACCOUNTS;
        store
            .transact(|tx| {
                let (Some(a), Some(b)) = (tx.get(from.to_be_bytes())?, tx.get(to.to_be_bytes())?) else {
                    panic!("an account is missing")
                };
                let moved = number(&a).min(3);
                if from != to {
                    tx.put(from.to_be_bytes(), (number(&a) - moved).to_be_bytes())?;
                    tx.put(to.to_be_bytes(), (number(&b) + moved).to_be_bytes())?;
                }
                Ok(())
            })
            .unwrap();
    };
    beside(&stores, transfer, || {
        for _ in 0..10 {
            let mut snapshot = stores[0].snapshot().unwrap();
            let sum =
                |pairs: Vec<(Vec<u8>, Vec<u8>)>| pairs.iter().map(|(_, value)| number(value)).sum::<u64>();
            let first: Vec<_> = snapshot.range(..).collect::<Result<_, _>>().unwrap();
            assert_eq!((first.len() as u64, sum(first.clone())), (ACCOUNTS, ACCOUNTS * MONEY));
            let second: Vec<_> = snapshot.range(..).collect::<Result<_, _>>().unwrap();
            assert_eq!(first, second, "the same snapshot, read twice");
            for (account, value) in first {
                assert_eq!(snapshot.get(account).unwrap(), Some(value));
            }
            snapshot.end().unwrap();
        }
    });
    assert_eq!(stores[1].snapshot_in(KeySpace::Whole).unwrap().range(..).count() as u64, ACCOUNTS);
    let whole = stores[0].session_in(KeySpace::Whole).unwrap();
    assert_eq!(whole.range(..).count() as u64, ACCOUNTS, "no old value is left");
}

/// Each thread sets its two keys to the same rising number, one after the other. A snapshot that shows
/// the second key's change also shows the first key's.
#[test]
fn a_snapshot_shows_the_cause_of_each_effect() {
    let (_directory, stores) = two_members();
    // The key that is written second comes first in the order of a scan.
    let key = |thread: u64, is_first: bool| [if is_first { b'z' } else { b'a' }, thread as u8];
    for thread in 0..4 {
        for is_first in [false, true] {
            stores[0].put(key(thread, is_first), 0_u64.to_be_bytes()).unwrap();
        }
    }
    let count = |store: &Store, thread: u64| {
        let next = number(&store.get(key(thread, true)).unwrap().unwrap()) + 1;
        store.put(key(thread, true), next.to_be_bytes()).unwrap();
        store.put_many(&[(key(thread, false), next.to_be_bytes())]).unwrap();
    };
    beside(&stores, count, || {
        for _ in 0..10 {
            let before = number(&stores[0].get(key(0, false)).unwrap().unwrap());
            let mut snapshot = stores[1].snapshot().unwrap();
            for thread in 0..4 {
                let [second, first] = [false, true]
                    .map(|is_first| number(&snapshot.get(key(thread, is_first)).unwrap().unwrap()));
                assert!(first == second || first == second + 1, "{first} and then {second}");
                assert!(thread != 0 || second >= before, "a change that had ended is missing");
            }
        }
    });
}

#[test]
fn a_snapshot_needs_no_room_of_its_own_and_gives_way() {
    let store = Store::open("mem:16M").unwrap();
    let value = vec![1; 100_000];
    let mut keys = 0_u32;
    while store.put(keys.to_be_bytes(), &value).is_ok() {
        keys += 1;
    }
    let mut snapshot = store.snapshot().unwrap();
    assert!(snapshot.get(0_u32.to_be_bytes()).unwrap().is_some());
    // Removing a key makes room, but its old value must be preserved before.
    assert!(store.remove(0_u32.to_be_bytes()).unwrap().is_some());
    assert!(store.remove(1_u32.to_be_bytes()).unwrap().is_some());
    let error = snapshot.get(0_u32.to_be_bytes()).unwrap_err();
    assert!(matches!(error, Error::Pool(PoolError::SnapshotOver)), "{error}");
    assert_eq!(error.kind(), ErrorKind::Snapshot);
    let last = snapshot.range(..).last().unwrap();
    assert!(matches!(last, Err(Error::Pool(PoolError::SnapshotOver))));
    snapshot.end().unwrap();
    store.put(0_u32.to_be_bytes(), &value).unwrap();
}

#[test]
fn there_is_one_snapshot_at_a_time() {
    let (_directory, [one, two]) = two_members();
    let snapshot = one.snapshot().unwrap();
    let error = two.snapshot().unwrap_err();
    assert!(matches!(error, Error::Pool(PoolError::SnapshotTaken { .. })), "{error}");
    assert!(error.to_string().contains(&std::process::id().to_string()), "{error}");
    let error = two.bulk_load([("pear", "green")]).unwrap_err();
    assert!(matches!(error, Error::Pool(PoolError::SnapshotOpen)), "{error}");
    drop(snapshot);
    assert_eq!(two.bulk_load([("pear", "green")]).unwrap(), 1);
    assert_eq!(two.snapshot().unwrap().range(..).count(), 1);
}

/// A snapshot of nothing, of a range, and of one key space.
#[test]
fn snapshots_have_ranges() {
    let store = Store::open("mem:16M").unwrap();
    assert_eq!(store.snapshot().unwrap().range(..).count(), 0);
    store.put_many(&[("a", "1"), ("b", "2"), ("c", "3")]).unwrap();
    store.session_in(KeySpace::Gateway).unwrap().put("of a gateway", "4").unwrap();
    store.put([0xff, 1], "5").unwrap();
    let mut snapshot = store.snapshot().unwrap();
    store.put("b", "new").unwrap();
    store.put("bb", "new").unwrap();
    store.remove("c").unwrap();
    let mut keys = |range: std::ops::Range<&str>| -> Vec<_> {
        snapshot.range(range).map(|pair| pair.unwrap().1).collect()
    };
    assert_eq!(keys("a".."c"), [b"1", b"2"]);
    assert_eq!(keys("b".."z"), [b"2", b"3"]);
    assert_eq!(snapshot.range(..).count(), 4);
    assert_eq!(snapshot.get([0xff, 1]).unwrap().as_deref(), Some(&b"5"[..]));
    assert_eq!(snapshot.get("bb").unwrap(), None);
}

/// Prints for how long changes wait when a snapshot begins (`--nocapture`).
#[test]
fn how_long_changes_wait() {
    let (_directory, stores) = two_members();
    let (opened, longest) = (AtomicBool::new(false), Mutex::new(Vec::<Duration>::new()));
    let change = |store: &Store, thread: u64| {
        let (begun, mut wait) = (Instant::now(), Duration::ZERO);
        // Until the next snapshot is open.
        while !opened.load(Ordering::SeqCst) && begun.elapsed() < Duration::from_secs(1) {
            let begin = Instant::now();
            store.put(thread.to_be_bytes(), "changed").unwrap();
            wait = wait.max(begin.elapsed());
        }
        longest.lock().unwrap().push(wait);
        while opened.load(Ordering::SeqCst) {
            std::thread::yield_now();
        }
    };
    beside(&stores, change, || {
        for _ in 0..20 {
            let snapshot = stores[0].snapshot().unwrap();
            opened.store(true, Ordering::SeqCst);
            snapshot.end().unwrap();
            opened.store(false, Ordering::SeqCst);
        }
    });
    let mut longest = longest.into_inner().unwrap();
    longest.sort();
    assert!(!longest.is_empty());
    println!("the longest change beside a snapshot, median: {:?}", longest[longest.len() / 2]);
}
