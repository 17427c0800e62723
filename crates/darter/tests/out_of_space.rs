//! A pool that is full: an error to whoever wants more, everything stored intact and readable, deletes work, and what
//! they give back can be used again.

#![allow(clippy::unwrap_used)] // a test may panic

mod adversary;

use adversary::{Dice, Model, assert_holds, assert_sound};
use darter::{Error, Session, Store};

/// A full pool needs a few rounds before what was deleted can be used: graces must pass.
fn let_graces_pass(session: &mut Session) {
    for _ in 0..32 {
        session.maintain().unwrap();
    }
}

/// Keys of a shape that makes the tree, not just the leaves, ask for space.
fn key(shape: u64, n: u64) -> Vec<u8> {
    let mixed = Dice::new(n).next();
    match shape {
        // Wide at the top.
        0 => mixed.to_be_bytes().to_vec(),
        // Dense at the bottom.
        1 => n.to_be_bytes().to_vec(),
        // A split of a long common beginning for each.
        2 => [vec![b'p'; (mixed % 300) as usize], mixed.to_be_bytes()[..3].to_vec()].concat(),
        // Deep: each a prefix of the next.
        _ => vec![(n % 7) as u8; (n / 7 % 2000) as usize],
    }
}

/// Puts until the pool refuses, `refusals` times. Whatever fails must not have happened.
fn fill(session: &mut Session, model: &mut Model, shape: u64, value_bytes: u64, refusals: usize) {
    let mut refused = 0;
    for n in 0..400_000_u64 {
        let (key, value) = (key(shape, n), vec![n as u8; (Dice::new(n).below(value_bytes + 1)) as usize]);
        match session.put(&key, &value) {
            Ok(_) => drop(model.insert(key, value)),
            Err(error) => {
                assert!(error.is_out_of_space(), "{error}");
                refused += 1;
                if refused == refusals {
                    return;
                }
            }
        }
    }
    panic!("the pool never filled");
}

fn full_and_back(nodes: usize, shape: u64, value_bytes: u64) {
    let url = format!("mem:{}M?nodes={nodes}", 4 * nodes);
    let store = Store::options().maintenance(false).block_bytes(256 << 10).open(&url).unwrap();
    let mut session = store.session().unwrap();
    let mut model = Model::new();
    // After the first refusal smaller things still fit, down to where nothing does: every kind of allocation fails.
    fill(&mut session, &mut model, shape, value_bytes, 50);
    fill(&mut session, &mut model, (shape + 1) % 4, 8, 50);
    assert_holds(&mut session, &model);
    assert_sound(&store, model.len());
    // A full pool never keeps a key from going.
    let keys: Vec<_> = model.keys().cloned().collect();
    let mut gone = Model::new();
    for key in keys.iter().step_by(2) {
        assert!(session.delete(key).unwrap());
        gone.extend(model.remove_entry(key));
    }
    assert_holds(&mut session, &model);
    // And what went makes room: for some of the same at least; small things may take a large one's place meanwhile.
    let_graces_pass(&mut session);
    let mut again = 0;
    for (key, value) in gone.into_iter().take(20) {
        match session.put(&key, &value) {
            Ok(_) => {
                model.insert(key, value);
                again += 1;
            }
            Err(error) => assert!(error.is_out_of_space(), "{error}"),
        }
    }
    assert!(again > 0, "no room again");
    assert_holds(&mut session, &model);
    for key in model.keys() {
        assert!(session.delete(key).unwrap());
    }
    assert_sound(&store, 0);
    // As much fits into the emptied pool as did into the new one, or nearly: the skip table has grown.
    let mut model = Model::new();
    fill(&mut session, &mut model, shape, value_bytes, 50);
    fill(&mut session, &mut model, (shape + 1) % 4, 8, 50);
    assert!(model.len() > keys.len() * 8 / 10, "{} keys fit, {} did at first", model.len(), keys.len());
    assert_holds(&mut session, &model);
    assert_sound(&store, model.len());
}

#[test]
fn full_of_small_values() {
    for shape in 0..4 {
        full_and_back(1, shape, 30);
    }
}

#[test]
fn full_of_middling_values() {
    for shape in 0..4 {
        full_and_back(2, shape, 3000);
    }
}

#[test]
fn full_of_large_values() {
    for shape in 0..4 {
        full_and_back(1, shape, 150_000);
    }
}

/// At the brim, one object is given back at a time and everything tried until it fails again: so each of an
/// operation's allocations is the one that fails, with all before it having succeeded.
#[test]
fn every_allocation_is_once_the_one_that_fails() {
    let store = Store::options().maintenance(false).block_bytes(256 << 10).open("mem:2M").unwrap();
    let mut session = store.session().unwrap();
    let mut model = Model::new();
    fill(&mut session, &mut model, 0, 200, 200);
    fill(&mut session, &mut model, 2, 0, 200);
    let mut dice = Dice::new(11);
    let mut failures = 0;
    for round in 0..150_u64 {
        let keys: Vec<_> = model.keys().cloned().collect();
        for _ in 0..=dice.below(3) {
            let key = &keys[dice.below(keys.len() as u64) as usize];
            assert_eq!(session.delete(key).unwrap(), model.remove(key).is_some());
        }
        let_graces_pass(&mut session);
        for n in 0..40 {
            let base = &keys[dice.below(keys.len() as u64) as usize];
            // A split above, a child below, a neighbour, a new value.
            let key = match dice.below(4) {
                0 => base[..base.len() / 2].to_vec(),
                1 => [&base[..], &[n as u8]].concat(),
                2 => [&base[..base.len().saturating_sub(1)], &[round as u8]].concat(),
                _ => base.clone(),
            };
            let value = vec![round as u8; dice.below(250) as usize];
            match session.put(&key, &value) {
                Ok(_) => drop(model.insert(key, value)),
                Err(error) => {
                    assert!(error.is_out_of_space(), "{error}");
                    failures += 1;
                    assert_eq!(
                        session.get(&key).unwrap().as_ref(),
                        model.get(&key),
                        "a refused put changed something"
                    );
                }
            }
        }
    }
    assert!(failures > 500, "the pool was full only {failures} times");
    assert_holds(&mut session, &model);
    assert_sound(&store, model.len());
}

#[test]
fn a_pool_too_small_for_anything_is_refused() {
    for url in ["mem:4K", "mem:64K", "mem:128K?nodes=2"] {
        match Store::open(url).map(drop) {
            Err(error @ (Error::Open { .. } | Error::Pool(_) | Error::Fabric(_))) => {
                assert!(error.to_string().len() > 20, "{error}");
            }
            outcome => panic!("{url}: {outcome:?}"),
        }
    }
}

/// A bulk load that does not fit leaves the index empty and leaks nothing.
#[test]
fn a_bulk_load_that_does_not_fit_leaves_nothing() {
    let store = Store::options().maintenance(false).block_bytes(256 << 10).open("mem:4M").unwrap();
    let mut session = store.session().unwrap();
    let pairs = (0..100_000_u64).map(|n| (n.to_be_bytes(), vec![0; 100]));
    let error = session.bulk_load(pairs).unwrap_err();
    assert!(error.is_out_of_space(), "{error}");
    assert_holds(&mut session, &Model::new());
    let_graces_pass(&mut session);
    assert_sound(&store, 0);
    session.put("k", "v").unwrap();
    assert_sound(&store, 1);
}
