//! A memory node: executes READ, WRITE, CAS and FAA on one region of memory for its clients.
//!
//! One thread serves all connections. It reads the bytes that a socket has received, executes the
//! complete frames in them, and sends all their replies with one call. Between checks of the
//! sockets it spins for a while, then sleeps in `epoll`. A client's messages can cost no more than
//! its own connection: the node checks lengths before it stores data and verbs before it executes
//! them. It stops reading from a client that does not read its replies, drops the client if that
//! lasts, and limits the memory of all connections together.
//!
//! Clients can call procedures ([`MemNodeOptions::procedures`]). Separate threads run them
//! (`workers.rs`), and the serving thread sends each result when it is ready.
//!
//! With a log ([`Region::logged`]) acknowledged writes survive a power failure: a reply waits until
//! everything that it reveals is on disk (`redo_log/`, `held.rs`).
//!
//! With an RDMA device ([`MemNodeOptions::device`]) clients' verbs go through queue pairs
//! (`queues.rs`), and the thread serves the other requests only.
//!
//! With other nodes it can be one replica of a memory group ([`MemNodeOptions::group`], `group/`):
//! its primary then replies after the other replicas have everything that the reply reveals. With
//! logs ([`Region::logged_replica`]) all of them have it on disk.
//!
//! Operators observe a node through its counters (`metrics.rs`, exposed by `metrics_port.rs`) and
//! its log lines (`tracing`, limited in `service.rs`).

mod bell;
mod error;
mod event_loop;
mod group;
mod group_metrics;
mod held;
mod ledger;
mod limits;
mod log_metrics;
mod metrics;
mod metrics_port;
mod options;
mod peer;
mod queues;
mod redo_log;
mod region;
mod service;
mod session_set;
mod sessions;
mod workers;

pub use darter_telemetry::{HttpPort, PortError, Stop};
pub use error::MemNodeError;
pub use group::{GroupOptions, Views};
pub use limits::{Limits, LimitsError};
pub use metrics::{DroppedFor, Health, MemNodeCounts, MemNodeMetrics, RefusedFor};
pub use metrics_port::serve_metrics;
pub use options::MemNodeOptions;
pub use redo_log::LogOptions;
pub use region::{FileRegionOptions, Region};

use darter_fabric::rdma::Export;
use darter_fabric::{Fabric, Local};
use darter_telemetry::log_limit::LogLimiter;
use error::system;
use event_loop::EventLoop;
use group::Group;
use group_metrics::GroupMetrics;
use log_metrics::LogMetrics;
use queues::Queues;
use redo_log::Journal;
use service::Service;
use sessions::Sessions;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Instant;
use tracing::{info, warn};
use workers::Workers;

/// A memory node that is listening.
#[derive(Debug)]
pub struct MemNode {
    listener: TcpListener,
    memory: Local,
    boot_id: u64,
    sessions: Sessions,
    queues: Queues,
    workers: Workers,
    journal: Option<Journal>,
    group: Option<Group>,
    options: MemNodeOptions,
    metrics: Arc<MemNodeMetrics>,
}

impl MemNode {
    /// Listens on an address, to serve a region.
    ///
    /// # Errors
    /// Fails if the node cannot listen on the address, if the options name an RDMA device that
    /// cannot serve the region, or if they are inconsistent.
    pub fn bind(address: SocketAddr, region: Region, options: MemNodeOptions) -> Result<Self, MemNodeError> {
        let listener =
            TcpListener::bind(address).map_err(|source| MemNodeError::Listen { address, source })?;
        // A second call replaces the backlog of 128 that `bind` has set.
        let backlog = i32::try_from(options.backlog).unwrap_or(i32::MAX);
        rustix::net::listen(&listener, backlog)
            .map_err(|error| MemNodeError::Listen { address, source: error.into() })?;
        listener.set_nonblocking(true).map_err(system("set up the listening socket"))?;
        let Region { memory, ledger, log, replica, remembered } = region;
        options.verify()?;
        if log.is_some() && options.device.is_some() {
            return Err(MemNodeError::LogOptions {
                what: "a region with a log cannot be reached through an RDMA device: its verbs bypass the log",
            });
        }
        if options.group.is_some() && (ledger.is_some() || options.device.is_some() || options.workers > 0) {
            let what = "a replica of a memory group keeps its region in memory, with or without a log, and has no file, \
                        RDMA device or procedures";
            return Err(MemNodeError::GroupOptions { what: what.to_owned() });
        }
        if log.is_some() && options.group.is_some() != replica.is_some() {
            return Err(MemNodeError::LogOptions {
                what: "the log of a replica belongs to a replica of a memory group, and a replica needs one of that kind",
            });
        }
        let export = options.device.as_ref().map(|device| Export::new(device, &memory)).transpose()?;
        let sessions = Sessions::new(ledger, &remembered);
        let notes_facts = log.is_some() || options.group.is_some();
        let sessions = if notes_facts { sessions.logged(&remembered) } else { sessions };
        let log_metrics = log.as_ref().map(|_| Arc::new(LogMetrics::default()));
        let mut metrics = MemNodeMetrics::new(memory.node_bytes(0), log_metrics.clone());
        let group_metrics = options.group.as_ref().map(|group| Arc::new(GroupMetrics::new(group.members())));
        metrics.credentials = options.credentials();
        metrics.group.clone_from(&group_metrics);
        let mut log = log.zip(log_metrics);
        let group = options.group.clone().zip(group_metrics);
        let group = group
            .map(|(group, metrics)| {
                let log = log.take().zip(replica).map(|((log, metrics), replica)| ((log, replica), metrics));
                Group::start(group, &memory, log, &options.token, metrics)
            })
            .transpose()?;
        let journal = log.map(|(log, metrics)| Journal::start(log, &memory, metrics)).transpose()?;
        let count = if export.is_some() { 0 } else { options.workers };
        let workers = Workers::start(count, options.procedures.clone(), options.calls_waiting_max)?;
        Ok(Self {
            listener,
            memory,
            boot_id: remembered.boot_id,
            sessions,
            queues: Queues::new(export),
            workers,
            journal,
            group,
            options,
            metrics: Arc::new(metrics),
        })
    }

    /// Returns the address that it listens on.
    ///
    /// # Errors
    /// Fails if the system does not report it.
    pub fn address(&self) -> Result<SocketAddr, MemNodeError> {
        self.listener.local_addr().map_err(system("get the listening address"))
    }

    /// Returns the node's counters, which it updates while it serves.
    pub fn metrics(&self) -> &Arc<MemNodeMetrics> {
        &self.metrics
    }

    /// Serves until a stop is requested, then drains: accepts no more connections, executes the
    /// requests that have arrived, and ends each connection once its replies are sent. It ends all
    /// of them after [`MemNodeOptions::drain`] or at a second request to stop.
    ///
    /// # Errors
    /// Fails if the system refuses an operation that serving needs, or the region's log has failed.
    /// A client's fault is never an error.
    pub fn serve(self, stop: &Stop) -> Result<MemNodeCounts, MemNodeError> {
        let address = self.address()?;
        let _span = tracing::info_span!("memnode", node = %address).entered();
        let warning = self.memory.missing_space();
        for note in self.memory.notes().into_iter().chain(self.queues.describe()) {
            if warning.as_ref() == Some(&note) {
                warn!("{note}");
            } else {
                info!("{note}");
            }
        }
        let mut endpoint = self.memory.endpoint()?;
        let service = Service {
            options: &self.options,
            region: &self.memory,
            boot_id: self.boot_id,
            sessions: self.sessions,
            queues: self.queues,
            workers: self.workers,
            journal: self.journal,
            group: self.group,
            gate: limits::Gate::new(self.options.limits.clone(), Instant::now()),
            metrics: &self.metrics,
            log: LogLimiter::new(Instant::now()),
            connections_max: self.options.connections_max,
            greeted: 0,
            is_draining: false,
            now: Instant::now(),
        };
        info!(
            region_bytes = self.memory.node_bytes(0),
            connections_max = self.options.connections_max,
            "listening"
        );
        let journal = EventLoop::new(self.listener, service)?.run(stop, &mut endpoint)?;
        journal.map_or(Ok(()), Journal::stop)?;
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

/// Compiles the example of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
