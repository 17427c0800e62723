//! Too little memory, as a program meets it: an error that says so, and everything stored still
//! there; and none as long as what was freed is only waiting. Each allocation of each operation is
//! tested where the index is.

use darter::engine::Engine;
use darter::{Error, PutOutcome, Store, StoreOptions, block_on};
use std::pin::pin;
use std::task::{Context, Waker};
use std::time::Duration;

/// Bytes of the values in a pool of 8 MB.
const VALUE_BYTES: usize = 20_000;

/// Opens stores of one small pool, each a member of it, with these options.
fn members<const N: usize>(directory: &tempfile::TempDir, options: [StoreOptions; N]) -> [Store; N] {
    let url = format!("file:{}?size=8M", directory.path().join("pool").display());
    options.map(|options| options.block_bytes(256 << 10).open(&url).unwrap())
}

/// Options of a store whose upkeep the test does.
fn by_hand() -> StoreOptions {
    crate::options().maintenance(false)
}

#[test]
fn a_pool_that_is_overwritten_is_never_full() {
    let directory = tempfile::tempdir().unwrap();
    let [store, _idle, _idle_too] = members(&directory, [(); 3].map(|()| crate::options()));
    std::thread::scope(|scope| {
        for writer in 0..2_u8 {
            let store = &store;
            scope.spawn(move || {
                let session = store.session().unwrap();
                for number in 0..1500 {
                    session.put([writer, number as u8 % 10], vec![writer; VALUE_BYTES]).unwrap();
                }
            });
        }
    });
}

/// Two members overwrite values of many sizes, for each of which each process has its own pages.
/// One object keeps a block with its process, so they come to hold all blocks; the third comes then.
fn assert_room_for_values_of_many_sizes(size: &str) {
    let directory = tempfile::tempdir().unwrap();
    let url = format!("file:{}?size={size}", directory.path().join("pool").display());
    let stores = [(); 3].map(|()| crate::options().open(&url).unwrap());
    std::thread::scope(|scope| {
        for (writer, store) in stores.iter().take(2).enumerate() {
            scope.spawn(move || {
                let session = store.session().unwrap();
                for number in 0..3000_usize {
                    let bytes = number.wrapping_mul(7919 + writer) % 10_000;
                    session.put([number as u8 % 100], vec![writer as u8; bytes]).unwrap();
                }
            });
        }
    });
    let session = stores[2].session().unwrap();
    for bytes in [100, 1000, 3000, 9000] {
        session.put([200], vec![2; bytes]).unwrap();
    }
}

#[test]
fn members_that_overwrite_values_of_many_sizes_leave_room_for_another() {
    assert_room_for_values_of_many_sizes("16M");
}

#[test]
fn values_of_many_sizes_are_overwritten_in_a_small_pool() {
    assert_room_for_values_of_many_sizes("4M");
}

#[test]
fn a_pool_that_is_overwritten_without_an_upkeep_thread_is_never_full() {
    let directory = tempfile::tempdir().unwrap();
    let [store] = members(&directory, [by_hand()]);
    let session = store.session().unwrap();
    for number in 0..2000 {
        session.put([number as u8 % 10], vec![7; VALUE_BYTES]).unwrap();
    }
}

/// Operations on many keys wait for room as single ones do, and each key counts once.
#[test]
fn many_keys_are_stored_and_removed_in_a_pool_that_is_overwritten() {
    let directory = tempfile::tempdir().unwrap();
    let [store, _idle] = members(&directory, [(); 2].map(|()| crate::options()));
    let session = store.async_session().unwrap();
    let keys: Vec<_> = (0..20_u8).map(|key| [key]).collect();
    let pairs: Vec<_> = keys.iter().map(|key| (key, vec![key[0]; VALUE_BYTES])).collect();
    for round in 0..100 {
        let stored = block_on(session.put_many(&pairs)).unwrap();
        assert!(stored.iter().all(|outcome| *outcome == PutOutcome::Inserted), "{round}: {stored:?}");
        assert_eq!(block_on(session.remove_many(&keys)).unwrap(), 20, "{round}");
    }
}

#[test]
fn room_in_the_blocks_of_another_member_is_found() {
    let directory = tempfile::tempdir().unwrap();
    let [one, two] = members(&directory, [(); 2].map(|()| crate::options()));
    let (first, second) = (one.session().unwrap(), two.session().unwrap());
    let mut stored = 0_u32;
    while first.put(stored.to_be_bytes(), vec![1; VALUE_BYTES]).is_ok() {
        stored += 1;
    }
    assert!(stored > 200, "{stored}");
    for key in 0..stored {
        assert!(second.discard(key.to_be_bytes()).unwrap());
    }
    for key in 0..stored * 3 / 4 {
        second.put(key.to_be_bytes(), vec![2; VALUE_BYTES]).unwrap();
    }
}

/// A member that does no upkeep, like a stopped one, holds freed memory back.
#[test]
fn an_operation_without_room_waits_for_a_member_and_lets_other_tasks_of_its_thread_go_on() {
    let directory = tempfile::tempdir().unwrap();
    let [store, other] = members(&directory, [crate::options(), by_hand()]);
    let (writer, reader) = (store.async_session().unwrap(), store.session().unwrap());
    let upkeep = other.session().unwrap();
    let mut has_waited = false;
    for number in 0..1000 {
        let mut put = pin!(writer.put([number as u8 % 10], vec![7; VALUE_BYTES]));
        while put.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending() {
            has_waited = true;
            assert!(reader.get([0]).unwrap().is_some());
            upkeep.maintain().unwrap();
        }
    }
    assert!(has_waited, "the pool has room for 400 values");
}

#[test]
fn a_member_that_does_not_go_on_is_named_and_waited_for_no_longer_than_a_while() {
    let directory = tempfile::tempdir().unwrap();
    let lease = Duration::from_secs(1);
    let [store, other] = members(&directory, [crate::options().lease(lease), by_hand()]);
    let session = store.session().unwrap();
    let put = |number: u32| session.put([number as u8 % 10], vec![7; VALUE_BYTES]);
    let error = (0..1000).find_map(|number| put(number).err()).unwrap();
    assert!(error.is_out_of_space() && error.is_held_back(), "{error}");
    let told = error.to_string();
    let who = format!("member {} (process {})", other.pool().member().member, std::process::id());
    assert!(told.contains(&who), "{told}");
    // The next operation fails at once, without waiting.
    assert!(put(0).unwrap_err().is_held_back());
    let upkeep = other.session().unwrap();
    let mut tries = 0;
    while let Err(error) = put(0) {
        assert!(error.is_out_of_space(), "{error}");
        upkeep.maintain().unwrap();
        tries += 1;
        assert!(tries < 100_000, "{error}");
    }
}

#[test]
fn a_full_store_says_so_and_keeps_what_it_has() {
    let store = crate::options().maintenance(false).block_bytes(256 << 10).open("mem:4M").unwrap();
    let session = store.session().unwrap();
    let mut stored = 0_u64;
    let error = loop {
        match session.put(stored.to_be_bytes(), vec![stored as u8; 1000]) {
            Ok(_) => stored += 1,
            Err(error) => break error,
        }
    };
    assert!(error.is_out_of_space(), "{error}");
    assert!(stored > 1000);
    assert_eq!(session.range(..).map(Result::unwrap).count() as u64, stored);
    for key in 0..stored {
        assert!(session.discard(key.to_be_bytes()).unwrap());
    }
    let check = store.check().unwrap();
    assert!(check.is_sound() && check.leaked_bytes == 0 && check.stats.keys == 0, "{check:?}");
}

#[test]
fn a_pool_too_small_for_anything_is_refused() {
    for url in ["mem:4K", "mem:64K", "mem:128K?nodes=2"] {
        match crate::options().open(url).map(drop) {
            Err(error @ (Error::Open { .. } | Error::Pool(_) | Error::Fabric(_))) => {
                assert!(error.to_string().len() > 20, "{error}");
            }
            outcome => panic!("{url}: {outcome:?}"),
        }
    }
}
