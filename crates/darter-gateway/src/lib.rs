//! A gateway: speaks RESP to Redis's clients, and keeps nothing itself. What they store lies in a pool, so that several gateways of one
//! pool are one store, and any of them may be killed.
//!
//! Each worker is a thread with an executor of its own and a task for each of its clients (`worker.rs`, `connection.rs`). A task
//! parses the requests that have arrived (`request.rs`), does them one after the other (`call.rs`, `commands/`), and sends their
//! replies together. How keys lie in the index is told in `keyspace/` and docs/gateway.md. Over a pool of this machine nothing ever
//! waits but for a socket; over memory nodes others go on while one request waits for its round trips.

mod accept;
mod call;
mod clients;
mod commands;
mod connection;
mod error;
mod extended;
mod fabric_driver;
mod fault;
mod glob;
pub mod json;
mod keyspace;
mod number;
mod options;
mod pipeline;
mod reply;
mod request;
mod score;
mod slow;
mod state;
mod statistics;
mod status;
mod table;
mod thread;
mod worker;

pub use darter_telemetry::{HttpPort, PortError, Stop};
pub use error::GatewayError;
pub use options::GatewayOptions;
pub use request::{Arguments, Malformed, Parser, Step};
pub use table::page as commands_page;

use darter::Store;
use error::system;
use state::GatewayState;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use tracing::info;

/// The version of Redis whose commands these are, for clients that ask.
pub const REDIS_VERSION: &str = "7.0.15";

/// A gateway that listens.
#[derive(Debug)]
pub struct Gateway {
    listener: TcpListener,
    shared: Arc<GatewayState>,
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
        Ok(Self { listener, shared: Arc::new(GatewayState::new(store, options)) })
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
        accept::run(listener, &shared, stop)?;
        info!("stopped");
        Ok(())
    }
}
