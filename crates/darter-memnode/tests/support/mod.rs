//! Memory nodes in threads of the test, and connections to them, with and without a client of the
//! fabric.

#![allow(dead_code, unreachable_pub)] // no test file uses all of it

pub mod authority;
pub mod devices;
pub mod gate;
pub mod groups;

use darter_fabric::wire::proof::{Proof, nonce};
use darter_fabric::wire::{self, Challenge, Hello, RequestHead, Welcome};
use darter_fabric::{FabricError, Tcp, TcpOptions};
use darter_memnode::Stop;
use darter_memnode::{MemNode, MemNodeCounts, MemNodeError, MemNodeMetrics, MemNodeOptions, Region};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

/// Long enough for anything that is expected to happen.
pub const LONG: Duration = Duration::from_secs(60);
/// A patience that never ends, even if the whole machine hangs for minutes.
pub const ENDLESS: Duration = Duration::from_secs(1 << 30);

/// A memory node in a thread of this process.
pub struct Node {
    pub address: SocketAddr,
    pub stop: Arc<Stop>,
    pub metrics: Arc<MemNodeMetrics>,
    thread: Option<JoinHandle<Result<MemNodeCounts, MemNodeError>>>,
}

impl Node {
    pub fn start(region: Region, address: &str, options: MemNodeOptions) -> Self {
        let node = MemNode::bind(address.parse().unwrap(), region, options).unwrap();
        let (address, metrics) = (node.address().unwrap(), Arc::clone(node.metrics()));
        let stop = Arc::new(Stop::default());
        let theirs = Arc::clone(&stop);
        let thread = std::thread::spawn(move || node.serve(&theirs));
        Self { address, stop, metrics, thread: Some(thread) }
    }

    pub fn small(options: MemNodeOptions) -> Self {
        Self::start(Region::memory(1 << 20).unwrap(), "127.0.0.1:0", options)
    }

    /// Requests a stop, in addition to earlier requests, and waits until the node has ended.
    pub fn end(&mut self) -> MemNodeCounts {
        self.stop.ask();
        self.ended().unwrap()
    }

    /// Waits until the node has ended. Returns its result.
    pub fn ended(&mut self) -> Result<MemNodeCounts, MemNodeError> {
        self.thread.take().unwrap().join().unwrap()
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        if self.thread.is_some() {
            self.stop.ask();
            self.end();
        }
    }
}

/// Connects to nodes without TLS.
pub fn connect(nodes: &[&Node], token: &[u8]) -> Result<Tcp, FabricError> {
    connect_as(nodes, TcpOptions { token: token.to_vec().into(), ..TcpOptions::default() })
}

/// Connects to nodes.
pub fn connect_as(nodes: &[&Node], options: TcpOptions) -> Result<Tcp, FabricError> {
    let addresses: Vec<String> = nodes.iter().map(|node| node.address.to_string()).collect();
    Tcp::connect(&addresses, options)
}

/// Writes a message to a socket.
pub fn say<T: bytemuck::Pod>(stream: &mut impl Write, what: &T) {
    stream.write_all(wire::as_bytes(what)).unwrap();
}

/// Reads a message from a socket.
pub fn hear<T: bytemuck::Pod>(stream: &mut impl Read) -> T {
    let mut bytes = vec![0; size_of::<T>()];
    stream.read_exact(&mut bytes).unwrap();
    wire::head(&bytes).unwrap()
}

/// Performs the handshake over a socket, without a token. Returns the refusal's code, 0 for none.
pub fn greet(stream: &mut (impl Read + Write), session: u64) -> u32 {
    say(stream, &Hello::new(session, nonce().unwrap()));
    assert_eq!(hear::<Challenge>(stream).opening.code, 0);
    say(stream, &Proof::default());
    hear::<Welcome>(stream).refusal
}

/// Opens a bare connection and performs the handshake.
pub fn greeted(node: &Node, session: u64) -> TcpStream {
    let mut stream = TcpStream::connect(node.address).unwrap();
    assert_eq!(greet(&mut stream, session), 0);
    stream
}

/// Returns a frame with one READ of this number of words.
pub fn read_frame(words: u32) -> Vec<u8> {
    let mut verb = [0_u8; wire::HEADER_BYTES];
    verb[4..8].copy_from_slice(&words.to_le_bytes());
    let head = RequestHead { kind: 1, reserved: 0, verbs: 1, bytes: verb.len() as u32, id: 1 };
    [wire::as_bytes(&head), &verb[..]].concat()
}

/// Sends bytes unchanged. Returns the bytes received until the node ends the connection or falls
/// silent.
pub fn provoke(node: &Node, is_greeted: bool, bytes: &[u8]) -> Vec<u8> {
    let mut stream = if is_greeted { greeted(node, 5) } else { TcpStream::connect(node.address).unwrap() };
    stream.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
    let _ = stream.write_all(bytes);
    let mut answer = Vec::new();
    let _ = stream.take(1 << 20).read_to_end(&mut answer);
    answer
}

/// Waits for a condition that other threads will make true.
pub fn until(what: &str, mut holds: impl FnMut() -> bool) {
    for _ in 0..6000 {
        if holds() {
            return;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    panic!("never: {what}");
}

/// Sends a request to the metrics port. Returns the complete response.
pub fn ask(address: SocketAddr, request: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(LONG)).unwrap();
    let _ = stream.write_all(request.as_bytes());
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    String::from_utf8(answer).unwrap()
}

/// Returns a page of the metrics port.
pub fn get(address: SocketAddr, path: &str) -> String {
    ask(address, &format!("GET {path} HTTP/1.1\r\nHost: node\r\n\r\n"))
}

/// Returns a metric's value on a page, without its fraction.
pub fn value(page: &str, metric: &str) -> u64 {
    let line = page.lines().find_map(|line| line.strip_prefix(metric)?.strip_prefix(' '));
    line.unwrap_or_else(|| panic!("{metric} in\n{page}")).parse::<f64>().unwrap() as u64
}
