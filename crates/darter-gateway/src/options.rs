//! The options of a gateway.

use darter_fabric::wire::NodeTls;
use std::time::Duration;

/// How a gateway serves.
#[derive(Clone, Debug)]
pub struct GatewayOptions {
    /// What clients must know; empty to let in whoever can connect.
    pub password: Vec<u8>,
    /// How to speak TLS; without it all that goes over the wire can be read and changed there.
    pub tls: Option<NodeTls>,
    /// Threads that serve clients.
    pub threads: usize,
    /// Connections at most.
    pub connections_max: usize,
    /// Bytes of requests that were not done, of one client, beyond which it is dropped.
    pub input_bytes_max: usize,
    /// Bytes of replies that a client may leave unread, beyond which it is dropped.
    pub output_bytes_max: usize,
    /// Bytes of requests and replies of all clients together, beyond which whoever adds to them is dropped.
    pub buffer_bytes_max: usize,
    /// How long a client may leave replies unread that fill its socket.
    pub patience: Duration,
    /// Requests of a thread that wait for memory nodes at a time, at most; each has its own way into the pool.
    pub sessions_max: usize,
    /// Whether `FLUSHALL` and `FLUSHDB` remove anything.
    pub allow_flush: bool,
    /// Whether this gateway removes, from time to time, what is over.
    pub expires: bool,
    /// A command that takes as long is kept in the slow log.
    pub slow: Duration,
    /// Commands that the slow log keeps.
    pub slow_entries: usize,
    /// How long requests at work may take once the gateway has been asked to stop.
    pub drain: Duration,
}

impl Default for GatewayOptions {
    fn default() -> Self {
        Self {
            password: Vec::new(),
            tls: None,
            threads: 1,
            connections_max: 10_000,
            input_bytes_max: 1 << 30,
            output_bytes_max: 256 << 20,
            buffer_bytes_max: 2 << 30,
            patience: Duration::from_secs(60),
            sessions_max: 64,
            allow_flush: false,
            expires: true,
            slow: Duration::from_millis(10),
            slow_entries: 128,
            drain: Duration::from_secs(5),
        }
    }
}
