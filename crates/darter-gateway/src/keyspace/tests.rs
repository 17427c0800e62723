//! Changes between two reads of one command, made by the command itself.

use super::aggregate::Aggregate;
use super::expiry::Expiry;
use super::head::Head;
use super::sweep::{IDLE_MS, idle};
use super::{Change, Family, KeyRange, Keyspace, Kind, place, remove_if_over, session};
use darter::engine::{Engine, KeySpace};
use darter::{ScanRange, Store, block_on};
use std::sync::Arc;

const NOW: u64 = 1_800_000_000_000;

fn store() -> Store {
    Store::open("mem:128M").unwrap()
}

/// Returns a gateway's keys, with their own locks.
fn keyspace(store: &Store) -> Keyspace {
    let mut keys = Keyspace::new(store.clone(), Arc::default());
    keys.now = NOW;
    keys
}

/// Runs the actions of another gateway in between.
fn meanwhile(store: &Store, does: impl AsyncFnOnce(&mut Keyspace) + Send) {
    std::thread::scope(|scope| scope.spawn(|| block_on(does(&mut keyspace(store)))).join().unwrap());
}

/// Returns the places that begin with a family's byte.
fn places(store: &Store, family: Family) -> usize {
    store.session_in(darter::engine::KeySpace::Gateway).unwrap().prefix([family as u8]).count()
}

fn record(store: &Store, key: &[u8]) -> Option<Vec<u8>> {
    store
        .session_in(darter::engine::KeySpace::Gateway)
        .unwrap()
        .get([&[Family::Key as u8], key].concat())
        .unwrap()
}

/// Adds a field to a hash as clients do; an absent hash becomes a large one.
async fn add_field(keys: &mut Keyspace, key: &[u8], name: &[u8]) -> Aggregate {
    let hash = keys.open(key, Kind::Hash).await.unwrap();
    let mut set = |_: usize, _: Option<&[u8]>, new: &mut Vec<u8>| {
        new.extend_from_slice(b"value");
        Ok(true)
    };
    keys.add_elements((key, Kind::Hash), &[name], true, &mut set).await.unwrap();
    hash
}

#[test]
fn a_key_that_lives_again_is_not_removed_as_over() {
    let store = store();
    let mut keys = keyspace(&store);
    block_on(async {
        // It had expired when it was read, and has been written again since.
        keys.set(b"key", b"value", Some(NOW + 1)).await.unwrap();
        let session = session(&mut keys.session, &keys.store).unwrap();
        assert!(!remove_if_over(session, b"kkey", NOW).await.unwrap());
        assert!(remove_if_over(session, b"kkey", NOW + 2).await.unwrap());
    });
}

/// The size of the first values does not predict the size of the next ones.
#[test]
fn several_large_values_are_held_a_few_at_a_time() {
    const VALUE_BYTES: usize = 512 << 10;
    // A multi-get returns 1 MiB of values, the values of the round trip that exceeds it (4 MiB and
    // one value), and 1 MiB more.
    const HELD: usize = (6 << 20) / VALUE_BYTES + 1;
    const SMALL: usize = 30;
    const LARGE: usize = 60;
    let store = store();
    let mut keys = keyspace(&store);
    let names: Vec<Vec<u8>> = (0..SMALL + LARGE).map(|n| format!("{n:03}").into_bytes()).collect();
    let value = |n: usize| vec![n as u8; if n < SMALL { 10 } else { VALUE_BYTES }];
    block_on(async {
        for (n, name) in names.iter().enumerate() {
            keys.set(name, &value(n), None).await.unwrap();
        }
        let (mut at, mut count, mut looks) = (0, 16, 0);
        while at < names.len() {
            let rest = names[at..].iter().map(Vec::as_slice).take(count);
            let (mut seen, mut large) = (0, 0);
            looks += 1;
            let visit = |head: Option<Head<'_>>| {
                assert!(head.unwrap().string().unwrap() == value(at + seen), "value {}", at + seen);
                large += usize::from(at + seen >= SMALL);
                seen += 1;
            };
            assert_eq!(keys.look_at_first(rest, visit).await.unwrap(), seen);
            assert!(seen > 0 && large <= HELD, "{large} large values at once");
            at += seen;
            count = seen * 2;
        }
        assert!(looks <= LARGE / 2, "{looks} reads");
        let hash = keys.open(b"hash", Kind::Hash).await.unwrap();
        for (n, name) in names.iter().enumerate().filter(|(n, _)| n % 3 > 0) {
            keys.set_field(&hash, name, &value(n)).await.unwrap();
        }
        let mut n = 0;
        let told = keys.some_elements(&hash, names.iter().map(Vec::as_slice), |record| {
            assert!(record == (n % 3 > 0).then(|| value(n)).as_deref(), "field {n}");
            n += 1;
            Ok(())
        });
        told.await.unwrap();
        assert_eq!(n, names.len());
    });
}

#[test]
fn what_a_hash_that_is_over_held_goes_with_it() {
    let store = store();
    let mut keys = keyspace(&store);
    block_on(async {
        for number in 0..1000_u32 {
            add_field(&mut keys, b"hash", &number.to_be_bytes()).await;
        }
        let ends = |head: Option<Head<'_>>, new: &mut Vec<u8>| {
            head.unwrap().rewrite(new, Some(NOW));
            Ok(Change::Put(()))
        };
        keys.change(b"hash", ends).await.unwrap();
        assert!(keys.find(b"hash", Kind::Hash).await.unwrap().is_some());
        keys.now = NOW + 1;
        assert!(keys.find(b"hash", Kind::Hash).await.unwrap().is_none());
    });
    assert_eq!((places(&store, Family::Key), places(&store, Family::Field)), (0, 0));
}

#[test]
fn what_is_added_to_an_empty_key_does_not_end_as_that_would_have() {
    let store = store();
    let mut keys = keyspace(&store);
    block_on(async {
        let hash = add_field(&mut keys, b"hash", b"field").await;
        let ends = |head: Option<Head<'_>>, new: &mut Vec<u8>| {
            head.unwrap().rewrite(new, Some(NOW + 5));
            Ok(Change::Put(()))
        };
        keys.change(b"hash", ends).await.unwrap();
        assert!(keys.remove_field(&hash, b"field").await.unwrap());
        add_field(&mut keys, b"hash", b"other").await;
    });
    assert_eq!(Head::parse(&record(&store, b"hash").unwrap()).unwrap().expiry, None);
}

#[test]
fn a_key_that_goes_and_comes_in_one_moment_is_another() {
    let store = store();
    let mut keys = keyspace(&store);
    block_on(async {
        let before = add_field(&mut keys, b"hash", b"field").await;
        assert!(keys.stands(&before).await.unwrap());
        assert!(keys.remove(b"hash").await.unwrap());
        assert!(!keys.stands(&before).await.unwrap());
        let after = add_field(&mut keys, b"hash", b"field").await;
        assert!(!keys.stands(&before).await.unwrap() && keys.stands(&after).await.unwrap());
    });
}

#[test]
fn a_string_that_became_a_hash_is_decided_on_anew() {
    let store = store();
    let mut keys = keyspace(&store);
    let mut calls = 0;
    let decide = |head: Option<Head<'_>>, new: &mut Vec<u8>| {
        calls += 1;
        if calls == 1 {
            meanwhile(&store, async |keys| drop(add_field(keys, b"key", b"field").await));
        }
        if head.is_some() {
            return Ok(Change::Keep(false));
        }
        Head::begin(new, Kind::String, None);
        Ok(Change::Put(true))
    };
    assert!(!block_on(keys.change(b"key", decide)).unwrap(), "reported as put, and was not");
    assert_eq!(calls, 2);
}

#[test]
fn what_took_a_hash_s_place_is_decided_on_anew() {
    let store = store();
    let mut keys = keyspace(&store);
    block_on(add_field(&mut keys, b"key", b"field"));
    let mut calls = 0;
    let decide = |head: Option<Head<'_>>, new: &mut Vec<u8>| {
        calls += 1;
        if calls == 1 {
            meanwhile(&store, async |keys| keys.set(b"key", b"theirs", None).await.unwrap());
        }
        if head.unwrap().kind == Kind::String {
            return Ok(Change::Keep(()));
        }
        Head::begin(new, Kind::String, None);
        new.extend_from_slice(b"ours");
        Ok(Change::Put(()))
    };
    block_on(keys.change(b"key", decide)).unwrap();
    assert_eq!(record(&store, b"key").unwrap(), [&[Kind::String as u8], &b"theirs"[..]].concat());
}

#[test]
fn a_score_that_comes_too_late_leaves_nothing() {
    let store = store();
    let mut keys = keyspace(&store);
    block_on(async {
        let set = keys.open(b"set", Kind::SortedSet).await.unwrap();
        let mut is_first = true;
        let decide = |_| {
            if std::mem::take(&mut is_first) {
                meanwhile(&store, async |keys| {
                    keys.rescore(&set, b"member", |_| Ok(Some(7.0))).await.unwrap();
                });
            }
            Ok(Some(5.0))
        };
        assert_eq!(keys.rescore(&set, b"member", decide).await.unwrap().was, Some(7.0));
        assert_eq!(keys.score(&set, b"member").await.unwrap(), Some(5.0));
        assert_eq!(places(&store, Family::Score), 1);
    });
}

#[test]
fn a_member_that_is_no_longer_wanted_stays() {
    let store = store();
    let mut keys = keyspace(&store);
    block_on(async {
        let set = keys.open(b"set", Kind::SortedSet).await.unwrap();
        keys.rescore(&set, b"member", |_| Ok(Some(7.0))).await.unwrap();
        // It had another score when it was found.
        assert_eq!(keys.remove_member(&set, b"member", |score| score < 5.0).await.unwrap(), None);
        assert_eq!(keys.score(&set, b"member").await.unwrap(), Some(7.0));
    });
}

#[test]
fn a_head_that_was_written_to_since_it_was_seen_stays() {
    let store = store();
    let mut keys = keyspace(&store);
    block_on(async {
        keys.open(b"hash", Kind::Hash).await.unwrap();
        let mut at = Vec::new();
        place(&mut at, Family::Key, b"hash");
        let empty = record(&store, b"hash").unwrap();
        assert!(idle(session(&mut keys.session, &keys.store).unwrap(), &at, &empty, NOW).await.unwrap());
        let doubted = record(&store, b"hash").unwrap();
        let hash = add_field(&mut keys, b"hash", b"field").await;
        assert!(keys.remove_field(&hash, b"field").await.unwrap());
        let later = NOW + IDLE_MS + 1;
        let session = session(&mut keys.session, &keys.store).unwrap();
        assert!(!idle(session, &at, &doubted, later).await.unwrap());
        assert_eq!(record(&store, b"hash").unwrap(), empty);
    });
}

#[test]
fn two_doubts_of_one_moment_differ() {
    let mut record = Vec::new();
    Head::begin(&mut record, Kind::Hash, None);
    record.extend_from_slice(b"12345678");
    let head = Head::parse(&record).unwrap();
    let [one, other] = [(); 2].map(|()| {
        let mut doubted = Vec::new();
        head.doubt(&mut doubted, NOW, 0);
        doubted
    });
    assert_ne!(one, other);
}

#[test]
fn keys_of_all_kinds_are_returned_in_order() {
    let store = store();
    let mut keys = keyspace(&store);
    let mut told = Vec::new();
    block_on(async {
        for key in [&b"b"[..], b"d"] {
            add_field(&mut keys, key, b"field").await;
        }
        for key in [b"a", b"c", b"e"] {
            keys.set(key, b"value", None).await.unwrap();
        }
        keys.walk(&mut KeyRange::all(), usize::MAX, |key, _| told.push(key[0])).await.unwrap();
    });
    assert_eq!(told, b"abcde");
}

/// Values with the lengths and beginnings of some family's records: values of 8 and 16 bytes
/// contain a past time, heads have expired, and the empty one is an index record.
fn values_like_records() -> Vec<Vec<u8>> {
    let over = 1_u64.to_le_bytes();
    let heads = (0..=3_u8).map(|kind| [&[kind | 0x80][..], &over, b"12345678"].concat());
    let mut values: Vec<_> = heads.collect();
    values.extend([vec![], over.to_vec(), 42_u64.to_le_bytes().to_vec(), [over, over].concat()]);
    values.extend([[&over[..], b"a name"].concat(), [&[0][..], &over].concat(), [&[1][..], &over].concat()]);
    values.push(vec![0x81]);
    values
}

/// A program's keys with every first byte, including the first bytes of all families, in several
/// forms; some with a stem as elements have one.
fn keys_of_a_program() -> Vec<Vec<u8>> {
    let mut keys = vec![Vec::new()];
    for first in 0..=255_u8 {
        for rest in
            [&b""[..], b"ustomer1", b"12345678", b"\0\x01k12345678field", b"\0\x01k12345678\0\0\0\0stamp"]
        {
            keys.push([&[first], rest].concat());
        }
    }
    for family in *b"kcfmsbt" {
        keys.push(vec![0xff, family]);
        keys.push([&[0xff, family][..], b"12345678"].concat());
        keys.push([&[0xfe, 0xff, family][..], b"12345678"].concat());
    }
    keys
}

/// Runs a gateway's walk over the pool, as a gateway that starts and stops does.
fn walk_as_gateways_do(store: &Store, now: u64) {
    for _ in 0..2 {
        let (mut keys, mut walk, mut rounds) = (keyspace(store), Expiry::default(), 0);
        keys.now = now;
        while rounds < 3 {
            rounds += u32::from(block_on(walk.step(&mut keys)).unwrap().census.is_some());
        }
    }
}

#[test]
fn keys_of_programs_survive_the_walks_of_gateways() {
    let store = store();
    let session = store.session().unwrap();
    let keys = keys_of_a_program();
    for value in values_like_records() {
        let pairs: Vec<_> = keys.iter().map(|key| (key, &value)).collect();
        session.put_many(&pairs).unwrap();
        let before: Vec<_> = session.range(..).map(Result::unwrap).collect();
        assert_eq!(before.len(), keys.len());
        walk_as_gateways_do(&store, 1 << 50);
        let after: Vec<_> = session.range(..).map(Result::unwrap).collect();
        assert!(before == after, "{value:?}: {} of {} are left", after.len(), before.len());
        for key in &keys {
            assert_eq!(session.get(key).unwrap().as_ref(), Some(&value), "{}", key.escape_ascii());
        }
    }
}

#[test]
fn gateways_never_show_keys_of_programs_nor_programs_those_of_gateways() {
    let store = store();
    let session = store.session().unwrap();
    let (mut string, mut hash) = (Vec::new(), Vec::new());
    Head::begin(&mut string, Kind::String, None);
    Head::begin(&mut hash, Kind::Hash, None);
    hash.extend_from_slice(b"12345678");
    let mut keys = keyspace(&store);
    for value in [string, hash, Vec::new()] {
        let own = keys_of_a_program();
        session.put_many(&own.iter().map(|key| (key, &value)).collect::<Vec<_>>()).unwrap();
        let before: Vec<_> = session.range(..).map(Result::unwrap).collect();
        let mut told = Vec::new();
        block_on(async {
            // Keys of Redis with the same bytes are different keys.
            for key in &own {
                assert!(!keys.look(key, |head| head.is_some()).await.unwrap());
                assert!(!keys.remove(key).await.unwrap());
            }
            keys.walk(&mut KeyRange::all(), usize::MAX, |key, _| told.push(key.to_vec())).await.unwrap();
            assert!(told.is_empty(), "{told:?}");
            for key in &own {
                keys.set(key, b"theirs", None).await.unwrap();
            }
            add_field(&mut keys, b"hash", b"field").await;
            keys.walk(&mut KeyRange::all(), usize::MAX, |key, _| told.push(key.to_vec())).await.unwrap();
            assert_eq!(told.len(), own.len() + 1);
        });
        assert!(before == session.range(..).map(Result::unwrap).collect::<Vec<_>>());
        let backward: Vec<_> = session.range(ScanRange::all().reversed()).map(Result::unwrap).collect();
        assert!(before.iter().rev().eq(&backward));
        assert_eq!(session.clear().unwrap(), own.len() as u64);
        told.clear();
        block_on(async {
            keys.walk(&mut KeyRange::all(), usize::MAX, |key, _| told.push(key.to_vec())).await.unwrap();
            for key in &told {
                assert!(keys.remove(key).await.unwrap());
            }
        });
        assert_eq!(told.len(), own.len() + 1);
    }
    assert!(store.session_in(KeySpace::Program).unwrap().is_empty().unwrap());
}
