//! Threads on few keys. Values are unique, so every result can be compared with the values written,
//! and afterwards the tree must be sound, with nothing leaked. No outcome depends on timing; timing
//! only determines which interleavings occur.

use super::{Bench, TestFabric, Tested, adversarial_key, delayed_memory};
use darter_fabric::decorate::Delay;
use darter_fabric::{block_on, run_all};
use darter_index::{Condition, Decision, OrderedIndex, PutOutcome, ScanRange};
use darter_pool::{Client, Pool, PoolOptions};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use std::collections::BTreeSet;
use std::sync::Barrier;
use std::sync::atomic::{AtomicU64, Ordering};

const THREADS: u64 = 4;

fn on_threads<T: Tested>(
    bench: &Bench<T>,
    work: impl Fn(u64, &T::Index<TestFabric>, &Pool<TestFabric>, &mut Client<TestFabric>) + Sync,
) {
    let barrier = Barrier::new(THREADS as usize);
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (barrier, work, index, pool) = (&barrier, &work, &bench.index, &bench.pool);
            scope.spawn(move || {
                let mut client = pool.client().unwrap();
                barrier.wait();
                work(thread, index, pool, &mut client);
            });
        }
    });
}

/// Of all threads that insert a key if it is absent, exactly one succeeds, however often the key is
/// deleted again.
pub(crate) fn inserts_and_deletes_of_one_key_balance<T: Tested>() {
    let mut bench = Bench::<T>::new(2);
    let totals = std::sync::Mutex::new((0_i64, 0_i64));
    on_threads(&bench, |thread, index, pool, client| {
        let mut dice = Pcg64Mcg::seed_from_u64(thread);
        let (mut inserted, mut deleted) = (0, 0);
        for i in 0..20_000 / T::SLOWNESS {
            let key = [b'k', dice.random_range(0..3)];
            if dice.random_bool(0.5) {
                let value = (thread << 32 | i).to_le_bytes();
                match block_on(index.put(client, &key, &value, Condition::Absent)).unwrap() {
                    PutOutcome::Inserted => inserted += 1,
                    PutOutcome::Refused => {}
                    PutOutcome::Replaced => panic!("an insert replaced"),
                }
            } else if block_on(index.delete(client, &key)).unwrap() {
                deleted += 1;
            }
            if i % 256 == 0 {
                block_on(pool.maintain(client)).unwrap();
                block_on(index.maintain(client)).unwrap();
            }
        }
        let mut totals = totals.lock().unwrap();
        totals.0 += inserted;
        totals.1 += deleted;
    });
    let left = block_on(bench.index.scan(&mut bench.client, &ScanRange::all(), 10)).unwrap().len();
    let (inserted, deleted) = *totals.lock().unwrap();
    assert_eq!(inserted - deleted, i64::try_from(left).unwrap());
    bench.assert_sound(left);
}

/// A compare-and-swap counter loses no increment, through all type switches that its neighbours
/// cause.
pub(crate) fn replace_if_equal_counts_exactly<T: Tested>() {
    let rounds = 4_000 / T::SLOWNESS;
    let mut bench = Bench::<T>::new(2);
    on_threads(&bench, |thread, index, _, client| {
        for i in 0..rounds {
            // Neighbours that are inserted and deleted make the counter's node grow, shrink and
            // collapse.
            let neighbour = [(thread * 64 + i % 64) as u8, b'n'];
            if i % 128 < 64 {
                block_on(index.put(client, &neighbour[..1], b"x", Condition::Always)).unwrap();
            } else {
                block_on(index.delete(client, &neighbour[..1])).unwrap();
            }
            loop {
                let old = block_on(index.get(client, b"counter")).unwrap();
                let (condition, count) = match &old {
                    Some(old) => (Condition::Equals(old), u64::from_le_bytes(old[..].try_into().unwrap())),
                    None => (Condition::Absent, 0),
                };
                let new = (count + 1).to_le_bytes();
                if block_on(index.put(client, b"counter", &new, condition)).unwrap() != PutOutcome::Refused {
                    break;
                }
            }
        }
    });
    let count = block_on(bench.index.get(&mut bench.client, b"counter")).unwrap().unwrap();
    assert_eq!(u64::from_le_bytes(count[..].try_into().unwrap()), THREADS * rounds);
    let keys = block_on(bench.index.scan(&mut bench.client, &ScanRange::all(), 1000)).unwrap().len();
    bench.assert_sound(keys);
}

/// Each decision of a modification replaces the value for which it was made: a counter that is
/// removed at every sixteenth step loses no increment.
pub(crate) fn modifications_lose_no_decision<T: Tested>() {
    let rounds = 4_000 / T::SLOWNESS;
    let mut bench = Bench::<T>::new(2);
    let taken = AtomicU64::new(0);
    on_threads(&bench, |_, index, _, client| {
        for _ in 0..rounds {
            let decided = block_on(index.modify(client, b"counter", |old, new| {
                let count = old.map_or(0, |old| u64::from_le_bytes(old.try_into().unwrap())) + 1;
                new.extend_from_slice(&count.to_le_bytes());
                if count == 16 { Decision::Remove } else { Decision::Put }
            }));
            if decided.unwrap() == Decision::Remove {
                taken.fetch_add(16, Ordering::Relaxed);
            }
        }
    });
    let left = block_on(bench.index.get(&mut bench.client, b"counter")).unwrap();
    let count = left.as_ref().map_or(0, |left| u64::from_le_bytes(left[..].try_into().unwrap()));
    assert_eq!(taken.into_inner() + count, THREADS * rounds);
    bench.assert_sound(usize::from(left.is_some()));
}

/// Each thread has its own keys, among adversarial neighbours of all. A thread reads what it wrote,
/// scans include it, and the table grows, splits and is adjusted at the same time.
pub(crate) fn own_keys_stay_while_the_tree_changes<T: Tested>() {
    let mut bench = Bench::<T>::new(3);
    let kept = std::sync::Mutex::new(BTreeSet::new());
    on_threads(&bench, |thread, index, pool, client| {
        let mut dice = Pcg64Mcg::seed_from_u64(99 + thread);
        let mut mine: BTreeSet<Vec<u8>> = BTreeSet::new();
        for i in 0..12_000 / T::SLOWNESS {
            let seed = dice.random::<u16>();
            let key = [&adversarial_key(seed & !15 | 8 | seed & 7)[..], &[thread as u8]].concat();
            if key.len() > 1000 {
                continue;
            }
            match dice.random_range(0..8) {
                0..4 => {
                    block_on(index.put(client, &key, &key, Condition::Always)).unwrap();
                    mine.insert(key);
                }
                4..6 => {
                    assert_eq!(block_on(index.delete(client, &key)).unwrap(), mine.remove(&key));
                }
                6 => {
                    let expected = mine.contains(&key).then(|| key.clone());
                    assert_eq!(block_on(index.get(client, &key)).unwrap(), expected);
                }
                _ => {
                    let from = std::ops::Bound::Included(key.clone());
                    let range = ScanRange { from, to: std::ops::Bound::Unbounded, reverse: false };
                    let seen = block_on(index.scan(client, &range, 30)).unwrap();
                    assert!(seen.windows(2).all(|pair| pair[0].0 < pair[1].0));
                    let last = seen.last().map(|(key, _)| key.clone());
                    let complete = seen.len() < 30;
                    let of_mine: Vec<_> =
                        seen.iter().filter(|(k, _)| k.last() == Some(&(thread as u8))).collect();
                    let expected = mine.range(key..).filter(|k| complete || Some(*k) <= last.as_ref());
                    // Keys that end in this thread's byte are this thread's own: every key ends in
                    // its owner's byte.
                    assert!(of_mine.iter().map(|(key, _)| key).eq(expected), "a scan lost or invented a key");
                }
            }
            if i % 512 == 0 {
                block_on(pool.maintain(client)).unwrap();
                block_on(index.maintain(client)).unwrap();
            }
            if i % 4096 == 1024 * thread {
                block_on(T::adjust(index, client)).unwrap();
            }
        }
        kept.lock().unwrap().extend(mine);
    });
    let kept = kept.into_inner().unwrap();
    let all = block_on(bench.index.scan(&mut bench.client, &ScanRange::all(), usize::MAX)).unwrap();
    assert!(all.iter().map(|(key, _)| key).eq(kept.iter()));
    bench.assert_sound(kept.len());
}

/// Many concurrent operations on one thread, each round trip pending for a while, on two keys: if
/// they wait for each other at all, they do so without blocking the thread.
pub(crate) fn tasks_of_one_thread_take_turns<T: Tested>() {
    const TASKS: u64 = 24;
    const ROUNDS: u64 = 40;
    let delay = Delay { pending_before: 1, pending_after: 2, ..Delay::default() };
    let fabric = delayed_memory(64 << 20, 2, delay);
    let mut bench = Bench::<T, _>::on(fabric, &PoolOptions::default());
    let tasks = (0..TASKS).map(|task| {
        let (index, pool) = (bench.index.clone(), bench.pool.clone());
        async move {
            let mut client = pool.client().unwrap();
            let mut balance = 0_i64;
            for round in 0..ROUNDS {
                let key = [b'k', (round % 2) as u8];
                let value = task.to_le_bytes();
                let put = index.put(&mut client, &key, &value, Condition::Absent).await.unwrap();
                balance += i64::from(put == PutOutcome::Inserted);
                index.put(&mut client, b"shared", &round.to_le_bytes(), Condition::Always).await.unwrap();
                balance -= i64::from(index.delete(&mut client, &key).await.unwrap());
                pool.maintain(&mut client).await.unwrap();
                index.maintain(&mut client).await.unwrap();
            }
            balance
        }
    });
    let balance: i64 = run_all(tasks).into_iter().sum();
    let left = block_on(bench.index.scan(&mut bench.client, &ScanRange::all(), 10)).unwrap().len();
    assert_eq!(balance, i64::try_from(left).unwrap() - 1);
    bench.assert_sound(left);
}

/// Concurrent deletes of all of a node's children but one: each sees the node as it was before all
/// of them, and one of them must still remove the node.
pub(crate) fn deletes_at_a_time_leave_no_node_behind<T: Tested>() {
    for children in 2..=5_u8 {
        let delay = Delay { pending_before: 1, pending_after: 1, ..Delay::default() };
        let mut bench = Bench::<T, _>::on(delayed_memory(64 << 20, 1, delay), &PoolOptions::default());
        let key = |child: u8| vec![b'n', b'o', b'd', b'e', child];
        for key in [b"neighbour".to_vec(), b"other".to_vec()].into_iter().chain((0..children).map(key)) {
            block_on(bench.index.put(&mut bench.client, &key, &key, Condition::Absent)).unwrap();
        }
        let deletes = (1..children).map(|child| {
            let (index, pool) = (bench.index.clone(), bench.pool.clone());
            async move {
                let mut client = pool.client().unwrap();
                index.delete(&mut client, &key(child)).await.unwrap()
            }
        });
        assert!(run_all(deletes).into_iter().all(|was_there| was_there));
        bench.assert_sound(3);
    }
}
