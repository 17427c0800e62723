//! `memnode`: serves this machine's memory as a memory node until SIGTERM or Ctrl-C.

use crate::Answer;
use crate::arguments::{seconds, sized};
use crate::credentials::{NodeArgs, in_clear};
use crate::durability::DurabilityArgs;
use crate::failure::Failure;
use crate::logging::LogArgs;
use crate::replication::ReplicaArgs;
use crate::signals::asked_to_stop;
use darter::ByteSize;
use darter_fabric::Procedures;
use darter_fabric::files::{FileMode, GroupName, Sharing};
use darter_fabric::local::Space;
use darter_fabric::rdma::{DeviceName, probe};
use darter_memnode::{FileRegionOptions, MemNode, MemNodeOptions, Region, Stop, serve_metrics};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::io::Write;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tracing::{info, warn};

#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  darter memnode --listen 127.0.0.1:7000 --size 1G
  darter memnode --listen 10.0.0.1:7000 --size 8G --file /var/lib/darter/region --token-file token
  darter memnode --listen 10.0.0.1:7000 --size 8G --durability log --log /var/lib/darter/log --token-file token
  darter memnode --listen 10.0.0.1:7000 --size 8G --token-file token --limits limits.toml
  darter memnode --listen 10.0.0.1:7000 --size 8G --token-file token --read-only-token-file readers
  darter memnode --listen 10.0.0.1:7000 --size 8G --huge-pages --rdma mlx5_0 --token-file token
  darter memnode --listen 10.0.0.1:7000 --size 8G --token-file token --views etcd://10.0.0.9:2379/darter \
    --replicas 10.0.0.1:7000+10.0.0.2:7000
  darter memnode --listen 10.0.0.1:7000 --size 8G --token-file token --views etcd://10.0.0.9:2379/darter \
    --replicas 10.0.0.1:7000+10.0.0.2:7000+10.0.0.3:7000 --durability log --log /var/lib/darter/log")]
pub struct MemNodeCommand {
    /// Address to listen on, as IP:PORT; with port 0 a free port is chosen and printed on stdout
    #[arg(long, value_name = "ADDR", required_unless_present = "is_probe")]
    listen: Option<SocketAddr>,
    /// Size of the region in bytes, or with the suffix K, M, G or T (KiB, MiB, GiB, TiB); the
    /// system allocates memory as it is used
    #[arg(long, value_name = "SIZE", required_unless_present = "is_probe")]
    size: Option<ByteSize>,
    /// Keep the region in this file, and in FILE.node; a node restarted with the file serves it
    /// again
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,
    #[command(flatten)]
    files: FileArgs,
    #[command(flatten)]
    credentials: NodeArgs,
    /// Serve Prometheus metrics at /metrics and health at /healthz over HTTP on this address; with
    /// port 0 a free port is chosen and logged. No token is required: choose an address that only
    /// operators can reach
    #[arg(long, value_name = "ADDR")]
    metrics: Option<SocketAddr>,
    /// Allocate the region from reserved huge pages, at once; without this option the kernel uses
    /// huge pages if it can
    #[arg(long, conflicts_with = "file")]
    huge_pages: bool,
    #[command(flatten)]
    durability: DurabilityArgs,
    #[command(flatten)]
    rdma: RdmaArgs,
    #[command(flatten)]
    replication: ReplicaArgs,
    #[command(flatten)]
    limits: Limits,
    #[command(flatten)]
    log: LogArgs,
    /// Stop as on SIGTERM when stdin is closed
    #[arg(long, hide = true)]
    until_stdin_closes: bool,
}

/// Disk space and permissions of the node's files.
#[derive(clap::Args)]
struct FileArgs {
    /// Allocate the file's disk space as it is used instead of reserving it; a full disk then ends
    /// the node
    #[arg(long, requires = "file")]
    sparse: bool,
    /// On a file system that cannot reserve disk space, reserve it by writing the whole file
    #[arg(long, requires = "file", conflicts_with = "sparse")]
    preallocate: bool,
    /// Serve a copy of a region that was made while its node ran; afterwards run `darter check
    /// --repair` on the pool
    #[arg(long, requires = "file")]
    accept_copy: bool,
    /// Permissions of new files with the node's memory (`--file`, `--log`), in octal, for example
    /// 0640; users who can read a file can enter a new directory [default: 0600, or 0660 with
    /// --file-group]
    #[arg(long, value_name = "MODE")]
    file_mode: Option<FileMode>,
    /// Group of those files, by name or number
    #[arg(long, value_name = "GROUP")]
    file_group: Option<GroupName>,
}

/// The RDMA device through which clients reach the region, if any.
#[derive(clap::Args)]
struct RdmaArgs {
    /// Let clients read and write the region through this RDMA device, and refuse verbs over TCP.
    /// Clients use the pool URL `rdma://ADDR,…?device=` with a device of their own machine
    #[arg(help_heading = "RDMA", long = "rdma", value_name = "DEVICE[:PORT[:GID]]")]
    device: Option<DeviceName>,
    /// Allow RDMA together with TLS: TCP is then encrypted, but RDMA, which carries all keys and
    /// values, is not
    #[arg(help_heading = "RDMA", long = "rdma-in-clear", requires = "device")]
    in_clear: bool,
    /// Test the device for a few seconds, print the guarantees it gives, and exit; exit code 1 if
    /// it cannot be used
    #[arg(help_heading = "RDMA", long = "rdma-probe", requires = "device")]
    is_probe: bool,
}

/// Limits on the resources and time of peers.
#[derive(clap::Args)]
struct Limits {
    /// Maximum number of connections
    #[arg(help_heading = "Limits", long, value_name = "N", default_value_t = 1024)]
    connections: usize,
    /// Maximum number of connections that wait to be accepted; net.core.somaxconn can lower it
    #[arg(long, value_name = "N", default_value_t = 1024, value_parser = clap::value_parser!(u32).range(1..=65_535))]
    backlog: u32,
    /// Maximum payload of a frame, 4 KiB to 4 MiB
    #[arg(help_heading = "Limits", long, value_name = "SIZE", default_value = "4MiB", value_parser = frame_bytes)]
    frame_bytes: ByteSize,
    /// Maximum size of the unread replies to one peer; beyond it the node reads no requests from
    /// the peer
    #[arg(help_heading = "Limits", long, value_name = "SIZE", default_value = "16MiB")]
    waiting_bytes: ByteSize,
    /// Maximum memory of all connections together, at least 16 MiB; beyond it the connection that
    /// uses most is dropped
    #[arg(help_heading = "Limits", long, value_name = "SIZE", default_value = "1GiB", value_parser = buffer_bytes)]
    buffer_bytes: ByteSize,
    /// Time in seconds after which a peer is disconnected if it leaves replies unread, or a
    /// handshake or request unfinished
    #[arg(help_heading = "Limits", long, value_name = "SECONDS", default_value = "10", value_parser = seconds)]
    patience: Duration,
    /// Time in seconds after SIGTERM for peers to read their replies
    #[arg(help_heading = "Limits", long, value_name = "SECONDS", default_value = "5", value_parser = seconds)]
    drain: Duration,
    /// File with limits on the verbs and bytes per second of sessions and tenants, in TOML; it is read
    /// again when it changes
    #[arg(
        help_heading = "Limits",
        long = "limits",
        value_name = "FILE",
        requires = "token_file",
        conflicts_with = "device"
    )]
    tenants: Option<PathBuf>,
    /// Time in microseconds that a thread polls before it sleeps
    #[arg(help_heading = "Limits", long, value_name = "US", default_value_t = 50)]
    spin: u64,
}

fn frame_bytes(text: &str) -> Result<ByteSize, String> {
    let most = u64::from(darter_fabric::wire::FRAME_BYTES_MAX);
    sized(text, 4096..=most, "must be from 4 KiB to 4 MiB")
}

fn buffer_bytes(text: &str) -> Result<ByteSize, String> {
    sized(text, 16 << 20..=u64::MAX, "must be at least 16 MiB")
}

/// A server in the process of a memory node, whose procedures clients call.
pub trait NodeServer {
    /// Returns the number of threads that run procedures.
    fn workers(&self) -> usize;

    /// Returns the procedures.
    fn procedures(&self) -> Procedures;

    /// Maintains the server, whose node listens at `address`, until a stop is requested. Returns
    /// the [`Stop`] for the node, which runs on in case the server needs it to leave the pool.
    fn serve_at(self: Box<Self>, address: SocketAddr, stop: Arc<Stop>) -> Result<Arc<Stop>, Failure>;
}

impl MemNodeCommand {
    pub fn run(&self) -> Result<Answer, Failure> {
        self.run_with(|_| Ok(None))
    }

    /// Runs the node with the server that `begin` returns for the node's credentials, if any.
    pub fn run_with(
        &self,
        begin: impl FnOnce(&NodeArgs) -> Result<Option<Box<dyn NodeServer>>, Failure>,
    ) -> Result<Answer, Failure> {
        if let (Some(device), true) = (&self.rdma.device, self.rdma.is_probe) {
            let report = probe(device).map_err(Failure::failed)?;
            writeln!(std::io::stdout().lock(), "{report}")?;
            return Ok(if report.is_fit() { Answer::Done } else { Answer::No });
        }
        let (Some(listen), Some(size)) = (self.listen, self.size) else {
            return Err(Failure::usage("a memory node needs --listen and --size"));
        };
        let credentials = self.credentials.options()?;
        if self.rdma.device.is_some() && credentials.tls.is_some() && !self.rdma.in_clear {
            return Err(in_clear("--rdma"));
        }
        self.durability.check(self.file.is_some(), self.rdma.device.is_some())?;
        let _log = self.log.start();
        let unit = darter_fabric::SUPERBLOCK_BYTES;
        let bytes = size.0 / unit * unit;
        let sharing = self.files.sharing();
        let region = match &self.file {
            Some(path) => {
                let options = FileRegionOptions {
                    space: self.files.space(),
                    sharing: sharing.clone(),
                    accept_copy: self.files.accept_copy,
                };
                Region::file_with(path, bytes, &options).map_err(Failure::failed)?
            }
            None if self.huge_pages => Region::huge_pages(bytes).map_err(Failure::failed)?,
            None => Region::memory(bytes).map_err(Failure::usage)?,
        };
        let region = self.durability.apply(region, sharing, self.replication.is_replica())?;
        let server = begin(&self.credentials)?;
        let is_durable = self.durability.is_log();
        let group = self.replication.options(listen, is_durable, |ca| self.credentials.of_a_replica(ca))?;
        let options = self.limits.options(MemNodeOptions {
            device: self.rdma.device.clone(),
            procedures: server.as_ref().map(|server| server.procedures()).unwrap_or_default(),
            workers: server.as_ref().map_or(0, |server| server.workers()),
            group,
            ..credentials
        })?;
        if !self.credentials.are_asked_for() && !listen.ip().is_loopback() {
            warn!(
                "without --token-file or --tls-client-ca any client that reaches this address can read and write the memory"
            );
        }
        let stop = asked_to_stop(self.until_stdin_closes, None)?;
        allow_open_files(self.limits.connections);
        let node = MemNode::bind(listen, region, options).map_err(Failure::failed)?;
        let open = |address| serve_metrics(address, Arc::clone(node.metrics()));
        // Serves until the node has ended.
        let port = self.metrics.map(open).transpose().map_err(Failure::failed)?;
        if let Some(port) = &port {
            info!(address = %port.address(), "metrics");
        }
        let mut out = std::io::stdout().lock();
        let scheme = if self.rdma.device.is_some() { "rdma" } else { "tcp" };
        writeln!(out, "{scheme}://{}", node.address().map_err(Failure::failed)?)?;
        out.flush()?;
        let stop = match server {
            Some(server) => server.serve_at(node.address().map_err(Failure::failed)?, stop)?,
            None => stop,
        };
        node.serve(&stop).map_err(Failure::failed)?;
        Ok(Answer::Done)
    }
}

impl FileArgs {
    fn space(&self) -> Space {
        match (self.sparse, self.preallocate) {
            (true, _) => Space::Sparse,
            (_, true) => Space::Preallocated,
            _ => Space::Reserved,
        }
    }

    fn sharing(&self) -> Sharing {
        Sharing { mode: self.file_mode, group: self.file_group.clone() }
    }
}

impl Limits {
    fn options(&self, credentials: MemNodeOptions) -> Result<MemNodeOptions, Failure> {
        // A size that this machine cannot address means no limit.
        let bytes = |size: ByteSize| usize::try_from(size.0).unwrap_or(usize::MAX);
        let limits = self.tenants.as_deref().map(darter_memnode::Limits::from_file);
        Ok(MemNodeOptions {
            limits: limits.transpose().map_err(Failure::usage)?,
            connections_max: self.connections,
            backlog: self.backlog,
            frame_bytes_max: self.frame_bytes.0 as u32,
            waiting_bytes_max: bytes(self.waiting_bytes),
            buffer_bytes_max: bytes(self.buffer_bytes),
            patience: self.patience,
            drain: self.drain,
            spin: Duration::from_micros(self.spin),
            ..credentials
        })
    }
}

/// Open files other than those of admitted connections: pending handshakes, the metrics port, the
/// log, and the region.
const OTHER_FILES: u64 = 512;

/// Raises this process's limit of open files for its connections, as far as permitted.
pub(crate) fn allow_open_files(connections: usize) {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let wanted = (connections as u64).saturating_add(OTHER_FILES);
    if current.is_none_or(|current| current >= wanted) {
        return;
    }
    let allowed = maximum.map_or(wanted, |maximum| maximum.min(wanted));
    let raised = setrlimit(Resource::Nofile, Rlimit { current: Some(allowed), maximum });
    if raised.is_err() || allowed < wanted {
        warn!(wanted, allowed, "the limit of open files is below the need of the connections");
    }
}
