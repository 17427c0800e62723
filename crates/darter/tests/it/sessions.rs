//! What a session offers beyond single puts and gets: calls within calls, many keys at a time,
//! ranges, typed tables, futures.

use darter::{AsyncTable, Change, Error, PutOutcome, Store, Table, block_on};
use serde::{Deserialize, Serialize};
use std::cell::Cell;
use std::rc::Rc;

fn store() -> Store {
    crate::options().open("mem:32M?nodes=2").unwrap()
}

#[test]
fn a_scan_may_delete_what_it_returns() {
    let store = store();
    let session = store.session().unwrap();
    for n in 0..1000_u32 {
        session.put(n.to_be_bytes(), n.to_string()).unwrap();
    }
    let mut seen = 0;
    for pair in session.range(..) {
        let (key, value) = pair.unwrap();
        assert_eq!(session.get(&key).unwrap(), Some(value));
        assert!(session.discard(&key).unwrap());
        seen += 1;
    }
    assert_eq!((seen, session.is_empty().unwrap()), (1000, true));
}

#[test]
fn a_closure_may_call_the_session_that_called_it() {
    let store = crate::options().direct(false).open("mem:32M?nodes=2").unwrap();
    let session = store.session().unwrap();
    session.put("step", [5]).unwrap();
    session.put("count", [1]).unwrap();
    let changed = session.update("count", |count| {
        let step = session.get_with("step", |step| step[0]).unwrap().unwrap();
        Change::Put(vec![count.unwrap()[0] + step])
    });
    assert!(changed.unwrap());
    assert_eq!(session.get("count").unwrap(), Some(vec![6]));
    // The session that the inner call opened stays, and counts.
    let before = session.counters().total().round_trips;
    session.get("count").unwrap();
    assert!(session.counters().total().round_trips > before);
}

#[test]
fn closures_of_a_session_need_not_be_send() {
    let store = store();
    let session = store.session().unwrap();
    session.put("fig", "green").unwrap();
    let calls = Rc::new(Cell::new(0));
    let count = || calls.set(calls.get() + 1);
    session.get_with("fig", |_| count()).unwrap();
    session.scan_with(&darter::ScanRange::all(), 1, |_, _| count()).unwrap();
    session
        .update("fig", |_| {
            count();
            Change::Keep
        })
        .unwrap();
    session
        .remove_if("fig", |_| {
            count();
            false
        })
        .unwrap();
    assert_eq!(calls.get(), 4);
}

#[test]
fn insert_returns_the_value_it_replaces() {
    let store = store();
    let session = store.session().unwrap();
    assert_eq!(session.insert("fig", "green").unwrap(), None);
    assert_eq!(session.insert("fig", "blue").unwrap(), Some(b"green".to_vec()));
    assert!(!session.try_insert("fig", "red").unwrap());
    assert_eq!(session.get("fig").unwrap(), Some(b"blue".to_vec()));
}

#[test]
fn modify_returns_whether_it_changed_anything() {
    let store = store();
    let session = store.session().unwrap();
    assert!(!session.update("fig", |_| Change::Remove).unwrap(), "absent already");
    assert!(!session.update("fig", |_| Change::Keep).unwrap());
    assert!(session.update("fig", |_| Change::Put(Vec::new())).unwrap());
    assert_eq!(session.get("fig").unwrap(), Some(Vec::new()));
    assert!(session.update("fig", |_| Change::Remove).unwrap());
    assert!(!session.contains_key("fig").unwrap());
}

#[test]
fn both_ends_of_the_store() {
    let store = store();
    let session = store.session().unwrap();
    assert_eq!((session.first().unwrap(), session.last().unwrap()), (None, None));
    session.put_many(&[("b", "2"), ("a", "1"), ("c", "3")]).unwrap();
    assert_eq!(session.first().unwrap(), Some((b"a".to_vec(), b"1".to_vec())));
    assert_eq!(session.last().unwrap(), Some((b"c".to_vec(), b"3".to_vec())));
}

#[test]
fn many_puts_keep_the_order_of_those_with_one_key() {
    let store = store();
    let session = store.session().unwrap();
    for count in [0, 1, 15, 16, 17, 200_usize] {
        session.clear().unwrap();
        let pairs: Vec<_> = (0..count).map(|n| ([(n % 7) as u8, (n % 31) as u8], n.to_string())).collect();
        let outcomes = session.put_many(&pairs).unwrap();
        let mut model = std::collections::BTreeMap::new();
        for ((key, value), outcome) in pairs.iter().zip(&outcomes) {
            let expected =
                if model.insert(key, value).is_none() { PutOutcome::Inserted } else { PutOutcome::Replaced };
            assert_eq!(*outcome, expected);
        }
        assert_eq!(outcomes.len(), count);
        let found = session.range(..).collect::<Result<Vec<_>, _>>().unwrap();
        let wanted: Vec<_> =
            model.iter().map(|(key, value)| (key.to_vec(), value.as_bytes().to_vec())).collect();
        assert_eq!(found, wanted);
    }
}

#[test]
fn put_many_fails_if_a_key_is_too_long_and_stores_the_others() {
    let store = store();
    let session = store.session().unwrap();
    let long = vec![0; darter::KEY_BYTES_MAX + 1];
    let error = session.put_many(&[(&b"fig"[..], ""), (&long, ""), (&b"plum"[..], "")]).unwrap_err();
    assert!(error.is_too_long(), "{error}");
    assert!(session.contains_key("plum").unwrap());
}

#[test]
fn remove_range_keeps_keys_outside_the_range() {
    let store = store();
    let session = store.session().unwrap();
    let pairs: Vec<_> = (0..2000_u32).map(|n| (n.to_be_bytes(), "")).collect();
    session.put_many(&pairs).unwrap();
    let (from, to) = (100_u32.to_be_bytes(), 1900_u32.to_be_bytes());
    assert_eq!(session.remove_range(from..to).unwrap(), 1800);
    assert_eq!(session.remove_range(from..to).unwrap(), 0);
    assert_eq!(session.range(..).count(), 200);
    let reversed = darter::ScanRange::all().reversed();
    assert_eq!(session.remove_range(reversed).unwrap(), 200);
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Account {
    owner: String,
    cents: i64,
}

fn account(cents: i64) -> Account {
    Account { owner: "Ada".to_owned(), cents }
}

#[test]
fn tables_keep_their_types_order_and_neighbours() {
    let store = store();
    let session = store.session().unwrap();
    session.put("raw", "pair").unwrap();
    let accounts: Table<u64, Account> = store.table("accounts").unwrap();
    let owners: Table<(String, u64), ()> = store.table("accounts\0by owner").unwrap();
    // Numbers of every length, in no order.
    for number in [70_000, 3, 0, u64::MAX, 255, 256] {
        assert_eq!(accounts.insert(&number, &account(number.cast_signed())).unwrap(), None);
        owners.put(&("Ada".to_owned(), number), &()).unwrap();
    }
    let numbers = |rows: Vec<(u64, Account)>| rows.into_iter().map(|(number, _)| number).collect::<Vec<_>>();
    let all = accounts.iter().collect::<Result<Vec<_>, _>>().unwrap();
    assert_eq!(numbers(all), [0, 3, 255, 256, 70_000, u64::MAX]);
    let some = accounts.range(3..=256).limit(2).rev().collect::<Result<Vec<_>, _>>().unwrap();
    assert_eq!(numbers(some), [256, 255]);
    assert_eq!(accounts.last().unwrap(), Some((u64::MAX, account(-1))));
    assert_eq!(accounts.get_many(&[3, 4]).unwrap(), [Some(account(3)), None]);
    assert!(accounts.update(&3, |old| Change::Put(account(old.unwrap().cents * 2))).unwrap());
    assert_eq!(accounts.get(&3).unwrap(), Some(account(6)));
    assert_eq!(store.tables().unwrap(), ["accounts", "accounts\0by owner"]);
    assert_eq!(accounts.remove_range(256..).unwrap(), 3);
    assert!(accounts.discard(&0).unwrap());
    assert_eq!(accounts.clear().unwrap(), 2);
    assert!(accounts.is_empty().unwrap());
    assert_eq!((owners.iter().count(), store.tables().unwrap().len()), (6, 1));
    assert_eq!(session.get("raw").unwrap().as_deref(), Some(&b"pair"[..]));
}

#[test]
fn a_table_of_other_types_is_an_error_and_loses_nothing() {
    let store = store();
    let accounts: Table<u64, Account> = store.table("accounts").unwrap();
    let other: Table<u64, Vec<String>> = store.table("accounts").unwrap();
    accounts.put(&1, &account(5)).unwrap();
    let error = other.get(&1).unwrap_err();
    assert!(matches!(&error, Error::Table { table, .. } if table == "accounts"), "{error}");
    assert!(other.update(&1, |_| Change::Remove).is_err());
    assert!(store.table::<u64, Vec<String>>("accounts").is_err());
    assert!(store.table::<String, Account>("accounts").is_err());
    assert_eq!(accounts.get(&1).unwrap(), Some(account(5)));
}

#[test]
fn tasks_have_the_same() {
    let work = async {
        let store = crate::options().open_async("mem:32M").await?;
        let accounts: AsyncTable<u64, Account> = store.table("accounts").await?;
        accounts.put_many(&[(1, account(1)), (2, account(2)), (3, account(3))]).await?;
        assert!(!accounts.try_insert(&3, &account(4)).await?);
        assert!(accounts.discard(&1).await?);
        let mut rows = accounts.range(2..);
        assert_eq!(rows.next().await.transpose()?, Some((2, account(2))));
        assert_eq!(rows.next_back().await.transpose()?, Some((3, account(3))));
        assert!(rows.next().await.is_none());
        drop(rows);
        assert_eq!(store.stats().await?.index.keys, 2);
        assert!(store.check().await?.is_sound());
        assert!(store.usage().await?.members.len() == 1);
        assert_eq!(store.tables().await?, ["accounts"]);
        assert_eq!(store.clear().await?, 2);
        Ok::<_, Error>(())
    };
    block_on(work).unwrap();
    assert!(matches!(
        block_on(crate::options().open_async("file:/nowhere/at/all")),
        Err(Error::Missing { .. })
    ));
}

/// A scan is a stream, and a fetch whose `next` was dropped is not lost.
#[test]
fn a_scan_of_a_task_is_a_stream() {
    use futures_core::Stream;
    use std::pin::Pin;
    let store = store();
    let session = store.async_session().unwrap();
    block_on(session.put_many(&[("a", ""), ("b", ""), ("c", "")])).unwrap();
    let mut scan = session.range(..);
    let mut keys = Vec::new();
    while let Some(pair) = block_on(std::future::poll_fn(|context| Pin::new(&mut scan).poll_next(context))) {
        keys.push(pair.unwrap().0);
    }
    assert_eq!(keys, [b"a", b"b", b"c"]);
}
