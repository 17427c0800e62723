//! The pool that a command works on, and the commands for pools themselves.

use crate::Answer;
use crate::arguments::{IndexArgs, seconds};
use crate::credentials::ClientArgs;
use crate::drain::DrainCommand;
use crate::failure::{Failure, complain};
use crate::tables::{bytes_text, print_pool};
use darter::engine::{self, Engine, OrderedIndex};
use darter::{Error, PoolUrl, Scheme, Store, StoreOptions};
use darter_fabric::Fabric;
use darter_fabric::{Durability, Local, Provider, counted};
use darter_gateway::json;
use std::fs::File;
use std::io::{ErrorKind, Write};
use std::time::Duration;

/// The pool to work on.
#[derive(clap::Args)]
pub(crate) struct PoolArgs {
    /// Pool: `file:PATH`, or `file:PATH?size=SIZE[&nodes=N]` to create it if absent, or
    /// `tcp://HOST:PORT,…`, or `rdma://HOST:PORT,…?device=DEVICE`
    #[arg(long, value_name = "URL", env = "DARTER_POOL")]
    pool: PoolUrl,
    #[command(flatten)]
    index: IndexArgs,
    #[command(flatten)]
    credentials: ClientArgs,
}

impl PoolArgs {
    /// Returns a pool as if named and opened by the options of that name.
    pub(crate) fn new(pool: PoolUrl, index: IndexArgs, credentials: ClientArgs) -> Self {
        Self { pool, index, credentials }
    }

    fn options(&self) -> Result<StoreOptions, Failure> {
        usable(&self.pool)?;
        self.credentials.store_options(&self.pool)
    }

    fn open(&self, options: StoreOptions) -> Result<Store, Failure> {
        Ok(self.index.open(options, &self.pool)?)
    }

    /// Opens an existing pool.
    pub(crate) fn existing(&self) -> Result<Store, Failure> {
        let store = self.open(self.options()?.create(false))?;
        self.remark(&store);
        Ok(store)
    }

    /// Opens an existing pool to repair it. A copy of an open pool is refused unless a snapshot of
    /// it is sound.
    pub(crate) fn to_repair(&self) -> Result<Store, Failure> {
        let options = self.options()?.create(false);
        let opened = self.index.open(options.clone(), &self.pool);
        let Err(refused @ Error::CopyOfOpen { .. }) = opened else { return Ok(opened?) };
        let options = options.accept_copy(true);
        let snapshot = self.index.open(engine::snapshot(options.clone()).maintenance(false), &self.pool);
        let found = snapshot.and_then(|snapshot| snapshot.repair());
        let check = found.map_err(|error| Failure::failed(format_args!("{refused}; it is not: {error}")))?;
        if let Some(violation) = check.violations.first() {
            let found = counted(check.violations.len() as u64, "violation");
            return Err(Failure::failed(format_args!("{refused}; it is not: {found}, such as: {violation}")));
        }
        complain("note: this copy of an open pool is sound, and is a separate pool from now on");
        self.open(options)
    }

    /// Opens an existing pool, lets a command read it, and checks whether the command read one
    /// state of the pool. If this user may not write the pool's file, reads a snapshot of it.
    pub(crate) fn read(
        &self,
        command: impl FnOnce(&Store) -> Result<Answer, Failure>,
    ) -> Result<Answer, Failure> {
        let store = if self.may_write() {
            self.existing()?
        } else {
            let store = self.open(self.options()?.create(false).read_only(true).maintenance(false))?;
            self.remark(&store);
            store
        };
        let answer = command(&store)?;
        store.verify()?;
        Ok(answer)
    }

    /// Returns whether this user may write the pool's file, if it is in one.
    fn may_write(&self) -> bool {
        let Scheme::File(path) = self.pool.scheme() else { return true };
        let refused = File::options().read(true).write(true).open(path).err().map(|error| error.kind());
        !matches!(refused, Some(ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem))
    }

    /// Opens a pool, or creates it if its URL has a size.
    pub(crate) fn open_or_create(&self) -> Result<Store, Failure> {
        self.open_or_create_with(self.options()?)
    }

    /// Opens or creates a pool for a gateway. A gateway keeps no state of a lost pool, so it also
    /// serves the pool that replaces it.
    pub(crate) fn open_to_serve(
        &self,
        limit: impl FnOnce(StoreOptions) -> StoreOptions,
    ) -> Result<Store, Failure> {
        self.open_or_create_with(limit(self.options()?.accept_new_pool(true)))
    }

    fn open_or_create_with(&self, options: StoreOptions) -> Result<Store, Failure> {
        let store = self.open(options)?;
        self.remark(&store);
        if *self.pool.scheme() == Scheme::Memory {
            complain("note: a `mem:` pool ends with this command; use `file:PATH?size=SIZE` to keep it");
        }
        Ok(store)
    }
}

impl PoolArgs {
    /// Warns about an open pool whose disk may fill up, or whose size differs from the size in its
    /// URL, which has an effect only when a pool is created.
    fn remark(&self, store: &Store) {
        warn_of_missing_space(store);
        let pool = store.pool();
        let fabric = pool.fabric();
        let (nodes, node_bytes) = (fabric.nodes(), fabric.node_bytes(0));
        if self.pool.node_bytes().is_some_and(|bytes| bytes != node_bytes) || self.pool.nodes() > nodes {
            let has = bytes_text(node_bytes * nodes as u64);
            complain(format_args!(
                "note: this pool exists already, with {has} in {}; `?size=` and `nodes=` have an effect only when a pool is \
                 created",
                counted(nodes as u64, "memory node")
            ));
        }
    }
}

/// Warns if a pool's file system has less free space than the pool may come to need.
fn warn_of_missing_space(store: &Store) {
    if let Provider::Local(local) = store.pool().fabric().inner()
        && let Some(warning) = local.missing_space()
    {
        complain(format_args!("warning: {warning}"));
    }
}

/// Checks that a pool's path is not a directory.
pub fn usable(pool: &PoolUrl) -> Result<(), Failure> {
    match pool.scheme() {
        Scheme::File(path) if path.is_dir() => Err(Failure::usage(format_args!(
            "{}: it is a directory; name a file in it, for example `file:{}`",
            path.display(),
            path.join("fruit.pool").display()
        ))),
        _ => Ok(()),
    }
}

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
    /// Move everything off a memory node while programs work, and remove it from the pool
    Drain(DrainCommand),
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
Example:
  darter pool add-node 10.0.0.4:7000 --pool tcp://10.0.0.1:7000")]
pub struct AddNodeCommand {
    #[command(flatten)]
    pool: PoolArgs,
    /// Address of the memory node, as clients reach it
    #[arg(value_name = "HOST:PORT", value_parser = node_address)]
    address: String,
    /// Maximum time in seconds to wait for the processes that have the pool open
    #[arg(long, value_name = "SECONDS", default_value_t = 15)]
    patience: u64,
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
            Self::Drain(command) => command.run(),
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
        let store = self.pool.existing()?;
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
        Ok(Answer::Done)
    }
}
