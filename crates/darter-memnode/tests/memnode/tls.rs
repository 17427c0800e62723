//! TLS: all operations of the index over it, and invalid certificates, files and peers.

use crate::support::authority::{Authority, Certified, GONE, LATER};
use crate::support::{Node, connect, connect_as, get, greet, read_frame, until, value};
use darter_fabric::tcp::TcpEndpoint;
use darter_fabric::wire::{Channel, ClientTls, IdentityFiles, NodeTls};
use darter_fabric::wire::{Inbox, Outbox};
use darter_fabric::{Endpoint, Fabric, FabricError, GlobalAddr, TcpOptions, block_on, run_all};
use darter_index::{Condition, Dart, DartOptions, OrderedIndex};
use darter_memnode::{MemNodeOptions, Region, serve_metrics};
use darter_pool::{Pool, PoolOptions};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use std::future::Future;
use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake};
use std::thread::Thread;
use std::time::Duration;

const TOKEN: &[u8] = b"open sesame";

fn serving(tls: NodeTls) -> MemNodeOptions {
    MemNodeOptions { tls: Some(tls), ..MemNodeOptions::default() }
}

fn speaking(tls: ClientTls) -> TcpOptions {
    TcpOptions { tls: Some(tls), ..TcpOptions::default() }
}

/// Returns why a client cannot connect.
fn complaint(node: &Node, tls: ClientTls) -> String {
    connect_as(&[node], speaking(tls)).unwrap_err().to_string()
}

/// Wakes a thread.
struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Another executor, which does not know the fabric's hubs.
fn park_on<F: Future>(future: F) -> F::Output {
    let mut future = pin!(future);
    let waker = Arc::new(Unpark(std::thread::current())).into();
    let mut context = Context::from_waker(&waker);
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut context) {
            return output;
        }
        std::thread::park();
    }
}

#[test]
fn an_index_lives_under_tls_on_two_nodes() {
    let authority = Authority::new("one");
    let options =
        MemNodeOptions { token: TOKEN.to_vec().into(), ..serving(authority.node(Some(&authority.ca()))) };
    let region = || Region::memory(32 << 20).unwrap();
    let nodes = [(), ()].map(|()| Node::start(region(), "127.0.0.1:0", options.clone()));
    let nodes: Vec<&Node> = nodes.iter().collect();
    let identity = authority.sign("a client", LATER);
    let tcp = TcpOptions { token: TOKEN.to_vec().into(), ..speaking(authority.client(Some(&identity))) };
    let fabric = connect_as(&nodes, tcp.clone()).unwrap();
    block_on(async {
        let pool = Pool::create(fabric, &PoolOptions::default()).await.unwrap();
        let mut client = pool.client().unwrap();
        let dart = Dart::open_or_create(&mut client, DartOptions::default()).await.unwrap();
        for n in 0..1000_u32 {
            let key = n.wrapping_mul(0x9e37_79b9).to_be_bytes();
            dart.put(&mut client, &key, &n.to_le_bytes(), Condition::Always).await.unwrap();
        }
        let long: Vec<u8> = (0..1_800_000).map(|at: u32| (at ^ at >> 11) as u8).collect();
        dart.put(&mut client, b"long", &long, Condition::Always).await.unwrap();
        let other = Pool::open(connect_as(&nodes, tcp).unwrap()).await.unwrap();
        let mut theirs = other.client().unwrap();
        let same = Dart::open(&mut theirs, DartOptions::default()).await.unwrap();
        for n in (0..1000_u32).step_by(7) {
            let key = n.wrapping_mul(0x9e37_79b9).to_be_bytes();
            assert_eq!(same.get(&mut theirs, &key).await.unwrap(), Some(n.to_le_bytes().to_vec()));
        }
        assert_eq!(same.get(&mut theirs, b"long").await.unwrap(), Some(long));
        let report = dart.check(&mut client).await.unwrap();
        assert_eq!((report.violations, report.stats.keys), (Vec::new(), 1001));
        drop((client, dart, theirs, same));
        other.close().await.unwrap();
        pool.close().await.unwrap();
    });
}

#[test]
fn thousands_of_verbs_and_frames_of_megabytes_share_a_connection() {
    let authority = Authority::new("one");
    let region = Region::memory(16 << 20).unwrap();
    let mut node = Node::start(region, "127.0.0.1:0", serving(authority.node(None)));
    let fabric = connect_as(&[&node], speaking(authority.client(None))).unwrap();
    let counter = GlobalAddr::new(0, 64);
    let mut endpoints: Vec<_> = (0..64).map(|_| fabric.endpoint().unwrap()).collect();
    // Each task adds with verbs in separate frames, and writes and reads back three megabytes of
    // the region's upper half.
    run_all(endpoints.iter_mut().enumerate().map(|(at, endpoint)| async move {
        let mut batch = endpoint.batch();
        for _ in 0..100 {
            batch.faa(counter, 1);
        }
        let done = endpoint.submit(batch).await.unwrap();
        endpoint.recycle(done);
        let words: Vec<u64> = (0..3 << 17).map(|word| word * 31 + at as u64).collect();
        let mut batch = endpoint.batch();
        batch.write(GlobalAddr::new(0, 8 << 20), &words);
        let read = batch.read(GlobalAddr::new(0, 8 << 20), words.len());
        batch.faa(counter, 1);
        // Verbs of one batch execute in order and uninterrupted: the node has one thread.
        assert!(endpoint.submit(batch).await.unwrap().words(read) == words);
    }));
    let mut endpoint = fabric.endpoint().unwrap();
    let mut batch = endpoint.batch();
    let read = batch.read(counter, 1);
    assert_eq!(block_on(endpoint.submit(batch)).unwrap().words(read), [64 * 101]);
    // Thousands in a batch, driven by the fabric's own thread.
    park_on(async {
        for _ in 0..3 {
            let mut batch = endpoint.batch();
            for _ in 0..20_000 {
                batch.faa(counter, 1);
            }
            let read = batch.read(GlobalAddr::new(0, 8 << 20), 3 << 17);
            assert!(endpoint.submit(batch).await.unwrap().words(read)[1] >= 31);
        }
    });
    drop((endpoint, endpoints, fabric));
    let counts = node.end();
    assert_eq!((counts.refused, counts.dropped), (0, 0));
}

#[test]
fn clients_without_a_valid_certificate_are_refused() {
    let (authority, other) = (Authority::new("one"), Authority::new("another"));
    let mut node = Node::small(serving(authority.node(Some(&authority.ca()))));
    let port = serve_metrics("127.0.0.1:0".parse().unwrap(), Arc::clone(&node.metrics)).unwrap();
    let client = authority.sign("a client", LATER);
    connect_as(&[&node], speaking(authority.client(Some(&client)))).unwrap();
    let missing = complaint(&node, authority.client(None));
    assert!(missing.contains("CertificateRequired"), "{missing}");
    let expired = complaint(&node, authority.client(Some(&authority.sign("a client", GONE))));
    assert!(expired.contains("CertificateExpired"), "{expired}");
    let foreign = complaint(&node, authority.client(Some(&other.sign("a client", LATER))));
    assert!(foreign.contains("UnknownCA"), "{foreign}");
    let page = get(port.address(), "/metrics");
    assert_eq!(value(&page, "darter_memnode_refused_connections_total{reason=\"tls\"}"), 3, "{page}");
    let wrong_ca = complaint(&node, ClientTls::from_files(&other.ca(), Some(client.files())).unwrap());
    assert!(wrong_ca.contains("UnknownIssuer"), "{wrong_ca}");
    // An idle connection holds no memory.
    let fabric = connect_as(&[&node], speaking(authority.client(Some(&client)))).unwrap();
    let mut endpoint = fabric.endpoint().unwrap();
    for round in 0..2 {
        let mut batch = endpoint.batch();
        let read = batch.read(GlobalAddr::new(0, 64), 1);
        batch.write(GlobalAddr::new(0, 64), &[round + 1]);
        assert_eq!(block_on(endpoint.submit(batch)).unwrap().words(read), [round]);
        until("it rests", || value(&get(port.address(), "/metrics"), "darter_memnode_buffers_bytes") == 0);
    }
    drop((endpoint, fabric));
    let counts = node.end();
    assert_eq!((counts.refused, counts.dropped), (4, 0));
}

#[test]
fn a_node_with_a_bad_certificate_is_not_trusted() {
    let authority = Authority::new("one");
    let serve =
        |certified: &Certified| Node::small(serving(NodeTls::from_files(certified.files(), None).unwrap()));
    let expired = complaint(&serve(&authority.sign("127.0.0.1", GONE)), authority.client(None));
    assert!(expired.contains("xpired"), "{expired}");
    let elsewhere = complaint(&serve(&authority.sign("memory.node", LATER)), authority.client(None));
    assert!(elsewhere.contains("not valid for name"), "{elsewhere}");
    // A host name works as its address does.
    let node = serve(&authority.sign("localhost", LATER));
    let named = format!("localhost:{}", node.address.port());
    darter_fabric::Tcp::connect(&[named], speaking(authority.client(None))).unwrap();
    let bad = darter_fabric::Tcp::connect(&["a b:1".to_owned()], speaking(authority.client(None)));
    assert!(bad.is_err());
}

#[test]
fn tls_on_one_side_only_is_reported() {
    let authority = Authority::new("one");
    let (plain, secure) =
        (Node::small(MemNodeOptions::default()), Node::small(serving(authority.node(None))));
    let error = complaint(&plain, authority.client(None));
    assert!(error.contains("does it serve TLS?"), "{error}");
    let error = connect(&[&secure], b"").unwrap_err().to_string();
    assert!(error.contains("it speaks TLS"), "{error}");
}

/// Returns the first message of a TLS client.
fn client_hello(authority: &Authority) -> Vec<u8> {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let tls = authority.client(None);
    let client = std::thread::spawn(move || darter_fabric::Tcp::connect(&[address], speaking(tls)).is_err());
    let mut stream = listener.accept().unwrap().0;
    let mut record = vec![0; 5];
    stream.read_exact(&mut record).unwrap();
    let length = u16::from_be_bytes([record[3], record[4]]);
    record.resize(5 + usize::from(length), 0);
    stream.read_exact(&mut record[5..]).unwrap();
    drop(stream);
    assert!(client.join().unwrap());
    record
}

#[test]
fn half_a_handshake_and_garbage_do_not_affect_other_clients() {
    let authority = Authority::new("one");
    let patience = Duration::from_millis(300);
    let mut node = Node::small(MemNodeOptions { patience, ..serving(authority.node(None)) });
    let fabric = connect_as(&[&node], speaking(authority.client(None))).unwrap();
    let mut endpoint = fabric.endpoint().unwrap();
    let add = |endpoint: &mut TcpEndpoint| {
        let mut batch = endpoint.batch();
        batch.faa(GlobalAddr::new(0, 64), 1);
        block_on(endpoint.submit(batch)).unwrap();
    };
    let hello = client_hello(&authority);
    // Half a hello, a complete hello without a continuation, and no bytes at all: each connection
    // is dropped, and other clients are served.
    let mut silent: Vec<TcpStream> = [&hello[..hello.len() / 2], &hello[..3], &hello, b""]
        .into_iter()
        .map(|bytes| {
            let mut stream = TcpStream::connect(node.address).unwrap();
            stream.write_all(bytes).unwrap();
            stream.set_nonblocking(true).unwrap();
            stream
        })
        .collect();
    while !silent.is_empty() {
        add(&mut endpoint);
        silent.retain_mut(|stream| {
            let end = stream.read(&mut [0; 4096]);
            end.map_or_else(|error| error.kind() == io::ErrorKind::WouldBlock, |count| count > 0)
        });
    }
    let noise: Vec<u8> = (0..10_000_u32).map(|at| (at.wrapping_mul(0x9e37_79b9) >> 24) as u8).collect();
    let torn = [&hello[..40], &noise].concat();
    for garbage in [&noise[..], &torn, b"GET / HTTP/1.1\r\n\r\n", &[0; 300]] {
        let mut stream = TcpStream::connect(node.address).unwrap();
        let _ = stream.write_all(garbage);
        // An alert, then the end of the connection, however the system reports it.
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        assert!(answer.len() < 100, "{answer:?}");
        add(&mut endpoint);
    }
    drop((endpoint, fabric));
    let counts = node.end();
    assert_eq!((counts.dropped, counts.refused), (4, 4));
}

/// Returns both ends of a connection under TLS.
fn channels(authority: &Authority) -> (Channel, Channel) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let near = TcpStream::connect(address).unwrap();
    let far = listener.accept().unwrap().0;
    let near = Channel::connected(near, Some(&authority.client(None)), &address.to_string()).unwrap();
    (near, Channel::accepted(far, Some(&authority.node(None))).unwrap())
}

#[test]
fn bytes_rest_nowhere_unseen() {
    let authority = Authority::new("one");
    let (mut near, mut far) = channels(&authority);
    let (mut near_in, mut near_out) = (Inbox::default(), Outbox::default());
    let (mut far_in, mut far_out) = (Inbox::default(), Outbox::default());
    assert!(near.is_handshaking());
    let (total, mut put, mut got) = (24_u32 << 20, 0, 0);
    let (mut was_full, mut dice) = (false, Pcg64Mcg::seed_from_u64(1));
    while got < total {
        // Pieces from a byte to megabytes, faster than the peer reads.
        let end = total.min(put + (dice.random_range(0..1_u32 << 24) >> dice.random_range(0..24)));
        near_out.bytes.extend((put..end).map(|at| (at ^ at >> 9) as u8));
        put = end;
        near_out.send(&mut near).unwrap();
        was_full |= near_out.waiting() > 0 && !near.is_handshaking();
        assert!(!near_in.receive(&mut near).unwrap());
        for _ in 0..dice.random_range(0..3) {
            far_in.receive(&mut far).unwrap();
        }
        if was_full {
            assert!(near.buffer_bytes() > 0);
            far.rest();
        }
        far_out.send(&mut far).unwrap();
        let range = far_in.take(usize::MAX >> 1);
        for &byte in far_in.taken(range) {
            assert_eq!(byte, (got ^ got >> 9) as u8);
            got += 1;
        }
    }
    assert!(was_full && near_out.waiting() == 0);
    assert_eq!(far.buffer_bytes(), 0);
    drop(near);
    // A closing alert ends the connection like any other end.
    let end = (0..10_000).find_map(|_| {
        std::thread::sleep(Duration::from_millis(1));
        far_in.receive(&mut far).err()
    });
    assert_eq!(end.unwrap().kind(), io::ErrorKind::UnexpectedEof);
}

/// A channel that blocks.
struct Waiting(Channel);

impl Waiting {
    fn wait<T>(&mut self, mut what: impl FnMut(&mut Channel) -> io::Result<T>) -> io::Result<T> {
        loop {
            // Includes the bytes of the handshake.
            let _ = self.0.flush();
            match what(&mut self.0) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => std::thread::yield_now(),
                done => return done,
            }
        }
    }
}

impl Read for Waiting {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.wait(|channel| channel.read(buffer))
    }
}

impl Write for Waiting {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.wait(|channel| channel.write(bytes))
    }

    fn flush(&mut self) -> io::Result<()> {
        self.wait(Channel::flush)
    }
}

#[test]
fn a_peer_that_does_not_read_is_dropped_under_tls_too() {
    let authority = Authority::new("one");
    let patience = Duration::from_millis(300);
    let options = MemNodeOptions { patience, waiting_bytes_max: 1 << 20, ..serving(authority.node(None)) };
    let mut node = Node::small(options);
    let stream = TcpStream::connect(node.address).unwrap();
    let address = node.address.to_string();
    let channel = Channel::connected(stream, Some(&authority.client(None)), &address).unwrap();
    let mut waiting = Waiting(channel);
    assert_eq!(greet(&mut waiting, 5), 0);
    let frame = read_frame(8192);
    while waiting.write_all(&frame).is_ok() {}
    assert_eq!(node.end().dropped, 1);
}

#[test]
fn files_that_are_not_right_are_named() {
    let authority = Authority::new("one");
    let good = authority.sign("127.0.0.1", LATER);
    let other = authority.sign("127.0.0.2", LATER);
    let empty = authority.write("empty.pem", "");
    let absent = authority.file("absent.pem");
    let torn = authority.write("torn.pem", &std::fs::read(&good.certificate).unwrap()[..200]);
    let noise =
        authority.write("noise.pem", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n");
    let large = authority.write("large.pem", vec![b'\n'; (1 << 20) + 1]);
    let encrypted = authority.write(
        "encrypted.key",
        "-----BEGIN ENCRYPTED PRIVATE KEY-----\nAAAA\n-----END ENCRYPTED PRIVATE KEY-----\n",
    );
    let node = |certificate: &Path, key: &Path| {
        NodeTls::from_files(IdentityFiles { certificate, key }, None).map(drop)
    };
    let client = |ca: &Path| ClientTls::from_files(ca, None).map(drop);
    let clients = |ca: &Path| NodeTls::from_files(good.files(), Some(ca)).map(drop);
    for (tried, name, what) in [
        (client(&empty), "empty.pem", "holds no certificate"),
        (clients(&empty), "empty.pem", "holds no certificate"),
        (client(&absent), "absent.pem", "cannot read it"),
        (client(&authority.file("")), "", "cannot read it"),
        (client(&torn), "torn.pem", "not PEM"),
        (client(&noise), "noise.pem", "cannot use it"),
        (client(&large), "large.pem", "cannot read it"),
        (client(&good.key), "127.0.0.1-3000.key", "holds no certificate"),
        (node(&good.certificate, &other.key), "127.0.0.2-3000.key", "127.0.0.1-3000.pem"),
        (node(&good.certificate, &empty), "empty.pem", "holds no private key"),
        (node(&good.certificate, &encrypted), "encrypted.key", "holds no private key"),
        (node(&good.certificate, &absent), "absent.pem", "cannot read it"),
        (node(&noise, &good.key), "noise.pem", "cannot use it"),
        (node(&empty, &good.key), "empty.pem", "holds no certificate"),
    ] {
        let error = tried.unwrap_err().to_string();
        assert!(error.contains(name) && error.contains(what), "{error}");
    }
    node(&good.certificate, &good.key).unwrap();
}

#[test]
fn an_expired_certificate_is_reported_when_reconnecting() {
    let authority = Authority::new("one");
    let region = || Region::file(&authority.file("region"), 1 << 20).unwrap();
    let mut node = Node::start(region(), "127.0.0.1:0", serving(authority.node(None)));
    let fabric = connect_as(&[&node], speaking(authority.client(None))).unwrap();
    let mut endpoint = fabric.endpoint().unwrap();
    let write = |endpoint: &mut TcpEndpoint| {
        let mut batch = endpoint.batch();
        batch.write(GlobalAddr::new(0, 64), &[1]);
        block_on(endpoint.submit(batch)).map(drop)
    };
    write(&mut endpoint).unwrap();
    let address = node.address.to_string();
    node.end();
    assert!(matches!(write(&mut endpoint), Err(FabricError::Disconnected { node: 0 })));
    let stale = NodeTls::from_files(authority.sign("127.0.0.1", GONE).files(), None).unwrap();
    let mut again = Node::start(region(), &address, serving(stale));
    let error = write(&mut endpoint).unwrap_err().to_string();
    assert!(error.contains("xpired"), "{error}");
    again.end();
    let _renewed = Node::start(region(), &address, serving(authority.node(None)));
    write(&mut endpoint).unwrap();
}
