//! The options of a memory node.

use crate::error::MemNodeError;
use crate::group::GroupOptions;
use crate::limits::Limits;
use darter_fabric::Procedures;
use darter_fabric::rdma::DeviceName;
use darter_fabric::wire::{self, ClientTls, Credential, NodeTls, Secrets};
use std::time::Duration;

/// The options of a memory node.
#[derive(Clone, Debug)]
pub struct MemNodeOptions {
    /// The secrets of which clients must prove to know one. If there are none, any client that can
    /// connect is accepted.
    pub token: Secrets,
    /// Secrets whose clients may only read: the node refuses every request of theirs that would change
    /// more than their own member line of a pool. A secret that is among both kinds is of this kind.
    /// Needs `token`, and is not supported with `device`.
    pub read_only_token: Secrets,
    /// The TLS configuration. Without TLS, others on the network can read and change the traffic.
    pub tls: Option<NodeTls>,
    /// Registers the region with this RDMA device and pairs queues with clients that request it;
    /// batches of verbs over TCP are then refused, since the processor's atomics and the device's
    /// are not atomic to each other. RDMA traffic is never encrypted, whatever `tls` is. `None`:
    /// TCP only.
    pub device: Option<DeviceName>,
    /// The procedures that clients can call.
    pub procedures: Procedures,
    /// Number of threads that run procedures. If it is 0, or with `device`, calls are refused.
    pub workers: usize,
    /// Maximum number of calls that wait for a worker; beyond it a call is refused.
    pub calls_waiting_max: usize,
    /// Makes the node one replica of a memory group. Its region must be zeroed memory of this
    /// process, without a log; RDMA and procedures are not supported.
    pub group: Option<GroupOptions>,
    /// Limits on the load of sessions and tenants; other tenants' tokens. Not supported with
    /// `device`.
    pub limits: Option<Limits>,
    /// Maximum number of connections.
    pub connections_max: usize,
    /// Maximum number of connections that wait to be accepted; the system may allow fewer
    /// (`net.core.somaxconn`). Beyond it a client retries after a second, and later.
    pub backlog: u32,
    /// Maximum payload of a frame, in bytes.
    pub frame_bytes_max: u32,
    /// Bytes of unread replies of one client beyond which the node reads no further requests from
    /// it.
    pub waiting_bytes_max: usize,
    /// Bytes of memory of all connections' buffers beyond which the node drops the connection with
    /// the largest ones. One frame and its replies can exceed it.
    pub buffer_bytes_max: usize,
    /// Maximum time that a client can leave its replies unread, or its handshake or a request
    /// incomplete.
    pub patience: Duration,
    /// Time that the serving thread polls before it sleeps.
    pub spin: Duration,
    /// Maximum time for clients to read their replies after a request to stop.
    pub drain: Duration,
}

impl MemNodeOptions {
    /// Verifies that limits and read-only tokens can be kept.
    ///
    /// # Errors
    /// [`MemNodeError::LimitOptions`] if not.
    pub(crate) fn verify(&self) -> Result<(), MemNodeError> {
        let has_readers = !self.read_only_token.current().is_empty();
        let what = if self.limits.is_some() && self.device.is_some() {
            "limits cannot be combined with an RDMA device: its verbs bypass the node's processor"
        } else if has_readers && self.device.is_some() {
            "a read-only token cannot be combined with an RDMA device: its verbs bypass the node's processor, which could \
             not refuse them"
        } else if has_readers && self.token.current().is_empty() {
            "a read-only token needs a token of clients that may write: without one, every client may write"
        } else {
            return Ok(());
        };
        Err(MemNodeError::LimitOptions { what })
    }

    /// Returns the credentials that were read from files.
    pub fn credentials(&self) -> Vec<Credential> {
        let tls = self.tls.as_ref().map(NodeTls::credential);
        let to_replicas = self.group.as_ref().and_then(|group| group.tls.as_ref()).map(ClientTls::credential);
        let limits = self.limits.as_ref().map(Limits::credential);
        let tokens = [&self.token, &self.read_only_token].into_iter().filter_map(Secrets::credential);
        tokens.chain(tls).chain(to_replicas).chain(limits).collect()
    }
}

impl Default for MemNodeOptions {
    fn default() -> Self {
        Self {
            token: Secrets::default(),
            read_only_token: Secrets::default(),
            tls: None,
            device: None,
            procedures: Procedures::new(),
            workers: 0,
            calls_waiting_max: 1024,
            group: None,
            limits: None,
            connections_max: 1024,
            backlog: 1024,
            frame_bytes_max: wire::FRAME_BYTES_MAX,
            waiting_bytes_max: 16 << 20,
            buffer_bytes_max: 1 << 30,
            patience: Duration::from_secs(10),
            spin: Duration::from_micros(50),
            drain: Duration::from_secs(5),
        }
    }
}
