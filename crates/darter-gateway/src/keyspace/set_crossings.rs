//! Interleavings of commands of two gateways on sets, while a small set becomes large.

use super::crossings::interrupt;
use super::{Family, Keyspace, Kind, Popped, in_order};
use darter::engine::{Engine, KeySpace};
use std::collections::BTreeSet;

type Names = BTreeSet<Vec<u8>>;

/// Members that fill a head but for a few bytes.
fn old() -> Names {
    (0..16).map(|name| format!("{name:060}").into_bytes()).collect()
}

/// Members that do not fit into it.
fn new() -> Names {
    (0..2).map(|name| format!("new {name:060}").into_bytes()).collect()
}

async fn add(keys: &mut Keyspace, key: &[u8], names: &Names) -> usize {
    let names = in_order(names.iter().map(Vec::as_slice));
    keys.add_members(key, &names, true).await.unwrap().unwrap()
}

async fn remove(keys: &mut Keyspace, key: &[u8], names: &Names) -> usize {
    let names = in_order(names.iter().map(Vec::as_slice));
    keys.remove_members(key, &names, true).await.unwrap().unwrap()
}

async fn members(keys: &mut Keyspace, key: &[u8]) -> Names {
    let mut names = Names::new();
    if let Some(set) = keys.find(key, Kind::Set).await.unwrap() {
        let visit = |name: &[u8], _: &[u8]| {
            names.insert(name.to_vec());
        };
        keys.walk_elements(&mut set.elements(), usize::MAX, visit).await.unwrap();
    }
    names
}

async fn prepare(keys: &mut Keyspace, key: &[u8]) {
    assert_eq!(add(keys, key, &old()).await, 16);
    let set = keys.find(key, Kind::Set).await.unwrap().unwrap();
    assert!(set.packed().is_some());
}

async fn convert(keys: &mut Keyspace, key: &[u8]) -> usize {
    add(keys, key, &new()).await
}

/// Removes the set. Nothing else was left, of any attempt to make it large.
async fn remove_all(keys: &mut Keyspace, key: &[u8]) {
    assert!(keys.remove(key).await.unwrap());
    let session = keys.store.session_in(KeySpace::Gateway).unwrap();
    for family in [Family::Field, Family::Building, Family::Key] {
        assert_eq!(session.prefix([family as u8]).count(), 0, "{family:?}");
    }
}

async fn is_large(keys: &mut Keyspace, key: &[u8]) -> bool {
    keys.find(key, Kind::Set).await.unwrap().is_some_and(|set| set.packed().is_none())
}

#[test]
fn a_member_added_while_a_set_becomes_large_is_kept() {
    let one: Names = [b"one".to_vec()].into();
    let add_one = async |keys: &mut Keyspace, key: &[u8]| add(keys, key, &one).await;
    let judge = async |keys: &mut Keyspace, key: &[u8], converted, added| {
        assert_eq!((converted, added), (2, 1));
        assert!(is_large(keys, key).await);
        assert_eq!(members(keys, key).await, &(&old() | &new()) | &one);
        remove_all(keys, key).await;
    };
    interrupt(prepare, convert, add_one, judge);
    let judge = async |keys: &mut Keyspace, key: &[u8], added, converted| {
        judge(keys, key, converted, added).await;
    };
    interrupt(prepare, add_one, convert, judge);
}

#[test]
fn two_clients_that_make_a_set_large_add_each_member_once() {
    let judge = async |keys: &mut Keyspace, key: &[u8], one, other| {
        assert_eq!(one + other, 2);
        assert_eq!(members(keys, key).await, &old() | &new());
        remove_all(keys, key).await;
    };
    interrupt(prepare, convert, convert, judge);
}

#[test]
fn a_member_removed_while_a_set_becomes_large_is_gone() {
    let some: Names = old().into_iter().take(3).collect();
    let remove_some = async |keys: &mut Keyspace, key: &[u8]| remove(keys, key, &some).await;
    let judge = async |keys: &mut Keyspace, key: &[u8], converted, removed| {
        assert_eq!((converted, removed), (2, 3));
        assert_eq!(members(keys, key).await, &(&old() - &some) | &new());
    };
    interrupt(prepare, convert, remove_some, judge);
    let judge = async |keys: &mut Keyspace, key: &[u8], removed, converted| {
        judge(keys, key, converted, removed).await;
    };
    interrupt(prepare, remove_some, convert, judge);
}

#[test]
fn a_member_popped_while_a_set_becomes_large_is_gone() {
    let pop = async |keys: &mut Keyspace, key: &[u8]| match keys
        .pop_small(key, |packed| packed.iter().take(2).map(<[u8]>::to_vec).collect())
        .await
    {
        Ok(Popped::Done(names)) => names.into_iter().collect(),
        Ok(Popped::Large(_)) => Names::new(),
        Err(fault) => panic!("{fault:?}"),
    };
    let judge = async |keys: &mut Keyspace, key: &[u8], converted: usize, popped: Names| {
        assert_eq!(converted, 2);
        assert_eq!(members(keys, key).await, &(&old() | &new()) - &popped);
    };
    interrupt(prepare, convert, pop, judge);
}

#[test]
fn a_set_removed_while_it_becomes_large_is_removed_whole() {
    let remove = async |keys: &mut Keyspace, key: &[u8]| keys.remove(key).await.unwrap();
    let judge = async |keys: &mut Keyspace, key: &[u8], converted: usize, removed: bool| {
        assert!(removed && converted == 2);
        let left = members(keys, key).await;
        assert!(left.is_empty() || left == new(), "{} members", left.len());
    };
    interrupt(prepare, convert, remove, judge);
}
