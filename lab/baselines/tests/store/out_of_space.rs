//! Too little memory for a store with ART+CoW, whose deletes write copies of nodes.

use darter::{PutOutcome, Store, block_on, engine};
use darter_baselines::{Design, Wort, WortOptions};

/// Bytes of the values in a pool of 8 MB.
const VALUE_BYTES: usize = 20_000;

/// Operations on many keys wait for room like operations on one key, and each key counts once.
#[test]
fn many_keys_are_stored_and_removed_in_a_pool_that_is_overwritten() {
    let directory = tempfile::tempdir().unwrap();
    let url = format!("file:{}?size=8M", directory.path().join("copying").display()).parse().unwrap();
    let copying = || {
        let options = Store::options().block_bytes(256 << 10);
        engine::open_with::<Wort<_>>(&options, &url, WortOptions::of(Design::ArtCow)).unwrap()
    };
    let (store, _idle) = (copying(), copying());
    let session = store.async_session().unwrap();
    let keys: Vec<_> = (0..20_u8).map(|key| [key]).collect();
    let pairs: Vec<_> = keys.iter().map(|key| (key, vec![key[0]; VALUE_BYTES])).collect();
    for round in 0..100 {
        let stored = block_on(session.put_many(&pairs)).unwrap();
        assert!(stored.iter().all(|outcome| *outcome == PutOutcome::Inserted), "{round}: {stored:?}");
        assert_eq!(block_on(session.remove_many(&keys)).unwrap(), 20, "{round}");
    }
}
