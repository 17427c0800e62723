//! Races of merges, and states after errors or with old copies, driven by hand.

use super::page::{Aim, Link, Page};
use super::{DESCRIPTOR_WORD, DESCRIPTOR_WORDS, Records, Sherman, ShermanOptions};
use crate::operation::Operation;
use darter_fabric::decorate::{FailPoint, Failing};
use darter_fabric::{Fabric, GlobalAddr, Local, OpKind, block_on};
use darter_index::{Condition, OrderedIndex};
use darter_pool::{AllocKind, Client, Pool, PoolOptions};
use darter_sim::{EventKind, Executor, Sim, TaskId, WordOrder};

/// Small nodes, whose leaves hold keys and values of a word.
fn options() -> ShermanOptions {
    let records = Records::Inline { key_bytes: 8, value_bytes: 8 };
    ShermanOptions { node_bytes: 512, lock_words: 64, fill_percent: 100, ..ShermanOptions::sherman() }
        .records(records)
}

fn open<F: Fabric>(fabric: F) -> (Pool<F>, Sherman<F>) {
    let pool_options = PoolOptions { block_bytes: Some(256 << 10), ..PoolOptions::default() };
    let pool = block_on(Pool::create(fabric, &pool_options)).unwrap();
    pool.set_magazine_objects_max(1);
    let sherman = block_on(Sherman::open_or_create(&mut pool.client().unwrap(), options())).unwrap();
    (pool, sherman)
}

fn key(number: u64) -> [u8; 8] {
    number.to_be_bytes()
}

/// Returns the words of node 0's lock table.
fn lock_words<F: Fabric>(client: &mut Client<F>) -> Vec<u64> {
    block_on(async {
        let descriptor = client.pool().root_word(DESCRIPTOR_WORD);
        let [at] = client.read_words(descriptor).await.unwrap();
        let [.., locks] = client.read_words::<DESCRIPTOR_WORDS>(GlobalAddr::from_bits(at)).await.unwrap();
        let [_, table] = client.read_words(GlobalAddr::from_bits(locks)).await.unwrap();
        client.read_words::<64>(GlobalAddr::from_bits(table)).await.unwrap().to_vec()
    })
}

/// Returns whether a put that fails at this point leaves a lock taken; `None` if it does not fail.
fn is_held_after(point: FailPoint) -> Option<bool> {
    let fabric = Failing::new(Local::memory(8 << 20, 1).unwrap());
    let (pool, sherman) = open(fabric.clone());
    let mut client = pool.client().unwrap();
    block_on(sherman.put(&mut client, &key(1), &[7; 8], Condition::Always)).unwrap();
    fabric.plan().fail_once(point);
    let outcome = block_on(sherman.put(&mut client, &key(2), &[7; 8], Condition::Always));
    outcome.err().map(|_| lock_words(&mut client).iter().any(|&word| word != 0))
}

/// Any batch after the one that takes the lock is lost. It may still take effect, so the lock stays
/// taken until its holder is known to be over.
#[test]
fn a_lock_under_which_a_batch_was_lost_is_not_given_back() {
    let taken = (0..100).find(|&batch| is_held_after(FailPoint::Reply(batch)) != Some(false)).unwrap();
    let after: Vec<bool> =
        (taken + 1..100).map_while(|batch| is_held_after(FailPoint::Submit(batch))).collect();
    assert!(after.len() > 1 && after.iter().all(|&is_held| is_held), "{after:?}");
}

/// Returns the leaf of a key, found from the root.
async fn leaf_of<F: Fabric>(sherman: &Sherman<F>, client: &mut Client<F>, key: &[u8]) -> Box<Page> {
    let mut operation = Operation::pin(&*sherman.shared, client, OpKind::Maintain).await.unwrap();
    operation.page_at(Aim::At(key), 0, true).await.unwrap().unwrap()
}

/// The memory of a leaf that a copy names is reused for an image of that leaf which never became
/// part of the tree.
#[test]
fn a_node_is_the_one_that_a_copy_meant_or_none() {
    const KEYS: u64 = 60;
    let (pool, sherman) = open(Local::memory(8 << 20, 1).unwrap());
    let mut client = pool.client().unwrap();
    let other = block_on(Sherman::open(&mut client, options())).unwrap();
    block_on(async {
        for number in 0..KEYS {
            sherman.put(&mut client, &key(number), b"is false", Condition::Always).await.unwrap();
        }
        let last = key(KEYS - 1);
        let before = leaf_of(&sherman, &mut client, &last).await;
        let draft = before.draft(&sherman.shared.format);
        sherman.put(&mut client, &last, b"is true.", Condition::Always).await.unwrap();
        assert_eq!(other.get(&mut client, &last).await.unwrap().unwrap(), b"is true.");
        // Its left neighbour takes it in.
        for number in (0..KEYS - 1).rev() {
            assert!(sherman.delete(&mut client, &key(number)).await.unwrap());
            if leaf_of(&sherman, &mut client, &last).await.addr != before.addr {
                break;
            }
        }
        pool.settle(&mut client).await.unwrap();
        let bytes = sherman.shared.format.node_bytes();
        let mut addr = GlobalAddr::NULL;
        for _ in 0..10_000 {
            addr = client.alloc(0, bytes, AllocKind::Inner).await.unwrap();
            if addr == before.addr {
                break;
            }
        }
        assert_eq!(addr, before.addr, "the leaf's memory is reused");
        let link = Link::new(addr, before.tag ^ 1);
        let image = draft.image(&sherman.shared.format, addr, link.tag(), 1).unwrap();
        client.post(|batch| batch.write(addr, &image)).await.unwrap();
        assert_eq!(other.get(&mut client, &last).await.unwrap().unwrap(), b"is true.");
    });
}

/// Runs a task for this many verbs or until it ends. Gives up if it waits for others.
fn advance(executor: &mut Executor<'_>, task: TaskId, verbs: usize) -> bool {
    let (mut events, mut left) = (Vec::new(), verbs);
    for _ in 0..20_000 {
        executor.events(&mut events);
        let Some(&event) = events.iter().find(|event| event.task == task).filter(|_| left > 0) else { break };
        executor.perform(event, u32::MAX, WordOrder::Ascending);
        left -= usize::from(matches!(event.kind, EventKind::Execute { .. }));
    }
    executor.has_ended(task)
}

/// Number of loaded keys, with gaps between them, in two levels of full inner nodes.
const LOADED: u64 = 1200;

fn loaded() -> (Pool<Sim>, Sherman<Sim>) {
    let (pool, sherman) = open(Sim::new(1, 8 << 20));
    let pairs = (0..LOADED).map(|number| (key(number * 16).to_vec(), [7; 8].to_vec()));
    block_on(sherman.bulk_load(&mut pool.client().unwrap(), pairs)).unwrap();
    (pool, sherman)
}

/// Returns the lower fences of the leaves below the first inner node of level 1, and its upper
/// fence.
fn first_parent(pool: &Pool<Sim>, sherman: &Sherman<Sim>) -> Vec<Vec<u8>> {
    let mut client = pool.client().unwrap();
    block_on(async {
        let mut operation = Operation::pin(&*sherman.shared, &mut client, OpKind::Maintain).await.unwrap();
        let mut parent = operation.page_at(Aim::At(&key(0)), 1, true).await.unwrap().unwrap();
        super::walk::fetch_bounds(&mut operation.client, &mut parent).await.unwrap();
        assert!(parent.high.is_some(), "there is more than one");
        let lows = (0..parent.children()).map(|at| parent.child_low(at).to_vec());
        lows.chain(parent.high.as_ref().map(|high| high.bytes().to_vec())).collect()
    })
}

async fn put_all(sherman: &Sherman<Sim>, client: &mut Client<Sim>, count: u64) {
    for number in 1..=count {
        sherman.put(client, &key(number), &[7; 8], Condition::Always).await.unwrap();
    }
}

/// A delete is about to merge its leaf with a neighbour when their parent splits between the two.
#[test]
fn neighbours_of_two_parents_do_not_merge() {
    let (pool, sherman) = loaded();
    let whole = first_parent(&pool, &sherman);
    let mut client = pool.client().unwrap();
    let splits = (1..16).find(|&count| {
        block_on(put_all(&sherman, &mut client, count));
        first_parent(&pool, &sherman).len() < whole.len()
    });
    let splits = splits.expect("some puts split a full leaf, and that its full parent");
    let half = first_parent(&pool, &sherman);
    let [.., low, high] = &half[..] else { panic!("a node of one child") };
    let numbers = 0..LOADED;
    let is_in_leaf = |number: &u64| (&low[..]..&high[..]).contains(&&key(number * 16)[..]);
    let (emptied, kept): (Vec<u64>, Vec<u64>) = numbers.partition(is_in_leaf);
    let (last, others) = emptied.split_last().unwrap();

    for verbs in 0.. {
        let (pool, sherman) = loaded();
        let (mut slow, mut quick) = (pool.client().unwrap(), pool.client().unwrap());
        let other = block_on(Sherman::open(&mut quick, options())).unwrap();
        for number in others {
            assert!(block_on(sherman.delete(&mut slow, &key(number * 16))).unwrap());
        }
        let mut executor = Executor::new(pool.fabric());
        let merging = executor.spawn(0, async {
            assert!(sherman.delete(&mut slow, &key(last * 16)).await.unwrap());
        });
        let splitting = executor.spawn(0, put_all(&other, &mut quick, splits));
        let has_ended = advance(&mut executor, merging, verbs);
        advance(&mut executor, splitting, usize::MAX);
        assert!(advance(&mut executor, merging, usize::MAX));
        assert!(advance(&mut executor, splitting, usize::MAX));
        drop(executor);
        pool.fabric().schedule(false);
        block_on(async {
            let fresh = Sherman::open(&mut slow, options()).await.unwrap();
            for number in &kept {
                let value = fresh.get(&mut slow, &key(number * 16)).await.unwrap();
                assert_eq!(value, Some(vec![7; 8]), "key {number} after {verbs} verbs");
            }
            let report = fresh.check(&mut slow).await.unwrap();
            assert_eq!(report.violations, Vec::<String>::new(), "after {verbs} verbs");
        });
        if has_ended {
            return;
        }
    }
}
