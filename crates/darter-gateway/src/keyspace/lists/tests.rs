//! Interleavings of commands of two gateways on one list: no element is lost, and none is there
//! twice.

use super::{Edit, Edited, Elements, End, InPlace};
use crate::keyspace::Keyspace;
use crate::keyspace::crossings::{beside, cross, interrupt, within};
use crate::keyspace::transfer::{Destination, Transferred};

/// A chunk has up to four of these elements.
const BYTES: usize = 2000;

fn element(number: usize) -> Vec<u8> {
    let mut element = vec![b'.'; BYTES];
    element[..2].copy_from_slice(format!("{number:02}").as_bytes());
    element
}

fn number(element: &[u8]) -> usize {
    String::from_utf8_lossy(&element[..2]).parse().unwrap()
}

async fn push(keys: &mut Keyspace, key: &[u8], end: End, number: usize) -> usize {
    let element = element(number);
    match keys.push_in_place(key, end, &[&element], false).await.unwrap() {
        InPlace::Done(length) => length,
        InPlace::Several => {
            let body = async |keys: &mut Keyspace| {
                let mut list = keys.open_list(key).await?;
                keys.push_to_list(&mut list, end, &[&element]).await?;
                keys.close_list(list).await
            };
            within(keys, body).await;
            keys.list_length(key).await.unwrap()
        }
    }
}

async fn pop(keys: &mut Keyspace, key: &[u8], end: End) -> Option<usize> {
    let mut popped = Vec::new();
    if let InPlace::Several = keys.pop_in_place(key, end, 1, &mut popped).await.unwrap() {
        let body = async |keys: &mut Keyspace| {
            let (mut list, mut popped) = (keys.open_list(key).await?, None);
            keys.pop_from_list(&mut list, end, 1, |element| popped = Some(element.to_vec())).await?;
            keys.close_list(list).await?;
            Ok(popped)
        };
        popped = within(keys, body).await.into_iter().collect();
    }
    popped.first().map(|element| number(element))
}

/// Returns all elements, as `LRANGE` reads them.
async fn all(keys: &mut Keyspace, key: &[u8]) -> Vec<usize> {
    loop {
        let Some(mut walk) = keys.walk_part(key, 0, -1).await.unwrap() else { return Vec::new() };
        let mut found = Vec::new();
        while let Some(piece) = keys.next_piece(&mut walk).await.unwrap() {
            found.extend(piece.elements(End::Left).map(number));
        }
        if keys.walk_stands(&walk).await.unwrap() {
            let length = keys.list_length(key).await.unwrap();
            assert!(found.len() == length || walk.length != length, "{found:?} {length}");
            return found;
        }
    }
}

/// Returns a function that makes a list of the elements with numbers from 0 on.
fn elements(count: usize) -> impl AsyncFn(&mut Keyspace, &[u8]) {
    async move |keys: &mut Keyspace, key: &[u8]| {
        for number in 0..count {
            assert_eq!(push(keys, key, End::Right, number).await, number + 1);
        }
    }
}

/// Inserts a copy of an element next to it.
#[derive(Clone)]
struct Twice(usize);

impl Edit for Twice {
    fn apply<'e>(&mut self, elements: &mut Elements<'e>) -> Edited
    where
        Self: 'e,
    {
        let at = elements.iter().position(|element| number(element) == self.0);
        if let Some(at) = at {
            let copy = elements[at];
            elements.insert(at, copy);
        }
        Edited { is_changed: at.is_some(), goes_on: at.is_none() }
    }
}

#[test]
fn pushes_at_one_end_are_all_there() {
    // The last chunk has no room, or room for one.
    for before in [5, 6, 8] {
        let one = async |keys: &mut Keyspace, key: &[u8]| push(keys, key, End::Right, 50).await;
        let other = async |keys: &mut Keyspace, key: &[u8]| push(keys, key, End::Right, 60).await;
        cross(elements(before), one, other, async |keys: &mut Keyspace, key: &[u8], one, other| {
            let mut found = all(keys, key).await;
            let mut ends = found.split_off(before);
            ends.sort_unstable();
            assert!(found.into_iter().eq(0..before) && ends == [50, 60], "{ends:?}");
            assert!([one, other].iter().all(|length| (before + 1..=before + 2).contains(length)));
        });
    }
}

#[test]
fn pops_get_different_elements() {
    for (count, ends) in [
        (5, [End::Left, End::Left]),
        (5, [End::Left, End::Right]),
        (6, [End::Right, End::Right]),
        (1, [End::Left, End::Right]),
        (2, [End::Left, End::Right]),
    ] {
        // Twice each, so that chunks become empty.
        let twice = async |keys: &mut Keyspace, key: &[u8], end| {
            [pop(keys, key, end).await, pop(keys, key, end).await]
        };
        let one = async |keys: &mut Keyspace, key: &[u8]| twice(keys, key, ends[0]).await;
        let other = async |keys: &mut Keyspace, key: &[u8]| twice(keys, key, ends[1]).await;
        cross(
            elements(count),
            one,
            other,
            async |keys: &mut Keyspace, key: &[u8], one: [_; 2], other: [_; 2]| {
                let mut found = all(keys, key).await;
                found.extend(one.into_iter().chain(other).flatten());
                found.sort_unstable();
                assert!(found.iter().copied().eq(0..count), "{found:?} {one:?} {other:?}");
            },
        );
    }
}

#[test]
fn pushes_and_pops_at_both_ends_leave_the_others_in_order() {
    for count in [0, 1, 4, 5, 9] {
        let pops = async |keys: &mut Keyspace, key: &[u8]| {
            [pop(keys, key, End::Left).await, pop(keys, key, End::Left).await]
        };
        let pushes = async |keys: &mut Keyspace, key: &[u8]| {
            push(keys, key, End::Right, 50).await;
            push(keys, key, End::Right, 51).await;
        };
        cross(
            elements(count),
            pops,
            pushes,
            async |keys: &mut Keyspace, key: &[u8], popped: [Option<usize>; 2], ()| {
                let found: Vec<usize> = popped.into_iter().flatten().chain(all(keys, key).await).collect();
                assert!(found.into_iter().eq((0..count).chain([50, 51])));
            },
        );
    }
}

#[test]
fn an_element_pushed_during_a_removal_or_a_rename_is_there_once() {
    for count in [3, 5] {
        let add = async |keys: &mut Keyspace, key: &[u8]| push(keys, key, End::Right, 50).await;
        let remove = async |keys: &mut Keyspace, key: &[u8]| keys.remove(key).await.unwrap();
        interrupt(
            elements(count),
            add,
            remove,
            async |keys: &mut Keyspace, key: &[u8], length, removed: bool| {
                let found = all(keys, key).await;
                assert!(removed && (found.is_empty() || found == [50]), "{found:?}");
                assert!(length == count + 1 || length == 1);
            },
        );
        let rename = async |keys: &mut Keyspace, key: &[u8]| {
            within(keys, async |keys| keys.rename(key, &beside(key, "new"), Destination::Kept).await).await
        };
        interrupt(elements(count), add, rename, async |keys: &mut Keyspace, key: &[u8], _, told| {
            assert_eq!(told, Transferred::Done);
            let new = beside(key, "new");
            let found = [all(keys, &new).await, all(keys, key).await];
            assert!(found.concat().into_iter().eq((0..count).chain([50])), "{found:?}");
        });
        let take = async |keys: &mut Keyspace, key: &[u8]| pop(keys, key, End::Left).await;
        interrupt(elements(count), take, rename, async |keys: &mut Keyspace, key: &[u8], popped, told| {
            assert_eq!(told, Transferred::Done);
            let found = all(keys, &beside(key, "new")).await;
            // If the key had another name already, there was nothing to pop.
            assert!(popped.into_iter().chain(found).eq(0..count), "{popped:?}");
        });
    }
}

#[test]
fn a_walk_meets_each_element_once_while_a_chunk_is_split() {
    let insert = async |keys: &mut Keyspace, key: &[u8]| {
        within(keys, async |keys: &mut Keyspace| {
            let mut list = keys.open_list(key).await?;
            assert!(keys.edit_list(&mut list, End::Left, &mut Twice(5)).await?);
            keys.close_list(list).await
        })
        .await;
    };
    interrupt(
        elements(16),
        all,
        insert,
        async |keys: &mut Keyspace, key: &[u8], mut found: Vec<usize>, ()| {
            found.dedup();
            assert!(found.into_iter().eq(0..16));
            let mut found = all(keys, key).await;
            assert_eq!((found.len(), found[5], found[6]), (17, 5, 5));
            found.dedup();
            assert!(found.into_iter().eq(0..16));
        },
    );
}
