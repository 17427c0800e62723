//! Tests of commits that insert several keys of one page.

use super::{OPTIONS, at_each_verb_with, dies_at_each_verb, get, put_of, two_processes, verify_all};
use crate::quiver::{Quiver, QuiverOptions};
use crate::{Access, Commit, Condition, OrderedIndex};
use darter_fabric::block_on;
use darter_pool::Client;
use darter_sim::Sim;

/// New keys of one page, next to others that are there.
const NEW_KEYS: [&[u8]; 4] = [b"\x91", b"\xa0", b"\xb0", b"\xc0"];

/// A transaction that inserts them all.
const INSERTS: fn() -> [Access<'static>; 4] = || NEW_KEYS.map(|key| put_of(key, None, b"new"));

/// Several new keys of one page appear at once or not at all, whatever another client does to their
/// page when their commit has stopped.
#[test]
fn new_keys_of_one_page_appear_at_one_moment() {
    type Pass = fn(usize) -> (&'static [u8], bool);
    let passes: [Pass; 3] = [
        |at| (NEW_KEYS[at % 4], true),
        |at| ([b"\x92", b"\xd0", b"\xa1", b"\xe0"][at], true),
        |at| ([b"\x90", b"\x60", b"\x50", b"\x40"][at], false),
    ];
    // Small pages are cut for the new keys; the others have more room than they take.
    for (number, records) in [(0, 3), (0, 12), (1, 3), (1, 12), (2, 3), (2, 12)] {
        let of = passes[number];
        let options = QuiverOptions { page_records: records, page_delta: records - 1, ..OPTIONS() };
        for changes in [1, 4] {
            let pass = async |quiver: &Quiver<Sim>, client: &mut Client<Sim>| {
                for at in 0..changes {
                    let (key, puts) = of(at);
                    if puts {
                        quiver.put(client, key, b"mine", Condition::Always).await.unwrap();
                    } else {
                        quiver.delete(client, key).await.unwrap();
                    }
                }
            };
            at_each_verb_with(options, &INSERTS(), &pass, &async |quiver, client, (), outcome, when| {
                let is_done = outcome == Commit::Done;
                for (at, key) in NEW_KEYS.into_iter().enumerate() {
                    let own = (number == 0 && at < changes).then(|| b"mine".to_vec());
                    let seen = get(quiver, client, key).await;
                    let expected = own.or_else(|| is_done.then(|| b"new".to_vec()));
                    assert_eq!(
                        seen, expected,
                        "{when}: pass {number} of {changes}, {records} records, key {at}"
                    );
                }
                assert!(is_done || number == 0, "{when}: no other client has any of the keys");
            });
        }
    }
}

/// A client stops at each verb of a commit of new keys and dies.
#[test]
fn a_client_that_dies_while_it_inserts_leaves_all_keys_or_none() {
    dies_at_each_verb(&INSERTS(), &async |_, _, _| (), &async |quiver, client, (), has_ended, when| {
        let mut found = 0;
        for key in NEW_KEYS {
            found += usize::from(get(quiver, client, key).await.is_some());
        }
        assert!(found == 0 && !has_ended || found == 4, "{when}: {found} keys");
    });
}

/// The search for the last key ends first: the others begin at a node that is gone.
#[test]
fn new_keys_whose_searches_end_in_another_order_get_a_page_in_key_order() {
    let sim = Sim::new(1, 8 << 20);
    sim.schedule(false);
    let (pool, quiver, other_pool, other) = two_processes(&sim);
    let (mut client, mut others) = (pool.client().unwrap(), other_pool.client().unwrap());
    let keys: Vec<[u8; 2]> = (0..40).map(|second| [0xa1, second * 6]).collect();
    for key in &keys {
        block_on(quiver.put(&mut client, key, b"old", Condition::Always)).unwrap();
    }
    for key in &keys {
        assert!(block_on(get(&quiver, &mut client, key)).is_some());
    }
    for key in &keys {
        block_on(other.delete(&mut others, key)).unwrap();
    }
    let new: [&[u8]; 3] = [b"\xa1\x11", b"\xa1\x22", b"\xaf\x01"];
    let accesses = new.map(|key| put_of(key, None, b"new"));
    assert_eq!(block_on(quiver.commit(&mut client, &accesses, 0)).unwrap(), Commit::Done);
    for key in new {
        assert_eq!(block_on(get(&other, &mut others, key)), Some(b"new".to_vec()), "{key:x?}");
    }
    drop((quiver, other));
    verify_all(&sim, vec![(pool, client), (other_pool, others)], "at the end");
}
