//! Tests of processes that may only read: their searches, scans and checks change no word of the
//! pool, wherever a process that writes stops, and they see what any process would.

use crate::fixtures::{LEASE_MS, Unscheduled, advance, executes, process_on};
use crate::{
    Access, Commit, Condition, Dart, DartOptions, IndexError, OrderedIndex, Quiver, QuiverOptions, ScanRange,
    Write,
};
use darter_fabric::{Reading, block_on};
use darter_pool::{Client, Pool, PoolError};
use darter_sim::{Executor, Sim};
use std::collections::BTreeMap;

type Map = BTreeMap<Vec<u8>, Vec<u8>>;

/// A process that may only read.
struct Reader<I> {
    fabric: Reading<Sim>,
    pool: Pool<Reading<Sim>>,
    client: Client<Reading<Sim>>,
    index: I,
}

impl<I: OrderedIndex<Reading<Sim>>> Reader<I> {
    fn open(sim: &Sim, options: I::Options) -> Self {
        block_on(async {
            let fabric = Reading::new(sim.process(1));
            let pool = Pool::open(fabric.clone()).await.unwrap();
            let mut client = pool.client().unwrap();
            let index = I::open(&mut client, options).await.unwrap();
            Self { fabric, pool, client, index }
        })
    }

    /// Reads all keys in every way, and does what upkeep does.
    async fn read_all(&mut self, keys: &[Vec<u8>]) -> Map {
        let Self { pool, client, index, .. } = self;
        let mut found = Map::new();
        for key in keys {
            if let Some(value) = index.get(client, key).await.unwrap() {
                found.insert(key.clone(), value);
            }
        }
        pool.maintain(client).await.unwrap();
        index.maintain(client).await.unwrap();
        index.adapt(client).await.unwrap();
        found
    }

    async fn scan(&mut self) -> Map {
        self.index.scan(&mut self.client, &ScanRange::all(), usize::MAX).await.unwrap().into_iter().collect()
    }

    /// Ends the process, which has changed nothing.
    fn end(self) {
        let Self { fabric, pool, client, index } = self;
        drop((client, index));
        block_on(pool.close()).unwrap();
        assert_eq!(fabric.refused(), 0);
    }
}

fn key(number: u32) -> Vec<u8> {
    format!("key/{:03}/{}", number % 97, number).into_bytes()
}

/// Fills an index, moves all values out of their pages, and reads everything often enough that a
/// process that may write would fold pages, count accesses and adapt.
fn reads_change_nothing<W, R>(options: W::Options)
where
    W: OrderedIndex<Sim>,
    R: OrderedIndex<Reading<Sim>, Options = W::Options>,
{
    let sim = Sim::new(2, 8 << 20);
    let (pool, index) = process_on::<W>(&sim, options.clone(), &[]);
    let mut client = pool.client().unwrap();
    let mut map = Map::new();
    block_on(async {
        for round in 0..3_u32 {
            for number in 0..300 {
                let value = format!("{round}/{number}").into_bytes();
                index.put(&mut client, &key(number), &value, Condition::Always).await.unwrap();
                map.insert(key(number), value);
            }
        }
    });
    let mut reader = Reader::<R>::open(&sim, options);
    let keys: Vec<_> = (0..310).map(key).collect();
    block_on(async {
        for round in 0..40 {
            assert_eq!(reader.read_all(&keys).await, map, "round {round}");
            // The epoch moves on, which ends what the process remembers of it.
            pool.maintain(&mut client).await.unwrap();
        }
        assert_eq!(reader.scan().await, map);
        let Reader { pool, client, index, .. } = &mut reader;
        let borrowed: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
        let values = index.multi_get(client, &borrowed).await.unwrap();
        assert_eq!(values.into_iter().flatten().count(), map.len());
        let report = index.check(client).await.unwrap();
        assert_eq!((report.violations, report.stats.keys), (Vec::new(), map.len() as u64));
        let audit = pool.audit(client, &report.reachable).await.unwrap();
        assert_eq!(audit.violations, Vec::<String>::new());
        assert_eq!(index.stats(client).await.unwrap().keys, map.len() as u64);
        let error = index.put(client, b"new", b"value", Condition::Always).await.unwrap_err();
        assert!(matches!(error, IndexError::Pool(PoolError::ReadOnly)), "{error}");
    });
    reader.end();
    assert_eq!(sim.misuse(), None);
}

#[test]
fn searches_of_quiver_change_nothing() {
    let options = QuiverOptions { hot_words: false, ..QuiverOptions::default() };
    reads_change_nothing::<Quiver<Sim>, Quiver<Reading<Sim>>>(options);
}

#[test]
fn searches_of_dart_change_nothing() {
    let options = DartOptions { frequency_every: 2, ..DartOptions::default() };
    reads_change_nothing::<Dart<Sim>, Dart<Reading<Sim>>>(options);
}

/// Small pages: the sixth key splits one.
const SMALL: fn() -> QuiverOptions =
    || QuiverOptions { page_records: 3, page_delta: 2, cache_bytes: 0, ..QuiverOptions::default() };

/// Stops a process that writes after each verb of `change`, which goes from the first of some states
/// to the last, and lets one that only reads read everything then, and once more after the first has
/// died there. The reader sees one of these states.
fn reads_at_each_verb(states: &[Map], change: &impl AsyncFn(&Quiver<Sim>, &mut Client<Sim>)) {
    let keys: Vec<_> = states.iter().flat_map(Map::keys).cloned().collect();
    for verbs in 0.. {
        let sim = Sim::new(1, 8 << 20);
        let (pool, quiver) = process_on::<Quiver<Sim>>(&sim, SMALL(), &[]);
        let _at_the_end = Unscheduled(sim.clone());
        let mut client = pool.client().unwrap();
        block_on(async {
            for (key, value) in &states[0] {
                quiver.put(&mut client, key, value, Condition::Always).await.unwrap();
            }
        });
        let mut reader = Reader::<Quiver<Reading<Sim>>>::open(&sim, SMALL());
        let mut executor = Executor::new(&sim);
        let task = executor.spawn(0, async { change(&quiver, &mut client).await });
        let has_ended = advance(&mut executor, task, verbs, executes);
        let look = |reader: &mut Reader<Quiver<Reading<Sim>>>| {
            let both = async { (reader.read_all(&keys).await, reader.scan().await) };
            let (found, scanned) = sim.run_alone(1 << 20, both).expect("a reader waits for no other process");
            assert_eq!(found, scanned, "after {verbs} verbs");
            assert!(states.contains(&found), "after {verbs} verbs: {found:?}");
            found
        };
        let seen = look(&mut reader);
        assert!(!has_ended || Some(&seen) == states.last());
        if !has_ended {
            executor.kill(0);
        }
        drop(executor);
        sim.advance_ms(LEASE_MS * 2);
        assert_eq!(look(&mut reader), seen, "its death changes nothing");
        sim.schedule(false);
        reader.end();
        assert_eq!(sim.misuse(), None);
        if has_ended {
            assert!(verbs > 2);
            return;
        }
    }
}

fn map_of(pairs: &[(&str, &str)]) -> Map {
    pairs.iter().map(|(key, value)| (key.as_bytes().to_vec(), value.as_bytes().to_vec())).collect()
}

#[test]
fn a_reader_sees_a_transaction_as_a_whole_and_does_not_settle_it() {
    let before =
        map_of(&[("a", "1"), ("b", "1"), ("c", "1"), ("d", "1"), ("e", "1"), ("f", "1"), ("x", "1")]);
    let mut after = before.clone();
    after.insert(b"a".to_vec(), b"2".to_vec());
    after.insert(b"n".to_vec(), b"2".to_vec());
    after.remove(&b"x"[..]);
    reads_at_each_verb(&[before, after], &async |quiver, client| {
        let put = |key: &'static [u8], read: Option<Option<&'static [u8]>>| Access {
            key,
            read,
            version: None,
            write: Some(Write::Put(b"2")),
        };
        let accesses = [
            put(b"a", Some(Some(b"1"))),
            put(b"n", Some(None)),
            Access { key: b"x", read: Some(Some(b"1")), version: None, write: Some(Write::Remove) },
        ];
        assert_eq!(quiver.commit(client, &accesses, 0).await.unwrap(), Commit::Done);
    });
}

#[test]
fn a_reader_passes_pages_that_are_being_replaced_and_does_not_replace_them() {
    let keys: Vec<String> = (0..10).map(|number| format!("k{number}")).collect();
    let states: Vec<Map> = (5..=keys.len())
        .map(|count| keys[..count].iter().map(|key| (key.clone().into_bytes(), b"1".to_vec())).collect())
        .collect();
    reads_at_each_verb(&states, &async |quiver, client| {
        for key in &keys[5..] {
            quiver.put(client, key.as_bytes(), b"1", Condition::Absent).await.unwrap();
        }
    });
}
