//! Tests of lost memory nodes: what can be read without them, and the pool after they are given up.

use super::node;
use super::operation::Operation;
use super::word::Word;
use super::{Quiver, QuiverOptions};
use crate::fixtures::{LEASE_MS, Unscheduled, advance, finish_in_turn, process_on, writes};
use crate::give_up::{GivenUp, give_up};
use crate::ordered::{CutOff, Gap, LostNodes};
use crate::radix::leaf;
use crate::{Access, Condition, IndexError, OrderedIndex, ScanRange, TreeView, Write};
use darter_fabric::{OpKind, block_on};
use darter_pool::{AllocKind, Client, Pool, PoolError};
use darter_sim::{Executor, Sim};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering};

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

const LOST: u8 = 1;

/// With a cache, memory is also read after it was freed (L2), so that misuse cannot be judged.
fn options(remembers: bool) -> QuiverOptions {
    let cache_bytes = if remembers { 1 << 16 } else { 0 };
    QuiverOptions { page_records: 3, page_delta: 2, cache_bytes, ..QuiverOptions::default() }
}

/// A value of one of three lengths: it is stored in its page, in a leaf, or in a run of pages.
fn value(number: usize) -> Vec<u8> {
    vec![number as u8; [8, 300, 40_000][usize::from(number % 3 == 1) + usize::from(number % 97 == 1)]]
}

/// Keys under prefixes of several lengths, so that there are compressed paths.
fn key(number: usize) -> Vec<u8> {
    let stems = ["pear/", "a-long-prefix-that-all-of-these-keys-share/", "", "plum/in-a-compressed-path/"];
    let stem = stems[number / 3 % stems.len()];
    format!("{stem}{}/{:03}", number % 5, number * 37 % 1000).into_bytes()
}

/// A pool on three memory nodes with these many pairs, each put twice, so that many are in leaves. The
/// leaves of pages on the last node are on other nodes: it was leaving during the second puts.
fn loaded(sim: &Sim, pairs: usize, remembers: bool) -> (Pool<Sim>, Quiver<Sim>) {
    let (pool, quiver) = process_on::<Quiver<Sim>>(sim, options(remembers), &[]);
    let mut client = pool.client().unwrap();
    for number in 0..pairs {
        block_on(quiver.put(&mut client, &key(number), b"before", Condition::Always)).unwrap();
    }
    let _removal = block_on(pool.begin_removal(&mut client, 2)).unwrap();
    block_on(pool.maintain(&mut client)).unwrap();
    assert!(!pool.accepts(2));
    for number in 0..pairs {
        block_on(quiver.put(&mut client, &key(number), &value(number), Condition::Always)).unwrap();
    }
    assert!(block_on(pool.cancel_removal(&mut client, 2)).unwrap());
    block_on(pool.maintain(&mut client)).unwrap();
    assert!(pool.accepts(2));
    (pool, quiver)
}

fn opened(sim: &Sim, process: u32) -> (Pool<Sim>, Quiver<Sim>, Client<Sim>) {
    let pool = block_on(Pool::open(sim.process(process))).unwrap();
    let mut client = pool.client().unwrap();
    let quiver = block_on(Quiver::open(&mut client, options(false))).unwrap();
    (pool, quiver, client)
}

fn kill(pool: &Pool<Sim>) {
    pool.abandon();
    pool.fabric().kill();
}

fn all(quiver: &Quiver<Sim>, client: &mut Client<Sim>) -> Model {
    block_on(quiver.scan(client, &ScanRange::all(), usize::MAX)).unwrap().into_iter().collect()
}

/// The keys of pairs to which no part of the way leads over a lost node.
fn reachable(view: &TreeView, lost: LostNodes) -> BTreeSet<Vec<u8>> {
    if lost.contains(view.addr.node()) {
        return BTreeSet::new();
    }
    let own = view.value_bytes.is_some().then(|| view.prefix.clone());
    own.into_iter().chain(view.children.iter().flat_map(|(_, child)| reachable(child, lost))).collect()
}

/// The pairs of a model that can be read, and those that cannot, as the tree was before the loss.
fn parted(quiver: &Quiver<Sim>, client: &mut Client<Sim>, model: &Model, lost: LostNodes) -> [Model; 2] {
    let view = block_on(quiver.tree(client, b"", 64, 257)).unwrap();
    let keys = reachable(&view, lost);
    let (there, gone): (Model, Model) = model.clone().into_iter().partition(|(key, _)| keys.contains(key));
    [there, gone]
}

fn salvage(quiver: &Quiver<Sim>, client: &mut Client<Sim>, lost: LostNodes) -> (Model, Vec<Gap>) {
    let (mut pairs, mut gaps, mut next) = (Vec::new(), Vec::new(), Some(Vec::new()));
    while let Some(from) = next {
        let step = block_on(quiver.salvage(client, lost, &from)).unwrap();
        assert!(step.next.as_ref().is_none_or(|next| *next > from), "no progress at {from:?}");
        assert!(step.pairs.iter().all(|(key, _)| *key >= from));
        pairs.extend(step.pairs);
        gaps.extend(step.gaps);
        next = step.next;
    }
    assert!(pairs.is_sorted_by(|one, other| one.0 < other.0), "the keys ascend");
    (pairs.into_iter().collect(), gaps)
}

fn covers(gap: &Gap, key: &[u8]) -> bool {
    *gap.from <= *key && gap.until.as_ref().is_none_or(|until| key < &until[..])
}

/// The gaps contain all keys that are gone, each once, and no range without readable keys contains
/// another key.
fn assert_gaps(gaps: &[Gap], [there, gone]: &[Model; 2]) {
    for key in gone.keys() {
        assert!(gaps.iter().any(|gap| covers(gap, key)), "{} is in no gap", key.escape_ascii());
    }
    let whole = || gaps.iter().filter(|gap| gap.keys.is_none());
    for key in there.keys() {
        let is_gone =
            whole().any(|gap| covers(gap, key)) || gaps.iter().any(|gap| gap.key() == Some(&key[..]));
        assert!(!is_gone, "{} is there", key.escape_ascii());
    }
    let in_ranges = gone.keys().filter(|key| whole().any(|gap| covers(gap, key))).count();
    let counted: u64 = gaps.iter().filter_map(|gap| gap.keys).sum();
    assert_eq!(counted as usize + in_ranges, gone.len(), "each key once: {gaps:?}");
}

/// Gives nodes up. Returns the sums and the gaps.
async fn give_all_up(
    quiver: &Quiver<Sim>,
    client: &mut Client<Sim>,
    nodes: &[u8],
) -> Result<(GivenUp, CutOff), IndexError> {
    let mut all = CutOff::default();
    let mut watch = |cut: &CutOff| {
        all.gaps.extend(cut.gaps.clone());
        all.reverted.extend(cut.reverted.clone());
        ControlFlow::Continue(())
    };
    let given_up = give_up(quiver, client, nodes, &mut watch).await?;
    Ok((given_up, all))
}

/// The index is sound, refers to no lost node, has these pairs, and takes new ones; no memory is lost.
fn assert_whole(pool: &Pool<Sim>, quiver: &Quiver<Sim>, client: &mut Client<Sim>, there: &Model) {
    assert_eq!(all(quiver, client), *there);
    let report = block_on(quiver.check(client)).unwrap();
    assert_eq!(report.violations, Vec::<String>::new());
    let homes = pool.homes();
    let strays: Vec<_> = report.reachable.iter().filter(|(addr, _)| !homes.contains(&addr.node())).collect();
    assert_eq!(strays, []);
    let audit = block_on(pool.audit(client, &report.reachable)).unwrap();
    assert_eq!((audit.leaked_bytes, audit.violations), (0, Vec::new()));
}

fn put_all(quiver: &Quiver<Sim>, client: &mut Client<Sim>, pairs: usize) -> Model {
    for number in 0..pairs {
        let (key, value) = (key(number), value(number + 1));
        block_on(quiver.put(client, &key, &value, Condition::Always))
            .unwrap_or_else(|error| panic!("pair {number}: {error}"));
    }
    (0..pairs).map(|number| (key(number), value(number + 1))).collect()
}

/// Nodes are lost one after the other until only the first is left. Each time a new process opens the
/// pool, reads what can be read, gives the node up, and stores all keys again.
#[test]
fn a_pool_is_whole_again_after_its_lost_nodes_are_given_up() {
    const PAIRS: usize = 300;
    for remembers in [false, true] {
        let sim = Sim::new(3, 8 << 20);
        let (mut pool, mut quiver) = loaded(&sim, PAIRS, remembers);
        let mut client = pool.client().unwrap();
        block_on(quiver.adjust_to(&mut client, &[2, 4])).unwrap();
        let mut model: Model = (0..PAIRS).map(|number| (key(number), value(number))).collect();
        for (process, node) in [(1, LOST), (2, 2)] {
            let lost: LostNodes = [node].into_iter().collect();
            let parts = parted(&quiver, &mut client, &model, lost);
            assert!(parts.iter().all(|part| part.len() > 5), "{:?}", parts.each_ref().map(BTreeMap::len));
            kill(&pool);
            sim.lose_node(node);
            (pool, quiver, client) = opened(&sim, process);
            let (pairs, gaps) = salvage(&quiver, &mut client, lost);
            assert_eq!(pairs, parts[0]);
            assert_gaps(&gaps, &parts);
            assert!(gaps.iter().any(|gap| gap.keys.is_none()));
            let (given_up, cut) = block_on(give_all_up(&quiver, &mut client, &[node])).unwrap();
            assert!(given_up.is_complete && given_up.objects >= 5 && given_up.reverted == 0, "{given_up:?}");
            assert_gaps(&cut.gaps, &parts);
            assert_whole(&pool, &quiver, &mut client, &parts[0]);
            let (again, cut) = block_on(give_all_up(&quiver, &mut client, &[node])).unwrap();
            assert_eq!((again.objects, cut), (0, CutOff::default()), "nothing is left");
            assert!(again.is_complete);
            model = put_all(&quiver, &mut client, PAIRS);
            assert_whole(&pool, &quiver, &mut client, &model);
        }
        assert_eq!(pool.homes(), [0]);
        assert_eq!(sim.misuse().filter(|_| !remembers), None);
        assert_eq!(sim.counts().to_retired, 0, "a node that was given up is not contacted");
    }
}

/// Two nodes are lost at once, and given up together.
#[test]
fn nodes_that_are_lost_together_are_given_up_together() {
    const PAIRS: usize = 200;
    let sim = Sim::new(3, 8 << 20);
    let (pool, quiver) = loaded(&sim, PAIRS, false);
    let model: Model = (0..PAIRS).map(|number| (key(number), value(number))).collect();
    let lost: LostNodes = [1, 2].into_iter().collect();
    let parts = parted(&quiver, &mut pool.client().unwrap(), &model, lost);
    assert!(!parts[0].is_empty() && !parts[1].is_empty());
    kill(&pool);
    sim.lose_node(1);
    sim.lose_node(2);
    let (pool, quiver, mut client) = opened(&sim, 1);
    let (pairs, gaps) = salvage(&quiver, &mut client, lost);
    assert_eq!(pairs, parts[0]);
    assert_gaps(&gaps, &parts);
    // The other one may come back, so its keys must not be cut off.
    let refused = block_on(give_all_up(&quiver, &mut client, &[1])).unwrap_err();
    assert!(refused.to_string().contains("memory node 2 cannot be reached"), "{refused}");
    assert_eq!(pool.removed_nodes(), []);
    let (given_up, cut) = block_on(give_all_up(&quiver, &mut client, &[1, 2])).unwrap();
    assert!(given_up.is_complete);
    assert_gaps(&cut.gaps, &parts);
    assert_whole(&pool, &quiver, &mut client, &parts[0]);
    let model = put_all(&quiver, &mut client, PAIRS);
    assert_whole(&pool, &quiver, &mut client, &model);
}

/// Nothing is given up that is not lost, nor while others could see something else.
#[test]
fn what_cannot_be_given_up_is_refused_without_a_change() {
    let sim = Sim::new(3, 8 << 20);
    let (pool, quiver) = loaded(&sim, 60, false);
    let (other, working, mut others) = opened(&sim, 1);
    let mut client = pool.client().unwrap();
    for (node, why) in [(0, "cannot leave"), (1, "responds"), (3, "no memory node of this number")] {
        let refused = block_on(give_all_up(&quiver, &mut client, &[node])).unwrap_err();
        assert!(refused.to_string().contains(why), "node {node}: {refused}");
    }
    sim.lose_node(LOST);
    let _at_the_end = Unscheduled(sim.clone());
    let is_refused = AtomicBool::new(false);
    let mut executor = Executor::new(&sim);
    executor.spawn(0, async {
        let refused = give_all_up(&quiver, &mut client, &[LOST]).await.unwrap_err();
        let IndexError::Pool(PoolError::OthersAtWork(members)) = &refused else { panic!("{refused}") };
        assert_eq!(members.len(), 1);
        assert!(refused.to_string().contains("member 1"), "{refused}");
        is_refused.store(true, Ordering::Relaxed);
    });
    executor.spawn(1, async {
        while !is_refused.load(Ordering::Relaxed) {
            other.maintain(&mut others).await.unwrap();
        }
    });
    finish_in_turn(&mut executor);
    drop(executor);
    sim.schedule(false);
    let mut client = pool.client().unwrap();
    assert_eq!(pool.removed_nodes(), []);
    drop(working);
    kill(&other);
    let (given_up, _) = block_on(give_all_up(&quiver, &mut client, &[LOST])).unwrap();
    assert!(given_up.is_complete);
    let there = all(&quiver, &mut client);
    assert!(there.len() < 60);
    let report = block_on(quiver.check(&mut client)).unwrap();
    assert_eq!(report.violations, Vec::<String>::new());
}

/// The process that gives a node up dies after each of its writes in turn. Whatever it has done, another
/// process reads all pairs that can be read, and completes it.
#[test]
fn another_process_goes_on_after_a_death_anywhere() {
    const PAIRS: usize = 40;
    let mut were_removed = [0; 2];
    for writes_done in 0.. {
        let sim = Sim::new(3, 8 << 20);
        let (pool, quiver) = loaded(&sim, PAIRS, false);
        let _at_the_end = Unscheduled(sim.clone());
        let mut client = pool.client().unwrap();
        if writes_done % 2 == 1 {
            block_on(quiver.adjust_to(&mut client, &[2, 4])).unwrap();
        }
        let lost: LostNodes = [LOST].into_iter().collect();
        let model = (0..PAIRS).map(|number| (key(number), value(number))).collect();
        let [there, _] = parted(&quiver, &mut client, &model, lost);
        drop((client, quiver));
        kill(&pool);
        sim.lose_node(LOST);
        let (dying, quiver, mut client) = opened(&sim, 1);
        let mut executor = Executor::new(&sim);
        let task = executor.spawn(1, async {
            let _given_up = give_all_up(&quiver, &mut client, &[LOST]).await;
        });
        let has_ended = advance(&mut executor, task, writes_done, writes);
        executor.kill(1);
        drop(executor);
        kill(&dying);
        sim.schedule(false);
        sim.advance_ms(LEASE_MS * 3);
        let context = format!("after {writes_done} writes");
        let (other, opened, mut client) = opened(&sim, 2);
        assert_eq!(salvage(&opened, &mut client, lost).0, there, "{context}");
        were_removed[usize::from(!other.removed_nodes().is_empty())] += 1;
        let (given_up, _) = block_on(give_all_up(&opened, &mut client, &[LOST])).unwrap();
        assert!(given_up.is_complete, "{context}");
        assert_whole(&other, &opened, &mut client, &there);
        let model = put_all(&opened, &mut client, PAIRS);
        assert_whole(&other, &opened, &mut client, &model);
        assert_eq!(sim.misuse(), None, "{context}");
        if has_ended {
            break;
        }
    }
    assert!(were_removed[0] > 0 && were_removed[1] > 30, "{were_removed:?}");
}

/// What a client does that dies, before the node is lost: it fills pages, empties them again, and commits
/// a transaction over keys of several memory nodes.
async fn work(quiver: &Quiver<Sim>, client: &mut Client<Sim>, accesses: &[Access<'_>]) {
    for number in 0..12 {
        let own = [&key(number)[..], b"/new"].concat();
        quiver.put(client, &own, &value(number), Condition::Always).await.unwrap();
    }
    for attempt in 0..3 {
        quiver.commit(client, accesses, attempt).await.unwrap();
    }
    for number in 0..18 {
        quiver.delete(client, &key(number)).await.unwrap();
    }
}

/// A client dies after each of its writes in turn, and then a node is lost: with replacements that were
/// begun, and transactions of which the status word, or an intent, is gone.
#[test]
fn whatever_a_dead_client_has_left_a_lost_node_is_given_up() {
    const PAIRS: usize = 24;
    let (mut reverted, mut gone_keys) = (0, 0);
    for writes_done in 0.. {
        let sim = Sim::new(3, 8 << 20);
        let lost_node = [1, 2][writes_done % 2];
        let (pool, quiver) = loaded(&sim, PAIRS, false);
        let _at_the_end = Unscheduled(sim.clone());
        let mut keys: Vec<_> = (12..PAIRS).map(key).collect();
        keys.sort();
        let accesses: Vec<_> = (keys.iter())
            .map(|key| Access { key, read: None, version: None, write: Some(Write::Put(b"committed")) })
            .collect();
        let mut client = pool.client().unwrap();
        let mut executor = Executor::new(&sim);
        let task = executor.spawn(0, work(&quiver, &mut client, &accesses));
        let has_ended = advance(&mut executor, task, writes_done, writes);
        executor.kill(0);
        drop(executor);
        kill(&pool);
        sim.schedule(false);
        sim.advance_ms(LEASE_MS * 3);
        // This process only looks.
        let (looking, looked, mut client) = opened(&sim, 1);
        let model = all(&looked, &mut client);
        let lost: LostNodes = [lost_node].into_iter().collect();
        let [mut there, gone] = parted(&looked, &mut client, &model, lost);
        kill(&looking);
        sim.lose_node(lost_node);
        let (pool, quiver, mut client) = opened(&sim, 2);
        let context = format!("after {writes_done} writes, without node {lost_node}");
        let (pairs, gaps) = salvage(&quiver, &mut client, lost);
        for (key, value) in &there {
            // A key with an intent whose status word is gone is in a gap.
            let is_missing = gaps.iter().any(|gap| gap.key() == Some(&key[..]));
            assert!(pairs.get(key) == Some(value) || is_missing, "{context}: {}", key.escape_ascii());
        }
        assert!(pairs.iter().all(|(key, value)| there.get(key) == Some(value)), "{context}");
        assert!(gone.keys().all(|key| gaps.iter().any(|gap| covers(gap, key))), "{context}");
        let (given_up, cut) = block_on(give_all_up(&quiver, &mut client, &[lost_node])).unwrap();
        assert!(given_up.is_complete, "{context}");
        // They have the values from before a transaction that may have been committed.
        let after = all(&quiver, &mut client);
        for key in &cut.reverted {
            match after.get(key) {
                Some(value) => drop(there.insert(key.clone(), value.clone())),
                None => drop(there.remove(key)),
            }
            let number = (0..PAIRS).find(|&number| crate::quiver::losses::key(number) == *key).unwrap();
            // The value from before, which may be that of an earlier commit.
            let before = [model.get(key).cloned(), Some(value(number))];
            assert!(before.contains(&after.get(key).cloned()), "{context}: {}", key.escape_ascii());
        }
        reverted += cut.reverted.len();
        gone_keys += gone.len();
        assert_whole(&pool, &quiver, &mut client, &there);
        put_all(&quiver, &mut client, PAIRS);
        let there = all(&quiver, &mut client);
        assert_whole(&pool, &quiver, &mut client, &there);
        assert_eq!(sim.misuse(), None, "{context}");
        if has_ended {
            break;
        }
    }
    assert!(reverted > 10 && gone_keys > 100, "{reverted} keys reverted, {gone_keys} gone");
}

/// What is below a lost node stays unsealed in memory, and may be used again: neither the cache of the
/// process that gives the node up nor the skip table leads there afterwards.
#[test]
fn nothing_remembered_leads_below_a_node_that_was_given_up() {
    const PAIRS: usize = 300;
    let sim = Sim::new(3, 8 << 20);
    let (pool, quiver) = loaded(&sim, PAIRS, true);
    let mut client = pool.client().unwrap();
    block_on(quiver.adjust_to(&mut client, &[2, 4, 6])).unwrap();
    for number in 0..PAIRS {
        assert!(block_on(quiver.get(&mut client, &key(number))).unwrap().is_some());
    }
    sim.lose_node(LOST);
    let (given_up, _) = block_on(give_all_up(&quiver, &mut client, &[LOST])).unwrap();
    assert!(given_up.is_complete);
    let there = all(&quiver, &mut client);
    for number in 0..PAIRS {
        let found = block_on(quiver.get(&mut client, &key(number))).unwrap();
        assert_eq!(found.as_ref(), there.get(&key(number)), "pair {number}");
    }
    let model = put_all(&quiver, &mut client, PAIRS);
    let (_other, opened, mut others) = opened(&sim, 1);
    for number in 0..PAIRS {
        let found = block_on(opened.get(&mut others, &key(number))).unwrap();
        assert_eq!(found, Some(value(number + 1)), "pair {number}");
    }
    assert_eq!(all(&opened, &mut others), model);
    assert_eq!(block_on(opened.check(&mut others)).unwrap().violations, Vec::<String>::new());
}

/// A record's own pair names the key of its lost leaf; of a leaf in the delta only the edge is known.
#[test]
fn a_lost_leaf_is_named_by_its_record() {
    let sim = Sim::new(3, 8 << 20);
    let options = QuiverOptions { folds: false, cache_bytes: 0, ..QuiverOptions::default() };
    let (pool, quiver) = process_on::<Quiver<Sim>>(&sim, options, &[]);
    let mut client = pool.client().unwrap();
    let pairs = (0..20_u8).map(|number| (vec![b'a', number], vec![number; 8]));
    block_on(quiver.bulk_load(&mut client, pairs)).unwrap();
    let view = block_on(quiver.tree(&mut client, b"", 8, 257)).unwrap();
    let home = view.children[0].1.addr.node();
    let lost = [1, 2].into_iter().find(|node| *node != home).unwrap();
    let words: Vec<_> = (0..20_u8).map(|number| vec![b'a', number]).collect();
    for key in &words[..3] {
        block_on(quiver.put(&mut client, key, b"in a leaf", Condition::Always)).unwrap();
    }
    block_on(quiver.put(&mut client, b"a-new", b"in the delta", Condition::Always)).unwrap();
    let report = block_on(quiver.check(&mut client)).unwrap();
    assert_eq!(report.violations, Vec::<String>::new());
    block_on(move_leaves_to(&quiver, &mut client, lost));
    let nodes: LostNodes = [lost].into_iter().collect();
    let (found, gaps) = salvage(&quiver, &mut client, nodes);
    assert_eq!(found.len(), 17);
    let named: Vec<_> = gaps.iter().filter_map(Gap::key).collect();
    assert_eq!(named, words[..3].iter().map(|key| &key[..]).collect::<Vec<_>>());
    assert!(gaps.iter().any(|gap| gap.key().is_none() && gap.keys == Some(1) && covers(gap, b"a-new")));
    assert_eq!(gaps.len(), 4);
}

/// Copies the leaves of the only page to another node.
async fn move_leaves_to(quiver: &Quiver<Sim>, client: &mut Client<Sim>, node: u8) {
    let mut operation = Operation::begin(&quiver.shared, client, OpKind::Maintain).await.unwrap();
    let (root, _, words) = operation.read_root().await.unwrap();
    let slots = node::slots(&words);
    let (_, page) = node::pages(&slots).next().unwrap_or_else(|| panic!("no page below {}", root.addr));
    let (shape, words) = operation.read_page(page).await.unwrap();
    for at in shape.sealable().skip(1) {
        let Some((leaf, class, bytes)) = Word(words[at]).leaf_object() else { continue };
        let image = operation.client.read(leaf, leaf::class_words(class)).await.unwrap();
        let copy = operation.client.alloc(node, bytes, AllocKind::Leaf).await.unwrap();
        assert_eq!(copy.node(), node);
        let word = Word(words[at]).with_leaf_at(copy);
        operation.client.post(|batch| batch.write(copy, &image)).await.unwrap();
        let swap = operation.client.cas(page.addr.plus(at as u64 * 8), words[at], word.0).await.unwrap();
        assert!(swap.swapped);
        operation.retire_leaf((leaf, class));
    }
}

/// Large values end a step before the page, and the next one continues in it.
#[test]
fn a_page_of_large_values_is_salvaged_in_several_steps() {
    let sim = Sim::new(2, 64 << 20);
    let secret = Some([3; 4]);
    let options = darter_pool::PoolOptions { block_bytes: None, lease_ms: LEASE_MS, secret };
    let pool = block_on(Pool::create(sim.clone(), &options)).unwrap();
    let mut client = pool.client().unwrap();
    let quiver = block_on(Quiver::open_or_create(&mut client, QuiverOptions::default())).unwrap();
    let model: Model = (0..30_u8).map(|number| (vec![b'a', number], vec![number; 900 << 10])).collect();
    for (key, value) in &model {
        block_on(quiver.put(&mut client, key, value, Condition::Always)).unwrap();
    }
    let mut steps = 0;
    let mut next = Some(Vec::new());
    let mut found = Model::new();
    while let Some(from) = next {
        let step = block_on(quiver.salvage(&mut client, LostNodes::NONE, &from)).unwrap();
        assert!(step.pairs.len() <= 8 && step.gaps.is_empty(), "{} pairs", step.pairs.len());
        found.extend(step.pairs);
        next = step.next;
        steps += 1;
    }
    assert!(steps >= 4 && found == model, "{steps} steps, {} pairs", found.len());
}

/// DART has neither.
#[test]
fn dart_refuses_both() {
    let sim = Sim::new(2, 8 << 20);
    let (pool, dart) = process_on::<crate::Dart<Sim>>(&sim, crate::DartOptions::default(), &[&b"pear"[..]]);
    let mut client = pool.client().unwrap();
    sim.lose_node(1);
    let refused = block_on(dart.salvage(&mut client, LostNodes::NONE, b"")).unwrap_err();
    assert!(refused.to_string().contains("restore the last backup"), "{refused}");
    let refused = block_on(give_up(&dart, &mut client, &[1], &mut |_| ControlFlow::Continue(())));
    assert!(refused.unwrap_err().to_string().contains("restore the last backup"));
    assert_eq!(pool.removed_nodes(), []);
}

/// A process that has blocks on a node, and gives the node up, leaves the pool in order.
#[test]
fn a_process_with_blocks_on_a_lost_node_leaves_in_order() {
    const PAIRS: usize = 60;
    let sim = Sim::new(3, 8 << 20);
    let (pool, quiver) = loaded(&sim, PAIRS, false);
    let mut client = pool.client().unwrap();
    sim.lose_node(LOST);
    let (given_up, _) = block_on(give_all_up(&quiver, &mut client, &[LOST])).unwrap();
    assert!(given_up.is_complete);
    drop((client, quiver));
    block_on(pool.close()).unwrap();
    assert_eq!(sim.counts().to_retired, 0);
    let (pool, quiver, mut client) = opened(&sim, 1);
    let there = all(&quiver, &mut client);
    assert!(!there.is_empty() && there.len() < PAIRS);
    let report = block_on(quiver.check(&mut client)).unwrap();
    assert_eq!(report.violations, Vec::<String>::new());
    // Objects in its own blocks that only the lost node referred to stay taken until a repair: it sweeps
    // the blocks of others.
    let audit = block_on(pool.audit(&mut client, &report.reachable)).unwrap();
    assert_eq!(audit.violations, Vec::<String>::new());
}

/// A process that has put all pairs of a pool again, most in the blocks of another process, which is
/// alive.
struct Unlinked {
    sim: Sim,
    owner: (Pool<Sim>, Client<Sim>),
    pool: Pool<Sim>,
    quiver: Quiver<Sim>,
    client: Client<Sim>,
}

impl Unlinked {
    const PAIRS: usize = 60;

    fn new() -> Self {
        let sim = Sim::new(3, 8 << 20);
        let (owner, _quiver) = loaded(&sim, Self::PAIRS, false);
        let owner = (owner.clone(), owner.client().unwrap());
        let (pool, quiver, mut client) = opened(&sim, 1);
        put_all(&quiver, &mut client, Self::PAIRS);
        assert!(pool.has_garbage());
        Self { sim, owner, pool, quiver, client }
    }

    /// Runs upkeep of both processes, which does not fail.
    fn maintain(&mut self) {
        for _ in 0..20 {
            block_on(self.pool.maintain(&mut self.client)).unwrap();
            block_on(self.owner.0.maintain(&mut self.owner.1)).unwrap();
        }
    }
}

/// What a process has unlinked on a lost node, in blocks of others, does not hold its upkeep up, and is
/// forgotten when the node is given up.
#[test]
fn objects_that_were_unlinked_on_a_lost_node_are_forgotten() {
    let mut here = Unlinked::new();
    here.sim.lose_node(LOST);
    here.maintain();
    assert!(here.pool.has_garbage() && !here.pool.has_unconfirmed_frees());
    kill(&here.owner.0);
    let Unlinked { pool, quiver, mut client, .. } = here;
    let (given_up, _) = block_on(give_all_up(&quiver, &mut client, &[LOST])).unwrap();
    assert!(given_up.is_complete);
    for _ in 0..20 {
        block_on(pool.maintain(&mut client)).unwrap();
    }
    assert!(!pool.has_garbage() && !pool.has_unconfirmed_frees());
    let there = all(&quiver, &mut client);
    let model = put_all(&quiver, &mut client, Unlinked::PAIRS);
    assert!(there.len() < model.len());
    assert_eq!(all(&quiver, &mut client), model);
}

/// Objects that a process frees on a node that does not respond wait until it does. Until then, the process
/// cannot leave the pool in order.
#[test]
fn objects_on_a_node_that_is_away_are_freed_when_it_is_back() {
    let mut here = Unlinked::new();
    here.sim.lose_node(LOST);
    here.maintain();
    assert!(here.pool.has_garbage() && !here.pool.has_unconfirmed_frees());
    let refused = block_on(here.pool.settle(&mut here.client)).unwrap_err();
    assert!(refused.to_string().contains("memory node 1 cannot be reached"), "{refused}");
    here.sim.regain_node(LOST);
    here.maintain();
    assert!(!here.pool.has_garbage() && !here.pool.has_unconfirmed_frees());
    let report = block_on(here.quiver.check(&mut here.client)).unwrap();
    let audit = block_on(here.pool.audit(&mut here.client, &report.reachable)).unwrap();
    assert_eq!((audit.violations, audit.leaked_bytes), (Vec::new(), 0));
    let Unlinked { pool, quiver, client, .. } = here;
    drop((client, quiver));
    block_on(pool.close()).unwrap();
}
