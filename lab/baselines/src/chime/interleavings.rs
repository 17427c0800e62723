//! Races of hops, splits and merges, and states after interrupted puts, driven by hand on leaves
//! whose entries are where the test wants them.

use super::{Chime, ChimeOptions};
use crate::Records;
use crate::operation::Operation;
use crate::sherman::entry::key_words;
use crate::sherman::hopscotch::home_of;
use crate::sherman::page::{Aim, Page};
use darter_fabric::decorate::{FailPoint, Failing};
use darter_fabric::{Fabric, Local, OpKind, block_on};
use darter_index::{Condition, OrderedIndex, ScanRange};
use darter_pool::{Client, Pool, PoolOptions};
use darter_sim::{EventKind, Executor, Sim, TaskId, WordOrder};
use std::cell::{Cell, RefCell};
use std::ops::Bound;

/// Slots of a leaf: two neighbourhoods.
const SPAN: u64 = 16;
/// Distance between loaded keys: room for keys of any home.
const STEP: u64 = 1 << 16;

fn options() -> ChimeOptions {
    let small = ChimeOptions { span: SPAN as u8, node_bytes: 512, lock_words: 64, ..ChimeOptions::default() };
    ChimeOptions { fill_percent: 100, hot_spot_percent: 0, ..small }
        .records(Records::Inline { key_bytes: 8, value_bytes: 8 })
}

fn key(number: u64) -> [u8; 8] {
    number.to_be_bytes()
}

/// Full leaves with the same places and homes each time.
fn loaded<F: Fabric>(fabric: F) -> (Pool<F>, Chime<F>) {
    let secret = Some([0x9e37_79b9_7f4a_7c15, 5, 7, 9]);
    let pool_options = PoolOptions { secret, block_bytes: Some(256 << 10), ..PoolOptions::default() };
    let pool = block_on(Pool::create(fabric, &pool_options)).unwrap();
    let mut client = pool.client().unwrap();
    let chime = block_on(Chime::open_or_create(&mut client, options())).unwrap();
    let pairs = (1..=5 * SPAN).map(|number| (key(number * STEP).to_vec(), vec![7; 8]));
    block_on(chime.bulk_load(&mut client, pairs)).unwrap();
    drop(client);
    (pool, chime)
}

/// Returns the leaf of a key, found from the root.
async fn leaf_of<F: Fabric>(chime: &Chime<F>, client: &mut Client<F>, number: u64) -> Box<Page> {
    let mut operation = Operation::pin(&*chime.tree.shared, client, OpKind::Maintain).await.unwrap();
    operation.page_at(Aim::At(&key(number)), 0, true).await.unwrap().unwrap()
}

async fn put<F: Fabric>(chime: &Chime<F>, client: &mut Client<F>, number: u64) {
    chime.put(client, &key(number), &[7; 8], Condition::Always).await.unwrap();
}

async fn holds<F: Fabric>(chime: &Chime<F>, client: &mut Client<F>, number: u64) -> bool {
    chime.get(client, &key(number)).await.unwrap().is_some()
}

/// Returns the numbers of the keys that a leaf holds.
fn numbers<F: Fabric>(chime: &Chime<F>, leaf: &Page) -> Vec<u64> {
    let entries = leaf.entries(&chime.tree.shared.format);
    let mut numbers: Vec<u64> = entries.map(|entry| entry.key[0]).collect();
    numbers.sort_unstable();
    numbers
}

/// Returns the slot of a key in a leaf.
fn slot_of<F: Fabric>(chime: &Chime<F>, leaf: &Page, number: u64) -> Option<usize> {
    let format = &chime.tree.shared.format;
    let key_of = |slot| leaf.entry(format, slot).entry().map(|entry| entry.key[0]);
    (0..leaf.slots(format)).find(|&slot| key_of(slot) == Some(number))
}

/// A key of the second leaf.
const MIDDLE: u64 = 24 * STEP;

/// The content of a leaf in which a put must move another entry.
struct Crowded {
    /// Keys in slots 0 to 7, by slot; the first two have home 0, the others the slot's own home.
    present: Vec<u64>,
    /// Was in slot 8 and was deleted.
    deleted: u64,
    /// An absent key of home 0: the entry in slot 2 makes room for it.
    hops: u64,
    /// An absent key of home 8.
    plain: u64,
}

/// Puts keys after one until its leaf is more than three quarters full.
async fn fill<F: Fabric>(chime: &Chime<F>, client: &mut Client<F>, first: u64) {
    let before = leaf_of(chime, client, first).await;
    for number in first + 1.. {
        let leaf = leaf_of(chime, client, first).await;
        assert_eq!(leaf.sibling, before.sibling, "the leaf splits before it is full enough");
        if numbers(chime, &leaf).len() as u64 * 4 > SPAN * 3 {
            break;
        }
        put(chime, client, number).await;
    }
}

/// Empties the second leaf and half fills it.
async fn crowd<F: Fabric>(chime: &Chime<F>, client: &mut Client<F>) -> Crowded {
    let format = &chime.tree.shared.format;
    let layout = format.layout().unwrap();
    let leaf = leaf_of(chime, client, MIDDLE).await;
    let former = numbers(chime, &leaf);
    let mut fresh = former[former.len() / 2] + 1..;
    let mut of_home = |home| {
        fresh.find(|&number| home_of(format, layout, &key_words(format, &key(number), 0)) == home).unwrap()
    };
    let present: Vec<u64> = [0, 0, 2, 3, 4, 5, 6, 7].into_iter().map(&mut of_home).collect();
    let (deleted, hops, plain) = (of_home(8), of_home(0), of_home(8));
    // So that the two leaves do not merge.
    fill(chime, client, former[former.len() - 1] + STEP).await;
    // Nor may a leaf become empty. The remaining keys do not interfere.
    let is_kept = |number: &u64| slot_of(chime, &leaf, *number).is_some_and(|slot| slot > 9);
    let kept = former.iter().copied().find(is_kept).unwrap();
    for number in former.into_iter().filter(|&number| number != kept) {
        assert!(chime.delete(client, &key(number)).await.unwrap());
    }
    for &number in present.iter().chain([&deleted]) {
        put(chime, client, number).await;
    }
    assert!(chime.delete(client, &key(deleted)).await.unwrap());
    let after = leaf_of(chime, client, MIDDLE).await;
    let slots: Vec<_> = present.iter().map(|&number| slot_of(chime, &after, number)).collect();
    assert_eq!((after.addr, slots), (leaf.addr, (0..8).map(Some).collect()));
    Crowded { present, deleted, hops, plain }
}

/// A put is interrupted after each of its verbs. Present keys are there once, and can be deleted;
/// deleted keys stay deleted.
#[test]
fn a_put_cut_short_loses_doubles_and_revives_nothing() {
    for hops in [true, false] {
        for at in 0.. {
            let fabric = Failing::new(Local::memory(8 << 20, 1).unwrap());
            let (pool, chime) = loaded(fabric.clone());
            let mut client = pool.client().unwrap();
            let crowded = block_on(crowd(&chime, &mut client));
            let new = if hops { crowded.hops } else { crowded.plain };
            fabric.plan().fail_once(FailPoint::Verb(at));
            let outcome = block_on(chime.put(&mut client, &key(new), &[7; 8], Condition::Always));
            let has_failed = fabric.plan().has_failed();
            fabric.plan().heal();
            let what = format!("hops: {hops}, cut short at verb {at}");
            block_on(async {
                let other = Chime::open(&mut client, options()).await.unwrap();
                assert!(!holds(&other, &mut client, crowded.deleted).await, "{what}");
                let is_in = holds(&other, &mut client, new).await;
                assert!(is_in || outcome.is_err(), "{what}");
                for &number in &crowded.present {
                    assert!(holds(&other, &mut client, number).await, "{what}");
                    assert!(other.delete(&mut client, &key(number)).await.unwrap(), "{what}");
                    assert!(!holds(&other, &mut client, number).await, "{what}");
                }
                assert_eq!(other.delete(&mut client, &key(new)).await.unwrap(), is_in, "{what}");
                assert!(!holds(&other, &mut client, new).await, "{what}");
                assert!(!holds(&other, &mut client, crowded.deleted).await, "{what}");
                let report = other.check(&mut client).await.unwrap();
                assert_eq!(report.violations, Vec::<String>::new(), "{what}");
            });
            if !has_failed {
                assert!(at > 5, "{what}");
                break;
            }
        }
    }
}

/// Runs a task for this many words in an order, or until it ends. Gives up if it waits for others.
fn advance(executor: &mut Executor<'_>, task: TaskId, words: u64, order: WordOrder) -> bool {
    let (mut events, mut left) = (Vec::new(), words);
    for _ in 0..1000 {
        executor.events(&mut events);
        let Some(&event) = events.iter().find(|event| event.task == task).filter(|_| left > 0) else { break };
        let piece = match event.kind {
            EventKind::Execute { access, .. } => u64::from(access.words).min(left),
            _ => 0,
        };
        executor.perform(event, piece as u32, order);
        left -= piece;
    }
    executor.has_ended(task)
}

/// Runs a task to its end.
fn finish(executor: &mut Executor<'_>, task: TaskId) -> bool {
    advance(executor, task, u64::MAX, WordOrder::Ascending)
}

/// An entry hops while a neighbourhood that contains it is read, after any part of it was read.
#[test]
fn a_hop_hides_its_entry_from_no_search() {
    for order in [WordOrder::Ascending, WordOrder::Descending] {
        for words in 0.. {
            let (pool, chime) = loaded(Sim::new(1, 8 << 20));
            let (mut reader, mut writer) = (pool.client().unwrap(), pool.client().unwrap());
            let other = block_on(Chime::open(&mut writer, options())).unwrap();
            let crowded = block_on(crowd(&chime, &mut reader));
            let hopping = crowded.present[2];
            assert!(block_on(holds(&chime, &mut reader, hopping)));
            let found = Cell::new(false);
            let mut executor = Executor::new(pool.fabric());
            let reading = executor.spawn(0, async {
                found.set(holds(&chime, &mut reader, hopping).await);
            });
            let putting = executor.spawn(0, put(&other, &mut writer, crowded.hops));
            let has_ended = advance(&mut executor, reading, words, order);
            let all_end = finish(&mut executor, putting) && finish(&mut executor, reading);
            drop(executor);
            pool.fabric().schedule(false);
            assert!(all_end && found.get(), "{words} words read, {order:?}");
            if has_ended {
                assert!(words > 10);
                break;
            }
        }
    }
}

/// A leaf splits. A client must not find the new key in the new leaf before clients that read the
/// old leaf can find it.
#[test]
fn search_reaches_a_new_leaf_only_after_the_split_of_the_old_one() {
    // Puts until the second leaf splits at the greatest of its keys.
    let of_put = |count: u64| 32 * STEP - 1000 + count;
    let prepare = |chime: &Chime<Sim>, client: &mut Client<Sim>, puts: u64| {
        block_on(async {
            for count in 0..puts {
                put(chime, client, of_put(count)).await;
            }
            leaf_of(chime, client, MIDDLE).await.sibling
        })
    };
    let splits = (1..100).find(|&puts| {
        let (pool, chime) = loaded(Sim::new(1, 8 << 20));
        let before = prepare(&chime, &mut pool.client().unwrap(), 0);
        prepare(&chime, &mut pool.client().unwrap(), puts) != before
    });
    let puts = splits.unwrap() - 1;
    let new = of_put(puts);
    let mut found_early = 0;
    for words in (0..).step_by(19) {
        let (pool, chime) = loaded(Sim::new(1, 8 << 20));
        let mut clients: Vec<_> = (0..3).map(|_| pool.client().unwrap()).collect();
        let [writer, scanner, searcher] = &mut clients[..] else { panic!() };
        prepare(&chime, writer, puts);
        let scans = block_on(Chime::open(scanner, options())).unwrap();
        let searches = block_on(Chime::open(searcher, options())).unwrap();
        assert!(!block_on(holds(&searches, searcher, new)));
        let seen = RefCell::new(Vec::new());
        let mut executor = Executor::new(pool.fabric());
        let putting = executor.spawn(0, put(&chime, writer, new));
        let scanning = executor.spawn(0, async {
            let range = ScanRange { from: Bound::Included(key(new).to_vec()), ..ScanRange::all() };
            let found = scans.scan(scanner, &range, 1).await.unwrap();
            seen.borrow_mut().push(found.first().is_some_and(|pair| pair.0 == key(new)));
        });
        let searching = executor.spawn(0, async {
            let found = holds(&searches, searcher, new).await;
            seen.borrow_mut().push(found);
        });
        let has_ended = advance(&mut executor, putting, words, WordOrder::Ascending);
        // A client that waits for the writer's lock has seen nothing yet.
        let has_scanned = finish(&mut executor, scanning);
        let are_early = has_scanned && finish(&mut executor, searching);
        let all_end = [putting, scanning, searching].into_iter().all(|task| finish(&mut executor, task));
        drop(executor);
        pool.fabric().schedule(false);
        let seen = seen.borrow().clone();
        assert!(all_end && (!has_scanned || seen != [true, false]), "{seen:?} after {words} words");
        found_early += u32::from(are_early && seen == [true, true] && !has_ended);
        if has_ended {
            break;
        }
    }
    assert!(found_early > 0, "no client found the key before its put had ended");
}

/// A leaf is taken in by its left neighbour. A client with an old copy that names it still finds
/// keys that were put into its range since.
#[test]
fn a_copy_leads_to_no_leaf_that_was_taken_in() {
    let (pool, chime) = loaded(Local::memory(8 << 20, 1).unwrap());
    let mut client = pool.client().unwrap();
    block_on(async {
        let other = Chime::open(&mut client, options()).await.unwrap();
        let taken_in = leaf_of(&chime, &mut client, MIDDLE).await;
        for number in (1..=5 * SPAN).map(|number| number * STEP) {
            assert!(holds(&other, &mut client, number).await);
        }
        let is_present = |leaf: &Page| leaf.addr == taken_in.addr;
        for number in (1..=5 * SPAN).map(|number| number * STEP) {
            assert!(chime.delete(&mut client, &key(number)).await.unwrap());
            if !is_present(&*leaf_of(&chime, &mut client, MIDDLE).await) {
                break;
            }
        }
        assert!(!is_present(&*leaf_of(&chime, &mut client, MIDDLE).await), "no leaf was merged");
        for number in MIDDLE + 1..MIDDLE + 9 {
            put(&chime, &mut client, number).await;
            assert!(holds(&other, &mut client, number).await, "key {number}");
        }
    });
}

/// Any word of a leaf outside its entries is lost, as a power failure can leave it. The first
/// client that reads the leaf repairs it, once.
#[test]
fn leaf_that_lost_a_word_is_repaired_once() {
    let (pool, chime) = loaded(Local::memory(8 << 20, 1).unwrap());
    let mut client = pool.client().unwrap();
    let format = &chime.tree.shared.format;
    let layout = format.layout().unwrap();
    let is_of_entry = |at: usize| {
        let starts = (0..layout.span).map(|slot| layout.entry_at(slot));
        starts.into_iter().any(|start| (start..start + format.entry_words()).contains(&at))
    };
    let before = block_on(leaf_of(&chime, &mut client, MIDDLE));
    let held = numbers(&chime, &before);
    for at in (layout.vacancy_at()..format.leaf_words()).filter(|&at| !is_of_entry(at)) {
        block_on(async {
            let addr = before.addr.plus(at as u64 * 8);
            let lost = before.words[at] ^ 1 << 20;
            client.post(|batch| batch.write(addr, &[lost])).await.unwrap();
            assert!(!holds(&chime, &mut client, MIDDLE + 1).await, "word {at}");
            assert!(!chime.delete(&mut client, &key(MIDDLE + 1)).await.unwrap(), "word {at}");
            let mut operation =
                Operation::pin(&*chime.tree.shared, &mut client, OpKind::Maintain).await.unwrap();
            operation.repair(before.link()).await.unwrap();
            drop(operation);
            let after = leaf_of(&chime, &mut client, MIDDLE).await;
            assert!(!after.is_torn(format) && after.has_right_vacancy(format), "word {at}");
            for &number in &held {
                assert!(holds(&chime, &mut client, number).await, "word {at}, key {number}");
            }
        });
    }
}
