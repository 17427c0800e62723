//! The memory nodes of a run: processes with their regions in files, which are killed and started
//! again at the same address, stopped and continued, and always ended with the run. Or replicas of
//! memory groups, which come back empty.

use super::StressError;
use super::network::{Link, Network, Place};
use super::replicas::{self, PATIENCE, ReplicaConfig};
use darter::PoolUrl;
use rustix::process::{Pid, Signal, kill_process};
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Instant;
use tempfile::TempDir;

/// Maximum number of memory nodes of a run.
pub const NODES_MAX: u8 = 64;
/// Maximum number of replicas of a memory node.
pub const REPLICAS_MAX: u8 = 3;
/// The port of memory nodes that each have their own address.
const PORT: u16 = 7000;
/// Maximum number of bytes of the line in which a node reports its address.
const LINE_BYTES_MAX: u64 = 256;

/// The memory nodes to run, and the faults to inject.
#[derive(Clone, Debug)]
pub struct ClusterConfig {
    /// Number of memory nodes.
    pub nodes: u8,
    /// Processes per node: with more than one, the nodes are memory groups.
    pub replicas: u8,
    /// Bytes of each node's region.
    pub node_bytes: u64,
    /// Whether each node and each worker gets a network namespace and an address.
    pub apart: bool,
    /// Nodes killed per second, on average; each is started again.
    pub kills_per_second: f64,
    /// Nodes stopped per second, on average.
    pub pauses_per_second: f64,
    /// Links cut or slowed per second, on average.
    pub cuts_per_second: f64,
}

/// The configuration of a memory node's process.
#[derive(Clone, Debug)]
pub struct NodeConfig {
    /// The address to listen on.
    pub listen: SocketAddr,
    /// Bytes of its region.
    pub bytes: u64,
    /// The region's file, unless it is a replica.
    pub file: PathBuf,
    /// The group of which it is a replica.
    pub replica: Option<ReplicaConfig>,
}

/// Returns the command that starts a memory node: it prints `tcp://ADDRESS` on its standard output
/// when it listens, and ends when its standard input does.
pub type LaunchNode<'l> = dyn Fn(&NodeConfig) -> io::Result<Command> + 'l;

#[derive(Debug)]
struct Node {
    config: NodeConfig,
    /// `None` while it is down.
    child: Option<Child>,
    /// When it is continued, if it is stopped, or started again, if it is down.
    back_at: Option<Instant>,
}

impl Drop for Node {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            // Usually it has ended already.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// All memory nodes of a run.
pub(super) struct Cluster<'l> {
    nodes: Vec<Node>,
    /// Links that are cut or slow, and when they are healed.
    hurt: Vec<(Place, Instant)>,
    network: Option<Network>,
    launch: &'l LaunchNode<'l>,
    regions: TempDir,
}

impl<'l> Cluster<'l> {
    /// Starts the nodes of a run with `workers` workers.
    pub(super) fn start(
        config: &ClusterConfig,
        workers: u32,
        launch: &'l LaunchNode<'l>,
    ) -> Result<Self, StressError> {
        // In memory if possible: the speed of the disk is not under test.
        let memory = Path::new("/dev/shm");
        let prefix = "darter-stress-nodes-";
        let builder = |parent: &Path| tempfile::Builder::new().prefix(prefix).tempdir_in(parent);
        let regions = builder(memory)
            .or_else(|_| builder(&std::env::temp_dir()))
            .map_err(|error| StressError::system("create a directory for the regions", error))?;
        let processes = u32::from(config.nodes) * u32::from(config.replicas);
        let nodes = (0..processes).map(Place::Node);
        let places = nodes.chain((0..workers).map(Place::Worker)).collect();
        let network = if config.apart { Some(Network::make(places)?) } else { None };
        let mut cluster = Self { nodes: Vec::new(), hurt: Vec::new(), network, launch, regions };
        let is_replicated = config.replicas > 1;
        let listens = cluster.addresses(processes, is_replicated)?;
        for at in 0..processes {
            let file = cluster.regions.path().join(format!("node-{at}"));
            let group = at / u32::from(config.replicas);
            let replicas = listens.chunks(config.replicas.into()).nth(group as usize).unwrap_or_default();
            let replica = is_replicated.then(|| ReplicaConfig {
                group,
                replicas: replicas.to_vec(),
                views: replicas::views_url(cluster.regions.path()),
                patience: PATIENCE,
            });
            let config = NodeConfig { listen: listens[at as usize], bytes: config.node_bytes, file, replica };
            cluster.nodes.push(Node { config, child: None, back_at: None });
            cluster.launch(at)?;
        }
        Ok(cluster)
    }

    /// Returns the addresses to listen on. Replicas must know each other's addresses before they
    /// listen.
    fn addresses(&self, processes: u32, is_replicated: bool) -> Result<Vec<SocketAddr>, StressError> {
        if let Some(network) = &self.network {
            let address = |at| SocketAddr::new(network.address(Place::Node(at)).into(), PORT);
            return Ok((0..processes).map(address).collect());
        }
        let any = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0);
        if !is_replicated {
            return Ok(vec![any; processes as usize]);
        }
        let listeners = (0..processes).map(|_| TcpListener::bind(any)).collect::<Result<Vec<_>, _>>();
        let addresses =
            listeners.and_then(|listeners| listeners.iter().map(TcpListener::local_addr).collect());
        addresses.map_err(|error| StressError::system("find ports for replicas", error))
    }

    /// Returns the URL of the pool over all nodes.
    pub(super) fn pool(&self) -> Result<PoolUrl, StressError> {
        let mut addresses: Vec<String> = Vec::new();
        for Node { config, .. } in &self.nodes {
            let address = config.replica.as_ref().map_or(config.listen.to_string(), ReplicaConfig::address);
            if addresses.last() != Some(&address) {
                addresses.push(address);
            }
        }
        let url = format!("tcp://{}", addresses.join(",")).parse::<PoolUrl>();
        url.map_err(|error| StressError::Store(error.into()))
    }

    /// Wraps a command to run in the network of a worker.
    pub(super) fn place(&self, slot: u32, command: Command) -> Command {
        match &self.network {
            Some(network) => network.inside(Place::Worker(slot), &command),
            None => command,
        }
    }

    /// Returns the number of nodes.
    pub(super) fn len(&self) -> u64 {
        self.nodes.len() as u64
    }

    /// Returns the number of links.
    pub(super) fn links(&self) -> u64 {
        self.network.as_ref().map_or(0, |network| network.places().len() as u64)
    }

    fn launch(&mut self, at: u32) -> Result<(), StressError> {
        let config = &self.nodes[at as usize].config;
        let failed = |error| StressError::system("start a memory node", error);
        let mut command = (self.launch)(config).map_err(failed)?;
        if let Some(network) = &self.network {
            command = network.inside(Place::Node(at), &command);
        }
        let words = config.file.with_extension("err");
        let words = File::options().create(true).append(true).open(words).map_err(failed)?;
        let mut child =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(words).spawn().map_err(failed)?;
        let mut line = String::new();
        if let Some(out) = child.stdout.take() {
            BufReader::new(out.take(LINE_BYTES_MAX)).read_line(&mut line).map_err(failed)?;
        }
        let node = &mut self.nodes[at as usize];
        node.child = Some(child);
        match line.trim().strip_prefix("tcp://").and_then(|address| address.parse().ok()) {
            // A restarted node must listen on the same address.
            Some(address) => node.config.listen = address,
            None => {
                return Err(StressError::Broken(format!(
                    "memory node {at} failed to start{}",
                    self.words(at)
                )));
            }
        }
        Ok(())
    }

    /// Returns the errors that a node reported.
    fn words(&self, at: u32) -> String {
        format!(
            ":\n  {}",
            super::worker::last_words(&self.nodes[at as usize].config.file.with_extension("err"))
        )
    }

    /// Kills a node that is up, for a later restart; returns whether it was up.
    pub(super) fn kill(&mut self, at: u64, back_at: Instant) -> Result<bool, StressError> {
        if !self.may_lose(at)? {
            return Ok(false);
        }
        let node = &mut self.nodes[at as usize];
        if let Some(mut child) = node.child.take() {
            let killed = child.kill().and_then(|()| child.wait());
            killed.map_err(|error| StressError::system("kill a memory node", error))?;
        }
        node.back_at = Some(back_at);
        Ok(true)
    }

    /// Whether a node may be killed: it is up, and its group, if it has one, survives its death.
    /// Stops the node for this check, and continues it if the result is `false`.
    fn may_lose(&self, at: u64) -> Result<bool, StressError> {
        let node = &self.nodes[at as usize];
        let (None, Some(child)) = (node.back_at, &node.child) else { return Ok(false) };
        let Some(replica) = &node.config.replica else { return Ok(true) };
        let Some(view) = replicas::whole_view(replica) else { return Ok(false) };
        signal(child, Signal::STOP)?;
        let is_same = replicas::stored_view(self.regions.path(), replica.group) == Some(view);
        if !is_same {
            signal(child, Signal::CONT)?;
        }
        Ok(is_same)
    }

    /// Stops a node that is up; returns whether it was.
    pub(super) fn stop(&mut self, at: u64, back_at: Instant) -> Result<bool, StressError> {
        let node = &mut self.nodes[at as usize];
        let (None, Some(child)) = (node.back_at, &node.child) else { return Ok(false) };
        signal(child, Signal::STOP)?;
        node.back_at = Some(back_at);
        Ok(true)
    }

    /// Cuts or slows a link that is whole; returns whether it was.
    pub(super) fn hurt(&mut self, at: u64, is_cut: bool, whole_at: Instant) -> Result<bool, StressError> {
        let Some(network) = &self.network else { return Ok(false) };
        let place = network.places()[at as usize];
        if self.hurt.iter().any(|(hurt, _)| *hurt == place) {
            return Ok(false);
        }
        network.set(place, if is_cut { Link::Cut } else { Link::Slow })?;
        self.hurt.push((place, whole_at));
        Ok(true)
    }

    /// Brings back the nodes and links that are due.
    pub(super) fn heal(&mut self, now: Instant) -> Result<(), StressError> {
        for at in 0..self.nodes.len() {
            if self.nodes[at].back_at.is_some_and(|back_at| back_at <= now) {
                match &self.nodes[at].child {
                    Some(child) => signal(child, Signal::CONT)?,
                    None => self.launch(at as u32)?,
                }
                self.nodes[at].back_at = None;
            }
        }
        if let Some(network) = &self.network {
            for (place, _) in self.hurt.extract_if(.., |(_, whole_at)| *whole_at <= now) {
                network.set(place, Link::Whole)?;
            }
        }
        Ok(())
    }

    /// Returns when the next node or link comes back.
    pub(super) fn next_heal(&self) -> Option<Instant> {
        let nodes = self.nodes.iter().filter_map(|node| node.back_at);
        nodes.chain(self.hurt.iter().map(|(_, whole_at)| *whole_at)).min()
    }

    /// Brings back all nodes and links at once.
    pub(super) fn heal_all(&mut self) -> Result<(), StressError> {
        while let Some(at) = self.next_heal() {
            self.heal(at)?;
        }
        Ok(())
    }

    /// Returns a sentence about each node that has ended by itself.
    pub(super) fn ended(&mut self) -> Result<Vec<String>, StressError> {
        let mut ended = Vec::new();
        for at in 0..self.nodes.len() {
            let Some(child) = &mut self.nodes[at].child else { continue };
            let status = child.try_wait();
            let status =
                status.map_err(|error| StressError::system("get the status of a memory node", error))?;
            if let Some(status) = status {
                ended.push(format!("memory node {at} ended by itself, {status}{}", self.words(at as u32)));
            }
        }
        Ok(ended)
    }
}

fn signal(child: &Child, signal: Signal) -> Result<(), StressError> {
    // The process number is not reused before the child is waited for.
    kill_process(Pid::from_child(child), signal)
        .map_err(|error| StressError::system("signal a memory node", error.into()))
}
