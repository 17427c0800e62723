//! A gateway: speaks RESP to Redis's clients, and keeps nothing itself. What they store lies in a pool, so that several gateways of one
//! pool are one store, and any of them may be killed.
//!
//! Each worker is a thread with an executor of its own and a task for each of its clients (`worker.rs`, `connection.rs`). A task
//! parses the requests that have arrived (`request.rs`), does them one after the other (`call.rs`, `commands/`), and sends their
//! replies together. How keys lie in the index is told in `keyspace/` and docs/gateway.md. Over a pool of this machine nothing ever
//! waits but for a socket; over memory nodes others go on while one request waits for its round trips.

mod call;
mod clients;
mod commands;
mod connection;
mod drive;
mod extended;
mod fault;
mod glob;
pub mod json;
mod keyspace;
mod number;
mod pipeline;
mod reply;
mod request;
mod score;
mod slow;
mod statistics;
mod status;
mod table;
mod worker;

pub use darter_telemetry::{HttpPort, PortError, Stop};
pub use request::{Arguments, Malformed, Parser, Step};
pub use table::page as commands_page;

use darter::Store;
use darter_fabric::tcp::NodeTls;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Duration;
use tracing::info;
use worker::Shared;

/// The version of Redis whose commands these are, for clients that ask.
pub const REDIS_VERSION: &str = "7.0.15";

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

/// Why a gateway cannot serve.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum GatewayError {
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
    /// The pool's other members took this process for dead.
    #[error(
        "the pool's other clients have shut this gateway out, for its silence beyond its lease; start it again"
    )]
    ShutOut,
}

fn system(action: &'static str) -> impl FnOnce(io::Error) -> GatewayError {
    move |source| GatewayError::System { action, source }
}

/// A gateway that listens.
#[derive(Debug)]
pub struct Gateway {
    listener: TcpListener,
    shared: Arc<Shared>,
}

impl Gateway {
    /// Listens at an address, for clients of a store.
    ///
    /// # Errors
    /// When the address is taken.
    pub fn bind(address: SocketAddr, store: Store, options: GatewayOptions) -> Result<Self, GatewayError> {
        let listener =
            TcpListener::bind(address).map_err(|source| GatewayError::Listen { address, source })?;
        listener.set_nonblocking(true).map_err(system("set up the listening socket"))?;
        Ok(Self { listener, shared: Arc::new(Shared::new(store, options)) })
    }

    /// Where it listens.
    ///
    /// # Errors
    /// When the system does not say.
    pub fn address(&self) -> Result<SocketAddr, GatewayError> {
        self.listener.local_addr().map_err(system("ask for the listening address"))
    }

    /// Opens the port of its status page, at an address, port 0 for any: `/` for people, `/metrics` for Prometheus, `/healthz`. It
    /// serves until it is dropped. With [`GatewayOptions::password`] what tells of keys asks for it; without, whoever reaches
    /// the address reads everything.
    ///
    /// # Errors
    /// When the address is taken or the system refuses a thread.
    pub fn serve_status(&self, address: SocketAddr) -> Result<HttpPort, PortError> {
        HttpPort::open(address, status::site(&self.shared))
    }

    /// Serves until asked to stop, then takes nobody new, finishes the requests that are at work, and ends all connections.
    ///
    /// # Errors
    /// When the system refuses what serving needs, or the pool has shut this process out; a client's fault is never one.
    pub fn serve(self, stop: &Stop) -> Result<(), GatewayError> {
        let address = self.address()?;
        let Self { listener, shared } = self;
        info!(%address, threads = shared.options.threads, "listening");
        worker::run(listener, &shared, stop)?;
        info!("stopped");
        Ok(())
    }
}
