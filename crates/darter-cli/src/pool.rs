//! The pool that a command works on, and the commands about pools themselves.

use crate::Answer;
use crate::failure::{Failure, complain};
use crate::memnode::token;
use crate::stats::{bytes_text, pool_json};
use darter::{PoolUrl, Scheme, Store, StoreOptions};
use darter_fabric::TcpOptions;
use std::io::Write;
use std::path::PathBuf;

/// Which pool.
#[derive(clap::Args)]
pub(crate) struct PoolArgs {
    /// The pool: `file:PATH`, or `file:PATH?size=SIZE[&nodes=N]` to create it, or `tcp://HOST:PORT,…`
    #[arg(long, value_name = "URL", env = "DARTER_POOL")]
    pool: PoolUrl,
    /// A file with the token that the memory nodes ask for
    #[arg(long, value_name = "FILE", env = "DARTER_TOKEN_FILE")]
    token_file: Option<PathBuf>,
}

impl PoolArgs {
    fn options(&self) -> Result<StoreOptions, Failure> {
        let token = token(self.token_file.as_deref())?;
        Ok(Store::options().tcp(TcpOptions { token, ..TcpOptions::default() }))
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
    /// Describe a pool: its nodes, their space, and who works on it
    Status(StatusCommand),
}

#[derive(clap::Args)]
pub(crate) struct CreateCommand {
    #[command(flatten)]
    pool: PoolArgs,
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
            Scheme::File(_) | Scheme::Tcp(_) => {}
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
            writeln!(out, "{}", pool_json(&usage))?;
            return Ok(Answer::Done);
        }
        writeln!(out, "pool          {}, id {:#x}", self.pool.pool, store.pool().id())?;
        writeln!(out, "epoch         {}", store.pool().epoch())?;
        for (at, node) in usage.nodes.iter().enumerate() {
            let taken = node.blocks - node.free;
            let (bytes, blocks) = (bytes_text(node.bytes), node.blocks);
            writeln!(
                out,
                "node {at:<8} {bytes}, {taken} of {blocks} blocks granted, {} of the dead",
                node.dead
            )?;
        }
        writeln!(out, "in use        {}", bytes_text(usage.used_bytes()))?;
        for member in &usage.members {
            let who = if member.is_me { ", this command" } else { "" };
            let (slot, pid, epoch) = (member.slot, member.pid, member.epoch);
            writeln!(
                out,
                "member {slot:<6} process {pid}, epoch {epoch}, {} ms of lease{who}",
                member.lease_left_ms
            )?;
        }
        Ok(Answer::Done)
    }
}
