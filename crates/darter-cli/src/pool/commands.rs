//! The commands for pools themselves.

use super::{PoolArgs, usable, warn_of_missing_space};
use crate::Answer;
use crate::arguments::seconds;
use crate::drain::DrainCommand;
use crate::failure::{Failure, complain};
use crate::moving::Rate;
use crate::rebalance::{RebalanceCommand, rebalance, verify_may_rebalance};
use crate::remove_node::RemoveNodeCommand;
use crate::tables::print_pool;
use darter::engine::{Engine, OrderedIndex};
use darter::{PoolUrl, Scheme, Store};
use darter_fabric::{Durability, Fabric, Local, counted};
use darter_gateway::json;
use std::io::Write;
use std::time::Duration;

/// Parses an address as in a pool's URL.
fn node_address(text: &str) -> Result<String, String> {
    let pool = format!("tcp://{text}").parse::<PoolUrl>();
    let is_one = pool.is_ok_and(|pool| pool.addresses().is_some_and(|addresses| addresses.len() == 1));
    if is_one {
        Ok(text.to_owned())
    } else {
        Err("not an address with a port; write for example 10.0.0.4:7000".to_owned())
    }
}

#[derive(clap::Subcommand)]
pub enum PoolCommand {
    /// Create a pool on memory nodes that have none, or in a file
    Create(CreateCommand),
    /// Add a memory node to a pool; processes that have the pool open use it at once
    AddNode(AddNodeCommand),
    /// Move objects between memory nodes while programs work, until they hold about equally much
    Rebalance(RebalanceCommand),
    /// Move everything off a memory node while programs work, and remove it from the pool
    Drain(DrainCommand),
    /// Give up memory nodes that do not come back, and make the pool whole without the keys on them
    RemoveNode(RemoveNodeCommand),
    /// Describe a pool: its nodes, their space, and its members
    Status(StatusCommand),
    /// Make another replica of a memory group the primary, for example before maintenance
    Handoff(HandoffCommand),
}

#[derive(clap::Args)]
#[command(after_help = "\
Example:
  darter pool handoff 0 10.0.0.2:7000 --pool tcp://10.0.0.1:7000+10.0.0.2:7000")]
pub struct HandoffCommand {
    #[command(flatten)]
    pool: PoolArgs,
    /// Number of the memory node, which must be a group
    #[arg(value_name = "NODE")]
    node: u8,
    /// Replica to make the primary; must be a backup
    #[arg(value_name = "HOST:PORT", value_parser = node_address)]
    replica: String,
    /// Maximum time in seconds to wait for the handoff
    #[arg(long, value_name = "SECONDS", default_value = "15", value_parser = seconds)]
    patience: Duration,
}

#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  darter pool create --pool tcp://10.0.0.1:7000,10.0.0.2:7000 --token-file token
  darter pool create --pool 'file:/data/fruit.pool?size=8G&nodes=2' --index quiver
  darter pool create --pool 'file:/dev/dax0.0?size=8G&durability=flush' --overwrite")]
pub struct CreateCommand {
    #[command(flatten)]
    pool: PoolArgs,
    /// Replace the contents of the file or device, unless a process has it open; on memory nodes,
    /// replace a pool that has lost a node other than its first, and disconnect its processes
    #[arg(long)]
    overwrite: bool,
}

#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  darter pool add-node 10.0.0.4:7000 --pool tcp://10.0.0.1:7000
  darter pool add-node 10.0.0.4:7000 --rebalance --rate 50MiB

With --rebalance the command then does as `darter pool rebalance`, which goes on if it is interrupted.")]
pub struct AddNodeCommand {
    #[command(flatten)]
    pool: PoolArgs,
    /// Address of the memory node, as clients reach it
    #[arg(value_name = "HOST:PORT", value_parser = node_address)]
    address: String,
    /// Maximum time in seconds to wait for the processes that have the pool open
    #[arg(long, value_name = "SECONDS", default_value_t = 15)]
    patience: u64,
    /// Then move objects to it, until all memory nodes hold about equally much
    #[arg(long)]
    rebalance: bool,
    #[command(flatten)]
    rate: Rate,
}

#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  darter pool status
  darter pool status --json | jq '.nodes[].free'")]
pub struct StatusCommand {
    #[command(flatten)]
    pool: PoolArgs,
    /// Print the description as a JSON object
    #[arg(long)]
    json: bool,
}

impl PoolCommand {
    pub(crate) fn run(&self) -> Result<Answer, Failure> {
        match self {
            Self::Create(command) => command.run(),
            Self::AddNode(command) => command.run(),
            Self::Rebalance(command) => command.run(),
            Self::Drain(command) => command.run(),
            Self::RemoveNode(command) => command.run(),
            Self::Status(command) => command.run(),
            Self::Handoff(command) => command.run(),
        }
    }
}

impl CreateCommand {
    fn run(&self) -> Result<Answer, Failure> {
        let url = &self.pool.pool;
        usable(url)?;
        match url.scheme() {
            Scheme::Memory => {
                return Err(Failure::usage(
                    "a `mem:` pool ends with this command, so it cannot be created; use `file:PATH?size=SIZE`",
                ));
            }
            Scheme::File(path)
                if path.exists()
                    && !self.overwrite
                    && !Local::is_blank_device(path).map_err(darter::Error::from)? =>
            {
                return Err(Failure::usage(format!(
                    "{}: it exists already; add --overwrite to replace it with a new pool",
                    path.display()
                )));
            }
            _ => {}
        }
        let store = self
            .pool
            .open(self.pool.options()?.create(true).create_new(!self.overwrite).truncate(self.overwrite))?;
        warn_of_missing_space(&store);
        let mut out = std::io::stdout().lock();
        let nodes = counted(store.pool().nodes().into(), "memory node");
        writeln!(out, "created {url}: {nodes}, index {}", store.index().name())?;
        Ok(Answer::Done)
    }
}

impl StatusCommand {
    fn run(&self) -> Result<Answer, Failure> {
        self.pool.read(|store| self.print(store))
    }

    fn print(&self, store: &Store) -> Result<Answer, Failure> {
        let usage = store.usage()?;
        let mut out = std::io::stdout().lock();
        if self.json {
            writeln!(out, "{}", json::pool(&usage))?;
            return Ok(Answer::Done);
        }
        writeln!(out, "pool          {}, id {:#x}", self.pool.pool, store.pool().id())?;
        writeln!(out, "index         {}", store.index().name())?;
        writeln!(out, "epoch         {}", usage.epoch)?;
        writeln!(out, "durability    {}", durability_text(usage.durability))?;
        print_pool(&mut out, &usage)?;
        Ok(Answer::Done)
    }
}

/// Returns which writes to a pool survive a power failure.
fn durability_text(durability: Durability) -> &'static str {
    match durability {
        Durability::OnCompletion => "on-completion: all acknowledged writes survive a power failure",
        Durability::ByVerb => "by-verb: all writes before the last sync survive a power failure",
        _ => "never: a power failure can lose or damage anything",
    }
}

impl HandoffCommand {
    fn run(&self) -> Result<Answer, Failure> {
        let store = self.pool.existing()?;
        store
            .pool()
            .fabric()
            .replica_groups()
            .hand_over(self.node, &self.replica, self.patience)
            .map_err(Failure::failed)?;
        writeln!(std::io::stdout().lock(), "{} serves as memory node {}", self.replica, self.node)?;
        Ok(Answer::Done)
    }
}

impl AddNodeCommand {
    fn run(&self) -> Result<Answer, Failure> {
        if self.rate.rate.is_some() && !self.rebalance {
            return Err(Failure::usage("--rate is for --rebalance; add that, or leave it out"));
        }
        self.rate.verify()?;
        let store = self.pool.existing()?;
        if self.rebalance {
            verify_may_rebalance(&store)?;
        }
        let (node, behind) = store.add_node(&self.address, Duration::from_secs(self.patience))?;
        let mut out = std::io::stdout().lock();
        writeln!(out, "added {} as memory node {node}", self.address)?;
        if behind > 0 {
            complain(format_args!(
                "note: {} not reached it yet; it is used when they have, or have ended",
                format_args!(
                    "{} {}",
                    counted(behind as u64, "process"),
                    if behind == 1 { "has" } else { "have" }
                )
            ));
        }
        drop(out);
        if self.rebalance { rebalance(&store, self.rate) } else { Ok(Answer::Done) }
    }
}
