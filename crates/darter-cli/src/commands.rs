//! The commands that work on the keys of a pool, and those that keep one up.

use crate::{Answer, Failure};
use crate::{check, delete, export, load, pairs, pool, scan, serve, shell, stats, tree, up};
use clap::Subcommand;

/// The commands that open a pool, with any index that the program knows: first those of every day,
/// then those of operators.
#[derive(Subcommand)]
pub enum StoreCommand {
    /// Store a value under a key
    Put(pairs::PutCommand),
    /// Print a key's value; exit code 1 when the key is absent
    Get(pairs::GetCommand),
    /// Remove a key, or all keys of a range; exit code 1 when there is none
    Del(delete::DelCommand),
    /// Print the pairs of a key range, in order
    Scan(scan::ScanCommand),
    /// Type commands at a prompt, or run a script of them, over one pool
    Shell(shell::ShellCommand),
    /// Store the pairs of a CSV, TSV or JSON-lines file
    Load(load::LoadCommand),
    /// Write pairs to a file that `import` reads
    Export(export::ExportCommand),
    /// Store the pairs of a file that `export` has written
    Import(load::ImportCommand),
    /// Print counts, depth, node types, skip table and memory
    Stats(stats::StatsCommand),
    /// Draw the top of the tree
    Tree(tree::TreeCommand),
    /// Verify every invariant of index and pool and count leaked bytes; exit code 1 when an
    /// invariant is broken
    Check(check::CheckCommand),
    /// Run memory nodes on this machine with a pool over them, and gateways to it, and print their
    /// URLs, until SIGTERM or Ctrl-C
    Up(up::UpCommand),
    /// Make a pool of memory nodes, or describe one
    #[command(subcommand)]
    Pool(pool::PoolCommand),
    /// Serve a pool to Redis's clients, as one of its gateways, until SIGTERM
    #[command(after_help = "\
Examples:
  darter serve --resp 127.0.0.1:6379 --http 9701 --pool file:/dev/shm/fruit.pool
  darter serve --resp 10.0.0.9:6379 --pool tcp://10.0.0.1:7000 --password-file password")]
    Serve(Box<serve::ServeCommand>),
}

impl StoreCommand {
    pub fn run(self) -> Result<Answer, Failure> {
        match self {
            Self::Put(command) => command.run(),
            Self::Get(command) => command.run(),
            Self::Del(command) => command.run(),
            Self::Scan(command) => command.run(),
            Self::Shell(command) => command.run(),
            Self::Load(command) => command.run(),
            Self::Export(command) => command.run(),
            Self::Import(command) => command.run(),
            Self::Stats(command) => command.run(),
            Self::Tree(command) => command.run(),
            Self::Check(command) => command.run(),
            Self::Up(command) => command.run(),
            Self::Pool(command) => command.run(),
            Self::Serve(command) => command.run(),
        }
    }

    /// Returns whether it serves until it is stopped. Servers print an address, and serve without
    /// stdout too.
    pub fn is_server(&self) -> bool {
        matches!(self, Self::Up(_) | Self::Serve(_))
    }
}
