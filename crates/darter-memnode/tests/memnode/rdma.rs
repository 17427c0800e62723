//! Memory nodes whose verbs go through RDMA devices: the two Soft-RoCE devices of
//! `scripts/rdma-vm`. Elsewhere these tests are skipped.

use crate::support::devices::{device, has_devices, on_device, over_devices, reach, serving, through_device};
use crate::support::{LONG, Node, connect_as, greeted, hear, say, until};
use darter_fabric::tcp::TcpEndpoint;
use darter_fabric::wire::{self, Pairing, Refusal, ReplyHead, RequestHead, RequestKind};
use darter_fabric::{
    Batch, Counting, Endpoint, Fabric, FabricError, FenceOutcome, GlobalAddr, Local, Membership, OpKind,
    Suspect, TcpOptions, block_on, run_all,
};
use darter_index::{Condition, Dart, DartOptions, OrderedIndex, ScanRange};
use darter_memnode::{MemNodeOptions, Region};
use darter_pool::{Pool, PoolOptions};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

/// Adds one to a word by one operation. Returns the former value.
fn add(endpoint: &mut TcpEndpoint, word: GlobalAddr) -> Result<u64, FabricError> {
    endpoint.begin(OpKind::Update);
    let mut batch = endpoint.batch();
    let id = batch.faa(word, 1);
    let done = block_on(endpoint.submit(batch))?;
    let found = done.fetched(id);
    endpoint.recycle(done);
    Ok(found)
}

/// Reads a word.
fn read(endpoint: &mut TcpEndpoint, word: GlobalAddr) -> u64 {
    let mut batch = endpoint.batch();
    let id = batch.read(word, 1);
    block_on(endpoint.submit(batch)).unwrap().words(id)[0]
}

#[test]
fn every_verb_does_what_it_says() {
    let Some((_node, fabric)) = over_devices(1 << 20) else { return };
    let mut endpoint = fabric.endpoint().unwrap();
    block_on(async {
        let at = |offset| GlobalAddr::new(0, offset);
        let mut batch = endpoint.batch();
        batch.write(at(4096), &(0..1000).collect::<Vec<u64>>());
        let read = batch.read(at(4096), 1000);
        let missed = batch.cas(at(4096 + 8), 7, 8);
        let hit = batch.cas(at(4096 + 16), 2, 22);
        let added = batch.faa(at(4096 + 24), 5);
        batch.fence().write(at(4096 + 32), &[44]);
        let again = batch.read(at(4096), 5);
        let nothing = batch.read(at(0), 0);
        let done = endpoint.submit(batch).await.unwrap();
        assert!(done.words(read).iter().copied().eq(0..1000));
        assert_eq!((done.found(missed), done.swapped(missed), done.swapped(hit)), (1, false, true));
        assert_eq!((done.fetched(added), done.words(again)), (3, &[0, 1, 22, 8, 44][..]));
        assert!(done.words(nothing).is_empty());
        endpoint.recycle(done);
        assert_eq!(endpoint.submit(Batch::new()).await.unwrap().len(), 0);
        // Words outside the device's memory are moved into it.
        let mut foreign = Batch::new();
        foreign.write(at(64), &[1, 2, 3]);
        let read = foreign.read(at(64), 3);
        assert_eq!(endpoint.submit(foreign).await.unwrap().words(read), [1, 2, 3]);
    });
    assert!(!fabric.capabilities().ordered_batches && !fabric.capabilities().pure_cas);
    assert!(fabric.notes()[0].contains("rxe0"), "{:?}", fabric.notes());
}

#[test]
fn batches_longer_than_a_queue_and_transfers_longer_than_a_message_go_in_parts() {
    let Some((_node, fabric)) = over_devices(64 << 20) else { return };
    let mut endpoint = fabric.endpoint().unwrap();
    block_on(async {
        let mut batch = endpoint.batch();
        for n in 0..1000 {
            batch.write(GlobalAddr::new(0, 8 * n), &[n]);
        }
        let sums: Vec<_> = (0..1000).map(|n| batch.faa(GlobalAddr::new(0, 8 * n), 1)).collect();
        let done = endpoint.submit(batch).await.unwrap();
        assert!(sums.iter().enumerate().all(|(n, id)| done.fetched(*id) == n as u64));
        // The longest message of Soft-RoCE is 8 MiB.
        let words: Vec<u64> = (0..(20 << 20) / 8).collect();
        let mut batch = endpoint.batch();
        batch.write(GlobalAddr::new(0, 8 << 20), &words);
        let read = batch.read(GlobalAddr::new(0, 8 << 20), words.len());
        assert!(endpoint.submit(batch).await.unwrap().words(read) == words);
    });
}

#[test]
fn an_address_at_fault_costs_an_error_and_not_the_connection() {
    let Some((node, fabric)) = over_devices(1 << 20) else { return };
    let mut endpoint = fabric.endpoint().unwrap();
    block_on(async {
        for (offset, words) in [(1 << 20, 1), ((1 << 20) - 8, 2), (1 << 39, 1), (4, 1)] {
            let mut batch = endpoint.batch();
            batch.faa(GlobalAddr::new(0, 64), 1);
            batch.read(GlobalAddr::new(0, offset), words);
            let error = endpoint.submit(batch).await.unwrap_err();
            assert!(error.is_bad_address(), "{error}");
        }
        let mut batch = endpoint.batch();
        let counter = batch.faa(GlobalAddr::new(0, 64), 1);
        assert_eq!(endpoint.submit(batch).await.unwrap().fetched(counter), 0, "none was posted");
    });
    assert_eq!(node.metrics.counts().accepted, 2, "one connection of the thread, one for requests");
}

/// Does the same with an index on any fabric. Returns its costs.
async fn build<F: Fabric>(fabric: F) -> String {
    // The secret determines which keys share a bucket.
    let options = PoolOptions { secret: Some([1, 2, 3, 4]), ..PoolOptions::default() };
    let pool = Pool::create(fabric, &options).await.unwrap();
    let mut client = pool.client().unwrap();
    // Every search is counted, instead of a random sample.
    let options = DartOptions { frequency_every: 1, ..DartOptions::default() };
    let dart = Dart::open_or_create(&mut client, options).await.unwrap();
    for n in 0..300_u32 {
        let key = n.wrapping_mul(0x9e37_79b9).to_be_bytes();
        dart.put(&mut client, &key, &n.to_le_bytes(), Condition::Always).await.unwrap();
    }
    for n in (0..300_u32).step_by(3) {
        let key = n.wrapping_mul(0x9e37_79b9).to_be_bytes();
        assert_eq!(dart.get(&mut client, &key).await.unwrap(), Some(n.to_le_bytes().to_vec()));
        assert!(dart.delete(&mut client, &key).await.unwrap());
    }
    assert_eq!(dart.scan(&mut client, &ScanRange::all(), usize::MAX).await.unwrap().len(), 200);
    let counters = *client.endpoint().counters().unwrap();
    let of = |kind: OpKind| format!("{kind:?}: {:?}", counters[kind]);
    let costs = [OpKind::Insert, OpKind::Get, OpKind::Delete, OpKind::Scan].map(of).join("\n");
    assert_eq!(dart.check(&mut client).await.unwrap().violations, Vec::<String>::new());
    drop((client, dart));
    pool.close().await.unwrap();
    costs
}

#[test]
fn dart_costs_what_it_costs_on_local_memory() {
    if !has_devices() {
        return;
    }
    let nodes = [serving(8 << 20), serving(8 << 20)];
    let fabric = reach(&[&nodes[0], &nodes[1]]);
    let there = block_on(build(Counting::new(fabric.clone())));
    let here = block_on(build(Counting::new(Local::memory(8 << 20, 2).unwrap())));
    assert_eq!(there, here);
}

#[test]
fn a_batch_is_one_post_to_each_node_it_names() {
    if !has_devices() {
        return;
    }
    let nodes = [serving(1 << 20), serving(1 << 20)];
    let fabric = reach(&[&nodes[0], &nodes[1]]);
    let mut endpoint = fabric.endpoint().unwrap();
    for (named, nodes) in [(&[0_u8, 0, 0][..], 1), (&[0, 1, 0, 1], 2), (&[1], 1)] {
        let posted = fabric.posts();
        let mut batch = endpoint.batch();
        for (n, &node) in named.iter().enumerate() {
            batch.write(GlobalAddr::new(node, 64 + 8 * n as u64), &[7]);
        }
        block_on(endpoint.submit(batch)).unwrap();
        assert_eq!(fabric.posts() - posted, nodes, "{named:?}");
    }
}

#[test]
fn many_threads_and_tasks_add_without_loss() {
    let Some((_node, fabric)) = over_devices(1 << 20) else { return };
    let counter = GlobalAddr::new(0, 64);
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                let mut endpoints: Vec<_> = (0..64).map(|_| fabric.endpoint().unwrap()).collect();
                run_all(endpoints.iter_mut().map(|endpoint| async move {
                    for _ in 0..10 {
                        let mut batch = endpoint.batch();
                        batch.faa(counter, 1);
                        let batch = endpoint.submit(batch).await.unwrap();
                        endpoint.recycle(batch);
                    }
                }));
            });
        }
    });
    assert_eq!(read(&mut fabric.endpoint().unwrap(), counter), 3 * 64 * 10);
}

#[test]
fn fenced_verbs_are_not_lost() {
    let Some((_node, fabric)) = over_devices(1 << 20) else { return };
    let mut endpoints: Vec<_> = (0..32).map(|_| fabric.endpoint().unwrap()).collect();
    run_all(endpoints.iter_mut().zip(1_u64..).map(|(endpoint, task)| async move {
        let own = GlobalAddr::new(0, 4096 * task);
        for round in 0..100 {
            let mut batch = endpoint.batch();
            let before = batch.read(own, 256);
            batch.fence().cas(own, round, round + 1);
            batch.fence().write(own.plus(8), &[round; 255]);
            let done = endpoint.submit(batch).await.unwrap();
            let expected = std::iter::once(round).chain([round.saturating_sub(1); 255]);
            assert!(done.words(before).iter().copied().eq(expected), "{round}");
            endpoint.recycle(done);
        }
    }));
}

#[test]
fn a_thread_that_sleeps_is_woken_by_completions() {
    if !has_devices() {
        return;
    }
    let node = serving(1 << 20);
    // The client never spins, so it sleeps before each completion.
    let options = TcpOptions { spin: std::time::Duration::ZERO, ..through_device() };
    let fabric = connect_as(&[&node], options).unwrap();
    let mut endpoint = fabric.endpoint().unwrap();
    for n in 0..100 {
        assert_eq!(add(&mut endpoint, GlobalAddr::new(0, 64)).unwrap(), n);
    }
    // Tasks of another executor are driven by a thread of the fabric.
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build().unwrap();
    runtime.block_on(async {
        let mut endpoint = fabric.endpoint().unwrap();
        for n in 100..200 {
            let mut batch = endpoint.batch();
            let sum = batch.faa(GlobalAddr::new(0, 64), 1);
            assert_eq!(endpoint.submit(batch).await.unwrap().fetched(sum), n);
        }
    });
}

#[test]
fn a_dropped_future_s_memory_stays_until_its_verbs_are_done() {
    let Some((_node, fabric)) = over_devices(8 << 20) else { return };
    let mut endpoint = fabric.endpoint().unwrap();
    block_on(async {
        for round in 0..50_u64 {
            let mut batch = endpoint.batch();
            batch.read(GlobalAddr::new(0, 0), 100_000);
            {
                let mut future = std::pin::pin!(endpoint.submit(batch));
                std::future::poll_fn(|context| {
                    let _ = future.as_mut().poll(context);
                    std::task::Poll::Ready(())
                })
                .await;
            }
            let mut batch = endpoint.batch();
            batch.write(GlobalAddr::new(0, 4 << 20), &[round; 1000]);
            let read = batch.read(GlobalAddr::new(0, 4 << 20), 1000);
            assert_eq!(endpoint.submit(batch).await.unwrap().words(read), [round; 1000]);
        }
    });
    until("all are done", || endpoint.in_flight() == 0);
}

#[test]
fn after_a_fence_nothing_of_the_client_lands_and_it_learns_of_it() {
    if !has_devices() {
        return;
    }
    let node = serving(1 << 20);
    let word = GlobalAddr::new(0, 4096);
    let doomed = reach(&[&node]);
    let held = doomed.claim(3).unwrap();
    let suspect = Suspect { slot: 3, holder: held.holder(), lapsed: true };
    let ends = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let adds = scope.spawn(|| {
            let mut endpoints: Vec<_> = (0..32).map(|_| doomed.endpoint().unwrap()).collect();
            run_all(endpoints.iter_mut().map(|endpoint| async {
                loop {
                    let mut batch = endpoint.batch();
                    batch.faa(word, 1);
                    batch.write(word.plus(8), &[1; 100]);
                    match endpoint.submit(batch).await {
                        Ok(batch) => endpoint.recycle(batch),
                        Err(error) => return (error, Instant::now()),
                    }
                }
            }))
        });
        let other = reach(&[&node]);
        let mut endpoint = other.endpoint().unwrap();
        let mut sum_now = || read(&mut endpoint, word);
        until("it adds", || sum_now() > 100);
        assert_eq!(other.fence(suspect).unwrap(), FenceOutcome::Fenced);
        let (fenced, sum) = (Instant::now(), sum_now());
        for _ in 0..200 {
            assert_eq!(sum_now(), sum);
        }
        let errors = adds.join().unwrap();
        let learnt = errors.iter().map(|(_, when)| when.saturating_duration_since(fenced)).max().unwrap();
        println!("fenced at {sum}; the last task of the client detected it after {learnt:?}");
        for (error, _) in errors {
            assert!(matches!(error, FabricError::Disconnected { .. } | FabricError::Fenced), "{error}");
        }
        ends.store(true, Ordering::Relaxed);
    });
    let error = add(&mut doomed.endpoint().unwrap(), word).unwrap_err();
    assert!(matches!(error, FabricError::Fenced), "{error}");
    until("its queues are gone", || node.metrics.counts().accepted > 0);
}

#[test]
fn a_node_that_ends_is_an_error_and_another_memory_is_refused() {
    let Some((mut node, fabric)) = over_devices(1 << 20) else { return };
    let address = node.address.to_string();
    let mut endpoints: Vec<_> = (0..8).map(|_| fabric.endpoint().unwrap()).collect();
    let word = GlobalAddr::new(0, 64);
    add(&mut endpoints[0], word).unwrap();
    let stop = Arc::clone(&node.stop);
    let errors = run_all(endpoints.iter_mut().enumerate().map(|(n, endpoint)| {
        let stop = &stop;
        async move {
            for round in 0.. {
                if n == 0 && round == 20 {
                    stop.ask();
                    stop.ask();
                }
                let mut batch = endpoint.batch();
                batch.faa(GlobalAddr::new(0, 64), 1);
                if let Err(error) = endpoint.submit(batch).await {
                    return error;
                }
            }
            unreachable!("it ends with an error")
        }
    }));
    for error in errors {
        assert!(
            matches!(error, FabricError::Disconnected { node: 0 } | FabricError::Unreachable { node: 0 }),
            "{error}"
        );
    }
    node.end();
    let error = add(&mut endpoints[0], word).unwrap_err();
    assert!(matches!(error, FabricError::Unreachable { node: 0 }), "{error}");
    let other = Node::start(Region::memory(1 << 20).unwrap(), &address, on_device());
    let mut error = String::new();
    until("it replies", || {
        error = add(&mut endpoints[0], word).unwrap_err().to_string();
        !error.contains("cannot be reached")
    });
    assert!(error.contains("another memory"), "{error}");
    drop(other);
}

#[test]
fn member_whose_connections_end_leaves_no_queue() {
    if !has_devices() {
        return;
    }
    let node = serving(1 << 20);
    for _ in 0..20 {
        add(&mut reach(&[&node]).endpoint().unwrap(), GlobalAddr::new(0, 64)).unwrap();
    }
    let fabric = reach(&[&node]);
    let mut endpoint = fabric.endpoint().unwrap();
    assert_eq!(read(&mut endpoint, GlobalAddr::new(0, 64)), 20);
    let port =
        darter_memnode::serve_metrics("127.0.0.1:0".parse().unwrap(), Arc::clone(&node.metrics)).unwrap();
    until("one is left", || {
        let page = crate::support::get(port.address(), "/metrics");
        crate::support::value(&page, "darter_memnode_queue_pairs") == 1
    });
}

/// Sends a request with this payload. Returns the reply's refusal, and its payload.
fn request(stream: &mut TcpStream, kind: RequestKind, payload: &[u8]) -> (Option<Refusal>, Vec<u8>) {
    let head = RequestHead { kind: kind as u8, reserved: 0, verbs: 0, bytes: payload.len() as u32, id: 1 };
    say(stream, &head);
    stream.write_all(payload).unwrap();
    let reply: ReplyHead = hear(stream);
    let mut answer = vec![0; reply.bytes as usize];
    stream.read_exact(&mut answer).unwrap();
    (Refusal::from_code(reply.refusal), answer)
}

#[test]
fn pairings_that_make_no_sense_are_refused_and_the_node_serves_on() {
    let Some((node, fabric)) = over_devices(1 << 20) else { return };
    for length in [0, 1, size_of::<Pairing>() - 1, size_of::<Pairing>() + 1, 4096] {
        let mut stream = greeted(&node, 5);
        stream.set_read_timeout(Some(LONG)).unwrap();
        let (refusal, _) = request(&mut stream, RequestKind::Pair, &vec![0x5a; length]);
        assert_eq!(refusal, Some(Refusal::Malformed), "{length}");
    }
    let mut dice = Pcg64Mcg::seed_from_u64(11);
    for _ in 0..30 {
        let mut stream = greeted(&node, 5);
        stream.set_read_timeout(Some(LONG)).unwrap();
        let bytes: Vec<u8> = (0..size_of::<Pairing>()).map(|_| dice.random::<u8>()).collect();
        let (refusal, _) = request(&mut stream, RequestKind::Pair, &bytes);
        // Pairing with a nonexistent queue at a nonexistent address may succeed.
        assert!(matches!(refusal, Some(Refusal::None | Refusal::Failed)), "{refusal:?}");
    }
    let sound = Pairing {
        gid: std::net::Ipv4Addr::new(10, 1, 0, 1).to_ipv6_mapped().octets(),
        queue: 17,
        mtu: 3,
        reads_made: 1,
        reads_served: 1,
        ..Pairing::default()
    };
    let mut stream = greeted(&node, 5);
    stream.set_read_timeout(Some(LONG)).unwrap();
    assert_eq!(request(&mut stream, RequestKind::Pair, wire::as_bytes(&sound)).0, Some(Refusal::None));
    assert_eq!(request(&mut stream, RequestKind::Pair, wire::as_bytes(&sound)).0, Some(Refusal::Busy));
    let (refusal, text) = request(&mut stream, RequestKind::Batch, &[]);
    assert_eq!(refusal, Some(Refusal::Failed));
    assert!(String::from_utf8(text).unwrap().contains("rdma://"));
    add(&mut fabric.endpoint().unwrap(), GlobalAddr::new(0, 64)).unwrap();
}

#[test]
fn a_name_of_the_wrong_kind_says_which_is_right() {
    if !has_devices() {
        return;
    }
    let (node, plain) = (serving(1 << 20), Node::small(MemNodeOptions::default()));
    let error = connect_as(&[&node], TcpOptions::default()).unwrap_err().to_string();
    assert!(error.contains("rdma://"), "{error}");
    let error = connect_as(&[&plain], through_device()).unwrap_err().to_string();
    assert!(error.contains("--rdma") && error.contains("tcp://"), "{error}");
    for (name, word) in [("rxe7", "there are rxe0"), ("rxe0:2", "ports 1 to 1"), ("rxe0:1:200", "GID")] {
        let options = TcpOptions { device: Some(device(name)), ..TcpOptions::default() };
        let error = connect_as(&[&node], options).unwrap_err().to_string();
        assert!(error.contains(word), "{error}");
    }
}

#[test]
fn an_ordinary_file_is_not_pinned() {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let region = Region::file(&folder.path().join("region"), 1 << 20).unwrap();
    let error =
        darter_memnode::MemNode::bind("127.0.0.1:0".parse().unwrap(), region, on_device()).unwrap_err();
    assert!(error.to_string().contains("ordinary file"), "{error}");
}
