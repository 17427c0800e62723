//! Guarantees for operators: a node drains, counts, logs and limits its memory, whatever its
//! clients do.

use crate::support::{
    ENDLESS, LONG, Node, ask, connect, get, greet, greeted, provoke, read_frame, until, value,
};
use darter_fabric::wire::{self, Refusal, ReplyHead};
use darter_fabric::{Endpoint, Fabric, FenceOutcome, GlobalAddr, Membership, Suspect, block_on};
use darter_memnode::{Health, MemNodeOptions, Region, serve_metrics};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Duration;

#[test]
fn metrics_count_connections_frames_and_verbs() {
    let node = Node::small(MemNodeOptions { token: b"sesame".to_vec().into(), ..MemNodeOptions::default() });
    let port = serve_metrics("127.0.0.1:0".parse().unwrap(), Arc::clone(&node.metrics)).unwrap();
    assert!(connect(&[&node], b"wrong").is_err());
    assert!(provoke(&node, false, b"GET / HTTP/1.1\r\nHost: memory.node\r\n\r\n").is_empty());
    let fabric = connect(&[&node], b"sesame").unwrap();
    let mut endpoint = fabric.endpoint().unwrap();
    for _ in 0..3 {
        let mut batch = endpoint.batch();
        batch.write(GlobalAddr::new(0, 64), &[1, 2]);
        batch.cas(GlobalAddr::new(0, 128), 7, 8);
        batch.read(GlobalAddr::new(0, 256), 512);
        block_on(endpoint.submit(batch)).unwrap();
    }
    until("the last reply is counted", || {
        value(&get(port.address(), "/metrics"), "darter_memnode_sent_bytes_total") > 3 * 4096
    });
    let page = get(port.address(), "/metrics");
    assert!(page.starts_with("HTTP/1.1 200 OK") && page.contains("openmetrics-text"), "{page}");
    for (metric, expected) in [
        ("connections", 2),
        ("accepted_connections_total", 2),
        ("refused_connections_total{reason=\"credentials\"}", 1),
        ("refused_connections_total{reason=\"protocol\"}", 1),
        ("sessions", 1),
        ("frames_total", 3),
        ("calls_total", 0),
        ("verbs_total{kind=\"write\"}", 3),
        ("verbs_total{kind=\"cas\"}", 3),
        ("verbs_total{kind=\"read\"}", 3),
        ("verbs_total{kind=\"faa\"}", 0),
        ("batch_verbs_sum", 9),
        ("batch_verbs_count", 3),
        ("region_bytes", 1 << 20),
        ("waiting_bytes", 0),
        ("draining", 0),
    ] {
        assert_eq!(value(&page, &format!("darter_memnode_{metric}")), expected, "{metric} in\n{page}");
    }
    assert!(value(&page, "darter_memnode_received_bytes_total") >= 3 * 3 * 16);
    assert!(value(&page, "darter_memnode_turn_seconds_count") >= 3);
    assert!(value(&page, "darter_memnode_buffers_bytes") > 0);
    drop((endpoint, fabric));
    until("connections end", || value(&get(port.address(), "/metrics"), "darter_memnode_connections") == 0);
    assert_eq!(value(&get(port.address(), "/metrics"), "darter_memnode_buffers_bytes"), 0);
}

#[test]
fn a_session_shut_out_is_counted_and_its_connections_are_dropped() {
    let node = Node::small(MemNodeOptions::default());
    let port = serve_metrics("127.0.0.1:0".parse().unwrap(), Arc::clone(&node.metrics)).unwrap();
    let (one, two) = (connect(&[&node], b"").unwrap(), connect(&[&node], b"").unwrap());
    let held = two.claim(0).unwrap();
    let suspect = Suspect { slot: 0, holder: held.holder(), lapsed: true };
    assert_eq!(one.fence(suspect).unwrap(), FenceOutcome::Fenced);
    let page = || get(port.address(), "/metrics");
    // The reply may arrive before the iteration that sent it has ended.
    until("it is counted", || value(&page(), "darter_memnode_fenced_sessions") == 1);
    until("its connection is dropped", || {
        value(&page(), "darter_memnode_dropped_connections_total{reason=\"fenced\"}") == 1
    });
    assert_eq!(value(&page(), "darter_memnode_sessions"), 1);
    let mut again = TcpStream::connect(node.address).unwrap();
    assert_eq!(greet(&mut again, held.holder()), Refusal::Fenced as u32);
    assert_eq!(value(&page(), "darter_memnode_refused_connections_total{reason=\"fenced\"}"), 1);
}

#[test]
fn the_metrics_port_is_bounded() {
    let node = Node::small(MemNodeOptions::default());
    let port = serve_metrics("127.0.0.1:0".parse().unwrap(), Arc::clone(&node.metrics)).unwrap();
    let address = port.address();
    assert!(get(address, "/elsewhere").starts_with("HTTP/1.1 404"));
    assert!(ask(address, "DELETE /metrics HTTP/1.1\r\nHost: n\r\n\r\n").starts_with("HTTP/1.1 405"));
    assert!(ask(address, "HEAD /metrics HTTP/1.1\r\nHost: n\r\n\r\n").ends_with("\r\n\r\n"));
    assert!(!ask(address, "what is this\r\n\r\n").starts_with("HTTP/1.1 200"));
    let long = format!("GET /metrics HTTP/1.1\r\nHost: n\r\nX: {}\r\n\r\n", "x".repeat(1 << 20));
    assert!(!ask(address, &long).starts_with("HTTP/1.1 200"));
    let many = format!("GET /metrics HTTP/1.1\r\nHost: n\r\n{}\r\n", "X: y\r\n".repeat(200));
    assert!(!ask(address, &many).starts_with("HTTP/1.1 200"));
    // More silent connections than the node keeps: it drops the oldest, and others get their
    // replies.
    let idle: Vec<TcpStream> = (0..20).map(|_| TcpStream::connect(address).unwrap()).collect();
    assert!(get(address, "/healthz").starts_with("HTTP/1.1 200"));
    drop(idle);
    drop(port);
    assert!(TcpStream::connect(address).is_err());
}

#[test]
fn a_draining_node_replies_to_received_requests_and_accepts_no_client() {
    let mut node = Node::small(MemNodeOptions { drain: LONG, ..MemNodeOptions::default() });
    let port = serve_metrics("127.0.0.1:0".parse().unwrap(), Arc::clone(&node.metrics)).unwrap();
    assert!(get(port.address(), "/healthz").ends_with("serving\n"));
    let mut early = TcpStream::connect(node.address).unwrap();
    // A reader with more pending replies than sockets hold, a client in the middle of a request,
    // and a client with nothing in progress.
    let (mut reader, mut slow, mut idle) = (greeted(&node, 5), greeted(&node, 5), greeted(&node, 5));
    let frame = read_frame(8192);
    let frames = 300;
    reader.write_all(&frame.repeat(frames)).unwrap();
    slow.write_all(&frame[..20]).unwrap();
    until("the reader's requests", || node.metrics.counts().frames > 0);
    node.stop.ask();
    until("draining", || node.metrics.health() == Health::Draining);
    assert!(get(port.address(), "/healthz").starts_with("HTTP/1.1 503"));
    assert_eq!(idle.read(&mut [0]).unwrap(), 0, "no reply was pending");
    until("the listener closes", || TcpStream::connect(node.address).is_err());
    assert_eq!(greet(&mut early, 6), Refusal::Closing as u32);
    slow.write_all(&frame[20..]).unwrap();
    let answer = wire::HEADER_BYTES + 8192 * 8;
    let mut bytes = Vec::new();
    slow.read_to_end(&mut bytes).unwrap();
    assert_eq!(bytes.len(), answer);
    bytes.clear();
    reader.read_to_end(&mut bytes).unwrap();
    assert_eq!(bytes.len(), frames * answer);
    let last: ReplyHead = wire::head(&bytes[(frames - 1) * answer..]).unwrap();
    assert_eq!(last.refusal, 0);
    // All connections have ended, so the node ends before its drain time does; a second stop
    // request, as made by `end`, ends it at once anyway.
    let counts = node.end();
    assert_eq!((counts.frames, counts.refused, counts.dropped), (frames as u64 + 1, 1, 0));
}

#[test]
fn a_second_request_to_stop_does_not_wait() {
    let mut node = Node::small(MemNodeOptions { drain: 60 * LONG, ..MemNodeOptions::default() });
    // Sends nothing, so draining would wait for its handshake.
    let _silent = TcpStream::connect(node.address).unwrap();
    let mut reader = greeted(&node, 5);
    reader.write_all(&read_frame(8192).repeat(2000)).unwrap();
    until("replies wait", || node.metrics.counts().frames > 0);
    node.stop.ask();
    until("draining", || node.metrics.health() == Health::Draining);
    assert!(node.end().dropped >= 1);
}

/// Number of words of a reply such that two sockets never hold all replies that the node sends in a
/// turn: they hold slightly more than 4 MiB with Linux's defaults. Of shorter replies they may hold
/// exactly those of a turn; then none waits in the node, and the socket does not become writable
/// again.
const LONG_WORDS: u32 = 3 << 17;

#[test]
fn requests_of_a_few_bytes_do_not_make_answers_without_bound() {
    let options = MemNodeOptions { waiting_bytes_max: 1 << 20, ..MemNodeOptions::default() };
    let node = Node::start(Region::memory(8 << 20).unwrap(), "127.0.0.1:0", options);
    let port = serve_metrics("127.0.0.1:0".parse().unwrap(), Arc::clone(&node.metrics)).unwrap();
    let mut stream = greeted(&node, 5);
    // All in one read: 1000 replies of 1 MiB.
    let frames = 1000;
    stream.write_all(&read_frame(1 << 17).repeat(frames)).unwrap();
    let waiting = || value(&get(port.address(), "/metrics"), "darter_memnode_waiting_bytes");
    until("the first is taken", || node.metrics.counts().frames > 0);
    for _ in 0..20 {
        assert!(waiting() <= 3 << 20);
    }
    assert!(node.metrics.counts().frames < frames as u64, "sockets cannot hold all replies");
    // A client that reads gets all of them.
    let mut left = frames * (wire::HEADER_BYTES + (1 << 20));
    let mut buffer = vec![0; 1 << 20];
    while left > 0 {
        let count = stream.read(&mut buffer).unwrap();
        assert!(count > 0, "{left} bytes missing");
        left -= count;
    }
}

#[test]
fn who_does_not_read_is_not_heard() {
    let options = MemNodeOptions { waiting_bytes_max: 1 << 20, ..MemNodeOptions::default() };
    let node = Node::start(Region::memory(8 << 20).unwrap(), "127.0.0.1:0", options);
    let port = serve_metrics("127.0.0.1:0".parse().unwrap(), Arc::clone(&node.metrics)).unwrap();
    let mut stream = greeted(&node, 5);
    let waiting = || value(&get(port.address(), "/metrics"), "darter_memnode_waiting_bytes");
    // One after the other, so that each could have its own turn.
    for _ in 0..100 {
        stream.write_all(&read_frame(1 << 17)).unwrap();
        std::thread::sleep(Duration::from_millis(3));
        assert!(waiting() <= 3 << 20);
    }
    assert!(node.metrics.counts().frames < 100, "sockets cannot hold all replies");
}

#[test]
fn only_the_connection_with_the_largest_buffers_is_dropped() {
    let options =
        MemNodeOptions { buffer_bytes_max: 1 << 20, patience: ENDLESS, ..MemNodeOptions::default() };
    let node = Node::start(Region::memory(8 << 20).unwrap(), "127.0.0.1:0", options);
    // In the middle of a request that has a buffer.
    let frame = read_frame(1);
    let mut modest: Vec<TcpStream> = (0..4).map(|_| greeted(&node, 5)).collect();
    for stream in &mut modest {
        stream.write_all(&frame[..20]).unwrap();
    }
    let mut greedy = greeted(&node, 5);
    let _ = greedy.write_all(&read_frame(LONG_WORDS).repeat(32));
    until("one is dropped", || node.metrics.counts().dropped > 0);
    for stream in &mut modest {
        stream.write_all(&frame[20..]).unwrap();
        stream.read_exact(&mut [0; wire::HEADER_BYTES + 8]).unwrap();
    }
    assert_eq!(node.metrics.counts().dropped, 1);
}

#[test]
fn slow_readers_together_stay_within_a_nodes_memory() {
    let options =
        MemNodeOptions { buffer_bytes_max: 16 << 20, patience: ENDLESS, ..MemNodeOptions::default() };
    let node = Node::start(Region::memory(8 << 20).unwrap(), "127.0.0.1:0", options);
    let port = serve_metrics("127.0.0.1:0".parse().unwrap(), Arc::clone(&node.metrics)).unwrap();
    let mut streams: Vec<TcpStream> = (0..20).map(|_| greeted(&node, 5)).collect();
    for stream in &mut streams {
        // Fails if the connection has been dropped.
        let _ = stream.write_all(&read_frame(LONG_WORDS).repeat(16));
    }
    let page = || get(port.address(), "/metrics");
    until("some are dropped", || {
        value(&page(), "darter_memnode_dropped_connections_total{reason=\"memory\"}") > 0
    });
    let held = value(&page(), "darter_memnode_buffers_bytes");
    assert!(held <= 16 << 20, "{held}");
    // The others go on, and a client that requests little is served.
    let fabric = connect(&[&node], b"").unwrap();
    let mut endpoint = fabric.endpoint().unwrap();
    let mut batch = endpoint.batch();
    batch.faa(GlobalAddr::new(0, 64), 1);
    block_on(endpoint.submit(batch)).unwrap();
}

#[test]
fn connections_without_a_handshake_make_room_for_others() {
    let node = Node::small(MemNodeOptions { patience: ENDLESS, ..MemNodeOptions::default() });
    let _silent: Vec<TcpStream> = (0..400).map(|_| TcpStream::connect(node.address).unwrap()).collect();
    connect(&[&node], b"").unwrap();
    until("the oldest are dropped", || node.metrics.counts().dropped >= 400 - 256);
}

#[test]
fn a_node_that_is_full_says_so() {
    let node = Node::small(MemNodeOptions { connections_max: 2, ..MemNodeOptions::default() });
    let (_one, two) = (greeted(&node, 5), greeted(&node, 5));
    let refused = connect(&[&node], b"").unwrap_err().to_string();
    assert!(refused.contains("too many connections"), "{refused}");
    drop(two);
    until("there is room again", || connect(&[&node], b"").is_ok());
}
