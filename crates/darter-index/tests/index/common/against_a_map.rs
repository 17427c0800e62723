//! Every operation compared with a `BTreeMap`, on difficult keys: empty, prefixes of each other,
//! zero bytes, hundreds of equal leading bytes, 64 KiB. After each run the whole index is checked
//! for leaks and other errors.

use super::{Bench, Model, Tested, adversarial_key};
use darter_fabric::{Endpoint, OpKind, block_on};
use darter_index::{Condition, Decision, OrderedIndex, PutOutcome, ScanRange};
use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use std::ops::Bound;

/// A key with a short debug output.
#[derive(Clone)]
struct Key(Vec<u8>);

impl std::fmt::Debug for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let tail = &self.0[self.0.len().saturating_sub(8)..];
        write!(f, "{}:{tail:?}", self.0.len())
    }
}

#[derive(Clone, Debug)]
enum Op {
    Put(Key, Vec<u8>, u8),
    Delete(Key),
    DeleteWhen(Key, u8),
    Modify(Key, Vec<u8>, u8),
    Get(Key),
    MultiGet(Vec<Key>),
    Scan(Key, Key, u8, usize),
    Maintain,
    Adjust,
}

fn key() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        8 => any::<u16>().prop_map(adversarial_key),
        3 => prop::collection::vec(prop_oneof![Just(0_u8), Just(1), Just(255), any::<u8>()], 0..6),
    ]
}

/// A value, mostly small, sometimes as large as many slabs.
fn value() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        20 => prop::collection::vec(any::<u8>(), 0..100),
        2 => (0_usize..3000, any::<u8>()).prop_map(|(length, byte)| vec![byte; length]),
        1 => (0_usize..200_000, any::<u8>()).prop_map(|(length, byte)| vec![byte; length]),
    ]
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        12 => (key(), value(), 0_u8..6).prop_map(|(k, v, c)| Op::Put(Key(k), v, c)),
        6 => key().prop_map(|k| Op::Delete(Key(k))),
        2 => (key(), 0_u8..6).prop_map(|(k, c)| Op::DeleteWhen(Key(k), c)),
        3 => (key(), value(), 0_u8..4).prop_map(|(k, v, c)| Op::Modify(Key(k), v, c)),
        6 => key().prop_map(|k| Op::Get(Key(k))),
        2 => prop::collection::vec(key().prop_map(Key), 0..12).prop_map(Op::MultiGet),
        4 => (key(), key(), any::<u8>(), 0_usize..20).prop_map(|(a, b, m, l)| Op::Scan(Key(a), Key(b), m, l)),
        1 => Just(Op::Maintain),
        1 => Just(Op::Adjust),
    ]
}

/// A condition on a key with this value, and whether it holds.
fn condition(old: Option<&Vec<u8>>, choice: u8) -> (Condition<'_>, bool) {
    const WRONG: &[u8] = b"surely not this";
    match choice {
        0 => (Condition::Absent, old.is_none()),
        1 => (Condition::Present, old.is_some()),
        2 => match old {
            Some(old) => (Condition::Equals(old), true),
            None => (Condition::Equals(b""), false),
        },
        3 => (Condition::Equals(WRONG), old.is_some_and(|old| old == WRONG)),
        _ => (Condition::Always, true),
    }
}

fn put<T: Tested>(bench: &mut Bench<T>, map: &mut Model, key: &[u8], value: &[u8], choice: u8) {
    let old = map.get(key).cloned();
    let (condition, holds) = condition(old.as_ref(), choice);
    let outcome = block_on(bench.index.put(&mut bench.client, key, value, condition)).unwrap();
    let expected = match (holds, old.is_some()) {
        (false, _) => PutOutcome::Refused,
        (true, true) => PutOutcome::Replaced,
        (true, false) => PutOutcome::Inserted,
    };
    assert_eq!(outcome, expected);
    if holds {
        map.insert(key.to_vec(), value.to_vec());
    }
}

fn delete_when<T: Tested>(bench: &mut Bench<T>, map: &mut Model, key: &[u8], choice: u8) {
    let old = map.get(key).cloned();
    let (condition, holds) = condition(old.as_ref(), choice);
    let (expected, client) = (holds && old.is_some(), &mut bench.client);
    let removed = if choice.is_multiple_of(2) {
        block_on(bench.index.delete_when(client, key, condition)).unwrap()
    } else {
        block_on(bench.index.delete_if(client, key, |value| condition.holds_for(Some(value)))).unwrap()
    };
    assert_eq!(removed, expected, "{condition:?}");
    if removed {
        map.remove(key);
    }
}

fn modify<T: Tested>(bench: &mut Bench<T>, map: &mut Model, key: &[u8], value: &[u8], choice: u8) {
    let wanted = [Decision::Keep, Decision::Remove, Decision::Put, Decision::Put][usize::from(choice)];
    let mut seen = None;
    let decided = block_on(bench.index.modify(&mut bench.client, key, |old, new| {
        assert!(new.is_empty());
        seen = old.map(<[u8]>::to_vec);
        new.extend_from_slice(value);
        wanted
    }));
    assert_eq!(decided.unwrap(), wanted);
    assert_eq!(seen.as_ref(), map.get(key));
    match wanted {
        Decision::Keep => {}
        Decision::Remove => drop(map.remove(key)),
        Decision::Put => drop(map.insert(key.to_vec(), value.to_vec())),
    }
}

fn scan<T: Tested>(bench: &mut Bench<T>, map: &Model, a: &[u8], b: &[u8], mode: u8, limit: usize) {
    let bound = |key: &[u8], mode: u8| match mode % 3 {
        0 => Bound::Included(key.to_vec()),
        1 => Bound::Excluded(key.to_vec()),
        _ => Bound::Unbounded,
    };
    let range = if mode & 128 != 0 {
        ScanRange::prefix(a)
    } else {
        ScanRange { from: bound(a, mode), to: bound(b, mode / 3), reverse: false }
    };
    let range = if mode & 64 != 0 { range.reversed() } else { range };
    let inside = |key: &&Vec<u8>| {
        (match &range.from {
            Bound::Included(k) => *key >= k,
            Bound::Excluded(k) => *key > k,
            Bound::Unbounded => true,
        }) && (match &range.to {
            Bound::Included(k) => *key <= k,
            Bound::Excluded(k) => *key < k,
            Bound::Unbounded => true,
        })
    };
    let pairs = |key: &Vec<u8>| (key.clone(), map[key].clone());
    let expected: Vec<_> = if range.reverse {
        map.keys().rev().filter(inside).take(limit).map(pairs).collect()
    } else {
        map.keys().filter(inside).take(limit).map(pairs).collect()
    };
    let got = block_on(bench.index.scan(&mut bench.client, &range, limit)).unwrap();
    assert_eq!(got, expected, "{range:?} limit {limit}");
    let mut visited = Vec::new();
    let visit = |key: &[u8], value: &[u8]| visited.push((key.to_vec(), value.to_vec()));
    let count = block_on(bench.index.scan_with(&mut bench.client, &range, limit, visit)).unwrap();
    assert_eq!((count, visited), (expected.len(), expected));
}

fn apply<T: Tested>(bench: &mut Bench<T>, map: &mut Model, op: Op) {
    match op {
        Op::Put(Key(key), value, choice) => put(bench, map, &key, &value, choice),
        Op::Delete(Key(key)) => {
            let was_there = block_on(bench.index.delete(&mut bench.client, &key)).unwrap();
            assert_eq!(was_there, map.remove(&key).is_some());
        }
        Op::DeleteWhen(Key(key), choice) => delete_when(bench, map, &key, choice),
        Op::Modify(Key(key), value, choice) => modify(bench, map, &key, &value, choice),
        Op::Get(Key(key)) => {
            assert_eq!(block_on(bench.index.get(&mut bench.client, &key)).unwrap(), map.get(&key).cloned());
            let length = block_on(bench.index.get_with(&mut bench.client, &key, <[u8]>::len)).unwrap();
            assert_eq!(length, map.get(&key).map(Vec::len));
        }
        Op::MultiGet(keys) => {
            let keys: Vec<&[u8]> = keys.iter().map(|key| &key.0[..]).collect();
            let expected: Vec<_> = keys.iter().map(|key| map.get(*key).cloned()).collect();
            assert_eq!(block_on(bench.index.multi_get(&mut bench.client, &keys)).unwrap(), expected);
        }
        Op::Scan(Key(a), Key(b), mode, limit) => scan(bench, map, &a, &b, mode, limit),
        Op::Maintain => bench.maintain(),
        Op::Adjust => {
            block_on(T::adjust(&bench.index, &mut bench.client)).unwrap();
        }
    }
}

fn config(cases: u32) -> ProptestConfig {
    ProptestConfig { cases, max_shrink_iters: 2000, failure_persistence: None, ..ProptestConfig::default() }
}

pub(crate) fn behaves_like_a_map<T: Tested>() {
    let runs = (prop::collection::vec(op(), 1..400), 1_usize..4);
    let run = |(ops, nodes)| {
        let mut bench = Bench::<T>::new(nodes);
        let mut map = Model::new();
        for op in ops {
            apply(&mut bench, &mut map, op);
        }
        bench.assert_sound(map.len());
        for key in map.keys() {
            prop_assert!(bench.delete(key));
        }
        bench.assert_sound(0);
        Ok(())
    };
    TestRunner::new(config(T::CASES)).run(&runs, run).unwrap_or_else(|failure| panic!("{failure}"));
}

pub(crate) fn bulk_load_equals_inserts<T: Tested>() {
    let runs = (prop::collection::btree_set(key(), 0..600), 1_usize..4);
    let run = |(keys, nodes): (std::collections::BTreeSet<_>, usize)| {
        let mut bench = Bench::<T>::new(nodes);
        let map: Model =
            keys.into_iter().enumerate().map(|(i, key)| (key, i.to_le_bytes().to_vec())).collect();
        let loaded = block_on(bench.index.bulk_load(&mut bench.client, map.clone().into_iter())).unwrap();
        prop_assert_eq!(loaded, map.len() as u64);
        bench.assert_sound(map.len());
        bench.assert_holds(&map);
        Ok(())
    };
    TestRunner::new(config(T::CASES)).run(&runs, run).unwrap_or_else(|failure| panic!("{failure}"));
}

/// Regression: a walk in chunks visited the nodes after a chunk's end twice if they had been read
/// in the same round trip.
pub(crate) fn a_large_bulk_load_is_sound<T: Tested>() {
    let mut bench = Bench::<T>::new(1);
    let map: Model =
        (0..60_000_u32).map(|i| (i.wrapping_mul(2_654_435_761).to_be_bytes().to_vec(), vec![1])).collect();
    let count = map.len();
    block_on(bench.index.bulk_load(&mut bench.client, map.into_iter())).unwrap();
    bench.assert_sound(count);
}

/// From zero bytes to a megabyte, each value replaced by one of another size.
pub(crate) fn values_of_every_size<T: Tested>() {
    let mut bench = Bench::<T>::new(2);
    let mut map = Model::new();
    let sizes = (0..20).map(|power| 1_usize << power).chain([0, 7, 9, 1000, 1 << 20]);
    for (at, size) in sizes.enumerate() {
        for key in [&b"same"[..], &[at as u8], &[b'p'; 400][..at]] {
            put(&mut bench, &mut map, key, &vec![at as u8; size], 5);
        }
        bench.assert_holds(&map);
    }
    bench.assert_sound(map.len());
    for key in map.keys() {
        assert!(bench.delete(key));
    }
    bench.assert_sound(0);
}

/// A multi-get reads 4 MiB of values in a round trip, plus one value.
pub(crate) fn large_values_are_read_a_few_at_a_time<T: Tested>() {
    const VALUE_BYTES: usize = 1 << 20;
    const TOGETHER_BYTES: usize = 4 << 20;
    // For a leaf's class, and for nodes.
    const SLACK_BYTES: usize = 1 << 20;
    let mut bench = Bench::<T>::new(2);
    let mut map = Model::new();
    let names: Vec<String> = (0..40).map(|n| format!("key {n:02}")).collect();
    for (n, key) in names.iter().enumerate() {
        let is_large = !(8..16).contains(&n);
        let value = vec![n as u8; if is_large { VALUE_BYTES } else { 10 }];
        put(&mut bench, &mut map, key.as_bytes(), &value, 5);
    }
    let mut keys: Vec<&[u8]> = names.iter().map(String::as_bytes).collect();
    keys.insert(10, b"absent");
    let expected: Vec<_> = keys.iter().map(|key| map.get(*key).cloned()).collect();
    let before = bench.client.endpoint().counters().unwrap()[OpKind::MultiGet];
    assert!(block_on(bench.index.multi_get(&mut bench.client, &keys)).unwrap() == expected);
    let after = bench.client.endpoint().counters().unwrap()[OpKind::MultiGet];
    let (bytes, trips) = (after.read_bytes - before.read_bytes, after.round_trips - before.round_trips);
    let most = (TOGETHER_BYTES + VALUE_BYTES + SLACK_BYTES) as u64;
    assert!(bytes <= trips * most, "{bytes} bytes in {trips} round trips");
    // Returns only the first values.
    let mut found = Vec::new();
    while found.len() < keys.len() {
        let first = bench.index.multi_get_first(&mut bench.client, &keys[found.len()..]);
        let first = block_on(first).unwrap();
        assert!(!first.is_empty());
        found.extend(first);
    }
    assert!(found == expected);
    assert_eq!(block_on(bench.index.multi_get_first(&mut bench.client, &[])).unwrap(), []);
}

/// Stores difficult keys, then reads and deletes all of them in another process.
pub(crate) fn deleting_everything_leaks_nothing<T: Tested>() {
    let mut bench = Bench::<T>::new(2);
    let mut map = Model::new();
    for seed in (0..u16::MAX).step_by(7) {
        let key = adversarial_key(seed);
        if key.len() < 1000 || seed % 64 < 16 {
            put(&mut bench, &mut map, &key, &seed.to_le_bytes(), 5);
        }
    }
    let mut bench = bench.reopened();
    bench.assert_holds(&map);
    bench.assert_sound(map.len());
    for key in map.keys() {
        assert!(bench.delete(key));
        assert_eq!(bench.get(key), None);
    }
    bench.assert_sound(0);
    assert_eq!(bench.check().stats.kv_bytes, 0);
}
