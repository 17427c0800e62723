//! Limits that a process sets for the memory that it takes of a pool.

use darter::Store;

/// Fills a store with values of 60 kB. Returns the number of values that it took.
fn filled(store: &Store, name: &str) -> u32 {
    let fails = |n: &u32| {
        let stored = store.put(format!("{name} {n}"), vec![7; 60_000]);
        stored.is_err_and(|error| {
            assert!(error.is_out_of_space(), "{error}");
            true
        })
    };
    (0..10_000).find(fails).expect("the pool is not that large")
}

#[test]
fn a_reserve_is_left_to_processes_without_it() {
    let directory = tempfile::tempdir().unwrap();
    let name = format!("file:{}?size=32M", directory.path().join("pool").display());
    let careful = crate::options().reserve_bytes(8 << 20).open(&name).unwrap();
    let stored = filled(&careful, "careful");
    assert!(stored > 200, "{stored}");
    // Reads, overwrites with less and deletes need nothing of the reserve.
    assert!(careful.get("careful 5").unwrap().is_some());
    assert!(careful.remove("careful 5").unwrap().is_some());
    let other = crate::options().open(&name).unwrap();
    let more = filled(&other, "other");
    assert!(more > 80, "four blocks were left: {more}");
    for n in 0..more {
        other.remove(format!("other {n}")).unwrap();
    }
    drop(other);
    assert_eq!(careful.check().unwrap().violations.len(), 0);
}

#[test]
fn a_quota_limits_one_process_and_not_others() {
    let directory = tempfile::tempdir().unwrap();
    let name = format!("file:{}?size=32M", directory.path().join("pool").display());
    let limited = crate::options().quota_bytes(8 << 20).open(&name).unwrap();
    let stored = filled(&limited, "limited");
    assert!((40..140).contains(&stored), "{stored} values in four blocks");
    let other = crate::options().open(&name).unwrap();
    assert!(filled(&other, "other") > stored, "the rest of the pool");
    // What it deletes, it may use again.
    for n in 0..stored {
        limited.remove(format!("limited {n}")).unwrap();
    }
    for n in 0..stored / 2 {
        limited.put(format!("again {n}"), vec![7; 60_000]).unwrap();
    }
}
