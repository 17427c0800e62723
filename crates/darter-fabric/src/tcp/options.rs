//! How a process uses its memory nodes.

use crate::PoolUrl;
use crate::rdma::DeviceName;
use crate::wire::ClientTls;
use std::time::Duration;

/// How a process uses its memory nodes.
#[derive(Clone, Debug)]
pub struct TcpOptions {
    /// The secret that both sides prove to know; empty for none.
    pub token: Vec<u8>,
    /// How to use TLS with the nodes. Without it, all that goes over the wire can be read and
    /// changed there.
    pub tls: Option<ClientTls>,
    /// How long a thread that waits polls its sockets before it sleeps. Polling sees a reply within
    /// a few microseconds, sleeping leaves the core to others.
    pub spin: Duration,
    /// How long a connected node may leave requests without a reply before the connection is given
    /// up. The system notices within ten seconds that a node is gone.
    pub patience: Duration,
    /// How long a memory group may have no replica that serves before what waits for it fails.
    pub group_patience: Duration,
    /// Verbs go through this RDMA device; requests, fences and the pairing of queues stay on TCP.
    /// `None`: all over TCP.
    pub device: Option<DeviceName>,
    /// Every node must be durable: its replies say nothing that is not on its disk. Others are
    /// refused.
    pub must_be_durable: bool,
}

impl TcpOptions {
    /// Returns the same options, with what a pool's name says of them.
    #[must_use]
    pub fn for_pool(mut self, url: &PoolUrl) -> Self {
        if let Some(device) = url.device() {
            self.device = Some(device.clone());
        }
        self.must_be_durable |= url.is_durable();
        self
    }
}

impl Default for TcpOptions {
    fn default() -> Self {
        Self {
            token: Vec::new(),
            tls: None,
            spin: Duration::from_micros(50),
            patience: Duration::from_secs(10),
            group_patience: Duration::from_secs(30),
            device: None,
            must_be_durable: false,
        }
    }
}
