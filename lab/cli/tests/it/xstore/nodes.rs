//! Three memory nodes that serve ranges of one index, killed one after another under writers and
//! readers.

use super::{
    LONG, Model, Node, OPTIONS, POOL, STILL, View, assert_whole, file, is_shut_out, loaded, still_value,
};
use darter_baselines::XStoreOptions;
use darter_fabric::block_on;
use darter_index::{Condition, IndexError, OrderedIndex, ScanRange};
use darter_pool::PoolOptions;
use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

const NODES: usize = 3;
const WRITERS: u64 = 2;
/// Kills of each node.
const KILLS: usize = 3;
/// Writes acknowledged between two kills.
const ACKNOWLEDGED: u64 = 150;
/// Keys in the first leaf, and some more between them.
const FIRST: u64 = 20;
/// Keys after the unchanging ones. The last node holds these and the writers' keys, the others hold
/// the unchanging ones.
const FILLING: u64 = 1000;
/// The first of the writers' keys, after all others.
const WRITTEN: u64 = STILL * 2 + FILLING;

/// The possible contents of a key: the acknowledged one, or any of these if a reply was lost.
type Allowed = BTreeMap<Vec<u8>, Vec<Option<Vec<u8>>>>;

/// State shared by the threads.
#[derive(Default)]
struct Shared {
    acknowledged: AtomicU64,
    failed: AtomicU64,
    has_ended: AtomicBool,
}

impl Shared {
    fn has_ended(&self) -> bool {
        self.has_ended.load(Ordering::Acquire)
    }

    /// Records an outcome, and returns it if there is one.
    fn done<T>(&self, view: &mut View, outcome: Result<T, IndexError>) -> Option<T> {
        outcome
            .inspect_err(|error| {
                view.go_on(error);
                self.failed.fetch_add(1, Ordering::AcqRel);
                std::thread::sleep(Duration::from_millis(1));
            })
            .ok()
    }

    /// Waits until a count reaches `wanted`.
    fn wait(count: &AtomicU64, wanted: u64) {
        let began = Instant::now();
        while count.load(Ordering::Acquire) < wanted {
            assert!(began.elapsed() < LONG, "the clients make no progress");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Puts keys in ascending order, and changes and deletes its keys. It leaves a key whose state
    /// is unknown alone: a write may take effect late.
    fn write(&self, writer: u64, mut view: View) -> Allowed {
        let (mut own, mut unsure, mut next, mut is_full) = (Model::new(), Allowed::new(), 0, false);
        let mut keys: Vec<Vec<u8>> = Vec::new();
        for turn in 0_u64.. {
            if self.has_ended() {
                break;
            }
            let old = keys.get((turn.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20) as usize % keys.len().max(1));
            let (key, value) = match old.cloned() {
                Some(old) if turn % 5 == 4 || is_full => {
                    (old, (turn % 3 != 0).then(|| turn.to_be_bytes().repeat(1 + turn as usize % 31)))
                }
                _ => {
                    let key = (WRITTEN + next * WRITERS + writer).to_be_bytes().to_vec();
                    next += 1;
                    (key, Some(turn.to_be_bytes().repeat(31)))
                }
            };
            is_full = false;
            let before = own.remove(&key);
            let outcome = match &value {
                Some(value) => {
                    block_on(view.index.put(&mut view.client, &key, value, Condition::Always)).map(|_| true)
                }
                None => block_on(view.index.delete(&mut view.client, &key)),
            };
            if outcome.as_ref().is_err_and(IndexError::is_out_of_space) {
                // Nothing was changed.
                is_full = true;
                own.extend(before.map(|before| (key, before)));
                continue;
            }
            if let Some(was_there) = self.done(&mut view, outcome) {
                assert!(value.is_some() || was_there == before.is_some(), "{key:?}");
                self.acknowledged.fetch_add(1, Ordering::AcqRel);
                if before.is_none() && !keys.contains(&key) {
                    keys.push(key.clone());
                }
                own.extend(value.map(|value| (key, value)));
            } else {
                keys.retain(|other| *other != key);
                unsure.insert(key, vec![before, value]);
            }
            self.read_own(&mut view, &keys, &own, turn);
        }
        let known = keys.into_iter().map(|key| {
            let value = own.get(&key).cloned();
            (key, vec![value])
        });
        unsure.extend(known);
        unsure
    }

    fn read_own(&self, view: &mut View, keys: &[Vec<u8>], own: &Model, turn: u64) {
        let Some(key) =
            keys.get((turn.wrapping_mul(0xd134_2543_de82_ef95) >> 20) as usize % keys.len().max(1))
        else {
            return;
        };
        let found = block_on(view.index.get(&mut view.client, key));
        if let Some(found) = self.done(view, found) {
            assert_eq!(found.as_ref(), own.get(key), "key {key:?}");
        }
    }

    /// Reads the unchanging keys, one by one and by scans in both directions.
    fn read(&self, mut view: View) {
        for turn in 0_u64.. {
            if self.has_ended() {
                break;
            }
            let key = turn.wrapping_mul(37) % (STILL * 2);
            let found = view.get(key);
            if let Some(found) = self.done(&mut view, found) {
                assert_eq!(found, still_value(key), "key {key}");
            }
            if turn % 64 == 0 {
                let to = Bound::Excluded((STILL * 2).to_be_bytes().to_vec());
                let range = ScanRange { from: Bound::Unbounded, to, reverse: turn % 128 == 0 };
                let found = block_on(view.index.scan(&mut view.client, &range, usize::MAX));
                if let Some(mut found) = self.done(&mut view, found) {
                    if range.reverse {
                        found.reverse();
                    }
                    let still = (0..STILL * 2)
                        .filter_map(|key| Some((key.to_be_bytes().to_vec(), still_value(key)?)));
                    assert!(found.into_iter().eq(still));
                }
            }
        }
    }
}

/// The first keys of the last node.
fn filling() -> Model {
    (STILL * 2..WRITTEN).map(|key| (key.to_be_bytes().to_vec(), key.to_be_bytes().repeat(31))).collect()
}

/// Kills a node while clients write to it, and restarts it with its memory.
fn kill(shared: &Shared, view: &mut View, node: &mut Node, at: usize) {
    let failed = shared.failed.load(Ordering::Acquire);
    node.kill();
    // A client notices.
    Shared::wait(&shared.failed, failed + 1);
    if at != 0 {
        // Keys on other nodes are still readable, certainly the first leaf.
        for key in (0..FIRST).chain((FIRST..STILL * 2).step_by(37)) {
            let found = loop {
                match view.get(key) {
                    Err(error) if is_shut_out(&error) => view.go_on(&error),
                    Err(error) if key >= FIRST => {
                        view.go_on(&error);
                        break still_value(key);
                    }
                    found => break found.unwrap(),
                }
            };
            assert_eq!(found, still_value(key), "key {key}");
        }
    }
    node.start_again();
}

/// Asserts that the last client finds only allowed contents in the index.
fn assert_acknowledged(view: &mut View, allowed: &Allowed) {
    let found = view.all_pairs();
    let mut written = Model::new();
    for (key, allowed) in allowed {
        let found = found.get(key);
        assert!(allowed.iter().any(|allowed| allowed.as_ref() == found), "{key:?}: {found:?}");
        written.extend(found.map(|found| (key.clone(), found.clone())));
    }
    assert_whole(view, &written);
}

#[test]
fn three_nodes_with_ranges_are_killed_in_turn() {
    let directory = tempfile::tempdir().unwrap();
    let mut nodes: Vec<Node> = Vec::new();
    for at in 0..NODES {
        let region = file(directory.path(), &format!("region-{at}"));
        let mut options = vec!["--file", &region, "--serve", "xstore", "--workers", "3"];
        // The first is the node that knows the others.
        let pool = nodes.first().map(|first| format!("tcp://{}", first.address));
        if let Some(pool) = &pool {
            options.extend(["--server-pool", pool]);
        }
        nodes.push(Node::start("4M", &options));
    }
    let addresses: Vec<String> = nodes.iter().map(|node| node.address.clone()).collect();
    let options = XStoreOptions { value_words: 31, nodes: 0, ..OPTIONS };
    let filling = filling();
    let pool_options = PoolOptions { block_bytes: Some(256 << 10), ..POOL };
    let mut view = loaded(&addresses, options, &pool_options, filling.clone());
    assert_eq!(view.index.range_nodes(), [0, 1, 2]);
    let shared = Arc::new(Shared::default());
    let writers: Vec<_> = (0..WRITERS)
        .map(|writer| {
            let (view, shared) = (View::open(&addresses, options), Arc::clone(&shared));
            std::thread::spawn(move || shared.write(writer, view))
        })
        .collect();
    let reader = {
        let (view, shared) = (View::open(&addresses, options), Arc::clone(&shared));
        std::thread::spawn(move || shared.read(view))
    };
    for round in 0..NODES * KILLS {
        let acknowledged = shared.acknowledged.load(Ordering::Acquire);
        Shared::wait(&shared.acknowledged, acknowledged + ACKNOWLEDGED);
        let at = round % NODES;
        kill(&shared, &mut view, &mut nodes[at], at);
        view.sweep();
    }
    shared.has_ended.store(true, Ordering::Release);
    let mut allowed: Allowed = filling.into_iter().map(|(key, value)| (key, vec![Some(value)])).collect();
    for writer in writers {
        allowed.append(&mut writer.join().unwrap());
    }
    reader.join().unwrap();
    view.sweep();
    assert_acknowledged(&mut view, &allowed);
    let mut fresh = View::open(&addresses, options);
    assert_acknowledged(&mut fresh, &allowed);
}
