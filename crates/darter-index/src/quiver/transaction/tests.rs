//! Tests of transactions: against a map, with other operations at every point, and with clients that
//! die.

mod new_keys;

use crate::fixtures::{
    LEASE_MS, Unscheduled, advance, alone, each_pair_of_stops, executes, finish, process_on,
};
use crate::quiver::{Quiver, QuiverOptions};
use crate::{Access, Commit, Condition, IndexError, OrderedIndex, ScanRange, Swept, Write};
use darter_fabric::block_on;
use darter_pool::{Client, Pool};
use darter_sim::{Executor, Sim};
use rand_pcg::Pcg64;
use rand_pcg::rand_core::{Rng, SeedableRng};
use std::collections::BTreeMap;

/// Small pages: the sixth key splits one.
const OPTIONS: fn() -> QuiverOptions =
    || QuiverOptions { page_records: 3, page_delta: 2, cache_bytes: 1 << 16, ..QuiverOptions::default() };

fn get_of(key: &'static [u8], value: Option<&'static [u8]>) -> Access<'static> {
    Access { key, read: Some(value), version: None, write: None }
}

fn put_of(key: &'static [u8], old: Option<&'static [u8]>, new: &'static [u8]) -> Access<'static> {
    Access { key, read: Some(old), version: None, write: Some(Write::Put(new)) }
}

async fn get(quiver: &Quiver<Sim>, client: &mut Client<Sim>, key: &[u8]) -> Option<Vec<u8>> {
    quiver.get(client, key).await.unwrap()
}

/// Ends all processes and verifies the pool in another one: no memory is lost, and no key is
/// unsettled. Memory of one process that another one had retired is found only then.
fn verify_all(sim: &Sim, processes: Vec<(Pool<Sim>, Client<Sim>)>, when: &str) {
    sim.schedule(false);
    block_on(end_and_verify(sim, processes, when));
}

async fn end_and_verify(sim: &Sim, processes: Vec<(Pool<Sim>, Client<Sim>)>, when: &str) {
    for (pool, client) in processes {
        drop(client);
        pool.close().await.unwrap();
    }
    let pool = Pool::open(sim.process(2)).await.unwrap();
    let mut client = pool.client().unwrap();
    let quiver = Quiver::open(&mut client, OPTIONS()).await.unwrap();
    match quiver.sweep_dead(&mut client).await.unwrap() {
        Swept::Done(report) => assert!(report.finished && report.violations.is_empty(), "{when}: {report:?}"),
        Swept::Refused(violations) => panic!("{when}: {violations:?}"),
    }
    for _ in 0..2 {
        pool.settle(&mut client).await.unwrap();
        quiver.maintain(&mut client).await.unwrap();
    }
    let report = quiver.check(&mut client).await.unwrap();
    assert_eq!(report.violations, Vec::<String>::new(), "{when}");
    assert_eq!(report.remarks, Vec::<String>::new(), "{when}");
    let audit = pool.audit(&mut client, &report.reachable).await.unwrap();
    assert_eq!((audit.violations, audit.leaked_bytes), (Vec::new(), 0), "{when}");
    assert_eq!(sim.misuse(), None, "{when}");
}

#[test]
fn commits_behave_like_changes_of_a_map() {
    for nodes in [1, 3] {
        let sim = Sim::new(nodes, 8 << 20);
        let (pool, quiver) = process_on::<Quiver<Sim>>(&sim, OPTIONS(), &[]);
        let mut client = pool.client().unwrap();
        let mut map = BTreeMap::<Vec<u8>, Vec<u8>>::new();
        let mut dice = Pcg64::seed_from_u64(7);
        let mut roll = move |sides: u64| dice.next_u64() % sides;
        for round in 0..400 {
            let mut wanted = BTreeMap::new();
            for _ in 0..=roll(6) {
                let length = roll(4) as usize;
                let key: Vec<u8> = (0..length).map(|_| [0x10, 0x11, 0x20, 0xf0][roll(4) as usize]).collect();
                let value = vec![roll(256) as u8; [0, 5, 300][roll(3) as usize]];
                wanted.insert(key, (roll(4), value));
            }
            let is_stale = roll(5) == 0;
            let stale = b"stale".to_vec();
            let accesses: Vec<_> = wanted
                .iter()
                .map(|(key, (kind, value))| {
                    let seen = map.get(key).or_else(|| is_stale.then_some(&stale));
                    let read = (*kind != 0).then(|| seen.map(|value| &value[..]));
                    let write = match kind {
                        0 | 1 => Some(Write::Put(value)),
                        2 => Some(Write::Remove),
                        _ => None,
                    };
                    Access { key, read, version: None, write }
                })
                .collect();
            let holds = accesses
                .iter()
                .all(|access| access.read.is_none_or(|read| read == map.get(access.key).map(|v| &v[..])));
            let mut after = map.clone();
            let outcome = block_on(quiver.commit(&mut client, &accesses, round % 3)).unwrap();
            assert_eq!(outcome, if holds { Commit::Done } else { Commit::Conflict }, "round {round}");
            for (key, (kind, value)) in wanted.iter().filter(|_| holds) {
                match kind {
                    0 | 1 => drop(after.insert(key.clone(), value.clone())),
                    2 => drop(after.remove(key)),
                    _ => {}
                }
            }
            map = after;
            let pairs = block_on(quiver.scan(&mut client, &ScanRange::all(), 1000)).unwrap();
            assert_eq!(pairs, map.clone().into_iter().collect::<Vec<_>>(), "round {round}");
        }
        verify_all(&sim, vec![(pool, client)], "at the end");
    }
}

#[test]
fn a_commit_needs_ascending_keys_and_room_for_both_values() {
    let sim = Sim::new(1, 8 << 20);
    let (pool, quiver) = process_on::<Quiver<Sim>>(&sim, OPTIONS(), &[]);
    let mut client = pool.client().unwrap();
    for keys in [[&b"b"[..], b"a"], [b"a", b"a"]] {
        let accesses = keys.map(|key| Access { key, read: None, version: None, write: Some(Write::Remove) });
        let error = block_on(quiver.commit(&mut client, &accesses, 0)).unwrap_err();
        assert!(matches!(error, IndexError::Options(_)), "{error}");
    }
    assert_eq!(block_on(quiver.commit(&mut client, &[], 0)).unwrap(), Commit::Done);
    let large = vec![1; (pool.object_bytes_max() as usize) * 3 / 5];
    block_on(quiver.put(&mut client, b"large", &large, Condition::Always)).unwrap();
    let accesses = [
        Access { key: b"a", read: None, version: None, write: Some(Write::Put(b"1")) },
        Access { key: b"large", read: None, version: None, write: Some(Write::Put(&large)) },
    ];
    let error = block_on(quiver.commit(&mut client, &accesses, 0)).unwrap_err();
    assert!(matches!(error, IndexError::ValueTooLong { .. }), "{error}");
    assert_eq!(block_on(get(&quiver, &mut client, b"a")), None);
    assert_eq!(block_on(get(&quiver, &mut client, b"large")), Some(large));
    verify_all(&sim, vec![(pool, client)], "at the end");
}

/// The keys that the races are about: two accounts, one of them in another page, and an absent key.
const KEYS: [&[u8]; 3] = [b"\x10", b"\x60", b"\x70"];

/// Creates a pool with keys in several pages, and a second process with its own client.
fn two_processes(sim: &Sim) -> (Pool<Sim>, Quiver<Sim>, Pool<Sim>, Quiver<Sim>) {
    two_processes_with(sim, OPTIONS())
}

/// The same with pages of another size.
fn two_processes_with(sim: &Sim, options: QuiverOptions) -> (Pool<Sim>, Quiver<Sim>, Pool<Sim>, Quiver<Sim>) {
    let fillers: [&[u8]; 5] = [b"\x20", b"\x30", b"\x40", b"\x50", b"\x90"];
    let (pool, quiver) = process_on::<Quiver<Sim>>(sim, options, &fillers);
    let second = block_on(Pool::open(sim.process(1))).unwrap();
    second.set_magazine_objects_max(1);
    block_on(async {
        let mut client = pool.client().unwrap();
        for key in &KEYS[..2] {
            quiver.put(&mut client, key, b"old", Condition::Always).await.unwrap();
        }
    });
    let other = block_on(Quiver::open(&mut second.client().unwrap(), options)).unwrap();
    (pool, quiver, second, other)
}

/// A transaction of all three keys: changes one, removes one, inserts one.
const CHANGES: fn() -> [Access<'static>; 3] = || {
    [
        put_of(KEYS[0], Some(b"old"), b"new"),
        Access { key: KEYS[1], read: Some(Some(b"old")), version: None, write: Some(Write::Remove) },
        put_of(KEYS[2], None, b"new"),
    ]
};

/// Whether three values are those from before, or after, [`CHANGES`].
fn has_committed(values: &[Option<Vec<u8>>]) -> bool {
    let (old, new) = (Some(b"old".to_vec()), Some(b"new".to_vec()));
    if values == [new.clone(), None, new] {
        return true;
    }
    assert_eq!(values, [old.clone(), old, None], "all changes or none");
    false
}

async fn values(quiver: &Quiver<Sim>, client: &mut Client<Sim>) -> Vec<Option<Vec<u8>>> {
    let mut values = Vec::new();
    for key in KEYS {
        values.push(get(quiver, client, key).await);
    }
    values
}

/// A client stops at each verb of a commit and dies. `before` runs on another client before the
/// death, and `after` after it, with the result of `before`, and whether the commit had ended. A
/// sweep follows, and nothing is left of the transaction. Returns the last result and the number of
/// verbs.
fn dies_at_each_verb<T>(
    accesses: &[Access<'_>],
    before: &impl AsyncFn(&Quiver<Sim>, &mut Client<Sim>, &str) -> T,
    after: &impl AsyncFn(&Quiver<Sim>, &mut Client<Sim>, &T, bool, &str),
) -> (T, usize) {
    let mut verbs = 0;
    loop {
        let when = format!("after {verbs} verbs");
        let sim = Sim::new(1, 8 << 20);
        let (pool, quiver, dying, other) = two_processes(&sim);
        let _at_the_end = Unscheduled(sim.clone());
        let (mut client, mut dies) = (pool.client().unwrap(), dying.client().unwrap());
        let mut executor = Executor::new(&sim);
        let commit = executor.spawn(1, async {
            assert_eq!(other.commit(&mut dies, accesses, 0).await.unwrap(), Commit::Done);
        });
        let has_ended = advance(&mut executor, commit, verbs, executes);
        let seen = alone(&pool, before(&quiver, &mut client, &when));
        executor.kill(1);
        alone(&pool, async {
            sim.advance_ms(LEASE_MS * 2);
            for _ in 0..4 {
                pool.maintain(&mut client).await.unwrap();
            }
            after(&quiver, &mut client, &seen, has_ended, &when).await;
        });
        verify_all(&sim, vec![(pool, client)], &when);
        drop(executor);
        if has_ended {
            return (seen, verbs);
        }
        verbs += 1;
    }
}

/// A client stops at each verb of a commit, and others see all changes or none, by gets, a
/// multi-get and a scan. Then it dies.
#[test]
fn a_client_that_dies_in_a_commit_leaves_all_changes_or_none() {
    let before = async |quiver: &Quiver<Sim>, client: &mut Client<Sim>, when: &str| {
        let seen = values(quiver, client).await;
        let is_done = has_committed(&seen);
        let many = quiver.multi_get(client, &KEYS).await.unwrap();
        assert_eq!(many, seen, "{when}");
        let scanned = quiver.scan(client, &ScanRange::all(), 100).await.unwrap();
        let scanned: BTreeMap<_, _> = scanned.into_iter().collect();
        assert_eq!(KEYS.map(|key| scanned.get(key).cloned()).to_vec(), seen, "{when}");
        is_done
    };
    let (is_done, verbs) =
        dies_at_each_verb(&CHANGES(), &before, &async |quiver, client, is_done, _, when| {
            assert!(has_committed(&values(quiver, client).await) >= *is_done, "{when}");
        });
    assert!(is_done && verbs > 10);
}

/// Two transfers between the same accounts, in which each client stops at every point, run as if
/// one after the other, and a client that only reads both sees the sum.
#[test]
fn transfers_conserve_the_sum_wherever_their_clients_stop() {
    each_pair_of_stops(|stops| {
        let sim = Sim::new(1, 8 << 20);
        let (pool, quiver, second, other) = two_processes(&sim);
        let _at_the_end = Unscheduled(sim.clone());
        let (mut a, mut b) = (pool.client().unwrap(), second.client().unwrap());
        let mut executor = Executor::new(&sim);
        let first = executor.spawn(0, append(&quiver, &mut a, b"1"));
        let is_first_over = advance(&mut executor, first, stops[0], executes);
        let other_task = executor.spawn(1, append(&other, &mut b, b"2"));
        let is_other_over = advance(&mut executor, other_task, stops[1], executes);
        finish(&mut executor, first);
        finish(&mut executor, other_task);
        drop(executor);
        alone(&pool, async {
            let [one, two] = [KEYS[0], KEYS[1]].map(<[u8]>::to_vec);
            let (one, two) = (get(&quiver, &mut a, &one).await, get(&quiver, &mut a, &two).await);
            assert_eq!(one, two, "stopped after {stops:?}");
            let one = one.unwrap();
            assert!(one == b"old12" || one == b"old21", "stopped after {stops:?}: {one:?}");
        });
        verify_all(&sim, vec![(second, b), (pool, a)], &format!("after {stops:?}"));
        [is_first_over, is_other_over]
    });
}

/// Appends to the values of two keys in one transaction.
async fn append(quiver: &Quiver<Sim>, client: &mut Client<Sim>, what: &[u8]) {
    for attempt in 0..20 {
        let mut both = Vec::new();
        for key in &KEYS[..2] {
            both.push(get(quiver, client, key).await.unwrap());
        }
        let new: Vec<_> = both.iter().map(|old| [old, what].concat()).collect();
        let access = |at: usize| Access {
            key: KEYS[at],
            read: Some(Some(&both[at])),
            version: None,
            write: Some(Write::Put(&new[at])),
        };
        if quiver.commit(client, &[access(0), access(1)], attempt).await.unwrap() == Commit::Done {
            return;
        }
    }
    panic!("twenty conflicts with one other transaction");
}

/// Stops a client at each verb of a commit, lets `pass` run on another client, and lets the commit
/// end. Then `judge` gets the result of `pass`, the outcome, and a client.
fn at_each_verb<T>(
    accesses: &[Access<'_>],
    pass: &impl AsyncFn(&Quiver<Sim>, &mut Client<Sim>) -> T,
    judge: &impl AsyncFn(&Quiver<Sim>, &mut Client<Sim>, T, Commit, &str),
) {
    at_each_verb_with(OPTIONS(), accesses, pass, judge);
}

/// The same with pages of another size.
fn at_each_verb_with<T>(
    options: QuiverOptions,
    accesses: &[Access<'_>],
    pass: &impl AsyncFn(&Quiver<Sim>, &mut Client<Sim>) -> T,
    judge: &impl AsyncFn(&Quiver<Sim>, &mut Client<Sim>, T, Commit, &str),
) {
    for verbs in 0.. {
        let when = format!("after {verbs} verbs");
        let sim = Sim::new(1, 8 << 20);
        let (pool, quiver, second, other) = two_processes_with(&sim, options);
        let _at_the_end = Unscheduled(sim.clone());
        let (mut client, mut slow) = (pool.client().unwrap(), second.client().unwrap());
        let mut outcome = None;
        let mut executor = Executor::new(&sim);
        let commit = executor.spawn(1, async {
            outcome = Some(other.commit(&mut slow, accesses, 0).await.unwrap());
        });
        let has_ended = advance(&mut executor, commit, verbs, executes);
        let passed = alone(&pool, pass(&quiver, &mut client));
        finish(&mut executor, commit);
        drop(executor);
        alone(&pool, judge(&quiver, &mut client, passed, outcome.unwrap(), &when));
        verify_all(&sim, vec![(second, slow), (pool, client)], &when);
        if has_ended {
            return;
        }
    }
}

/// A put, a delete or an insert goes on wherever a transaction of its key has stopped, and the
/// transaction then has no effect, or took effect before.
#[test]
fn single_operations_go_on_while_a_commit_is_stopped() {
    for key in 0..KEYS.len() {
        for removes in [false, true] {
            let pass = async |quiver: &Quiver<Sim>, client: &mut Client<Sim>| {
                if removes {
                    quiver.delete(client, KEYS[key]).await.unwrap();
                } else {
                    quiver.put(client, KEYS[key], b"mine", Condition::Always).await.unwrap();
                }
            };
            at_each_verb(&CHANGES(), &pass, &async |quiver, client, (), outcome, when| {
                let mut seen = values(quiver, client).await;
                // The removal of an absent key has no effect, so the transaction may follow it.
                let mine = (!removes).then(|| b"mine".to_vec());
                let may_follow = removes && key == 2;
                assert!(seen[key] == mine || may_follow, "{when}: {seen:?}");
                let (old, new) = (Some(b"old".to_vec()), Some(b"new".to_vec()));
                let is_done = outcome == Commit::Done;
                let all = if is_done { [new.clone(), None, new] } else { [old.clone(), old, None] };
                seen[key] = all[key].clone();
                assert_eq!(seen, all, "{when}");
            });
        }
    }
}

/// The page of an intent is replaced while its transaction is stopped, and the intent moves.
#[test]
fn pages_with_intents_can_be_replaced() {
    let pass = async |quiver: &Quiver<Sim>, client: &mut Client<Sim>| {
        for low in 1..=9 {
            for high in [0x10, 0x60, 0x70] {
                quiver.put(client, &[high, low], b"more", Condition::Always).await.unwrap();
                quiver.put(client, &[high + low], b"more", Condition::Always).await.unwrap();
            }
        }
        has_committed(&values(quiver, client).await);
    };
    at_each_verb(&CHANGES(), &pass, &async |quiver, client, (), outcome, when| {
        assert_eq!(outcome, Commit::Done, "{when}");
        assert!(has_committed(&values(quiver, client).await), "{when}");
    });
}

/// A key that was only read is protected until the commit: it cannot change unnoticed.
#[test]
fn a_key_that_was_only_read_is_part_of_the_transaction() {
    let accesses = [get_of(KEYS[0], Some(b"old")), put_of(KEYS[1], Some(b"old"), b"new")];
    // If the put comes first, the transaction must not commit afterwards.
    let pass = async |quiver: &Quiver<Sim>, client: &mut Client<Sim>| {
        quiver.put(client, KEYS[0], b"mine", Condition::Always).await.unwrap();
        get(quiver, client, KEYS[1]).await == Some(b"new".to_vec())
    };
    at_each_verb(&accesses, &pass, &async |quiver, client, was_committed, outcome, when| {
        assert_eq!(outcome == Commit::Done, was_committed, "{when}");
        assert_eq!(get(quiver, client, KEYS[0]).await, Some(b"mine".to_vec()));
    });
}

/// A transaction that only reads sees both accounts before or after a transfer, wherever either
/// client stops, and never makes the transfer run again.
#[test]
fn a_transaction_that_only_reads_is_consistent_and_aborts_none() {
    [false, true].into_iter().for_each(read_next_to_a_transfer);
}

fn read_next_to_a_transfer(is_versioned: bool) {
    each_pair_of_stops(|stops| {
        let sim = Sim::new(1, 8 << 20);
        let (pool, quiver, second, other) = two_processes(&sim);
        let _at_the_end = Unscheduled(sim.clone());
        let (mut reader, mut writer) = (pool.client().unwrap(), second.client().unwrap());
        let mut seen = None;
        let mut executor = Executor::new(&sim);
        let reading = executor.spawn(0, async {
            let (mut both, mut versions) = (Vec::new(), Vec::new());
            for key in &KEYS[..2] {
                let (value, version) =
                    quiver.read_versions(&mut reader, &[*key]).await.unwrap().pop().unwrap();
                both.push(value.unwrap());
                versions.push(version.filter(|_| is_versioned));
            }
            let access = |at: usize| Access {
                key: KEYS[at],
                read: Some(Some(&both[at])),
                version: versions[at],
                write: None,
            };
            let outcome = quiver.commit(&mut reader, &[access(0), access(1)], 0).await.unwrap();
            if outcome == Commit::Done {
                seen = Some(both);
            }
        });
        let is_reading_over = advance(&mut executor, reading, stops[0], executes);
        let writing = executor.spawn(1, async {
            let changes = [put_of(KEYS[0], Some(b"old"), b"new"), put_of(KEYS[1], Some(b"old"), b"new")];
            assert_eq!(other.commit(&mut writer, &changes, 0).await.unwrap(), Commit::Done);
        });
        let is_writing_over = advance(&mut executor, writing, stops[1], executes);
        finish(&mut executor, reading);
        finish(&mut executor, writing);
        drop(executor);
        if let Some(both) = seen {
            assert_eq!(both[0], both[1], "stopped after {stops:?}");
        }
        verify_all(&sim, vec![(second, writer), (pool, reader)], &format!("after {stops:?}"));
        [is_reading_over, is_writing_over]
    });
}

/// Versions save a round trip in the epoch in which the keys were read. Later the same words at the
/// same places prove nothing, since the memory may have been used anew.
#[test]
fn versions_count_only_in_the_epoch_of_their_reads() {
    let sim = Sim::new(1, 8 << 20);
    let (pool, quiver) = process_on::<Quiver<Sim>>(&sim, OPTIONS(), &KEYS[..2]);
    let mut client = pool.client().unwrap();
    let mut batches_after = |moves_epoch: bool, is_versioned: bool| {
        let read = block_on(quiver.read_versions(&mut client, &KEYS[..2])).unwrap();
        if moves_epoch {
            // Epochs move only while there is memory to free.
            let epoch = pool.epoch();
            for value in [b"1", b"2"] {
                block_on(quiver.put(&mut client, KEYS[2], value, Condition::Always)).unwrap();
            }
            block_on(pool.settle(&mut client)).unwrap();
            assert!(pool.epoch() > epoch);
        }
        let accesses: Vec<_> = KEYS
            .iter()
            .zip(&read)
            .map(|(key, (value, version))| Access {
                key,
                read: Some(value.as_deref()),
                version: version.filter(|_| is_versioned),
                write: None,
            })
            .collect();
        assert!(accesses.iter().all(|access| access.version.is_some() == is_versioned));
        let before = sim.counts().batches;
        assert_eq!(block_on(quiver.commit(&mut client, &accesses, 0)).unwrap(), Commit::Done);
        sim.counts().batches - before
    };
    let in_epoch = batches_after(false, true);
    assert_eq!(batches_after(true, true), 2 * in_epoch);
    assert_eq!(batches_after(false, false), 2 * in_epoch);
}

/// The connection is lost at each verb of a commit that makes the first page. The page may be
/// linked although the client does not learn of it.
#[test]
fn a_commit_that_loses_its_connection_frees_nothing_that_is_linked() {
    for verbs in 0.. {
        let sim = Sim::new(1, 8 << 20);
        let (pool, quiver) = process_on::<Quiver<Sim>>(&sim, OPTIONS(), &[]);
        let cut_off = block_on(Pool::open(sim.process(1))).unwrap();
        let other = block_on(Quiver::open(&mut cut_off.client().unwrap(), OPTIONS())).unwrap();
        let _at_the_end = Unscheduled(sim.clone());
        let (mut client, mut loses) = (pool.client().unwrap(), cut_off.client().unwrap());
        let mut executor = Executor::new(&sim);
        let accesses = [put_of(b"a", None, b"1"), put_of(b"b", None, b"2")];
        let commit = executor.spawn(1, async {
            let _ = other.commit(&mut loses, &accesses, 0).await;
        });
        let has_ended = advance(&mut executor, commit, verbs, executes);
        sim.process(1).cut(0);
        finish(&mut executor, commit);
        sim.process(1).heal(0);
        drop(executor);
        alone(&pool, async {
            let both = [get(&quiver, &mut client, b"a").await, get(&quiver, &mut client, b"b").await];
            let changed = [Some(b"1".to_vec()), Some(b"2".to_vec())];
            assert!(both == changed || both == [None, None], "after {verbs} verbs: {both:?}");
        });
        verify_all(&sim, vec![(cut_off, loses), (pool, client)], &format!("after {verbs} verbs"));
        if has_ended {
            return;
        }
    }
}

/// A client finds no memory at any moment of a commit, while another one has begun to replace the
/// page of a key: if the commit reports that, nothing has changed.
#[test]
fn a_commit_without_memory_changes_nothing_or_succeeds() {
    let mut refused = 0;
    each_pair_of_stops(|stops| {
        let sim = Sim::new(1, 8 << 20);
        let (pool, quiver, second, other) = two_processes(&sim);
        let _at_the_end = Unscheduled(sim.clone());
        let (mut client, mut poor) = (pool.client().unwrap(), second.client().unwrap());
        let (changes, mut outcome) = (CHANGES(), None);
        let mut executor = Executor::new(&sim);
        let commit = executor.spawn(1, async {
            outcome = Some(other.commit(&mut poor, &changes, 0).await);
        });
        let has_ended = advance(&mut executor, commit, stops[0], executes);
        let fills = executor.spawn(0, async {
            for key in [b"\x61", b"\x62", b"\x63"] {
                quiver.put(&mut client, key, b"more", Condition::Always).await.unwrap();
            }
        });
        let is_filled = advance(&mut executor, fills, stops[1], executes);
        sim.process(1).refuse_allocation(Some(0));
        finish(&mut executor, commit);
        sim.process(1).refuse_allocation(None);
        finish(&mut executor, fills);
        drop(executor);
        let is_done = match outcome {
            Some(Ok(Commit::Done)) => true,
            Some(Ok(Commit::Conflict)) | None => {
                panic!("after {stops:?}: no other client has any of the keys")
            }
            Some(Err(error)) => {
                assert!(error.is_out_of_space(), "after {stops:?}: {error}");
                refused += 1;
                false
            }
        };
        alone(&pool, async {
            let seen = values(&quiver, &mut client).await;
            assert_eq!(has_committed(&seen), is_done, "after {stops:?}");
        });
        verify_all(&sim, vec![(second, poor), (pool, client)], &format!("after {stops:?}"));
        [has_ended, is_filled]
    });
    assert!(refused > 10, "{refused}");
}
