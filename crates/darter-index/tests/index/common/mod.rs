//! Tests that every index must pass, generic over the index. An index's own test file names it
//! ([`Tested`]), and [`index_tests`] defines a test for each function here.

#![allow(clippy::unwrap_used)] // a test may panic

pub(crate) mod against_a_map;
pub(crate) mod contention;
pub(crate) mod cut_short;
#[allow(dead_code)] // only the indexes of a product promise it, and the baselines' tests include this file
pub(crate) mod damage_campaign;
pub(crate) mod damaged;
pub(crate) mod full;

use crate::ground::{Ground, ground};
use darter_fabric::decorate::{Delay, Delaying, Failing};
use darter_fabric::{Counting, Fabric, block_on};
use darter_index::{CheckReport, IndexError, OrderedIndex, Swept};
use darter_pool::{Client, Pool, PoolOptions};
use std::collections::BTreeMap;
use std::future::Future;

/// An index under test, over any fabric.
pub(crate) trait Tested: 'static {
    type Index<F: Fabric>: OrderedIndex<F>;

    /// Cases of each property test. Reduced for indexes in which keys of 64 KiB take many nodes
    /// each.
    const CASES: u32 = 96;

    /// Divides the number of operations of contending threads, for memory that is this much slower.
    const SLOWNESS: u64 = 1;

    /// Minimum number of failures in a script of operations in which each verb fails in turn.
    /// Reduced for indexes in which an operation is one call.
    const FAILURES_MIN: u64 = 500;

    fn options<F: Fabric>() -> <Self::Index<F> as OrderedIndex<F>>::Options {
        Default::default()
    }

    /// An index-specific step that may happen at any time and changes no result.
    fn adjust<F: Fabric>(
        _index: &Self::Index<F>,
        _client: &mut Client<F>,
    ) -> impl Future<Output = Result<(), IndexError>> + Send {
        std::future::ready(Ok(()))
    }
}

/// Defines one test for each function, for an index.
macro_rules! index_tests {
    ($index:ty) => {
        $crate::common::index_tests! { @ $index:
            against_a_map: behaves_like_a_map, bulk_load_equals_inserts, a_large_bulk_load_is_sound,
                values_of_every_size, large_values_are_read_a_few_at_a_time, deleting_everything_leaks_nothing;
            contention: inserts_and_deletes_of_one_key_balance, replace_if_equal_counts_exactly,
                modifications_lose_no_decision,
                own_keys_stay_while_the_tree_changes, tasks_of_one_thread_take_turns, deletes_at_a_time_leave_no_node_behind;
            cut_short: a_check_that_cannot_read_reports_no_damage, fails_at_every_verb, fails_at_every_batch, loses_every_reply, dropped_at_every_await;
            full: full_of_small_values, full_of_middling_values, full_of_large_values, full_at_every_allocation,
                a_bulk_load_that_does_not_fit_leaves_nothing;
            damaged: damaged_words_neither_panic_nor_hang;
        }
    };
    (@ $index:ty: $($module:ident: $($test:ident),+;)+) => {
        $(mod $module {
            use super::*;
            $(#[test]
            fn $test() {
                $crate::common::$module::$test::<$index>();
            })+
        })+
    };
}
pub(crate) use index_tests;

/// Memory that counts, delays and fails on request. All tests use this one type, because each type
/// of fabric compiles an index anew. The test program defines the fabric below it (`ground`).
pub(crate) type TestFabric = Failing<Delaying<Counting<Ground>>>;

/// Returns `nodes` regions of `node_bytes` bytes without delays.
pub(crate) fn memory(node_bytes: u64, nodes: usize) -> TestFabric {
    delayed_memory(node_bytes, nodes, Delay::default())
}

/// Returns `nodes` regions of `node_bytes` bytes with these delays.
pub(crate) fn delayed_memory(node_bytes: u64, nodes: usize, delay: Delay) -> TestFabric {
    over(ground(node_bytes, nodes), delay)
}

/// Returns this memory with these delays.
pub(crate) fn over(ground: Ground, delay: Delay) -> TestFabric {
    Failing::new(Delaying::new(Counting::new(ground), delay))
}

/// The expected content of an index.
pub(crate) type Model = BTreeMap<Vec<u8>, Vec<u8>>;

/// An index in a pool, and one client of it.
pub(crate) struct Bench<T: Tested, F: Fabric = TestFabric> {
    pub(crate) client: Client<F>,
    pub(crate) index: T::Index<F>,
    pub(crate) pool: Pool<F>,
}

impl<T: Tested> Bench<T> {
    /// In this process's memory, with room for many keys of 64 KiB, each of which may take
    /// thousands of nodes.
    pub(crate) fn new(nodes: usize) -> Self {
        Self::on(memory(1 << 30, nodes), &PoolOptions::default())
    }

    /// With little memory, in small blocks, and with hashes from a seed.
    pub(crate) fn small(nodes: usize, node_bytes: u64, seed: u64) -> Self {
        let fabric = memory(node_bytes, nodes);
        let (block_bytes, secret) = (Some(256 << 10), Some([seed, 1, 2, 3]));
        Self::on(fabric, &PoolOptions { block_bytes, secret, ..PoolOptions::default() })
    }
}

impl<T: Tested, F: Fabric> Bench<T, F> {
    /// In a new pool.
    pub(crate) fn on(fabric: F, options: &PoolOptions) -> Self {
        let pool = block_on(Pool::create(fabric, options)).unwrap();
        let mut client = pool.client().unwrap();
        let index = block_on(T::Index::<F>::open_or_create(&mut client, T::options())).unwrap();
        Self { client, index, pool }
    }

    /// Ends this process's membership and begins another; the memory that the first left behind is
    /// swept.
    pub(crate) fn reopened(self) -> Self {
        let Self { client, index, pool } = self;
        let fabric = pool.fabric().clone();
        drop((client, index));
        block_on(pool.close()).unwrap();
        let pool = block_on(Pool::open(fabric)).unwrap();
        let mut client = pool.client().unwrap();
        let index = block_on(T::Index::<F>::open(&mut client, T::options())).unwrap();
        match block_on(index.sweep_dead(&mut client)).unwrap() {
            Swept::Done(report) => {
                assert_eq!(report.violations, Vec::<String>::new());
                assert!(report.finished, "the sweep waits, although there is no other process");
            }
            Swept::Refused(violations) => panic!("{violations:#?}"),
        }
        Self { client, index, pool }
    }

    pub(crate) fn maintain(&mut self) {
        block_on(self.pool.maintain(&mut self.client)).unwrap();
        block_on(self.index.maintain(&mut self.client)).unwrap();
    }

    /// Runs upkeep until every unlinked object is freed.
    pub(crate) fn settle(&mut self) {
        for _ in 0..32 {
            self.maintain();
        }
        block_on(self.pool.settle(&mut self.client)).unwrap();
    }

    pub(crate) fn get(&mut self, key: &[u8]) -> Option<Vec<u8>> {
        block_on(self.index.get(&mut self.client, key)).unwrap()
    }

    pub(crate) fn delete(&mut self, key: &[u8]) -> bool {
        block_on(self.index.delete(&mut self.client, key)).unwrap()
    }

    pub(crate) fn check(&mut self) -> CheckReport {
        block_on(self.index.check(&mut self.client)).unwrap()
    }

    /// Asserts that no invariant is broken, there are `keys` keys, no byte is lost, and both walks
    /// agree.
    pub(crate) fn assert_sound(&mut self, keys: usize) {
        self.settle();
        let report = self.check();
        assert_eq!(report.violations, Vec::<String>::new());
        assert_eq!(report.remarks, Vec::<String>::new());
        assert_eq!(report.stats.keys, keys as u64);
        let audit = block_on(self.pool.audit(&mut self.client, &report.reachable)).unwrap();
        assert_eq!(audit.violations, Vec::<String>::new());
        assert_eq!(audit.leaked_bytes, 0);
        let stats = block_on(self.index.stats(&mut self.client)).unwrap();
        assert_eq!((stats.keys, stats.kv_bytes), (keys as u64, report.stats.kv_bytes));
        assert_eq!(stats.index_bytes, report.stats.index_bytes);
    }

    /// Asserts that the index holds exactly the model's pairs, in whichever way it is read.
    pub(crate) fn assert_holds(&mut self, model: &Model) {
        let all = darter_index::ScanRange::all();
        let expected: Vec<_> = model.clone().into_iter().collect();
        let forward = block_on(self.index.scan(&mut self.client, &all, usize::MAX)).unwrap();
        assert_pairs(&forward, &expected);
        let mut backward = block_on(self.index.scan(&mut self.client, &all.reversed(), usize::MAX)).unwrap();
        backward.reverse();
        assert_pairs(&backward, &expected);
        for (key, value) in model {
            assert!(self.get(key).as_ref() == Some(value), "get {} returns another value", brief(key));
        }
    }
}

fn assert_pairs(found: &[(Vec<u8>, Vec<u8>)], expected: &[(Vec<u8>, Vec<u8>)]) {
    for (at, (found, expected)) in found.iter().zip(expected).enumerate() {
        assert!(found.0 == expected.0, "pair {at}: key {} for {}", brief(&found.0), brief(&expected.0));
        assert!(found.1 == expected.1, "pair {at}: key {} has another value", brief(&found.0));
    }
    assert_eq!(found.len(), expected.len());
}

/// A short form of a key for messages: its length and its end.
fn brief(key: &[u8]) -> String {
    let tail = &key[key.len().saturating_sub(20)..];
    format!("{} bytes …{}", key.len(), tail.escape_ascii())
}

/// One of 65,536 keys of several difficult families.
pub(crate) fn adversarial_key(seed: u16) -> Vec<u8> {
    let low = (seed >> 4) as u8;
    match seed & 15 {
        0 => vec![0; usize::from(low)],
        1 => vec![255; usize::from(low) % 20],
        2 => b"abcdefghijklmnopqrstuvwxyz"[..usize::from(low) % 27].to_vec(),
        3 => [&[7; 300][..], &[low]].concat(),
        4 => [&[7; 300][..], &[low % 3], &[9; 40], &[low]].concat(),
        5 => vec![low, 0, low, 0],
        6 => [&vec![3; 64 * 1024 - 2][..], &[low % 8]].concat(),
        7 => vec![1; 64 * 1024 - usize::from(low % 4)],
        8 => [&b"com.example@"[..], &[b'a' + low % 26], &[b'a' + low / 26]].concat(),
        9 => vec![low],
        _ => vec![5, (seed >> 12) as u8, low],
    }
}
