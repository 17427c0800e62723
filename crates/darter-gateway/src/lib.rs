//! A gateway, which serves a store to Redis clients over RESP. It is stateless: all data is in the
//! pool, so several gateways of one pool serve the same keys, and any of them may be killed.
//!
//! Each worker is a thread with its own executor and a task for each of its clients (`thread.rs`,
//! `worker.rs`, `connection.rs`). A task parses the requests that have arrived (`request.rs`),
//! executes them (`connection/requests.rs`, `call.rs`, `commands/`), and sends their replies together.
//! `lua/` runs scripts. `pubsub/` has the subscriptions of clients, and `peers/` sends messages to the
//! other gateways of the pool. `keyspace/` and docs/gateway.md describe how keys are stored in the index.
//! Over a pool on this machine, a task only waits for its socket; over memory nodes, other clients
//! are served while a request waits for its round trips, and requests of one client overlap
//! (`conflicts.rs`).

mod accept;
mod acl;
mod call;
mod clients;
mod clock;
mod commands;
mod conflicts;
mod connection;
mod database;
mod error;
mod extended;
mod fabric_driver;
mod fault;
mod geo;
mod glob;
mod hexadecimal;
mod hyperloglog;
pub mod json;
mod keyspace;
#[cfg(feature = "scripts")]
mod lua;
mod mail;
mod mailbox;
mod monitors;
mod named_keys;
mod notifications;
mod number;
mod options;
mod pace;
mod pause;
mod payload;
mod peers;
mod pipeline;
mod pubsub;
mod queue;
mod rdb;
mod reply;
mod request;
mod score;
mod slow;
mod socket;
mod state;
mod statistics;
mod status;
mod subcommands;
mod table;
mod thread;
mod tracking;
mod turns;
mod users;
mod waiting;
mod worker;

pub use darter_telemetry::{HttpPort, PortError, Stop};
pub use database::{Collection, Database, DatabaseError, DatabaseScan, RedisValue, Restored};
pub use error::GatewayError;
pub use options::GatewayOptions;
pub use payload::Dumped;
pub use rdb::{Payload, RdbError, RdbFile, RdbItem, RdbKey};
pub use request::{Arguments, Malformed, Parser, Step};
pub use table::page as commands_page;

use darter::Store;
use darter::engine::Engine;
use error::system;
use state::GatewayState;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use tracing::{info, warn};

/// The version of Redis that the gateway reports to clients.
pub const REDIS_VERSION: &str = "7.0.15";

/// A gateway that is listening.
#[derive(Debug)]
pub struct Gateway {
    listener: TcpListener,
    shared: Arc<GatewayState>,
}

impl Gateway {
    /// Listens at an address, for clients of a store.
    ///
    /// # Errors
    /// Fails if the gateway cannot listen on the address, if it cannot read the users of the pool, or
    /// if the store's token is a read-only one.
    pub fn bind(
        address: SocketAddr,
        store: Store,
        mut options: GatewayOptions,
    ) -> Result<Self, GatewayError> {
        if store.pool().reads_only() {
            return Err(GatewayError::ReadOnly);
        }
        let listener =
            TcpListener::bind(address).map_err(|source| GatewayError::Listen { address, source })?;
        // A second call replaces the backlog of 128 that `bind` has set.
        let backlog = i32::try_from(options.backlog).unwrap_or(i32::MAX);
        rustix::net::listen(&listener, backlog)
            .map_err(|error| GatewayError::Listen { address, source: error.into() })?;
        listener.set_nonblocking(true).map_err(system("set up the listening socket"))?;
        let bound = listener.local_addr().map_err(system("get the listening address"))?;
        options.announce = peers::announced(options.announce.as_deref(), bound, &store);
        if options.announce.is_some() && options.tls.is_some() && options.peer_tls.is_none() {
            warn!(
                "without --peer-tls-ca this gateway does not connect to the pool's other gateways: clients of \
                 different gateways cannot send messages to each other"
            );
            options.announce = None;
        }
        let shared = Arc::new(GatewayState::new(store.clone(), options));
        // Before the first client.
        let mut keys = keyspace::Keyspace::new(store, Arc::default());
        let loaded = darter::block_on(users::load(&shared, &mut keys, None));
        loaded.map_err(|fault| GatewayError::Users(fault.into()))?;
        Ok(Self { listener, shared })
    }

    /// Returns the address that it listens on.
    ///
    /// # Errors
    /// Fails if the system does not report it.
    pub fn address(&self) -> Result<SocketAddr, GatewayError> {
        self.listener.local_addr().map_err(system("get the listening address"))
    }

    /// Opens the HTTP port of the status page at an address; port 0 chooses a free port. It serves
    /// `/` for browsers, `/metrics` for Prometheus, and `/healthz`, until it is dropped. With
    /// [`GatewayOptions::password`] the pages that show keys require the password; without it,
    /// anyone who can reach the address can read them.
    ///
    /// # Errors
    /// Fails if the gateway cannot listen on the address, or if the system cannot start a thread.
    pub fn serve_status(&self, address: SocketAddr) -> Result<HttpPort, PortError> {
        HttpPort::open(address, status::handler(&self.shared))
    }

    /// Serves until a stop is requested. Then accepts no more connections, finishes the requests in
    /// progress, and ends all connections.
    ///
    /// # Errors
    /// Fails if the system rejects an operation that serving needs. A client's fault is never an
    /// error, and neither is the end of this process's membership in the pool, which is then opened
    /// again.
    pub fn serve(self, stop: &Stop) -> Result<(), GatewayError> {
        let address = self.address()?;
        let Self { listener, shared } = self;
        info!(%address, threads = shared.options.threads, "listening");
        accept::run(listener, &shared, stop)?;
        info!("stopped");
        Ok(())
    }
}

/// Compiles the example of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
