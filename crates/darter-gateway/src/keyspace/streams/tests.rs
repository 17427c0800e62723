//! Interleavings of commands of two gateways on one stream: no entry is lost, and none is there twice.

use super::packed::body_of;
use super::{Group, NewId, Pending, PendingEdit, StreamId, StreamWalk, Trim, TrimTo};
use crate::fault::Fault;
use crate::keyspace::Keyspace;
use crate::keyspace::crossings::{beside, cross, interrupt, within};
use crate::keyspace::lists::InPlace;
use crate::keyspace::transfer::{Destination, Transferred};

/// A record has up to four of these entries.
const BYTES: usize = 1900;

fn body() -> Vec<u8> {
    body_of([&b"f"[..], &[b'.'; BYTES]].into_iter())
}

fn id(ms: u64) -> StreamId {
    StreamId { ms, seq: 0 }
}

/// Adds an entry as `XADD` does. Returns its id.
async fn add(keys: &mut Keyspace, key: &[u8], wanted: NewId) -> StreamId {
    match keys.add_in_place(key, true, wanted, &body(), None).await.unwrap() {
        InPlace::Done(added) => added.unwrap().id,
        InPlace::Several => {
            within(keys, async |keys| {
                let mut open = keys.open_stream(key, true).await?.unwrap();
                let id = keys.add_to_stream(&mut open, wanted, &body()).await?;
                keys.close_stream(open).await?;
                Ok(id)
            })
            .await
        }
    }
}

/// Returns a function that makes a stream of the entries with the ids `1-0` and so on.
fn entries(count: u64) -> impl AsyncFn(&mut Keyspace, &[u8]) {
    async move |keys: &mut Keyspace, key: &[u8]| {
        for number in 1..=count {
            assert_eq!(add(keys, key, NewId::At(number)).await, id(number));
        }
    }
}

/// Returns the ids of all entries, as `XRANGE` reads them.
async fn all(keys: &mut Keyspace, key: &[u8]) -> Vec<StreamId> {
    loop {
        let Some(stream) = keys.stream(key).await.unwrap() else { return Vec::new() };
        let mut walk = StreamWalk::new(key, &stream, StreamId::ZERO..=StreamId::MAX, false);
        let mut found = Vec::new();
        while let Some(piece) = keys.next_entries(&mut walk).await.unwrap() {
            found.extend(piece.entries().unwrap().iter().map(|entry| entry.id));
        }
        if keys.stream_stands(&walk).await.unwrap() {
            return found;
        }
    }
}

/// Returns all ids after others have come to rest, when they are as many as the head says.
async fn settled(keys: &mut Keyspace, key: &[u8]) -> Vec<StreamId> {
    let found = all(keys, key).await;
    let length = keys.stream(key).await.unwrap().map_or(0, |stream| stream.length);
    assert_eq!(found.len() as u64, length);
    found
}

#[test]
fn entries_of_two_gateways_are_all_there() {
    // The head has room, or none.
    for before in [3, 4, 8] {
        let now = async |keys: &mut Keyspace, key: &[u8]| add(keys, key, NewId::Now(50)).await;
        cross(entries(before), now, now, async |keys: &mut Keyspace, key: &[u8], one, other| {
            let found = settled(keys, key).await;
            assert!(one != other && found.contains(&one) && found.contains(&other));
            assert!(found.is_sorted() && found.len() as u64 == before + 2, "{found:?}");
        });
    }
}

#[test]
fn deletions_and_trims_meet_additions() {
    for before in [4, 9] {
        let now = async |keys: &mut Keyspace, key: &[u8]| add(keys, key, NewId::Now(50)).await;
        let delete = async |keys: &mut Keyspace, key: &[u8]| {
            let ids = [id(1), id(before)];
            match keys.delete_in_place(key, &ids).await.unwrap() {
                InPlace::Done(deleted) => deleted,
                InPlace::Several => {
                    within(keys, async |keys: &mut Keyspace| {
                        let mut open = keys.open_stream(key, false).await?.unwrap();
                        let deleted = keys.delete_from_stream(&mut open, &ids).await?;
                        keys.close_stream(open).await?;
                        Ok(deleted)
                    })
                    .await
                }
            }
        };
        cross(entries(before), now, delete, async |keys: &mut Keyspace, key: &[u8], added, deleted| {
            let found = settled(keys, key).await;
            assert_eq!((deleted, found.len() as u64), (2, before - 1));
            assert!(found[0] == id(2) && found.contains(&added));
        });
        let trim = async |keys: &mut Keyspace, key: &[u8]| {
            let trim = Trim { to: TrimTo::Id(id(4)), whole_up_to: None };
            match keys.trim_in_place(key, &trim).await.unwrap() {
                InPlace::Done(trimmed) => trimmed,
                InPlace::Several => {
                    within(keys, async |keys: &mut Keyspace| {
                        let mut open = keys.open_stream(key, false).await?.unwrap();
                        let trimmed = keys.trim_stream(&mut open, &trim).await?;
                        keys.close_stream(open).await?;
                        Ok(trimmed)
                    })
                    .await
                }
            }
        };
        cross(entries(before), trim, now, async |keys: &mut Keyspace, key: &[u8], trimmed, added| {
            let found = settled(keys, key).await;
            assert_eq!((trimmed, found[0], found.len() as u64), (3, id(4), before - 2));
            assert!(found.contains(&added));
        });
    }
}

#[test]
fn an_entry_added_during_a_removal_or_a_rename_is_there_once() {
    for count in [2, 4, 9] {
        let now = async |keys: &mut Keyspace, key: &[u8]| add(keys, key, NewId::Now(50)).await;
        let remove = async |keys: &mut Keyspace, key: &[u8]| keys.remove(key).await.unwrap();
        interrupt(
            entries(count),
            now,
            remove,
            async |keys: &mut Keyspace, key: &[u8], added, removed: bool| {
                let found = settled(keys, key).await;
                assert!(removed && (found.is_empty() || found == [added]), "{found:?}");
            },
        );
        let rename = async |keys: &mut Keyspace, key: &[u8]| {
            within(keys, async |keys| keys.rename(key, &beside(key, "new"), Destination::Kept).await).await
        };
        interrupt(entries(count), now, rename, async |keys: &mut Keyspace, key: &[u8], added, told| {
            assert_eq!(told, Transferred::Done);
            let found = [settled(keys, &beside(key, "new")).await, settled(keys, key).await].concat();
            assert!(found.iter().copied().eq((1..=count).map(id).chain([added])), "{found:?}");
        });
    }
}

#[test]
fn a_walk_meets_each_entry_once_while_the_head_is_divided() {
    for count in [4, 8, 11] {
        let more = async |keys: &mut Keyspace, key: &[u8]| {
            for number in 50..56 {
                add(keys, key, NewId::At(number)).await;
            }
        };
        interrupt(entries(count), all, more, async |keys: &mut Keyspace, key: &[u8], found: Vec<_>, ()| {
            let all = (1..=count).chain(50..56).map(id);
            assert!(
                all.take(found.len()).eq(found.iter().copied()) && found.len() as u64 >= count,
                "{found:?}"
            );
            assert_eq!(settled(keys, key).await.len() as u64, count + 6);
        });
    }
}

/// Acknowledges an entry as `XACK` does. Returns whether it was pending.
async fn acknowledge(keys: &mut Keyspace, key: &[u8], id: StreamId) -> Result<bool, Fault> {
    let Some(stream) = keys.stream(key).await? else { return Ok(false) };
    let records = stream.aggregate(key);
    let Some(group) = keys.group(&records, b"group").await? else { return Ok(false) };
    let removed = within(keys, async |keys: &mut Keyspace| {
        let mut edit = PendingEdit::new(&records, &group);
        let is_removed = keys.remove_pending(&mut edit, id).await?;
        keys.close_pending(edit, None).await?;
        Ok(is_removed)
    });
    Ok(removed.await)
}

#[test]
fn a_pending_entry_is_acknowledged_once_and_not_renamed_too() {
    let prepare = async |keys: &mut Keyspace, key: &[u8]| {
        entries(1)(keys, key).await;
        within(keys, async |keys: &mut Keyspace| {
            let records = keys.stream(key).await?.unwrap().aggregate(key);
            let group = Group::new(id(1), None);
            keys.put_group(&records, b"group", &group).await?;
            let mut edit = PendingEdit::new(&records, &group);
            let entry = Pending { id: id(1), time: 0, deliveries: 1, consumer: b"consumer".to_vec() };
            keys.put_pending(&mut edit, entry).await?;
            keys.close_pending(edit, Some(b"consumer")).await
        })
        .await;
    };
    let one = async |keys: &mut Keyspace, key: &[u8]| acknowledge(keys, key, id(1)).await.unwrap();
    cross(prepare, one, one, async |_: &mut Keyspace, _: &[u8], one: bool, other: bool| {
        assert!(one != other);
    });
    let rename = async |keys: &mut Keyspace, key: &[u8]| {
        within(keys, async |keys| keys.rename(key, &beside(key, "new"), Destination::Kept).await).await
    };
    interrupt(prepare, one, rename, async |keys: &mut Keyspace, key: &[u8], was_pending: bool, told| {
        assert_eq!(told, Transferred::Done);
        let is_pending = acknowledge(keys, &beside(key, "new"), id(1)).await.unwrap();
        assert!(was_pending != is_pending);
    });
}
