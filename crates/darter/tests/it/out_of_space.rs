//! Too little memory, as a program meets it: an error that says so, and everything stored still
//! there. Each allocation of each operation is tested where the index is.

use darter::Error;

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
    assert_eq!(session.scan(..).map(Result::unwrap).count() as u64, stored);
    for key in 0..stored {
        assert!(session.delete(key.to_be_bytes()).unwrap());
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
