//! Options of a process's connections to its memory nodes.

use crate::PoolUrl;
use crate::rdma::DeviceName;
use crate::wire::{ClientTls, Credential, Secrets};
use std::time::Duration;

/// Options of a process's connections to its memory nodes.
#[derive(Clone, Debug)]
pub struct TcpOptions {
    /// The secret that both sides prove to know: the first of them. By default there is none.
    pub token: Secrets,
    /// TLS configuration. Without TLS, all data on the wire can be read and changed there.
    pub tls: Option<ClientTls>,
    /// How long a waiting thread polls its sockets before it sleeps. Polling detects a reply within
    /// a few microseconds; sleeping leaves the core to other threads.
    pub spin: Duration,
    /// How long a connected node may leave requests without a reply before the connection is given
    /// up. The system detects a dead node within ten seconds.
    pub patience: Duration,
    /// How long a memory group may have no serving replica before waiting requests fail.
    pub group_patience: Duration,
    /// Verbs use this RDMA device; requests, fences and the pairing of queues use TCP. `None`:
    /// everything uses TCP.
    pub device: Option<DeviceName>,
    /// Every node must be durable: its replies contain only data that is on its disk. Other nodes
    /// are refused.
    pub must_be_durable: bool,
}

impl TcpOptions {
    /// Returns these options with the settings of a pool's name applied.
    #[must_use]
    pub fn for_pool(mut self, url: &PoolUrl) -> Self {
        if let Some(device) = url.device() {
            self.device = Some(device.clone());
        }
        self.must_be_durable |= url.is_durable();
        self
    }

    /// Returns the credentials that were read from files.
    pub fn credentials(&self) -> Vec<Credential> {
        let tls = self.tls.as_ref().map(ClientTls::credential);
        self.token.credential().into_iter().chain(tls).collect()
    }
}

impl Default for TcpOptions {
    fn default() -> Self {
        Self {
            token: Secrets::default(),
            tls: None,
            spin: Duration::from_micros(50),
            patience: Duration::from_secs(10),
            group_patience: Duration::from_secs(30),
            device: None,
            must_be_durable: false,
        }
    }
}
