//! Interleavings of commands of two gateways on a hash, a set or a sorted set, while it becomes large.

use super::crossings::interrupt;
use super::{Family, Keyspace, Kind, Taken};
use darter::engine::{Engine, KeySpace};
use std::collections::BTreeMap;

/// Names with records.
type Elements = BTreeMap<Vec<u8>, Vec<u8>>;

const KINDS: [Kind; 3] = [Kind::Hash, Kind::Set, Kind::SortedSet];

/// Elements of a key of some type, which are named and numbered.
fn elements(kind: Kind, names: impl Iterator<Item = (String, u32)>) -> Elements {
    names
        .map(|(name, number)| {
            let record = match kind {
                Kind::Hash => number.to_string().into_bytes(),
                Kind::SortedSet => f64::from(number).to_le_bytes().to_vec(),
                _ => Vec::new(),
            };
            (name.into_bytes(), record)
        })
        .collect()
}

/// Elements that fill a head but for a few bytes.
fn old(kind: Kind) -> Elements {
    elements(kind, (0..12).map(|number| (format!("{number:066}"), number)))
}

/// Elements that do not fit into it.
fn new(kind: Kind) -> Elements {
    elements(kind, (20..23).map(|number| (format!("new {number:066}"), number)))
}

/// Returns the elements of both.
fn union(one: Elements, other: Elements) -> Elements {
    one.into_iter().chain(other).collect()
}

/// Removes the elements of `other` from `one`.
fn difference(mut one: Elements, other: &Elements) -> Elements {
    one.retain(|name, _| !other.contains_key(name));
    one
}

async fn add(keys: &mut Keyspace, key: (&[u8], Kind), added: &Elements) -> usize {
    let names: Vec<&[u8]> = added.keys().map(Vec::as_slice).collect();
    let mut set = |at: usize, old: Option<&[u8]>, new: &mut Vec<u8>| {
        new.extend_from_slice(&added[names[at]]);
        Ok(old != Some(&new[..]))
    };
    keys.add_elements(key, &names, true, &mut set).await.unwrap().unwrap().added
}

async fn remove(keys: &mut Keyspace, key: (&[u8], Kind), removed: &Elements) -> usize {
    let names: Vec<&[u8]> = removed.keys().map(Vec::as_slice).collect();
    keys.remove_elements(key, &names, true).await.unwrap().unwrap()
}

/// Returns all elements of a key; of a sorted set, also as its ranges show them.
async fn all(keys: &mut Keyspace, (key, kind): (&[u8], Kind)) -> Elements {
    let mut all = Elements::new();
    let Some(found) = keys.find(key, kind).await.unwrap() else { return all };
    let visit = |name: &[u8], record: &[u8]| {
        // Without the stamp of a large sorted set.
        let record = if kind == Kind::SortedSet { &record[..8] } else { record };
        all.insert(name.to_vec(), record.to_vec());
    };
    keys.walk_elements(&mut found.elements(), usize::MAX, visit).await.unwrap();
    if kind == Kind::SortedSet {
        let (mut ranks, mut count) = (found.all_ranks(false, usize::MAX), 0);
        while let Some(member) = keys.next_member(&mut ranks).await.unwrap() {
            assert_eq!(all[&member.name], member.score.to_le_bytes());
            count += 1;
        }
        assert_eq!(count, all.len());
    }
    all
}

async fn prepare(keys: &mut Keyspace, key: (&[u8], Kind)) {
    assert_eq!(add(keys, key, &old(key.1)).await, 12);
    assert!(!is_large(keys, key).await);
}

async fn convert(keys: &mut Keyspace, key: (&[u8], Kind)) -> usize {
    add(keys, key, &new(key.1)).await
}

/// Removes the key. Nothing else was left, of any attempt to make it large.
async fn remove_all(keys: &mut Keyspace, key: &[u8]) {
    assert!(keys.remove(key).await.unwrap());
    let session = keys.store.session_in(KeySpace::Gateway).unwrap();
    for family in [Family::Field, Family::Member, Family::Score, Family::Building, Family::Key] {
        assert_eq!(session.prefix([family as u8]).count(), 0, "{family:?}");
    }
}

async fn is_large(keys: &mut Keyspace, (key, kind): (&[u8], Kind)) -> bool {
    keys.find(key, kind).await.unwrap().is_some_and(|found| found.packed().is_none())
}

/// Interrupts a command on a key of each type by another one; one of them makes the key large.
#[allow(clippy::needless_pass_by_value)] // closures are written where they are passed
fn interrupt_each<A, B>(
    one: impl AsyncFn(&mut Keyspace, (&[u8], Kind)) -> A,
    other: impl AsyncFn(&mut Keyspace, (&[u8], Kind)) -> B,
    judge: impl AsyncFn(&mut Keyspace, (&[u8], Kind), A, B),
) {
    for kind in KINDS {
        let prepare = async |keys: &mut Keyspace, key: &[u8]| prepare(keys, (key, kind)).await;
        let one = async |keys: &mut Keyspace, key: &[u8]| one(keys, (key, kind)).await;
        let other = async |keys: &mut Keyspace, key: &[u8]| other(keys, (key, kind)).await;
        interrupt(prepare, one, other, async |keys: &mut Keyspace, key: &[u8], a, b| {
            judge(keys, (key, kind), a, b).await;
        });
    }
}

#[test]
fn an_element_added_while_a_key_becomes_large_is_kept() {
    let one = |kind| elements(kind, std::iter::once(("one".to_owned(), 1)));
    let add_one = async |keys: &mut Keyspace, key: (&[u8], Kind)| add(keys, key, &one(key.1)).await;
    let judge = async |keys: &mut Keyspace, key: (&[u8], Kind), converted, added| {
        assert_eq!((converted, added), (3, 1));
        assert!(is_large(keys, key).await);
        assert_eq!(all(keys, key).await, union(union(old(key.1), new(key.1)), one(key.1)));
        remove_all(keys, key.0).await;
    };
    interrupt_each(convert, add_one, judge);
    interrupt_each(add_one, convert, async |keys: &mut Keyspace, key: (&[u8], Kind), added, converted| {
        judge(keys, key, converted, added).await;
    });
}

#[test]
fn a_record_changed_while_its_key_becomes_large_stays_changed() {
    let changed = |kind| elements(kind, (0..2).map(|number| (format!("{number:066}"), 90 + number)));
    let change = async |keys: &mut Keyspace, key: (&[u8], Kind)| add(keys, key, &changed(key.1)).await;
    interrupt_each(convert, change, async |keys: &mut Keyspace, key: (&[u8], Kind), converted, added| {
        assert_eq!((converted, added), (3, 0));
        assert_eq!(all(keys, key).await, union(union(old(key.1), new(key.1)), changed(key.1)));
    });
}

#[test]
fn two_clients_that_make_a_key_large_add_each_element_once() {
    interrupt_each(convert, convert, async |keys: &mut Keyspace, key: (&[u8], Kind), one, other| {
        assert_eq!(one + other, 3);
        assert_eq!(all(keys, key).await, union(old(key.1), new(key.1)));
        remove_all(keys, key.0).await;
    });
}

#[test]
fn an_element_removed_while_a_key_becomes_large_is_gone() {
    let some = |kind| old(kind).into_iter().take(2).collect::<Elements>();
    let remove = async |keys: &mut Keyspace, key: (&[u8], Kind)| remove(keys, key, &some(key.1)).await;
    let judge = async |keys: &mut Keyspace, key: (&[u8], Kind), converted, removed| {
        assert_eq!((converted, removed), (3, 2));
        assert_eq!(all(keys, key).await, union(difference(old(key.1), &some(key.1)), new(key.1)));
    };
    interrupt_each(convert, remove, judge);
    interrupt_each(remove, convert, async |keys: &mut Keyspace, key: (&[u8], Kind), removed, converted| {
        judge(keys, key, converted, removed).await;
    });
}

#[test]
fn an_element_taken_while_a_key_becomes_large_is_gone() {
    let take = async |keys: &mut Keyspace, key: (&[u8], Kind)| match keys
        .take_from_small(key, |packed| {
            packed.iter().take(2).map(|(name, record)| (name.to_vec(), record.to_vec())).collect()
        })
        .await
    {
        Ok(Taken::Done(taken)) => taken.into_iter().collect(),
        Ok(Taken::Large(_)) => Elements::new(),
        Err(fault) => panic!("{fault:?}"),
    };
    interrupt_each(convert, take, async |keys: &mut Keyspace, key: (&[u8], Kind), converted, taken| {
        assert_eq!(converted, 3);
        assert_eq!(all(keys, key).await, difference(union(old(key.1), new(key.1)), &taken));
    });
}

#[test]
fn a_key_removed_while_it_becomes_large_is_removed_whole() {
    let remove = async |keys: &mut Keyspace, key: (&[u8], Kind)| keys.remove(key.0).await.unwrap();
    interrupt_each(convert, remove, async |keys: &mut Keyspace, key: (&[u8], Kind), converted, removed| {
        assert!(removed && converted == 3);
        let left = all(keys, key).await;
        assert!(left.is_empty() || left == new(key.1), "{} elements", left.len());
    });
}

#[test]
fn a_reader_sees_a_key_that_becomes_large_before_or_after() {
    let read = async |keys: &mut Keyspace, key: (&[u8], Kind)| loop {
        let Some(found) = keys.find(key.0, key.1).await.unwrap() else { panic!("it is there") };
        let mut count = 0;
        keys.walk_elements(&mut found.elements(), usize::MAX, |_, _| count += 1).await.unwrap();
        if keys.stands(&found).await.unwrap() {
            return count;
        }
    };
    interrupt_each(convert, read, async |_: &mut Keyspace, _: (&[u8], Kind), converted, count| {
        assert!(converted == 3 && (count == 12 || count == 15), "{count} elements");
    });
}
