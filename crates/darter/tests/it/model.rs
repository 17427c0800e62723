//! Every operation against a `BTreeMap`, with keys that indexes get wrong.

use crate::adversary::{Model, assert_holds, assert_sound, brief, key, value};
use crate::kind;
use darter::engine::Engine;
use darter::{PutOutcome, ScanRange, Session, Store};
use proptest::prelude::*;
use std::ops::Bound;

#[derive(Clone, Debug)]
enum Op {
    Put(Vec<u8>, Vec<u8>),
    Insert(Vec<u8>, Vec<u8>),
    Update(Vec<u8>, Vec<u8>),
    /// Expecting the true value, when the flag says so and there is one.
    ReplaceIfEqual(Vec<u8>, bool, Vec<u8>),
    Delete(Vec<u8>),
    Get(Vec<u8>),
    MultiGet(Vec<Vec<u8>>),
    Scan(ScanRange, usize),
    /// From both ends, in the order that the bits give.
    ScanBothEnds(ScanRange, u16),
    ScanPrefix(Vec<u8>, bool),
    Maintain,
    Adjust,
}

fn bound() -> impl Strategy<Value = Bound<Vec<u8>>> {
    prop_oneof![key().prop_map(Bound::Included), key().prop_map(Bound::Excluded), Just(Bound::Unbounded)]
}

fn range() -> impl Strategy<Value = ScanRange> {
    (bound(), bound(), any::<bool>()).prop_map(|(from, to, reverse)| ScanRange { from, to, reverse })
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        12 => (key(), value()).prop_map(|(key, value)| Op::Put(key, value)),
        6 => (key(), value()).prop_map(|(key, value)| Op::Insert(key, value)),
        3 => (key(), value()).prop_map(|(key, value)| Op::Update(key, value)),
        3 => (key(), any::<bool>(), value()).prop_map(|(key, hit, value)| Op::ReplaceIfEqual(key, hit, value)),
        10 => key().prop_map(Op::Delete),
        6 => key().prop_map(Op::Get),
        2 => prop::collection::vec(key(), 0..12).prop_map(Op::MultiGet),
        3 => (range(), prop_oneof![0_usize..10, Just(usize::MAX)]).prop_map(|(range, limit)| Op::Scan(range, limit)),
        1 => (range(), any::<u16>()).prop_map(|(range, turns)| Op::ScanBothEnds(range, turns)),
        2 => (key(), any::<bool>()).prop_map(|(prefix, reverse)| Op::ScanPrefix(prefix, reverse)),
        1 => Just(Op::Maintain),
        1 => Just(Op::Adjust),
    ]
}

/// The pairs of the model that a range covers, in its direction.
fn covered(model: &Model, range: &ScanRange) -> Vec<(Vec<u8>, Vec<u8>)> {
    let inside = |key: &&Vec<u8>| {
        let above = match &range.from {
            Bound::Included(from) => *key >= from,
            Bound::Excluded(from) => *key > from,
            Bound::Unbounded => true,
        };
        above
            && match &range.to {
                Bound::Included(to) => *key <= to,
                Bound::Excluded(to) => *key < to,
                Bound::Unbounded => true,
            }
    };
    let pairs = model.iter().filter(|(key, _)| inside(key)).map(|(key, value)| (key.clone(), value.clone()));
    if range.reverse { pairs.rev().collect() } else { pairs.collect() }
}

fn write(session: &Session, model: &mut Model, op: Op) {
    match op {
        Op::Put(key, value) => {
            let outcome = session.put(&key, &value).unwrap();
            let was_there = model.insert(key, value).is_some();
            assert_eq!(outcome, if was_there { PutOutcome::Replaced } else { PutOutcome::Inserted });
        }
        Op::Insert(key, value) => {
            let absent = !model.contains_key(&key);
            assert_eq!(session.try_insert(&key, &value).unwrap(), absent, "insert {}", brief(&key));
            if absent {
                model.insert(key, value);
            }
        }
        Op::Update(key, value) => {
            let old = model.get(&key).cloned();
            assert_eq!(session.replace(&key, &value).unwrap(), old, "replace {}", brief(&key));
            if old.is_some() {
                model.insert(key, value);
            }
        }
        Op::ReplaceIfEqual(key, hit, value) => {
            let mut expected = model.get(&key).cloned().unwrap_or_default();
            if !hit {
                expected.push(0);
            }
            let equal = model.get(&key) == Some(&expected);
            assert_eq!(
                session.compare_exchange(&key, &expected, &value).unwrap(),
                equal,
                "replace {}",
                brief(&key)
            );
            if equal {
                model.insert(key, value);
            }
        }
        Op::Delete(key) => {
            let old = model.remove(&key);
            if key.len() % 2 == 0 {
                assert_eq!(session.discard(&key).unwrap(), old.is_some(), "discard {}", brief(&key));
            } else {
                assert_eq!(session.remove(&key).unwrap(), old, "remove {}", brief(&key));
            }
        }
        read_only => unreachable!("{read_only:?}"),
    }
}

fn apply(store: &Store, session: &Session, model: &mut Model, op: Op) {
    match op {
        Op::Get(key) => {
            let found = session.get(&key).unwrap();
            assert_eq!(found.as_ref(), model.get(&key), "get {}", brief(&key));
            assert_eq!(session.get_with(&key, <[u8]>::len).unwrap(), model.get(&key).map(Vec::len));
        }
        Op::MultiGet(keys) => {
            let expected: Vec<_> = keys.iter().map(|key| model.get(key).cloned()).collect();
            assert_eq!(session.get_many(&keys).unwrap(), expected);
        }
        Op::Scan(range, limit) => {
            let expected: Vec<_> = covered(model, &range).into_iter().take(limit).collect();
            let found: Vec<_> = session.range(&range).limit(limit).map(Result::unwrap).collect();
            assert_eq!(found, expected);
            if limit < 100 {
                assert_eq!(session.scan_chunk(&range, limit).unwrap(), expected);
            }
        }
        Op::ScanBothEnds(range, turns) => {
            let mut expected: std::collections::VecDeque<_> = covered(model, &range).into();
            let mut scan = session.range(range);
            for turn in 0.. {
                let (found, wanted) = if turns >> (turn % 16) & 1 == 0 {
                    (scan.next(), expected.pop_front())
                } else {
                    (scan.next_back(), expected.pop_back())
                };
                assert_eq!(found.transpose().unwrap(), wanted);
                if wanted.is_none() {
                    break;
                }
            }
        }
        Op::ScanPrefix(prefix, reverse) => {
            let mut expected: Vec<_> = model
                .range(prefix.clone()..)
                .take_while(|(key, _)| key.starts_with(&prefix))
                .map(|(key, value)| (key.clone(), value.clone()))
                .collect();
            let scan = session.prefix(&prefix);
            let found: Vec<_> = if reverse {
                scan.rev().map(Result::unwrap).collect()
            } else {
                scan.map(Result::unwrap).collect()
            };
            if reverse {
                expected.reverse();
            }
            assert_eq!(found, expected);
        }
        Op::Maintain => session.maintain().unwrap(),
        Op::Adjust => match store.adjust() {
            Ok(_) => {}
            Err(error) => assert!(store.index().kind().is_none(), "{error}"),
        },
        op => write(session, model, op),
    }
}

/// Few cases in a plain run; `PROPTEST_CASES=5000` for a long one.
fn config() -> ProptestConfig {
    let standard = ProptestConfig { max_shrink_iters: 4000, ..ProptestConfig::default() };
    if std::env::var_os("PROPTEST_CASES").is_some() {
        standard
    } else {
        ProptestConfig { cases: 48, ..standard }
    }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn every_operation_agrees_with_the_model(
        kind in kind(),
        nodes in 1_usize..=3,
        ops in prop::collection::vec(op(), 1..400),
    ) {
        let store = kind.open(nodes);
        let session = store.session().unwrap();
        let mut model = Model::new();
        for op in ops {
            apply(&store, &session, &mut model, op);
        }
        assert_holds(&session, &model);
        assert_sound(&store, model.len());
        for key in model.keys() {
            prop_assert!(session.discard(key).unwrap());
        }
        assert_holds(&session, &Model::new());
        assert_sound(&store, 0);
    }

    #[test]
    fn a_bulk_load_is_as_good_as_puts(
        kind in kind(),
        model in prop::collection::btree_map(key(), prop::collection::vec(any::<u8>(), 0..20), 0..600),
        ops in prop::collection::vec(op(), 0..60),
    ) {
        let store = kind.open(2);
        let session = store.session().unwrap();
        prop_assert_eq!(session.bulk_load(model.clone()).unwrap(), model.len() as u64);
        assert_holds(&session, &model);
        assert_sound(&store, model.len());
        let mut model = model;
        for op in ops {
            apply(&store, &session, &mut model, op);
        }
        assert_holds(&session, &model);
        assert_sound(&store, model.len());
    }
}
