//! Every operation against a `BTreeMap`, on keys chosen to hurt: empty, prefixes of each other, zero bytes, hundreds of equal
//! leading bytes, 64 KiB. After each run the whole index is checked, and nothing may leak.

#![allow(clippy::unwrap_used)] // a test may panic

mod common;

use common::{Bench, adversarial_key};
use darter_fabric::block_on;
use darter_index::{Condition, OrderedIndex, PutOutcome, ScanRange};
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::ops::Bound;

/// A key that prints short.
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

fn op() -> impl Strategy<Value = Op> {
    let value = prop::collection::vec(any::<u8>(), 0..100);
    prop_oneof![
        12 => (key(), value, 0_u8..6).prop_map(|(k, v, c)| Op::Put(Key(k), v, c)),
        6 => key().prop_map(|k| Op::Delete(Key(k))),
        6 => key().prop_map(|k| Op::Get(Key(k))),
        2 => prop::collection::vec(key().prop_map(Key), 0..12).prop_map(Op::MultiGet),
        4 => (key(), key(), any::<u8>(), 0_usize..20).prop_map(|(a, b, m, l)| Op::Scan(Key(a), Key(b), m, l)),
        1 => Just(Op::Maintain),
        1 => Just(Op::Adjust),
    ]
}

fn put(bench: &mut Bench, map: &mut BTreeMap<Vec<u8>, Vec<u8>>, key: &[u8], value: &[u8], choice: u8) {
    let old = map.get(key).cloned();
    let wrong = b"surely not this".to_vec();
    let (condition, holds) = match choice {
        0 => (Condition::Absent, old.is_none()),
        1 => (Condition::Present, old.is_some()),
        2 => match &old {
            Some(old) => (Condition::Equals(old), true),
            None => (Condition::Equals(b""), false),
        },
        3 => (Condition::Equals(&wrong), old.as_ref() == Some(&wrong)),
        _ => (Condition::Always, true),
    };
    let outcome = block_on(bench.dart.put(&mut bench.client, key, value, condition)).unwrap();
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

fn scan(bench: &mut Bench, map: &BTreeMap<Vec<u8>, Vec<u8>>, a: &[u8], b: &[u8], mode: u8, limit: usize) {
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
    let got = block_on(bench.dart.scan(&mut bench.client, &range, limit)).unwrap();
    assert_eq!(got, expected, "{range:?} limit {limit}");
}

fn apply(bench: &mut Bench, map: &mut BTreeMap<Vec<u8>, Vec<u8>>, op: Op) {
    match op {
        Op::Put(Key(key), value, choice) => put(bench, map, &key, &value, choice),
        Op::Delete(Key(key)) => {
            let was_there = block_on(bench.dart.delete(&mut bench.client, &key)).unwrap();
            assert_eq!(was_there, map.remove(&key).is_some());
        }
        Op::Get(Key(key)) => {
            assert_eq!(block_on(bench.dart.get(&mut bench.client, &key)).unwrap(), map.get(&key).cloned());
        }
        Op::MultiGet(keys) => {
            let keys: Vec<&[u8]> = keys.iter().map(|key| &key.0[..]).collect();
            let expected: Vec<_> = keys.iter().map(|key| map.get(*key).cloned()).collect();
            assert_eq!(block_on(bench.dart.multi_get(&mut bench.client, &keys)).unwrap(), expected);
        }
        Op::Scan(Key(a), Key(b), mode, limit) => scan(bench, map, &a, &b, mode, limit),
        Op::Maintain => bench.maintain(),
        Op::Adjust => {
            block_on(bench.dart.adjust(&mut bench.client)).unwrap();
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, max_shrink_iters: 2000, ..ProptestConfig::default() })]

    #[test]
    fn behaves_like_a_map(ops in prop::collection::vec(op(), 1..400), nodes in 1_usize..4) {
        let mut bench = Bench::new(nodes);
        let mut map = BTreeMap::new();
        for op in ops {
            apply(&mut bench, &mut map, op);
        }
        bench.assert_sound(map.len() as u64);
        for key in map.keys() {
            prop_assert!(block_on(bench.dart.delete(&mut bench.client, key)).unwrap());
        }
        bench.assert_sound(0);
    }

    #[test]
    fn bulk_load_equals_inserts(keys in prop::collection::btree_set(key(), 0..600), nodes in 1_usize..4) {
        let mut bench = Bench::new(nodes);
        let map: BTreeMap<Vec<u8>, Vec<u8>> =
            keys.into_iter().enumerate().map(|(i, key)| (key, i.to_le_bytes().to_vec())).collect();
        let loaded = block_on(bench.dart.bulk_load(&mut bench.client, map.clone().into_iter())).unwrap();
        prop_assert_eq!(loaded, map.len() as u64);
        bench.assert_sound(loaded);
        let all = block_on(bench.dart.scan(&mut bench.client, &ScanRange::all(), usize::MAX)).unwrap();
        prop_assert_eq!(all, map.clone().into_iter().collect::<Vec<_>>());
        for (key, value) in &map {
            let got = block_on(bench.dart.get(&mut bench.client, key)).unwrap();
            prop_assert_eq!(got.as_ref(), Some(value));
        }
    }
}

/// Regression: a walk in chunks met the nodes behind a chunk's end twice, once they had been read in the same round trip.
#[test]
fn a_walk_in_chunks_counts_every_key_once() {
    let mut bench = Bench::new(1);
    let keys: Vec<(Vec<u8>, Vec<u8>)> =
        (0..60_000_u32).map(|i| (i.wrapping_mul(2_654_435_761).to_be_bytes().to_vec(), vec![1])).collect();
    let map: BTreeMap<_, _> = keys.into_iter().collect();
    let count = map.len() as u64;
    block_on(bench.dart.bulk_load(&mut bench.client, map.into_iter())).unwrap();
    bench.assert_sound(count);
}
