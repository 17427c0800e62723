//! A memory node for the targets that talk to one, built by the same code as in the tests of `darter-memnode`.

#[path = "../../crates/darter-memnode/tests/support/mod.rs"]
mod support;

use darter_fabric::{Endpoint, Fabric, GlobalAddr, Tcp, block_on};
use darter_memnode::MemNodeOptions;
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::{LazyLock, Mutex};
use support::{LONG, Node, connect, greeted};

/// Bytes of a frame at most, so that long frames are refused early.
const FRAME_BYTES_MAX: u32 = 64 << 10;

/// The node of this process, and a client that works on it beside the fuzzer.
static NODE: LazyLock<(Node, Mutex<Tcp>)> = LazyLock::new(|| {
    let options = MemNodeOptions { frame_bytes_max: FRAME_BYTES_MAX, ..MemNodeOptions::default() };
    let node = Node::small(options);
    let client = connect(&[&node], b"").expect("a node that has just begun lets clients in");
    (node, Mutex::new(client))
});

/// Sends `bytes` to the node, after a greeting if `is_greeted`, and reads until the node closes the connection.
///
/// # Panics
/// If the node neither answers nor closes the connection, or no longer serves its other client.
pub fn send(is_greeted: bool, bytes: &[u8]) {
    let (node, client) = &*NODE;
    let mut stream = if is_greeted {
        greeted(node, session())
    } else {
        TcpStream::connect(node.address).expect("the node listens")
    };
    stream.set_read_timeout(Some(LONG)).expect("a time that is not 0");
    // A node may close the connection before it has read everything.
    let _ = stream.write_all(bytes);
    let _ = stream.shutdown(Shutdown::Write);
    if let Err(error) = stream.read_to_end(&mut Vec::new()) {
        let is_silent = matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut);
        assert!(!is_silent, "the node neither answers nor closes the connection");
    }
    assert_serves(&client.lock().expect("a failed case ends the process"));
}

/// Returns a session number that no connection has had: the fuzzer may have fenced any other.
fn session() -> u64 {
    darter_fabric::random_word()
}

/// Asserts that a client that keeps to the protocol is served.
fn assert_serves(client: &Tcp) {
    let mut endpoint = client.endpoint().expect("the node lets its client in");
    let mut batch = endpoint.batch();
    let read = batch.read(GlobalAddr::new(0, 0), 1);
    let done = block_on(endpoint.submit(batch)).expect("the node serves its client");
    assert_eq!(done.words(read).len(), 1);
}
