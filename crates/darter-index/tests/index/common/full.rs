//! A full pool: operations that need memory return an error, everything stored stays intact and
//! readable, deletes work, and the memory that they free can be used again.

use super::{Bench, Model, Tested};
use darter_fabric::block_on;
use darter_index::{Condition, IndexError, OrderedIndex};
use darter_pool::PoolError;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

/// Keys of several shapes, so that not only the leaves need memory, but also the tree.
fn key(shape: u64, n: u64) -> Vec<u8> {
    let mixed = Pcg64Mcg::seed_from_u64(n).random::<u64>();
    match shape {
        // Wide at the top.
        0 => mixed.to_be_bytes().to_vec(),
        // Dense at the bottom.
        1 => n.to_be_bytes().to_vec(),
        // Each splits a long common prefix.
        2 => [vec![b'p'; (mixed % 300) as usize], mixed.to_be_bytes()[..3].to_vec()].concat(),
        // Deep: each a prefix of the next.
        _ => vec![(n % 7) as u8; (n / 7 % 2000) as usize],
    }
}

/// Puts a pair. Returns whether there was room. A put that finds no room must have no effect.
fn put<T: Tested>(bench: &mut Bench<T>, model: &mut Model, key: Vec<u8>, value: Vec<u8>) -> bool {
    match block_on(bench.index.put(&mut bench.client, &key, &value, Condition::Always)) {
        Ok(_) => {
            model.insert(key, value);
            true
        }
        Err(IndexError::Pool(PoolError::OutOfSpace { .. })) => {
            assert_eq!(bench.get(&key).as_ref(), model.get(&key), "a refused put changed something");
            false
        }
        Err(error) => panic!("{error}"),
    }
}

/// Puts until the pool has refused `refusals` times.
fn fill<T: Tested>(bench: &mut Bench<T>, model: &mut Model, shape: u64, value_bytes: u64, refusals: usize) {
    let mut refused = 0;
    for n in 0..400_000_u64 {
        let value = vec![n as u8; (Pcg64Mcg::seed_from_u64(n).random_range(0..value_bytes + 1)) as usize];
        refused += usize::from(!put(bench, model, key(shape, n), value));
        if refused == refusals {
            return;
        }
        // Memory of replaced values is freed by upkeep.
        if n % 1024 == 0 {
            bench.maintain();
        }
    }
    panic!("the pool never filled");
}

/// Makes every member free the memory in its blocks, as a store does when the pool is full.
fn make_room<T: Tested>(bench: &mut Bench<T>) {
    let pool = bench.pool.clone();
    let _request = pool.ask_for_room();
    bench.settle();
}

/// Bytes of keys and values.
fn bytes_of(model: &Model) -> usize {
    model.iter().map(|(key, value)| key.len() + value.len()).sum()
}

fn full_and_back<T: Tested>(nodes: usize, shape: u64, value_bytes: u64) {
    let mut bench = Bench::<T>::small(nodes, 2 << 20, shape);
    let mut model = Model::new();
    // After the first refusal, smaller objects still fit, until none does: every kind of allocation
    // fails.
    fill(&mut bench, &mut model, shape, value_bytes, 50);
    fill(&mut bench, &mut model, (shape + 1) % 4, 8, 50);
    bench.assert_holds(&model);
    bench.assert_sound(model.len());
    let full_bytes = bytes_of(&model);
    // Deletes work in a full pool.
    let keys: Vec<_> = model.keys().cloned().collect();
    let mut gone = Model::new();
    for key in keys.iter().step_by(2) {
        assert!(bench.delete(key));
        gone.extend(model.remove_entry(key));
    }
    bench.assert_holds(&model);
    // Deleted pairs make room, for at least some pairs of the same size; small objects may have
    // taken the place of a large one.
    bench.settle();
    let again = gone
        .into_iter()
        .take(20)
        .filter(|(key, value)| put(&mut bench, &mut model, key.clone(), value.clone()));
    assert!(again.count() > 0, "no room again");
    bench.assert_holds(&model);
    for key in model.keys() {
        assert!(bench.delete(key));
    }
    bench.assert_sound(0);
    // The emptied pool holds as much as the new one, or nearly: a table of hints may have grown.
    // Compared in bytes, since any number of small pairs fits between large ones.
    let mut model = Model::new();
    make_room(&mut bench);
    fill(&mut bench, &mut model, shape, value_bytes, 50);
    fill(&mut bench, &mut model, (shape + 1) % 4, 8, 50);
    let again_bytes = bytes_of(&model);
    assert!(again_bytes > full_bytes * 8 / 10, "{again_bytes} bytes fit, {full_bytes} did at first");
    bench.assert_holds(&model);
    bench.assert_sound(model.len());
}

pub(crate) fn full_of_small_values<T: Tested>() {
    (0..4).for_each(|shape| full_and_back::<T>(1, shape, 30));
}

pub(crate) fn full_of_middling_values<T: Tested>() {
    (0..4).for_each(|shape| full_and_back::<T>(2, shape, 3000));
}

pub(crate) fn full_of_large_values<T: Tested>() {
    (0..4).for_each(|shape| full_and_back::<T>(1, shape, 150_000));
}

/// In a full pool, one object is freed at a time and everything is tried until it fails again. So
/// each of an operation's allocations is once the one that fails, after all before it have
/// succeeded.
pub(crate) fn full_at_every_allocation<T: Tested>() {
    let mut bench = Bench::<T>::small(1, 2 << 20, 0);
    let mut model = Model::new();
    fill(&mut bench, &mut model, 0, 200, 200);
    fill(&mut bench, &mut model, 2, 0, 200);
    let mut dice = Pcg64Mcg::seed_from_u64(11);
    let mut failures = 0;
    for round in 0..150_u64 {
        let keys: Vec<_> = model.keys().cloned().collect();
        for _ in 0..=dice.random_range(0..3) {
            let key = &keys[dice.random_range(0..keys.len())];
            assert_eq!(bench.delete(key), model.remove(key).is_some());
        }
        bench.settle();
        for n in 0..40 {
            let base = &keys[dice.random_range(0..keys.len())];
            // Causes a split above, a child below, a neighbour, or a new value.
            let key = match dice.random_range(0..4) {
                0 => base[..base.len() / 2].to_vec(),
                1 => [&base[..], &[n as u8]].concat(),
                2 => [&base[..base.len().saturating_sub(1)], &[round as u8]].concat(),
                _ => base.clone(),
            };
            let value = vec![round as u8; dice.random_range(0..250_usize)];
            failures += usize::from(!put(&mut bench, &mut model, key, value));
        }
    }
    assert!(failures > 500, "the pool was full only {failures} times");
    bench.assert_holds(&model);
    bench.assert_sound(model.len());
}

/// A bulk load that does not fit leaves the index empty and leaks nothing.
pub(crate) fn a_bulk_load_that_does_not_fit_leaves_nothing<T: Tested>() {
    let mut bench = Bench::<T>::small(1, 4 << 20, 0);
    let pairs = (0..100_000_u64).map(|n| (n.to_be_bytes().to_vec(), vec![0; 100]));
    let error = block_on(bench.index.bulk_load(&mut bench.client, pairs)).unwrap_err();
    assert!(matches!(error, IndexError::Pool(PoolError::OutOfSpace { .. })), "{error}");
    let mut model = Model::new();
    bench.assert_holds(&model);
    bench.assert_sound(0);
    assert!(put(&mut bench, &mut model, b"k".to_vec(), b"v".to_vec()));
    bench.assert_sound(1);
}
