//! `serve`: runs a gateway, through which Redis clients use a pool, until SIGTERM or Ctrl-C.

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

/// Maximum time to leave the pool, after the last request.
const LEAVE_PATIENCE: Duration = Duration::from_secs(3);

#[derive(clap::Args)]
pub struct ServeCommand {
    /// Address to listen on for Redis clients, as IP:PORT; with port 0 a free port is chosen and
    /// printed on stdout
    #[arg(long, value_name = "ADDR")]
    resp: SocketAddr,
    /// Pool: `tcp://HOST:PORT,…`, or `rdma://HOST:PORT,…?device=DEVICE`, or `file:PATH`, or
    /// `file:PATH?size=SIZE` to create it if absent, or `mem:SIZE`, which ends with the gateway
    #[arg(long, value_name = "URL", env = "DARTER_POOL")]
    pool: PoolUrl,
    #[command(flatten)]
    index: IndexArgs,
    #[command(flatten)]
    pool_credentials: GatewayPoolArgs,
    #[command(flatten)]
    credentials: GatewayArgs,
    /// Serve a status page, Prometheus metrics at /metrics and health at /healthz over HTTP on
    /// IP:PORT, or on PORT of the loopback address; with port 0 a free port is chosen and logged.
    /// The page and the tree require the password, if there is one, and transmit it unencrypted
    #[arg(long, value_name = "[ADDR:]PORT", value_parser = address_or_port)]
    http: Option<SocketAddr>,
    /// Host, with or without a port, at which the pool's other gateways reach this one [default: the
    /// address of --resp; if that is 0.0.0.0 or [::], the address from which this machine reaches the
    /// memory nodes, or loopback for a file]
    #[arg(long, value_name = "HOST[:PORT]", value_parser = announced)]
    announce: Option<String>,
    /// Number of threads that serve clients
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=1024))]
    threads: u16,
    /// Allow FLUSHALL and FLUSHDB, which remove all keys
    #[arg(long)]
    allow_flush: bool,
    /// Do not search for expired keys; the pool's other gateways remove expired keys that are never
    /// read
    #[arg(long)]
    no_expiry_walk: bool,
    /// Time in microseconds from which a command is slow: listed in SLOWLOG, the log and the status
    /// page
    #[arg(long, value_name = "US", default_value_t = 10_000)]
    slow_us: u64,
    /// Maximum number of entries in SLOWLOG
    #[arg(long, value_name = "N", default_value_t = 128, value_parser = clap::value_parser!(u16).range(..=10_000))]
    slow_entries: u16,
    #[command(flatten)]
    limits: Limits,
    #[command(flatten)]
    log: LogArgs,
    /// Stop as on SIGTERM when stdin is closed
    #[arg(long, hide = true)]
    until_stdin_closes: bool,
}

/// Limits on the resources and time of clients.
#[derive(clap::Args)]
struct Limits {
    /// Maximum number of connections
    #[arg(long, value_name = "N", default_value_t = 10_000)]
    connections: usize,
    /// Maximum number of connections that wait to be accepted; net.core.somaxconn can lower it
    #[arg(long, value_name = "N", default_value_t = 1024, value_parser = clap::value_parser!(u32).range(1..=65_535))]
    backlog: u32,
    /// Maximum size of one client's unfinished requests
    #[arg(long, value_name = "SIZE", default_value = "1GiB")]
    input_bytes: ByteSize,
    /// Maximum size of one client's unread replies, and of a single reply
    #[arg(long, value_name = "SIZE", default_value = "256MiB")]
    output_bytes: ByteSize,
    /// Maximum size of all clients' unfinished requests and unread replies together
    #[arg(long, value_name = "SIZE", default_value = "2GiB")]
    buffer_bytes: ByteSize,
    /// Maximum size of the messages that wait for one subscriber, or for one other gateway, before it
    /// is disconnected
    #[arg(long, value_name = "SIZE", default_value = "32MiB")]
    message_bytes: ByteSize,
    /// Time in seconds after which a client is disconnected if its unread replies fill its socket
    #[arg(long, value_name = "SECONDS", default_value = "60", value_parser = seconds)]
    patience: Duration,
    /// Maximum number of scripts that run at a time; others wait
    #[cfg(feature = "scripts")]
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u16).range(1..=256))]
    script_threads: u16,
    /// Time in milliseconds after which a script is stopped
    #[cfg(feature = "scripts")]
    #[arg(long, value_name = "MS", default_value_t = 5000, value_parser = clap::value_parser!(u32).range(1..))]
    script_ms: u32,
    /// Maximum size of a script's memory
    #[cfg(feature = "scripts")]
    #[arg(long, value_name = "SIZE", default_value = "64MiB")]
    script_bytes: ByteSize,
    /// Maximum size of the pool's memory that this gateway takes, in whole blocks; commands that need
    /// more fail as if the pool were full
    #[arg(long, value_name = "SIZE")]
    pool_bytes: Option<ByteSize>,
    /// Size of free memory that this gateway leaves on each memory node, for commands that delete,
    /// check or move data
    #[arg(long, value_name = "SIZE", default_value = "0")]
    reserve: ByteSize,
    /// Time in seconds after SIGTERM for requests to finish
    #[arg(long, value_name = "SECONDS", default_value = "5", value_parser = seconds)]
    drain: Duration,
}

fn address_or_port(text: &str) -> Result<SocketAddr, String> {
    if let Ok(port) = text.parse() {
        return Ok(SocketAddr::from((Ipv4Addr::LOCALHOST, port)));
    }
    text.parse()
        .map_err(|_| "not a port or an address with a port; write for example 127.0.0.1:9701".to_owned())
}

/// Longest host name with a port.
const ANNOUNCED_BYTES_MAX: usize = 260;

fn announced(text: &str) -> Result<String, String> {
    let is_host = |byte: u8| byte.is_ascii_alphanumeric() || b".-_:[]".contains(&byte);
    if text.is_empty() || text.len() > ANNOUNCED_BYTES_MAX || !text.bytes().all(is_host) {
        return Err("not a host name or an IP address; write for example 10.0.0.1 or cache-1:6379".to_owned());
    }
    Ok(text.to_owned())
}

impl ServeCommand {
    pub(crate) fn run(&self) -> Result<Answer, Failure> {
        let options = self.options()?;
        let _log = self.log.start();
        if !self.credentials.are_asked_for() && !self.resp.ip().is_loopback() {
            warn!(
                "without --password-file or --tls-client-ca any client that reaches this address can read and write the pool"
            );
        }
        if let Some(address) = self.http
            && !self.credentials.has_password()
            && !address.ip().is_loopback()
        {
            warn!("without --password-file any client that reaches the status page can read all keys");
        }
        let stop = asked_to_stop(self.until_stdin_closes, Some(self.limits.drain + LEAVE_PATIENCE))?;
        allow_open_files(self.limits.connections);
        let credentials = self.pool_credentials.of_a_client();
        let store = PoolArgs::new(self.pool.clone(), self.index, credentials).open_to_serve(|options| {
            let quota = self.limits.pool_bytes.map_or(u64::MAX, |size| size.0);
            options.quota_bytes(quota).reserve_bytes(self.limits.reserve.0)
        })?;
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
        // A size that this machine cannot address means no limit.
        let bytes = |size: ByteSize| usize::try_from(size.0).unwrap_or(usize::MAX);
        Ok(GatewayOptions {
            threads: usize::from(self.threads),
            connections_max: self.limits.connections,
            backlog: self.limits.backlog,
            // Positions in the input are 32 bits.
            input_bytes_max: bytes(self.limits.input_bytes).min(2 << 30),
            output_bytes_max: bytes(self.limits.output_bytes),
            buffer_bytes_max: bytes(self.limits.buffer_bytes),
            message_bytes_max: bytes(self.limits.message_bytes),
            announce: self.announce.clone(),
            patience: self.limits.patience,
            #[cfg(feature = "scripts")]
            script_threads: usize::from(self.limits.script_threads),
            #[cfg(feature = "scripts")]
            script_time: Duration::from_millis(self.limits.script_ms.into()),
            #[cfg(feature = "scripts")]
            script_bytes_max: bytes(self.limits.script_bytes),
            drain: self.limits.drain,
            allow_flush: self.allow_flush,
            expires: !self.no_expiry_walk,
            slow: Duration::from_micros(self.slow_us),
            slow_entries: usize::from(self.slow_entries),
            ..self.credentials.options()?
        })
    }
}
