//! Writers that die after each word that they write, and readers that are paused between any two
//! words, driven by hand.

use super::{Design, Wort, WortOptions};
use darter_fabric::block_on;
use darter_index::{Condition, OrderedIndex, Swept};
use darter_pool::{Client, Pool, PoolOptions};
use darter_sim::{EventKind, Executor, Sim, TaskId, WordOrder};
use std::cell::Cell;

const DESIGNS: [Design; 3] = [Design::Wort, Design::Woart, Design::ArtCow];
/// The time for which a process may be silent.
const LEASE_MS: u64 = 5000;
/// Rounds of upkeep in which a lease ends and unlinked objects are freed.
const ROUNDS: usize = 20;

/// Objects of up to this many words are written word by word, larger ones in pieces.
const SMALL_WORDS: u32 = 24;
const LARGE_PIECE: u32 = 20;

/// Lets verbs execute immediately when a test ends; otherwise closing its pool would wait forever
/// for a scheduler.
struct Unscheduled(Sim);

impl Drop for Unscheduled {
    fn drop(&mut self) {
        self.0.schedule(false);
    }
}

/// The operation of the writer that dies.
#[derive(Clone, Copy, Debug)]
enum Act {
    Put(&'static [u8]),
    Delete(&'static [u8]),
}

impl Act {
    const fn key(self) -> &'static [u8] {
        match self {
            Self::Put(key) | Self::Delete(key) => key,
        }
    }
}

/// A tree, a change of it, and operations of others afterwards.
struct Case {
    keys: Vec<Vec<u8>>,
    /// Deleted before.
    former: Vec<Vec<u8>>,
    act: Act,
    /// Put afterwards: their path includes the changed place.
    after: &'static [&'static [u8]],
}

impl Case {
    fn of(keys: &[&[u8]], act: Act, after: &'static [&'static [u8]]) -> Self {
        Self { keys: keys.iter().map(|key| key.to_vec()).collect(), former: Vec::new(), act, after }
    }

    /// A node below a path with this many children.
    fn node(children: u8, former: u8, act: Act) -> Self {
        let key = |nth: u8| vec![b'n', b'o', nth.wrapping_mul(37)];
        let keys = (0..children).map(key).chain([b"x".to_vec()]).collect();
        Self {
            keys,
            former: (children..children + former).map(key).collect(),
            act,
            after: &[b"nn", b"no\xfe"],
        }
    }
}

/// Changes of all kinds.
fn cases() -> Vec<Case> {
    use Act::{Delete, Put};
    let mut cases = vec![
        Case::of(&[], Put(b"a"), &[b"b"]),
        Case::of(&[b"a"], Put(b"ab"), &[b"abc"]),
        Case::of(&[b"a"], Delete(b"a"), &[b"b"]),
        Case::of(&[b"a", b"b"], Put(b"a"), &[b"c"]),
        Case::of(&[b"a", b"b"], Delete(b"a"), &[b"c"]),
        // Above a node whose header holds its path, or the beginning of it.
        Case::of(&[b"abc1", b"abc2", b"x"], Put(b"ab-"), &[b"aX", b"abX", b"abcX"]),
        Case::of(&[b"abc1", b"abc2"], Put(b"b"), &[b"aX", b"abcX"]),
        Case::of(&[b"stem-and-more1", b"stem-and-more2", b"x"], Put(b"stem-X"), &[b"stX", b"stem-aX", b"s"]),
        // A node moves up.
        Case::of(&[b"abc1", b"abc2", b"ab-", b"x"], Delete(b"ab-"), &[b"aX", b"abX", b"abcX"]),
        Case::of(&[b"abc1", b"abc2", b"b"], Delete(b"b"), &[b"aX", b"c"]),
        Case::of(
            &[b"stem-and-more1", b"stem-and-more2", b"stem", b"x"],
            Delete(b"stem"),
            &[b"stX", b"stem-aX"],
        ),
    ];
    for children in [3, 4, 6, 16, 17, 48, 49] {
        cases.push(Case::node(children, 0, Put(b"no\xfd")));
    }
    for (children, former) in [(4, 0), (3, 4), (6, 0), (9, 10), (20, 0), (25, 30), (60, 0)] {
        cases.push(Case::node(children, former, Delete(b"no\x25")));
    }
    cases
}

fn options(design: Design) -> WortOptions {
    WortOptions::of(design)
}

async fn put(index: &Wort<Sim>, client: &mut Client<Sim>, key: &[u8]) {
    index.put(client, key, b"value", Condition::Always).await.unwrap();
}

/// A pool of two processes, which both have the index open.
struct World {
    sim: Sim,
    pool: Pool<Sim>,
    index: Wort<Sim>,
    other: Pool<Sim>,
}

impl World {
    fn new(design: Design, case: &Case) -> Self {
        let sim = Sim::new(1, 4 << 20);
        let secret = Some([1, 2, 3, 4]);
        let pool_options = PoolOptions { block_bytes: Some(256 << 10), lease_ms: LEASE_MS, secret };
        let pool = block_on(Pool::create(sim.clone(), &pool_options)).unwrap();
        let mut client = pool.client().unwrap();
        let index = block_on(async {
            let index = Wort::open_or_create(&mut client, options(design)).await.unwrap();
            for key in case.keys.iter().chain(&case.former) {
                put(&index, &mut client, key).await;
            }
            for key in &case.former {
                assert!(index.delete(&mut client, key).await.unwrap());
            }
            index
        });
        let other = block_on(Pool::open(sim.process(1))).unwrap();
        Self { sim, pool, index, other }
    }

    fn holds(&self, key: &[u8]) -> bool {
        let mut client = self.pool.client().unwrap();
        let get = self.index.get(&mut client, key);
        self.sim.run_alone(1000, get).expect("readers never wait").unwrap().is_some()
    }

    /// Asserts that the unchanged keys are present.
    fn assert_holds(&self, case: &Case, what: &str) {
        for key in case.keys.iter().filter(|key| *key != case.act.key()) {
            assert!(self.holds(key), "{what}: {key:?} is gone");
        }
    }

    async fn maintain(&self, client: &mut Client<Sim>) {
        pass(&self.sim, &self.pool, client).await;
    }

    /// Ends the surviving process. Another one verifies the index and finds no leftovers.
    async fn verify(self, client: Client<Sim>, keys: u64, what: &str) {
        let Self { sim, pool, index, other } = self;
        let options = index.shared.options;
        drop((client, index));
        pool.close().await.unwrap();
        std::mem::forget(other);
        let pool = Pool::open(sim.process(2)).await.unwrap();
        let mut client = pool.client().unwrap();
        let index = Wort::open(&mut client, options).await.unwrap();
        match index.sweep_dead(&mut client).await.unwrap() {
            Swept::Done(report) => assert_eq!(report.violations, Vec::<String>::new(), "{what}"),
            Swept::Refused(violations) => panic!("{what}: {violations:?}"),
        }
        pass(&sim, &pool, &mut client).await;
        pool.settle(&mut client).await.unwrap();
        let report = index.check(&mut client).await.unwrap();
        assert_eq!(report.violations, Vec::<String>::new(), "{what}");
        assert_eq!((report.stats.keys, report.remarks), (keys, Vec::new()), "{what}");
        let audit = pool.audit(&mut client, &report.reachable).await.unwrap();
        assert_eq!((audit.violations, audit.leaked_bytes), (Vec::<String>::new(), 0), "{what}");
        assert_eq!(sim.misuse(), None, "{what}");
    }
}

/// Runs rounds of upkeep in which a lease ends and unlinked objects are freed.
async fn pass(sim: &Sim, pool: &Pool<Sim>, client: &mut Client<Sim>) {
    for _ in 0..ROUNDS {
        sim.advance_ms(LEASE_MS / 4);
        pool.maintain(client).await.unwrap();
    }
}

/// Runs a task until it has written this many times or has ended. Returns whether it has ended.
fn advance(executor: &mut Executor<'_>, task: TaskId, words: u64, order: WordOrder) -> bool {
    let (mut events, mut left) = (Vec::new(), words);
    for _ in 0..100_000 {
        executor.events(&mut events);
        let Some(&event) = events.iter().find(|event| event.task == task) else { break };
        let mut piece = u32::MAX;
        if let EventKind::Execute { access, .. } = event.kind
            && access.writes
        {
            if left == 0 {
                break;
            }
            // Large objects that are not visible yet are written in pieces.
            piece = if access.words > SMALL_WORDS { LARGE_PIECE } else { 1 };
            left -= 1;
        }
        executor.perform(event, piece, order);
    }
    executor.has_ended(task)
}

/// A process dies after each word of a change. Readers continue at once and see the key in the
/// state that it keeps; the next writers take the lock over, and nothing is lost.
fn dies_at_every_word(design: Design, case: &Case, order: WordOrder) {
    for words in 0.. {
        let world = World::new(design, case);
        let what =
            format!("{design:?}, {:?} in {} keys, {words} words, {order:?}", case.act, case.keys.len());
        let _at_the_end = Unscheduled(world.sim.clone());
        let mut executor = Executor::new(&world.sim);
        let mut dying = world.other.client().unwrap();
        let task = executor.spawn(1, async move {
            let index = Wort::open(&mut dying, options(design)).await.unwrap();
            match case.act {
                Act::Put(key) => put(&index, &mut dying, key).await,
                Act::Delete(key) => assert!(index.delete(&mut dying, key).await.unwrap()),
            }
        });
        let has_ended = advance(&mut executor, task, words, order);
        world.assert_holds(case, &what);
        let is_present = world.holds(case.act.key());
        executor.kill(1);
        drop(executor);
        world.sim.schedule(false);
        let mut client = world.pool.client().unwrap();
        block_on(async {
            world.maintain(&mut client).await;
            for key in case.after {
                put(&world.index, &mut client, key).await;
            }
        });
        world.assert_holds(case, &what);
        assert_eq!(world.holds(case.act.key()), is_present, "{what}");
        block_on(async {
            // Through the half-done change, and back.
            put(&world.index, &mut client, case.act.key()).await;
            assert!(world.index.delete(&mut client, case.act.key()).await.unwrap(), "{what}");
            for key in case.after.iter().filter(|key| **key != case.act.key()) {
                assert!(world.index.delete(&mut client, key).await.unwrap(), "{what}");
            }
            world.assert_holds(case, &what);
            let left = case.keys.iter().filter(|key| *key != case.act.key()).count();
            world.verify(client, left as u64, &what).await;
        });
        if has_ended {
            assert!(words > 2, "{what}");
            return;
        }
    }
}

#[test]
fn a_writer_may_die_at_every_word() {
    for design in DESIGNS {
        for case in cases() {
            for order in [WordOrder::Ascending, WordOrder::Descending] {
                dies_at_every_word(design, &case, order);
            }
        }
    }
}

/// A search is paused after each word that it reads, while a writer runs to its end.
#[test]
fn a_search_between_any_two_words_finds_what_stays() {
    for design in DESIGNS {
        for case in cases() {
            for key in case.keys.iter().filter(|key| *key != case.act.key()).take(3) {
                for words in 0.. {
                    let world = World::new(design, &case);
                    let _at_the_end = Unscheduled(world.sim.clone());
                    let found = Cell::new(false);
                    let (mut reading, mut writing) =
                        (world.pool.client().unwrap(), world.pool.client().unwrap());
                    let mut executor = Executor::new(&world.sim);
                    let reader = executor.spawn(0, async {
                        found.set(world.index.get(&mut reading, key).await.unwrap().is_some());
                    });
                    let has_ended = read(&mut executor, reader, words);
                    let writer = executor.spawn(0, async {
                        match case.act {
                            Act::Put(key) => put(&world.index, &mut writing, key).await,
                            Act::Delete(key) => {
                                assert!(world.index.delete(&mut writing, key).await.unwrap());
                            }
                        }
                    });
                    assert!(advance(&mut executor, writer, u64::MAX, WordOrder::Ascending));
                    assert!(advance(&mut executor, reader, u64::MAX, WordOrder::Ascending));
                    drop(executor);
                    world.sim.schedule(false);
                    assert!(found.get(), "{design:?}, {:?}: {key:?} after {words} words", case.act);
                    if has_ended {
                        break;
                    }
                }
            }
        }
    }
}

/// Runs a reader until it has read this many words or has ended. Returns whether it has ended.
fn read(executor: &mut Executor<'_>, task: TaskId, words: u64) -> bool {
    let (mut events, mut left) = (Vec::new(), words);
    while !executor.has_ended(task) {
        executor.events(&mut events);
        let Some(&event) = events.iter().find(|event| event.task == task) else { break };
        let mut piece = u32::MAX;
        if matches!(event.kind, EventKind::Execute { .. }) {
            if left == 0 {
                break;
            }
            // Small nodes word by word, large ones in pieces.
            (piece, left) = (5, left - 1);
        }
        executor.perform(event, piece, WordOrder::Ascending);
    }
    executor.has_ended(task)
}
