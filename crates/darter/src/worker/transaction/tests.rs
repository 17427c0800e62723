//! The transaction mode against a map.

use super::*;
use crate::engine::{Engine, KeySpace};
use crate::{Store, TransactionError};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use std::collections::BTreeMap;
use std::ops::Bound;

type Map = BTreeMap<Vec<u8>, Vec<u8>>;

fn key(dice: &mut Pcg64Mcg) -> Vec<u8> {
    format!("k{:02}", dice.random_range(0..30)).into_bytes()
}

fn range(dice: &mut Pcg64Mcg) -> ScanRange {
    let mut bound = || match dice.random_range(0..3) {
        0 => Bound::Unbounded,
        1 => Bound::Included(key(dice)),
        _ => Bound::Excluded(key(dice)),
    };
    ScanRange { from: bound(), to: bound(), reverse: dice.random_bool(0.5) }
}

fn first_of(model: &Map, range: &ScanRange, limit: usize) -> Vec<(Vec<u8>, Vec<u8>)> {
    let inside = model.iter().filter(|(key, _)| range.contains(key));
    let mut pairs: Vec<_> = inside.map(|(key, value)| (key.clone(), value.clone())).collect();
    if range.reverse {
        pairs.reverse();
    }
    pairs.truncate(limit);
    pairs
}

async fn change(worker: &mut Worker, model: &mut Map, dice: &mut Pcg64Mcg) {
    let (key, value) = (key(dice), vec![dice.random_range(0..4)]);
    let old = model.get(&key).cloned();
    let outcome = if old.is_some() { PutOutcome::Replaced } else { PutOutcome::Inserted };
    match dice.random_range(0..7) {
        0 => {
            assert_eq!(worker.put(&key, &value).await.unwrap(), outcome);
            model.insert(key, value);
        }
        1 => {
            let is_new = worker.try_insert(&key, &value).await.unwrap();
            assert_eq!(is_new, old.is_none());
            model.entry(key).or_insert(value);
        }
        2 => {
            let expected = [dice.random_range(0..4)];
            let is_equal = old.as_deref() == Some(&expected);
            assert_eq!(worker.compare_exchange(&key, expected, &value).await.unwrap(), is_equal);
            if is_equal {
                model.insert(key, value);
            }
        }
        3 => assert_eq!(worker.remove(&key).await.unwrap(), model.remove(&key)),
        4 => {
            let removed = worker.remove_if(&key, |old| old == value).await.unwrap();
            assert_eq!(removed, old.as_ref() == Some(&value));
            if removed {
                model.remove(&key);
            }
        }
        5 => {
            let pairs = [(key, value), (self::key(dice), vec![9])];
            let outcomes = worker.put_many(&pairs).await.unwrap();
            let replaced = pairs.map(|(key, value)| model.insert(key, value).is_some());
            assert_eq!(
                outcomes.into_iter().map(|it| it == PutOutcome::Replaced).collect::<Vec<_>>(),
                replaced
            );
        }
        _ => {
            let keys = [key, self::key(dice)];
            let removed = keys.iter().filter_map(|key| model.remove(key)).count();
            assert_eq!(worker.remove_many(&keys).await.unwrap(), removed as u64);
        }
    }
}

async fn read(worker: &mut Worker, model: &Map, dice: &mut Pcg64Mcg) {
    let keys = [key(dice), key(dice), key(dice)];
    assert_eq!(worker.get(&keys[0]).await.unwrap().as_ref(), model.get(&keys[0]));
    let values = worker.get_many(&keys).await.unwrap();
    assert_eq!(values, keys.each_ref().map(|key| model.get(key).cloned()));
    let first = worker.get_many_first(&keys).await.unwrap();
    assert!(!first.is_empty() && first == values[..first.len()]);
    let (range, limit) = (range(dice), dice.random_range(0..12));
    let pairs = first_of(model, &range, limit);
    assert_eq!(worker.scan_chunk(&range, limit).await.unwrap(), pairs, "{range:?} {limit}");
    let mut visited = Vec::new();
    let visit = |key: &[u8], value: &[u8]| visited.push((key.to_vec(), value.to_vec()));
    assert_eq!(worker.scan_with(&range, limit, visit).await.unwrap(), pairs.len());
    assert_eq!(visited, pairs);
}

#[test]
fn operations_in_a_transaction_behave_like_those_of_a_map() {
    let store = Store::open("mem:64M").unwrap();
    let mut dice = Pcg64Mcg::seed_from_u64(7);
    for space in [KeySpace::Program, KeySpace::Gateway] {
        let (mut worker, mut model) = (store.worker_in(space).unwrap(), Map::new());
        for round in 0..300 {
            let before = model.clone();
            worker.begin_transaction(0);
            crate::block_on(async {
                for _ in 0..dice.random_range(0..30) {
                    if dice.random_bool(0.5) {
                        change(&mut worker, &mut model, &mut dice).await;
                    } else {
                        read(&mut worker, &model, &mut dice).await;
                    }
                }
                if round % 3 == 0 {
                    worker.roll_back();
                    model = before;
                } else {
                    assert!(worker.commit_transaction().await.unwrap());
                }
                let all = worker.scan_chunk(&ScanRange::all(), usize::MAX).await.unwrap();
                assert_eq!(all, first_of(&model, &ScanRange::all(), usize::MAX), "round {round}");
            });
        }
    }
}

#[test]
fn a_commit_verifies_what_a_scan_has_returned_and_reads_are_repeatable() {
    let store = Store::open("mem:64M").unwrap();
    let mut worker = store.worker_in(KeySpace::Program).unwrap();
    crate::block_on(async {
        store.put("a", "1").unwrap();
        worker.begin_transaction(0);
        assert_eq!(worker.scan_with(&ScanRange::all(), 9, |_, _| ()).await.unwrap(), 1);
        store.put("a", "2").unwrap();
        assert_eq!(worker.get("a").await.unwrap().as_deref(), Some(&b"1"[..]));
        worker.put("b", "1").await.unwrap();
        assert!(!worker.commit_transaction().await.unwrap());
        assert!(!worker.is_in_transaction() && !store.contains_key("b").unwrap());
        // A single key that was only read needs no verification.
        worker.begin_transaction(1);
        assert!(worker.contains_key("a").await.unwrap());
        store.remove("a").unwrap();
        assert!(worker.commit_transaction().await.unwrap());
    });
}

#[test]
fn a_transaction_of_too_many_keys_is_refused() {
    let store = Store::open("mem:64M").unwrap();
    let mut worker = store.worker_in(KeySpace::Program).unwrap();
    worker.begin_transaction(0);
    let too_many = crate::block_on(async {
        for number in 0..=KEYS_MAX {
            worker.put(number.to_be_bytes(), "").await?;
        }
        Ok::<_, Error>(())
    });
    assert!(matches!(too_many, Err(Error::Transaction(TransactionError::TooLarge { .. }))));
}
