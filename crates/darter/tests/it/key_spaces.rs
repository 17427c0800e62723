//! Keys of programs and records of gateways in one store: neither reaches the other.

use crate::adversary::{Model, assert_holds};
use crate::options;
use darter::engine::{Engine, KeySpace};
use darter::{
    AsyncSession, Error, IndexError, IndexKind, KEY_BYTES_MAX, ScanRange, Session, Store, block_on,
};
use proptest::prelude::*;
use std::ops::Bound;

fn store() -> Store {
    options().maintenance(false).open("mem:64M").unwrap()
}

/// The records of three databases of gateways, which are all in the space of gateways.
#[test]
fn each_database_holds_the_same_keys_by_itself() {
    let store = store();
    let numbers = [0, 1, 255];
    let sessions = numbers.map(|number| store.session_in(KeySpace::Database(number)).unwrap());
    let mut models = [Model::new(), Model::new(), Model::new()];
    for key in every_first_byte() {
        for ((number, session), model) in numbers.iter().zip(&sessions).zip(&mut models) {
            session.put(&key, [*number]).unwrap();
            model.insert(key.clone(), vec![*number]);
        }
    }
    let [program, gateway] = spaces(&store);
    program.put("pear", "of a program").unwrap();
    gateway.put("pear", "of a gateway").unwrap();
    for (session, model) in sessions.iter().zip(&models) {
        assert_holds(session, model);
        assert_eq!(session.last().unwrap().unwrap().0, [0xff, 0xff]);
    }
    assert_eq!(gateway.prefix("d").count(), models.iter().map(Model::len).sum::<usize>());
    assert_eq!(sessions[1].clear().unwrap(), models[1].len() as u64);
    models[1].clear();
    for (session, model) in sessions.iter().zip(&models) {
        assert_holds(session, model);
    }
}

fn spaces(store: &Store) -> [Session; 2] {
    [KeySpace::Program, KeySpace::Gateway].map(|space| store.session_in(space).unwrap())
}

/// Keys of every first byte, of both lengths, and the empty key.
fn every_first_byte() -> Vec<Vec<u8>> {
    let pair = |first: u8| [vec![first], vec![first, first], vec![first, b'k']];
    let mut keys: Vec<_> = (0..=255).flat_map(pair).collect();
    keys.push(Vec::new());
    keys.sort();
    keys.dedup();
    keys
}

#[test]
fn each_space_holds_the_same_keys_by_itself() {
    let store = store();
    let sessions = spaces(&store);
    let mut models = [Model::new(), Model::new()];
    for (at, key) in every_first_byte().into_iter().enumerate() {
        for (which, session) in sessions.iter().enumerate() {
            let value = vec![which as u8, at as u8];
            session.put(&key, &value).unwrap();
            models[which].insert(key.clone(), value);
        }
    }
    for (session, model) in sessions.iter().zip(&models) {
        assert_holds(session, model);
        assert_eq!(session.first().unwrap().unwrap().0, b"");
        assert_eq!(session.last().unwrap().unwrap().0, [0xff, 0xff]);
    }
    for (which, session) in sessions.iter().enumerate() {
        let removed = session.clear().unwrap();
        assert_eq!(removed, models[which].len() as u64);
        models[which].clear();
        for (session, model) in sessions.iter().zip(&models) {
            assert_holds(session, model);
        }
        assert!(session.is_empty().unwrap() && session.first().unwrap().is_none());
    }
}

/// Whatever a program passes for a key or a bound, it reaches no place of a gateway.
#[test]
fn no_key_of_a_program_has_a_place_of_a_gateway() {
    let store = store();
    let [program, gateway] = spaces(&store);
    let keys = every_first_byte();
    gateway.put_many(&keys.iter().map(|key| (key, b"theirs")).collect::<Vec<_>>()).unwrap();
    for key in &keys {
        assert_eq!(program.get(key).unwrap(), None);
        assert!(!program.discard(key).unwrap() && program.replace(key, b"x").unwrap().is_none());
        assert!(!program.remove_if(key, |_| true).unwrap());
        assert_eq!(program.remove_range(&key[..]..).unwrap(), 0);
        assert_eq!(program.prefix(key).count() + program.range(&key[..]..).rev().count(), 0);
    }
    assert_eq!(program.get_many(&keys).unwrap(), vec![None; keys.len()]);
    let session: AsyncSession = store.async_session().unwrap();
    assert_eq!(block_on(session.remove_many(&keys)).unwrap(), 0);
    assert_eq!(block_on(session.clear()).unwrap(), 0);
    assert_eq!(gateway.range(..).count(), keys.len());
}

#[test]
fn every_order_of_keys_is_that_of_their_bytes() {
    let store = store();
    let [program, _] = spaces(&store);
    let keys = every_first_byte();
    for key in &keys {
        program.put(key, key).unwrap();
    }
    // Every bound of every kind, in both directions, against the sorted list.
    let bounds: Vec<_> = keys.iter().filter(|key| key.first() >= Some(&0xfc) || key.is_empty()).collect();
    for &from in &bounds {
        for &to in &bounds {
            for kind in 0..9 {
                let bound = |kind: u32, key: &Vec<u8>| match kind {
                    0 => Bound::Included(key.clone()),
                    1 => Bound::Excluded(key.clone()),
                    _ => Bound::Unbounded,
                };
                let range =
                    ScanRange { from: bound(kind % 3, from), to: bound(kind / 3, to), reverse: false };
                let expected: Vec<_> = keys.iter().filter(|key| range.contains(key)).cloned().collect();
                let pairs = program.scan_chunk(&range, 1000).unwrap();
                assert_eq!(pairs.into_iter().map(|(key, _)| key).collect::<Vec<_>>(), expected, "{range:?}");
                let mut back = Vec::new();
                program
                    .scan_with(&range.clone().reversed(), 1000, |key, value| {
                        assert_eq!(key, value);
                        back.push(key.to_vec());
                    })
                    .unwrap();
                back.reverse();
                assert_eq!(back, expected, "{range:?}");
            }
        }
    }
}

#[test]
fn a_key_is_too_long_only_above_its_own_limit() {
    let store = options().maintenance(false).open("mem:128M").unwrap();
    for (space, first, most) in [
        (KeySpace::Program, 0xfd, KEY_BYTES_MAX),
        (KeySpace::Program, 0xfe, KEY_BYTES_MAX - 1),
        (KeySpace::Program, 0xff, KEY_BYTES_MAX - 1),
        (KeySpace::Gateway, b'k', KEY_BYTES_MAX - 1),
        (KeySpace::Database(7), b'k', KEY_BYTES_MAX - 3),
    ] {
        let session = store.session_in(space).unwrap();
        let long = vec![first; most];
        session.put(&long, b"v").unwrap();
        assert_eq!(session.get(&long).unwrap().unwrap(), b"v");
        let longer = [&long[..], b"x"].concat();
        let is_refused = |done: Result<(), Error>| match done {
            Err(Error::Index(IndexError::KeyTooLong { bytes, max })) => (bytes, max) == (most + 1, most),
            other => panic!("{other:?}"),
        };
        assert!(is_refused(session.put(&longer, b"v").map(drop)));
        assert!(is_refused(session.get(&longer).map(drop)));
        assert!(is_refused(session.discard(&longer).map(drop)));
        assert!(is_refused(session.get_many(&[&longer]).map(drop)));
        assert!(is_refused(session.put_many(&[(&longer, "v")]).map(drop)));
        assert!(is_refused(session.update(&longer, |_| darter::Change::Remove).map(drop)));
        assert!(session.discard(&long).unwrap());
        assert!(is_refused(session.bulk_load([(longer, b"v")]).map(drop)));
        assert_eq!(session.bulk_load([(long.clone(), b"v")]).unwrap(), 1);
        assert!(session.discard(&long).unwrap());
    }
}

/// Counts the round trips of gets, puts, scans and deletes of keys as gateways have them, after a
/// load of them, in one space.
fn round_trips(kind: IndexKind, space: KeySpace) -> [u64; 4] {
    let options =
        Store::options().maintenance(false).auto_adjust(false).direct(false).index(kind).secret([1, 2, 3, 4]);
    let store = options.open("mem:64M").unwrap();
    let session = store.session_in(space).unwrap();
    let key =
        |family: u8, n: u32| [&[family][..], format!("user:{:06}", n * 7919 % 100_000).as_bytes()].concat();
    for n in 0..3000 {
        for family in *b"kfms" {
            session.put(key(family, n), b"value").unwrap();
        }
    }
    store.adjust().unwrap();
    let mut costs = [0; 4];
    for (which, cost) in costs.iter_mut().enumerate() {
        let before = session.counters().total().round_trips;
        for n in 0..1000 {
            match which {
                0 => assert!(session.get(key(b'k', n)).unwrap().is_some()),
                1 => drop(session.put(key(b'f', n), b"other").unwrap()),
                2 => assert_eq!(session.range(key(b'm', n)..).limit(10).count(), 10),
                _ => assert!(session.discard(key(b's', n)).unwrap()),
            }
        }
        *cost = session.counters().total().round_trips - before;
    }
    costs
}

/// The byte in front of a record of a gateway costs a scan one node more, and other operations none:
/// at most a twentieth, by other hashes.
#[test]
fn the_space_of_gateways_costs_a_scan_at_most_one_round_trip_more() {
    for kind in IndexKind::ALL {
        let [before, after] = [KeySpace::Program, KeySpace::Gateway].map(|space| round_trips(kind, space));
        println!("{kind}: round trips of 1,000 gets, puts, scans of 10, deletes: {before:?}, {after:?}");
        for (which, (before, after)) in before.iter().zip(&after).enumerate() {
            let node_more = if which == 2 { 1000 } else { 0 };
            let is_as_much = *after * 20 <= (before + node_more) * 21;
            assert!(*before >= 1000 && is_as_much, "{kind}: {before} and {after}");
        }
    }
}

#[derive(Clone, Debug)]
enum SpaceStep {
    PutMany(Vec<Vec<u8>>),
    DeleteMany(Vec<Vec<u8>>),
    DeleteRange(Bound<Vec<u8>>, Bound<Vec<u8>>),
    DeleteIf(Vec<u8>, bool),
    Modify(Vec<u8>),
    Insert(Vec<u8>),
    Ends,
}

/// A key of few bytes, most of them near FE and FF.
fn near() -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(prop::sample::select(vec![0_u8, b'k', 0xfc, 0xfd, 0xfe, 0xff]), 0..4)
}

fn bound() -> impl Strategy<Value = Bound<Vec<u8>>> {
    prop_oneof![near().prop_map(Bound::Included), near().prop_map(Bound::Excluded), Just(Bound::Unbounded)]
}

fn step() -> impl Strategy<Value = SpaceStep> {
    prop_oneof![
        4 => prop::collection::vec(near(), 0..20).prop_map(SpaceStep::PutMany),
        2 => prop::collection::vec(near(), 0..20).prop_map(SpaceStep::DeleteMany),
        1 => (bound(), bound()).prop_map(|(from, to)| SpaceStep::DeleteRange(from, to)),
        2 => (near(), any::<bool>()).prop_map(|(key, is_wanted)| SpaceStep::DeleteIf(key, is_wanted)),
        2 => near().prop_map(SpaceStep::Modify),
        2 => near().prop_map(SpaceStep::Insert),
        1 => Just(SpaceStep::Ends),
    ]
}

fn take(session: &Session, model: &mut Model, step: SpaceStep) {
    match step {
        SpaceStep::PutMany(keys) => {
            session.put_many(&keys.iter().map(|key| (key, b"many")).collect::<Vec<_>>()).unwrap();
            model.extend(keys.into_iter().map(|key| (key, b"many".to_vec())));
        }
        SpaceStep::DeleteMany(keys) => {
            // As a program does it that has no such call on its thread: by ranges of one key.
            let removed: u64 = keys.iter().map(|key| session.remove_range(key..=key).unwrap()).sum();
            let was = model.len();
            for key in &keys {
                model.remove(key);
            }
            assert_eq!(removed, (was - model.len()) as u64);
        }
        SpaceStep::DeleteRange(from, to) => {
            let range = ScanRange { from, to, reverse: false };
            let was = model.len();
            model.retain(|key, _| !range.contains(key));
            assert_eq!(session.remove_range(range).unwrap(), (was - model.len()) as u64);
        }
        SpaceStep::DeleteIf(key, is_wanted) => {
            let was_there = model.contains_key(&key);
            assert_eq!(session.remove_if(&key, |_| is_wanted).unwrap(), was_there && is_wanted);
            if is_wanted {
                model.remove(&key);
            }
        }
        SpaceStep::Modify(key) => {
            session.update(&key, |old| darter::Change::Put(old.map_or(vec![0], <[u8]>::to_vec))).unwrap();
            model.entry(key).or_insert_with(|| vec![0]);
        }
        SpaceStep::Insert(key) => {
            assert_eq!(session.insert(&key, b"new").unwrap(), model.insert(key, b"new".to_vec()));
        }
        SpaceStep::Ends => {
            let owned = |(key, value): (&Vec<u8>, &Vec<u8>)| (key.clone(), value.clone());
            assert_eq!(session.first().unwrap(), model.first_key_value().map(owned));
            assert_eq!(session.last().unwrap(), model.last_key_value().map(owned));
            assert_eq!(session.is_empty().unwrap(), model.is_empty());
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    /// Two sessions on the same keys, one in each space, never see each other's changes.
    #[test]
    fn each_space_agrees_with_its_own_model(steps in prop::collection::vec((any::<bool>(), step()), 1..60)) {
        let store = store();
        let sessions = spaces(&store);
        let mut models = [Model::new(), Model::new()];
        for (which, step) in steps {
            take(&sessions[usize::from(which)], &mut models[usize::from(which)], step);
        }
        for (session, model) in sessions.iter().zip(&models) {
            assert_holds(session, model);
        }
        let whole = store.session_in(KeySpace::Whole).unwrap().range(..).count();
        prop_assert_eq!(whole, models[0].len() + models[1].len());
    }
}
