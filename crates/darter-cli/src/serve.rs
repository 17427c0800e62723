//! `serve`: a gateway, through which Redis's clients use a pool, until SIGTERM or Ctrl-C.

use crate::Answer;
use crate::arguments::{IndexArgs, seconds};
use crate::credentials::{GatewayArgs, GatewayPoolArgs};
use crate::failure::{EXIT_FAILED, Failure};
use crate::logging::LogArgs;
use crate::memnode::allow_open_files;
use crate::pool::PoolArgs;
use crate::signals::{asked_to_stop, end_within};
use darter::{ByteSize, PoolUrl};
use darter_gateway::{Gateway, GatewayOptions};
use std::io::Write;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;
use tracing::{info, warn};

/// How long leaving the pool may take, after the last request.
const LEAVE_PATIENCE: Duration = Duration::from_secs(3);

#[derive(clap::Args)]
pub struct ServeCommand {
    /// Where to listen for Redis's clients: ADDRESS:PORT; port 0 takes any, and the line on stdout
    /// says which
    #[arg(long, value_name = "ADDR")]
    resp: SocketAddr,
    /// The pool: `tcp://HOST:PORT,…`, or `rdma://HOST:PORT,…?device=DEVICE`, or `file:PATH`, or
    /// `file:PATH?size=SIZE` to create it, or `mem:SIZE`, which ends with the gateway
    #[arg(long, value_name = "URL", env = "DARTER_POOL")]
    pool: PoolUrl,
    #[command(flatten)]
    index: IndexArgs,
    #[command(flatten)]
    pool_credentials: GatewayPoolArgs,
    #[command(flatten)]
    credentials: GatewayArgs,
    /// Serve a status page over HTTP here, with /metrics for Prometheus and /healthz: ADDRESS:PORT,
    /// or PORT on this machine alone; port 0 takes any, and the log says which. Page and tree ask
    /// for the password, where there is one, in clear
    #[arg(long, value_name = "[ADDR:]PORT", value_parser = address_or_port)]
    http: Option<SocketAddr>,
    /// Threads that serve clients
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=1024))]
    threads: u16,
    /// Let FLUSHALL and FLUSHDB remove everything
    #[arg(long)]
    allow_flush: bool,
    /// Leave it to the pool's other gateways to remove keys that are over and that nobody asks for
    #[arg(long)]
    no_expiry_walk: bool,
    /// Microseconds from which a command is slow: SLOWLOG, the log and the page tell of it
    #[arg(long, value_name = "US", default_value_t = 10_000)]
    slow_us: u64,
    /// Slow commands that SLOWLOG keeps
    #[arg(long, value_name = "N", default_value_t = 128, value_parser = clap::value_parser!(u16).range(..=10_000))]
    slow_entries: u16,
    #[command(flatten)]
    limits: Limits,
    #[command(flatten)]
    log: LogArgs,
    /// Stop as on SIGTERM when stdin ends
    #[arg(long, hide = true)]
    until_stdin_closes: bool,
}

/// What clients may take, and how long.
#[derive(clap::Args)]
struct Limits {
    /// Connections at most
    #[arg(long, value_name = "N", default_value_t = 10_000)]
    connections: usize,
    /// Connections at most that wait to be accepted; the system may allow fewer
    /// (net.core.somaxconn)
    #[arg(long, value_name = "N", default_value_t = 1024, value_parser = clap::value_parser!(u32).range(1..=65_535))]
    backlog: u32,
    /// Bytes of one client's unfinished requests at most
    #[arg(long, value_name = "SIZE", default_value = "1G")]
    input_bytes: ByteSize,
    /// Bytes of replies that one client may leave unread; also those of one reply
    #[arg(long, value_name = "SIZE", default_value = "256M")]
    output_bytes: ByteSize,
    /// Bytes of all clients' unfinished requests and unread replies together
    #[arg(long, value_name = "SIZE", default_value = "2G")]
    buffer_bytes: ByteSize,
    /// Seconds that a client may leave replies unread that fill its socket
    #[arg(long, value_name = "SECONDS", default_value = "60", value_parser = seconds)]
    patience: Duration,
    /// Seconds that requests may take after SIGTERM
    #[arg(long, value_name = "SECONDS", default_value = "5", value_parser = seconds)]
    drain: Duration,
}

fn address_or_port(text: &str) -> Result<SocketAddr, String> {
    if let Ok(port) = text.parse() {
        return Ok(SocketAddr::from((Ipv4Addr::LOCALHOST, port)));
    }
    text.parse().map_err(|_| "a port, or an address with a port, such as 127.0.0.1:9701".to_owned())
}

impl ServeCommand {
    pub(crate) fn run(&self) -> Result<Answer, Failure> {
        let options = self.options()?;
        let _log = self.log.start();
        if !self.credentials.are_asked_for() && !self.resp.ip().is_loopback() {
            warn!(
                "without --password-file or --tls-client-ca whoever reaches this address can read and write the pool"
            );
        }
        if let Some(address) = self.http
            && !self.credentials.has_password()
            && !address.ip().is_loopback()
        {
            warn!("without --password-file whoever reaches the status page can read all keys");
        }
        let stop = asked_to_stop(self.until_stdin_closes, Some(self.limits.drain + LEAVE_PATIENCE))?;
        allow_open_files(self.limits.connections);
        let credentials = self.pool_credentials.of_a_client();
        let store = PoolArgs::new(self.pool.clone(), self.index, credentials).open_to_serve()?;
        let gateway = Gateway::bind(self.resp, store, options).map_err(Failure::failed)?;
        // Serves until the gateway has ended.
        let status = self.http.map(|address| gateway.serve_status(address));
        let status = status.transpose().map_err(Failure::failed)?;
        if let Some(status) = &status {
            info!(address = %status.address(), "status page");
        }
        let mut out = std::io::stdout().lock();
        writeln!(out, "redis://{}", gateway.address().map_err(Failure::failed)?)?;
        out.flush()?;
        let served = gateway.serve(&stop).map_err(Failure::failed);
        end_within(LEAVE_PATIENCE, EXIT_FAILED);
        served?;
        Ok(Answer::Done)
    }

    fn options(&self) -> Result<GatewayOptions, Failure> {
        // What is more than this machine can address is no limit.
        let bytes = |size: ByteSize| usize::try_from(size.0).unwrap_or(usize::MAX);
        Ok(GatewayOptions {
            threads: usize::from(self.threads),
            connections_max: self.limits.connections,
            backlog: self.limits.backlog,
            // Places in it are 32 bits.
            input_bytes_max: bytes(self.limits.input_bytes).min(2 << 30),
            output_bytes_max: bytes(self.limits.output_bytes),
            buffer_bytes_max: bytes(self.limits.buffer_bytes),
            patience: self.limits.patience,
            drain: self.limits.drain,
            allow_flush: self.allow_flush,
            expires: !self.no_expiry_walk,
            slow: Duration::from_micros(self.slow_us),
            slow_entries: usize::from(self.slow_entries),
            ..self.credentials.options()?
        })
    }
}
