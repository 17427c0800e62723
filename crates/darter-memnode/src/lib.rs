//! A memory node: executes READ, WRITE, CAS and FAA against one region for whoever is let in.
//!
//! One thread serves all connections. It takes in what a socket has, executes the whole frames in it, and sends all their
//! answers in one call; between looks it spins for a while, then sleeps in `epoll`. Whatever a peer sends, it costs the peer
//! its connection at most: lengths are checked before anything is kept, verbs before anything is touched, a peer that
//! does not read its answers is heard no further, and dropped when that lasts, and all of them together may hold so much memory.
//!
//! An operator sees it through counters (`metrics.rs`, exposed by `metrics_port.rs`) and log lines (`tracing`, limited in `service.rs`).

mod error;
mod event_loop;
mod ledger;
mod metrics;
mod metrics_port;
mod options;
mod peer;
mod region;
mod service;
mod sessions;

pub use darter_telemetry::{HttpPort, PortError, Stop};
pub use error::MemNodeError;
pub use metrics::{DroppedFor, Health, MemNodeCounts, MemNodeMetrics, RefusedFor};
pub use metrics_port::serve_metrics;
pub use options::MemNodeOptions;
pub use region::Region;

use darter_fabric::{Fabric, Local};
use darter_telemetry::log_limit::LogLimiter;
use error::system;
use event_loop::EventLoop;
use service::Service;
use sessions::Sessions;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Instant;
use tracing::info;

/// A memory node that listens.
#[derive(Debug)]
pub struct MemNode {
    listener: TcpListener,
    memory: Local,
    boot_id: u64,
    sessions: Sessions,
    options: MemNodeOptions,
    metrics: Arc<MemNodeMetrics>,
}

impl MemNode {
    /// Listens at an address, to serve a region.
    ///
    /// # Errors
    /// When the address is taken.
    pub fn bind(address: SocketAddr, region: Region, options: MemNodeOptions) -> Result<Self, MemNodeError> {
        let listener =
            TcpListener::bind(address).map_err(|source| MemNodeError::Listen { address, source })?;
        listener.set_nonblocking(true).map_err(system("set up the listening socket"))?;
        let Region { memory, ledger, remembered } = region;
        let sessions = Sessions::new(ledger, &remembered);
        let metrics = Arc::new(MemNodeMetrics::new(memory.node_bytes(0)));
        Ok(Self { listener, memory, boot_id: remembered.boot_id, sessions, options, metrics })
    }

    /// Where it listens.
    ///
    /// # Errors
    /// When the system does not say.
    pub fn address(&self) -> Result<SocketAddr, MemNodeError> {
        self.listener.local_addr().map_err(system("ask for the listening address"))
    }

    /// What it counts, now and as long as it serves.
    pub fn metrics(&self) -> &Arc<MemNodeMetrics> {
        &self.metrics
    }

    /// Serves until asked to stop, then drains: takes nobody new, executes what has arrived, and ends each connection when its
    /// answers are out, all of them after [`MemNodeOptions::drain`] or when asked again.
    ///
    /// # Errors
    /// When the system refuses what serving needs; a peer's fault is never one.
    pub fn serve(self, stop: &Stop) -> Result<MemNodeCounts, MemNodeError> {
        let address = self.address()?;
        let _span = tracing::info_span!("memnode", node = %address).entered();
        for note in self.memory.notes() {
            info!("{note}");
        }
        let mut endpoint = self.memory.endpoint()?;
        let service = Service {
            options: &self.options,
            region: &self.memory,
            boot_id: self.boot_id,
            sessions: self.sessions,
            metrics: &self.metrics,
            log: LogLimiter::new(Instant::now()),
            greeted: 0,
            is_draining: false,
            now: Instant::now(),
        };
        info!(
            region_bytes = self.memory.node_bytes(0),
            connections_max = self.options.connections_max,
            "listening"
        );
        EventLoop::new(self.listener, service)?.run(stop, &mut endpoint)?;
        let counts = self.metrics.counts();
        info!(
            accepted = counts.accepted,
            refused = counts.refused,
            dropped = counts.dropped,
            frames = counts.frames,
            verbs = counts.verbs,
            "stopped"
        );
        Ok(counts)
    }
}
