//! The pool that a command works on, and the commands about pools themselves.

use crate::Answer;
use crate::credentials::ClientArgs;
use crate::failure::{Failure, complain};
use crate::tables::print_pool;
use darter::{PoolUrl, Scheme, Store, StoreOptions};
use darter_gateway::json;
use std::io::Write;
use std::time::Duration;

/// Which pool.
#[derive(clap::Args)]
pub(crate) struct PoolArgs {
    /// The pool: `file:PATH`, or `file:PATH?size=SIZE[&nodes=N]` to create it, or
    /// `tcp://HOST:PORT,…`
    #[arg(long, value_name = "URL", env = "DARTER_POOL")]
    pool: PoolUrl,
    #[command(flatten)]
    credentials: ClientArgs,
}

impl PoolArgs {
    /// A pool, named and opened as by the options of that name.
    pub(crate) fn new(pool: PoolUrl, credentials: ClientArgs) -> Self {
        Self { pool, credentials }
    }

    fn options(&self) -> Result<StoreOptions, Failure> {
        self.credentials.store_options(&self.pool)
    }

    /// Opens a pool that must be there.
    pub(crate) fn existing(&self) -> Result<Store, Failure> {
        Ok(self.options()?.must_exist(true).open_url(&self.pool)?)
    }

    /// Opens a pool, creating it when its name says how large.
    pub(crate) fn open_or_create(&self) -> Result<Store, Failure> {
        let store = self.options()?.open_url(&self.pool)?;
        if *self.pool.scheme() == Scheme::Memory {
            complain("note: a `mem:` pool ends with this command; use `file:PATH?size=SIZE` to keep it");
        }
        Ok(store)
    }
}

#[derive(clap::Subcommand)]
pub(crate) enum PoolCommand {
    /// Make a pool of memory nodes that hold none
    Create(CreateCommand),
    /// Add a memory node to a pool, to be used at once by the processes that have it open
    AddNode(AddNodeCommand),
    /// Describe a pool: its nodes, their space, and who works on it
    Status(StatusCommand),
}

#[derive(clap::Args)]
pub(crate) struct CreateCommand {
    #[command(flatten)]
    pool: PoolArgs,
}

#[derive(clap::Args)]
pub(crate) struct AddNodeCommand {
    #[command(flatten)]
    pool: PoolArgs,
    /// The memory node, as clients find it
    #[arg(value_name = "HOST:PORT")]
    address: String,
    /// Seconds to wait for the processes that have the pool open
    #[arg(long, value_name = "SECONDS", default_value_t = 15)]
    patience: u64,
}

#[derive(clap::Args)]
pub(crate) struct StatusCommand {
    #[command(flatten)]
    pool: PoolArgs,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

impl PoolCommand {
    pub(crate) fn run(&self) -> Result<Answer, Failure> {
        match self {
            Self::Create(command) => command.run(),
            Self::AddNode(command) => command.run(),
            Self::Status(command) => command.run(),
        }
    }
}

impl CreateCommand {
    fn run(&self) -> Result<Answer, Failure> {
        let url = &self.pool.pool;
        match url.scheme() {
            Scheme::Memory => {
                return Err(Failure::usage(
                    "a `mem:` pool ends with this command; there is nothing to create",
                ));
            }
            Scheme::File(path) if path.exists() => {
                return Err(Failure::usage(format!("{}: there is something already", path.display())));
            }
            _ => {}
        }
        let store = self.pool.options()?.create(true).open_url(url)?;
        let mut out = std::io::stdout().lock();
        writeln!(out, "created {url}: {} memory nodes", store.pool().nodes())?;
        Ok(Answer::Done)
    }
}

impl StatusCommand {
    fn run(&self) -> Result<Answer, Failure> {
        let store = self.pool.existing()?;
        let usage = store.usage()?;
        let mut out = std::io::stdout().lock();
        if self.json {
            writeln!(out, "{}", json::pool(&usage))?;
            return Ok(Answer::Done);
        }
        writeln!(out, "pool          {}, id {:#x}", self.pool.pool, store.pool().id())?;
        writeln!(out, "epoch         {}", usage.epoch)?;
        print_pool(&mut out, &usage)?;
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
                "note: {behind} processes have not reached it yet; it is used when they have, or have ended"
            ));
        }
        Ok(Answer::Done)
    }
}
