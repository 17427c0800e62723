//! Interleavings of commands of two gateways on a large hash, a field of which gets the first expiry time.

use super::crossings::interrupt;
use super::timed_record::Field;
use super::{Family, Keyspace, Kind};
use darter::engine::{Engine, KeySpace};
use std::collections::BTreeMap;

/// Fields that do not fit into a head.
const FIELDS: usize = 40;

fn name(number: usize) -> Vec<u8> {
    format!("field {number:030}").into_bytes()
}

/// Sets a field.
async fn set(keys: &mut Keyspace, key: &[u8], name: &[u8], value: &[u8]) {
    let mut set = |_: usize, _: Option<&[u8]>, new: &mut Vec<u8>| {
        new.extend_from_slice(value);
        Ok(true)
    };
    keys.add_elements((key, Kind::Hash), &[name], true, &mut set).await.unwrap().unwrap();
}

async fn prepare(keys: &mut Keyspace, key: &[u8]) {
    for number in 0..FIELDS {
        set(keys, key, &name(number), b"old").await;
    }
}

/// Gives a field an end, as `HEXPIRE` does. Returns whether it exists.
async fn expire(keys: &mut Keyspace, key: &[u8], number: usize) -> bool {
    let (end, now) = (Some(keys.now + 1000), keys.now);
    let mut set = |_: usize, old: Option<&[u8]>, new: &mut Vec<u8>| {
        let field = old.and_then(|record| Field::living(Kind::TimedHash, record, now));
        let Some(field) = field else { return Ok(false) };
        Field { end, ..field }.write(new);
        Ok(true)
    };
    let tally = keys.change_fields(key, &[&name(number)], true, &mut set).await.unwrap().unwrap();
    tally.changed == 1
}

/// Returns the fields with their values, and whether they have ends.
async fn all(keys: &mut Keyspace, key: &[u8]) -> BTreeMap<Vec<u8>, (Vec<u8>, bool)> {
    let mut all = BTreeMap::new();
    let Some(hash) = keys.find(key, Kind::Hash).await.unwrap() else { return all };
    let visit = |name: &[u8], field: Field<'_>| {
        all.insert(name.to_vec(), (field.value.to_vec(), field.end.is_some()));
    };
    keys.walk_fields(&hash, &mut hash.elements(), usize::MAX, visit).await.unwrap();
    all
}

/// Removes the key. Nothing else was left.
async fn remove_all(keys: &mut Keyspace, key: &[u8]) {
    assert!(keys.remove(key).await.unwrap());
    let session = keys.store.session_in(KeySpace::Gateway).unwrap();
    for family in [Family::Field, Family::Building, Family::Key] {
        assert_eq!(session.prefix([family as u8]).count(), 0, "{family:?}");
    }
}

#[test]
fn a_field_that_is_set_meanwhile_is_kept() {
    for (other, count) in [(name(FIELDS), FIELDS + 1), (name(7), FIELDS)] {
        interrupt(
            prepare,
            async |keys: &mut Keyspace, key: &[u8]| expire(keys, key, 3).await,
            async |keys: &mut Keyspace, key: &[u8]| set(keys, key, &other, b"new").await,
            async |keys: &mut Keyspace, key: &[u8], is_set, ()| {
                assert!(is_set);
                let found = all(keys, key).await;
                assert_eq!(found.len(), count);
                assert_eq!(found[&name(3)], (b"old".to_vec(), true));
                assert_eq!(found[&other], (b"new".to_vec(), false));
                remove_all(keys, key).await;
            },
        );
    }
}

#[test]
fn two_gateways_may_set_times_at_once() {
    interrupt(
        prepare,
        async |keys: &mut Keyspace, key: &[u8]| expire(keys, key, 3).await,
        async |keys: &mut Keyspace, key: &[u8]| expire(keys, key, 4).await,
        async |keys: &mut Keyspace, key: &[u8], one, other| {
            assert!(one && other);
            let found = all(keys, key).await;
            let with_ends = found.values().filter(|(_, has_end)| *has_end).count();
            assert_eq!((found.len(), with_ends), (FIELDS, 2));
            remove_all(keys, key).await;
        },
    );
}

#[test]
fn a_hash_that_is_removed_meanwhile_does_not_come_back() {
    interrupt(
        prepare,
        async |keys: &mut Keyspace, key: &[u8]| expire(keys, key, 3).await,
        async |keys: &mut Keyspace, key: &[u8]| keys.remove(key).await.unwrap(),
        async |keys: &mut Keyspace, key: &[u8], _, is_removed| {
            assert!(is_removed);
            assert_eq!(all(keys, key).await, BTreeMap::new());
        },
    );
}
