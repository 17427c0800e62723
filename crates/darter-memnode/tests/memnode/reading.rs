//! Clients with a read-only token: the node refuses everything that would change more than their own
//! member line, and programs read with it.

use crate::support::groups::TestGroup;
use crate::support::{Node, connect, get, hear, say, until, value};
use darter::{ErrorKind, IndexKind, Store};
use darter_fabric::member_lines::{MEMBER_LINE_BYTES, MEMBER_LINES_AT, MEMBER_LINES_USED_AT, READS_ONLY};
use darter_fabric::wire::proof::{Proof, Side, Transcript, nonce};
use darter_fabric::wire::{
    self, Challenge, Control, Hello, KNOWS_READ_ONLY, Pairing, Refusal, ReplyHead, RequestHead, RequestKind,
    Secrets, Welcome,
};
use darter_fabric::{
    Batch, Endpoint, Fabric, FabricError, GlobalAddr, Local, Membership, Suspect, Tcp, TcpOptions, block_on,
};
use darter_memnode::{Limits, MemNode, MemNodeError, MemNodeOptions, Region, serve_metrics};
use darter_pool::{Pool, PoolError, PoolOptions};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use std::io::Read;
use std::net::TcpStream;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

const WRITES: &[u8] = b"may write";
const READS: &[u8] = b"may read";

fn options() -> MemNodeOptions {
    MemNodeOptions { token: WRITES.into(), read_only_token: READS.into(), ..MemNodeOptions::default() }
}

fn with_token(token: &[u8]) -> TcpOptions {
    TcpOptions { token: token.into(), ..TcpOptions::default() }
}

/// Returns the number of requests that a node has refused because their session may only read.
fn refusals(node: &Node) -> u64 {
    let metrics = serve_metrics("127.0.0.1:0".parse().unwrap(), Arc::clone(&node.metrics)).unwrap();
    value(&get(metrics.address(), "/metrics"), "darter_memnode_read_only_refusals_total")
}

/// Performs the handshake as a session, by a client that knows this. Returns the welcome and its text.
fn greet_with(
    stream: &mut TcpStream,
    token: &[u8],
    (session, channel): (u64, u32),
    knows: u32,
) -> (Welcome, String) {
    let mut hello = Hello { channel, ..Hello::new(session, nonce().unwrap()) };
    hello.opening.code = hello.opening.code & !KNOWS_READ_ONLY | knows;
    say(stream, &hello);
    let challenge: Challenge = hear(stream);
    let transcript = Transcript { client: hello.nonce, node: challenge.nonce, session };
    say(stream, &transcript.prove(token, Side::Client));
    let welcome: Welcome = hear(stream);
    let mut text = vec![0; welcome.text_bytes as usize];
    stream.read_exact(&mut text).unwrap();
    assert_ne!(welcome.proof, Proof::default(), "the token is known");
    (welcome, String::from_utf8(text).unwrap())
}

fn refused_for(node: &Node, token: &[u8], caller: (u64, u32), knows: u32) -> Option<String> {
    let mut stream = TcpStream::connect(node.address).unwrap();
    let (welcome, text) = greet_with(&mut stream, token, caller, knows);
    if welcome.refusal == 0 {
        return None;
    }
    assert_eq!(welcome.refusal, Refusal::Credentials as u32, "{text}");
    Some(text)
}

/// Posts random verbs as a session that has claimed a slot to read, over memory of random words, and
/// compares all of the memory after each batch.
#[test]
fn a_session_that_may_only_read_changes_nothing_but_its_line() {
    const BYTES: usize = 128 << 10;
    const SLOT: u64 = 5;
    let memory = Local::memory(BYTES as u64, 1).unwrap();
    let mut node = Node::start(Region::of(memory.clone()).unwrap(), "127.0.0.1:0", options());
    let fabric = connect(&[&node], READS).unwrap();
    assert!(fabric.capabilities().reads_only);
    let identity = fabric.claim(SLOT as u32).unwrap();
    let me = identity.holder();
    let line = (MEMBER_LINES_AT + SLOT * MEMBER_LINE_BYTES) as usize / 8;
    let used = MEMBER_LINES_USED_AT as usize / 8;
    let mut dice = Pcg64Mcg::seed_from_u64(7);
    let mut own = memory.endpoint().unwrap();
    let mut words: Vec<u64> = (0..BYTES / 8).map(|_| dice.random()).collect();
    (words[used], words[line]) = (3, 41);
    let mut batch = own.batch();
    batch.write(GlobalAddr::new(0, 0), &words);
    let done = block_on(own.submit(batch)).unwrap();
    own.recycle(done);
    let mut endpoint = fabric.endpoint().unwrap();
    let (mut changed, mut refused) = (0_u64, 0_u64);
    for round in 0..6000 {
        let mut batch = endpoint.batch();
        for _ in 0..dice.random_range(1..4) {
            post_random(&mut batch, &mut dice, &words, (line, used), (me, SLOT));
        }
        let outcome = block_on(endpoint.submit(batch));
        let mut batch = own.batch();
        let read = batch.read(GlobalAddr::new(0, 0), words.len());
        let done = block_on(own.submit(batch)).unwrap();
        let now = done.words(read);
        if let Err(error) = &outcome {
            assert!(matches!(error, FabricError::ReadOnly { node: 0 }), "{error}");
            assert!(now == words, "round {round}: a refused request has changed something");
            refused += 1;
        } else if now != words {
            changed += 1;
        }
        for (at, (&was, &is)) in words.iter().zip(now).enumerate().filter(|(_, (was, is))| was != is) {
            let is_allowed = if at == line {
                goes_on(was, is)
            } else if at == line + 6 {
                is == me
            } else if at == used {
                was < is && is == SLOT + 1
            } else {
                (line..line + 8).contains(&at)
            };
            assert!(is_allowed, "round {round}: word {at} was {was:#x} and is {is:#x}");
        }
        words.copy_from_slice(now);
        own.recycle(done);
        if let Ok(done) = outcome {
            endpoint.recycle(done);
        }
    }
    assert!(changed > 50 && refused > 1000, "{changed} changed, {refused} refused");
    assert_eq!(refusals(&node), refused);
    drop((endpoint, identity, fabric));
    node.end();
}

/// Whether a member's state goes from free to live in the next incarnation, or from live to free.
fn goes_on(was: u64, is: u64) -> bool {
    let next = u64::from((was as u32).wrapping_add(1));
    was >> 32 == 0 && is == 1 << 32 | next || was >> 32 == 1 && is == u64::from(was as u32)
}

/// Adds a verb. Most of them are where the session may change something.
fn post_random(
    batch: &mut Batch,
    dice: &mut Pcg64Mcg,
    words: &[u64],
    (line, used): (usize, usize),
    (me, slot): (u64, u64),
) {
    let at = match dice.random_range(0..8) {
        0 => used,
        1 | 2 => line,
        3..=6 => line - 1 + dice.random_range(0..10),
        _ => dice.random_range(0..words.len() - 16),
    };
    let addr = GlobalAddr::new(0, at as u64 * 8);
    match dice.random_range(0..5) {
        0 => _ = batch.read(addr, dice.random_range(1..16)),
        1 => _ = batch.faa(addr, dice.random()),
        2 => {
            let expected = if dice.random_bool(0.8) { words[at] } else { dice.random() };
            let next = u64::from((expected as u32).wrapping_add(1));
            let desired = match dice.random_range(0..5) {
                0 => 1 << 32 | next,
                1 => u64::from(expected as u32),
                2 => slot + 1,
                3 => expected.wrapping_add(1),
                _ => dice.random(),
            };
            _ = batch.cas(addr, expected, desired);
        }
        _ => {
            let mut content: Vec<u64> = (0..dice.random_range(1..9)).map(|_| dice.random()).collect();
            if dice.random_bool(0.7)
                && let Some(holder) = (line + 6).checked_sub(at).and_then(|holder| content.get_mut(holder))
            {
                *holder = me;
            }
            batch.write(addr, &content);
        }
    }
}

/// Sends a request, and returns the refusal of its reply.
fn ask(stream: &mut TcpStream, kind: RequestKind, payload: &[u8]) -> Refusal {
    let head = RequestHead { kind: kind as u8, reserved: 0, verbs: 0, bytes: payload.len() as u32, id: 1 };
    say(stream, &head);
    std::io::Write::write_all(stream, payload).unwrap();
    let reply: ReplyHead = hear(stream);
    let mut text = vec![0; reply.bytes as usize];
    stream.read_exact(&mut text).unwrap();
    Refusal::from_code(reply.refusal).unwrap()
}

#[test]
fn every_request_of_a_session_that_may_only_read_is_judged() {
    let node = Node::small(options());
    let mut stream = TcpStream::connect(node.address).unwrap();
    let (welcome, _) = greet_with(&mut stream, READS, (77, 0), KNOWS_READ_ONLY);
    assert_eq!((welcome.refusal, welcome.flags), (0, wire::READS_ONLY));
    let about = |number: u64| wire::as_bytes(&Control { number, flag: 0 }).to_vec();
    for (kind, payload, expected) in [
        (RequestKind::Batch, Vec::new(), Refusal::None),
        (RequestKind::Claim, about(3), Refusal::None),
        (RequestKind::Release, about(3), Refusal::None),
        (RequestKind::Claim, about(256), Refusal::Taken),
        (RequestKind::Fence, wire::as_bytes(&Control { number: 5, flag: 1 }).to_vec(), Refusal::ReadOnly),
        (RequestKind::Persist, about(0), Refusal::ReadOnly),
        (RequestKind::Pair, wire::as_bytes(&Pairing::default()).to_vec(), Refusal::ReadOnly),
        (RequestKind::Call, about(1), Refusal::ReadOnly),
        (RequestKind::Relay, about(1), Refusal::ReadOnly),
        (RequestKind::HandOver, about(1), Refusal::ReadOnly),
        // This node is not a replica.
        (RequestKind::Framed, about(1), Refusal::Failed),
        (RequestKind::Status, Vec::new(), Refusal::Failed),
        (RequestKind::Digest, about(0), Refusal::Failed),
    ] {
        assert_eq!(ask(&mut stream, kind, &payload), expected, "{kind:?}");
    }
    // The node has fenced no session.
    let writer = connect(&[&node], WRITES).unwrap();
    assert!(!writer.capabilities().reads_only);
    let reader = connect(&[&node], READS).unwrap();
    let error = reader.fence(Suspect { slot: 0, holder: 5, lapsed: true }).unwrap_err();
    assert!(matches!(error, FabricError::ReadOnly { node: 0 }), "{error}");
    assert!(matches!(reader.persist(), Err(FabricError::ReadOnly { node: 0 })));
    let mut endpoint = reader.endpoint().unwrap();
    let mut batch = endpoint.batch();
    batch.write(GlobalAddr::new(0, 64), &[1]);
    let error = block_on(endpoint.submit(batch)).unwrap_err().to_string();
    assert!(error.contains("only read") && error.contains("`--token-file`"), "{error}");
    drop((endpoint, writer));
}

#[test]
fn a_read_only_token_is_refused_where_it_does_not_suffice() {
    let node = Node::small(options());
    let refused = |token: &[u8], caller, knows| refused_for(&node, token, caller, knows);
    // An earlier program would take the refusals for faults.
    let text = refused(READS, (1, 0), 0).unwrap();
    assert!(text.contains("upgrade the program"), "{text}");
    assert_eq!(refused(WRITES, (1, 0), 0), None);
    let text = refused(READS, (2, wire::RELAY_CHANNEL), KNOWS_READ_ONLY).unwrap();
    assert!(text.contains("another replica"), "{text}");
    // The session of another process, whose name stands in the pool.
    let mut writer = TcpStream::connect(node.address).unwrap();
    assert_eq!(greet_with(&mut writer, WRITES, (3, 0), KNOWS_READ_ONLY).0.refusal, 0);
    let text = refused(READS, (3, 0), KNOWS_READ_ONLY).unwrap();
    assert!(text.contains("open the pool again"), "{text}");
    assert_eq!(
        ask(&mut writer, RequestKind::Claim, wire::as_bytes(&Control { number: 0, flag: 0 })),
        Refusal::None
    );
    drop(writer);
    let metrics = serve_metrics("127.0.0.1:0".parse().unwrap(), Arc::clone(&node.metrics)).unwrap();
    until("it has no connection", || {
        value(&get(metrics.address(), "/metrics"), "darter_memnode_sessions") == 0
    });
    assert!(refused(READS, (3, 0), KNOWS_READ_ONLY).is_some(), "it holds a slot");
    assert_eq!(refused(READS, (4, 0), KNOWS_READ_ONLY), None);
}

#[test]
fn options_that_cannot_be_kept_are_refused() {
    let bind = |options| {
        MemNode::bind("127.0.0.1:0".parse().unwrap(), Region::memory(1 << 20).unwrap(), options).map(drop)
    };
    let without = MemNodeOptions { token: Secrets::default(), ..options() };
    let on_device = MemNodeOptions { device: Some("mlx5_0".parse().unwrap()), ..options() };
    for (options, why) in [(without, "every client may write"), (on_device, "RDMA device")] {
        match bind(options) {
            Err(MemNodeError::LimitOptions { what }) => assert!(what.contains(why), "{what}"),
            other => panic!("{why}: {other:?}"),
        }
    }
    bind(options()).unwrap();
}

/// Opens a store on nodes.
fn store(url: &str, token: &[u8]) -> Store {
    Store::options().tcp(with_token(token)).open(url).unwrap()
}

#[test]
fn programs_read_with_a_read_only_token_while_others_write() {
    for kind in [IndexKind::Quiver, IndexKind::Dart] {
        let region = || Region::memory(16 << 20).unwrap();
        let mut nodes = [0, 1].map(|_| Node::start(region(), "127.0.0.1:0", options()));
        let url = format!("tcp://{},{}", nodes[0].address, nodes[1].address);
        let writer = Store::options().index(kind).create(true).tcp(with_token(WRITES)).open(&url).unwrap();
        let key = |number: u32| format!("key/{number:05}");
        let put_all = |round: u32| {
            let pairs: Vec<_> = (0..2000).map(|number| (key(number), format!("{round}/{number}"))).collect();
            writer.put_many(&pairs).unwrap();
        };
        put_all(0);
        let reader = store(&url, READS);
        assert_eq!(reader.stats().unwrap().name, kind.name());
        for round in 1..=3 {
            std::thread::scope(|scope| {
                scope.spawn(|| put_all(round));
                for number in (0..2000).step_by(3).cycle().take(2000) {
                    let found = String::from_utf8(reader.get(key(number)).unwrap().unwrap()).unwrap();
                    assert!((0..=round).any(|round| found == format!("{round}/{number}")), "{found}");
                }
                assert_eq!(reader.range(..).count(), 2000);
            });
        }
        if kind == IndexKind::Quiver {
            let swap = |tx: &mut darter::Transaction<'_>| {
                tx.put(key(1), "swapped")?;
                tx.put(key(2), "swapped")
            };
            writer.transact(swap).unwrap();
            let both = reader.transact(|tx| Ok([tx.get(key(1))?, tx.get(key(2))?])).unwrap();
            assert_eq!(both, [(); 2].map(|()| Some(b"swapped".to_vec())));
            // Intents would have to show that they stay absent.
            let absent = reader.transact(|tx| Ok([tx.get("absent")?, tx.get("too")?])).unwrap_err();
            assert_eq!(absent.kind(), ErrorKind::ReadOnly, "{absent}");
        }
        let wanted: Vec<_> = (0..100).map(key).collect();
        assert_eq!(reader.get_many(&wanted).unwrap(), writer.get_many(&wanted).unwrap());
        assert_eq!(reader.usage().unwrap().members.len(), 2);
        assert!(reader.check().unwrap().is_sound());
        let errors = [
            reader.put("new", "value").unwrap_err(),
            reader.discard(key(1)).unwrap_err(),
            reader.remove(key(1)).unwrap_err(),
            reader.update(key(1), |_| darter::Change::Remove).unwrap_err(),
            reader.put_many(&[("new", "value")]).unwrap_err(),
            reader.remove_range("key/00010".."key/00020").unwrap_err(),
            reader.clear().unwrap_err(),
            reader.bulk_load([("new", "value")]).unwrap_err(),
            reader.snapshot().map(drop).unwrap_err(),
            reader.backup(Vec::new()).map(drop).unwrap_err(),
            reader.repair().map(drop).unwrap_err(),
            reader.transact(|tx| tx.put("new", "value")).map(drop).unwrap_err(),
        ];
        for error in errors {
            assert_eq!(error.kind(), ErrorKind::ReadOnly, "{error}");
            assert!(error.to_string().contains("`--token-file`") && !error.is_usage(), "{error}");
        }
        assert_eq!(refusals(&nodes[0]) + refusals(&nodes[1]), 0, "the client sends nothing that is refused");
        // These are refused by the nodes.
        assert_eq!(reader.persist().unwrap_err().kind(), ErrorKind::ReadOnly);
        let added = reader.add_node("127.0.0.1:1", Duration::ZERO).unwrap_err();
        assert_eq!(added.kind(), ErrorKind::ReadOnly, "{added}");
        drop(reader);
        assert_eq!(writer.usage().unwrap().members.len(), 1, "it has left its line");
        assert!(writer.check().unwrap().is_sound());
        drop(writer);
        for node in &mut nodes {
            node.end();
        }
    }
}

#[test]
fn a_pool_is_not_created_with_a_read_only_token() {
    let node = Node::small(options());
    let url = format!("tcp://{}", node.address);
    let options = Store::options().create(true).tcp(with_token(READS));
    let error = options.open(&url).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ReadOnly, "{error}");
    let found = Store::options().create(false).tcp(with_token(WRITES)).open(&url).unwrap_err();
    assert_eq!(found.kind(), ErrorKind::NotAPool, "{found}");
}

/// The node's slots are forgotten when it is started again, and the line tells whose it is.
#[test]
fn a_session_that_reads_goes_on_when_its_node_is_started_again() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("region");
    let start =
        |path: &Path, address: &str| Node::start(Region::file(path, 4 << 20).unwrap(), address, options());
    let mut node = start(&path, "127.0.0.1:0");
    let address = node.address.to_string();
    // There is no other process, which would end a member whose lease is over.
    let lease = PoolOptions { lease_ms: 20, ..PoolOptions::default() };
    let pool = block_on(Pool::create(connect(&[&node], WRITES).unwrap(), &lease)).unwrap();
    block_on(pool.close()).unwrap();
    let fabric = connect(&[&node], READS).unwrap();
    let pool = block_on(Pool::open(fabric)).unwrap();
    let mut client = pool.client().unwrap();
    let line = GlobalAddr::new(0, MEMBER_LINES_AT + u64::from(pool.member().member) * MEMBER_LINE_BYTES);
    block_on(pool.maintain(&mut client)).unwrap();
    node.end();
    let node = start(&path, &address);
    let beat = async |client: &mut darter_pool::Client<Tcp>| {
        client.read_words::<4>(line).await.map(|words| words[3])
    };
    let mut before = None;
    until("it is connected again", || {
        before = block_on(beat(&mut client)).ok();
        before.is_some()
    });
    until("it has renewed its lease", || {
        block_on(pool.maintain(&mut client)).is_ok() && block_on(beat(&mut client)).ok() != before
    });
    assert_eq!(refusals(&node), 0);
    assert_ne!(before.unwrap() & READS_ONLY, 0);
    // Another session does not get the line by that.
    let other = connect(&[&node], READS).unwrap();
    let mut endpoint = other.endpoint().unwrap();
    let mut batch = endpoint.batch();
    batch.write(line.plus(8), &[1]);
    assert!(matches!(block_on(endpoint.submit(batch)), Err(FabricError::ReadOnly { .. })));
    drop(client);
    block_on(pool.close()).unwrap();
}

#[test]
fn a_session_that_reads_goes_on_when_another_replica_serves() {
    let mut group = TestGroup::start_guarded(2, 8 << 20, Duration::from_millis(500), WRITES, None);
    let tcp = group.connect();
    group.settle_members(&tcp);
    let lease = PoolOptions { lease_ms: 5000, ..PoolOptions::default() };
    let pool = block_on(Pool::create(tcp.clone(), &lease)).unwrap();
    let fabric = Tcp::connect(&[group.address()], with_token(TestGroup::READERS)).unwrap();
    let other = block_on(Pool::open(fabric)).unwrap();
    assert!(other.reads_only());
    let (mut client, mut theirs) = (pool.client().unwrap(), other.client().unwrap());
    let mut both = || {
        block_on(async {
            pool.maintain(&mut client).await?;
            other.maintain(&mut theirs).await
        })
    };
    both().unwrap();
    let primary = TestGroup::primary(&tcp);
    group.kill(primary);
    // The reader publishes the epochs, which advance while the other process demands it.
    let addr = pool.root_word(0);
    let epoch = other.epoch();
    until("a publication after the failover", || {
        let moved = block_on(async {
            let mut client = pool.client().unwrap();
            let object = client.alloc(0, 64, darter_pool::AllocKind::Leaf).await?;
            client.pin(darter_fabric::OpKind::Delete).await?.retire(object, 64, darter_pool::AllocKind::Leaf);
            client.read_words::<1>(addr).await?;
            Ok::<_, PoolError>(())
        });
        let outcome = both();
        if let Err(PoolError::Fabric(error @ FabricError::ReadOnly { .. })) = &outcome {
            panic!("{error}");
        }
        moved.is_ok() && outcome.is_ok() && other.epoch() > epoch + 2
    });
}

#[test]
fn read_only_tokens_change_while_the_node_serves_and_tenants_can_have_them() {
    let directory = tempfile::tempdir().unwrap();
    let [readers, limits] = ["readers", "limits"].map(|name| directory.path().join(name));
    std::fs::write(&readers, "old\n").unwrap();
    let tenants = "[[tenant]]\nname = 'reports'\ntokens = ['tenant']\nread_only = true\n\
                   [[tenant]]\nname = 'jobs'\ntokens = ['jobs']\n";
    std::fs::write(&limits, tenants).unwrap();
    let node = Node::small(MemNodeOptions {
        read_only_token: Secrets::from_file(&readers, "read-only token").unwrap(),
        limits: Some(Limits::from_file(&limits).unwrap()),
        ..options()
    });
    let reads = |token: &[u8]| connect(&[&node], token).map(|fabric| fabric.capabilities().reads_only);
    assert!(reads(b"old").unwrap() && reads(b"tenant").unwrap());
    assert!(!reads(b"jobs").unwrap() && !reads(WRITES).unwrap());
    std::fs::write(&readers, "new\nold\n").unwrap();
    assert!(reads(b"old").unwrap() && reads(b"new").unwrap());
    // A token that is among both kinds may only read.
    std::fs::write(&readers, [&b"new\n"[..], WRITES].concat()).unwrap();
    assert!(reads(b"old").is_err() && reads(WRITES).unwrap());
    let metrics = serve_metrics("127.0.0.1:0".parse().unwrap(), Arc::clone(&node.metrics)).unwrap();
    until("the load is counted", || {
        let label = format!("{{what=\"read-only token\",files=\"{}\"}}", readers.display());
        value(&get(metrics.address(), "/metrics"), &format!("darter_memnode_credential_loads_total{label}"))
            >= 3
    });
}

#[test]
fn a_session_with_a_new_token_may_write_again() {
    let node = Node::small(options());
    let mut reader = TcpStream::connect(node.address).unwrap();
    assert_eq!(greet_with(&mut reader, READS, (9, 0), KNOWS_READ_ONLY).0.refusal, 0);
    assert_eq!(
        ask(&mut reader, RequestKind::Persist, wire::as_bytes(&Control { number: 0, flag: 0 })),
        Refusal::ReadOnly
    );
    let mut writer = TcpStream::connect(node.address).unwrap();
    assert_eq!(greet_with(&mut writer, WRITES, (9, 0), KNOWS_READ_ONLY).0.refusal, 0);
    assert_eq!(
        ask(&mut writer, RequestKind::Persist, wire::as_bytes(&Control { number: 0, flag: 0 })),
        Refusal::None
    );
    // The token is that of a connection.
    assert_eq!(
        ask(&mut reader, RequestKind::Persist, wire::as_bytes(&Control { number: 0, flag: 0 })),
        Refusal::ReadOnly
    );
}
