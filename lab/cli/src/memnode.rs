//! `memnode`: a memory node as in `darter memnode`, which can also run an index's server.

use crate::index_server::ServerArgs;
use darter_cli::{Answer, Failure, memnode};

#[derive(clap::Args)]
#[command(after_help = "\
Example:
  darter-lab memnode --listen 10.0.0.1:7000 --size 8G --workers 2 --serve xstore")]
pub(crate) struct ServedMemNodeCommand {
    #[command(flatten)]
    node: memnode::MemNodeCommand,
    #[command(flatten)]
    server: ServerArgs,
}

impl ServedMemNodeCommand {
    pub(crate) fn run(&self) -> Result<Answer, Failure> {
        self.node.run_with(|credentials| self.server.begin(credentials))
    }
}
