//! Pools with an absent memory node while a process opens them.

use crate::support::gate::gated;
use crate::support::{ENDLESS, LONG, Node};
use darter::engine::Engine;
use darter::salvage::{Gap, Salvaged};
use darter::{Error, Store};
use darter_fabric::block_on;
use darter_fabric::tcp::TcpEndpoint;
use darter_fabric::{Endpoint, ExpectedNode, Fabric, FabricError, GlobalAddr, OpKind, Tcp, TcpOptions};
use darter_memnode::{MemNodeOptions, Region};
use darter_pool::{AllocKind, Pool, PoolError, PoolOptions, erase_if_lost};
use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Small enough that the keys need both nodes.
const NODE_BYTES: u64 = 4 << 20;
const KEYS: u32 = 4_000;

fn key(number: u32) -> [u8; 4] {
    number.wrapping_mul(0x9e37_79b9).to_be_bytes()
}

fn value(number: u32) -> Vec<u8> {
    format!("{number:01000}").into_bytes()
}

/// Starts a node whose memory is kept in a file.
fn kept(path: &Path, address: &str) -> Node {
    Node::start(Region::file(path, NODE_BYTES).unwrap(), address, MemNodeOptions::default())
}

fn in_memory(address: &str) -> Node {
    roomy(NODE_BYTES, address)
}

fn roomy(bytes: u64, address: &str) -> Node {
    Node::start(Region::memory(bytes).unwrap(), address, MemNodeOptions::default())
}

/// Creates a pool on both nodes with all keys in it.
fn fill(nodes: [&Node; 2]) -> String {
    let url = format!("tcp://{},{}", nodes[0].address, nodes[1].address);
    let store = Store::options().create(true).open(&url).unwrap();
    let session = store.session().unwrap();
    for number in 0..KEYS {
        session.put(key(number), value(number)).unwrap();
    }
    url
}

/// Reads all keys. Returns the number found. Every other key must fail with an error that names
/// node 1.
fn found(store: &Store) -> u32 {
    let session = store.session().unwrap();
    let mut found = 0;
    for number in 0..KEYS {
        match session.get(key(number)) {
            Ok(found_value) => {
                assert_eq!(found_value, Some(value(number)), "key {number}");
                found += 1;
            }
            Err(error) => names_the_node(&error),
        }
    }
    found
}

fn names_the_node(error: &Error) {
    assert!(error.to_string().contains("memory node 1"), "{error}");
}

#[test]
fn a_pool_opens_while_a_memory_node_is_away() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("region");
    let (first, mut second) = (in_memory("127.0.0.1:0"), kept(&path, "127.0.0.1:0"));
    let url = fill([&first, &second]);
    let address = second.address.to_string();
    second.end();

    // Also by a name that leaves the second node to the directory.
    for url in [url.as_str(), url.split_once(',').unwrap().0] {
        let store = Store::open(url).unwrap();
        assert_eq!(store.pool().nodes(), 2);
        assert!(store.pool().fabric().remote_nodes().is_absent(1));
        let there = found(&store);
        assert!(there > 0 && there < KEYS, "{there} of {KEYS} keys lie on the node that is there");
        let usage = store.usage().unwrap();
        assert_eq!((usage.nodes[0].is_absent, usage.nodes[1].is_absent), (false, true));
        assert_eq!(usage.nodes[1].bytes, NODE_BYTES);
        match store.check() {
            Ok(check) => {
                assert!(check.is_sound(), "an absent node is not a violation: {:?}", check.violations);
            }
            Err(error) => names_the_node(&error),
        }
    }

    let store = Store::open(&url).unwrap();
    let _second = kept(&path, &address);
    let begun = Instant::now();
    while store.pool().fabric().remote_nodes().is_absent(1) {
        assert!(begun.elapsed() < Duration::from_secs(60), "upkeep does not find the node again");
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(found(&store), KEYS);
    assert!(store.check().unwrap().is_sound());
}

/// Objects on the present node can be changed, and no new object is placed on the absent one.
#[test]
fn new_objects_are_not_placed_on_an_absent_node() {
    let (first, mut second) = (roomy(64 << 20, "127.0.0.1:0"), roomy(64 << 20, "127.0.0.1:0"));
    let url = fill([&first, &second]);
    let store = Store::open(&url).unwrap();
    let mut client = store.pool().client().unwrap();
    let there = block_on(client.alloc(1, 64, AllocKind::Leaf)).unwrap();
    assert_eq!(there.node(), 1);
    second.end();
    let mut batch = client.batch();
    batch.read(there, 1);
    assert!(block_on(client.submit(batch)).is_err());
    for _ in 0..20 {
        assert_eq!(block_on(client.alloc(1, 64, AllocKind::Leaf)).unwrap().node(), 0);
    }
    drop((client, store));
    let store = Store::open(&url).unwrap();
    let session = store.session().unwrap();
    let mut changed = 0;
    for number in 0..KEYS {
        if session.get(key(number)).is_ok() {
            session.put(key(number), "another").unwrap();
            changed += 1;
        }
    }
    assert!(changed > 0);
}

/// A node that lost its memory while it was absent is detected, even if no process that has the
/// pool open has seen it before, and does not prevent processes from opening the pool.
#[test]
fn an_absent_node_that_comes_back_without_its_memory_counts_as_lost() {
    let (first, mut second) = (in_memory("127.0.0.1:0"), in_memory("127.0.0.1:0"));
    let url = fill([&first, &second]);
    let address = second.address.to_string();
    second.end();
    let store = Store::open(&url).unwrap();
    let there = found(&store);
    let _other = in_memory(&address);
    for _ in 0..3 {
        let session = store.session().unwrap();
        let readable = (0..KEYS).filter(|&number| match session.get(key(number)) {
            Ok(found) => {
                assert_eq!(found, Some(value(number)));
                true
            }
            Err(_) => false,
        });
        assert_eq!(readable.count() as u32, there);
    }
    drop(store);
    for url in [url.as_str(), url.split_once(',').unwrap().0] {
        let store = Store::open(url).unwrap();
        assert_eq!(found(&store), there);
        assert!(
            store.pool().fabric().remote_nodes().is_lost(1)
                && store.pool().fabric().remote_nodes().is_absent(1)
        );
        let usage = store.usage().unwrap();
        assert_eq!((usage.nodes[1].is_lost, usage.nodes[1].bytes), (true, NODE_BYTES));
        let session = store.session().unwrap();
        let missing = (0..KEYS).find_map(|number| session.get(key(number)).err()).unwrap();
        assert!(matches!(missing, Error::Fabric(FabricError::Lost { node: 1 })), "{missing}");
    }
}

/// A node that stays away, or is empty when it comes back, is given up: the pairs that do not need it
/// stay, and the pool is whole.
#[test]
fn a_lost_node_is_given_up() {
    for comes_back in [false, true] {
        let (first, mut second) = (roomy(16 << 20, "127.0.0.1:0"), roomy(16 << 20, "127.0.0.1:0"));
        let url = fill([&first, &second]);
        let other = Store::open(&url).unwrap();
        let store = Store::open(&url).unwrap();
        let give_up = |store: &Store| store.give_up_nodes(&[1], &mut |_| ControlFlow::Continue(()));
        let refused = give_up(&store).unwrap_err();
        assert!(refused.to_string().contains("responds"), "{refused}");
        let address = second.address.to_string();
        second.end();
        let _empty = comes_back.then(|| roomy(16 << 20, &address));
        let readable = found(&store);
        let (mut pairs, mut gaps) = (Vec::new(), Vec::new());
        for found in store.salvage(..) {
            match found.unwrap() {
                Salvaged::Pair(key, value) => pairs.push((key, value)),
                Salvaged::Gap(gap) => gaps.push(gap),
            }
        }
        let all: BTreeMap<_, _> = (0..KEYS).map(|number| (key(number).to_vec(), value(number))).collect();
        assert!(pairs.iter().all(|(key, value)| all.get(key) == Some(value)));
        assert!(pairs.len() as u32 >= readable && (pairs.len() as u32) < KEYS, "{}", pairs.len());
        let there: BTreeMap<_, _> = pairs.into_iter().collect();
        let is_in = |gap: &Gap, key: &[u8]| {
            gap.from[..] <= *key && gap.until.as_ref().is_none_or(|until| *key < until[..])
        };
        for key in all.keys().filter(|key| !there.contains_key(*key)) {
            assert!(gaps.iter().any(|gap| is_in(gap, key)), "{key:?}");
        }
        let part = store.salvage("\x20".."\x40").filter(|found| matches!(found, Ok(Salvaged::Pair(..))));
        assert_eq!(part.count(), there.range(b"\x20".to_vec()..b"\x40".to_vec()).count());
        let refused = give_up(&store).unwrap_err();
        assert!(refused.to_string().contains("other processes have the pool open"), "{refused}");
        drop(other);
        let given_up = give_up(&store).unwrap();
        assert!(given_up.is_complete && given_up.objects > 0, "{given_up:?}");
        for store in [store, Store::open(&url).unwrap()] {
            let pairs = store.range(..).collect::<Result<BTreeMap<_, _>, _>>().unwrap();
            assert!(pairs == there, "{} pairs instead of {}", pairs.len(), there.len());
            assert!(store.usage().unwrap().nodes[1].is_removed());
        }
        let store = Store::open(&url).unwrap();
        let check = store.check().unwrap();
        assert!(check.is_sound(), "{:?}", check.violations);
        for number in 0..KEYS {
            store.put(key(number), value(number)).unwrap();
        }
        assert_eq!(found(&store), KEYS);
        assert!(store.check().unwrap().is_sound());
    }
}

/// Returns whether a node of a pool is where its directory says.
fn is_present(node: &ExpectedNode) -> bool {
    let found = Tcp::connect(std::slice::from_ref(&node.address), TcpOptions::default());
    found.is_ok_and(|found| found.remote_nodes().node_id(0) == Some(node.id))
}

#[test]
fn a_pool_that_has_lost_a_node_is_erased_and_its_members_are_shut_out() {
    let (first, mut second) = (in_memory("127.0.0.1:0"), in_memory("127.0.0.1:0"));
    let url = fill([&first, &second]);
    let store = Store::options().rejoin(false).open(&url).unwrap();
    let erase = |second: &Node| {
        let fabric = crate::support::connect(&[&first, second], b"").unwrap();
        block_on(erase_if_lost(&fabric, is_present))
    };
    erase(&second).unwrap();
    // The directory named another node in its place.
    let refused = erase(&in_memory("127.0.0.1:0")).unwrap_err();
    assert!(matches!(refused, PoolError::NodeMismatch { node: 1, .. }), "{refused:?}");
    assert_eq!(found(&store), KEYS, "the pool is whole");
    let mut endpoint = store.pool().fabric().endpoint().unwrap();
    let mut read = || {
        let mut batch = endpoint.batch();
        batch.read(GlobalAddr::new(0, 0), 1);
        block_on(endpoint.submit(batch)).map(drop)
    };
    read().unwrap();
    let address = second.address.to_string();
    second.end();
    let second = in_memory(&address);
    erase(&second).unwrap();
    // The node closes the connections of a fenced member, and refuses its new ones.
    let mut result = read();
    if matches!(result, Err(FabricError::Disconnected { node: 0 })) {
        result = read();
    }
    assert!(matches!(result, Err(FabricError::Fenced)), "a member can still write, or: {result:?}");
    let gone = Store::open(&url).map(drop).unwrap_err();
    assert!(matches!(gone, Error::Open { source: PoolError::NotAPool { node: 0 }, .. }), "{gone:?}");
    let store = Store::options().create(true).open(&url).unwrap();
    assert_eq!(store.session().unwrap().get(key(0)).unwrap(), None);
    assert!(store.check().unwrap().is_sound());
}

#[test]
fn a_process_that_opens_a_pool_while_it_is_replaced_leaves_it() {
    let (first, mut second) = (in_memory("127.0.0.1:0"), in_memory("127.0.0.1:0"));
    fill([&first, &second]);
    let address = second.address.to_string();
    second.end();
    let second = in_memory(&address);
    let fabric = || crate::support::connect(&[&first, &second], b"").unwrap();
    let replace = || {
        block_on(erase_if_lost(&fabric(), is_present)).unwrap();
        block_on(Pool::create(fabric(), &PoolOptions::default())).unwrap()
    };
    let mut other = None;
    let while_it_opens = || {
        other = std::thread::scope(|scope| scope.spawn(replace).join().ok());
        Ok(())
    };
    let pool = block_on(Pool::open_verified(fabric(), while_it_opens)).unwrap();
    let error = block_on(pool.confirm()).unwrap_err();
    assert!(matches!(error, PoolError::NodeMismatch { node: 0, .. }), "{error:?}");
    block_on(other.unwrap().confirm()).unwrap();
}

/// Only the drop has a deadline here: requests over established connections have none.
#[test]
fn a_store_whose_node_hangs_is_dropped_in_spite_of_it() {
    let cases = [0, 1].map(|hanging| std::thread::spawn(move || drop_while_a_node_hangs(hanging)));
    for case in cases {
        case.join().unwrap();
    }
}

fn drop_while_a_node_hangs(hanging: usize) {
    let nodes = [in_memory("127.0.0.1:0"), in_memory("127.0.0.1:0")];
    let mut addresses = nodes.each_ref().map(|node| node.address.to_string());
    let (address, gate) = gated(nodes[hanging].address);
    addresses[hanging] = address.to_string();
    let url = format!("tcp://{},{}", addresses[0], addresses[1]);
    let (done, step) = std::sync::mpsc::channel();
    let way = Arc::clone(&gate);
    std::thread::spawn(move || {
        let options = TcpOptions { patience: ENDLESS, ..TcpOptions::default() };
        let store = Store::options().create(true).tcp(options).open(&url).unwrap();
        let session = store.session().unwrap();
        for number in 0..KEYS {
            session.put(key(number), value(number)).unwrap();
        }
        drop(session);
        way.shut(true);
        done.send("filled").unwrap();
        drop(store);
        done.send("dropped")
    });
    assert_eq!(step.recv(), Ok("filled"));
    assert_eq!(step.recv_timeout(2 * LONG), Ok("dropped"), "the drop waits for memory node {hanging}");
    gate.shut(false);
}

/// The error of an operation that fails at an absent node depends on whether the operation has
/// changed something before.
#[test]
fn an_operation_that_has_changed_something_does_not_say_that_nothing_was_sent() {
    let (first, mut second) = (in_memory("127.0.0.1:0"), in_memory("127.0.0.1:0"));
    let fabric = crate::support::connect(&[&first, &second], b"").unwrap();
    let mut endpoint = fabric.endpoint().unwrap();
    let step = |endpoint: &mut TcpEndpoint, changed: Option<u8>, read: Option<u8>| {
        let mut batch = endpoint.batch();
        if let Some(node) = changed {
            batch.faa(GlobalAddr::new(node, 64), 1);
        }
        if let Some(node) = read {
            batch.read(GlobalAddr::new(node, 64), 1);
        }
        block_on(endpoint.submit(batch)).map(drop)
    };
    second.end();
    let begun = Instant::now();
    while !matches!(step(&mut endpoint, None, Some(1)), Err(FabricError::Unreachable { node: 1 })) {
        assert!(begun.elapsed() < Duration::from_secs(600), "the node is still there");
    }
    for (steps, is_unsent) in [
        (&[(None, Some(1))][..], true),
        (&[(Some(1), None)], true),
        (&[(None, Some(0)), (None, Some(1))], true),
        (&[(Some(0), None), (None, Some(1))], false),
        (&[(Some(0), Some(1))], false),
    ] {
        endpoint.begin(OpKind::Insert);
        let outcomes: Vec<_> =
            steps.iter().map(|&(changed, read)| step(&mut endpoint, changed, read)).collect();
        let error = outcomes.into_iter().find_map(Result::err).unwrap();
        assert_eq!(error.unsent_to().is_some(), is_unsent, "{steps:?}: {error}");
        assert!(error.to_string().contains("memory node 1"), "{error}");
    }
}

/// All nodes must be present to create a pool, and the first one to open it.
#[test]
fn a_pool_is_made_of_nodes_that_are_there_and_opened_with_the_first() {
    let (mut first, mut second) = (in_memory("127.0.0.1:0"), in_memory("127.0.0.1:0"));
    let url = format!("tcp://{},{}", first.address, second.address);
    let address = second.address.to_string();
    second.end();
    let error = Store::options().create(true).open(&url).map(drop).unwrap_err();
    assert!(error.to_string().contains(&address), "{error}");
    let second = in_memory(&address);
    fill([&first, &second]);
    let address = first.address.to_string();
    first.end();
    let error = Store::open(&url).map(drop).unwrap_err();
    assert!(matches!(&error, Error::Fabric(FabricError::Io(_))), "{error:?}");
    assert!(error.to_string().contains(&address), "{error}");
}
