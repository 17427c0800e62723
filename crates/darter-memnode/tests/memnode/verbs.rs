//! Verbs on memory nodes on loopback: the whole index on them, and all errors of clients.

use crate::support::{Node, connect, connect_as, greeted, provoke, read_frame};
use darter_fabric::wire::{self, Control, Refusal, RequestHead, RequestKind};
use darter_fabric::{
    Endpoint, Fabric, FabricError, FenceOutcome, GlobalAddr, Local, Membership, Suspect, TcpOptions,
    VerbKind, block_on, run_all,
};
use darter_index::{Condition, Dart, DartOptions, OrderedIndex, ScanRange};
use darter_memnode::{MemNodeOptions, Region};
use darter_pool::{Pool, PoolOptions};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use std::io::{Read, Write};
use std::time::Duration;

#[test]
fn an_index_lives_on_three_memory_nodes() {
    let nodes: Vec<Node> = (0..3)
        .map(|_| Node::start(Region::memory(16 << 20).unwrap(), "127.0.0.1:0", MemNodeOptions::default()))
        .collect();
    let fabric = connect(&nodes.iter().collect::<Vec<_>>(), b"").unwrap();
    block_on(async {
        let pool = Pool::create(fabric.clone(), &PoolOptions::default()).await.unwrap();
        let mut client = pool.client().unwrap();
        let dart = Dart::open_or_create(&mut client, DartOptions::default()).await.unwrap();
        for n in 0..3000_u32 {
            let key = n.wrapping_mul(0x9e37_79b9).to_be_bytes();
            dart.put(&mut client, &key, &n.to_le_bytes(), Condition::Always).await.unwrap();
        }
        // From the nodes' point of view, another process.
        let other = Pool::open(connect(&nodes.iter().collect::<Vec<_>>(), b"").unwrap()).await.unwrap();
        let mut theirs = other.client().unwrap();
        let same = Dart::open(&mut theirs, DartOptions::default()).await.unwrap();
        for n in (0..3000_u32).step_by(7) {
            let key = n.wrapping_mul(0x9e37_79b9).to_be_bytes();
            assert_eq!(same.get(&mut theirs, &key).await.unwrap(), Some(n.to_le_bytes().to_vec()));
            assert!(same.delete(&mut theirs, &key).await.unwrap());
        }
        let kept = 3000 - 3000_usize.div_ceil(7);
        assert_eq!(dart.scan(&mut client, &ScanRange::all(), usize::MAX).await.unwrap().len(), kept);
        // A value longer than a frame may be is refused by size; a shorter value is split over the
        // frames of a batch.
        let long = vec![5; 1 << 20];
        dart.put(&mut client, b"long", &long, Condition::Always).await.unwrap();
        assert_eq!(dart.get(&mut client, b"long").await.unwrap(), Some(long));
        let report = dart.check(&mut client).await.unwrap();
        assert_eq!(report.violations, Vec::<String>::new());
        assert_eq!(report.stats.keys, kept as u64 + 1);
        drop((client, dart, theirs, same));
        other.close().await.unwrap();
        pool.close().await.unwrap();
    });
}

#[test]
fn many_operations_share_a_thread() {
    let node = Node::small(MemNodeOptions::default());
    let fabric = connect(&[&node], b"").unwrap();
    let counter = GlobalAddr::new(0, 64);
    let mut endpoints: Vec<_> = (0..300).map(|_| fabric.endpoint().unwrap()).collect();
    let mut futures: Vec<_> = endpoints
        .iter_mut()
        .map(|endpoint| {
            Box::pin(async move {
                for _ in 0..10 {
                    let mut batch = endpoint.batch();
                    batch.faa(counter, 1);
                    let done = endpoint.submit(batch).await.unwrap();
                    endpoint.recycle(done);
                }
            })
        })
        .collect();
    block_on(std::future::poll_fn(|context| {
        futures.retain_mut(|future| future.as_mut().poll(context).is_pending());
        if futures.is_empty() { std::task::Poll::Ready(()) } else { std::task::Poll::Pending }
    }));
    drop(futures);
    let mut batch = endpoints[0].batch();
    let read = batch.read(counter, 1);
    assert_eq!(block_on(endpoints[0].submit(batch)).unwrap().words(read), [3000]);
}

#[test]
fn a_thread_that_never_spins_gets_every_reply_of_long_batches() {
    const WORDS: usize = 256;
    let nodes = [Node::small(MemNodeOptions::default()), Node::small(MemNodeOptions::default())];
    let options = TcpOptions { spin: Duration::ZERO, ..TcpOptions::default() };
    let fabric = connect_as(&[&nodes[0], &nodes[1]], options).unwrap();
    // Requests exceed the bytes that are sent at once, and replies one read, several times.
    run_all((0..200_u64).map(|task| {
        let mut endpoint = fabric.endpoint().unwrap();
        async move {
            let places = [0, 1].map(|node| GlobalAddr::new(node, 4096 + task * WORDS as u64 * 8));
            for round in 1..=5 {
                let mut batch = endpoint.batch();
                for place in places {
                    batch.write(place, &[task * 10 + round; WORDS]);
                }
                let reads = places.map(|place| batch.read(place, WORDS));
                let cas = batch.cas(places[1], task * 10 + round, task);
                let done = endpoint.submit(batch).await.unwrap();
                for read in reads {
                    assert_eq!(done.words(read), [task * 10 + round; WORDS]);
                }
                assert!(done.swapped(cas));
                endpoint.recycle(done);
            }
        }
    }));
}

#[test]
fn bad_verbs_are_refused_and_the_connection_goes_on() {
    let node = Node::small(MemNodeOptions::default());
    let fabric = connect(&[&node], b"").unwrap();
    let mut endpoint = fabric.endpoint().unwrap();
    for (addr, what) in [
        (GlobalAddr::new(0, 1 << 20), "outside"),
        (GlobalAddr::new(0, 12), "aligned"),
        (GlobalAddr::new(1, 0), "no memory node"),
    ] {
        let mut batch = endpoint.batch();
        batch.write(addr, &[1]);
        let error = block_on(endpoint.submit(batch)).unwrap_err().to_string();
        assert!(error.contains(what), "{error}");
    }
    let mut batch = endpoint.batch();
    let read = batch.read(GlobalAddr::new(0, 0), 1);
    assert_eq!(block_on(endpoint.submit(batch)).unwrap().words(read), [0]);
}

#[test]
fn a_dropped_future_leaves_its_verbs_to_land() {
    let node = Node::small(MemNodeOptions::default());
    let fabric = connect(&[&node], b"").unwrap();
    let mut endpoint = fabric.endpoint().unwrap();
    let mut batch = endpoint.batch();
    batch.write(GlobalAddr::new(0, 64), &[9]);
    {
        let mut future = Box::pin(endpoint.submit(batch));
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        assert!(future.as_mut().poll(&mut context).is_pending());
    }
    while endpoint.in_flight() > 0 {
        std::thread::yield_now();
    }
    let mut batch = endpoint.batch();
    let read = batch.read(GlobalAddr::new(0, 64), 1);
    assert_eq!(block_on(endpoint.submit(batch)).unwrap().words(read), [9]);
}

#[test]
fn a_lost_node_is_an_error_and_comes_back() {
    let dir = tempfile::tempdir().unwrap();
    let region = || Region::file(&dir.path().join("region"), 1 << 20).unwrap();
    let mut node = Node::start(region(), "127.0.0.1:0", MemNodeOptions::default());
    let fabric = connect(&[&node], b"").unwrap();
    let mut endpoint = fabric.endpoint().unwrap();
    let write = |endpoint: &mut darter_fabric::tcp::TcpEndpoint, word: u64| {
        let mut batch = endpoint.batch();
        batch.write(GlobalAddr::new(0, 64), &[word]);
        block_on(endpoint.submit(batch)).map(drop)
    };
    write(&mut endpoint, 1).unwrap();
    let address = node.address.to_string();
    node.end();
    assert!(matches!(write(&mut endpoint, 2), Err(FabricError::Disconnected { node: 0 })));
    // The same memory is accepted again, other memory is not.
    let mut again = Node::start(region(), &address, MemNodeOptions::default());
    write(&mut endpoint, 3).unwrap();
    again.end();
    assert!(write(&mut endpoint, 4).is_err());
    let _other = Node::start(Region::memory(1 << 20).unwrap(), &address, MemNodeOptions::default());
    let error = write(&mut endpoint, 5).unwrap_err().to_string();
    assert!(error.contains("another memory"), "{error}");
}

#[test]
fn a_member_is_fenced_when_its_connections_are_gone_or_its_lease_is_over() {
    let nodes = [Node::small(MemNodeOptions::default()), Node::small(MemNodeOptions::default())];
    let nodes = [&nodes[0], &nodes[1]];
    let (one, three) = (connect(&nodes, b"").unwrap(), connect(&nodes, b"").unwrap());
    // A process that takes a slot and dies.
    let mut stream = greeted(nodes[0], 5);
    let head = RequestHead { kind: RequestKind::Claim as u8, reserved: 0, verbs: 0, bytes: 16, id: 1 };
    let claim = Control { number: 3, flag: 0 };
    stream.write_all(&[wire::as_bytes(&head), wire::as_bytes(&claim)].concat()).unwrap();
    let mut reply = [0; size_of::<wire::ReplyHead>()];
    stream.read_exact(&mut reply).unwrap();
    assert_eq!(wire::head::<wire::ReplyHead>(&reply).unwrap().refusal, Refusal::None as u8);
    let suspect = Suspect { slot: 3, holder: 5, lapsed: false };
    assert!(matches!(one.claim(3), Err(FabricError::IdentityTaken { slot: 3 })));
    assert_eq!(one.fence(suspect).unwrap(), FenceOutcome::Alive);
    drop(stream);
    // The node detects the end of its connection.
    let fenced = (0..500).any(|_| {
        std::thread::sleep(Duration::from_millis(10));
        one.fence(suspect).unwrap() == FenceOutcome::Fenced
    });
    assert!(fenced);
    // A session that is connected to both nodes, and silent in the pool beyond its lease.
    let identity = three.claim(3).unwrap();
    let mut endpoint = three.endpoint().unwrap();
    let write = |endpoint: &mut darter_fabric::tcp::TcpEndpoint, node: u8| {
        let mut batch = endpoint.batch();
        batch.write(GlobalAddr::new(node, 64), &[5]);
        block_on(endpoint.submit(batch)).map(drop)
    };
    write(&mut endpoint, 0).unwrap();
    write(&mut endpoint, 1).unwrap();
    let suspect = Suspect { slot: 3, holder: identity.holder(), lapsed: false };
    assert_eq!(one.fence(suspect).unwrap(), FenceOutcome::Alive);
    assert_eq!(one.fence(Suspect { lapsed: true, ..suspect }).unwrap(), FenceOutcome::Fenced);
    for node in [1, 0] {
        // The node may have ended the connection already.
        let first = write(&mut endpoint, node).unwrap_err();
        assert!(matches!(first, FabricError::Fenced | FabricError::Disconnected { .. }), "{first}");
        for _ in 0..3 {
            assert!(matches!(write(&mut endpoint, node), Err(FabricError::Fenced)), "node {node}");
        }
    }
    assert!(matches!(three.endpoint().map(|mut fresh| write(&mut fresh, 1)), Ok(Err(FabricError::Fenced))));
    assert!(one.claim(3).is_ok());
}

#[test]
fn a_session_shut_out_stays_so_when_its_node_is_restarted() {
    let dir = tempfile::tempdir().unwrap();
    let region = || Region::file(&dir.path().join("region"), 1 << 20).unwrap();
    let mut node = Node::start(region(), "127.0.0.1:0", MemNodeOptions::default());
    let address = node.address.to_string();
    let (one, two) = (connect(&[&node], b"").unwrap(), connect(&[&node], b"").unwrap());
    let holder = two.claim(0).unwrap().holder();
    let suspect = Suspect { slot: 0, holder, lapsed: true };
    assert_eq!(one.fence(suspect).unwrap(), FenceOutcome::Fenced);
    node.end();
    let _again = Node::start(region(), &address, MemNodeOptions::default());
    let mut endpoint = two.endpoint().unwrap();
    let mut batch = endpoint.batch();
    batch.write(GlobalAddr::new(0, 64), &[5]);
    let error = block_on(endpoint.submit(batch)).map(drop).unwrap_err();
    assert!(matches!(error, FabricError::Fenced), "{error}");
}

#[test]
fn a_region_file_is_one_nodes_and_keeps_its_size() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("region");
    let held = Region::file(&path, 1 << 20).unwrap();
    let error = Region::file(&path, 1 << 20).unwrap_err().to_string();
    assert!(error.contains("in use"), "{error}");
    drop(held);
    let error = Region::file(&path, 2 << 20).unwrap_err().to_string();
    assert!(error.contains("has 1M, not 2M"), "{error}");
    std::fs::remove_file(dir.path().join("region.node")).unwrap();
    let error = Region::file(&path, 1 << 20).unwrap_err().to_string();
    assert!(error.contains("region.node"), "{error}");
}

#[test]
fn malformed_frames_touch_no_memory() {
    let region = Local::memory(1 << 20, 1).unwrap();
    let node = Node::start(Region::of(region.clone()).unwrap(), "127.0.0.1:0", MemNodeOptions::default());
    assert!(provoke(&node, false, b"GET / HTTP/1.1\r\nHost: memory.node\r\n\r\n").is_empty());
    let head = |kind, verbs, bytes| RequestHead { kind, reserved: 0, verbs, bytes, id: 1 };
    let refusal = |answer: &[u8]| {
        wire::head::<wire::ReplyHead>(answer).and_then(|head| Refusal::from_code(head.refusal))
    };
    for bad in [head(13, 0, 0), head(0, 0, 0), head(1, 0, u32::MAX), head(2, 0, 0), head(1, 3, 0)] {
        let answer = provoke(&node, true, wire::as_bytes(&bad));
        assert_eq!(refusal(&answer), Some(Refusal::Malformed), "{bad:?}");
    }
    // A frame whose only verb is a write that announces more words than it has.
    let mut dice = Pcg64Mcg::seed_from_u64(1);
    for length in 0..40_u32 {
        let noise: Vec<u8> = (0..length).map(|_| dice.random::<u8>() | 0x80).collect();
        let frame = [wire::as_bytes(&head(1, 1, length)), &noise[..]].concat();
        let answer = provoke(&node, true, &frame);
        assert!(matches!(refusal(&answer), Some(Refusal::Malformed)), "{length}");
    }
    // An atomic verb that announces two words.
    let verb = [[VerbKind::Faa as u8, 0, 0, 0, 2, 0, 0, 0], [0; 8], [1; 8]].concat();
    let answer = provoke(&node, true, &[wire::as_bytes(&head(1, 1, 24)), &verb[..]].concat());
    assert_eq!(refusal(&answer), Some(Refusal::Malformed));
    let mut endpoint = region.endpoint().unwrap();
    let mut batch = endpoint.batch();
    let read = batch.read(GlobalAddr::new(0, 0), (1 << 20) / 8);
    assert!(block_on(endpoint.submit(batch)).unwrap().words(read).iter().all(|&word| word == 0));
    connect(&[&node], b"").unwrap();
}

#[test]
fn a_peer_that_does_not_read_is_dropped() {
    let options = MemNodeOptions {
        patience: Duration::from_millis(300),
        waiting_bytes_max: 1 << 20,
        ..MemNodeOptions::default()
    };
    let mut node = Node::small(options);
    let mut stream = greeted(&node, 5);
    stream.set_write_timeout(Some(Duration::from_secs(20))).unwrap();
    // An endless sequence of READs of 64 KiB, whose replies are not read.
    let frame = read_frame(8192);
    let ended = (0..10_000_000_u32).any(|_| stream.write_all(&frame).is_err());
    assert!(ended);
    assert_eq!(node.end().dropped, 1);
}
