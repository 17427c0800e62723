//! A memory node: executes READ, WRITE, CAS and FAA against one region for whoever is let in.
//!
//! One thread serves all connections. It takes in what a socket has, executes the whole frames in it, and sends all their
//! answers in one call; between looks it spins for a while, then sleeps in `epoll`. Whatever a peer sends, it costs the peer
//! its connection at most: lengths are checked before anything is kept, verbs before anything is touched, a peer that
//! does not read its answers is heard no further, and dropped when that lasts, and all of them together may hold so much memory.
//!
//! An operator sees it through counters (`metrics.rs`, told by `metrics_port.rs`) and log lines (`tracing`, paced as `LogLine` says).

mod event_loop;
mod ledger;
mod metrics;
mod metrics_port;
mod peer;
mod region;
mod sessions;

pub use darter_telemetry::{HttpPort, PortError, Stop};
pub use metrics::{DroppedFor, Health, MemNodeCounts, MemNodeMetrics, RefusedFor};
pub use metrics_port::serve_metrics;
pub use region::Region;

use darter_fabric::tcp::{NodeTls, wire};
use darter_fabric::{Fabric, FabricError, Local};
use darter_telemetry::log_limit::{LogKind, LogLimiter};
use event_loop::EventLoop;
use sessions::Sessions;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tracing::info;

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

/// Why a memory node cannot serve.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MemNodeError {
    /// The address cannot be listened on.
    #[error("{address}: cannot listen there: {source}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// The system's answer.
        source: io::Error,
    },
    /// The system refused something that serving needs.
    #[error("cannot {action}: {source}")]
    System {
        /// What was tried.
        action: &'static str,
        /// The system's answer.
        source: io::Error,
    },
    /// The region is not one node's memory.
    #[error("a memory node serves one region; this pool has {nodes}")]
    Regions {
        /// How many there are.
        nodes: usize,
    },
    /// The file beside the region's, where the node keeps whom it has shut out, cannot be used.
    #[error("{}: cannot {action}: {source}; it belongs to the region's file and goes with it", path.display())]
    Ledger {
        /// The file.
        path: PathBuf,
        /// What was tried.
        action: &'static str,
        /// The system's answer.
        source: io::Error,
    },
    /// The region cannot be reached.
    #[error(transparent)]
    Fabric(#[from] FabricError),
}

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

fn system(action: &'static str) -> impl FnOnce(io::Error) -> MemNodeError {
    move |source| MemNodeError::System { action, source }
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

/// Sorts of log lines that peers can cause.
#[derive(Clone, Copy, Debug)]
enum LogLine {
    Accepted,
    Closed,
    Refused,
    Dropped,
    Fenced,
    Accepting,
}

impl LogKind for LogLine {
    const NAMES: &'static [&'static str] = &[
        "connections accepted",
        "connections closed",
        "connections refused",
        "connections dropped",
        "sessions fenced",
        "connections that could not be accepted",
    ];

    fn index(self) -> usize {
        self as usize
    }
}

/// What all peers share while they are served.
struct Service<'s> {
    options: &'s MemNodeOptions,
    region: &'s Local,
    boot_id: u64,
    sessions: Sessions,
    metrics: &'s MemNodeMetrics,
    log: LogLimiter<LogLine>,
    /// Connections let in that are still there.
    greeted: usize,
    /// Nobody is let in any more.
    is_draining: bool,
    /// When the sockets being served were found ready.
    now: Instant,
}
