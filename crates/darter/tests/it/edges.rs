//! Sizes at their limits, and shapes of the tree that were wrong once.

use crate::adversary::{Model, assert_holds, assert_sound};
use crate::{Kind, index};
use darter::Store;

/// One node of each size and back: every child count from 0 to 256, below a prefix and as keys that
/// end there.
#[test]
fn a_node_grows_and_shrinks_through_every_type() {
    for prefix in [&b""[..], b"x", &[7; 300]] {
        let store = Kind(index()).open(1);
        let session = store.session().unwrap();
        let mut model = Model::new();
        let keys = (0..=255_u8).map(|byte| [prefix, &[byte.wrapping_mul(167)]].concat());
        let keys: Vec<_> = std::iter::once(prefix.to_vec()).chain(keys).collect();
        for key in &keys {
            session.put(key, key).unwrap();
            model.insert(key.clone(), key.clone());
            if model.len() % 16 < 2 {
                assert_holds(&session, &model);
            }
        }
        assert_sound(&store, 257);
        for key in &keys {
            assert!(session.discard(key).unwrap());
            model.remove(key);
            if model.len() % 16 < 2 {
                assert_holds(&session, &model);
            }
        }
        assert_sound(&store, 0);
    }
}

/// Small numbers as a pool's secret once left the identity hash too few bits: some key's puts
/// turned for ever.
#[test]
fn a_secret_of_small_numbers_serves() {
    let store = Store::options().secret([0, 1, 2, 3]).maintenance(false).open("mem:16M").unwrap();
    let session = store.session().unwrap();
    for n in 0..2000_u32 {
        session.put(n.wrapping_mul(0x9e37_79b9).to_be_bytes(), n.to_string()).unwrap();
    }
    assert_eq!(session.range(..).map(Result::unwrap).count(), 2000);
}

/// Statistics walk the tree in chunks of 4096 nodes; a chunk used to end on the way down to where
/// it began.
#[test]
fn a_path_deeper_than_a_chunk_is_counted() {
    let store = Store::options().maintenance(false).open("mem:64M").unwrap();
    let session = store.session().unwrap();
    let longest = vec![b'a'; 4200];
    session.bulk_load((0..=longest.len()).map(|len| (longest[..len].to_vec(), Vec::new()))).unwrap();
    assert_eq!(store.stats().unwrap().index.keys, 4201);
}

#[test]
fn limits_are_refused_and_harm_nothing() {
    let store = Kind(index()).open(1);
    let session = store.session().unwrap();
    let longest = vec![0xee; darter::KEY_BYTES_MAX];
    let megabyte: Vec<u8> = (0..1 << 20).map(|n: u32| (n % 251) as u8).collect();
    session.put(&longest, &megabyte).unwrap();
    let longer = vec![0xee; darter::KEY_BYTES_MAX + 1];
    for error in [
        session.put(&longer, b"x").unwrap_err(),
        session.get(&longer).unwrap_err(),
        session.discard(&longer).unwrap_err(),
        session.put(b"k", vec![0; 100 << 20]).unwrap_err(),
    ] {
        assert!(error.is_too_long(), "{error}");
    }
    assert_eq!(session.get(&longest).unwrap(), Some(megabyte));
    assert_sound(&store, 1);
}

#[test]
fn a_bulk_load_refuses_what_it_must() {
    let store = Kind(index()).open(1);
    let session = store.session().unwrap();
    for pairs in
        [vec![("b", ""), ("a", "")], vec![("a", ""), ("a", "")], vec![("a", ""), ("b", ""), ("", "")]]
    {
        let error = session.bulk_load(pairs).unwrap_err();
        assert!(error.to_string().contains("sort the input"), "{error}");
        assert_holds(&session, &Model::new());
        assert_sound(&store, 0);
    }
    session.put("k", "v").unwrap();
    let error = session.bulk_load([("a", "b")]).unwrap_err();
    assert!(error.to_string().contains("empty index"), "{error}");
    assert_sound(&store, 1);
}
