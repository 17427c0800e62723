//! The options of a memory node.

use darter_fabric::wire::{self, NodeTls};
use std::time::Duration;

/// How a memory node serves.
#[derive(Clone, Debug)]
pub struct MemNodeOptions {
    /// What a client must prove to know; empty to let in whoever can connect.
    pub token: Vec<u8>,
    /// How to speak TLS; without it all that goes over the wire can be read and changed there.
    pub tls: Option<NodeTls>,
    /// Connections at most.
    pub connections_max: usize,
    /// Payload bytes of a frame at most.
    pub frame_bytes_max: u32,
    /// Bytes of answers that wait for one peer, beyond which it is heard no further.
    pub waiting_bytes_max: usize,
    /// Bytes of memory behind all connections together, beyond which the one that has most is dropped. What one frame and its
    /// answers take comes on top.
    pub buffer_bytes_max: usize,
    /// How long a peer may leave its answers unread, or its greeting or a request unfinished.
    pub patience: Duration,
    /// How long to look again and again before sleeping.
    pub spin: Duration,
    /// How long peers may take their answers once the node has been asked to stop.
    pub drain: Duration,
}

impl Default for MemNodeOptions {
    fn default() -> Self {
        Self {
            token: Vec::new(),
            tls: None,
            connections_max: 1024,
            frame_bytes_max: wire::FRAME_BYTES_MAX,
            waiting_bytes_max: 16 << 20,
            buffer_bytes_max: 1 << 30,
            patience: Duration::from_secs(10),
            spin: Duration::from_micros(50),
            drain: Duration::from_secs(5),
        }
    }
}
