//! Memory groups over TCP: several memory nodes that are one node to their clients.

use crate::support::authority::{Authority, LATER};
use crate::support::groups::TestGroup;
use crate::support::{LONG, Node, connect, get, greeted, hear, say, until, value};
use darter_fabric::wire::proof::{Proof, nonce};
use darter_fabric::wire::{self, Challenge, Hello, RequestHead, RequestKind, Welcome};
use darter_fabric::{
    Endpoint, Fabric, FabricError, FenceOutcome, GlobalAddr, Membership, RemoteNodes, ReplicaComparison,
    ReplicaGroups, ReplicaRole, Suspect, Tcp, TcpOptions, block_on,
};
use darter_group::Message;
use darter_index::{Condition, Dart, DartOptions, OrderedIndex};
use darter_memnode::{MemNode, MemNodeOptions, Region, serve_metrics};
use darter_pool::{Pool, PoolOptions};
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// Long enough that a busy machine causes no failover.
const CALM: Duration = Duration::from_secs(20);
/// Short enough that failovers do not dominate the test's time.
const QUICK: Duration = Duration::from_millis(300);

fn word(at: u64) -> GlobalAddr {
    GlobalAddr::new(0, at * 8)
}

fn add(endpoint: &mut impl Endpoint, at: GlobalAddr, amount: u64) -> Result<u64, FabricError> {
    let mut batch = endpoint.batch();
    let id = batch.faa(at, amount);
    let batch = block_on(endpoint.submit(batch))?;
    let found = batch.fetched(id);
    endpoint.recycle(batch);
    Ok(found)
}

fn read(endpoint: &mut impl Endpoint, at: GlobalAddr) -> u64 {
    let mut batch = endpoint.batch();
    let id = batch.read(at, 1);
    block_on(endpoint.submit(batch)).unwrap().words(id)[0]
}

#[test]
fn a_group_is_one_memory_node() {
    for replicas in [2, 3] {
        let group = TestGroup::start(replicas, 1 << 20, CALM);
        let tcp = group.connect();
        assert_eq!((tcp.nodes(), tcp.node_bytes(0)), (1, 1 << 20));
        assert_eq!(tcp.node_address(0), Some(group.address()));
        assert_eq!(tcp.node_id(0), group.store.view().map(|view| view.group));
        assert_eq!(tcp.capabilities().failover, CALM * 2);
        let mut endpoint = tcp.endpoint().unwrap();
        assert_eq!(add(&mut endpoint, word(8), 5).unwrap(), 0);
        let mut batch = endpoint.batch();
        let (failed, swapped) = (batch.cas(word(8), 4, 9), batch.cas(word(8), 5, 9));
        let seen = batch.read(word(8), 2);
        let done = block_on(endpoint.submit(batch)).unwrap();
        assert_eq!((done.found(failed), done.found(swapped)), (5, 5));
        assert_eq!(done.words(seen), [9, 0]);
        group.settle(&tcp);
        let states: Vec<_> = tcp.replicas(0).iter().map(|replica| replica.state.unwrap()).collect();
        assert_eq!(states.len(), replicas);
        assert_eq!(states.iter().filter(|state| state.role == ReplicaRole::Primary).count(), 1);
    }
}

#[test]
fn a_verb_outside_the_region_fails_alone() {
    let group = TestGroup::start(2, 4096, CALM);
    let tcp = group.connect();
    let mut endpoint = tcp.endpoint().unwrap();
    assert!(add(&mut endpoint, GlobalAddr::new(0, 8192), 1).unwrap_err().to_string().contains("refused"));
    assert_eq!(add(&mut endpoint, word(0), 1).unwrap(), 0);
}

/// Each increment is executed exactly once, whichever replica dies, as the sum shows.
#[test]
fn primaries_that_die_lose_and_repeat_nothing() {
    const WRITERS: u64 = 3;
    let mut group = TestGroup::start(2, 1 << 20, QUICK);
    let tcp = group.connect();
    group.settle(&tcp);
    let has_ended = AtomicBool::new(false);
    let counts: Vec<AtomicU64> = (0..WRITERS).map(|_| AtomicU64::new(0)).collect();
    std::thread::scope(|scope| {
        for (writer, count) in (0..).zip(&counts) {
            let (group, has_ended) = (group.address(), &has_ended);
            scope.spawn(move || {
                let tcp = Tcp::connect(&[group], TcpOptions::default()).unwrap();
                let mut endpoint = tcp.endpoint().unwrap();
                while !has_ended.load(Ordering::Relaxed) {
                    // Its own counter, and one shared by all writers.
                    let own = add(&mut endpoint, word(8 + writer * 8), 1).unwrap();
                    assert_eq!(own, count.load(Ordering::Relaxed), "an increment was lost or repeated");
                    add(&mut endpoint, word(0), 1).unwrap();
                    count.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        for round in 0..6 {
            let so_far: u64 = counts.iter().map(|count| count.load(Ordering::Relaxed)).sum();
            until("writers go on", || {
                counts.iter().map(|count| count.load(Ordering::Relaxed)).sum::<u64>() > so_far + 50
            });
            // Kills five primaries, and a backup.
            let primary = TestGroup::primary(&tcp);
            let victim = if round == 3 { 1 - primary } else { primary };
            group.kill(victim);
            group.revive(victim);
            group.settle_members(&tcp);
        }
        has_ended.store(true, Ordering::Relaxed);
    });
    let total: u64 = counts.iter().map(|count| count.load(Ordering::Relaxed)).sum();
    let mut endpoint = tcp.endpoint().unwrap();
    assert_eq!(read(&mut endpoint, word(0)), total);
    group.settle(&tcp);
}

#[test]
fn a_primary_hands_over_and_a_node_that_is_stopped_does_so_too() {
    let mut group = TestGroup::start(2, 1 << 20, CALM);
    let tcp = group.connect();
    group.settle(&tcp);
    let mut endpoint = tcp.endpoint().unwrap();
    add(&mut endpoint, word(1), 7).unwrap();
    let primary = TestGroup::primary(&tcp);
    let other = group.addresses[1 - primary].clone();
    tcp.hand_over(0, &other, CALM).unwrap();
    assert_eq!(TestGroup::primary(&tcp), 1 - primary);
    assert_eq!(add(&mut endpoint, word(1), 1).unwrap(), 7);
    group.settle(&tcp);
    let refused = tcp.hand_over(0, "127.0.0.1:1", CALM).unwrap_err().to_string();
    assert!(refused.contains("not a replica of memory node 0"), "{refused}");
    // With this patience a node that left without notice would be detected late.
    let mut stopped = group.nodes[1 - primary].take().unwrap();
    stopped.end();
    let view = group.store.view().unwrap();
    assert!((3..=4).contains(&view.number) && view.backups.is_empty(), "it was not missed: {view:?}");
    assert_eq!(read(&mut endpoint, word(1)), 8);
}

#[test]
fn a_session_that_was_shut_out_stays_so_when_another_replica_serves() {
    let mut group = TestGroup::start(2, 1 << 20, QUICK);
    let (tcp, other) = (group.connect(), group.connect());
    group.settle(&tcp);
    let mut endpoint = other.endpoint().unwrap();
    let slot = other.claim(3).unwrap();
    assert!(matches!(tcp.claim(3).map(drop), Err(FabricError::IdentityTaken { slot: 3 })));
    add(&mut endpoint, word(1), 1).unwrap();
    assert_eq!(
        tcp.fence(Suspect { slot: 3, holder: slot.holder(), lapsed: false }).unwrap(),
        FenceOutcome::Alive
    );
    assert_eq!(
        tcp.fence(Suspect { slot: 3, holder: slot.holder(), lapsed: true }).unwrap(),
        FenceOutcome::Fenced
    );
    let primary = TestGroup::primary(&tcp);
    group.kill(primary);
    let refused = add(&mut endpoint, word(1), 1).unwrap_err();
    assert!(matches!(refused, FabricError::Fenced), "{refused}");
    let mut endpoint = tcp.endpoint().unwrap();
    assert_eq!(read(&mut endpoint, word(1)), 1);
}

#[test]
fn a_spare_takes_the_place_of_a_replica_that_is_lost() {
    let mut group = TestGroup::start_with_spares(3, 2, 1 << 20, QUICK);
    let tcp = group.connect();
    let mut endpoint = tcp.endpoint().unwrap();
    let members = |tcp: &Tcp| -> Vec<usize> {
        let states = tcp.replicas(0).into_iter().enumerate();
        let members = states
            .filter(|(_, replica)| replica.state.is_some_and(|state| state.role != ReplicaRole::Learner));
        members.map(|(at, _)| at).collect()
    };
    until("the first two are members", || members(&tcp) == [0, 1]);
    add(&mut endpoint, word(1), 7).unwrap();
    group.kill(0);
    until("the spare is a member", || members(&tcp) == [1, 2]);
    group.revive(0);
    add(&mut endpoint, word(1), 1).unwrap();
    // The replica is a spare, and is not compared.
    until("members are compared", || {
        let found = tcp.compare_replicas(0);
        found.remarks.len() == 1
            && found.remarks[0].contains("member of the group")
            && found.differences.is_empty()
    });
    until("both are members", || members(&tcp) == [1, 2]);
    group.kill(1);
    until("the first is a member again", || members(&tcp) == [0, 2]);
    assert_eq!(read(&mut endpoint, word(1)), 8);
}

/// A replica that served before knows which session held which slot then. A session that is still
/// connected to the other replica when this one serves again has no connection here, but is alive.
#[test]
fn who_has_yet_to_come_back_to_a_replica_is_not_gone() {
    let group = TestGroup::start(2, 1 << 20, QUICK);
    let (tcp, idle) = (group.connect(), group.connect());
    group.settle(&tcp);
    let mut endpoint = idle.endpoint().unwrap();
    let slot = idle.claim(3).unwrap();
    let first = TestGroup::primary(&tcp);
    for next in [1 - first, first] {
        tcp.hand_over(0, &group.addresses[next], CALM).unwrap();
        group.settle(&tcp);
    }
    let suspect = Suspect { slot: 3, holder: slot.holder(), lapsed: false };
    assert_ne!(tcp.fence(suspect).unwrap(), FenceOutcome::Fenced);
    assert_eq!(add(&mut endpoint, word(1), 1).unwrap(), 0);
}

#[test]
fn a_store_of_views_that_is_gone_holds_up_view_changes_only() {
    let mut group = TestGroup::start(2, 1 << 20, QUICK);
    let tcp = group.connect();
    group.settle(&tcp);
    group.store.shut(true);
    let mut endpoint = tcp.endpoint().unwrap();
    add(&mut endpoint, word(1), 1).unwrap();
    let primary = TestGroup::primary(&tcp);
    group.kill(primary);
    let waits = std::thread::spawn(move || add(&mut endpoint, word(1), 1));
    std::thread::sleep(QUICK * 2);
    assert!(!waits.is_finished(), "no replica may serve");
    group.store.shut(false);
    assert_eq!(waits.join().unwrap().unwrap(), 1);
}

#[test]
fn an_index_lives_on_groups_under_tls_and_outlives_their_primaries() {
    let authority = Authority::new("one");
    let identity = authority.sign("a client", LATER);
    let tls = (authority.node(Some(&authority.ca())), authority.client(Some(&identity)));
    let mut groups: Vec<_> = (0..2)
        .map(|_| TestGroup::start_guarded(2, 8 << 20, QUICK, b"open sesame", Some(tls.clone())))
        .collect();
    let addresses: Vec<_> = groups.iter().map(TestGroup::address).collect();
    let options = TcpOptions { token: "open sesame".into(), tls: Some(tls.1), ..TcpOptions::default() };
    let tcp = Tcp::connect(&addresses, options).unwrap();
    let pool_options =
        PoolOptions { lease_ms: 60_000, block_bytes: Some(256 << 10), ..PoolOptions::default() };
    let pool = block_on(Pool::create(tcp, &pool_options)).unwrap();
    let mut client = pool.client().unwrap();
    let index = block_on(Dart::open_or_create(&mut client, DartOptions::default())).unwrap();
    let key = |at: u32| format!("key {at}").into_bytes();
    for at in 0..100 {
        block_on(index.put(&mut client, &key(at), b"value", Condition::Always)).unwrap();
    }
    for group in &mut groups {
        // Each node is node 0 of its own pool.
        let alone = group.connect();
        group.settle_members(&alone);
        let primary = TestGroup::primary(&alone);
        group.kill(primary);
    }
    for at in 0..100 {
        assert_eq!(block_on(index.get(&mut client, &key(at))).unwrap().as_deref(), Some(&b"value"[..]));
        block_on(index.put(&mut client, &key(at), b"other", Condition::Present)).unwrap();
    }
}

#[test]
fn operators_see_a_group_in_its_metrics() {
    let mut group = TestGroup::start(2, 1 << 20, QUICK);
    let tcp = group.connect();
    group.settle(&tcp);
    let mut endpoint = tcp.endpoint().unwrap();
    add(&mut endpoint, word(1), 7).unwrap();
    let primary = TestGroup::primary(&tcp);
    let metrics = Arc::clone(&group.nodes[1 - primary].as_ref().unwrap().metrics);
    let port = serve_metrics("127.0.0.1:0".parse().unwrap(), metrics).unwrap();
    let page = || get(port.address(), "/metrics");
    let before = page();
    assert_eq!(value(&before, "darter_memnode_group_role{role=\"backup\"}"), 1);
    assert_eq!(value(&before, "darter_memnode_group_failovers_total"), 0);
    group.kill(primary);
    add(&mut endpoint, word(1), 1).unwrap();
    until("it says that it serves alone", || {
        let page = page();
        let is_so = |metric: &str, wanted| value(&page, &format!("darter_memnode_group_{metric}")) == wanted;
        is_so("role{role=\"primary\"}", 1)
            && is_so("failovers_total", 1)
            && is_so("members", 1)
            && is_so("replicas", 2)
            && is_so("lag_records", 0)
            && value(&page, "darter_memnode_group_view") > value(&before, "darter_memnode_group_view")
            && value(&page, "darter_memnode_group_record") > value(&before, "darter_memnode_group_record")
    });
}

#[test]
fn a_word_in_which_replicas_differ_is_found() {
    let mut group = TestGroup::start(2, 9 << 20, CALM);
    let tcp = group.connect();
    group.settle(&tcp);
    let primary = TestGroup::primary(&tcp);
    let mut endpoint = tcp.endpoint().unwrap();
    add(&mut endpoint, word(1), 7).unwrap();
    assert_eq!(tcp.compare_replicas(0), ReplicaComparison::default());
    // Flips a bit of the backup, bypassing the replicas.
    let mut memory = group.memories[1 - primary].endpoint().unwrap();
    add(&mut memory, GlobalAddr::new(0, (8 << 20) + 64), 1).unwrap();
    let found = tcp.compare_replicas(0);
    assert_eq!((found.differences.len(), found.remarks.len()), (1, 0), "{found:?}");
    assert!(found.differences[0].contains("differ in the 1M from 8388608 on"), "{found:?}");
    group.kill(1 - primary);
    let found = tcp.compare_replicas(0);
    assert_eq!((found.differences.len(), found.remarks.len()), (0, 1), "{found:?}");
}

/// Otherwise its members would be declared dead while they wait.
#[test]
fn a_pool_whose_lease_does_not_outlast_failovers_is_refused() {
    let group = TestGroup::start(2, 8 << 20, Duration::from_secs(1));
    let make = |lease_ms| {
        block_on(Pool::create(group.connect(), &PoolOptions { lease_ms, ..PoolOptions::default() }))
    };
    let refused = make(4999).unwrap_err().to_string();
    assert!(refused.contains("two and a half failovers"), "{refused}");
    drop(make(5000).unwrap());
}

/// Messages still in an older connection were sent before those of the newer one.
#[test]
fn messages_that_a_replica_sent_on_an_older_connection_are_void() {
    let group = TestGroup::start(2, 1 << 20, CALM);
    let tcp = group.connect();
    group.settle(&tcp);
    let node = group.nodes[0].as_ref().unwrap();
    let say_join = |attempt| {
        let mut stream = TcpStream::connect(node.address).unwrap();
        stream.set_read_timeout(Some(LONG)).unwrap();
        let hello = Hello::new(77, nonce().unwrap());
        say(&mut stream, &Hello { channel: wire::RELAY_CHANNEL, attempt, ..hello });
        hear::<Challenge>(&mut stream);
        say(&mut stream, &Proof::default());
        assert_eq!(hear::<Welcome>(&mut stream).refusal, 0);
        let mut message = Vec::new();
        Message::Join.put(&mut message);
        let head = RequestHead {
            kind: RequestKind::Relay as u8,
            reserved: 0,
            verbs: 0,
            bytes: message.len() as u32,
            id: 1,
        };
        stream.write_all(&[wire::as_bytes(&head), &message].concat()).unwrap();
        stream
    };
    let mut newer = say_join(2);
    let mut older = say_join(1);
    assert_eq!(older.read(&mut [0]).unwrap(), 0, "it ends");
    newer.set_nonblocking(true).unwrap();
    assert_eq!(newer.read(&mut [0]).unwrap_err().kind(), ErrorKind::WouldBlock, "it goes on");
    // A client cannot send the messages of replicas.
    let mut stranger = greeted(node, 78);
    stranger.set_read_timeout(Some(LONG)).unwrap();
    let head = RequestHead { kind: RequestKind::Relay as u8, reserved: 0, verbs: 0, bytes: 0, id: 1 };
    stranger.write_all(wire::as_bytes(&head)).unwrap();
    assert_eq!(stranger.read(&mut [0]).unwrap(), 0);
}

#[test]
fn invalid_group_options_are_refused() {
    let group = TestGroup::start(2, 1 << 20, CALM);
    let tcp = group.connect();
    group.settle(&tcp);
    let alone = Tcp::connect(&[group.addresses[0].clone()], TcpOptions::default()).unwrap_err().to_string();
    assert!(alone.contains("one replica of a memory group") && alone.contains("name all of them"), "{alone}");
    let plain = Node::small(MemNodeOptions::default());
    let both = format!("{0}+{0}", plain.address);
    let both = Tcp::connect(&[both], TcpOptions::default()).unwrap_err().to_string();
    assert!(both.contains("not a replica of a group"), "{both}");
    assert!(tcp.replicas(1).is_empty() && connect(&[&plain], b"").unwrap().replicas(0).is_empty());
    let bind = |options| {
        let region = Region::memory(1 << 20).unwrap();
        MemNode::bind("127.0.0.1:0".parse().unwrap(), region, options).unwrap_err().to_string()
    };
    let with = |change: fn(&mut MemNodeOptions)| {
        let mut options = group.options(0);
        change(&mut options);
        bind(options)
    };
    assert!(with(|options| options.workers = 1).contains("procedures"));
    assert!(with(|options| options.group.as_mut().unwrap().me = 2).contains("two replicas or more"));
    let twice = with(|options| {
        let group = options.group.as_mut().unwrap();
        group.replicas[1] = group.replicas[0].clone();
    });
    assert!(twice.contains("occurs twice"), "{twice}");
    let hasty = with(|options| options.group.as_mut().unwrap().times.lease = CALM);
    assert!(hasty.contains("one and a half leases"), "{hasty}");
}
