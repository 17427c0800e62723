//! Errors of clients when links to some of the nodes fail, and of nodes when sessions end.

use crate::support::gate::gated;
use crate::support::{ENDLESS, LONG, Node, connect, greeted, hear, read_frame, say, until};
use darter_fabric::tcp::{TcpEndpoint, TcpOptions};
use darter_fabric::wire::proof::Proof;
use darter_fabric::wire::{self, Challenge, Control, Hello, Refusal, ReplyHead, RequestHead, RequestKind};
use darter_fabric::{
    Endpoint, Fabric, FabricError, FenceOutcome, GlobalAddr, Local, Membership, Suspect, Tcp, block_on,
};
use darter_memnode::{MemNodeOptions, Region};
use std::future::Future;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::task::Poll;
use std::time::{Duration, Instant};

const WORD: u64 = 64;

fn reach(addresses: &[SocketAddr]) -> Tcp {
    let addresses: Vec<String> = addresses.iter().map(SocketAddr::to_string).collect();
    Tcp::connect(&addresses, TcpOptions::default()).unwrap()
}

/// Writes a word on each of several nodes in one batch.
fn write(endpoint: &mut TcpEndpoint, nodes: &[u8]) -> Result<(), FabricError> {
    let mut batch = endpoint.batch();
    for &node in nodes {
        batch.write(GlobalAddr::new(node, WORD), &[5]);
    }
    block_on(endpoint.submit(batch)).map(|done| endpoint.recycle(done))
}

/// Sends a request over a bare connection. Returns the refusal's code; `None` if the node has ended
/// the connection.
fn demand(stream: &mut TcpStream, kind: RequestKind, about: Control) -> Option<u8> {
    let head = RequestHead { kind: kind as u8, reserved: 0, verbs: 0, bytes: 16, id: 1 };
    stream.write_all(&[wire::as_bytes(&head), wire::as_bytes(&about)].concat()).ok()?;
    let mut reply = [0; size_of::<ReplyHead>()];
    stream.read_exact(&mut reply).ok()?;
    wire::head::<ReplyHead>(&reply).map(|head| head.refusal)
}

#[test]
fn a_batch_lost_by_one_node_is_not_reported_as_unsent() {
    let (first, mut second) =
        (Node::small(MemNodeOptions::default()), Node::small(MemNodeOptions::default()));
    let (address, gate) = gated(first.address);
    let fabric = reach(&[address, second.address]);
    let mut endpoint = fabric.endpoint().unwrap();
    write(&mut endpoint, &[0]).unwrap();
    second.end();
    assert!(matches!(write(&mut endpoint, &[1]), Err(FabricError::Unreachable { node: 1 })));
    gate.shut(true);
    let told = std::thread::scope(|scope| {
        // Either of the two may be detected first.
        scope.spawn(|| {
            std::thread::sleep(Duration::from_millis(200));
            gate.hang_up();
        });
        write(&mut endpoint, &[0, 1]).unwrap_err()
    });
    assert!(matches!(told, FabricError::Disconnected { node: 0 }), "{told}");
    gate.shut(false);
}

#[test]
fn a_dropped_batch_counts_until_it_has_landed() {
    let node = Node::small(MemNodeOptions::default());
    let (address, gate) = gated(node.address);
    let fabric = reach(&[address]);
    let mut endpoint = fabric.endpoint().unwrap();
    write(&mut endpoint, &[0]).unwrap();
    gate.shut(true);
    let mut batch = endpoint.batch();
    batch.write(GlobalAddr::new(0, WORD), &[6]);
    {
        let mut future = Box::pin(endpoint.submit(batch));
        block_on(std::future::poll_fn(|context| {
            assert!(future.as_mut().poll(context).is_pending());
            Poll::Ready(())
        }));
    }
    assert_eq!(endpoint.in_flight(), 1);
    gate.shut(false);
    until("it has taken effect", || endpoint.in_flight() == 0);
}

#[test]
fn a_session_that_one_node_has_shut_out_gives_up_all() {
    // Once by a reply, and once by the handshake of a node that has already ended the connection.
    for is_late in [false, true] {
        let nodes = [(); 2].map(|()| Node::small(MemNodeOptions::default()));
        let fabric = connect(&[&nodes[0], &nodes[1]], b"").unwrap();
        let mut endpoint = fabric.endpoint().unwrap();
        write(&mut endpoint, &[0, 1]).unwrap();
        let holder = fabric.claim(0).unwrap().holder();
        let about = Control { number: holder, flag: 1 };
        assert_eq!(demand(&mut greeted(&nodes[0], 5), RequestKind::Fence, about), Some(Refusal::None as u8));
        if is_late {
            until("its connections are dropped", || nodes[0].metrics.counts().dropped == 2);
        }
        until("it is told", || matches!(write(&mut endpoint, &[0]), Err(FabricError::Fenced)));
        let error = write(&mut endpoint, &[1]).unwrap_err();
        assert!(matches!(error, FabricError::Fenced), "{error}");
    }
}

#[test]
fn a_session_gone_from_one_node_is_shut_out_of_all() {
    let nodes = [(); 2].map(|()| Node::small(MemNodeOptions::default()));
    let fabric = connect(&[&nodes[0], &nodes[1]], b"").unwrap();
    let (mut one, mut other) = (greeted(&nodes[0], 5), greeted(&nodes[1], 5));
    let about = Control { number: 3, flag: 0 };
    assert_eq!(demand(&mut one, RequestKind::Claim, about), Some(Refusal::None as u8));
    drop(one);
    let suspect = Suspect { slot: 3, holder: 5, lapsed: false };
    until("it is gone", || fabric.fence(suspect).unwrap() == FenceOutcome::Fenced);
    // The node may have ended the connection already.
    let said = demand(&mut other, RequestKind::Persist, Control { number: 0, flag: 0 });
    assert!(matches!(said, None | Some(3)), "{said:?}");
}

#[test]
fn a_fence_that_one_node_has_not_heard_of_is_none() {
    let (first, mut second) =
        (Node::small(MemNodeOptions::default()), Node::small(MemNodeOptions::default()));
    let fabric = connect(&[&first, &second], b"").unwrap();
    second.end();
    assert!(fabric.fence(Suspect { slot: 3, holder: 5, lapsed: true }).is_err());
}

#[test]
fn slots_of_another_memory_cannot_be_claimed() {
    let mut node = Node::small(MemNodeOptions::default());
    let address = node.address.to_string();
    let fabric = connect(&[&node], b"").unwrap();
    node.end();
    let _other = Node::start(Region::memory(1 << 20).unwrap(), &address, MemNodeOptions::default());
    assert!(fabric.claim(1).is_err());
}

#[test]
fn late_reply_is_not_taken_for_another_request() {
    let node = Node::small(MemNodeOptions::default());
    let (address, gate) = gated(node.address);
    let (slow, other) = (reach(&[address]), connect(&[&node], b"").unwrap());
    let held = other.claim(3).unwrap();
    gate.shut(true);
    assert!(slow.claim(5).is_err());
    gate.shut(false);
    let suspect = Suspect { slot: 3, holder: held.holder(), lapsed: false };
    let mut outcome = None;
    until("it is connected again", || {
        outcome = slow.fence(suspect).ok();
        outcome.is_some()
    });
    assert_eq!(outcome, Some(FenceOutcome::Alive));
}

#[test]
fn a_node_is_one_of_the_pools_once() {
    let node = Node::small(MemNodeOptions::default());
    let error = connect(&[&node, &node], b"").unwrap_err().to_string();
    assert!(error.contains("already"), "{error}");
}

#[test]
fn messages_to_a_node_do_not_reach_another_one_that_had_its_number() {
    let nodes = [(); 2].map(|()| Node::small(MemNodeOptions::default()));
    let region = Local::memory(1 << 20, 1).unwrap();
    let next = Node::start(Region::of(region.clone()).unwrap(), "127.0.0.1:0", MemNodeOptions::default());
    let fabric = connect(&[&nodes[0]], b"").unwrap();
    let mut endpoint = fabric.endpoint().unwrap();
    fabric.remote_nodes().add_node(1, &nodes[1].address.to_string()).unwrap();
    write(&mut endpoint, &[0, 1]).unwrap();
    fabric.remote_nodes().forget_node(1);
    assert!(write(&mut endpoint, &[1]).is_err());
    fabric.remote_nodes().add_node(1, &next.address.to_string()).unwrap();
    write(&mut endpoint, &[1]).unwrap();
    let mut inside = region.endpoint().unwrap();
    let mut batch = inside.batch();
    let read = batch.read(GlobalAddr::new(0, WORD), 1);
    assert_eq!(block_on(inside.submit(batch)).unwrap().words(read), [5]);
}

#[test]
fn a_batch_that_waits_for_a_node_that_is_forgotten_ends() {
    let nodes = [(); 2].map(|()| Node::small(MemNodeOptions::default()));
    let (address, gate) = gated(nodes[1].address);
    let fabric = connect(&[&nodes[0]], b"").unwrap();
    let mut endpoint = fabric.endpoint().unwrap();
    fabric.remote_nodes().add_node(1, &address.to_string()).unwrap();
    // The node replies to no handshake before it is removed.
    gate.shut(true);
    let mut batch = endpoint.batch();
    batch.write(GlobalAddr::new(1, WORD), &[5]);
    let mut future = Box::pin(endpoint.submit(batch));
    block_on(std::future::poll_fn(|context| {
        assert!(future.as_mut().poll(context).is_pending());
        Poll::Ready(())
    }));
    fabric.remote_nodes().forget_node(1);
    let error = block_on(future).map(drop).unwrap_err();
    assert!(matches!(error, FabricError::Unreachable { node: 1 }), "{error}");
    // The outcome of the old attempt is not attributed to the next node with that number.
    fabric.remote_nodes().add_node(1, &nodes[1].address.to_string()).unwrap();
    gate.shut(false);
    write(&mut endpoint, &[0, 1]).unwrap();
}

#[test]
fn a_node_that_takes_its_time_each_time_is_waited_for() {
    let node = Node::small(MemNodeOptions::default());
    let (address, gate) = gated(node.address);
    let options = TcpOptions { patience: Duration::from_secs(1), ..TcpOptions::default() };
    let fabric = Tcp::connect(&[address.to_string()], options).unwrap();
    let mut endpoint = fabric.endpoint().unwrap();
    for round in 0..12 {
        std::thread::scope(|scope| {
            gate.shut(true);
            scope.spawn(|| {
                std::thread::sleep(Duration::from_millis(120));
                gate.shut(false);
            });
            write(&mut endpoint, &[0]).unwrap_or_else(|error| panic!("round {round}: {error}"));
        });
    }
}

/// A node that hangs is waited for once; then everything that needs it fails at once, until the
/// node goes on.
#[test]
fn a_silent_node_is_waited_for_once() {
    let node = Node::small(MemNodeOptions::default());
    let (address, gate) = gated(node.address);
    let options = TcpOptions { patience: Duration::from_millis(500), ..TcpOptions::default() };
    let fabric = Tcp::connect(&[address.to_string()], options).unwrap();
    let mut endpoint = fabric.endpoint().unwrap();
    write(&mut endpoint, &[0]).unwrap();
    gate.shut(true);
    assert!(matches!(write(&mut endpoint, &[0]), Err(FabricError::Disconnected { node: 0 })));
    let begin = Instant::now();
    for _ in 0..100 {
        assert!(matches!(write(&mut endpoint, &[0]), Err(FabricError::Unreachable { node: 0 })));
    }
    // A hundred times the patience would be fifty seconds.
    assert!(begin.elapsed() < Duration::from_secs(20), "{:?}", begin.elapsed());
    gate.shut(false);
    until("it is reached again", || write(&mut endpoint, &[0]).is_ok());
}

#[test]
fn a_batch_of_many_frames_is_one_batch() {
    let options = MemNodeOptions { frame_bytes_max: 32 << 10, ..MemNodeOptions::default() };
    let node = Node::small(options);
    let fabric = connect(&[&node], b"").unwrap();
    let mut endpoint = fabric.endpoint().unwrap();
    // More verbs than a frame may have, and more than a frame has room for.
    let mut batch = endpoint.batch();
    let counted: Vec<_> = (0..10_000).map(|_| batch.faa(GlobalAddr::new(0, WORD), 1)).collect();
    let done = block_on(endpoint.submit(batch)).unwrap();
    for (number, counted) in counted.into_iter().enumerate() {
        assert_eq!(done.fetched(counted), number as u64);
    }
    // Requests that fit into a frame, with replies that do not.
    let mut batch = endpoint.batch();
    let reads: Vec<_> = (0..20).map(|_| batch.read(GlobalAddr::new(0, WORD), 512)).collect();
    let done = block_on(endpoint.submit(batch)).unwrap();
    assert!(reads.iter().all(|&read| done.words(read)[0] == 10_000));
}

#[test]
fn a_frame_has_no_more_verbs_than_nodes_take() {
    let node = Node::small(MemNodeOptions::default());
    let fabric = connect(&[&node], b"").unwrap();
    let mut endpoint = fabric.endpoint().unwrap();
    let mut batch = endpoint.batch();
    for _ in 0..2 * wire::VERBS_MAX {
        batch.faa(GlobalAddr::new(0, WORD), 1);
    }
    block_on(endpoint.submit(batch)).unwrap();
}

#[test]
fn a_recorded_node_is_not_believed() {
    let token = b"open sesame";
    let node = Node::small(MemNodeOptions { token: token.to_vec().into(), ..MemNodeOptions::default() });
    let (inside, outside) = (node.address, TcpListener::bind("127.0.0.1:0").unwrap());
    let address = outside.local_addr().unwrap();
    let recorder = std::thread::spawn(move || {
        let mut client = outside.accept().unwrap().0;
        let mut node = TcpStream::connect(inside).unwrap();
        let mut pass = |said: &mut TcpStream| {
            say(&mut node, &hear::<Hello>(said));
            let challenge: Challenge = hear(&mut node);
            say(said, &challenge);
            say(&mut node, &hear::<Proof>(said));
            let welcome: wire::Welcome = hear(&mut node);
            say(said, &welcome);
            (challenge, welcome)
        };
        let (challenge, welcome) = pass(&mut client);
        // The next connection gets the same result without a request.
        let mut client = outside.accept().unwrap().0;
        hear::<Hello>(&mut client);
        say(&mut client, &challenge);
        hear::<Proof>(&mut client);
        say(&mut client, &welcome);
        let _ = client.read(&mut [0]);
    });
    let options = TcpOptions { token: token.to_vec().into(), patience: LONG, ..TcpOptions::default() };
    let fabric = Tcp::connect(&[address.to_string()], options).unwrap();
    let error = write(&mut fabric.endpoint().unwrap(), &[0]).unwrap_err().to_string();
    assert!(error.contains("does not know the token"), "{error}");
    recorder.join().unwrap();
}

#[test]
fn a_greeted_connection_makes_no_room_for_strangers() {
    let node = Node::small(MemNodeOptions { patience: ENDLESS, ..MemNodeOptions::default() });
    let mut early = greeted(&node, 5);
    let _silent: Vec<TcpStream> = (0..400).map(|_| TcpStream::connect(node.address).unwrap()).collect();
    until("the oldest are dropped", || node.metrics.counts().dropped >= 400 - 256);
    early.write_all(&read_frame(1)).unwrap();
    let mut answer = [0; wire::HEADER_BYTES + 8];
    early.read_exact(&mut answer).unwrap();
}
