//! Transactions as a program meets them: threads and processes that transfer money between
//! accounts, and are killed while they do.

use crate::adversary::assert_sound;
use darter::{AsyncStore, Change, Error, IndexKind, OpKind, Store, Table, TransactionError, block_on};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};

/// Accounts, each with this much money at first.
const ACCOUNTS: u32 = 20;
const START: i64 = 100;

fn store() -> Store {
    Store::options().index(IndexKind::Quiver).open("mem:64M?nodes=2").unwrap()
}

fn account(number: u32) -> String {
    format!("account {number}")
}

fn amount(bytes: &[u8]) -> i64 {
    i64::from_le_bytes(bytes.try_into().unwrap())
}

fn open_accounts(store: &Store) {
    for number in 0..ACCOUNTS {
        store.put(account(number), START.to_le_bytes()).unwrap();
    }
}

/// Moves money between two accounts, if there is enough. Returns whether it did.
fn transfer(store: &Store, dice: &mut Pcg64Mcg) -> bool {
    let [from, to] = [0; 2].map(|_| account(dice.random_range(0..ACCOUNTS)));
    let sum = dice.random_range(1..50_i64);
    let moved = store.transact(|tx| {
        let old = amount(&tx.get(&from)?.unwrap());
        if from == to || old < sum {
            return Ok(false);
        }
        tx.put(&from, (old - sum).to_le_bytes())?;
        tx.update(&to, |old| Change::Put((amount(old.unwrap()) + sum).to_le_bytes().to_vec()))?;
        Ok(true)
    });
    moved.unwrap()
}

/// The money in all accounts at one moment.
fn total(store: &Store) -> i64 {
    let all = store.transact(|tx| tx.get_many(&(0..ACCOUNTS).map(account).collect::<Vec<_>>()));
    all.unwrap().iter().map(|value| amount(value.as_deref().unwrap())).sum()
}

#[test]
fn threads_that_transfer_money_conserve_it() {
    let store = store();
    open_accounts(&store);
    std::thread::scope(|scope| {
        for seed in 0..3 {
            let store = &store;
            scope.spawn(move || {
                let mut dice = Pcg64Mcg::seed_from_u64(seed);
                (0..300).filter(|_| transfer(store, &mut dice)).count()
            });
        }
        for _ in 0..50 {
            assert_eq!(total(&store), i64::from(ACCOUNTS) * START);
        }
    });
    assert_eq!(total(&store), i64::from(ACCOUNTS) * START);
    assert_sound(&store, ACCOUNTS as usize);
}

#[test]
fn a_transaction_sees_its_own_changes_and_others_see_none_before_the_commit() {
    let store = store();
    store.put("a", "1").unwrap();
    let session = store.session().unwrap();
    let mut transaction = session.transaction().unwrap();
    assert_eq!(transaction.insert("a", "2").unwrap(), Some(b"1".to_vec()));
    transaction.put("b", "3").unwrap();
    assert_eq!(
        transaction.get_many(&["a", "b", "c"]).unwrap(),
        [Some(b"2".to_vec()), Some(b"3".to_vec()), None]
    );
    assert_eq!(transaction.remove("b").unwrap(), Some(b"3".to_vec()));
    assert!(!transaction.contains_key("b").unwrap());
    assert_eq!(store.get("a").unwrap(), Some(b"1".to_vec()));
    session.put("d", "4").unwrap();
    transaction.commit().unwrap();
    assert_eq!(store.get("a").unwrap(), Some(b"2".to_vec()));
    let mut dropped = store.transaction().unwrap();
    dropped.put("a", "5").unwrap();
    drop(dropped);
    assert_eq!(store.get("a").unwrap(), Some(b"2".to_vec()));
}

#[test]
fn a_commit_fails_if_a_key_that_was_read_has_changed() {
    let store = store();
    for is_changed in [false, true] {
        for reads_absent in [false, true] {
            let key = if reads_absent { format!("new {is_changed}") } else { "key".to_owned() };
            if !reads_absent {
                store.put(&key, "old").unwrap();
            }
            let mut transaction = store.transaction().unwrap();
            transaction.get(&key).unwrap();
            transaction.put("result", "value").unwrap();
            if is_changed {
                store.put(&key, "changed").unwrap();
            }
            let outcome = transaction.commit();
            match outcome {
                Ok(()) => assert!(!is_changed),
                Err(error) => {
                    assert!(matches!(error, Error::Transaction(TransactionError::Conflict)), "{error}");
                    assert!(is_changed && error.is_unsent());
                }
            }
        }
    }
}

/// Two transactions that each read both keys and write one must not both commit.
#[test]
fn write_skew_is_a_conflict() {
    let store = store();
    store.put_many(&[("a", "on call"), ("b", "on call")]).unwrap();
    let [mut one, mut two] = [0; 2].map(|_| store.transaction().unwrap());
    for transaction in [&mut one, &mut two] {
        assert!(
            transaction
                .get_many(&["a", "b"])
                .unwrap()
                .iter()
                .all(|value| value.as_deref() == Some(b"on call"))
        );
    }
    one.put("a", "away").unwrap();
    two.put("b", "away").unwrap();
    one.commit().unwrap();
    assert!(two.commit().is_err());
}

#[test]
fn an_error_of_the_body_changes_nothing() {
    let store = store();
    let outcome: Result<(), Error> = store.transact(|tx| {
        tx.put("a", "1")?;
        tx.put(vec![0; darter::KEY_BYTES_MAX + 1], "too long")
    });
    assert!(outcome.unwrap_err().is_too_long());
    let value = vec![0; store.max_value_bytes() - 5];
    store.put("large", &value).unwrap();
    let outcome = store.transact(|tx| {
        tx.put("a", "1")?;
        tx.put("large", value.clone())
    });
    assert!(outcome.unwrap_err().is_too_long(), "both values of a key must fit");
    assert_eq!(store.get("a").unwrap(), None);
    assert_eq!(store.get("large").unwrap(), Some(value));
    let outcome = store.transact(|tx| (0..=100_000_u32).try_for_each(|n| tx.put(n.to_be_bytes(), "")));
    let error = outcome.unwrap_err();
    assert!(matches!(error, Error::Transaction(TransactionError::TooLarge { keys: 100_001, .. })), "{error}");
    assert_sound(&store, 1);
}

#[test]
fn ten_thousand_keys_change_at_one_moment() {
    let store = store();
    for round in 0..2_u32 {
        store
            .transact(|tx| {
                for number in 0..10_000_u32 {
                    let change = |old: Option<&[u8]>| {
                        assert_eq!(old.is_some(), round > 0);
                        Change::Put(round.to_be_bytes().to_vec())
                    };
                    tx.update(number.to_be_bytes(), change)?;
                }
                Ok(())
            })
            .unwrap();
        let is_of_round = |pair: Result<(Vec<u8>, Vec<u8>), Error>| pair.unwrap().1 == round.to_be_bytes();
        assert_eq!(
            store
                .range(..)
                .filter(|pair| matches!(pair, Ok((_, value)) if *value == round.to_be_bytes()))
                .count(),
            10_000
        );
        assert!(store.range(..).all(is_of_round));
    }
    assert_sound(&store, 10_000);
}

#[test]
fn a_full_pool_refuses_a_transaction_and_keeps_what_it_has() {
    let store = Store::options().index(IndexKind::Quiver).open("mem:8M").unwrap();
    store.put("kept", "old").unwrap();
    let outcome = store.transact(|tx| {
        tx.put("kept", "new")?;
        (0..200_u32).try_for_each(|number| tx.put(number.to_be_bytes(), vec![7; 60_000]))
    });
    assert!(outcome.unwrap_err().is_out_of_space());
    assert_eq!(store.get("kept").unwrap(), Some(b"old".to_vec()));
    store.transact(|tx| tx.put("kept", "new")).unwrap();
    assert_sound(&store, 1);
}

#[test]
fn tables_and_futures_have_transactions() {
    let store = store();
    let accounts: Table<u32, i64> = store.table("accounts").unwrap();
    let by_name: Table<String, u32> = store.table("by name").unwrap();
    store
        .transact(|tx| {
            tx.table(&accounts).put(&7, &100)?;
            tx.table(&by_name).put("Ada", &7)
        })
        .unwrap();
    assert_eq!(by_name.get("Ada").unwrap().map(|number| accounts.get(&number).unwrap()), Some(Some(100)));
    let async_store = AsyncStore::from(store.clone());
    let moved = block_on(async_store.transact(async |tx| {
        let all = tx.table(&darter::AsyncTable::from(accounts.clone())).remove(&7).await?;
        tx.put("all", all.unwrap_or_default().to_le_bytes())?;
        Ok(all)
    }));
    assert_eq!(moved.unwrap(), Some(100));
    assert_eq!(accounts.get(&7).unwrap(), None);
}

#[test]
fn dart_refuses_transactions() {
    let store = Store::options().index(IndexKind::Dart).open("mem:16M").unwrap();
    let error = store.transact(|tx| tx.put("a", "1")).unwrap_err();
    assert!(error.to_string().contains("no transactions"), "{error}");
}

/// Gets and scans of two keys that transactions change all the time return the keys' own values.
#[test]
fn readers_see_values_and_no_intents() {
    let store = store();
    for key in ["a", "b"] {
        store.put(key, 7_u64.to_le_bytes()).unwrap();
    }
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let session = store.session().unwrap();
                for _ in 0..5000 {
                    session
                        .transact(|tx| tx.put("a", 7_u64.to_le_bytes()).and(tx.put("b", 7_u64.to_le_bytes())))
                        .unwrap();
                }
                is_over.store(true, Ordering::Relaxed);
            });
        }
        let session = store.session().unwrap();
        while !is_over.load(Ordering::Relaxed) {
            assert_eq!(session.get("a").unwrap(), Some(7_u64.to_le_bytes().to_vec()));
            let pairs: Vec<_> = session.range(..).map(|pair| pair.unwrap().1).collect();
            assert_eq!(pairs, vec![7_u64.to_le_bytes().to_vec(); 2]);
        }
    });
}

/// A transfer between two keys takes five round trips, two of which read both keys and find their
/// places, and the last of which only cleans up.
#[test]
fn a_transfer_takes_five_round_trips() {
    let store = Store::options().index(IndexKind::Quiver).direct(false).open("mem:64M").unwrap();
    store.bulk_load((0..10_000_u32).map(|number| (number.to_be_bytes(), 100_u64.to_le_bytes()))).unwrap();
    let session = store.session().unwrap();
    let transfer = |from: u32, to: u32| {
        session.transact(|tx| {
            let old = tx.get_many(&[from.to_be_bytes(), to.to_be_bytes()])?;
            tx.put(from.to_be_bytes(), old[1].clone().unwrap())?;
            tx.put(to.to_be_bytes(), old[0].clone().unwrap())
        })
    };
    for warm in 0..2000_u32 {
        transfer(warm * 2, warm * 2 + 5000).unwrap();
    }
    let before = session.counters();
    for number in 0..1000_u32 {
        transfer(number * 3, number * 3 + 5000).unwrap();
    }
    let after = session.counters() - before;
    let [reads, commits] = [OpKind::MultiGet, OpKind::Transact].map(|kind| after[kind].round_trips_per_op());
    println!("{reads:.2} round trips to read, {commits:.2} to commit");
    assert!(reads + commits < 5.2, "{reads} round trips to read, {commits} to commit");
    // A transaction that only reads: to read, and to read again.
    let before = session.counters();
    for number in 0..1000_u32 {
        session.transact(|tx| tx.get_many(&[number.to_be_bytes(), (number + 5000).to_be_bytes()])).unwrap();
    }
    let after = session.counters() - before;
    let [reads, commits] = [OpKind::MultiGet, OpKind::Transact].map(|kind| after[kind].round_trips_per_op());
    println!("{reads:.2} round trips to read, {commits:.2} to verify");
    assert!(reads + commits < 2.2, "{reads} round trips to read, {commits} to verify");
    // A transaction of one key: to read, and to put on condition.
    let before = session.counters();
    for number in 0..1000_u32 {
        let key = number.to_be_bytes();
        session
            .transact(|tx| {
                assert!(tx.get(key)?.is_some());
                tx.put(key, "new")
            })
            .unwrap();
    }
    let after = session.counters() - before;
    let (all, commits) =
        (after.total().round_trips as f64 / 1000.0, after[OpKind::Transact].round_trips_per_op());
    println!("{:.2} round trips to read one key, {commits:.2} to commit", all - commits);
    assert!(all < 3.5 && commits < 2.5, "{all} round trips, {commits} to commit");
}

/// Adjacent new keys take a few round trips for each page, not some for each key.
#[test]
fn many_new_keys_take_few_round_trips() {
    let store = Store::options().index(IndexKind::Quiver).open("mem:64M").unwrap();
    for (keys, at_most) in [(4_u32, 40), (50, 40), (100, 250), (1000, 800)] {
        let session = store.session().unwrap();
        session
            .transact(|tx| (0..keys).try_for_each(|key| tx.put(format!("{keys}:{key:04}"), "value")))
            .unwrap();
        let round_trips = session.counters()[OpKind::Transact].round_trips;
        println!("{keys} new keys: {round_trips} round trips");
        assert!(round_trips <= at_most, "{keys} new keys: {round_trips} round trips");
        assert_eq!(session.range(format!("{keys}:")..format!("{keys};")).count(), keys as usize);
    }
    assert_sound(&store, 1154);
}

/// The child process; does nothing in a plain test run.
#[test]
fn child_process() {
    let Ok(url) = std::env::var("DARTER_TRANSACTIONS_POOL") else { return };
    let seed = std::env::var("DARTER_TRANSACTIONS_SEED").unwrap().parse().unwrap();
    let store = Store::open(&url).unwrap();
    let mut dice = Pcg64Mcg::seed_from_u64(seed);
    let mut out = std::io::stdout().lock();
    // The test runner has begun a line.
    writeln!(out).unwrap();
    loop {
        transfer(&store, &mut dice);
        writeln!(out, "done").unwrap();
    }
}

/// Processes that transfer money are killed again and again: the money is conserved whenever it is
/// counted, and in the end nothing is leaked.
#[test]
fn processes_killed_in_transactions_conserve_the_money() {
    let directory = tempfile::tempdir().unwrap();
    // Blocks for all lives: how soon those of the dead are free depends on their leases.
    let url = format!("file:{}?size=256M&nodes=2", directory.path().join("pool").display());
    let store = Store::options().block_bytes(1 << 20).open(&url).unwrap();
    open_accounts(&store);
    let start = |seed: u64| -> Child {
        Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "transactions::child_process", "--nocapture"])
            .env("DARTER_TRANSACTIONS_POOL", &url)
            .env("DARTER_TRANSACTIONS_SEED", seed.to_string())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap()
    };
    let mut dice = Pcg64Mcg::seed_from_u64(1);
    for round in 0..8 {
        let children = [start(2 * round), start(2 * round + 1)];
        for mut child in children {
            let steps = dice.random_range(0..60_usize);
            // Kept open: a child that cannot write would end before it is killed.
            let mut lines = BufReader::new(child.stdout.take().unwrap()).split(b'\n');
            let is_done = |line: &std::io::Result<Vec<u8>>| line.as_ref().is_ok_and(|line| line == b"done");
            let done = lines.by_ref().filter(is_done).take(steps).count();
            assert_eq!(done, steps, "the child ended by itself");
            assert_eq!(total(&store), i64::from(ACCOUNTS) * START);
            child.kill().unwrap();
            child.wait().unwrap();
            assert_eq!(total(&store), i64::from(ACCOUNTS) * START);
        }
    }
    drop(store);
    let store = Store::open(&url).unwrap();
    let check = store.repair().unwrap();
    assert!(check.is_sound() && check.leaked_bytes == 0, "{check:#?}");
    assert_sound(&store, ACCOUNTS as usize);
    assert_eq!(total(&store), i64::from(ACCOUNTS) * START);
}
