//! The options of a gateway.

use darter_fabric::wire::{ClientTls, Credential, NodeTls, Secrets};
use std::time::Duration;

/// The options of a gateway.
#[derive(Clone, Debug)]
pub struct GatewayOptions {
    /// The passwords of which clients must give one; to other gateways this one gives the first. If
    /// there are none, anyone who can connect is accepted.
    pub password: Secrets,
    /// The TLS configuration. Without TLS anyone on the network can read and change the traffic.
    pub tls: Option<NodeTls>,
    /// How other gateways' certificates are verified, and the certificate that is shown to them. A
    /// gateway with [`GatewayOptions::tls`] and without this connects to no other gateway.
    pub peer_tls: Option<ClientTls>,
    /// The host, with or without a port, at which other gateways of the pool reach this one. If it
    /// is `None`, it is the address on which the gateway listens; and if that stands for all
    /// addresses, the one from which it reaches memory nodes, or loopback.
    pub announce: Option<String>,
    /// Number of threads that serve clients.
    pub threads: usize,
    /// Most connections.
    pub connections_max: usize,
    /// Most connections that wait to be accepted; the system may allow fewer
    /// (`net.core.somaxconn`). If it is exceeded, a client retries after a second, and then less
    /// often.
    pub backlog: u32,
    /// Bytes of pending requests of one client beyond which the gateway drops it.
    pub input_bytes_max: usize,
    /// Bytes of unread replies of one client beyond which the gateway drops it.
    pub output_bytes_max: usize,
    /// Bytes of requests and replies of all clients together beyond which the gateway drops a
    /// client that adds to them.
    pub buffer_bytes_max: usize,
    /// Bytes of messages that wait for one subscriber, or for one other gateway, beyond which it is
    /// cut off.
    pub message_bytes_max: usize,
    /// How long a client may leave its socket full of unread replies.
    pub patience: Duration,
    /// Most clients of a thread whose requests wait for memory nodes at once, and most sessions for
    /// these. Requests that overlap another one of their client have as many more, less one.
    pub sessions_max: usize,
    /// Whether `FLUSHALL` and `FLUSHDB` remove keys.
    pub allow_flush: bool,
    /// Whether this gateway removes expired keys in the background.
    pub expires: bool,
    /// The duration from which a command enters the slow log.
    pub slow: Duration,
    /// Most commands in the slow log.
    pub slow_entries: usize,
    /// Most scripts that run at a time. Others wait.
    pub script_threads: usize,
    /// How long a script may run.
    pub script_time: Duration,
    /// Bytes of memory that a script may use.
    pub script_bytes_max: usize,
    /// How long requests in progress may take after a stop was requested.
    pub drain: Duration,
}

impl GatewayOptions {
    /// Returns the credentials that were read from files.
    pub fn credentials(&self) -> Vec<Credential> {
        let tls = self.tls.as_ref().map(NodeTls::credential);
        let to_peers = self.peer_tls.as_ref().map(ClientTls::credential);
        self.password.credential().into_iter().chain(tls).chain(to_peers).collect()
    }
}

impl Default for GatewayOptions {
    fn default() -> Self {
        Self {
            password: Secrets::default(),
            tls: None,
            peer_tls: None,
            announce: None,
            threads: 1,
            connections_max: 10_000,
            backlog: 1024,
            input_bytes_max: 1 << 30,
            output_bytes_max: 256 << 20,
            buffer_bytes_max: 2 << 30,
            message_bytes_max: 32 << 20,
            patience: Duration::from_secs(60),
            sessions_max: 64,
            allow_flush: false,
            expires: true,
            slow: Duration::from_millis(10),
            slow_entries: 128,
            script_threads: 8,
            script_time: Duration::from_secs(5),
            script_bytes_max: 64 << 20,
            drain: Duration::from_secs(5),
        }
    }
}
