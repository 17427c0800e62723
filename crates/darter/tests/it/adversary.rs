//! Keys that indexes get wrong: empty, prefixes of each other, zero bytes, long common beginnings,
//! 64 KiB, those that begin with the bytes that the store escapes; and the comparison of a whole store with a model.

use darter::{KEY_BYTES_MAX, Session, Store};
use proptest::prelude::*;
use std::collections::BTreeMap;

/// What a store should hold.
pub(crate) type Model = BTreeMap<Vec<u8>, Vec<u8>>;

/// A key, more often than not related to others.
pub(crate) fn key() -> impl Strategy<Value = Vec<u8>> {
    let alphabet = prop::sample::select(vec![0_u8, 1, b'a', b'b', 0x7f, 0x80, 0xfd, 0xfe, 0xff]);
    prop_oneof![
        // Short, over few bytes: prefixes of each other, splits at every depth.
        8 => prop::collection::vec(alphabet.clone(), 0..6),
        // Zeros and their prefixes.
        2 => (0_usize..40).prop_map(|length| vec![0; length]),
        // Up to 300 equal leading bytes, then a few that differ.
        4 => (0_usize..=300, prop::collection::vec(alphabet, 0..4)).prop_map(|(shared, tail)| {
            let mut key = vec![b'p'; shared];
            key.extend(tail);
            key
        }),
        4 => Just(300_usize).prop_flat_map(|shared| {
            prop::collection::vec(any::<u8>(), 0..3).prop_map(move |tail| [vec![b'p'; shared], tail].concat())
        }),
        // Fan-out: many children of one node.
        4 => any::<u8>().prop_map(|byte| vec![b'f', byte]),
        4 => any::<u16>().prop_map(|n| (n % 1024).to_be_bytes().to_vec()),
        // The longest there are; they differ at the end, or in length.
        1 => (0_usize..3, any::<bool>()).prop_map(|(short, last)| {
            let mut key = vec![b'L'; KEY_BYTES_MAX - short];
            *key.last_mut().unwrap() = u8::from(last);
            key
        }),
        // Those that the store escapes, and their neighbours.
        4 => (0xfc_u8..=0xff, prop::collection::vec(0xfc_u8..=0xff, 0..3)).prop_map(|(first, mut key)| {
            key.insert(0, first);
            key
        }),
        // Anything.
        2 => prop::collection::vec(any::<u8>(), 0..64),
    ]
}

/// A value, mostly small, now and then of many slabs' size.
pub(crate) fn value() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        10 => prop::collection::vec(any::<u8>(), 0..40),
        2 => (0_usize..3000, any::<u8>()).prop_map(|(length, byte)| vec![byte; length]),
        1 => (0_usize..200_000, any::<u8>()).prop_map(|(length, byte)| vec![byte; length]),
    ]
}

/// Asserts that the store holds exactly what the model does, whichever way it is read.
pub(crate) fn assert_holds(session: &Session, model: &Model) {
    let forward: Vec<_> = session.range(..).map(Result::unwrap).collect();
    let expected: Vec<_> = model.clone().into_iter().collect();
    assert_pairs(&forward, &expected);
    let mut backward: Vec<_> = session.range(..).rev().map(Result::unwrap).collect();
    backward.reverse();
    assert_pairs(&backward, &expected);
    for (key, value) in model {
        let found = session.get(key).unwrap();
        assert!(
            found.as_ref() == Some(value),
            "get {} finds {:?} bytes",
            brief(key),
            found.map(|found| found.len())
        );
    }
}

fn assert_pairs(found: &[(Vec<u8>, Vec<u8>)], expected: &[(Vec<u8>, Vec<u8>)]) {
    for (at, (found, expected)) in found.iter().zip(expected).enumerate() {
        assert!(found.0 == expected.0, "pair {at}: key {} for {}", brief(&found.0), brief(&expected.0));
        assert!(found.1 == expected.1, "pair {at}: key {} has another value", brief(&found.0));
    }
    assert_eq!(found.len(), expected.len());
}

/// Asserts that no invariant is broken and nothing leaked.
pub(crate) fn assert_sound(store: &Store, keys: usize) {
    let check = store.check().unwrap();
    assert!(check.is_sound(), "{:#?}", check.violations);
    assert_eq!(check.leaked_bytes, 0, "{:?}", check.remarks);
    assert_eq!(check.stats.keys, keys as u64);
}

/// A key in a message: its length, and its end.
pub(crate) fn brief(key: &[u8]) -> String {
    let tail = &key[key.len().saturating_sub(20)..];
    format!("{} bytes …{}", key.len(), tail.escape_ascii())
}
