//! The server of an index in the process of a memory node: its procedures, its upkeep, its end.
//!
//! Like a client, the server accesses the pool, including its own node, over TCP. It is therefore a
//! member like all others, which any of them can shut out when it is silent.

use darter::PoolUrl;
use darter_baselines::XStoreService;
use darter_cli::Failure;
use darter_cli::credentials::NodeArgs;
use darter_cli::memnode::NodeServer;
use darter_cli::signals::in_a_thread;
use darter_fabric::{FabricError, Procedures, Tcp, TcpOptions, block_on};
use darter_memnode::Stop;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tracing::warn;

/// Time between two rounds of upkeep.
const UPKEEP: Duration = Duration::from_millis(100);
/// Time between two checks for a request to stop.
const LOOK: Duration = Duration::from_millis(10);

/// An index with a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Served {
    /// XStore
    Xstore,
}

/// The server that a memory node runs, if it runs one.
#[derive(clap::Args)]
pub(crate) struct ServerArgs {
    /// Run the server of this index: its clients call the node. The server joins the pool, and
    /// becomes the owner of its index, with the first call
    #[arg(help_heading = "Server", long = "serve", value_name = "INDEX", conflicts_with_all = ["device", "replicas"])]
    index: Option<Served>,
    /// Threads that run the server's procedures
    #[arg(help_heading = "Server", long, value_name = "N", default_value_t = 2, requires = "index")]
    #[arg(value_parser = clap::value_parser!(u16).range(1..=1024))]
    workers: u16,
    /// The pool that the server joins: `tcp://` and all its memory nodes in their order, this one
    /// among them. Without it this node is the only one
    #[arg(help_heading = "Server", long = "server-pool", value_name = "URL", requires = "index")]
    pool: Option<PoolUrl>,
    /// With TLS: trust memory nodes with certificates signed by this PEM file's, as any client of
    /// the pool does
    #[arg(help_heading = "Server", long = "server-tls-ca", value_name = "FILE", requires = "index")]
    tls_ca: Option<std::path::PathBuf>,
}

impl ServerArgs {
    /// Returns the configured server. It knows its node after [`NodeServer::serve_at`].
    pub(crate) fn begin(&self, credentials: &NodeArgs) -> Result<Option<Box<dyn NodeServer>>, Failure> {
        let Some(Served::Xstore) = self.index else { return Ok(None) };
        let addresses = match &self.pool {
            Some(pool) => match pool.addresses().filter(|_| pool.device().is_none()) {
                Some(addresses) => OnceLock::from(addresses.to_vec()),
                None => {
                    return Err(Failure::usage("--server-pool is a pool of memory nodes: tcp://HOST:PORT,…"));
                }
            },
            None => OnceLock::new(),
        };
        let options = credentials.of_a_client(self.tls_ca.as_deref())?;
        Ok(Some(Box::new(IndexServer::new(addresses, options, self.workers))))
    }
}

/// A server in this process.
struct IndexServer {
    service: XStoreService<Tcp>,
    workers: u16,
    addresses: Arc<OnceLock<Vec<String>>>,
}

impl IndexServer {
    fn new(addresses: OnceLock<Vec<String>>, options: TcpOptions, workers: u16) -> Self {
        let addresses = Arc::new(addresses);
        let known = Arc::clone(&addresses);
        let service = XStoreService::connecting(move || {
            let addresses = known.get().ok_or(FabricError::Unreachable { node: 0 })?;
            Ok(Tcp::connect_present(addresses, options.clone())?)
        });
        Self { service, workers, addresses }
    }
}

impl NodeServer for IndexServer {
    fn workers(&self) -> usize {
        self.workers.into()
    }

    fn procedures(&self) -> Procedures {
        self.service.procedures()
    }

    fn serve_at(self: Box<Self>, address: SocketAddr, stop: Arc<Stop>) -> Result<Arc<Stop>, Failure> {
        self.addresses.get_or_init(|| vec![reachable(address).to_string()]);
        let of_node = Arc::new(Stop::default());
        let told = Arc::clone(&of_node);
        in_a_thread("server", move || {
            let mut fails = false;
            while !waits_for_stop(&stop, UPKEEP) {
                let outcome = block_on(self.service.maintain());
                if let Err(error) = &outcome
                    && !fails
                {
                    warn!(%error, "the upkeep of the index's server failed");
                }
                fails = outcome.is_err();
            }
            // A second request is for the node, even while the server leaves.
            let server = self.service;
            let leaving = in_a_thread("server-leaves", {
                let told = Arc::clone(&told);
                move || {
                    server.end();
                    told.ask();
                }
            });
            if leaving.is_err() {
                told.ask();
            }
            while !stop.is_urgent() {
                std::thread::sleep(LOOK);
            }
            told.ask();
            told.ask();
        })?;
        Ok(of_node)
    }
}

/// Waits for a request to stop, for at most `most`; returns whether there was one.
fn waits_for_stop(stop: &Stop, most: Duration) -> bool {
    for _ in 0..most.as_millis() / LOOK.as_millis() {
        if stop.is_asked() {
            return true;
        }
        std::thread::sleep(LOOK);
    }
    stop.is_asked()
}

/// Returns an address at which this process reaches a listener, which may listen on all addresses.
fn reachable(listening: SocketAddr) -> SocketAddr {
    let ip = match listening.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    };
    SocketAddr::new(ip, listening.port())
}
