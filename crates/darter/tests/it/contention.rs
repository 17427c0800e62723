//! Threads and processes that compete for few keys; the results of all operations must add up in
//! the end.
//!
//! Nothing here depends on which thread is faster: every assertion holds for every interleaving.

use crate::adversary::assert_sound;
use darter::{Change, Session};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

/// Keys on one path: each a prefix of the next, or a neighbour.
const KEYS: [&[u8]; 6] = [b"", b"a", b"a\0", b"ab", b"abc", b"abd"];
const THREADS: u64 = 4;

/// Adds one to the counter under a key, in competition with all others.
fn add_one(session: &Session, key: &[u8]) {
    loop {
        let added = match session.get(key).unwrap() {
            None => session.try_insert(key, 1_u64.to_be_bytes()).unwrap(),
            Some(old) => {
                let new = u64::from_be_bytes(old[..].try_into().unwrap()) + 1;
                session.compare_exchange(key, &old, new.to_be_bytes()).unwrap()
            }
        };
        if added {
            return;
        }
    }
}

fn counter(session: &Session, key: &[u8]) -> u64 {
    session.get(key).unwrap().map_or(0, |value| u64::from_be_bytes(value[..].try_into().unwrap()))
}

#[test]
fn threads_lose_no_increment() {
    const EACH: u64 = 3000;
    let store = crate::options().open("mem:64M?nodes=2").unwrap();
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let store = &store;
            scope.spawn(move || {
                let session = store.session().unwrap();
                let mut dice = Pcg64Mcg::seed_from_u64(thread);
                for _ in 0..EACH {
                    add_one(&session, KEYS[dice.random_range(0..KEYS.len())]);
                }
            });
        }
    });
    let session = store.session().unwrap();
    assert_eq!(KEYS.iter().map(|key| counter(&session, key)).sum::<u64>(), THREADS * EACH);
    drop(session);
    assert_sound(&store, KEYS.len());
}

/// A conditional delete removes the value that its predicate saw: counters that some threads raise
/// and others collect lose nothing.
#[test]
fn a_conditional_delete_takes_what_it_judged() {
    const EACH: u64 = 3000;
    let store = crate::options().open("mem:64M?nodes=2").unwrap();
    let taken = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (store, taken) = (&store, &taken);
            scope.spawn(move || {
                let session = store.session().unwrap();
                let mut dice = Pcg64Mcg::seed_from_u64(thread);
                for _ in 0..EACH {
                    let key = KEYS[dice.random_range(0..KEYS.len())];
                    add_one(&session, key);
                    let mut judged = 0;
                    let collected = session.remove_if(key, |value| {
                        judged = u64::from_be_bytes(value.try_into().unwrap());
                        judged % 3 == thread % 3
                    });
                    if collected.unwrap() {
                        taken.fetch_add(judged, Ordering::Relaxed);
                    }
                }
            });
        }
    });
    let session = store.session().unwrap();
    let left: u64 = KEYS.iter().map(|key| counter(&session, key)).sum();
    assert_eq!(left + taken.into_inner(), THREADS * EACH);
}

/// Counters that are raised, kept or removed depending on the value seen lose nothing. New values
/// have many sizes, and some keys are absent, so that leaves of all kinds replace each other.
#[test]
fn what_is_modified_is_what_was_judged() {
    const EACH: u64 = 4000;
    let store = crate::options().open("mem:64M?nodes=2").unwrap();
    let (raised, taken) = (AtomicU64::new(0), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (store, raised, taken) = (&store, &raised, &taken);
            scope.spawn(move || {
                let session = store.session().unwrap();
                let mut dice = Pcg64Mcg::seed_from_u64(thread);
                for _ in 0..EACH {
                    let key = KEYS[dice.random_range(0..KEYS.len())];
                    let (wish, tail) = (dice.random_range(0..4_u64), dice.random_range(0..200_usize));
                    let mut seen = 0;
                    let modified = session.update(key, |value| {
                        seen = value.map_or(0, |value| u64::from_be_bytes(*value.first_chunk().unwrap()));
                        match wish {
                            0 => Change::Remove,
                            1 => Change::Keep,
                            _ => {
                                let mut new = (seen + 1).to_be_bytes().to_vec();
                                new.resize(8 + tail, 7);
                                Change::Put(new)
                            }
                        }
                    });
                    match (wish, modified.unwrap()) {
                        (0, true) => taken.fetch_add(seen, Ordering::Relaxed),
                        (0 | 1, false) => 0,
                        (2.., true) => raised.fetch_add(1, Ordering::Relaxed),
                        (wish, changed) => panic!("wish {wish}: {changed}"),
                    };
                }
            });
        }
    });
    let session = store.session().unwrap();
    let left = KEYS.iter().filter_map(|key| session.get(key).unwrap());
    let left: u64 = left.map(|value| u64::from_be_bytes(*value.first_chunk().unwrap())).sum();
    assert_eq!(left + taken.into_inner(), raised.into_inner());
    let keys = session.range(..).count();
    drop(session);
    assert_sound(&store, keys);
}

/// Successful inserts and deletes alternate for each key. Neighbours come and go, so that nodes
/// grow, split, collapse and vanish while others use them.
#[test]
fn inserts_and_deletes_add_up_while_nodes_come_and_go() {
    const EACH: u64 = 4000;
    let store = crate::options().open("mem:64M?nodes=2").unwrap();
    let keys: Vec<Vec<u8>> = (0..24_u8)
        .map(|n| match n % 4 {
            0 => vec![b'x'; usize::from(n)],
            1 => [&b"xx"[..], &[n]].concat(),
            2 => [vec![b'x'; 40], vec![n]].concat(),
            _ => vec![n, 0],
        })
        .collect();
    let balance: Vec<AtomicI64> = keys.iter().map(|_| AtomicI64::new(0)).collect();
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (store, keys, balance) = (&store, &keys, &balance);
            scope.spawn(move || {
                let session = store.session().unwrap();
                let mut dice = Pcg64Mcg::seed_from_u64(100 + thread);
                for _ in 0..EACH {
                    let at = dice.random_range(0..keys.len());
                    let value = vec![at as u8; dice.random_range(0..300_usize)];
                    match dice.random_range(0..8) {
                        0..=2 => {
                            let inserted = session.try_insert(&keys[at], value).unwrap();
                            balance[at].fetch_add(i64::from(inserted), Ordering::Relaxed);
                        }
                        3..=5 => {
                            let deleted = session.discard(&keys[at]).unwrap();
                            balance[at].fetch_sub(i64::from(deleted), Ordering::Relaxed);
                        }
                        6 => drop(session.replace(&keys[at], value).unwrap()),
                        // A value never belongs to another key and is never torn.
                        _ => {
                            if let Some(value) = session.get(&keys[at]).unwrap() {
                                assert!(value.iter().all(|&byte| usize::from(byte) == at));
                            }
                        }
                    }
                }
            });
        }
    });
    let session = store.session().unwrap();
    let mut present = 0;
    for (key, balance) in keys.iter().zip(&balance) {
        let is_present = session.get(key).unwrap().is_some();
        assert_eq!(balance.load(Ordering::Relaxed), i64::from(is_present), "{}", key.escape_ascii());
        present += usize::from(is_present);
    }
    drop(session);
    assert_sound(&store, present);
}

/// A scan returns keys in order, each once: all that stay and none that never existed, while others
/// come and go.
#[test]
fn scans_keep_their_promise_under_change() {
    const STAYING: u32 = 500;
    let store = crate::options().open("mem:64M?nodes=2").unwrap();
    let key = |n: u32, kind: u8| [&n.to_be_bytes()[..], &[kind]].concat();
    let session = store.session().unwrap();
    for n in 0..STAYING {
        session.put(key(n, b's'), b"stays").unwrap();
    }
    let running = AtomicU64::new(2);
    std::thread::scope(|scope| {
        for thread in 0..2 {
            let (store, running) = (&store, &running);
            scope.spawn(move || {
                let session = store.session().unwrap();
                let mut dice = Pcg64Mcg::seed_from_u64(200 + thread);
                for _ in 0..20_000 {
                    let n = dice.random_range(0..u64::from(STAYING)) as u32;
                    if dice.random_bool(0.5) {
                        session.put(key(n, b'c'), b"comes and goes").unwrap();
                    } else {
                        session.discard(key(n, b'c')).unwrap();
                    }
                }
                running.fetch_sub(1, Ordering::Release);
            });
        }
        let mut backward = false;
        loop {
            let is_last = running.load(Ordering::Acquire) == 0;
            let mut keys: Vec<Vec<u8>> = if backward {
                session.range(..).rev().map(|pair| pair.unwrap().0).collect()
            } else {
                session.range(..).map(|pair| pair.unwrap().0).collect()
            };
            if backward {
                keys.reverse();
            }
            assert!(keys.is_sorted_by(|one, next| one < next));
            assert_eq!(keys.iter().filter(|key| key[4] == b's').count(), STAYING as usize);
            assert!(keys.iter().all(|key| matches!(key[4], b's' | b'c')));
            backward = !backward;
            if is_last {
                break;
            }
        }
    });
    let keys = session.range(..).count();
    drop(session);
    assert_sound(&store, keys);
}

/// The child of [`processes_lose_no_increment`]; does nothing in a plain test run.
#[test]
fn child_process() {
    let Ok(url) = std::env::var("DARTER_CONTENTION_POOL") else { return };
    let seed = std::env::var("DARTER_CONTENTION_SEED").unwrap().parse().unwrap();
    let session = crate::options().open(&url).unwrap().session().unwrap();
    let mut dice = Pcg64Mcg::seed_from_u64(seed);
    for _ in 0..EACH_PROCESS {
        add_one(&session, KEYS[dice.random_range(0..KEYS.len())]);
    }
}

const EACH_PROCESS: u64 = 2000;

#[test]
fn processes_lose_no_increment() {
    let directory = tempfile::tempdir().unwrap();
    // They also race to create the pool.
    let url = format!("file:{}?size=64M&nodes=2", directory.path().join("pool").display());
    let children: Vec<_> = (0..3)
        .map(|seed| {
            Command::new(std::env::current_exe().unwrap())
                .args(["--exact", "contention::child_process", "--nocapture"])
                .env("DARTER_CONTENTION_POOL", &url)
                .env("DARTER_CONTENTION_SEED", seed.to_string())
                .stdout(Stdio::piped())
                .stderr(Stdio::piped())
                .spawn()
                .unwrap()
        })
        .collect();
    for child in children {
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
    let store = crate::options().open(&url).unwrap();
    let session = store.session().unwrap();
    assert_eq!(KEYS.iter().map(|key| counter(&session, key)).sum::<u64>(), 3 * EACH_PROCESS);
    drop(session);
    assert_sound(&store, KEYS.len());
}
