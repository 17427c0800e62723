//! Tests over local memory: against a map with tiny caches, splits, owners, failures.

use super::{Dex, DexOptions, DexService, DexValues, Offload};
use crate::sync::lock;
use darter_fabric::decorate::{FailPlan, FailPoint, Failing};
use darter_fabric::{Counting, Local, block_on, run_all};
use darter_index::{Condition, IndexError, OrderedIndex, PutOutcome, ScanRange};
use darter_pool::{Client, Pool, PoolOptions};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use std::collections::BTreeMap;
use std::ops::Bound;

type Memory = Failing<Counting<Local>>;
type Model = BTreeMap<Vec<u8>, Vec<u8>>;

const CALLS: Offload = Offload::Fixed { call_ns: 3000, read_ns: 2000 };

/// A pool with an index, whose memory nodes serve procedures.
struct World {
    pool: Pool<Memory>,
    plan: FailPlan,
    client: Client<Memory>,
    index: Dex<Memory>,
    options: DexOptions,
}

impl World {
    fn new(options: DexOptions) -> Self {
        let memory = Local::memory(64 << 20, 2).unwrap();
        let served = (0..2).fold(memory.clone(), |served, node| {
            served.with_procedures(node, DexService::new(&memory).procedures()).unwrap()
        });
        let fabric = Failing::new(Counting::new(served));
        let plan = fabric.plan().clone();
        let pool_options = PoolOptions { secret: Some([1, 2, 3, 4]), ..PoolOptions::default() };
        let pool = block_on(Pool::create(fabric, &pool_options)).unwrap();
        let mut client = pool.client().unwrap();
        let index = block_on(Dex::open_or_create(&mut client, options.clone())).unwrap();
        Self { pool, plan, client, index, options }
    }

    fn put(&mut self, key: u64, value: &[u8]) -> PutOutcome {
        block_on(self.index.put(&mut self.client, &key.to_be_bytes(), value, Condition::Always)).unwrap()
    }

    fn get(&mut self, key: u64) -> Option<Vec<u8>> {
        block_on(self.index.get(&mut self.client, &key.to_be_bytes())).unwrap()
    }

    fn scan(&mut self, range: &ScanRange, limit: usize) -> Vec<(Vec<u8>, Vec<u8>)> {
        block_on(self.index.scan(&mut self.client, range, limit)).unwrap()
    }

    /// Opens the index again with an empty cache; what was not written is lost.
    fn reopen(&mut self) {
        self.index = block_on(Dex::open(&mut self.client, self.options.clone())).unwrap();
    }

    /// Asserts that the index holds exactly these pairs, and that no byte is lost.
    fn assert_holds(&mut self, model: &Model) {
        let expected: Vec<_> = model.clone().into_iter().collect();
        let all = ScanRange::all();
        assert_eq!(self.scan(&all, usize::MAX), expected);
        let mut backward = self.scan(&all.reversed(), usize::MAX);
        backward.reverse();
        assert_eq!(backward, expected);
        lock(&self.index.shared.cache).assert_sound();
        self.assert_sound(model.len());
    }

    fn assert_sound(&mut self, keys: usize) {
        block_on(async {
            let report = self.index.check(&mut self.client).await.unwrap();
            assert_eq!((report.violations, report.remarks), (Vec::<String>::new(), Vec::new()));
            assert_eq!(report.stats.keys, keys as u64);
            for _ in 0..32 {
                self.pool.maintain(&mut self.client).await.unwrap();
            }
            self.pool.settle(&mut self.client).await.unwrap();
            let audit = self.pool.audit(&mut self.client, &report.reachable).await.unwrap();
            assert_eq!((audit.violations, audit.leaked_bytes), (Vec::<String>::new(), 0));
        });
    }
}

fn key(number: u64) -> Vec<u8> {
    number.to_be_bytes().to_vec()
}

fn variants() -> impl Iterator<Item = DexOptions> {
    [false, true].into_iter().flat_map(|write_through| {
        [DexValues::Inline, DexValues::Blocks].into_iter().flat_map(move |values| {
            [Offload::Off, CALLS, Offload::Measured].into_iter().map(move |offload| DexOptions {
                cache_bytes: 20 << 10,
                write_through,
                values,
                offload,
                ..DexOptions::default()
            })
        })
    })
}

#[test]
fn behaves_like_a_map_with_a_tiny_cache() {
    for options in variants() {
        let mut world = World::new(options.clone());
        let (mut model, mut dice) = (Model::new(), Pcg64Mcg::seed_from_u64(7));
        for turn in 0..30_000 {
            let number = dice.random_range(0..6000_u64) << 20;
            let len = if options.values == DexValues::Inline { 8 } else { dice.random_range(0..40) };
            let value: Vec<u8> = (0..len).map(|_| dice.random()).collect();
            let (index, client, at) = (&world.index, &mut world.client, key(number));
            match dice.random_range(0..10) {
                0..5 => {
                    let outcome = block_on(index.put(client, &at, &value, Condition::Always)).unwrap();
                    let old = model.insert(at, value);
                    assert_eq!(outcome == PutOutcome::Replaced, old.is_some());
                }
                5 => {
                    let expected = model.get(&at).filter(|_| dice.random()).unwrap_or(&value).clone();
                    let condition = Condition::Equals(&expected);
                    let outcome = block_on(index.put(client, &at, &value, condition)).unwrap();
                    let holds = model.get(&at) == Some(&expected);
                    assert_eq!(outcome == PutOutcome::Replaced, holds);
                    if holds {
                        model.insert(at, value);
                    }
                }
                6 => {
                    let outcome = block_on(index.put(client, &at, &value, Condition::Absent)).unwrap();
                    assert_eq!(outcome == PutOutcome::Inserted, !model.contains_key(&at));
                    model.entry(at).or_insert(value);
                }
                7 => {
                    let is_gone = block_on(index.delete(client, &at)).unwrap();
                    assert_eq!(is_gone, model.remove(&at).is_some());
                }
                8 => assert_eq!(world.get(number), model.get(&at).cloned()),
                _ => {
                    let from = Bound::Excluded(at.clone());
                    let range = ScanRange { from: from.clone(), to: Bound::Unbounded, reverse: false };
                    let expected: Vec<_> =
                        model.range::<Vec<u8>, _>((from, Bound::Unbounded)).take(5).collect();
                    let found = world.scan(&range, 5);
                    assert!(found.iter().map(|(key, value)| (key, value)).eq(expected), "{turn}");
                }
            }
        }
        world.assert_holds(&model);
        world.reopen();
        world.assert_holds(&model);
    }
}

#[test]
fn keys_at_both_ends_are_kept() {
    let mut world = World::new(DexOptions { cache_bytes: 0, ..DexOptions::default() });
    let mut model = Model::new();
    for number in (0..100).chain((0..100).map(|number| u64::MAX - number)) {
        world.put(number, &[1; 8]);
        model.insert(key(number), vec![1; 8]);
    }
    world.assert_holds(&model);
    let range =
        ScanRange { from: Bound::Included(vec![0, 0]), to: Bound::Excluded(vec![0xff]), reverse: true };
    assert_eq!(world.scan(&range, usize::MAX).len(), 100);
}

#[test]
fn loads_equal_inserts() {
    for values in [DexValues::Inline, DexValues::Blocks] {
        for count in [1, 30, 1800, 60_000_u64] {
            let options = DexOptions { values, cache_bytes: 100 << 10, ..DexOptions::default() };
            let mut world = World::new(options);
            let model: Model = (0..count).map(|number| (key(number * 3), key(number))).collect();
            let loaded = block_on(world.index.bulk_load(&mut world.client, model.clone().into_iter()));
            assert_eq!(loaded.unwrap(), count);
            world.assert_holds(&model);
            let again = block_on(world.index.bulk_load(&mut world.client, model.clone().into_iter()));
            assert!(matches!(again.unwrap_err(), IndexError::NotEmpty));
        }
    }
    let mut world = World::new(DexOptions::default());
    let pairs = vec![(key(2), key(2)), (key(1), key(1))];
    let error = block_on(world.index.bulk_load(&mut world.client, pairs.into_iter())).unwrap_err();
    assert!(matches!(error, IndexError::NotSorted { at: 1 }));
    world.assert_holds(&Model::new());
}

#[test]
fn other_lengths_owners_and_indexes_are_refused() {
    let mut world = World::new(DexOptions { bounds: vec![1000], ..DexOptions::default() });
    let (index, client) = (world.index.clone(), &mut world.client);
    let mut put =
        |key: &[u8], value: &[u8]| block_on(index.put(client, key, value, Condition::Always)).unwrap_err();
    let text = put(&[1; 7], &[1; 8]).to_string();
    assert!(text.starts_with("key of 7 bytes: this index holds keys of 8 bytes only"), "{text}");
    assert!(matches!(put(&key(1), &[1; 9]), IndexError::WrongLength { what: "value", bytes: 9, .. }));
    assert!(put(&key(1000), &[1; 8]).to_string().contains("another owner"));
    assert_eq!((index.owner_of(&key(999)).unwrap(), index.owner_of(&key(1000)).unwrap()), (0, 1));
    let open = |options| block_on(Dex::open(&mut world.pool.client().unwrap(), options)).map(drop);
    assert!(open(DexOptions { owner: 1, ..DexOptions::default() }).is_ok());
    assert!(open(DexOptions { owner: 2, ..DexOptions::default() }).is_err());
    assert!(DexOptions { bounds: vec![5, 6], ..DexOptions::default() }.verify().is_err());
    assert!(DexOptions { bounds: vec![1], ..DexOptions::default() }.verify().is_err());
}

/// Owners insert in turns, so that shared pages are split by one owner and outdated at the others.
#[test]
fn owners_grow_one_tree() {
    for write_through in [false, true] {
        let bounds: Vec<u64> = (1..4).map(|owner| owner << 40).collect();
        let options = DexOptions { bounds, cache_bytes: 20 << 10, write_through, ..DexOptions::default() };
        let mut world = World::new(options.clone());
        let mut owners: Vec<_> = (0..4)
            .map(|owner| {
                let mut client = world.pool.client().unwrap();
                let options = DexOptions { owner, ..options.clone() };
                (block_on(Dex::open(&mut client, options)).unwrap(), client)
            })
            .collect();
        let (mut model, mut dice) = (Model::new(), Pcg64Mcg::seed_from_u64(3));
        for turn in 0..40_000_u64 {
            let owner = dice.random_range(0..4_usize);
            let at = key((owner as u64) << 40 | dice.random_range(0..20_000_u64));
            let (index, client) = &mut owners[owner];
            if turn % 3 < 2 {
                block_on(index.put(client, &at, &key(turn), Condition::Always)).unwrap();
                model.insert(at, key(turn));
            } else {
                assert_eq!(block_on(index.get(client, &at)).unwrap().as_ref(), model.get(&at));
            }
        }
        let mut found = Vec::new();
        for (index, client) in &mut owners {
            found.extend(block_on(index.scan(client, &ScanRange::all(), usize::MAX)).unwrap());
            block_on(index.flush(client)).unwrap();
        }
        assert!(found.into_iter().eq(model.clone()));
        drop(owners);
        world.reopen();
        world.assert_sound(model.len());
    }
}

/// Clients of one owner work at the same time.
#[test]
fn clients_of_an_owner_take_turns() {
    for options in variants().filter(|options| options.offload != Offload::Measured) {
        let mut world = World::new(options);
        let mut clients: Vec<_> = (0..6).map(|_| world.pool.client().unwrap()).collect();
        for client in &mut clients {
            client.set_yielding(true);
        }
        let index = &world.index;
        run_all(clients.iter_mut().zip(0_u64..).map(|(client, own)| async move {
            for turn in 0..3000_u64 {
                let at = key(turn * 7919 % 3000 * 6 + own);
                index.put(client, &at, &key(turn), Condition::Absent).await.unwrap();
                let counter = key(u64::MAX - turn % 50);
                loop {
                    let old = index.get(client, &counter).await.unwrap();
                    let count = old.as_ref().map_or(0, |old| u64::from_be_bytes(old[..].try_into().unwrap()));
                    let condition = old.as_deref().map_or(Condition::Absent, Condition::Equals);
                    let new = key(count + 1);
                    if index.put(client, &counter, &new, condition).await.unwrap() != PutOutcome::Refused {
                        break;
                    }
                }
            }
        }));
        drop(clients);
        for counter in 0..50 {
            assert_eq!(world.get(u64::MAX - counter), Some(key(6 * 60)));
        }
        world.assert_sound(18_050);
    }
}

/// A put fails at every verb in turn: the old value or the new one is there.
#[test]
fn failed_operations_leave_the_old_value_or_the_new_one() {
    for options in variants().filter(|options| options.offload != Offload::Measured) {
        let mut world = World::new(options);
        let (mut model, mut failures) = (Model::new(), 0);
        let loaded: Model = (0..30_000_u64).map(|number| (key(number << 8), key(number))).collect();
        block_on(world.index.bulk_load(&mut world.client, loaded.clone().into_iter())).unwrap();
        model.extend(loaded);
        for number in 0..600_u64 {
            let at = (number * 7919 % 30_000) * 256 + number % 3;
            for verb in 0.. {
                if number % 2 == 0 {
                    world.plan.fail_once(FailPoint::Verb(verb));
                } else {
                    world.plan.fail_once(FailPoint::Reply(verb));
                }
                let (at_key, value) = (key(at), key(number));
                let put = world.index.put(&mut world.client, &at_key, &value, Condition::Always);
                let outcome = block_on(put);
                let failed = world.plan.has_failed();
                world.plan.heal();
                failures += u32::from(outcome.is_err());
                if outcome.is_ok() && !failed {
                    model.insert(key(at), key(number));
                    break;
                }
                let found = world.get(at);
                assert!(found.as_ref() == model.get(&key(at)) || found == Some(key(number)), "{found:?}");
                if let Some(found) = found {
                    model.insert(key(at), found);
                }
            }
        }
        assert!(failures > 500, "only {failures} failures");
        let all = world.scan(&ScanRange::all(), usize::MAX);
        assert!(all.into_iter().eq(model.clone()));
        let report = block_on(world.index.check(&mut world.client)).unwrap();
        assert_eq!((report.violations, report.stats.keys), (Vec::<String>::new(), model.len() as u64));
    }
}

/// With write-back a death loses acknowledged changes; with write-through it loses none.
#[test]
fn a_death_loses_what_was_not_written() {
    for write_through in [false, true] {
        let options = DexOptions { write_through, cache_bytes: 40 << 10, ..DexOptions::default() };
        let mut world = World::new(options);
        let mut model = Model::new();
        for number in 0..5000_u64 {
            let at = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
            world.put(at, &key(number));
            model.insert(key(at), key(number));
        }
        world.reopen();
        let found = world.scan(&ScanRange::all(), usize::MAX);
        assert!(found.iter().all(|(key, value)| model.get(key) == Some(value)));
        let is_whole = found.len() == model.len();
        assert_eq!(is_whole, write_through, "{} of {}", found.len(), model.len());
        // The index goes on.
        for at in model.keys() {
            block_on(world.index.put(&mut world.client, at, &[7; 8], Condition::Always)).unwrap();
        }
        assert_eq!(world.scan(&ScanRange::all(), usize::MAX).len(), model.len());
        let report = block_on(world.index.check(&mut world.client)).unwrap();
        assert_eq!((report.violations, report.stats.keys), (Vec::<String>::new(), 5000));
    }
}
